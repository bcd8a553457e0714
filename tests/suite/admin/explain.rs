//! `/v1/explain` predicts the outcome of a request, and consumes nothing.

use std::{fs, net::IpAddr};

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{
    Authority, Client, Config, Issuer, Origin, Redis, Reply, Tollgate, eventually, file_name, in_seconds,
    request,
};

/// A configuration with every kind of route, user and policy. Only 127.0.0.1 is trusted. `store`: a line of YAML, or
/// empty.
fn config(origin: &Origin, keys: &str, store: &str) -> Config {
    Config::yaml(format!(
        "
{store}
trusted_proxies: [127.0.0.1]
user:
  - jwt: {{ header: authorization, claim: sub, key: {{ file: {keys} }}, algorithm: ES256 }}
  - header: x-user-id
  - cookie: session
  - basic
policies:
  per-ip: {{ algorithm: sliding_log, key: ip, limit: 4/1h, exempt: [198.51.100.0/24] }}
  per-user:
    algorithm: gcra
    key: user
    limit: 3/1h
    overrides: [{{ user: acme, limit: 5/1h }}]
  both: {{ algorithm: fixed_window, key: [ip, user, ip+path], limits: [5/30d, 6/60d] }}
  shadow: {{ algorithm: sliding_counter, key: ip, limit: 1/1h, mode: shadow }}
  key: {{ algorithm: single_counter, key: \"header:x-api-key\", limit: 2/1h, missing: deny }}
  cost: {{ algorithm: sliding_window, key: ip, limit: 9/1h, cost: {{ header: x-cost, default: 2, max: 20 }} }}
  again: {{ algorithm: sliding_log, key: ip, limit: 2/1h, count_denied: true }}
  values: {{ algorithm: distinct, key: ip, value: user, limit: 2/1h }}
  list: {{ algorithm: metadata_list, key: ip, limit: 3/1h }}
  lock: {{ algorithm: concurrency, key: ip, limit: 2, lease: 60s }}
upstreams:
  origin: {{ endpoints: [\"http://{origin}\"] }}
routes:
  - {{ name: elsewhere, hosts: [api.example.com], path: /*, upstream: origin, policies: [both] }}
  - {{ name: posts, path: /*, methods: [POST], upstream: origin, policies: [per-user] }}
  - {{ name: versioned, path: /*, headers: {{ x-version: \"2\" }}, upstream: origin, policies: [cost, again] }}
  - {{ name: keyed, path: /keyed, upstream: origin, policies: [per-ip, key] }}
  - {{ name: members, path: /members, upstream: origin, policies: [values, list, lock] }}
  - {{ name: user, path: \"/users/{{id}}\", upstream: origin, policies: [per-user, shadow] }}
  - {{ name: all, path: /a/*, upstream: origin, policies: [per-ip, shadow] }}
",
        origin = origin.address
    ))
}

struct Case {
    from: &'static str,
    method: &'static str,
    path: &'static str,
    headers: Vec<(&'static str, String)>,
}

fn case(
    from: &'static str,
    method: &'static str,
    path: &'static str,
    headers: &[(&'static str, &str)],
) -> Case {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Case { from, method, path, headers }
}

fn cases(issuer: &Issuer) -> Vec<Case> {
    let (proxy, stranger) = ("127.0.0.1", "127.0.0.2");
    let chain = ("x-forwarded-for", "192.0.2.1, 203.0.113.7, 127.0.0.1");
    let (acme, bob) = (issuer.bearer("acme"), issuer.bearer("bob"));
    let expired = format!("Bearer {}", issuer.sign(&json!({ "sub": "acme", "exp": in_seconds(-3_600) })));
    vec![
        case(stranger, "GET", "/a/1", &[]),
        case(stranger, "GET", "/a/1", &[chain]),
        case(proxy, "GET", "/a/1", &[chain]),
        case(proxy, "GET", "/a/1", &[("x-forwarded-for", "203.0.113.7, nonsense, 127.0.0.1")]),
        case(proxy, "GET", "/a/1", &[("x-forwarded-for", "198.51.100.9")]),
        case(proxy, "GET", "/a/1", &[("x-forwarded-for", "2001:db8:1:2:3::4")]),
        case(proxy, "GET", "/users/7", &[("x-user-id", "acme")]),
        case(stranger, "GET", "/users/7", &[("x-user-id", "acme")]),
        case(stranger, "GET", "/users/7", &[("cookie", "session=acme")]),
        case(stranger, "POST", "/users/7", &[("authorization", "Basic YWNtZTpw")]),
        case(stranger, "POST", "/x", &[("authorization", &acme)]),
        case(stranger, "POST", "/x", &[("authorization", &bob)]),
        case(stranger, "POST", "/x", &[("authorization", &expired)]),
        case(stranger, "GET", "/x", &[("host", "api.example.com:80")]),
        case(stranger, "GET", "/x?y=1", &[("host", "API.example.com"), ("cookie", "session=eve")]),
        case(proxy, "GET", "/x", &[("x-version", "2"), ("x-cost", "4"), ("x-forwarded-for", "192.0.2.9")]),
        case(stranger, "GET", "/x", &[("x-version", "2"), ("x-cost", "4")]),
        case(stranger, "GET", "/keyed", &[]),
        case(stranger, "GET", "/keyed", &[("x-api-key", "k1")]),
        case(stranger, "GET", "/members", &[("cookie", "session=a")]),
        case(stranger, "GET", "/members", &[("cookie", "session=b")]),
        case(stranger, "GET", "/members", &[("cookie", "session=c")]),
        case(stranger, "GET", "/members", &[]),
        case(stranger, "GET", "/nowhere", &[]),
        case(stranger, "GET", "/a%2Fb", &[]),
        case(stranger, "GET", "/a/..%2Fb", &[]),
        case(stranger, "OPTIONS", "*", &[]),
        case(
            stranger,
            "OPTIONS",
            "/a/1",
            &[("origin", "http://a.example"), ("access-control-request-method", "PUT")],
        ),
    ]
}

impl Case {
    /// Sends the request through the proxy.
    fn send(&self, tollgate: &Tollgate) -> Reply {
        let mut headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        if !headers.iter().any(|(name, _)| *name == "host") {
            headers.push(("host", "localhost"));
        }
        let source: IpAddr = self.from.parse().unwrap();
        Client::connect_from(source, tollgate.address).request(self.method, self.path, &headers, b"")
    }

    fn explained(&self, tollgate: &Tollgate) -> Value {
        let mut headers: serde_json::Map<String, Value> =
            self.headers.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        headers.entry("host").or_insert(json!("localhost"));
        explain(
            tollgate,
            &json!({ "method": self.method, "url": self.path, "peer": self.from, "headers": headers }),
        )
    }

    fn description(&self) -> String {
        format!("{} {} from {} with {:?}", self.method, self.path, self.from, self.headers)
    }
}

#[track_caller]
fn explain(tollgate: &Tollgate, asked: &Value) -> Value {
    let reply = ask(tollgate, &asked.to_string());
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

fn ask(tollgate: &Tollgate, body: &str) -> Reply {
    let json = [("content-type", "application/json")];
    request(tollgate.admin, "POST", "/v1/explain", &json, body.as_bytes())
}

/// Policy and remaining requests from the field `ratelimit`: `"per-ip";r=3`.
fn remaining(reply: &Reply) -> Option<(String, u64)> {
    let field = reply.header("ratelimit")?;
    let name = field.split('"').nth(1)?.to_owned();
    let left = field.split("r=").nth(1)?.split(';').next()?.parse().ok()?;
    Some((name, left))
}

/// Explains each request, then sends it, in rounds until its limits are reached.
fn explain_predicts_what_happens(store: &str) {
    let (origin, directory, issuer) = (Origin::ok(), TempDir::new().unwrap(), Issuer::new(Algorithm::ES256));
    let keys = directory.path().join("keys.pem");
    fs::write(&keys, issuer.public()).unwrap();
    let tollgate = Tollgate::start(config(&origin, keys.to_str().unwrap(), store));
    let (mut denied, mut refused, mut allowed) = (0, 0, 0);
    for round in 0..7 {
        for case in cases(&issuer) {
            let what = format!("round {round}: {}", case.description());
            let explained = case.explained(&tollgate);
            let reply = case.send(&tollgate);
            assert_eq!(
                explained["status"].as_u64().unwrap_or(200),
                u64::from(reply.status),
                "{what}\n{explained:#}"
            );
            match explained["verdict"].as_str().unwrap() {
                "allowed" => allowed += 1,
                "denied" => {
                    denied += 1;
                    let policies = reply.json()["violated-policies"].to_string();
                    let by = explained["because"].as_str().unwrap();
                    let by = by.strip_prefix("denied by ").and_then(|by| by.split(':').next()).unwrap();
                    // If several policies deny, a worker that remembers a denial names that policy alone.
                    let denies = |check: &Value| {
                        check["verdict"] == "denied" && policies.contains(check["policy"].as_str().unwrap())
                    };
                    let is_named =
                        policies.contains(by) || explained["checks"].as_array().unwrap().iter().any(denies);
                    assert!(is_named, "{what}\n{explained:#}\n{policies}");
                }
                "refused" => {
                    refused += 1;
                    assert_eq!(reply.json()["detail"], explained["because"], "{what}");
                }
                other => panic!("{what}: {other}"),
            }
            if let Some((name, left)) = remaining(&reply) {
                let checks = explained["checks"].as_array().unwrap();
                // With several tiers, the tier follows the policy's name.
                let of = |check: &&Value| name.starts_with(check["policy"].as_str().unwrap());
                let remaining: Vec<_> =
                    checks.iter().filter(of).filter_map(|check| check["remaining"].as_u64()).collect();
                assert!(remaining.contains(&left), "{what}: {left} of {name}\n{explained:#}");
            }
            for check in explained["checks"].as_array().unwrap() {
                let (Some(used), Some(policy)) = (check["used"].as_u64(), check["policy"].as_str()) else {
                    continue;
                };
                // The predicted usage of a key is its usage now. Not of a lock, which is released by now, nor if
                // another policy denied the request, which then consumed nothing.
                if policy == "lock" || explained["verdict"] != "allowed" && policy != "again" {
                    continue;
                }
                let key = percent_encoding::utf8_percent_encode(
                    check["key"].as_str().unwrap(),
                    percent_encoding::NON_ALPHANUMERIC,
                );
                let peeked = tollgate.admin("GET", &format!("/v1/limits?policy={policy}&key={key}")).json();
                let limits = peeked["limits"].as_array().unwrap();
                let same = |limit: &&Value| limit["limit"] == check["limit"];
                let found = limits.iter().find(same).map(|limit| limit["used"].as_u64());
                // An override may share the count of its policy: then only one of the two is listed.
                assert!(
                    found.is_none_or(|found| found == Some(used)),
                    "{what}: {policy} {check:#}\n{peeked:#}"
                );
            }
        }
    }
    assert!(allowed > 40 && denied > 40 && refused > 20, "{allowed} {denied} {refused}");
}

#[test]
fn explain_predicts_what_happens_in_memory() {
    explain_predicts_what_happens("");
}

#[test]
fn explain_predicts_what_happens_with_redis() {
    let redis = Redis::start();
    // The machine may be busy, so decisions may take long.
    explain_predicts_what_happens(&format!(
        "store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}",
        redis.url()
    ));
}

fn start() -> (Origin, TempDir, Issuer, Tollgate) {
    let (origin, directory, issuer) = (Origin::ok(), TempDir::new().unwrap(), Issuer::new(Algorithm::ES256));
    let keys = directory.path().join("keys.pem");
    fs::write(&keys, issuer.public()).unwrap();
    let tollgate = Tollgate::start(config(&origin, keys.to_str().unwrap(), ""));
    (origin, directory, issuer, tollgate)
}

#[test]
fn the_address_is_explained() {
    let (_origin, _directory, _issuer, tollgate) = start();
    let explained = |peer: &str, chain: &str| {
        let request = json!({ "url": "http://h/a/1", "peer": peer, "headers": { "X-Forwarded-For": chain } });
        explain(&tollgate, &request)["client_address"].clone()
    };
    for (peer, chain, address, because) in [
        ("203.0.113.9", "192.0.2.1", "203.0.113.9", "the peer's own address; its x-forwarded-for is ignored"),
        (
            "127.0.0.1",
            "192.0.2.1, 203.0.113.7",
            "203.0.113.7",
            "from x-forwarded-for, sent by the trusted proxy 127.0.0.1",
        ),
        ("127.0.0.1", "203.0.113.7, 127.0.0.1", "203.0.113.7", "and the trusted proxy 127.0.0.1 before it"),
    ] {
        let explained = explained(peer, chain);
        assert_eq!(explained["address"], address, "{explained}");
        assert!(explained["because"].as_str().unwrap().contains(because), "{explained}");
    }
    let malformed = explained("127.0.0.1", "1.1.1.1, unknown");
    assert_eq!(malformed["address"], "127.0.0.1");
    assert!(
        malformed["because"].as_str().unwrap().contains("`unknown` before it is not an address"),
        "{malformed}"
    );
}

#[test]
fn a_missing_user_is_explained() {
    let (_origin, _directory, issuer, tollgate) = start();
    let explained = |peer: &str, headers: Value| {
        let explained =
            explain(&tollgate, &json!({ "url": "http://h/users/1", "peer": peer, "headers": headers }));
        explained["user"].clone()
    };
    let expired = issuer.sign(&json!({ "sub": "acme", "exp": in_seconds(-3_600) }));
    let foreign = Issuer::new(Algorithm::ES256).token("acme");
    for (headers, because) in [
        (json!({ "authorization": format!("Bearer {expired}") }), "the token has expired"),
        (json!({ "authorization": format!("Bearer {foreign}") }), "the token's signature is invalid"),
        (json!({ "authorization": "Bearer x" }), "the token is malformed"),
        (json!({ "x-user-id": "acme" }), "the peer is not a trusted proxy"),
        (json!({}), "cookie session: not sent"),
    ] {
        let explained = explained("203.0.113.9", headers);
        assert_eq!(explained["user"], Value::Null, "{explained}");
        assert!(explained["because"].as_str().unwrap().contains(because), "{explained}");
    }
    let verified = explained("203.0.113.9", json!({ "authorization": issuer.bearer("acme") }));
    assert_eq!(
        (&verified["user"], &verified["because"]),
        (&json!("acme"), &json!("claim sub of the token in authorization, verified"))
    );
    let said = explained("127.0.0.1", json!({ "x-user-id": "acme" }));
    assert!(
        said["because"].as_str().unwrap().starts_with("header x-user-id from a trusted proxy, verified"),
        "{said}"
    );
}

#[test]
fn a_path_is_for_the_host_of_the_first_route_that_could_match() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
upstreams: {{ origin: {{ endpoints: [\"http://{}\"] }} }}
routes:
  - {{ name: posts, hosts: [posts.example.com], path: /*, methods: [POST], upstream: origin }}
  - {{ name: api, hosts: [api.example.com, www.example.com], path: /api/*, upstream: origin }}
  - {{ name: sites, hosts: [\"*.example.org\"], path: /sites/*, upstream: origin }}
  - {{ name: any, path: /any/*, upstream: origin }}
",
        origin.address
    )));
    for (method, path, host, route) in [
        ("GET", "/api/orders", "api.example.com", Some("api")),
        ("POST", "/api/orders", "posts.example.com", Some("posts")),
        ("GET", "/sites/1", "www.example.org", Some("sites")),
        ("GET", "/any/1", "localhost", Some("any")),
        ("GET", "/", "posts.example.com", None),
    ] {
        let explained = explain(&tollgate, &json!({ "method": method, "url": path }));
        assert_eq!(explained["assumed_host"]["host"], host, "{path}: {explained}");
        assert_eq!(explained["route"]["name"], json!(route), "{path}: {explained}");
        let told = tollgate.command(&["explain", path, "-X", method]);
        assert!(
            told.stdout.starts_with(&format!("host      {host}: assumed, because the URL has none")),
            "{told:?}"
        );
        assert_eq!(told.code, Some(i32::from(route.is_none())), "{told:?}");
    }
    for url in ["http://api.example.com/api/orders", "api.example.com/api/orders"] {
        let explained = explain(&tollgate, &json!({ "url": url }));
        assert_eq!(
            (&explained["assumed_host"], &explained["route"]["name"]),
            (&Value::Null, &json!("api")),
            "{url}"
        );
        assert!(tollgate.command(&["explain", url]).stdout.starts_with("address "), "{url}");
    }
    let with_host = explain(&tollgate, &json!({ "url": "/api/x", "headers": { "host": "www.example.com" } }));
    assert_eq!((&with_host["assumed_host"], &with_host["route"]["name"]), (&Value::Null, &json!("api")));
}

#[test]
fn routes_are_explained_with_those_passed_over() {
    let (_origin, _directory, _issuer, tollgate) = start();
    let explained = explain(&tollgate, &json!({ "url": "http://h/a/1" }));
    assert_eq!((&explained["route"]["name"], &explained["upstream"]), (&json!("all"), &json!("origin")));
    let passed_over: Vec<_> = explained["route"]["passed_over"].as_array().unwrap().iter().collect();
    let because: Vec<_> = passed_over.iter().map(|route| route["because"].as_str().unwrap()).collect();
    assert_eq!(
        because,
        [
            "the host is not one of api.example.com",
            "the method is not one of POST",
            "x-version is not 2",
            "the path does not match /keyed",
            "the path does not match /members",
            "the path does not match /users/{id}",
        ]
    );
    let nowhere = explain(&tollgate, &json!({ "url": "http://h/nowhere" }));
    assert_eq!((&nowhere["verdict"], &nowhere["status"]), (&json!("refused"), &json!(404)));
    assert_eq!(nowhere["route"]["passed_over"].as_array().unwrap().len(), 7);
}

/// A route may require a secret that only the proxy in front knows.
#[test]
fn conditions_of_a_route_that_come_from_a_file_are_masked() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let file = directory.path().join("secret");
    fs::write(&file, "s3cret").unwrap();
    let secret = format!("\"${{file:{}}}\"", file.display());
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
upstreams: {{ origin: {{ endpoints: [\"http://{}\"] }} }}
routes:
  - {{ path: /a, headers: {{ x-version: \"2\", x-front: {secret} }}, upstream: origin }}
  - {{ path: /a, query: {{ key: {secret} }}, upstream: origin }}
  - {{ path: /a, cookie: {{ key: {secret} }}, upstream: origin }}
  - {{ path: /a, headers: {{ x-version: \"$${{2}}\" }}, upstream: origin }}
",
        origin.address
    )));
    let explained = explain(&tollgate, &json!({ "url": "http://h/a", "headers": { "x-version": "2" } }));
    let passed_over = explained["route"]["passed_over"].as_array().unwrap();
    let because: Vec<_> = passed_over.iter().map(|route| route["because"].as_str().unwrap()).collect();
    let masked = ["x-front is not ***", "the query parameter key is not ***", "the cookie key is not ***"];
    assert_eq!(because, [&masked[..], &["x-version is not ${2}"]].concat());
    assert_eq!(request(tollgate.address, "GET", "/a?key=s3cret", &[], b"").status, 200);
}

#[test]
fn exempt_skipped_shadow_and_override_are_shown() {
    let (_origin, _directory, issuer, tollgate) = start();
    let checks = |request: Value| explain(&tollgate, &request)["checks"].clone();
    let exempt = checks(json!({ "url": "http://h/a/1", "peer": "198.51.100.9" }));
    assert_eq!(
        (&exempt[0]["verdict"], &exempt[0]["because"]),
        (&json!("exempt"), &json!("exempt: 198.51.100.0/24"))
    );
    assert_eq!((&exempt[1]["verdict"], &exempt[1]["mode"]), (&json!("allowed"), &json!("shadow")));
    let skipped = checks(json!({ "url": "http://api.example.com/", "peer": "203.0.113.9" }));
    let keys: Vec<_> = skipped.as_array().unwrap().iter().map(|check| &check["key"]).collect();
    assert_eq!(keys, ["ip:203.0.113.9", "ip:203.0.113.9+path:/", "user"]);
    assert_eq!(skipped[2]["verdict"], "skipped");
    let gold = checks(
        json!({ "method": "POST", "url": "http://h/", "headers": { "authorization": issuer.bearer("acme") } }),
    );
    assert_eq!((&gold[0]["limit"], &gold[0]["because"]), (&json!(5), &json!("override for user:acme")));
    let lacks = explain(&tollgate, &json!({ "url": "http://h/keyed" }));
    assert_eq!((&lacks["verdict"], &lacks["status"]), (&json!("denied"), &json!(429)));
}

#[test]
fn a_ban_is_explained_before_all_checks_and_is_what_happens() {
    let (_origin, _directory, _issuer, tollgate) = start();
    let json = [("content-type", "application/json")];
    let ban = json!({ "key": "ip:127.0.0.2", "for": "1h", "reason": "scraping" }).to_string();
    let given = request(tollgate.admin, "POST", "/v1/bans", &json, ban.as_bytes());
    assert!(matches!(given.status, 200 | 201), "{}", given.text());
    let banned = case("127.0.0.2", "GET", "/a/1", &[]);
    let explained = banned.explained(&tollgate);
    assert_eq!(explained["verdict"], "banned", "{explained:#}");
    assert_eq!(explained["status"], banned.send(&tollgate).status);
    assert!(
        explained["because"].as_str().unwrap().starts_with("ip:127.0.0.2 is banned by "),
        "{explained:#}"
    );
    assert_eq!(
        (&explained["bans"][0]["reason"], &explained["checks"][0]["verdict"]),
        (&json!("scraping"), &json!("allowed"))
    );
    let other = case("127.0.0.3", "GET", "/a/1", &[]).explained(&tollgate);
    assert_eq!((&other["verdict"], &other["bans"]), (&json!("allowed"), &json!([])));
    let printed = tollgate.command(&["explain", "--peer", "127.0.0.2", "http://h/a/1"]);
    assert_eq!(printed.code, Some(1));
    let line =
        |text: &str| text.lines().find(|line| line.starts_with("ban  ")).unwrap_or_default().to_owned();
    assert!(line(&printed.stdout).starts_with("ban       ip:127.0.0.2 until "), "{}", printed.stdout);
    assert!(line(&printed.stdout).ends_with(", by operator at 127.0.0.1: scraping"), "{}", printed.stdout);
    assert_eq!(tollgate.command(&["ban", "127.0.0.4", "--for", "1h"]).code, Some(0));
    let printed = tollgate.command(&["explain", "--peer", "127.0.0.4", "http://h/a/1"]);
    assert!(line(&printed.stdout).ends_with(", by operator at 127.0.0.1"), "{}", printed.stdout);
}

#[test]
fn the_replies_of_tollgate_itself_are_explained() {
    let config = "
upstreams: { origin: { endpoints: [\"http://127.0.0.1:1\"] } }
routes:
  - { path: /own, reply: { status: 410 }, cors: { origins: [\"https://a.example\"] } }
  - { path: /users, upstream: origin, rewrite: { path: \"/of/{user}\" }, cors: { origins: [\"https://a.example\"] } }
  - { path: /*, upstream: origin }
";
    let tollgate = Tollgate::start(Config::yaml(config));
    let preflight = [("origin", "https://a.example"), ("access-control-request-method", "GET")];
    let spent = [("max-forwards", "0")];
    for (method, path, fields, status, reply, because) in [
        ("GET", "/own", &[][..], 410, json!({ "status": 410, "location": null }), ""),
        ("OPTIONS", "/own", &preflight, 204, json!({ "status": 410, "location": null }), "CORS preflight"),
        ("OPTIONS", "/users", &preflight, 204, Value::Null, "CORS preflight"),
        ("GET", "/users", &[], 400, Value::Null, "The path needs a value"),
        ("OPTIONS", "/users", &spent, 204, Value::Null, "Max-Forwards"),
        ("TRACE", "/a", &spent, 405, Value::Null, "Max-Forwards"),
    ] {
        let case = case("127.0.0.1", method, path, fields);
        let explained = case.explained(&tollgate);
        let what = format!("{method} {path} {fields:?}: {explained:#}");
        assert_eq!((&explained["status"], &explained["reply"]), (&json!(status), &reply), "{what}");
        assert!(explained["because"].as_str().unwrap().contains(because), "{what}");
        assert_eq!(case.send(&tollgate).status, status, "{what}");
    }
}

#[test]
fn asking_takes_and_notes_nothing() {
    let (_origin, _directory, _issuer, tollgate) = start();
    let counted = || {
        let text = tollgate.admin("GET", "/metrics").text();
        // Counters only: gauges change with connections and time.
        let counts = text.lines().filter(|line| line.contains("_total"));
        counts.map(str::to_owned).collect::<Vec<_>>()
    };
    for _ in 0..5 {
        case("127.0.0.2", "GET", "/a/1", &[]).send(&tollgate);
    }
    let of_all = |status: &str, count: u8| {
        format!("tollgate_requests_total{{route=\"all\",status=\"{status}\"}} {count}")
    };
    let all = [of_all("2xx", 4), of_all("4xx", 1)];
    eventually("all are counted", || all.iter().all(|line| counted().contains(line)));
    let before = counted();
    for path in ["/a/1", "/keyed", "/members", "/nowhere"] {
        for _ in 0..20 {
            explain(&tollgate, &json!({ "url": format!("http://h{path}"), "peer": "127.0.0.3" }));
        }
    }
    assert_eq!(counted(), before);
    assert_eq!(tollgate.admin("GET", "/v1/blocked/127.0.0.3").status, 404);
    assert_eq!(case("127.0.0.3", "GET", "/a/1", &[]).send(&tollgate).status, 200);
}

#[test]
fn listeners_that_answer_by_themselves_are_named() {
    let (origin, ca) = (Origin::ok(), Authority::new("authority"));
    let server = ca.issue("server", &["a.example"]);
    let certificate = format!("{{ cert: {}, key: {} }}", file_name(&server.cert), file_name(&server.key));
    let rest = format!(
        "
listeners:
  - {{ address: \"127.0.0.1:0\" }}
  - {{ address: \"127.0.0.2:0\", redirect: https }}
  - {{ address: \"127.0.0.3:0\", tls: {{ certificates: [{certificate}], client_ca: {} }} }}
trusted_proxies: [127.0.0.9]
",
        file_name(&ca.file())
    );
    let tollgate = Tollgate::start(Config::new(&[origin.address], &rest));
    let redirect = json!({
        "listener": "127.0.0.2:0",
        "reply": { "status": 308, "location": "https://a.example/x" },
        "because": "it redirects to HTTPS"
    });
    let refusal = json!({
        "listener": "127.0.0.3:0",
        "reply": { "status": 403, "location": null },
        "because": "it requires a client certificate"
    });
    let host = json!({ "host": "a.example" });
    let by_https = json!({ "host": "a.example", "x-forwarded-proto": "https" });
    let certificate = json!({ "subject": "CN=acme" });
    for (asked, listeners) in [
        (json!({ "url": "http://a.example/x" }), vec![&redirect]),
        (json!({ "url": "https://a.example/x" }), vec![&refusal]),
        (json!({ "url": "/x", "headers": host }), vec![&redirect, &refusal]),
        (json!({ "url": "/x", "headers": by_https, "peer": "127.0.0.9" }), vec![&refusal]),
        (json!({ "url": "https://a.example/x", "client_certificate": certificate }), vec![]),
    ] {
        let explained = explain(&tollgate, &asked);
        assert_eq!(
            (&explained["listeners"], &explained["verdict"]),
            (&json!(listeners), &json!("allowed")),
            "{asked}"
        );
    }
}

#[test]
fn a_malformed_request_to_explain_is_a_problem() {
    let (_origin, _directory, _issuer, tollgate) = start();
    for body in [
        "",
        "{}",
        "[]",
        "{\"url\":\"/\",\"x\":1}",
        "{\"url\":\"ftp://h/\"}",
        "{\"url\":\"http://h/ x\"}",
        "{\"url\":\"/\",\"method\":\"G T\"}",
        "{\"url\":\"/\",\"headers\":{\"a b\":\"c\"}}",
        "{\"url\":\"/\",\"headers\":{\"a\":\"\\n\"}}",
        "{\"url\":\"/\",\"peer\":\"nobody\"}",
    ] {
        let reply = ask(&tollgate, body);
        assert!(matches!(reply.status, 400 | 415), "{body}: {}", reply.text());
        assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{body}");
    }
}

#[test]
fn the_command_line_asks_as_curl_does() {
    let (_origin, _directory, _issuer, tollgate) = start();
    let url = "http://h/users/7";
    let allowed = tollgate.command(&["explain", "-H", "X-User-Id: acme", "--peer", "127.0.0.1", url]);
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
    assert!(allowed.stdout.contains("route     user: the path matches /users/{id}"), "{}", allowed.stdout);
    assert!(
        allowed.stdout.contains("user:acme")
            && allowed.stdout.ends_with("allowed: every enforced policy admits the request\n"),
        "{}",
        allowed.stdout
    );
    assert!(!allowed.stdout.contains('\x1b'), "no colours where nobody sees them");
    let denied = tollgate.command(&["explain", "http://h/keyed"]);
    assert_eq!(denied.code, Some(1), "{denied:?}");
    assert!(denied.stdout.contains("denied with 429: denied by key: "), "{}", denied.stdout);
    let json = tollgate.command(&["explain", "-X", "POST", "--json", "http://h/keyed"]);
    assert_eq!(serde_json::from_str::<Value>(&json.stdout).unwrap()["route"]["name"], "posts");
    assert_eq!(json.code, Some(0));
    let wrong = tollgate.command(&["explain", "--peer", "nobody", url]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(2), ""));
    assert_eq!(wrong.stderr, "tollgate: peer is not an address: nobody\n");
}
