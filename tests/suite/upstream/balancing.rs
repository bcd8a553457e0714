//! Which endpoint a request goes to: by its key, by its client's cookie, and by how long the endpoint has been back.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use super::upstream;
use crate::harness::{
    Authority, Client, Config, Origin, Reply, TlsConnector, Tollgate, by_http2, file_name, get, nobody,
    request,
};

/// An origin that answers its name, and sets a cookie of its own.
fn named(name: &'static str) -> Origin {
    Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            conn.answer("200 OK", &[("set-cookie", "own=1")], name.as_bytes())?;
        }
        Ok(())
    })
}

fn urls(origins: &[&Origin]) -> Vec<String> {
    origins.iter().map(|origin| format!("http://{}", origin.address)).collect()
}

fn users() -> impl Iterator<Item = String> {
    (0..240).map(|nth| format!("user-{nth}"))
}

/// Who answers each user, by one connection.
fn owners(tollgate: &Tollgate) -> Vec<String> {
    let mut client = Client::connect(tollgate.address);
    users().map(|user| client.request("GET", "/", &[("x-user", &user)], b"").text()).collect()
}

#[test]
fn of_an_endpoint_that_goes_only_its_keys_move_and_instances_agree() {
    let [a, b, c, d] = ["a", "b", "c", "d"].map(named);
    let by_user = "balance: { hash: header:x-user }";
    let first = Tollgate::start(upstream(&urls(&[&a, &b, &c, &d]), by_user));
    let before = owners(&first);
    for name in ["a", "b", "c", "d"] {
        let keys = before.iter().filter(|owner| *owner == name).count();
        assert!((30..=90).contains(&keys), "{name} has {keys} of 240 keys");
    }
    let other = Tollgate::start(upstream(&urls(&[&d, &b, &a, &c]), by_user));
    assert_eq!(owners(&other), before, "the order makes no difference");

    let without = Tollgate::start(upstream(&urls(&[&a, &b, &d]), by_user));
    for (before, after) in before.iter().zip(owners(&without)) {
        assert!(*before == after || before == "c", "{before} to {after}");
    }
    // One that cannot be reached, and cannot be told from one that has just gone.
    let mut down = urls(&[&a, &b, &d]);
    down.push(format!("http://{}", nobody()));
    let answers = owners(&Tollgate::start(upstream(&down, by_user)));
    assert_eq!(answers.iter().filter(|owner| ["a", "b", "d"].contains(&&***owner)).count(), 240);
}

#[test]
fn endpoints_have_keys_by_their_weights() {
    let [light, heavy] = ["light", "heavy"].map(named);
    let endpoints = format!(
        "workers: 2\nupstreams:\n  origin:\n    balance: {{ hash: header:x-user }}\n    endpoints:\n      - http://{}\n      - {{ url: \"http://{}\", weight: 3 }}\nroutes: [{{ path: /*, upstream: origin }}]\n",
        light.address, heavy.address
    );
    let owners = owners(&Tollgate::start(Config::yaml(endpoints)));
    let keys = owners.iter().filter(|owner| *owner == "heavy").count();
    assert!((150..=210).contains(&keys), "{keys} of 240 keys");
}

#[test]
fn a_request_without_the_key_goes_by_its_address() {
    let [a, b, c] = ["a", "b", "c"].map(named);
    let tollgate = Tollgate::start(upstream(&urls(&[&a, &b, &c]), "balance: { hash: header:x-user }"));
    let owner = get(tollgate.address, "/", &[]).text();
    assert!((0..20).all(|_| get(tollgate.address, "/other", &[("x-other", "1")]).text() == owner));
}

