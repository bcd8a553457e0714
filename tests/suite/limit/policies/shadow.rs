//! `mode: shadow`: counted and reported, never denies.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{ANYONE, on_each_store, start};
use crate::harness::{Client, Deployment, Origin, Tollgate, eventually, get};

on_each_store!(
    clients_notice_nothing_and_operators_see_it,
    beside_a_denying_policy_a_shadow_policy_stays_hidden,
    a_delay_in_shadow_holds_nobody_and_says_for_how_long_it_would,
);

const LOG: &str = "access_log: { format: json, to: access.log }\nworkers: 1\n";

fn count(tollgate: &Tollgate, policy: &str, verdict: &str) -> f64 {
    let source = "source=\"store\"";
    tollgate
        .metric(&format!("tollgate_decisions_total{{policy=\"{policy}\",verdict=\"{verdict}\",{source}}}"))
}

fn lines(tollgate: &Tollgate, count: usize) -> Vec<Value> {
    let file = tollgate.directory().join("access.log");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    eventually("all lines are written", || read().lines().count() >= count);
    read().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn logged(tollgate: &Tollgate, count: usize) -> Vec<(Value, Value)> {
    let told = |line: Value| (line["verdict"].clone(), line["shadow_policy"].clone());
    lines(tollgate, count).into_iter().map(told).collect()
}

fn clients_notice_nothing_and_operators_see_it(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let policy = "p: { algorithm: sliding_log, key: ip, limit: 2/1h, mode: shadow, reply: { status: 503 } }";
    let tollgate = start(&origin, redis, &[policy], LOG);
    let mut client = Client::connect(tollgate.address);
    for _ in 0..5 {
        let reply = client.request("GET", "/", &[], b"");
        assert_eq!(reply.status, 200);
        for field in ["ratelimit", "ratelimit-policy", "retry-after"] {
            assert_eq!(reply.header(field), None);
        }
    }
    assert_eq!(["allowed", "shadow_denied", "denied"].map(|v| count(&tollgate, "p", v)), [2.0, 3.0, 0.0]);
    let none = (Value::from("allowed"), Value::Null);
    let shadow = (Value::from("shadow_denied"), Value::from("p"));
    assert_eq!(logged(&tollgate, 5), [none.clone(), none, shadow.clone(), shadow.clone(), shadow]);
    assert_eq!(tollgate.admin("GET", "/v1/blocked/127.0.0.1").status, 404);
}

fn beside_a_denying_policy_a_shadow_policy_stays_hidden(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let policies = [
        "trial: { algorithm: single_counter, key: ip, limit: 1/1d, mode: shadow }",
        "real: { algorithm: single_counter, key: ip, limit: 2/1h }",
    ];
    let tollgate = start(&origin, redis, &policies, LOG);
    let mut client = Client::connect(tollgate.address);
    let mut ask = || client.request("GET", "/", &[], b"");
    let first = ask();
    assert_eq!((first.status, first.all("ratelimit-policy")), (200, vec!["\"real\";q=2;w=3600"]));
    assert_eq!(ask().status, 200);
    let denied = ask();
    assert_eq!((denied.status, denied.all("ratelimit-policy")), (429, vec!["\"real\";q=2;w=3600"]));
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["real"]));
    let retry_after: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!(retry_after <= 3600);
    assert_eq!(count(&tollgate, "trial", "shadow_denied"), 2.0);
    assert_eq!(logged(&tollgate, 3)[2], (Value::from("denied"), Value::from("trial")));
    eventually("it is listed", || tollgate.admin("GET", "/v1/blocked/127.0.0.1").status == 200);
    let listed = tollgate.admin("GET", "/v1/blocked/127.0.0.1").json();
    assert_eq!((&listed["policies"], &listed["denied"]), (&serde_json::json!(["real"]), &1.into()));
}

fn a_delay_in_shadow_holds_nobody_and_says_for_how_long_it_would(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    // One in 20 s: the second would wait for one slot, the third for two, and the next are too late.
    let trial = "trial: { algorithm: gcra, key: ip, limit: 3/1m, burst: 1, delay: 45s, mode: shadow }";
    let tollgate = start(&origin, redis, &[trial], LOG);
    let mut client = Client::connect(tollgate.address);
    let begun = Instant::now();
    for _ in 0..5 {
        assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let lines = lines(&tollgate, 5);
    let verdicts: Vec<_> = lines.iter().map(|line| line["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["allowed", "allowed", "allowed", "shadow_denied", "shadow_denied"]);
    let delay = |nth: usize| lines[nth]["shadow_delay_ms"].as_u64();
    assert!((5_000..=20_000).contains(&delay(1).unwrap()), "{:?}", lines[1]);
    assert!((25_000..=40_000).contains(&delay(2).unwrap()), "{:?}", lines[2]);
    assert_eq!([delay(0), delay(3), delay(4)], [None; 3]);
    assert!(lines.iter().all(|line| line["delay_ms"].is_null()), "nobody was held");
    assert_eq!(["allowed", "shadow_denied"].map(|v| count(&tollgate, "trial", v)), [3.0, 2.0]);
}

#[test]
fn a_request_without_the_key_of_a_shadow_policy_passes() {
    let origin = Origin::ok();
    let policy = "p: { algorithm: single_counter, key: user, limit: 5/1h, missing: deny, mode: shadow }";
    let tollgate = start(&origin, None, &[policy], &format!("{ANYONE}{LOG}"));
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    assert_eq!(count(&tollgate, "p", "shadow_denied"), 1.0);
    assert_eq!(logged(&tollgate, 1), [(Value::from("shadow_denied"), Value::from("p"))]);
}
