//! Tasks of operators on the page.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use super::{ask_as, ban, is_content, limit, start};
use crate::harness::{Browser, Cluster, Config, Origin, Redis, Tollgate, eventually};

#[test]
fn an_address_is_found_looked_into_and_let_go_on_every_instance() {
    let (origin, redis) = (Origin::ok(), Redis::start());
    let store = format!("store: {{ redis: {{ url: \"{}\", timeout: 2s }} }}\n", redis.url());
    let [one, other] = [(); 2].map(|()| start(&origin, &store));
    limit(&one, "127.0.0.5", &["ann", "bob", "ann", "eve"]);
    assert_eq!(ask_as(&other, "127.0.0.5", &["ann"]), [429], "they share the limit");

    let browser = Browser::open(one.admin, "/");
    browser.click("a[href='/blocked']");
    browser.write("[name=prefix]", "127.0.0.0/8");
    browser.click("form.filter button");
    browser.comes_to("/blocked?prefix=127.0.0.0%2F8&policy=");
    browser.shows("table", "127.0.0.5");
    browser.shows("table", "unknown");
    browser.click("tbody th a");
    browser.comes_to("/blocked/127.0.0.5");
    for user in ["ann", "bob", "eve"] {
        browser.shows("main", user);
    }
    browser.shows("main", "/orders/7");
    browser.shows("main", "3 of 3");

    browser.click("[data-dialog=unblock]");
    browser.shows("#unblock", "Unblock 127.0.0.5?");
    for sentence in ["The limits of the address are cleared.", "Its bans are lifted.", "The evidence is kept"]
    {
        browser.shows("#unblock", sentence);
    }
    browser.click("#unblock [data-close]");
    assert_eq!(ask_as(&other, "127.0.0.5", &["ann"]), [429], "nothing was changed yet");
    browser.click("[data-dialog=unblock]");
    browser.click("#unblock [type=submit]");
    browser.shows("#said", "127.0.0.5 is unblocked: 1 limit cleared");
    browser.shows("main .head", "Unblocked");
    browser.shows("main .head", "by operator at 127.0.0.1");
    for user in ["ann", "bob", "eve"] {
        browser.shows("main", user);
    }
    browser.shows("main dl.tiles", "Time left\nended");
    is_content(&browser);
    eventually("the other instance lets it through", || ask_as(&other, "127.0.0.5", &["ann"]) == [200]);
    browser.go("/blocked");
    browser.shows("main table", "Unblocked");

    assert_eq!(ask_as(&one, "127.0.0.5", &["ann", "ann", "gil"]).last(), Some(&429));
    browser.go("/blocked/127.0.0.5");
    browser.shows("main .head", "denied again since");
    for user in ["eve", "gil"] {
        browser.shows("main", user);
    }
}

#[test]
fn a_new_denial_shows_by_itself_and_keeps_what_the_operator_does() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    let browser = Browser::open(tollgate.admin, "/blocked");
    browser.shows("main", "No blocked addresses");
    browser.shows("#live", "Live");
    browser.write("[name=prefix]", "127.");
    browser.script("window.same = true");
    limit(&tollgate, "127.0.0.5", &["ann", "bob", "ann", "eve"]);
    browser.shows("main table", "127.0.0.5");
    assert_eq!(browser.script("return window.same"), true, "the page was loaded anew");
    assert_eq!(
        browser.script("return document.activeElement.name + document.activeElement.value"),
        "prefix127."
    );
    is_content(&browser);
}

#[test]
fn a_page_that_could_not_listen_becomes_live_by_itself() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    // Takes all event streams, until one more is refused.
    let ask = format!("GET /v1/events HTTP/1.1\r\nhost: {}\r\n\r\n", tollgate.admin);
    let mut listeners: Vec<TcpStream> = Vec::new();
    loop {
        let mut stream = TcpStream::connect(tollgate.admin).unwrap();
        stream.write_all(ask.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        if &status == b"HTTP/1.1 503" {
            break;
        }
        listeners.push(stream);
    }
    let browser = Browser::open(tollgate.admin, "/blocked");
    browser.shows("#live", "Not live");
    drop(listeners);
    browser.shows("#live", "Live");
    limit(&tollgate, "127.0.0.5", &["ann", "bob", "ann", "eve"]);
    browser.shows("main table", "127.0.0.5");
}

