//! `tollgate replay`: the policies of a configuration decide over the requests of access logs as they would have over real ones.

use std::{fs, path::Path};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::harness::{
    Config, Ended, Origin, Tollgate, caddy, eventually, get, get_from, nginx, nobody, request, tollgate_in,
};

const POLICIES: &str = "
user: [{ header: x-user-id, from: anyone }]
policies:
  per-ip: { algorithm: sliding_log, key: ip, limit: 6/1h }
  per-user: { algorithm: fixed_window, key: user, limit: 3/1d }
  tried: { algorithm: gcra, key: ip, limit: 5/1h, mode: shadow }
";

/// Replays `logs`, files of `directory`, by a configuration with these policies, all of them on every route.
fn replay(directory: &Path, policies: &str, logs: &[&str]) -> Value {
    fs::write(directory.join("proxy.yaml"), configuration(policies)).unwrap();
    let ended = tollgate_in(directory, &[], &[&["replay", "--json"], logs].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

fn configuration(policies: &str) -> String {
    let names: Vec<_> =
        policies.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(": {")).collect();
    let names = names.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
    format!(
        "{policies}upstreams: {{ api: {{ endpoints: [\"http://127.0.0.1:1\"] }} }}
routes:
  - {{ path: /health, reply: {{ status: 200 }} }}
  - {{ path: /*, upstream: api, policies: [{names}] }}
"
    )
}

/// What the report says of a policy: how many it has checked and denied, and of how many the log has not what it needs.
fn of_policy(report: &Value, name: &str) -> [u64; 3] {
    let policies = report["policies"].as_array().unwrap();
    let policy = policies.iter().find(|policy| policy["policy"] == name).unwrap();
    ["checked", "denied", "not_in_log"].map(|field| policy[field].as_u64().unwrap())
}

/// Each key with its policy, its requests and its denials.
fn keys(report: &Value) -> Vec<(String, String, u64, u64)> {
    let text = |key: &Value, name: &str| key[name].as_str().unwrap().to_owned();
    let number = |key: &Value, name: &str| key[name].as_u64().unwrap();
    let keys = report["keys"].as_array().unwrap().iter();
    keys.map(|key| (text(key, "key"), text(key, "policy"), number(key, "requests"), number(key, "denied")))
        .collect()
}

fn denied(name: &str, policy: &str, requests: u64, denied: u64) -> (String, String, u64, u64) {
    (name.to_owned(), policy.to_owned(), requests, denied)
}

#[test]
fn a_log_of_tollgate_is_decided_as_tollgate_decided() {
    for format in ["json", "combined"] {
        let origin = Origin::ok();
        // Lines of one worker are in the order of its requests, also within a second.
        let log = format!("workers: 1\naccess_log: {{ format: {format}, to: access.log }}\n{POLICIES}");
        let yaml = configuration(&log).replace("http://127.0.0.1:1", &format!("http://{}", origin.address));
        let tollgate = Tollgate::start(Config::yaml(yaml));
        let mut statuses = Vec::new();
        for (client, users) in [("127.0.0.7", ["ann", "bob"]), ("127.0.0.8", ["ann", "cid"])] {
            for nth in 0..9 {
                let headers = [("x-user-id", users[nth % 2])];
                statuses
                    .push(get_from(client, tollgate.address, &format!("/a/{}", nth / 8), &headers).status);
            }
        }
        let refused = statuses.iter().filter(|status| **status == 429).count();
        let log = tollgate.directory().join("access.log");
        eventually("all is logged", || fs::read_to_string(&log).unwrap_or_default().lines().count() == 18);

        let report = replay(tollgate.directory(), POLICIES, &["access.log"]);
        assert_eq!(report["requests"], 18);
        assert_eq!(report["denied"], refused, "{format}: {statuses:?}, {report:#}");
        let listed = tollgate.admin("GET", "/v1/policies").json();
        for policy in listed["policies"].as_array().unwrap() {
            let decided = ["denied", "shadow_denied"].map(|field| policy[field].as_u64().unwrap());
            let [checked, denied, not_in_log] = of_policy(&report, policy["name"].as_str().unwrap());
            assert_eq!(denied, decided.iter().sum::<u64>(), "{format}: {policy:#}, {report:#}");
            assert!(checked > 0 && denied > 0 && not_in_log == 0, "{format}: {report:#}");
        }
    }
}

#[test]
fn logs_of_nginx_and_caddy_are_read_as_one() {
    let directory = TempDir::new().unwrap();
    let json = r#"log_format fields escape=json '{"msec":"$msec","remote_addr":"$remote_addr","request":"$request","http_x_api_key":"$http_x_api_key","status":"$status","request_time":"$request_time"}';"#;
    let server = "access_log combined.log combined; access_log fields.log fields; location / { return 200; }";
    let (_nginx, to_nginx) = nginx(directory.path(), json, server);
    let to_caddy = nobody();
    let site =
        format!("http://{to_caddy} {{\n\tlog {{\n\t\toutput file caddy.log\n\t}}\n\trespond 200\n}}\n");
    let _caddy = caddy(directory.path(), &site, "http", to_caddy);
    for _ in 0..4 {
        for address in [to_nginx, to_caddy] {
            assert_eq!(get(address, "/a?b=c", &[("x-api-key", "k1")]).status, 200);
        }
    }
    let written = |name: &str| {
        let text = fs::read_to_string(directory.path().join(name)).unwrap_or_default();
        text.lines().filter(|line| line.contains("/a?b=c")).count()
    };
    eventually("all is logged", || {
        ["combined.log", "fields.log", "caddy.log"].iter().all(|name| written(name) == 4)
    });

    let policies = "policies:
  per-ip: { algorithm: fixed_window, key: ip, limit: 5/1d }
  per-key: { algorithm: sliding_window, key: \"header:x-api-key\", limit: 6/1d }
";
    let combined = replay(directory.path(), policies, &["combined.log"]);
    assert_eq!((&combined["denied"], &combined["spread"]), (&json!(0), &json!(true)));
    assert_eq!([of_policy(&combined, "per-ip"), of_policy(&combined, "per-key")], [[4, 0, 0], [0, 0, 4]]);
    let both = replay(directory.path(), policies, &["caddy.log", "fields.log"]);
    assert_eq!((&both["requests"], &both["denied"], &both["spread"]), (&json!(8), &json!(3), &json!(false)));
    assert_eq!(of_policy(&both, "per-key"), [8, 0, 0], "a request that is denied counts in no limit");
    assert_eq!(keys(&both), [denied("ip:127.0.0.1", "per-ip", 8, 3)]);
}

/// A line of JSON; `second` since noon.
fn line(second: f64, client: &str, target: &str, status: u16, duration_ms: u64) -> String {
    let time = format!("2026-07-03T12:00:{second:06.3}Z");
    json!({ "time": time, "client": client, "method": "GET", "path": target, "status": status, "duration_ms": duration_ms })
        .to_string()
}

fn replay_lines(policies: &str, lines: &[String]) -> Value {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("access.log"), lines.join("\n")).unwrap();
    replay(directory.path(), policies, &["access.log"])
}

#[test]
fn a_lease_lasts_as_long_as_its_request_did() {
    let policies = "policies:\n  two: { algorithm: concurrency, key: ip, limit: 2, lease: 1s }\n";
    let lines = [(0.0, 30_000), (1.0, 1_000), (1.5, 10), (2.5, 10), (31.0, 10)]
        .map(|(second, duration)| line(second, "203.0.113.7", "/a", 200, duration));
    let report = replay_lines(policies, &lines);
    assert_eq!(of_policy(&report, "two"), [5, 1, 0]);
    assert_eq!(report["keys"][0]["first"], "2026-07-03T12:00:01.500Z");
}

#[test]
fn replies_whose_status_does_not_count_are_refunded() {
    let policies = "policies:\n  failed: { algorithm: fixed_window, key: ip, limit: 2/1h, count: { statuses: [401] } }\n";
    let lines = [401, 200, 200, 401, 200, 401]
        .iter()
        .enumerate()
        .map(|(nth, status)| line(nth as f64, "203.0.113.7", "/login", *status, 100));
    let report = replay_lines(policies, &lines.collect::<Vec<_>>());
    assert_eq!(of_policy(&report, "failed"), [6, 2, 0], "{report:#}");
    assert_eq!(report["keys"][0]["first"], "2026-07-03T12:00:04.000Z");
}

#[test]
fn replies_of_tollgate_itself_count_as_they_did_then() {
    let origin = Origin::ok();
    let yaml = format!(
        "workers: 1
access_log: {{ format: json, to: access.log }}
policies:
  failed: {{ algorithm: sliding_log, key: ip, limit: 3/1h, count: {{ statuses: [502, 503] }} }}
  per-ip: {{ algorithm: sliding_log, key: ip, limit: 3/1h }}
upstreams:
  dead: {{ endpoints: [\"http://{}\"] }}
  api: {{ endpoints: [\"http://{}\"] }}
routes:
  - {{ path: /dead, upstream: dead, policies: [failed] }}
  - {{ path: /*, upstream: api, policies: [per-ip], max_body: 10 }}
",
        nobody(),
        origin.address
    );
    let tollgate = Tollgate::start(Config::yaml(yaml.clone()));
    assert_eq!(request(tollgate.address, "POST", "/a", &[], b"hello world").status, 413);
    let status = |path| get(tollgate.address, path, &[]).status;
    assert_eq!(["/dead"; 6].map(status), [502; 6], "nothing is denied for what was not forwarded");
    assert_eq!(["/a"; 4].map(status), [200, 200, 200, 429], "a body that is too long takes nothing");
    let log = tollgate.directory().join("access.log");
    eventually("all is logged", || fs::read_to_string(&log).unwrap_or_default().lines().count() == 11);

    fs::write(tollgate.directory().join("replayed.yaml"), yaml).unwrap();
    let arguments = ["--config", "replayed.yaml", "--json", "access.log"];
    let report: Value = serde_json::from_str(&run(tollgate.directory(), &arguments).stdout).unwrap();
    assert_eq!(of_policy(&report, "failed"), [6, 0, 0], "{report:#}");
    assert_eq!(of_policy(&report, "per-ip"), [4, 1, 0], "{report:#}");
    assert_eq!((&report["requests"], &report["unchecked"]), (&json!(11), &json!(1)));
    let ended = run(tollgate.directory(), &["--config", "replayed.yaml", "access.log"]);
    let refused =
        "\nRefused before the policies (a ban, a missing credential, a body that is too long): 1 (9.09 %)\n";
    assert!(ended.stdout.contains(refused), "{}", ended.stdout);
}

#[test]
fn a_log_of_tollgate_tells_how_far_a_request_came() {
    let policies = "policies:
  failed: { algorithm: fixed_window, key: ip, limit: 1/1d, count: { statuses: [403, 413, 429, 502, 503, 504] } }
  per-ip: { algorithm: fixed_window, key: ip, limit: 2/1d }
";
    // What both policies have checked and denied of three requests.
    let (charged, free, unchecked) = ([[3, 2], [3, 0]], [[3, 0], [3, 1]], [[0, 0], [0, 0]]);
    let (endpoint, none) = (json!("10.0.0.5:3000"), Value::Null);
    for (verdict, upstream, status, expected) in [
        (Some("allowed"), &endpoint, 502, charged),
        (Some("shadow_denied"), &endpoint, 502, charged),
        (Some("allowed"), &none, 502, free),
        (Some("allowed"), &none, 503, free),
        // The service had the request, and may have done the work.
        (Some("allowed"), &none, 504, charged),
        (Some("allowed"), &none, 499, charged),
        // These are decided afresh. Nobody knows what the service would have answered.
        (Some("denied"), &none, 429, free),
        (Some("forbidden"), &none, 403, free),
        (Some("undecided"), &none, 503, free),
        (Some("banned"), &none, 429, unchecked),
        // The route had no policies.
        (None, &endpoint, 413, charged),
        (None, &none, 502, free),
        (None, &none, 413, unchecked),
        // There was no route, which may be new, and a listener that redirects.
        (None, &none, 404, free),
        (None, &none, 308, unchecked),
    ] {
        let route = if matches!(status, 404 | 308) { Value::Null } else { json!("/*") };
        let fields = json!({ "route": route, "upstream": upstream, "status": status, "verdict": verdict, "source": null });
        let report = replay_lines(policies, &lines_with(&[fields.clone(), fields.clone(), fields]));
        let found = ["failed", "per-ip"].map(|policy| {
            let [checked, denied, _] = of_policy(&report, policy);
            [checked, denied]
        });
        assert_eq!(found, expected, "{verdict:?}, {upstream}, {status}: {report:#}");
    }
}

#[test]
fn requests_that_reach_no_policy_are_counted_apart() {
    let policies = "deny: [198.51.100.0/24]
policies:
  per-ip: { algorithm: fixed_window, key: ip, limit: 1/1h, missing: deny }
  per-cookie: { algorithm: fixed_window, key: \"cookie:session\", limit: 1/1h, missing: deny }
";
    let mut lines = vec![
        line(0.0, "203.0.113.7", "/a", 200, 1),
        line(1.0, "198.51.100.1", "/a", 200, 1),
        line(2.0, "203.0.113.7", "/health", 200, 1),
        line(3.0, "203.0.113.7", "/a", 200, 1),
        line(4.0, "203.0.113.7", "/%", 400, 1),
    ];
    lines.push("{\"level\":\"info\",\"msg\":\"started\"}".to_owned());
    let report = replay_lines(policies, &lines);
    let numbers = ["requests", "denied", "forbidden", "refused"].map(|field| report[field].as_u64().unwrap());
    assert_eq!(numbers, [5, 1, 1, 1]);
    assert_eq!(of_policy(&report, "per-ip"), [2, 1, 0]);
    assert_eq!(of_policy(&report, "per-cookie"), [0, 0, 2], "nobody was denied for what no log has");
    let reason = "it has no time that Tollgate knows";
    let unreadable = json!({ "count": 1, "examples": ["access.log:6"], "reason": reason });
    assert_eq!(report["unreadable"], unreadable);
}

/// The lines of a log, each of which has these fields beside those of [`line`].
fn lines_with(fields: &[Value]) -> Vec<String> {
    let line = |(nth, fields): (usize, &Value)| {
        let mut line: Value = serde_json::from_str(&line(nth as f64, "203.0.113.7", "/a", 200, 1)).unwrap();
        line.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        line.to_string()
    };
    fields.iter().enumerate().map(line).collect()
}

#[test]
fn conditions_that_no_log_tells_are_named() {
    let policies = "user: [{ header: x-user-id, from: trusted_proxies }]
trusted_proxies: [10.0.0.1]
policies:
  plans: { algorithm: fixed_window, key: user, limit: 1/1h, exempt: [\"header:x-plan=internal\", \"user:mon\"], overrides: [{ user: acme, limit: 3/1h }] }
  plain: { algorithm: fixed_window, key: ip, limit: 100/1h, exempt: [10.0.0.0/8] }
";
    let users =
        ["ann", "ann", "mon", "mon", "acme", "acme", "acme", "acme"].map(|user| json!({ "user": user }));
    let report = replay_lines(policies, &lines_with(&users));
    let denials = [denied("user:acme", "plans", 4, 1), denied("user:ann", "plans", 2, 1)];
    assert_eq!(keys(&report), denials, "{report:#}");
    assert_eq!(report["policies"][0]["unknown_conditions"], json!(["header:x-plan=internal"]));
    assert_eq!(report["policies"][1]["unknown_conditions"], json!([]));
}

#[test]
fn a_request_without_a_user_is_limited_as_the_policy_says_where_the_log_tells() {
    let policies = |missing: &str| {
        format!(
            "user: [{{ header: x-user-id, from: anyone }}]
policies:
  per-user: {{ algorithm: fixed_window, key: user, limit: 2/1h, missing: {missing} }}
"
        )
    };
    let known = lines_with(&[const { Value::Null }; 3].map(|user| json!({ "user": user })));
    let unknown = lines_with(&[json!({}), json!({}), json!({})]);
    let by_address = [denied("ip:203.0.113.7", "per-user", 3, 1)];
    assert_eq!(keys(&replay_lines(&policies("ip"), &known)), by_address);
    assert_eq!(of_policy(&replay_lines(&policies("deny"), &known), "per-user"), [3, 3, 0]);
    assert_eq!(of_policy(&replay_lines(&policies("ip"), &unknown), "per-user"), [0, 0, 3]);
    let off = policies("ip") + "abuse: { users: \"off\" }\n";
    assert_eq!(of_policy(&replay_lines(&off, &known), "per-user"), [0, 0, 3], "it writes down no user");
}

#[test]
fn each_of_several_keys_goes_by_missing_where_the_log_tells_that_it_is_missing() {
    let policies = |keys: &str, missing: &str| {
        format!(
            "user: [{{ header: x-user-id, from: anyone }}]
policies:
  several: {{ algorithm: fixed_window, key: {keys}, limit: 2/1h, missing: {missing} }}
"
        )
    };
    let known = lines_with(&[const { Value::Null }; 3].map(|user| json!({ "user": user })));
    let unknown = lines_with(&[json!({}), json!({}), json!({})]);
    for (keys, missing, lines, expected) in [
        ("[ip, user]", "deny", &known, [3, 3, 0]),
        ("[user, ip]", "deny", &known, [3, 3, 0]),
        ("[path+user, \"cookie:session\"]", "deny", &known, [3, 3, 0]),
        // By the address, and by the path.
        ("[user, path]", "ip", &known, [6, 2, 0]),
        ("[user, path]", "skip", &known, [3, 1, 0]),
        ("[ip, user]", "ip", &known, [3, 1, 0]),
        // What the log cannot tell is told apart, and nobody is denied for it.
        ("[ip, user]", "deny", &unknown, [3, 1, 3]),
        ("[user, \"cookie:session\"]", "ip", &known, [3, 1, 3]),
        ("[user, \"cookie:session\"]", "skip", &known, [0, 0, 3]),
    ] {
        let report = replay_lines(&policies(keys, missing), lines);
        assert_eq!(of_policy(&report, "several"), expected, "{keys}, missing: {missing}: {report:#}");
    }
}

#[test]
fn the_value_that_distinct_counts_goes_by_missing_and_the_first_policy_of_the_route_denies() {
    let policies = |missing: &str| {
        format!(
            "user: [{{ header: x-user-id, from: anyone }}]
policies:
  values: {{ algorithm: distinct, key: ip, value: user, limit: 2/1h, missing: {missing} }}
  per-user: {{ algorithm: fixed_window, key: user, limit: 2/1h, missing: deny }}
"
        )
    };
    let known = lines_with(&[const { Value::Null }; 3].map(|user| json!({ "user": user })));
    let unknown = lines_with(&[json!({}), json!({}), json!({})]);
    for (missing, lines, values, per_user) in [
        ("deny", &known, [3, 3, 0], [0, 0, 0]),
        ("skip", &known, [0, 0, 0], [3, 3, 0]),
        ("ip", &known, [0, 0, 0], [3, 3, 0]),
        ("deny", &unknown, [0, 0, 3], [0, 0, 3]),
    ] {
        let report = replay_lines(&policies(missing), lines);
        let found = ["values", "per-user"].map(|name| of_policy(&report, name));
        assert_eq!(found, [values, per_user], "missing: {missing}: {report:#}");
    }
}

#[test]
fn a_condition_by_user_is_named_where_the_log_does_not_tell_who_vouches() {
    let replayed = |sources: &str| {
        let policies = format!(
            "user: [{sources}]
trusted_proxies: [10.0.0.1]
policies:
  plans: {{ algorithm: fixed_window, key: user, limit: 1/1h, overrides: [{{ user: acme, limit: 3/1h }}, {{ user: nobody, limit: 4/1h }}] }}
"
        );
        let users = ["acme", "acme", "ann"].map(|user| json!({ "user": user }));
        let report = replay_lines(&policies, &lines_with(&users));
        (of_policy(&report, "plans"), report["policies"][0]["unknown_conditions"].clone())
    };
    let verified = "{ header: x-user-id, from: trusted_proxies }";
    assert_eq!(replayed(verified), ([3, 0, 0], json!([])));
    let mixed = format!("{verified}, {{ cookie: session }}");
    assert_eq!(replayed(&mixed), ([3, 1, 0], json!(["user:acme"])));
}

#[test]
fn users_are_found_by_headers_and_by_hashes() {
    let policies = "user: [{ header: x-api-key, from: anyone }]
policies:
  per-user: { algorithm: fixed_window, key: user, limit: 2/1h }
";
    let by_header = lines_with(&["k1", "k2", "k1", "k1"].map(|key| json!({ "http_x_api_key": key })));
    assert_eq!(keys(&replay_lines(policies, &by_header)), [denied("user:k1", "per-user", 3, 1)]);
    let hash = "hmac:07db5b4b00000000";
    let hashed = lines_with(&[hash; 3].map(|user| json!({ "user": user })));
    let policies =
        policies.to_owned() + "abuse: { users: hashed, secret: 0123456789abcdef0123456789abcdef }\n";
    let key = format!("user:{hash}");
    assert_eq!(keys(&replay_lines(&policies, &hashed)), [denied(&key, "per-user", 3, 1)]);
}

#[test]
fn a_host_that_is_not_in_the_log_is_no_key() {
    let directory = TempDir::new().unwrap();
    let yaml = "upstreams: { api: { endpoints: [\"http://127.0.0.1:1\"] } }
policies:
  per-host: { algorithm: fixed_window, key: host, limit: 1/1h }
routes:
  - { hosts: [api.example.com], path: /*, upstream: api, policies: [per-host] }
";
    fs::write(directory.path().join("proxy.yaml"), yaml).unwrap();
    let with_host = [json!({ "host": "api.example.com" }), json!({ "host": "api.example.com" }), json!({})];
    fs::write(directory.path().join("access.log"), lines_with(&with_host).join("\n")).unwrap();
    let ended = run(directory.path(), &["--json", "access.log"]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((of_policy(&report, "per-host"), &report["without_host"]), ([2, 1, 1], &json!(1)));
    let ended = run(directory.path(), &["access.log"]);
    assert!(ended.stdout.contains("1 request without a host in the log."), "{}", ended.stdout);
}

#[test]
fn a_request_whose_route_depends_on_the_listener_is_not_decided() {
    let directory = TempDir::new().unwrap();
    let yaml = "listeners: [{ address: 0.0.0.0:80, name: public }, { address: 127.0.0.1:81, name: internal }]
upstreams: { api: { endpoints: [\"http://127.0.0.1:1\"] } }
policies:
  strict: { algorithm: fixed_window, key: ip, limit: 1/1h }
routes:
  - { path: /a, listeners: [internal], upstream: api }
  - { path: /b, listeners: [internal, public], upstream: api, policies: [strict] }
  - { path: /c, listeners: [public], upstream: api, policies: [strict] }
  - { path: /*, methods: [GET], upstream: api, policies: [strict] }
";
    fs::write(directory.path().join("proxy.yaml"), yaml).unwrap();
    let line = |path: &str| json!({ "path": path });
    // Two are certain: the route is the same on both listeners.
    let lines = lines_with(&[line("/a"), line("/b"), line("/c"), line("/d")]);
    fs::write(directory.path().join("access.log"), lines.join("\n")).unwrap();
    let ended = run(directory.path(), &["--json", "access.log"]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&report["unknown"], &report["refused"]), (&json!(2), &json!(0)), "{report:#}");
    assert_eq!(of_policy(&report, "strict"), [2, 1, 0]);
    let ended = run(directory.path(), &["access.log"]);
    let counted = "Not decided, since the log lacks the listener: 2 (50.00 %)";
    assert!(ended.stdout.contains(counted), "{}", ended.stdout);
    assert!(
        ended.stdout.contains("2 requests not decided: the route depends on the listener"),
        "{}",
        ended.stdout
    );
}

fn run(directory: &Path, arguments: &[&str]) -> Ended {
    tollgate_in(directory, &[], &[&["replay"], arguments].concat())
}

#[test]
fn the_report_is_read_at_a_glance() {
    let directory = TempDir::new().unwrap();
    let lines: Vec<_> = (0..40)
        .map(|nth| {
            format!("203.0.113.{} - - [03/Jul/2026:12:00:01 +0000] \"GET /a HTTP/1.1\" 200 1", nth % 4)
        })
        .collect();
    fs::write(directory.path().join("access.log"), lines.join("\n") + "\nnonsense\n").unwrap();
    let policies = "policies:
  per-ip: { algorithm: fixed_window, key: ip, limit: 8/1h }
  per-user: { algorithm: fixed_window, key: user, limit: 1/1h }
  tried: { algorithm: fixed_window, key: ip, limit: 7/1h, mode: shadow }
user: [{ header: x-user-id, from: anyone }]
";
    fs::write(directory.path().join("a.yaml"), configuration(policies)).unwrap();
    let ended = run(directory.path(), &["--config", "a.yaml", "--limit", "2", "access.log"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        ended.stdout,
        "\
40 requests from 2026-07-03 12:00:01 to 2026-07-03 12:00:01 UTC
Denied: 8 (20.00 %), and 4 (10.00 %) more without mode: shadow

POLICY    MODE     CHECKED  DENIED  DELAYED  KEYS DENIED  NOT IN LOG
per-ip    enforce  40       8       0        4            0
per-user  enforce  0        0       0        0            40
tried     shadow   40       12      0        4            0

How much of its limit each key used at most, and the worst minute:
POLICY    KEYS  ≤ 25 %  ≤ 50 %  ≤ 75 %  ≤ 90 %  ≤ 100 %  DENIED  WORST MINUTE (UTC)
per-ip    4     0       0       0       0       0        4       2026-07-03 12:00:00, 8 of 40 denied
per-user  0     0       0       0       0       0        0       -
tried     4     0       0       0       0       0        4       2026-07-03 12:00:00, 12 of 40 denied

KEY             POLICY  REQUESTS  DENIED  FIRST DENIED (UTC)   LAST DENIED (UTC)    HINT
ip:203.0.113.0  tried   10        3       2026-07-03 12:00:01  2026-07-03 12:00:01  unknown: no User-Agent known, 3 requests, to one URL
ip:203.0.113.1  tried   10        3       2026-07-03 12:00:01  2026-07-03 12:00:01  unknown: no User-Agent known, 3 requests, to one URL
and 6 more keys; --limit lists more

NOT IN LOG: requests that were not checked, since the log does not have what the policy's keys are made of.
The log has whole seconds. The requests of a second were spread evenly over it.
1 line could not be read, such as access.log:41: it differs from combined at column 1: expected ` ` after $remote_addr, \
         found `nonsense`.
"
    );
}

#[test]
fn customers_and_plans_of_the_log_have_their_limits() {
    let directory = TempDir::new().unwrap();
    let hex = "0".repeat(64);
    let unused = format!("keys: [{{ id: unused, hash: \"sha256:{hex}\", customer: nobody }}]\n");
    fs::write(directory.path().join("keys.yaml"), unused).unwrap();
    let policies = "api_keys: { file: keys.yaml }
plans: { pro: { per-customer: 3/1h, by-plan: unlimited } }
policies:
  per-customer: { algorithm: fixed_window, key: customer, limit: 1/1h, exempt: [\"customer:mon\"], overrides: [{ customer: globex, limit: 2/1h }] }
  by-key: { algorithm: fixed_window, key: api_key, limit: 3/1h }
  by-plan: { algorithm: fixed_window, key: [customer, plan], limit: 100/1h }
";
    let of = |customer: &str, plan: Option<&str>, id: &str| json!({ "user": customer, "customer": customer, "plan": plan, "api_key": id });
    let requests = [
        of("acme", Some("pro"), "a1"),
        of("acme", Some("pro"), "a2"),
        of("acme", Some("pro"), "a1"),
        of("acme", Some("pro"), "a2"),
        of("globex", None, "g1"),
        of("globex", None, "g1"),
        of("globex", None, "g1"),
        of("small", None, "s1"),
        of("small", None, "s1"),
        of("mon", None, "m1"),
        of("mon", None, "m1"),
        of("mon", None, "m1"),
        of("mon", None, "m1"),
        json!({ "verdict": "unauthorized", "route": "/*", "upstream": null, "status": 401 }),
    ];
    fs::write(directory.path().join("access.log"), lines_with(&requests).join("\n")).unwrap();
    let report = replay(directory.path(), policies, &["access.log"]);
    let mut found = keys(&report);
    found.sort();
    let expected = [
        denied("api_key:m1", "by-key", 4, 1),
        denied("customer:acme", "per-customer", 4, 1),
        denied("customer:globex", "per-customer", 3, 1),
        denied("customer:small", "per-customer", 2, 1),
    ];
    assert_eq!(found, expected, "{report:#}");
    assert_eq!(of_policy(&report, "per-customer"), [9, 3, 0], "{report:#}");
    assert_eq!(of_policy(&report, "by-plan"), [9, 0, 0], "without a plan, it counts by address: {report:#}");
    assert_eq!(report["unchecked"], json!(1));
    for policy in report["policies"].as_array().unwrap() {
        assert_eq!(policy["unknown_conditions"], json!([]), "{policy:#}");
    }
}

#[test]
fn a_log_with_keys_is_decided_as_tollgate_decided() {
    let (origin, directory) = (Origin::ok(), TempDir::new().unwrap());
    let secrets = ["acme-key-00000000001", "acme-key-00000000002", "globex-key-000000001"];
    let entry = |(key, id, of): (&str, &str, &str)| {
        let hex: String = Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("- {{ id: {id}, hash: \"sha256:{hex}\", {of} }}\n")
    };
    let entries = [
        (secrets[0], "acme1", "customer: acme, plan: pro"),
        (secrets[1], "acme2", "customer: acme, plan: pro"),
        (secrets[2], "globex1", "customer: globex"),
    ];
    let file = directory.path().join("keys.yaml");
    fs::write(&file, format!("keys:\n{}", entries.map(entry).concat())).unwrap();
    let policies = format!(
        "api_keys: {{ file: \"{}\" }}
plans: {{ pro: {{ per-customer: 4/1d }} }}
policies:
  per-customer: {{ algorithm: fixed_window, key: customer, limit: 2/1d }}
  by-key: {{ algorithm: sliding_log, key: [plan, api_key], limit: 3/1d, mode: shadow, missing: skip }}
",
        file.display()
    );
    let log = format!("workers: 1\naccess_log: {{ format: json, to: access.log }}\n{policies}");
    let yaml = configuration(&log).replace("http://127.0.0.1:1", &format!("http://{}", origin.address));
    let tollgate = Tollgate::start(Config::yaml(yaml));
    let order = [0, 0, 1, 2, 0, 2, 0, 1, 2];
    let statuses = order.map(|nth| get(tollgate.address, "/a", &[("x-api-key", secrets[nth])]).status);
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 429, 429, 429]);
    let log = tollgate.directory().join("access.log");
    eventually("all is logged", || fs::read_to_string(&log).unwrap_or_default().lines().count() == 9);
    let report = replay(tollgate.directory(), &policies, &["access.log"]);
    assert_eq!(report["denied"], 3, "{report:#}");
    let listed = tollgate.admin("GET", "/v1/policies").json();
    let listed = listed["policies"].as_array().unwrap().iter();
    for policy in listed.filter(|policy| policy["name"] != "api_keys") {
        let decided: u64 =
            ["denied", "shadow_denied"].map(|field| policy[field].as_u64().unwrap()).iter().sum();
        let [_, denied, not_in_log] = of_policy(&report, policy["name"].as_str().unwrap());
        assert_eq!((denied, not_in_log), (decided, 0), "{policy:#}, {report:#}");
    }
}

#[test]
fn errors_of_replay_have_words_and_an_exit_code() {
    let directory = TempDir::new().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    write(
        "proxy.yaml",
        configuration("policies:\n  p: { algorithm: gcra, key: ip, limit: 1/1s }\n").as_bytes(),
    );
    write("wrong.yaml", b"routes: 1\n");
    write("empty.log", b"");
    write("access.log.xz", b"\xfd7zXZ\0");
    for (arguments, code, words) in [
        ([].as_slice(), 2, "<LOG>"),
        (&["none.log"], 1, "tollgate: none.log cannot be read: No such file"),
        (&["."], 1, "tollgate: . cannot be read: Is a directory"),
        (&["empty.log"], 1, "tollgate: empty.log is empty"),
        (&["proxy.yaml"], 1, "tollgate: proxy.yaml is not an access log that Tollgate can read"),
        (&["access.log.xz"], 1, "access.log.xz is compressed: decompress it by xzcat, and give -"),
        (&["--config", "none.yaml", "empty.log"], 78, "none.yaml"),
        (&["--config", "wrong.yaml", "empty.log"], 78, "wrong.yaml:1:"),
    ] {
        let ended = run(directory.path(), arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(words), "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn a_month_ends_at_the_time_of_the_log() {
    let policies = "policies:
  berlin: { algorithm: fixed_window, key: ip, limit: 2/month, time_zone: Europe/Berlin }
  utc: { algorithm: fixed_window, key: ip, limit: 2/month }
";
    let times =
        ["2026-03-31T21:59:57Z", "2026-03-31T21:59:58Z", "2026-03-31T21:59:59Z", "2026-03-31T22:00:00Z"];
    let lines = times.map(|time| {
        json!({ "time": time, "client": "203.0.113.7", "method": "GET", "path": "/", "status": 200, "duration_ms": 1 })
            .to_string()
    });
    let berlin = policies.lines().take(2).fold(String::new(), |text, line| text + line + "\n");
    assert_eq!(of_policy(&replay_lines(&berlin, &lines), "berlin"), [4, 1, 0]);
    assert_eq!(of_policy(&replay_lines(policies, &lines), "utc"), [4, 2, 0]);
}

/// Lines of `client` with this path, status and User-Agent, one each `step` seconds after noon.
fn combined(
    client: &str,
    path: &str,
    status: u16,
    agent: &str,
    seconds: impl Iterator<Item = u32>,
) -> String {
    let line = |second: u32| {
        format!(
            "{client} - - [03/Jul/2026:12:{:02}:{:02} +0000] \"POST {path} HTTP/1.1\" {status} 1 \"-\" \"{agent}\"\n",
            second / 60,
            second % 60
        )
    };
    seconds.map(line).collect()
}

#[test]
fn the_report_says_how_close_clients_come_and_what_they_seem_to_be() {
    let directory = TempDir::new().unwrap();
    let mut log = combined("203.0.113.1", "/login", 401, "curl/8", 0..50);
    for (client, requests) in [(2, 2), (3, 5), (4, 7), (5, 9), (6, 10)] {
        log += &combined(&format!("203.0.113.{client}"), "/a", 200, "-", (0..requests).map(|nth| 100 + nth));
    }
    // An office: twelve browsers behind one address.
    for browser in 0..12 {
        log += &combined("203.0.113.7", "/b", 200, &format!("browser {browser}"), [200, 230].into_iter());
    }
    fs::write(directory.path().join("access.log"), log).unwrap();
    let policies = "policies:\n  per-ip: { algorithm: fixed_window, key: ip, limit: 10/1h }\n";
    let report = replay(directory.path(), policies, &["access.log"]);
    let policy = &report["policies"][0];
    let closeness =
        json!({ "keys": 7, "to_25": 1, "to_50": 1, "to_75": 1, "to_90": 1, "to_100": 1, "denied": 2 });
    assert_eq!(policy["closeness"], closeness);
    assert_eq!(
        policy["worst_minute"],
        json!({ "minute": "2026-07-03T12:00:00.000Z", "requests": 50, "denied": 40 })
    );
    let hints: Vec<_> =
        report["keys"].as_array().unwrap().iter().map(|key| [&key["key"], &key["hint"]]).collect();
    let expected = [
        [&json!("ip:203.0.113.1"), &json!("password guessing")],
        [&json!("ip:203.0.113.7"), &json!("shared address")],
    ];
    assert_eq!(hints, expected, "{report:#}");
    assert_eq!(report["keys"][1]["agents"], json!(12));
    let bars = report["timeline"]["bars"].as_array().unwrap();
    let of_bars = |field: &str| bars.iter().map(|bar| bar[field].as_u64().unwrap()).sum::<u64>();
    assert_eq!((of_bars("requests"), of_bars("denied")), (107, 54));
}

#[test]
fn two_configurations_are_compared_client_by_client() {
    let directory = TempDir::new().unwrap();
    let line = |client: u32, user: Option<&str>, second: u32| {
        json!({
            "time": format!("2026-07-03T12:00:{second:02}Z"), "client": format!("203.0.113.{client}"), "method": "GET",
            "path": "/", "status": 200, "bytes": 1, "duration_ms": 1, "user": user, "route": "/*",
            "upstream": "10.0.0.5:3000", "verdict": "allowed",
        })
        .to_string()
    };
    let mut lines: Vec<_> = (0..6).map(|second| line(1, None, second)).collect();
    lines.extend((10..13).map(|second| line(second, Some("acme"), second)));
    fs::write(directory.path().join("access.log"), lines.join("\n")).unwrap();
    let user = "user: [{ header: x-user-id, from: anyone }]\n";
    let by_address = "policies:\n  per-ip: { algorithm: fixed_window, key: ip, limit: 4/1h }\n";
    let by_user = "policies:\n  per-user: { algorithm: fixed_window, key: user, limit: 2/1h }\n";
    for (name, policies) in [("proxy.yaml", by_address), ("other.yaml", &format!("{user}{by_user}"))] {
        fs::write(directory.path().join(name), configuration(policies)).unwrap();
    }
    let ended = run(directory.path(), &["--json", "--compare", "other.yaml", "access.log"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let comparison = &report["comparison"];
    let counts = ["denied", "newly_denied", "freed"].map(|field| comparison[field].as_u64().unwrap());
    // Without a user, a request counts by its address, in both.
    assert_eq!((report["denied"].as_u64(), counts), (Some(2), [5, 3, 0]), "{report:#}");
    let clients: Vec<_> = comparison["clients"]
        .as_array()
        .unwrap()
        .iter()
        .map(|client| (client["client"].as_str().unwrap(), &client["newly_denied"], &client["denied_by"]))
        .collect();
    let by = json!(["per-user"]);
    assert_eq!(clients, [("ip:203.0.113.1", &json!(2), &by), ("user:acme", &json!(1), &by)]);
    let back = run(directory.path(), &["--config", "other.yaml", "--compare", "proxy.yaml", "access.log"]);
    let freed = "\nNewly denied: 0 requests of 0 clients. Freed: 3 requests of 2 clients.\n";
    assert!(back.stdout.contains(freed), "{}", back.stdout);
    let missing = run(directory.path(), &["--compare", "none.yaml", "access.log"]);
    assert_eq!(missing.code, Some(78), "{missing:?}");
    assert!(missing.stderr.contains("none.yaml"), "{}", missing.stderr);
}

#[test]
fn the_page_needs_nothing_else_and_shows_hostile_keys_as_text() {
    let directory = TempDir::new().unwrap();
    let log = combined("203.0.113.1", "/<script>alert(1)</script>", 200, "<b>", 0..5);
    fs::write(directory.path().join("access.log"), log).unwrap();
    let policies = "policies:\n  per-path: { algorithm: fixed_window, key: [ip, ip+path], limit: 2/1h }\n";
    fs::write(directory.path().join("proxy.yaml"), configuration(policies)).unwrap();
    let ended = run(directory.path(), &["--html", "report.html", "access.log"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let page = fs::read_to_string(directory.path().join("report.html")).unwrap();
    assert!(page.contains("+path:/&lt;script&gt;"), "{page}");
    for absent in ["<script", "http://", "https://", "src=", "url(", "@import"] {
        assert!(!page.contains(absent), "{absent}: {page}");
    }
    let unwritable = run(directory.path(), &["--html", "no/report.html", "access.log"]);
    assert_eq!(unwritable.code, Some(1));
    assert!(
        unwritable.stderr.starts_with("tollgate: no/report.html cannot be written: "),
        "{}",
        unwritable.stderr
    );
}

#[test]
fn costs_of_responses_are_those_of_the_log() {
    let line = |second: u32, fields: Value| {
        let mut line = json!({
            "time": format!("2026-07-03T12:00:{second:02}Z"), "client": "203.0.113.7", "method": "GET", "path": "/",
            "status": 200, "duration_ms": 1, "route": "/*", "upstream": "10.0.0.5:3000", "verdict": "allowed",
        });
        line.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        line.to_string()
    };
    let traffic = "policies:
  traffic: { algorithm: fixed_window, key: ip, limit: 10KiB/1h, cost: { response: bytes, reserve: 1KiB } }
";
    // Six responses take 9,000 bytes, and leave more than the reserved 1,024 of 10,240. The seventh is the last.
    let lines: Vec<_> = (0..9).map(|second| line(second, json!({ "bytes": 1_500 }))).collect();
    assert_eq!(of_policy(&replay_lines(traffic, &lines), "traffic"), [9, 2, 0]);
    // The responses end after all requests have come: only what they reserve counts.
    let slow: Vec<_> =
        (0..12).map(|second| line(second, json!({ "bytes": 1_500, "duration_ms": 30_000 }))).collect();
    assert_eq!(of_policy(&replay_lines(traffic, &slow), "traffic"), [12, 2, 0]);

    let tokens = "policies:
  tokens: { algorithm: fixed_window, key: ip, limit: 1000/1h, cost: { response: { json: a.b }, reserve: 100 } }
";
    let charged: Vec<_> =
        (0..9).map(|second| line(second, json!({ "reserved": 100, "charged": 250, "bytes": 9 }))).collect();
    let report = replay_lines(tokens, &charged);
    assert_eq!(of_policy(&report, "tokens"), [9, 5, 0], "{report:#}");
    assert_eq!(report["policies"][0]["unknown_costs"], json!(0));
    // What each has reserved counts until its response ends.
    let slow = json!({ "reserved": 300, "charged": 250, "duration_ms": 30_000 });
    let report = replay_lines(tokens, &(0..5).map(|second| line(second, slow.clone())).collect::<Vec<_>>());
    assert_eq!(of_policy(&report, "tokens"), [5, 2, 0], "{report:#}");
    // Another log does not have the cost: each response costs what it had reserved, and the report says so.
    let unknown: Vec<_> = (0..12).map(|second| line(second, json!({ "bytes": 9 }))).collect();
    let report = replay_lines(tokens, &unknown);
    assert_eq!(of_policy(&report, "tokens"), [12, 2, 0], "{report:#}");
    assert_eq!(report["policies"][0]["unknown_costs"], json!(10));
}
