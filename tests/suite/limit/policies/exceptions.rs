//! Which clients a policy applies to, and what a request costs: `cost`, `exempt`, `overrides`, `preflight`.

use super::{ANYONE, TRUSTED, on_each_store, start};
use crate::harness::{
    Client, Config, Deployment, Origin, Tollgate, by_http2, eventually, get, get_from, read, request,
};

on_each_store!(
    a_fixed_cost_is_taken_at_once,
    a_trusted_proxy_tells_the_cost_and_nobody_else,
    exempt_requests_are_not_counted,
    overrides_have_limits_of_their_own_under_the_same_name,
    evidence_shows_the_limits_that_hold_for_the_address,
    a_denial_that_is_remembered_is_no_denial_of_an_override,
    preflights_are_counted_by_the_policies_that_say_so,
    only_what_a_browser_sends_as_a_preflight_is_free,
    every_spelling_of_a_path_has_the_same_count,
);

fn remaining(tollgate: &crate::harness::Tollgate, headers: &[(&str, &str)]) -> Option<u64> {
    let reply = get(tollgate.address, "/", headers);
    reply.header("ratelimit").map(|field| field.split([';', '=']).nth(2).unwrap().parse().unwrap())
}

fn a_fixed_cost_is_taken_at_once(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let tollgate =
        start(&origin, redis, &["p: { algorithm: fixed_window, key: ip, limit: 12/1d, cost: 5 }"], "");
    assert_eq!([(); 2].map(|()| remaining(&tollgate, &[])), [Some(7), Some(2)]);
    let denied = get(tollgate.address, "/", &[]);
    assert_eq!((denied.status, denied.header("ratelimit").map(|f| f.contains(";r=2;"))), (429, Some(true)));
}

fn a_trusted_proxy_tells_the_cost_and_nobody_else(redis: Option<&Deployment>) {
    const POLICY: &str = "p: { algorithm: sliding_log, key: global, limit: 1000/1d, cost: { header: x-cost, \
                          default: 2, max: 100 } }";
    let origin = Origin::ok();
    let believed = start(&origin, redis, &[POLICY], "trusted_proxies: [127.0.0.1]\n");
    let costs = |headers: &[(&str, &str)]| {
        let left = || remaining(&believed, &[]).unwrap();
        let before = left();
        get(believed.address, "/", headers);
        before - left() - 2
    };
    assert_eq!(costs(&[("x-cost", "7")]), 7);
    assert_eq!(costs(&[("x-cost", "0")]), 1);
    assert_eq!(costs(&[("x-cost", "101")]), 100);
    assert_eq!(costs(&[("x-cost", "seven")]), 2);
    assert_eq!(costs(&[("x-cost", "7"), ("x-cost", "7")]), 2);
    assert_eq!(costs(&[]), 2);
    // From another peer, which is not trusted.
    let before = remaining(&believed, &[]).unwrap();
    get_from("127.0.0.9", believed.address, "/", &[("x-cost", "50")]);
    assert_eq!(before - remaining(&believed, &[]).unwrap(), 4);
}

fn exempt_requests_are_not_counted(redis: Option<&Deployment>) {
    const POLICY: &str = "p: { algorithm: single_counter, key: global, limit: 1/1h, exempt: [127.0.0.7, \
                          'user:monitor', 'header:x-plan=internal'] }";
    let origin = Origin::ok();
    let tollgate =
        start(&origin, redis, &[POLICY], "user: [{ header: x-user-id }]\ntrusted_proxies: [127.0.0.1]\n");
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let status = |headers: &[(&str, &str)]| get(tollgate.address, "/", headers).status;
    assert_eq!(status(&[]), 429);
    for _ in 0..3 {
        assert_eq!(status(&[("x-user-id", "monitor")]), 200);
        assert_eq!(status(&[("x-plan", "internal")]), 200);
        let free = get_from("127.0.0.7", tollgate.address, "/", &[]);
        assert_eq!((free.status, free.header("ratelimit")), (200, None));
    }
    assert_eq!(status(&[("x-user-id", "other")]), 429);
    assert_eq!(status(&[("x-plan", "external")]), 429);
    // What others claim of themselves.
    for claim in [("x-user-id", "monitor"), ("x-plan", "internal")] {
        assert_eq!(get_from("127.0.0.9", tollgate.address, "/", &[claim]).status, 429);
    }
}