#[test]
fn a_user_is_found_behind_an_address_and_banned() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    limit(&tollgate, "127.0.0.5", &["bob", "eve", "bob", "a+b"]);
    let browser = Browser::open(tollgate.admin, "/blocked/127.0.0.5");
    browser.click("a[href='/users/a%2Bb']");
    browser.comes_to("/users/a%2Bb");
    browser.shows("main table", "127.0.0.5");
    browser.click("[data-dialog=ban]");
    browser.click("#ban [type=submit]");
    browser.shows("#said", "user:a%2Bb is banned until");
    eventually("the user is shut out elsewhere, too", || ask_as(&tollgate, "127.0.0.6", &["a+b"]) == [403]);
    assert_eq!(ask_as(&tollgate, "127.0.0.7", &["bob"]), [200]);
    browser.shows("main .head", "Banned");
    browser.shows("main section[aria-labelledby=bans]", "user:a%2Bb");
    browser.shows("main section[aria-labelledby=limits]", "trial");
    browser.shows("main section[aria-labelledby=records]", "/orders/7");
    browser.go("/blocked/127.0.0.5");
    browser.shows("main section[aria-labelledby=users]", "Banned");
    browser.go("/users/a%2Bb");
    browser.click("[data-about='user:a%2Bb']");
    browser.shows("#lift", "Lift the ban of user:a%2Bb?");
    browser.click("#lift [type=submit]");
    browser.shows("#said", "user:a%2Bb: 1 ban lifted");
    eventually("the user is served again", || ask_as(&tollgate, "127.0.0.8", &["a+b"]) == [200]);
    is_content(&browser);
}

#[test]
fn the_number_of_blocked_addresses_changes_by_itself() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    let browser = Browser::open(tollgate.admin, "/");
    browser.shows("[data-tick=blocked]", "0");
    limit(&tollgate, "127.0.0.5", &["ann", "bob", "ann", "eve"]);
    browser.shows("[data-tick=blocked]", "1");
    browser.shows("main", "127.0.0.5");
    is_content(&browser);
}

#[test]
fn without_scripts_everything_can_be_read() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    limit(&tollgate, "127.0.0.5", &["ann", "bob", "ann", "eve"]);
    let page = || tollgate.admin("GET", "/blocked/127.0.0.5").text();
    for told in ["127.0.0.5", "ann", "bob", "eve", "/orders/7", "3 of 3", "3 users, one request, to one URL"]
    {
        eventually(&format!("{told} is told"), || page().contains(told));
    }
    // Controls that need a script are hidden without one.
    assert!(page().contains("<div class=\"actions js\">"));
}

#[test]
fn bans_have_a_badge_and_their_time_left_in_every_list() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    for address in ["127.0.0.5", "127.0.1.6"] {
        limit(&tollgate, address, &["ann", "bob", "ann", "eve"]);
    }
    for key in ["ip:127.0.0.5", "ip:127.0.1.0/24"] {
        ban(&tollgate, key);
    }
    let browser = Browser::open(tollgate.admin, "/");
    for (page, address) in [("/", "127.0.0.5"), ("/blocked", "127.0.0.5"), ("/blocked", "127.0.1.6")] {
        browser.go(page);
        let row = format!("tr[data-key='{address}']");
        browser.shows(&row, "Banned");
        browser.shows(&row, "6 d 23 h");
    }
    for address in ["127.0.0.5", "127.0.1.6"] {
        browser.go(&format!("/blocked/{address}"));
        browser.shows("main .head", "Banned");
        browser.shows("main dl.tiles", "Time left\n6 d 23 h");
    }
    // Unblocking does not lift the ban of a prefix.
    browser.click("[data-dialog=unblock]");
    browser.click("#unblock [type=submit]");
    browser.shows("#said", "127.0.1.6 is still banned, because ip:127.0.1.0/24 is banned: 1 limit cleared");
    browser.shows("main .head", "Banned");
    browser.go("/users/eve");
    browser.shows("tr[data-key='127.0.0.5']", "Banned");
    is_content(&browser);
}