#[test]
fn while_no_connection_is_left_a_key_waits_for_its_own_endpoint() {
    let [a, b] = ["a", "b"].map(named);
    let settings = "balance: { hash: header:x-user }, max_connections: 2, max_connections_per_address: 100%";
    let tollgate = Tollgate::start(upstream(&urls(&[&a, &b]), settings));
    let before = owners(&tollgate);
    let address = tollgate.address;
    let all: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(move || {
                let mut client = Client::connect(address);
                let ask = |user: String| {
                    // The queue is short: a request that finds it full is refused.
                    loop {
                        let reply = client.request("GET", "/", &[("x-user", &user)], b"");
                        if reply.status == 200 {
                            return reply.text();
                        }
                    }
                };
                users().map(ask).collect::<Vec<_>>()
            })
        })
        .collect();
    for client in all {
        assert_eq!(client.join().unwrap(), before);
    }
}

const STICKY: &str = "sticky: { cookie: tg_endpoint, max_age: 1h }";

/// The value of the proxy's cookie in an answer, and what stands behind it.
fn cookie(reply: &Reply) -> Option<(String, String)> {
    let line = reply.all("set-cookie").into_iter().find_map(|line| line.strip_prefix("tg_endpoint="))?;
    let (value, attributes) = line.split_once("; ").unwrap();
    Some((value.to_owned(), attributes.to_owned()))
}

#[test]
fn a_client_with_the_cookie_stays_at_its_endpoint() {
    for balance in ["round_robin", "least_request", "{ hash: path }"] {
        let [a, b, c] = ["a", "b", "c"].map(named);
        let settings = format!("balance: {balance}, {STICKY}");
        let tollgate = Tollgate::start(upstream(&urls(&[&a, &b, &c]), &settings));
        let first = get(tollgate.address, "/", &[]);
        let (value, attributes) = cookie(&first).unwrap();
        assert_eq!(attributes, "Path=/; Max-Age=3600; HttpOnly; SameSite=Lax");
        assert_eq!(first.all("set-cookie").len(), 2, "the origin's own is there as well");
        let port = a.address.port().to_string();
        assert!(value.len() == 16 && !value.contains(&port) && value.bytes().all(|b| b.is_ascii_hexdigit()));
        for nth in 0..12 {
            let cookies = format!("x=1; tg_endpoint={value}; y=2");
            let reply = get(tollgate.address, &format!("/{nth}"), &[("cookie", &cookies)]);
            assert_eq!((reply.text(), reply.all("set-cookie")), (first.text(), vec!["own=1"]), "{balance}");
        }
        let seen: Vec<_> = [&a, &b, &c].iter().flat_map(|origin| origin.heads()).collect();
        assert!(seen.iter().all(|head| !head.contains("tg_endpoint")), "{seen:?}");
        assert_eq!(seen.iter().filter(|head| head.contains("cookie: x=1; y=2")).count(), 12);
        // Another instance knows it, too.
        let other = Tollgate::start(upstream(&urls(&[&c, &b, &a]), &settings));
        let reply = get(other.address, "/", &[("cookie", &format!("tg_endpoint={value}"))]);
        assert_eq!((reply.text(), cookie(&reply)), (first.text(), None));
    }
}

#[test]
fn a_cookie_that_names_no_endpoint_is_replaced() {
    let [a, b] = ["a", "b"].map(named);
    let tollgate = Tollgate::start(upstream(&urls(&[&a, &b]), STICKY));
    for wrong in [
        "tg_endpoint=0123456789abcdef",
        "tg_endpoint=",
        "tg_endpoint=\"http://10.0.0.1\"",
        "tg_endpoint=a; tg_endpoint=b",
    ] {
        let reply = get(tollgate.address, "/", &[("cookie", wrong)]);
        let (value, _) = cookie(&reply).unwrap_or_else(|| panic!("{wrong}: {reply:?}"));
        assert_eq!(value.len(), 16);
    }
    let seen: Vec<_> = [&a, &b].iter().flat_map(|origin| origin.heads()).collect();
    assert!(seen.iter().all(|head| !head.contains("cookie")), "{seen:?}");
}