fn overrides_have_limits_of_their_own_under_the_same_name(redis: Option<&Deployment>) {
    const POLICY: &str = "p: { algorithm: fixed_window, key: user, limit: 1/1d, overrides: [{ user: acme, limit: \
                          3/1d }, { 'header:x-plan': gold, limit: 4/1h }] }";
    let origin = Origin::ok();
    let rest = format!("user: [{{ header: x-user-id }}]\n{TRUSTED}");
    let tollgate = start(&origin, redis, &[POLICY], &rest);
    let told = |headers: &[(&str, &str)]| {
        let reply = get(tollgate.address, "/", headers);
        (reply.status, reply.header("ratelimit-policy").unwrap().to_owned())
    };
    let eve = [("x-user-id", "eve")];
    assert_eq!([told(&eve).0, told(&eve).0], [200, 429]);
    let acme = [("x-user-id", "acme")];
    for _ in 0..3 {
        assert_eq!(told(&acme), (200, "\"p\";q=3;w=86400".to_owned()));
    }
    assert_eq!(told(&acme), (429, "\"p\";q=3;w=86400".to_owned()));
    let gold = [("x-user-id", "bob"), ("x-plan", "gold")];
    for _ in 0..4 {
        assert_eq!(told(&gold), (200, "\"p\";q=4;w=3600".to_owned()));
    }
    assert_eq!(told(&gold).0, 429);
    assert_eq!(told(&[("x-user-id", "bob")]).0, 200, "other windows, other counts");
    // A client that matches several has the first.
    assert_eq!(told(&[("x-user-id", "acme"), ("x-plan", "gold")]).0, 429);
    let denied = "tollgate_decisions_total{policy=\"p\",verdict=\"denied\"";
    let page = tollgate.admin("GET", "/metrics").text();
    let sum: f64 = page
        .lines()
        .filter(|line| line.starts_with(denied))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum();
    assert_eq!(sum, 4.0);
}

/// An address is limited, and one of those behind it may do more: what is remembered of the one says nothing of the other.
/// The evidence of an address shows the limits that deny it, not those that apply to others.
fn evidence_shows_the_limits_that_hold_for_the_address(redis: Option<&Deployment>) {
    const POLICY: &str = "p: { algorithm: single_counter, key: ip, limit: 5/1h, overrides: [{ 'header:x-plan': gold, \
                          limit: 2/1d }, { ip: 127.0.0.0/8, limit: 1/1h }] }";
    let origin = Origin::ok();
    let tollgate = start(&origin, redis, &[POLICY], TRUSTED);
    let status = |headers: &[(&str, &str)]| get(tollgate.address, "/", headers).status;
    let limits = || {
        let told = tollgate.admin("GET", "/v1/blocked/127.0.0.1").json()["limits"].clone();
        let limits = told.as_array().expect("a list").iter();
        limits.map(|limit| ["used", "limit"].map(|name| limit[name].as_u64())).collect::<Vec<_>>()
    };
    assert_eq!([status(&[]), status(&[])], [200, 429]);
    eventually("it is listed", || tollgate.admin("GET", "/v1/blocked/127.0.0.1").status == 200);
    assert_eq!(limits(), [[Some(1), Some(1)]], "what nobody has used is left out");
    assert_eq!(status(&[("x-plan", "gold")]), 200);
    assert_eq!(limits(), [[Some(1), Some(1)], [Some(1), Some(2)]]);
}

fn a_denial_that_is_remembered_is_no_denial_of_an_override(redis: Option<&Deployment>) {
    const POLICY: &str =
        "p: { algorithm: fixed_window, key: ip, limit: 2/1d, overrides: [{ user: acme, limit: 5/1d }] }";
    let origin = Origin::ok();
    let rest = format!("workers: 1\nuser: [{{ header: x-user-id }}]\n{TRUSTED}");
    let tollgate = start(&origin, redis, &[POLICY], &rest);
    let mut client = Client::connect(tollgate.address);
    let mut status = |user| client.request("GET", "/", &[("x-user-id", user)], b"").status;
    assert_eq!([status("eve"), status("eve"), status("eve")], [200, 200, 429]);
    assert_eq!([status("acme"), status("eve"), status("acme")], [200, 429, 200]);
    assert_eq!([status("acme"), status("acme")], [200, 429]);
}

fn preflights_are_counted_by_the_policies_that_say_so(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let policies = [
        "all: { algorithm: single_counter, key: ip, limit: 2/1h, preflight: true }",
        "real: { algorithm: single_counter, key: ip, limit: 1/1h }",
    ];
    let tollgate = start(&origin, redis, &policies, "");
    let preflight = [("origin", "https://app.example"), ("access-control-request-method", "PUT")];
    let ask = || request(tollgate.address, "OPTIONS", "/", &preflight, b"");
    let first = ask();
    assert_eq!((first.status, first.header("ratelimit-policy")), (200, Some("\"all\";q=2;w=3600")));
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let denied = ask();
    assert_eq!((denied.status, denied.header("ratelimit-policy")), (429, Some("\"all\";q=2;w=3600")));
}