#[test]
fn a_client_is_banned_and_unbanned() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    let browser = Browser::open(tollgate.admin, "/blocked/127.0.0.5");
    browser.shows("main", "Not limited recently");
    browser.click("[data-dialog=ban]");
    browser.shows("#ban", "Ban ip:127.0.0.5?");
    browser.write("#ban [name=reason]", "scrapes <prices>");
    browser.click("#ban [type=submit]");
    browser.shows("#said", "ip:127.0.0.5 is banned until");
    browser.shows("main", "scrapes <prices>");
    eventually("its requests are refused", || ask_as(&tollgate, "127.0.0.5", &["ann"]) == [403]);

    browser.click("a[href='/bans']");
    browser.comes_to("/bans");
    browser.write("form.stack [name=key]", "user:eve");
    browser.click("form.stack [type=submit]");
    browser.shows("main table", "user:eve");
    browser.write("form.stack [name=key]", "user:\u{202e}eve");
    browser.click("form.stack [type=submit]");
    browser.shows("#said", r"user:\u{202e}eve is banned until");
    browser.write("form.stack [name=key]", "ip:0.0.0.0/1");
    browser.click("form.stack [type=submit]");
    browser.shows("form.stack .error", "one in 2 of all IPv4 addresses");
    browser.shows("form.stack .error", "this machine itself (127.0.0.1)");
    browser.write("form.stack [name=key]", "ip:128.0.0.0/1");
    browser.click("form.stack [type=submit]");
    browser.shows("form.stack .error", "Ban ip:128.0.0.0/1 all the same");
    browser.click("form.stack .error button");
    browser.shows("#said", "ip:128.0.0.0/1 is banned until");
    browser.write("form.stack [name=key]", "nonsense");
    browser.click("form.stack [type=submit]");
    browser.shows("form.stack .error", "nonsense");
    // The browser logs the responses 400 and 409.
    assert!(browser.logged().iter().all(|line| line.contains("400") || line.contains("409")));

    browser.click("[data-about='ip:127.0.0.5']");
    browser.shows("#lift", "Lift the ban of ip:127.0.0.5?");
    browser.click("#lift [type=submit]");
    browser.shows("#said", "ip:127.0.0.5: 1 ban lifted");
    eventually("its requests are let through", || ask_as(&tollgate, "127.0.0.5", &["ann"]) == [200]);
    browser.go("/audit");
    browser.shows("table", "scrapes <prices>");
    is_content(&browser);
}

#[test]
fn a_request_is_explained_and_nothing_is_counted() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    limit(&tollgate, "127.0.0.5", &["ann", "bob", "ann", "eve"]);
    let browser = Browser::open(tollgate.admin, "/");
    browser.click("a[href='/explain']");
    browser.comes_to("/explain");
    for (peer, verdict) in [("127.0.0.6", "allowed"), ("127.0.0.5", "denied"), ("127.0.0.6", "allowed")] {
        browser.write("[name=url]", "http://shop.example/orders/7");
        browser.write("[name=headers]", "x-user-id: zoe");
        browser.write("[name=peer]", peer);
        browser.click("form.stack [type=submit]");
        browser.shows(".verdict", verdict);
        for told in [peer, "zoe", "orders", "inspect", "metadata_list", "ip:127.0.0."] {
            browser.shows("main", told);
        }
    }
    browser.write("[name=headers]", "no colon");
    browser.click("form.stack [type=submit]");
    browser.shows("[role=alert]", "write headers as name: value");
    is_content(&browser);
    assert_eq!(ask_as(&tollgate, "127.0.0.6", &["ann"]), [200]);
}

#[test]
fn policies_tell_what_they_said() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    limit(&tollgate, "127.0.0.5", &["ann", "bob", "ann", "eve"]);
    let browser = Browser::open(tollgate.admin, "/policies");
    browser.shows("[data-key=inspect]", "metadata_list");
    browser.shows("[data-key=inspect]", "Denied\n1");
    browser.shows("[data-key=trial]", "shadow: never denies");
    browser.go("/");
    browser.shows("main", &format!("http://{}", origin.address));
    is_content(&browser);
}