#[test]
fn a_client_whose_endpoint_cannot_be_reached_is_sent_to_another_and_stays_there() {
    let gone = nobody();
    let listener = TcpListener::bind(gone).unwrap();
    // Ends with its first request, answered.
    let ending = thread::spawn(move || serve(&listener, "gone", 1));
    let other = named("other");
    let all = vec![format!("http://{gone}"), format!("http://{}", other.address)];
    let tollgate = Tollgate::start(upstream(&all, &format!("balance: round_robin, {STICKY}")));
    let (first, value) = loop {
        let reply = get(tollgate.address, "/", &[]);
        if reply.text() == "gone" {
            break (reply.text(), cookie(&reply).unwrap().0);
        }
    };
    ending.join().unwrap();
    assert_eq!(first, "gone");
    let reply = get(tollgate.address, "/", &[("cookie", &format!("tg_endpoint={value}"))]);
    assert_eq!(reply.text(), "other");
    let (renewed, _) = cookie(&reply).unwrap();
    assert_ne!(renewed, value);
    for _ in 0..4 {
        let reply = get(tollgate.address, "/", &[("cookie", &format!("tg_endpoint={renewed}"))]);
        assert_eq!((reply.text(), cookie(&reply)), ("other".to_owned(), None));
    }
}

/// Answers so many requests of one connection after the other.
fn serve(listener: &TcpListener, name: &str, mut requests: usize) {
    while requests > 0 {
        let (stream, _) = listener.accept().unwrap();
        let mut conn = BufReader::new(stream);
        let mut line = String::new();
        while requests > 0 && conn.read_line(&mut line).is_ok_and(|read| read > 0) {
            if line == "\r\n" {
                requests -= 1;
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
                conn.get_mut().write_all(answer.as_bytes()).unwrap();
            }
            line.clear();
        }
    }
}

#[test]
fn over_tls_the_cookie_is_secure() {
    let authority = Authority::new("Authority of the tests");
    let own = authority.issue("server", &["localhost", "127.0.0.1"]);
    let origin = named("a");
    let (cert, key) = (file_name(&own.cert), file_name(&own.key));
    let tls = format!("tls: {{ certificates: [{{ cert: \"{cert}\", key: \"{key}\" }}] }}");
    let listeners = format!("workers: 1\nlisteners: [{{ address: \"127.0.0.1:0\", {tls} }}]\n");
    let tollgate =
        Tollgate::start(Config::upstream(&[origin.address], "sticky: { cookie: tg_endpoint }", &listeners));
    let connector = TlsConnector::new(&authority);
    let answer = connector.connect(tollgate.address, "localhost").unwrap().get("/", "").unwrap();
    let line = answer.lines().find(|line| line.contains("tg_endpoint=")).unwrap();
    let (_, attributes) = line.split_once("; ").unwrap();
    assert_eq!(attributes, "Path=/; Secure; HttpOnly; SameSite=Lax");
}

#[test]
fn behind_a_trusted_proxy_the_cookie_is_secure_if_it_says_https() {
    let origin = named("a");
    let trusting = "workers: 1\ntrusted_proxies: [127.0.0.0/8]\n";
    let sticky = "sticky: { cookie: tg_endpoint }";
    let tollgate = Tollgate::start(Config::upstream(&[origin.address], sticky, trusting));
    let secure = |proto: &str| {
        let reply = get(tollgate.address, "/", &[("x-forwarded-proto", proto)]);
        cookie(&reply).unwrap().1.contains("Secure")
    };
    assert!(secure("https") && !secure("http"));
    let plain = Tollgate::start(Config::upstream(&[origin.address], sticky, ""));
    let reply = get(plain.address, "/", &[("x-forwarded-proto", "https")]);
    assert!(!cookie(&reply).unwrap().1.contains("Secure"), "a client chooses nothing");
}

