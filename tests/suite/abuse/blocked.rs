//! Limited addresses: the list, the evidence of one address, and unblocking it.

use serde_json::Value;

use crate::harness::{
    Client, Config, Deployment, Origin, Tollgate, eventually, get_from, on_each_store, on_topologies,
};

on_each_store!(
    a_user_is_found_at_every_address_with_denials,
    each_user_is_counted_once,
    an_unblock_keeps_the_evidence_and_says_who_did_it,
    evidence_of_before_an_unblock_ends_with_its_retention,
);
on_topologies!(start [server] an_unblock_while_redis_is_away_frees_the_address_at_this_instance);

/// Limits everything by `policies`, YAML of a mapping; users are not verified.
fn limited(origin: &Origin, policies: &str) -> Tollgate {
    limited_with(origin, policies, "")
}

/// [`limited`], with further settings.
fn limited_with(origin: &Origin, policies: &str, settings: &str) -> Tollgate {
    let names: Vec<_> =
        policies.lines().filter_map(|line| line.trim().split_once(':').map(|(name, _)| name)).collect();
    Tollgate::start(Config::yaml(format!(
        "
user: [{{ header: x-user-id, from: anyone }}]
upstreams:
  origin: {{ endpoints: [\"http://{}\"], policies: [{}] }}
policies:
{policies}
routes:
  - {{ path: /*, upstream: origin }}
{settings}
",
        origin.address,
        names.join(", ")
    )))
}

/// Where limits are.
fn store(redis: Option<&Deployment>) -> String {
    redis.map_or_else(String::new, |redis| {
        format!("store: {{ redis: {{ {}, timeout: 5s }} }}", redis.settings())
    })
}

/// The addresses that are listed now.
fn blocked(tollgate: &Tollgate) -> Vec<Value> {
    tollgate.admin("GET", "/v1/blocked").json()["blocked"].as_array().unwrap().clone()
}

/// The evidence of an address, once it shows this many denials.
#[track_caller]
fn evidence(tollgate: &Tollgate, address: &str, denied: u64) -> Value {
    let mut found = Value::Null;
    eventually(&format!("{address} was denied {denied} times"), || {
        found = tollgate.admin("GET", &format!("/v1/blocked/{address}")).json();
        found["denied"] == denied
    });
    found
}

fn sorted(mut words: Vec<String>) -> Vec<String> {
    words.sort();
    words
}

/// Sends a request as each of `users`, from one address over one connection.
fn ask_as(tollgate: &Tollgate, source: &str, users: &[&str]) -> Vec<u16> {
    let mut client = Client::connect_from(source.parse().unwrap(), tollgate.address);
    users.iter().map(|user| client.request("GET", "/a?b=c", &[("x-user-id", user)], b"").status).collect()
}

#[test]
fn a_policy_that_a_reload_has_removed_is_found_as_long_as_its_clients_are_listed() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, "  former: { algorithm: fixed_window, key: ip, limit: 1/1h }");
    assert_eq!(ask_as(&tollgate, "127.0.0.5", &["ann", "ann"]), [200, 429]);
    evidence(&tollgate, "127.0.0.5", 1);
    let file = tollgate.directory().join("proxy.yaml");
    let yaml = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, yaml.replace("former", "current")).unwrap();
    assert_eq!(tollgate.command(&["reload"]).code, Some(0));
    let of = |policy: &str| tollgate.admin("GET", &format!("/v1/blocked?policy={policy}"));
    assert_eq!(of("former").json()["blocked"][0]["address"], "127.0.0.5");
    assert_eq!(of("current").json()["blocked"], serde_json::json!([]));
    assert_eq!(of("neither").status, 404);
}

#[test]
fn a_limited_address_shows_who_filled_its_limit_and_who_was_denied() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, "  inspect: { algorithm: metadata_list, key: ip, limit: 3/1h }");
    let statuses = ask_as(&tollgate, "127.0.0.5", &["ann", "bob", "ann", "eve", "eve"]);
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    let evidence = evidence(&tollgate, "127.0.0.5", 2);
    assert_eq!((&evidence["address"], &evidence["distinct_users"]), (&"127.0.0.5".into(), &3.into()));
    assert_eq!(evidence["hint"], "unknown");
    assert_eq!(evidence["hint_reason"], "3 users, 2 requests, to one URL");
    assert_eq!(evidence["policies"], serde_json::json!(["inspect"]));
    let records = evidence["records"].as_array().unwrap();
    let users = records.iter().map(|record| record["user"].as_str().unwrap().to_owned()).collect();
    assert_eq!(sorted(users), ["ann", "ann", "bob", "eve", "eve"]);
    for record in records {
        assert_eq!((&record["method"], &record["policy"]), (&"GET".into(), &"inspect".into()));
        assert_eq!(record["path"], "/a", "evidence has no query: there may be secrets in it");
    }
    let times: Vec<_> = records.iter().map(|record| record["time"].as_str().unwrap()).collect();
    assert!(times.is_sorted_by(|newer, older| newer >= older), "{times:?}");
    let limit = &evidence["limits"][0];
    let reset = limit["reset"].as_str().unwrap();
    assert!(reset == "1h" || reset.strip_suffix('s').is_some_and(|s| s.parse::<u32>().is_ok()), "{reset}");
    assert_eq!(
        (&limit["key"], &limit["used"], &limit["remaining"]),
        (&"ip:127.0.0.5".into(), &3.into(), &0.into())
    );
}

#[test]
fn the_limit_that_denied_an_address_is_shown_whatever_its_key() {
    let origin = Origin::ok();
    let tollgate = limited(
        &origin,
        "  per-user: { algorithm: sliding_log, key: user, limit: 2/1h }
  per-key: { algorithm: fixed_window, key: 'header:x-api-key', limit: 1/1h }",
    );
    let mut client = Client::connect_from("127.0.0.5".parse().unwrap(), tollgate.address);
    let statuses = [("ann", "k-1"), ("ann", "k-2"), ("ann", "k-3"), ("bob", "k-4"), ("eve", "k-4")].map(
        |(user, key)| client.request("GET", "/", &[("x-user-id", user), ("x-api-key", key)], b"").status,
    );
    assert_eq!(statuses, [200, 200, 429, 200, 429]);
    let found = evidence(&tollgate, "127.0.0.5", 2);
    let states: Vec<_> = found["limits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|limit| ["policy", "key", "used", "limit", "remaining"].map(|name| limit[name].clone()))
        .collect();
    let expected = [
        serde_json::json!(["per-user", "user:ann", 2, 2, 0]),
        serde_json::json!(["per-key", "header:x-api-key=k-4", 1, 1, 0]),
    ];
    assert_eq!(states.iter().map(|state| serde_json::json!(state)).collect::<Vec<_>>(), expected);
    assert!(found["limits"].as_array().unwrap().iter().all(|limit| limit["reset"] != "0s"), "{found}");
    let page = tollgate.admin("GET", "/blocked/127.0.0.5").text();
    for key in ["per-user user:ann 2", "per-key header:x-api-key=k-4 1"] {
        assert!(page.contains(&format!("data-key=\"{key}\"")), "{page}");
    }
    // An unblock would not clear them.
    let unblocked = tollgate.admin("DELETE", "/v1/blocked/127.0.0.5").json();
    assert_eq!(unblocked["cleared"], serde_json::json!([]));
    assert_eq!(evidence(&tollgate, "127.0.0.5", 2)["limits"].as_array().map(Vec::len), Some(2));
}

/// A client can send many names: the limits of the first of them are shown.
#[test]
fn of_many_users_behind_an_address_a_bounded_number_of_limits_is_shown() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, "  per-user: { algorithm: fixed_window, key: user, limit: 1/1h }");
    let names: Vec<_> = (0..40).map(|n| format!("user-{}", n / 2)).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    ask_as(&tollgate, "127.0.0.5", &names);
    let found = evidence(&tollgate, "127.0.0.5", 20);
    // A worker keeps eight of each moment, and this may take two.
    let shown = found["limits"].as_array().map_or(0, Vec::len);
    assert!((8..=10).contains(&shown), "{found}");
}

/// One after the other: workers keep a few of each moment.
#[test]
fn of_those_that_are_known_the_limits_that_are_left_out_are_counted() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, "  per-user: { algorithm: fixed_window, key: user, limit: 1/1h }");
    let mut found = Value::Null;
    for n in 1..=12 {
        let user = format!("user-{n}");
        assert_eq!(ask_as(&tollgate, "127.0.0.5", &[&user, &user]), [200, 429]);
        found = evidence(&tollgate, "127.0.0.5", n);
    }
    assert_eq!((found["limits"].as_array().map(Vec::len), &found["more_limits"]), (Some(10), &2.into()));
    assert!(tollgate.admin("GET", "/blocked/127.0.0.5").text().contains("and 2 more"));
    assert!(tollgate.command(&["blocked", "127.0.0.5"]).stdout.contains("\nand 2 more\n"));
}

#[test]
fn only_limited_addresses_are_listed_each_on_its_own() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, "  one: { algorithm: single_counter, key: ip, limit: 1/1h }");
    assert_eq!(ask_as(&tollgate, "127.0.0.5", &["ann", "ann"]), [200, 429]);
    assert_eq!(ask_as(&tollgate, "127.0.0.6", &["bob", "bob", "bob"]), [200, 429, 429]);
    assert_eq!(ask_as(&tollgate, "127.0.0.7", &["eve"]), [200]);
    evidence(&tollgate, "127.0.0.5", 1);
    evidence(&tollgate, "127.0.0.6", 2);
    let listed: Vec<_> = blocked(&tollgate)
        .iter()
        .map(|found| (found["address"].clone(), found["denied"].clone(), found["hint"].clone()))
        .collect();
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert!(listed.contains(&("127.0.0.5".into(), 1.into(), "unknown".into())), "{listed:?}");
    assert!(listed.contains(&("127.0.0.6".into(), 2.into(), "unknown".into())), "{listed:?}");
    assert_eq!(tollgate.admin("GET", "/v1/blocked/127.0.0.7").status, 404);
}

#[test]
fn an_unblocked_address_is_served_at_once_and_no_longer_limited() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, "  one: { algorithm: metadata_list, key: ip, limit: 1/1h }");
    for _ in 0..3 {
        assert_eq!(ask_as(&tollgate, "127.0.0.5", &["ann", "ann"]), [200, 429]);
        let unblocked = tollgate.admin("DELETE", "/v1/blocked/127.0.0.5");
        assert_eq!(unblocked.status, 200);
        let cleared = serde_json::json!([{"policy": "one", "key": "ip:127.0.0.5"}]);
        assert_eq!(unblocked.json()["cleared"], cleared);
    }
    assert_eq!(ask_as(&tollgate, "127.0.0.5", &["ann"]), [200]);
    // The last denials may be handed over after the unblock.
    let listed = &evidence(&tollgate, "127.0.0.5", 3);
    assert_eq!(listed["state"], "unblocked");
    assert_eq!(blocked(&tollgate)[0]["state"], "unblocked");
    assert_eq!(tollgate.admin("GET", "/v1/blocked?active=true").json()["blocked"], serde_json::json!([]));
}

/// Whether an address is unblocked by somebody, as an instance shows it.
fn is_unblocked(instance: &Tollgate, address: &str) -> bool {
    let evidence = instance.admin("GET", &format!("/v1/blocked/{address}")).json();
    evidence["state"] == "unblocked" && evidence["unblocked"]["by"] == "operator at 127.0.0.1"
}

fn an_unblock_keeps_the_evidence_and_says_who_did_it(redis: Option<&Deployment>) {
    const VICTIMS: usize = 40;
    let origin = Origin::ok();
    let policies = "  one: { algorithm: single_counter, key: ip, limit: 1/1h, record: { keep: 100 } }";
    let [tollgate, other] = [(); 2].map(|()| limited_with(&origin, policies, &store(redis)));
    let instances = if redis.is_some() { vec![&tollgate, &other] } else { vec![&tollgate] };
    let users: Vec<_> = (0..=VICTIMS).map(|user| format!("victim-{user}")).collect();
    let users: Vec<_> = users.iter().map(String::as_str).collect();
    ask_as(&tollgate, "127.0.0.5", &users);
    let before = evidence(instances[instances.len() - 1], "127.0.0.5", VICTIMS as u64);
    assert_eq!((&before["state"], before["records"].as_array().unwrap().len()), (&"limited".into(), VICTIMS));

    let told = instances[instances.len() - 1].command(&["unblock", "127.0.0.5"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    for sentence in [
        "127.0.0.5 is unblocked. Cleared limits:",
        "Its evidence was kept: 40 records, shown by `tollgate blocked 127.0.0.5` until it expires.",
    ] {
        assert!(told.stdout.contains(sentence), "{}", told.stdout);
    }
    for instance in &instances {
        eventually("it is unblocked", || is_unblocked(instance, "127.0.0.5"));
        let after = instance.admin("GET", "/v1/blocked/127.0.0.5").json();
        for kept in ["denied", "distinct_users", "records", "users", "first", "policies"] {
            assert_eq!(after[kept], before[kept], "{kept}");
        }
        assert!(after["until"].as_str() <= after["unblocked"]["time"].as_str(), "{after}");
        let list = blocked(instance);
        assert_eq!((list.len(), &list[0]["state"]), (1, &"unblocked".into()));
        let active = instance.admin("GET", "/v1/blocked?active=true").json();
        assert_eq!(active["blocked"], serde_json::json!([]));
        let victim = instance.admin("GET", "/v1/users/victim-40").json();
        assert_eq!(victim["addresses"][0]["address"], "127.0.0.5", "{victim}");
        let text = instance.command(&["blocked", "127.0.0.5"]).stdout;
        assert!(text.contains(": unblocked, ") && text.contains("UTC by operator at 127.0.0.1"), "{text}");
        let page = instance.admin("GET", "/blocked").text();
        assert!(page.contains(">Unblocked<"), "{page}");
        assert_eq!(instance.admin("DELETE", "/v1/blocked/127.0.0.5").status, 404, "nothing is left to clear");
    }
    assert_eq!(ask_as(&tollgate, "127.0.0.5", &["eve", "eve"]), [200, 429]);
    for instance in &instances {
        let again = evidence(instance, "127.0.0.5", VICTIMS as u64 + 1);
        assert_eq!((&again["state"], &again["distinct_users"]), (&"limited".into(), &(VICTIMS + 1).into()));
        assert_eq!(again["records"].as_array().unwrap().len(), VICTIMS + 1);
        assert_eq!(again["unblocked"]["by"], "operator at 127.0.0.1");
        assert_eq!(blocked(instance)[0]["state"], "limited");
    }
}

fn evidence_of_before_an_unblock_ends_with_its_retention(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let policies = "  one: { algorithm: single_counter, key: ip, limit: 1/1h, record: { for: 6s } }";
    let [tollgate, other] = [(); 2].map(|()| limited_with(&origin, policies, &store(redis)));
    let instance = if redis.is_some() { &other } else { &tollgate };
    assert_eq!(ask_as(&tollgate, "127.0.0.5", &["ann", "bob"]), [200, 429]);
    evidence(instance, "127.0.0.5", 1);
    assert_eq!(tollgate.admin("DELETE", "/v1/blocked/127.0.0.5").status, 200);
    let records = || instance.admin("GET", "/v1/blocked/127.0.0.5").json()["records"].clone();
    assert_eq!(records()[0]["user"], "bob");
    eventually("its records have expired", || records() == serde_json::json!([]));
    assert_eq!(tollgate.admin("GET", "/v1/users/bob").status, 404);
    assert!(is_unblocked(instance, "127.0.0.5"), "it is listed for as long as other addresses");
}

#[test]
fn a_user_s_limit_lists_the_address_and_survives_its_unblock() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, "  each: { algorithm: single_counter, key: user, limit: 1/1h }");
    assert_eq!(ask_as(&tollgate, "127.0.0.5", &["ann", "ann", "bob", "bob"]), [200, 429, 200, 429]);
    let evidence = evidence(&tollgate, "127.0.0.5", 2);
    assert_eq!(evidence["distinct_users"], 2);
    let unblocked = tollgate.admin("DELETE", "/v1/blocked/127.0.0.5").json();
    assert_eq!(unblocked["cleared"], serde_json::json!([]));
    assert_eq!(unblocked["other_keys"], serde_json::json!(["user:ann", "user:bob"]));
    assert_eq!(ask_as(&tollgate, "127.0.0.5", &["ann", "carol"]), [429, 200]);
}

#[test]
fn an_unblock_clears_composites_that_begin_with_the_address() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, "  each: { algorithm: sliding_log, key: ip+path, limit: 1/1h }");
    let ask = |path| get_from("127.0.0.5", tollgate.address, path, &[]).status;
    assert_eq!([ask("/a"), ask("/a"), ask("/b"), ask("/b")], [200, 429, 200, 429]);
    evidence(&tollgate, "127.0.0.5", 2);
    let unblocked = tollgate.admin("DELETE", "/v1/blocked/127.0.0.5").json();
    let keys = unblocked["cleared"].as_array().unwrap().iter();
    let keys = keys.map(|cleared| cleared["key"].as_str().unwrap().to_owned()).collect();
    assert_eq!(sorted(keys), ["ip:127.0.0.5+path:/a", "ip:127.0.0.5+path:/b"]);
    assert_eq!([ask("/a"), ask("/b")], [200, 200]);
}

#[test]
fn an_unblock_affects_no_other_address() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, "  one: { algorithm: single_counter, key: ip, limit: 1/1h }");
    for source in ["127.0.0.5", "127.0.0.50"] {
        assert_eq!(ask_as(&tollgate, source, &["ann", "ann"]), [200, 429]);
    }
    assert_eq!(tollgate.admin("DELETE", "/v1/blocked/127.0.0.5").status, 200);
    assert_eq!(ask_as(&tollgate, "127.0.0.50", &["ann"]), [429]);
    assert_eq!(tollgate.admin("DELETE", "/v1/blocked/127.0.0.99").status, 404);
}

#[test]
fn an_ipv6_client_is_its_prefix_in_the_list_the_evidence_and_the_unblock() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(
        Config::new(
            &[origin.address],
            "
listeners: [{ address: \"[::1]:0\" }]
trusted_proxies: [\"::1\"]
policies: { one: { algorithm: metadata_list, key: ip, limit: 1/1h } }
",
        )
        .with_policy("one"),
    );
    let ask = |client| get_from("::1", tollgate.address, "/", &[("x-forwarded-for", client)]).status;
    assert_eq!([ask("2001:db8:7::1"), ask("2001:db8:7::2"), ask("2001:db8:8::1")], [200, 429, 200]);
    let client = evidence(&tollgate, "2001:db8:7::2", 1);
    assert_eq!(client["address"], "2001:db8:7::/64");
    assert_eq!(client["limits"][0]["key"], "ip:2001:db8:7::/64");
    assert_eq!(blocked(&tollgate)[0]["address"], "2001:db8:7::/64");
    assert_eq!(evidence(&tollgate, "2001:db8:7::%2F64", 1)["records"], client["records"]);
    let unblocked = tollgate.admin("DELETE", "/v1/blocked/2001:db8:7::ffff").json();
    assert_eq!(unblocked["cleared"][0]["key"], "ip:2001:db8:7::/64");
    assert_eq!(ask("2001:db8:7::3"), 200);
    // The loopback itself likewise.
    let own = || get_from("::1", tollgate.address, "/", &[]).status;
    assert_eq!([own(), own()], [200, 429]);
    assert_eq!(evidence(&tollgate, "::1", 1)["address"], "::/64");
    assert_eq!(tollgate.command(&["unblock", "::1"]).code, Some(0));
    assert_eq!(own(), 200);
}

#[test]
fn a_flood_of_denials_is_counted_in_full_and_keeps_a_bounded_record() {
    const CLIENTS: usize = 16;
    const EACH: usize = 250;
    let origin = Origin::ok();
    let tollgate =
        limited(&origin, "  none: { algorithm: metadata_list, key: ip, limit: 1/1h, record: { keep: 20 } }");
    assert_eq!(ask_as(&tollgate, "127.0.0.5", &["first"]), [200]);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let tollgate = &tollgate;
            scope.spawn(move || {
                let users: Vec<_> = (0..EACH).map(|n| format!("{client}-{n}")).collect();
                let users: Vec<_> = users.iter().map(String::as_str).collect();
                assert_eq!(ask_as(tollgate, "127.0.0.5", &users), [429; EACH]);
            });
        }
    });
    let client = evidence(&tollgate, "127.0.0.5", (CLIENTS * EACH) as u64);
    assert_eq!(client["records"].as_array().unwrap().len(), 20);
    let users = client["distinct_users"].as_u64().unwrap();
    assert!(users.abs_diff((CLIENTS * EACH) as u64 + 1) < 80, "{users}");
    assert_eq!(tollgate.metric("tollgate_abuse_records_dropped_total"), 0.0);
}

#[test]
fn every_denial_of_thousands_of_addresses_is_listed_or_counted_as_dropped() {
    const ADDRESSES: usize = 6_000;
    let origin = Origin::ok();
    let tollgate = Tollgate::start(
        Config::new(
            &[origin.address],
            "
workers: 1
trusted_proxies: [127.0.0.1]
policies: { none: { algorithm: single_counter, key: global, limit: 1/1h } }
",
        )
        .with_policy("none"),
    );
    // All in one go, answered as fast as they come.
    let mut client = Client::connect(tollgate.address);
    assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    let mut sender = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let requests: String = (0..ADDRESSES)
            .map(|n| {
                format!("GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 10.0.{}.{}\r\n\r\n", n / 256, n % 256)
            })
            .collect();
        std::io::Write::write_all(&mut sender, requests.as_bytes()).unwrap();
    });
    for _ in 0..ADDRESSES {
        assert_eq!(client.reply().status, 429);
    }
    sending.join().unwrap();
    eventually("all are accounted for", || {
        let dropped = tollgate.metric("tollgate_abuse_records_dropped_total") as usize;
        listed(&tollgate) + dropped == ADDRESSES
    });
}

/// How many addresses are listed, over all pages.
fn listed(tollgate: &Tollgate) -> usize {
    let (mut count, mut query) = (0, String::new());
    loop {
        let page = tollgate.admin("GET", &format!("/v1/blocked?limit=1000&sort=address{query}")).json();
        count += page["blocked"].as_array().unwrap().len();
        match page["cursor"].as_str() {
            Some(cursor) => query = format!("&cursor={cursor}"),
            None => return count,
        }
    }
}

#[test]
fn user_names_are_escaped_on_terminals_and_in_json() {
    let origin = Origin::ok();
    let tollgate = limited(&origin, "  one: { algorithm: single_counter, key: ip, limit: 1/1h }");
    let hostile = "a\"}\\ \u{9b}2J \u{202e}x";
    assert_eq!(ask_as(&tollgate, "127.0.0.5", &["ann", hostile, "e\"ve\\"]), [200, 429, 429]);
    let client = evidence(&tollgate, "127.0.0.5", 2);
    assert!(
        client["records"].as_array().unwrap().iter().any(|record| record["user"] == "e\"ve\\"),
        "{client}"
    );
    let page = tollgate.command(&["blocked", "127.0.0.5"]);
    assert_eq!(page.code, Some(0));
    assert!(page.stdout.contains("e\"ve\\"), "{}", page.stdout);
    assert!(
        !page.stdout.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'),
        "{:?}",
        page.stdout
    );
}

#[test]
fn every_denied_request_up_to_keep_is_shown() {
    let origin = Origin::ok();
    let tollgate =
        limited(&origin, "  one: { algorithm: single_counter, key: ip, limit: 1/1h, record: { keep: 100 } }");
    let users: Vec<_> = (0..101).map(|n| format!("u{}", n % 3)).collect();
    let users: Vec<_> = users.iter().map(String::as_str).collect();
    ask_as(&tollgate, "127.0.0.5", &users);
    let client = evidence(&tollgate, "127.0.0.5", 100);
    assert_eq!(client["records"].as_array().unwrap().len(), 100);
    assert_eq!(client["distinct_users"], 3);
    ask_as(&tollgate, "127.0.0.5", &["eve"]);
    let client = evidence(&tollgate, "127.0.0.5", 101);
    let records = client["records"].as_array().unwrap();
    assert_eq!((records.len(), &records[0]["user"]), (100, &"eve".into()));
}

fn a_user_is_found_at_every_address_with_denials(redis: Option<&Deployment>) {
    const ADDRESSES: usize = 300;
    let origin = Origin::ok();
    let settings = format!("trusted_proxies: [127.0.0.1]\n{}", store(redis));
    let policies = "  each: { algorithm: single_counter, key: user, limit: 1/1h }";
    let [tollgate, other] = [(); 2].map(|()| limited_with(&origin, policies, &settings));
    let mut client = Client::connect(tollgate.address);
    for n in 0..=ADDRESSES {
        let from = format!("10.0.{}.{}", n / 256, n % 256);
        client.request("GET", "/", &[("x-user-id", "o/brien"), ("x-forwarded-for", &from)], b"");
    }
    let instances = if redis.is_some() { vec![&tollgate, &other] } else { vec![&tollgate] };
    for instance in instances {
        let mut found = Value::Null;
        eventually("all addresses are known", || {
            found = instance.admin("GET", "/v1/users/o%2Fbrien").json();
            found["addresses"].as_array().is_some_and(|addresses| addresses.len() == ADDRESSES)
        });
        assert_eq!(found["user"], "o/brien");
        let addresses = found["addresses"].as_array().unwrap();
        assert!(addresses.iter().all(|address| address["denied"] == 1), "{found}");
        // Instances share times by Redis' clock, off by up to the round trip.
        let first = addresses[0]["address"].as_str().unwrap();
        let number = (200..=ADDRESSES).find(|n| first == format!("10.0.{}.{}", n / 256, n % 256));
        assert!(number.is_some(), "the last come first: {first}");
        assert_eq!(instance.admin("GET", "/v1/users/nobody").status, 404);
    }
    assert_eq!(tollgate.admin("DELETE", "/v1/blocked/10.0.1.44").status, 200);
    let found = tollgate.admin("GET", "/v1/users/o%2Fbrien").json();
    assert_eq!(found["addresses"].as_array().unwrap().len(), ADDRESSES, "the evidence is kept");
}

fn each_user_is_counted_once(redis: Option<&Deployment>) {
    const USERS: usize = 100;
    let origin = Origin::ok();
    let policies = "  one: { algorithm: single_counter, key: ip, limit: 1/1h }";
    let tollgate = limited_with(&origin, policies, &store(redis));
    let users: Vec<_> = (0..=USERS).map(|user| user.to_string()).collect();
    let users: Vec<_> = users.iter().map(String::as_str).collect();
    ask_as(&tollgate, "127.0.0.5", &users);
    let counted = &evidence(&tollgate, "127.0.0.5", USERS as u64)["distinct_users"];
    assert_eq!(*counted, USERS, "in each store");
}

#[test]
fn plain_names_of_hashed_users_are_stored_nowhere() {
    let origin = Origin::ok();
    let policies = "  list: { algorithm: metadata_list, key: ip, limit: 2/1h }
  each: { algorithm: single_counter, key: user, limit: 1/1h }
  both: { algorithm: single_counter, key: ip+user, limit: 1/1h }";
    let settings = "abuse: { users: hashed, secret: s3cret }";
    let tollgate = limited_with(&origin, policies, settings);
    let acme = "hmac:5559b01469a0a939";
    let statuses = ask_as(&tollgate, "127.0.0.5", &["acme", "eve", "acme", "eve", "bob"]);
    assert_eq!(statuses, [200, 200, 429, 429, 429]);
    let mut client = evidence(&tollgate, "127.0.0.5", 3);
    eventually("who filled the list is known", || {
        client = tollgate.admin("GET", "/v1/blocked/127.0.0.5").json();
        client["records"].as_array().unwrap().len() == 5
    });
    assert_eq!(client["distinct_users"], 3);
    assert!(client["records"].as_array().unwrap().iter().any(|record| record["user"] == acme), "{client}");
    for named in ["acme", acme] {
        let found = tollgate.admin("GET", &format!("/v1/users/{named}")).json();
        assert_eq!((&found["user"], &found["addresses"][0]["denied"]), (&acme.into(), &1.into()), "{found}");
    }
    let unblocked = tollgate.admin("DELETE", "/v1/blocked/127.0.0.5").text();
    assert!(unblocked.contains(&format!("user:{acme}")), "{unblocked}");
    for text in [client.to_string(), unblocked.replace("+user:", "")] {
        assert!(!["acme", "eve", "bob"].iter().any(|name| text.contains(&format!("\"{name}\""))), "{text}");
    }
}

#[test]
fn users_that_are_off_are_neither_counted_nor_stored() {
    let origin = Origin::ok();
    let policies = "  list: { algorithm: metadata_list, key: ip, limit: 1/1h }
  each: { algorithm: single_counter, key: user, limit: 1/1h }";
    let tollgate = limited_with(&origin, policies, "abuse: { users: off }");
    assert_eq!(ask_as(&tollgate, "127.0.0.5", &["acme", "acme", "eve"]), [200, 429, 429]);
    let client = evidence(&tollgate, "127.0.0.5", 2);
    assert_eq!((&client["distinct_users"], &client["hint"]), (&0.into(), &"unknown".into()));
    assert!(client["records"].as_array().unwrap().iter().all(|record| record["user"].is_null()), "{client}");
    let acme = tollgate.admin("GET", "/v1/users/acme").json();
    assert_eq!([&acme["addresses"], &acme["records"]], [&serde_json::json!([]); 2]);
    let unblocked = tollgate.admin("DELETE", "/v1/blocked/127.0.0.5").json();
    assert_eq!(unblocked["other_keys"], serde_json::json!(["user:*"]));
}

fn an_unblock_while_redis_is_away_frees_the_address_at_this_instance(redis: &mut Deployment) {
    let origin = Origin::ok();
    let store = format!("store: {{ redis: {{ {} }} }}", redis.settings());
    let policy = "  four: { algorithm: fixed_window, key: ip, limit: 4/1d }";
    let [here, there] = [(); 2].map(|()| limited_with(&origin, policy, &store));
    let admitted =
        |at: &Tollgate| (0..5).filter(|_| get_from("127.0.0.5", at.address, "/", &[]).status == 200).count();
    eventually("they know of each other", || {
        [&here, &there].iter().all(|of| of.admin("GET", "/v1/status").json()["store"]["instances"] == 2)
    });
    redis.kill();
    let outage = |line: &String| {
        line.contains("is unavailable (") && line.contains("each of the 2 instances admits 1/2 of a limit")
    };
    let shown = |of: &Tollgate| of.command(&["status"]).stdout.lines().any(|line| outage(&line.to_owned()));
    eventually("the outage says what holds", || shown(&here));
    eventually("the address is limited", || admitted(&here) == 0);
    eventually("it is listed", || here.admin("GET", "/v1/blocked/127.0.0.5").status == 200);

    let unblocked = here.command(&["unblock", "127.0.0.5"]);
    assert_eq!(unblocked.code, Some(0), "{unblocked:?}");
    assert!(
        unblocked.stdout.contains("Redis is away: they were cleared at this instance alone"),
        "{unblocked:?}"
    );
    assert_eq!(admitted(&here), 2, "half of the limit");
    let reset = here.command(&["limits", "127.0.0.5", "--reset"]);
    assert_eq!(reset.code, Some(0), "{reset:?}");
    assert!(reset.stdout.contains("were reset, at this instance"), "{reset:?}");
    assert_eq!(admitted(&here), 2);
    // Nothing to clear here, and nobody knows what Redis has.
    let other = here.command(&["unblock", "127.0.0.9"]);
    assert_eq!(other.code, Some(1), "{other:?}");
    let audit = here.admin("GET", "/v1/audit").text();
    assert!(audit.contains("cleared at this instance, limits may be left in Redis"), "{audit}");
}
