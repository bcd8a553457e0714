//! `reply`: what a denied client is told.

use super::{on_each_store, start};
use crate::harness::{Client, Deployment, Origin, get, request};

on_each_store!(
    a_policy_has_its_own_status_fields_and_words,
    of_several_the_one_that_frees_last_has_the_word_and_is_logged,
);

fn a_policy_has_its_own_status_fields_and_words(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let policy = "slow: { algorithm: single_counter, key: ip, limit: 1/1h, reply: { status: 503, headers: { \
                      x-reason: slow-down }, content_type: application/json, body: \
                      '{\"policy\":\"{{policy}}\",\"after\":{{retry_after}},\"limit\":{{limit}}}' } }";
    let tollgate = start(&origin, redis, &[policy], "");
    let mut client = Client::connect(tollgate.address);
    assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    let denied = client.request("GET", "/", &[], b"");
    assert_eq!((denied.status, denied.header("x-reason")), (503, Some("slow-down")));
    assert_eq!(denied.all("content-type"), ["application/json"]);
    let retry_after: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((3590..=3600).contains(&retry_after));
    assert_eq!(denied.json(), serde_json::json!({ "policy": "slow", "after": retry_after, "limit": 1 }));
    assert!(denied.header("ratelimit").is_some());

    // Without the body, on the same connection.
    let head = client.request("HEAD", "/", &[], b"");
    assert_eq!((head.status, head.header("content-length").is_some()), (503, true));
    assert_eq!(client.request("GET", "/", &[], b"").status, 503, "no byte of a body was in between");
}

#[test]
fn a_status_alone_comes_with_problem_details_of_it() {
    let origin = Origin::ok();
    let policy = "p: { algorithm: single_counter, key: ip, limit: 1/1h, reply: { status: 403 } }";
    let tollgate = start(&origin, None, &[policy], "");
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let denied = get(tollgate.address, "/", &[]);
    assert_eq!((denied.status, denied.header("content-type")), (403, Some("application/problem+json")));
    assert_eq!((&denied.json()["status"], &denied.json()["title"]), (&403.into(), &"Forbidden".into()));
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["p"]));
}

#[test]
fn a_denied_cost_above_the_limit_has_no_retry_after() {
    let origin = Origin::ok();
    let policy = "p: { algorithm: single_counter, key: ip, limit: 5/1h, cost: { header: x-cost, max: 9 }, reply: { \
                  body: 'after {{retry_after}}' } }";
    let tollgate = start(&origin, None, &[policy], super::TRUSTED);
    let denied = get(tollgate.address, "/", &[("x-cost", "6"), ("origin", "https://app.example")]);
    assert_eq!((denied.status, denied.text().as_str()), (429, "after null"));
    assert_eq!(denied.header("retry-after"), None);
    assert_eq!(denied.header("access-control-expose-headers"), Some("RateLimit, RateLimit-Policy"));
}

#[test]
fn an_exhausted_quota_differs_from_a_request_that_never_fits() {
    let origin = Origin::ok();
    let policy = "p: { algorithm: single_counter, key: ip, limit: 1/1h, cost: { header: x-cost, max: 9 } }";
    let tollgate = start(&origin, None, &[policy], super::TRUSTED);
    let ask = |cost| get(tollgate.address, "/", &[("x-cost", cost)]);
    assert_eq!(ask("2").json()["detail"], "This policy never admits a request like this one.");
    assert_eq!(ask("1").status, 200, "the first took nothing");
    assert_eq!(ask("1").json()["detail"], "The rate limit of this policy is exceeded.");
}

fn of_several_the_one_that_frees_last_has_the_word_and_is_logged(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let policies = [
        "minute: { algorithm: single_counter, key: ip, limit: 1/1m, reply: { status: 403 } }",
        "hour: { algorithm: single_counter, key: ip, limit: 1/1h, reply: { body: 'limit of {{policy}}' } }",
        "day: { algorithm: single_counter, key: ip, limit: 9/1d, reply: { status: 503 } }",
    ];
    let log = "access_log: { format: json, to: access.log }\n";
    let tollgate = start(&origin, redis, &policies, log);
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let denied = request(tollgate.address, "POST", "/", &[], b"body");
    assert_eq!((denied.status, denied.text().as_str()), (429, "limit of hour"));
    let file = tollgate.directory().join("access.log");
    crate::harness::eventually("it is logged", || {
        std::fs::read_to_string(&file).is_ok_and(|text| text.contains("\"policy\":\"hour\""))
    });
}
