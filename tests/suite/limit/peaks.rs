//! How close clients come to limits: exact numbers for clients whose peaks are known, in each store.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{
    Client, Config, Deployment, Origin, Tollgate, eventually, get, on_each_store, on_topologies,
};

on_each_store!(the_peak_of_each_client_is_known, all_tiers_and_overrides_have_peaks_of_their_own);
on_topologies!(shared [server cluster] two_instances_know_the_use_of_both);

fn config(redis: Option<&Deployment>, origin: &Origin, policies: &str, names: &str) -> Config {
    let store = redis.map(|redis| format!("store: {{ redis: {{ {}, timeout: 10s }} }}\n", redis.settings()));
    Config::yaml(format!(
        "
{}trusted_proxies: [127.0.0.1/32]
user: [{{ header: x-user-id }}]
policies:
{policies}
upstreams: {{ origin: {{ endpoints: [\"http://{}\"] }} }}
routes:
  - {{ name: api, path: /api/*, upstream: origin, policies: [{names}] }}
  - {{ name: rest, path: /*, upstream: origin, policies: [{names}] }}
",
        store.unwrap_or_default(),
        origin.address
    ))
}

/// Sends this many requests of a user.
fn ask(tollgate: &Tollgate, user: &str, requests: usize) {
    let mut client = Client::connect(tollgate.address);
    for _ in 0..requests {
        client.request("GET", "/api/a", &[("x-user-id", user)], b"");
    }
}

/// The limits of a policy, once all `keys` of the first are known with these peaks in sum.
#[track_caller]
fn peaks(tollgate: &Tollgate, policy: &str, query: &str, sum: u64) -> Vec<Value> {
    let mut limits = Vec::new();
    eventually("the peaks are known", || {
        let reply = tollgate.admin("GET", &format!("/v1/policies/{policy}/peaks{query}"));
        assert_eq!(reply.status, 200, "{}", reply.text());
        limits = reply.json()["limits"].as_array().unwrap().clone();
        let highest = limits.iter().flat_map(|limit| limit["highest"].as_array().unwrap());
        highest.map(|key| key["peak"].as_u64().unwrap()).sum::<u64>() == sum
    });
    limits
}

fn the_peak_of_each_client_is_known(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let policies = "  per-user: { algorithm: fixed_window, key: user, limit: 8/30d }
  quiet: { algorithm: sliding_log, key: user, limit: 6/30d, mode: shadow }";
    let tollgate = Tollgate::start(config(redis, &origin, policies, "per-user, quiet"));
    // A user N makes N requests, of which 8 are allowed: the peaks are 1 to 10.
    for requests in 1..=10 {
        ask(&tollgate, &format!("u{requests}"), requests);
    }
    let limits = peaks(&tollgate, "per-user", "?limit=5&spare=90", 55);
    let shown = &limits[0];
    assert_eq!(
        [&shown["route"], &shown["limit"], &shown["window"], &shown["units"], &shown["condition"]],
        [&json!("api"), &json!("8/30d"), &json!("30d"), &json!(8), &Value::Null]
    );
    assert_eq!([&shown["keys"], &shown["sampled"], &shown["exact"]], [&json!(10), &json!(10), &json!(true)]);
    assert_eq!(shown["quantiles"], json!({"p50": 5, "p90": 9, "p99": 10, "p99_9": 10, "max": 10}));
    let shares: Vec<_> =
        shown["shares"].as_array().unwrap().iter().map(|share| share["keys"].clone()).collect();
    // Up to 2, 4, 6, 7 and 8 of 8 units, and above.
    assert_eq!(shares, [2, 2, 2, 1, 1, 2]);
    assert_eq!(shown["highest"][0], json!({"key": "user:u10", "peak": 10}));
    assert_eq!(shown["suggested"], 9);
    let change = &shown["change"];
    assert_eq!(
        [&change["denied"], &change["denied_share"], &change["newly_denied"], &change["freed"]],
        [&json!(5), &json!(0.5), &json!(3), &json!(0)]
    );
    assert_eq!(change["examples"].as_array().unwrap().len(), 5);
    let raised = peaks(&tollgate, "per-user", "?limit=9", 55);
    assert_eq!([&raised[0]["change"]["denied"], &raised[0]["change"]["freed"]], [&json!(1), &json!(1)]);
    // On the other route, nobody was seen.
    assert_eq!(
        (&limits[1]["route"], &limits[1]["keys"], &limits[1]["quantiles"]),
        (&json!("rest"), &json!(0), &Value::Null)
    );
    // A shadow policy counts alike. What it would say of requests that the other denies is not always known.
    let quiet = tollgate.admin("GET", "/v1/policies/quiet/peaks").json()["limits"][0].clone();
    assert_eq!([&quiet["quantiles"]["p50"], &quiet["shares"][5]["keys"]], [&json!(5), &json!(4)], "{quiet}");
    assert_eq!(quiet["suggested"], Value::Null);
}

fn all_tiers_and_overrides_have_peaks_of_their_own(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let policies = "  both: { algorithm: fixed_window, key: user, limits: [100/1d, 500/30d], overrides: [{ user: big, limits: [1000/1d, 5000/30d] }] }";
    let tollgate = Tollgate::start(config(redis, &origin, policies, "both"));
    ask(&tollgate, "small", 7);
    ask(&tollgate, "big", 20);
    let limits = peaks(&tollgate, "both", "?limit=6&window=30d", 2 * (7 + 20));
    let shown: Vec<_> = limits
        .iter()
        .filter(|limit| limit["route"] == "api")
        .map(|limit| {
            (
                limit["limit"].clone(),
                limit["condition"].clone(),
                limit["quantiles"]["max"].clone(),
                limit["change"]["denied"].clone(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            (json!("100/1d"), Value::Null, json!(7), Value::Null),
            (json!("500/30d"), Value::Null, json!(7), json!(1)),
            (json!("1000/1d"), json!("user:big"), json!(20), Value::Null),
            (json!("5000/30d"), json!("user:big"), json!(20), json!(1)),
        ]
    );
    for (query, words) in [
        ("?limit=6", "say which one: 1d, 30d"),
        ("?limit=6&window=1m", "has no limit for 1m"),
        ("?limit=0", "from 1 to"),
        ("?spare=101", "from 0 to 100"),
    ] {
        let reply = tollgate.admin("GET", &format!("/v1/policies/both/peaks{query}"));
        assert_eq!(reply.status, 400);
        assert!(reply.text().contains(words), "{}", reply.text());
    }
    let unknown = tollgate.admin("GET", "/v1/policies/none/peaks");
    assert_eq!((unknown.status, unknown.json()["detail"].as_str()), (404, Some("no policy is named none")));
}

fn two_instances_know_the_use_of_both(redis: &mut Deployment) {
    let origin = Origin::ok();
    let policies = "  per-user: { algorithm: fixed_window, key: user, limit: 20/30d }";
    let [one, other] = [(); 2].map(|()| Tollgate::start(config(Some(redis), &origin, policies, "per-user")));
    ask(&one, "ann", 6);
    ask(&other, "ann", 5);
    ask(&one, "ann", 2);
    assert_eq!(peaks(&one, "per-user", "", 13)[0]["highest"], json!([{"key": "user:ann", "peak": 13}]));
    assert_eq!(peaks(&other, "per-user", "", 11)[0]["keys"], 1);
}

#[test]
fn secrets_in_keys_are_hidden_and_users_are_named_as_elsewhere() {
    let origin = Origin::ok();
    let policies = "  per-key: { algorithm: fixed_window, key: header:x-api-key, limit: 8/30d }
  per-user: { algorithm: fixed_window, key: user, limit: 8/30d }
abuse: { users: hashed, secret: a-secret-of-sixteen-bytes-or-more }";
    let tollgate = Tollgate::start(config(None, &origin, policies, "per-key, per-user"));
    get(tollgate.address, "/api/a", &[("x-api-key", "s3cret"), ("x-user-id", "ann")]);
    let key = peaks(&tollgate, "per-key", "", 1)[0]["highest"][0]["key"].clone();
    assert!(key.as_str().unwrap().starts_with("header:x-api-key=hash-"), "{key}");
    let user = peaks(&tollgate, "per-user", "", 1)[0]["highest"][0]["key"].clone();
    assert!(user.as_str().unwrap().starts_with("user:hmac:"), "{user}");
}

#[test]
fn a_reload_keeps_the_peaks_of_limits_that_stay() {
    let origin = Origin::ok();
    let policies = |other: u32| {
        format!(
            "  same: {{ algorithm: fixed_window, key: user, limit: 8/30d }}
  other: {{ algorithm: fixed_window, key: user, limit: {other}/30d }}"
        )
    };
    let start = config(None, &origin, &policies(20), "same, other");
    let tollgate = Tollgate::start(start);
    ask(&tollgate, "ann", 5);
    peaks(&tollgate, "same", "", 5);
    let file = tollgate.directory().join("proxy.yaml");
    let changed = fs::read_to_string(&file).unwrap().replace("limit: 20/30d", "limit: 30/30d");
    fs::write(&file, changed).unwrap();
    assert_eq!(tollgate.command(&["reload"]).code, Some(0));
    let keys = |policy: &str| {
        tollgate.admin("GET", &format!("/v1/policies/{policy}/peaks")).json()["limits"][0]["keys"].clone()
    };
    assert_eq!([keys("same"), keys("other")], [1, 0]);
    // The counts go on, and the samples of both.
    ask(&tollgate, "ann", 1);
    peaks(&tollgate, "same", "", 6);
    peaks(&tollgate, "other", "", 6);
}

#[test]
fn a_flood_of_random_keys_takes_bounded_memory_and_is_estimated() {
    let origin = Origin::ok();
    let policies = "  per-user: { algorithm: fixed_window, key: user, limit: 8/30d }";
    let tollgate = Tollgate::start(config(None, &origin, policies, "per-user"));
    let mut client = Client::connect(tollgate.address);
    for user in 0..6_000 {
        client.request("GET", "/api/a", &[("x-user-id", &format!("user-{user}"))], b"");
    }
    let mut limit = Value::Null;
    eventually("the sample is full", || {
        limit = tollgate.admin("GET", "/v1/policies/per-user/peaks").json()["limits"][0].clone();
        limit["keys"].as_f64().is_some_and(|keys| (keys / 6_000.0 - 1.0).abs() < 0.15)
    });
    let sampled = limit["sampled"].as_u64().unwrap();
    assert!(limit["exact"] == false && (1_500..=2_048).contains(&sampled), "{limit}");
    assert_eq!(limit["quantiles"]["max"], 1);
}

#[test]
fn a_limit_is_suggested_from_a_running_instance() {
    let origin = Origin::ok();
    let policies = "  per-user: { algorithm: fixed_window, key: user, limit: 8/30d }
  bucket: { algorithm: gcra, key: ip, limit: 100/1d, burst: 200, mode: shadow }
  both: { algorithm: sliding_window, key: [user, ip], limits: [100/1d, 500/30d] }";
    let tollgate = Tollgate::start(config(None, &origin, policies, "per-user, bucket, both"));
    for requests in 1..=10 {
        ask(&tollgate, &format!("u{requests}"), requests);
    }
    peaks(&tollgate, "per-user", "", 55);
    let ended = tollgate.command(&["suggest", "--live", "--spare", "80%"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    for line in [
        "  # 8/30d on api",
        "  #   10 clients; half stay within 5, 90% within 9, 99% within 10, 99.9% within 10; the highest is 10",
        "  #   2 of them came above the limit of 8",
        "  per-user: { algorithm: fixed_window, key: user, limit: 8/30d }",
        "  # 8/30d on rest",
        "  #   no client was seen",
    ] {
        assert!(ended.stdout.lines().any(|shown| shown == line), "{line}\n{}", ended.stdout);
    }
    // What is suggested is valid.
    let directory = tempfile::tempdir().unwrap();
    let rest = "upstreams: { a: { endpoints: [http://127.0.0.1:1], policies: [per-user, bucket, both] } }\nuser: [{ header: x-user-id, from: anyone }]\nroutes: [{ path: /*, upstream: a }]\n";
    fs::write(directory.path().join("proxy.yaml"), ended.stdout.clone() + rest).unwrap();
    let checked = crate::harness::tollgate_in(directory.path(), &[], &["check", "proxy.yaml"]);
    assert_eq!(checked.code, Some(0), "{}\n{}", checked.stderr, ended.stdout);

    let json: Value =
        serde_json::from_str(&tollgate.command(&["suggest", "--live", "--json"]).stdout).unwrap();
    assert_eq!(json[0]["policy"], "per-user");
    let wrong = tollgate.command(&["suggest", "--live", "--spare", "101"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("expected a percentage from 0% to 100%"), "{}", wrong.stderr);
}