#[test]
fn the_cookie_is_found_among_the_crumbs_of_http2() {
    let [a, b] = ["a", "b"].map(named);
    let tollgate = Tollgate::start(upstream(&urls(&[&a, &b]), &format!("balance: round_robin, {STICKY}")));
    let first = get(tollgate.address, "/", &[]);
    let crumb = format!("tg_endpoint={}", cookie(&first).unwrap().0);
    by_http2(tollgate.address, async |mut client| {
        for _ in 0..4 {
            let fields = [("cookie", "x=1"), ("cookie", &*crumb), ("cookie", "y=2")];
            let reply = client.get("/", &fields).await.unwrap();
            assert_eq!(
                (reply.text(), reply.head.headers().get_all("set-cookie").iter().count()),
                (first.text(), 1)
            );
        }
    });
    let seen: Vec<_> = [&a, &b].iter().flat_map(|origin| origin.heads()).collect();
    assert_eq!(
        seen.iter()
            .filter(|head| head.contains("cookie: x=1; y=2\r\n") || head.ends_with("cookie: x=1; y=2"))
            .count(),
        4
    );
}

/// How long the share of an endpoint that comes back grows in these tests.
const SLOW_START: Duration = Duration::from_secs(6);

/// How many requests come in each third of the slow start of an endpoint, and thereafter, and the part of them that it gets,
/// beside one of the same weight that was there all the time. Each request has a key of its own.
fn shares(balance: &str) -> [(f64, f64); 4] {
    let back = nobody();
    let other = named("other");
    let all = vec![format!("http://{back}"), format!("http://{}", other.address)];
    let settings = format!("balance: {balance}, slow_start: {}s", SLOW_START.as_secs());
    let tollgate = Tollgate::start(upstream(&all, &settings));
    let mut client = Client::connect(tollgate.address);
    let mut key = 0;
    let mut ask = || {
        key += 1;
        client.request("GET", "/", &[("x-user", &key.to_string())], b"").text()
    };
    // It is found unreachable first.
    assert!((0..20).all(|_| ask() == "other"));
    let listener = TcpListener::bind(back).unwrap();
    thread::spawn(move || serve(&listener, "back", usize::MAX));
    while ask() == "other" {}
    let start = Instant::now();
    let mut counts = [[0.0; 2]; 4];
    while start.elapsed() < SLOW_START * 4 / 3 {
        let window = (start.elapsed().as_secs_f64() / SLOW_START.as_secs_f64() * 3.0) as usize;
        let is_back = ask() == "back";
        counts[window.min(3)][usize::from(is_back)] += 1.0;
    }
    counts.map(|[other, back]: [f64; 2]| (other + back, back / (other + back)))
}

/// In the middle of each third it has a quarter, 55 % and 85 % of its weight, beside one with the whole of it.
fn assert_grown(balance: &str) {
    let shares = shares(balance);
    for ((requests, share), weight) in shares.iter().zip([0.25, 0.55, 0.85, 1.0]) {
        let expected = weight / (1.0 + weight);
        // Keys fall by chance: four standard deviations at most.
        let tolerance = 0.06 + 2.0 / requests.sqrt();
        assert!((share - expected).abs() < tolerance, "{balance}: {expected:.3} expected in {shares:.3?}");
    }
}

#[test]
fn an_endpoint_that_comes_back_gets_its_share_slowly_in_turns() {
    assert_grown("round_robin");
}

#[test]
fn an_endpoint_that_comes_back_gets_its_share_slowly_though_it_has_the_fewest_requests() {
    assert_grown("least_request");
}

#[test]
fn an_endpoint_that_comes_back_gets_its_keys_slowly() {
    assert_grown("{ hash: header:x-user }");
}