#[test]
fn a_user_leads_to_all_addresses_that_were_limited_with_it() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    for source in ["127.0.0.5", "127.0.0.6"] {
        limit(&tollgate, source, &["ann", "bob", "ann", "a/b <i>", "a/b <i>"]);
    }
    let browser = Browser::open(tollgate.admin, "/blocked/127.0.0.5");
    browser.click("a[href='/users/a%2Fb%20%3Ci%3E']");
    browser.shows("h1", "a/b <i>");
    browser.shows("table", "127.0.0.5");
    browser.shows("table", "127.0.0.6");
    browser.go("/users/nobody");
    browser.shows("main", "Not limited recently");
    is_content(&browser);
}

#[test]
fn the_nodes_of_a_cluster_are_shown_and_one_that_is_killed_shows_by_itself() {
    let (origin, mut redis) = (Origin::ok(), Cluster::start());
    let tollgate = start(&origin, &format!("store: {{ redis: {{ {}, timeout: 2s }} }}\n", redis.settings()));
    let browser = Browser::open(tollgate.admin, "/");
    browser.shows("#live", "Live");
    let row = |node: usize| {
        let address = format!("127.0.0.1:{}", redis.nodes[node].port);
        format!("tr[data-key='{address}']")
    };
    browser.shows(&row(0), "0-5460");
    let rows: Vec<_> = (0..6).map(row).collect();
    for row in &rows {
        browser.shows(row, "up");
    }
    browser.shows("dl.facts", "6 of 6");
    redis.kill(5);
    browser.shows(&rows[5], "down");
    browser.shows("dl.facts", "5 of 6");
    for theme in ["light", "dark"] {
        browser.script(&format!("document.cookie = 'tollgate_theme={theme}; Path=/'"));
        browser.go("/");
        let faint = browser.script(include_str!("contrast.js"));
        assert_eq!(faint.as_array().map(Vec::len), Some(0), "{theme}: {faint:#}");
    }
    browser.resize(360);
    browser.go("/");
    browser.shows(&rows[5], "down");
    let width = browser.script("return document.scrollingElement.scrollWidth");
    assert!(width.as_u64().unwrap() <= 360, "{width}");
    is_content(&browser);
}

#[test]
fn an_endpoint_is_drained_and_undrained() {
    let origins = [Origin::ok(), Origin::ok()];
    let tollgate = Tollgate::start(Config::new(&origins.each_ref().map(|origin| origin.address), ""));
    let urls = origins.each_ref().map(|origin| format!("http://{}", origin.address));
    let browser = Browser::open(tollgate.admin, "/");
    browser.click("a[href='/upstreams']");
    browser.comes_to("/upstreams");
    browser.shows("main", "2 of 2 healthy");
    browser.click(&format!("[data-dialog=drain][data-endpoint='{}']", urls[0]));
    browser.shows("#drain", &format!("Drain {} of origin?", urls[0]));
    browser.write("#drain [name=reason]", "a <new> disk");
    browser.click("#drain [type=submit]");
    browser.shows("#said", &format!("{} of origin is drained.", urls[0]));
    browser.shows(&format!("tr[data-key='{}']", urls[0]), "a <new> disk by operator at 127.0.0.1");
    browser.shows("main", "1 of 2 healthy");
    // The other endpoint is the last that takes requests.
    browser.click(&format!("[data-dialog=drain][data-endpoint='{}']", urls[1]));
    browser.click("#drain [type=submit]");
    browser.shows(
        "#drain .error",
        "No other endpoint of origin takes requests: each request to it will get 503.",
    );
    browser.click("#drain .error button");
    browser.shows("main", "0 of 2 healthy");
    eventually("its requests get 503", || ask_as(&tollgate, "127.0.0.5", &["ann"]) == [503]);
    assert!(browser.logged().iter().all(|line| line.contains("409")));
    browser.click(&format!("[data-dialog=undrain][data-endpoint='{}']", urls[1]));
    browser.shows("#undrain", &format!("Undrain {} of origin?", urls[1]));
    browser.click("#undrain [type=submit]");
    browser.shows("#said", &format!("{} of origin takes requests again.", urls[1]));
    eventually("it is sent requests", || ask_as(&tollgate, "127.0.0.5", &["ann"]) == [200]);
    browser.go("/audit");
    browser.shows("table", "a <new> disk");
    is_content(&browser);
}