fn only_what_a_browser_sends_as_a_preflight_is_free(redis: Option<&Deployment>) {
    const ORIGIN: (&str, &str) = ("origin", "https://app.example");
    const PUT: (&str, &str) = ("access-control-request-method", "PUT");
    let origin = Origin::ok();
    let store = redis.map_or_else(String::new, |redis| {
        format!("store: {{ redis: {{ {}, timeout: 5s }} }}\n", redis.settings())
    });
    let tollgate = Tollgate::start(Config::yaml(format!(
        "{store}upstreams:\n  origin: {{ endpoints: [\"http://{}\"] }}\npolicies:\n  p: {{ algorithm: fixed_window, key: ip, limit: 1000/1d }}\nroutes:\n  - {{ path: /some, methods: [OPTIONS, PUT, GET], upstream: origin, policies: [p] }}\n  - {{ path: /*, upstream: origin, policies: [p] }}\n",
        origin.address
    )));
    let ask = |method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]| {
        let reply = request(tollgate.address, method, path, headers, body);
        assert_eq!(reply.status, 200);
        reply.header("ratelimit").is_none()
    };
    for path in ["/", "/some"] {
        assert!(ask("OPTIONS", path, &[ORIGIN, PUT], b""), "{path}");
        assert!(ask("OPTIONS", path, &[ORIGIN, ("access-control-request-method", "HEAD")], b""), "{path}");
        assert!(!ask("OPTIONS", path, &[ORIGIN, PUT], b"{}"), "{path}: with a body");
        assert!(!ask("OPTIONS", path, &[ORIGIN], b"") && !ask("OPTIONS", path, &[PUT], b""), "{path}");
        assert!(!ask("GET", path, &[ORIGIN, PUT], b""), "{path}");
        for method in ["", "PUT, GET", "P UT", "(PUT)"] {
            let field = ("access-control-request-method", method);
            assert!(!ask("OPTIONS", path, &[ORIGIN, field], b""), "{path}: {method:?}");
        }
        assert!(
            !ask("OPTIONS", path, &[ORIGIN, PUT, PUT], b"")
                && !ask("OPTIONS", path, &[ORIGIN, ORIGIN, PUT], b"")
        );
    }
    let delete = ("access-control-request-method", "DELETE");
    assert!(ask("OPTIONS", "/", &[ORIGIN, delete], b""), "the route takes every method");
    assert!(!ask("OPTIONS", "/some", &[ORIGIN, delete], b""), "no method of the route");
    let mut client = Client::connect(tollgate.address);
    client.send("OPTIONS / HTTP/1.1\r\nhost: a\r\norigin: https://app.example\r\naccess-control-request-method: PUT\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    assert!(client.reply().header("ratelimit").is_some(), "a body of unknown length");
    by_http2(tollgate.address, async |mut client| {
        for has_body in [false, true] {
            let (answer, mut body) = client.send("OPTIONS", "/", &[ORIGIN, PUT], !has_body).await.unwrap();
            if has_body {
                body.send_data("{}".into(), true).unwrap();
            }
            let counted = read(answer).await.unwrap().head.headers().contains_key("ratelimit");
            assert_eq!(counted, has_body, "by HTTP/2, a body needs no field");
        }
    });
}

/// To an origin that reads paths loosely, all of these are one.
fn every_spelling_of_a_path_has_the_same_count(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let policy = "p: { algorithm: fixed_window, key: ip+path+method, limit: 2/1d }";
    let tollgate = start(&origin, redis, &[policy], "");
    let statuses =
        |paths: &[&str]| paths.iter().map(|path| get(tollgate.address, path, &[]).status).collect::<Vec<_>>();
    assert_eq!(statuses(&["/Api/Items", "/api/items/", "/API/ITEMS", "/api//items"]), [200, 200, 429, 429]);
    assert_eq!(request(tollgate.address, "HEAD", "/api/items", &[], b"").status, 429);
    assert_eq!(statuses(&["/api/other", "/", "/"]), [200, 200, 200]);
    let exact = start(&origin, redis, &[policy], "match: { case: sensitive, trailing_slash: exact }\n");
    let paths = ["/b/Items", "/b/items", "/b/items/", "/b/Items", "/b/Items"];
    assert_eq!(paths.map(|path| get(exact.address, path, &[]).status), [200, 200, 200, 200, 429]);
}

#[test]
fn a_user_who_only_claims_to_be_one_has_no_exception() {
    let origin = Origin::ok();
    let policy = "p: { algorithm: single_counter, key: ip, limit: 1/1h, exempt: [127.0.0.7] }";
    let tollgate = start(&origin, None, &[policy], ANYONE);
    assert_eq!([(); 2].map(|()| get(tollgate.address, "/", &[("x-user-id", "a")]).status), [200, 429]);
}