#[test]
fn explain_knows_endpoints_of_a_file_and_how_they_stand() {
    let [a, b, c] = ["a", "b", "c"].map(named);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("endpoints.yaml");
    let urls = urls(&[&a, &b, &c]);
    std::fs::write(&file, urls.iter().map(|url| format!("- {url}\n")).collect::<String>()).unwrap();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "workers: 1\nupstreams:\n  origin: {{ endpoints: {{ file: {} }}, balance: {{ hash: header:x-user }}, sticky: {{ cookie: tg_endpoint }} }}\nroutes:\n  - {{ path: /*, upstream: origin }}\n",
        file.display()
    )));
    let post = |path: &str, body: serde_json::Value| {
        let fields = [("content-type", "application/json")];
        request(tollgate.admin, "POST", path, &fields, body.to_string().as_bytes())
    };
    let explain = |headers: serde_json::Value| {
        let explained = post("/v1/explain", json!({ "url": "/", "headers": headers })).json();
        explained["endpoint"].clone()
    };
    let answer = get(tollgate.address, "/", &[("x-user", "me")]);
    let by_key = json!({ "x-user": "me" });
    let because = "the hash of header:x-user=me, while it is healthy";
    let owner = ["a", "b", "c"].iter().position(|name| *name == answer.text()).unwrap();
    assert_eq!(explain(by_key.clone()), json!({ "url": urls[owner], "because": because }));
    let by_cookie =
        json!({ "x-user": "you", "cookie": format!("tg_endpoint={}", cookie(&answer).unwrap().0) });
    let because = "the cookie tg_endpoint names it, while it is healthy";
    assert_eq!(explain(by_cookie.clone()), json!({ "url": urls[owner], "because": because }));

    assert_eq!(post("/v1/drains", json!({ "upstream": "origin", "endpoint": urls[owner] })).status, 201);
    let next = get(tollgate.address, "/", &[("x-user", "me")]).text();
    let next = ["a", "b", "c"].iter().position(|name| *name == next).unwrap();
    let because = format!("the hash of header:x-user=me, whose own endpoint {} is drained", urls[owner]);
    assert_eq!(explain(by_key), json!({ "url": urls[next], "because": because }));
    let explained = explain(by_cookie);
    assert!(
        explained["because"].as_str().unwrap().starts_with("the hash of header:x-user=you"),
        "{explained}"
    );
}

#[test]
fn explain_names_the_endpoint_that_gets_the_request() {
    let [a, b, c] = ["a", "b", "c"].map(named);
    let settings = "balance: { hash: header:x-user }, sticky: { cookie: tg_endpoint }";
    let tollgate = Tollgate::start(upstream(&urls(&[&a, &b, &c]), settings));
    let explain = |headers: &[(&str, &str)]| {
        let headers: BTreeMap<&str, &str> = headers.iter().copied().collect();
        let asked = json!({ "url": "/", "headers": headers }).to_string();
        let fields = [("content-type", "application/json")];
        request(tollgate.admin, "POST", "/v1/explain", &fields, asked.as_bytes()).json()["endpoint"].clone()
    };
    let url = |name: &str| match name {
        "a" => format!("http://{}", a.address),
        "b" => format!("http://{}", b.address),
        _ => format!("http://{}", c.address),
    };
    for user in users().take(20) {
        let owner = get(tollgate.address, "/", &[("x-user", &user)]);
        let because = format!("the hash of header:x-user={user}, while it is healthy");
        assert_eq!(explain(&[("x-user", &user)]), json!({ "url": url(&owner.text()), "because": because }));
        let value = format!("tg_endpoint={}", cookie(&owner).unwrap().0);
        let because = "the cookie tg_endpoint names it, while it is healthy";
        let explained = explain(&[("x-user", "somebody"), ("cookie", &value)]);
        assert_eq!(explained, json!({ "url": url(&owner.text()), "because": because }));
    }
    let owner = get(tollgate.address, "/", &[]).text();
    let because = "the hash of ip:127.0.0.1, since the request has no header:x-user, while it is healthy";
    assert_eq!(explain(&[]), json!({ "url": url(&owner), "because": because }));

    let any = Tollgate::start(upstream(&urls(&[&a, &b]), "balance: round_robin"));
    assert!(any.command(&["explain", "/"]).stdout.contains("upstream  origin\n"));
    assert!(!any.command(&["explain", "/"]).stdout.contains("endpoint"));
}
