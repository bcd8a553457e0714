//! Whose request it is, and what a limit is counted by.

use crate::harness::{Client, Config, Origin, Tollgate, get, get_from, request};

/// One policy that lets one request a day pass of each identifier, for everything; `rest` is YAML for
/// the top level.
fn one_each(policy: &str, rest: &str) -> (Origin, Tollgate) {
    let origin = Origin::ok();
    let yaml = format!(
        "
upstreams:
  origin: {{ endpoints: [\"http://{}\"], policies: [one] }}
policies:
  one: {{ algorithm: single_counter, limit: 1/1d, {policy} }}
routes:
  - {{ name: a, path: /a/*, upstream: origin }}
  - {{ name: rest, path: /*, upstream: origin }}
{rest}",
        origin.address
    );
    let tollgate = Tollgate::start(Config::yaml(yaml));
    (origin, tollgate)
}

/// Sends a request such as `/path | name: value | name: value`.
fn status(tollgate: &Tollgate, request: &str) -> u16 {
    let mut parts = request.split(" | ");
    let path = parts.next().unwrap();
    let fields: Vec<_> = parts.map(|field| field.split_once(": ").unwrap()).collect();
    get(tollgate.address, path, &fields).status
}

/// Each pair counts as one client, and the pairs as different ones.
#[track_caller]
fn counts_apart(tollgate: &Tollgate, requests: &[[&str; 2]]) {
    for [first, second] in requests {
        assert_eq!(status(tollgate, first), 200, "{first} counts as one of those before");
        assert_eq!(status(tollgate, second), 429, "{second} does not count as {first}");
    }
}

#[test]
fn by_address() {
    let (_origin, tollgate) = one_each("key: ip", "");
    for source in ["127.0.0.1", "127.0.0.2", "127.9.9.9"] {
        assert_eq!(get_from(source, tollgate.address, "/", &[]).status, 200, "{source}");
        assert_eq!(get_from(source, tollgate.address, "/", &[]).status, 429, "{source}");
    }
}

#[test]
fn an_untrusted_peer_cannot_choose_its_address() {
    let (_origin, tollgate) = one_each("key: ip", "");
    assert_eq!(get(tollgate.address, "/", &[("x-forwarded-for", "203.0.113.1")]).status, 200);
    assert_eq!(get(tollgate.address, "/", &[("x-forwarded-for", "203.0.113.2")]).status, 429);
}

#[test]
fn a_trusted_proxy_s_clients_count_each_on_its_own() {
    let (_origin, tollgate) = one_each("key: ip", "trusted_proxies: [127.0.0.1]\n");
    counts_apart(
        &tollgate,
        &[
            ["/ | x-forwarded-for: 203.0.113.1", "/ | x-forwarded-for: 203.0.113.1"],
            // What stands left of the address that the proxy saw is anybody's word.
            ["/ | x-forwarded-for: 203.0.113.2", "/ | x-forwarded-for: 203.0.113.9, 203.0.113.2"],
            ["/ | x-forwarded-for: 2001:db8::1", "/ | x-forwarded-for: 2001:db8:0:0:ffff::2"],
            ["/ | x-forwarded-for: 2001:db8:0:1::1", "/ | x-forwarded-for: 2001:db8:0:1::1"],
        ],
    );
}

#[test]
fn by_the_user_of_a_header_from_anyone() {
    let (_origin, tollgate) = one_each("key: user", "user: [{ header: x-user-id, from: anyone }]\n");
    counts_apart(
        &tollgate,
        &[["/ | x-user-id: acme", "/other | X-User-Id: acme"], ["/ | x-user-id: bob", "/ | x-user-id: bob"]],
    );
    let elsewhere = get_from("127.0.0.2", tollgate.address, "/", &[("x-user-id", "acme")]);
    assert_eq!(elsewhere.status, 429, "a user is the same behind any address");
}

#[test]
fn a_user_header_counts_from_trusted_proxies_only() {
    let rest = "trusted_proxies: [127.0.0.2]\nuser: [{ header: x-user-id }]\n";
    let (_origin, tollgate) = one_each("key: user", rest);
    let ask = |source, user| get_from(source, tollgate.address, "/", &[("x-user-id", user)]).status;
    assert_eq!([ask("127.0.0.2", "acme"), ask("127.0.0.2", "acme")], [200, 429]);
    // From anybody else it is no user: limited by address, whatever the header says.
    assert_eq!([ask("127.0.0.3", "eve"), ask("127.0.0.3", "mallory")], [200, 429]);
    assert_eq!(ask("127.0.0.2", "eve"), 200, "and has taken nothing of that user");
}

#[test]
fn by_the_user_of_a_cookie_or_of_credentials_whichever_answers_first() {
    let (_origin, tollgate) = one_each("key: user", "user: [{ cookie: session }, basic]\n");
    let carol = "authorization: Basic Y2Fyb2w6c2VjcmV0";
    counts_apart(
        &tollgate,
        &[
            ["/ | cookie: a=b; session=s1", "/ | cookie: session=s1; a=c"],
            // carol:secret, and carol with another password.
            [&format!("/ | {carol}"), "/ | authorization: basic Y2Fyb2w6b3RoZXI="],
            [&format!("/ | cookie: session=s2 | {carol}"), "/ | cookie: session=s2"],
        ],
    );
}

#[test]
fn by_a_header_a_query_parameter_a_path_a_method_a_host_and_a_route() {
    for (key, requests) in [
        (
            "'header:x-api-key'",
            [["/ | x-api-key: k1", "/b | X-Api-Key:  k1 "], ["/ | x-api-key: K1", "/ | x-api-key: K1"]],
        ),
        ("'query:page'", [["/?page=1", "/b?x=y&page=%31"], ["/?page=1&page=2", "/b?page=1&x=y&page=2"]]),
        ("path", [["/x?a", "/%78?b"], ["/y", "/y"]]),
        (
            "host",
            [
                ["/ | host: a.example", "/ | host: A.EXAMPLE:8080"],
                ["/ | host: b.example", "/ | host: b.example."],
            ],
        ),
        ("route", [["/a/x", "/a/y"], ["/x", "/y"]]),
    ] {
        let (_origin, tollgate) = one_each(&format!("key: {key}"), "");
        counts_apart(&tollgate, &requests);
    }
    let (_origin, tollgate) = one_each("key: method", "");
    let ask = |method| request(tollgate.address, method, "/", &[], b"").status;
    assert_eq!(
        [ask("GET"), ask("GET"), ask("HEAD"), ask("DELETE"), ask("DELETE")],
        [200, 429, 429, 200, 429],
        "HEAD counts as GET"
    );
}

#[test]
fn by_nothing_at_all_is_one_budget_for_everybody() {
    let (_origin, tollgate) = one_each("key: global", "");
    assert_eq!(get_from("127.0.0.1", tollgate.address, "/a", &[]).status, 200);
    assert_eq!(get_from("127.0.0.2", tollgate.address, "/b", &[]).status, 429);
}

#[test]
fn a_composite_counts_each_combination_on_its_own() {
    let (_origin, tollgate) = one_each("key: ip+path", "");
    let ask = |source, path| get_from(source, tollgate.address, path, &[]).status;
    assert_eq!([ask("127.0.0.1", "/x"), ask("127.0.0.1", "/x")], [200, 429]);
    assert_eq!([ask("127.0.0.1", "/y"), ask("127.0.0.2", "/x")], [200, 200]);
    // Not one by trickery either: an encoded `+` is part of the path.
    assert_eq!(ask("127.0.0.1", "/x+path:/y"), 200);
}

#[test]
fn several_keys_limit_each_on_its_own() {
    let rest = "user: [{ header: x-user-id, from: anyone }]\n";
    let (_origin, tollgate) = one_each("key: [ip, user]", rest);
    let ask = |source, user| get_from(source, tollgate.address, "/", &[("x-user-id", user)]).status;
    assert_eq!(ask("127.0.0.1", "acme"), 200);
    assert_eq!(ask("127.0.0.1", "bob"), 429, "the address has used its own up");
    assert_eq!(ask("127.0.0.2", "acme"), 429, "and the user likewise");
    assert_eq!(ask("127.0.0.2", "bob"), 200, "and the denials took nothing of either");
}

#[test]
fn a_missing_key_is_skipped_with_skip() {
    let rest = "user: [{ header: x-user-id, from: anyone }]\n";
    let (_origin, tollgate) = one_each("key: [user, 'header:x-api-key'], missing: skip", rest);
    counts_apart(
        &tollgate,
        &[
            ["/ | x-user-id: acme", "/ | x-user-id: acme | x-api-key: k"],
            ["/ | x-api-key: k", "/ | x-api-key: k"],
            // A request without any of the keys is limited by address.
            ["/", "/ | x-user-id: "],
        ],
    );
}

#[test]
fn a_missing_key_is_the_address_with_ip() {
    let rest = "user: [{ header: x-user-id, from: anyone }]\n";
    let (_origin, tollgate) = one_each("key: [user, 'header:x-api-key'], missing: ip", rest);
    assert_eq!(status(&tollgate, "/ | x-user-id: a | x-api-key: k"), 200);
    assert_eq!(status(&tollgate, "/ | x-user-id: b"), 200);
    assert_eq!(status(&tollgate, "/ | x-user-id: c"), 429, "the address is used up");
    assert_eq!(get_from("127.0.0.2", tollgate.address, "/", &[("x-user-id", "c")]).status, 200);
}

#[test]
fn a_missing_key_is_denied_with_deny_without_a_time_to_come_back() {
    let rest = "user: [{ header: x-user-id, from: anyone }]\n";
    let (origin, tollgate) = one_each("key: [ip, user], missing: deny", rest);
    let denied = get(tollgate.address, "/", &[]);
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("retry-after"), None, "waiting does not help");
    assert_eq!(denied.header("ratelimit"), None, "no quota was asked, so that none is there to come back");
    assert_eq!(denied.header("ratelimit-policy"), None);
    assert_eq!(denied.json()["detail"], "This policy never admits a request like this one.");
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["one"]));
    assert_eq!(origin.heads().len(), 0);
    assert_eq!(get(tollgate.address, "/", &[("x-user-id", "acme")]).status, 200, "the address lost nothing");
}

#[test]
fn a_user_that_is_named_twice_is_nobody() {
    let (_origin, tollgate) = one_each("key: user", "user: [{ header: x-user-id, from: anyone }]\n");
    let ask = |second: &str| {
        let mut client = Client::connect(tollgate.address);
        client.send(format!(
            "GET / HTTP/1.1\r\nhost: a\r\nx-user-id: {second}\r\nx-user-id: {second}2\r\n\r\n"
        ));
        client.reply().status
    };
    assert_eq!([ask("acme"), ask("bob")], [200, 429], "both are limited by address");
    assert_eq!(get(tollgate.address, "/", &[("x-user-id", "acme")]).status, 200);
}
