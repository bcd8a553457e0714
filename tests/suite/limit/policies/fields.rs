//! `reply_headers.ratelimit`: which fields tell how limits stand, and what each algorithm says in them.

use super::{start, start_at};
use crate::harness::{Client, Origin, Reply, get, nobody};

const DRAFT: [&str; 2] = ["ratelimit", "ratelimit-policy"];
const LEGACY: [&str; 3] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];

fn has(reply: &Reply, names: &[&str]) -> bool {
    let found: Vec<bool> = names.iter().map(|name| reply.header(name).is_some()).collect();
    assert!(found.iter().all(|each| *each == found[0]), "{reply:?}");
    found[0]
}

#[test]
fn fields_come_in_either_form_both_or_none() {
    let page = [("origin", "https://app.example")];
    for (form, draft, legacy, exposed) in [
        ("draft", true, false, "RateLimit, RateLimit-Policy, Retry-After"),
        ("legacy", false, true, "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After"),
        (
            "both",
            true,
            true,
            "RateLimit, RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After",
        ),
        ("\"off\"", false, false, "Retry-After"),
    ] {
        let origin = Origin::ok();
        let policies = [
            "wide: { algorithm: single_counter, key: ip, limit: 100/1m }",
            "narrow: { algorithm: single_counter, key: ip, limit: 1/1h }",
        ];
        let tollgate = start(&origin, None, &policies, &format!("reply_headers: {{ ratelimit: {form} }}\n"));
        let admitted = get(tollgate.address, "/", &page);
        assert_eq!((admitted.status, has(&admitted, &DRAFT), has(&admitted, &LEGACY)), (200, draft, legacy));
        let denied = get(tollgate.address, "/", &page);
        assert_eq!((denied.status, has(&denied, &DRAFT), has(&denied, &LEGACY)), (429, draft, legacy));
        assert_eq!(denied.header("access-control-expose-headers"), Some(exposed));
        let retry_after: u64 = denied.header("retry-after").unwrap().parse().unwrap();
        if legacy {
            let number = |reply: &Reply, name| reply.header(name).unwrap().parse::<u64>().unwrap();
            assert_eq!([&admitted, &denied].map(|reply| number(reply, LEGACY[0])), [1, 1], "the tightest");
            assert_eq!([&admitted, &denied].map(|reply| number(reply, LEGACY[1])), [0, 0]);
            assert_eq!(number(&denied, LEGACY[2]), retry_after);
        }
    }
}

#[test]
fn admitted_requests_have_them_where_the_upstream_fails() {
    let silent = Origin::sink();
    let policy = "p: { algorithm: sliding_log, key: ip, limit: 3/1h }";
    for (endpoint, status) in [(silent.address, 504), (nobody(), 502)] {
        let tollgate = start_at(endpoint, "response: 300ms", None, &[policy], "");
        for left in (0..3).rev() {
            let reply = get(tollgate.address, "/", &[]);
            assert_eq!((reply.status, reply.all("ratelimit-policy")), (status, vec!["\"p\";q=3;w=3600"]));
            let expected = format!("\"p\";r={left};t=");
            assert!(reply.header("ratelimit").is_some_and(|field| field.starts_with(&expected)), "{reply:?}");
        }
        assert_eq!(get(tollgate.address, "/", &[]).status, 429);
    }
}

#[test]
fn upstreams_have_their_say_first() {
    let origin = Origin::start(|conn| {
        while conn.head()?.is_some() {
            conn.answer("200 OK", &[("x-ratelimit-limit", "7"), ("x-ratelimit-remaining", "6")], b"ok")?;
        }
        Ok(())
    });
    let policy = "p: { algorithm: single_counter, key: ip, limit: 5/1h }";
    let tollgate = start(&origin, None, &[policy], "reply_headers: { ratelimit: legacy }\n");
    let reply = get(tollgate.address, "/", &[]);
    assert_eq!(reply.all("x-ratelimit-limit"), ["7", "5"]);
    assert_eq!(reply.all("x-ratelimit-remaining"), ["6", "4"]);
}

#[test]
fn a_bucket_is_announced_with_the_time_in_which_it_fills() {
    let origin = Origin::ok();
    let policy = "steady: { algorithm: gcra, key: ip, limit: 10/1h, burst: 3 }";
    let tollgate = start(&origin, None, &[policy], "reply_headers: { ratelimit: both }\n");
    let mut client = Client::connect(tollgate.address);
    for left in (0..3).rev() {
        let reply = client.request("GET", "/", &[], b"");
        assert_eq!(reply.status, 200);
        assert_eq!(reply.all("ratelimit-policy"), ["\"steady\";q=3;w=1080"]);
        assert!(reply.header("ratelimit").unwrap().starts_with(&format!("\"steady\";r={left};t=")));
        assert_eq!(reply.header("x-ratelimit-limit"), Some("3"));
    }
    assert_eq!(client.request("GET", "/", &[], b"").status, 429);
}

#[test]
fn a_limit_that_memory_lowers_is_announced_as_it_is() {
    let origin = Origin::ok();
    let policy = "many: { algorithm: sliding_log, key: ip, limit: 50000/1h }";
    let memory = "store: { memory: { max_bytes: 1MiB } }\n";
    let tollgate =
        start(&origin, None, &[policy], &format!("reply_headers: {{ ratelimit: both }}\n{memory}"));
    let reply = get(tollgate.address, "/", &[]);
    assert_eq!(reply.header("x-ratelimit-limit"), Some("16384"), "{reply:?}");
    assert_eq!(reply.all("ratelimit-policy"), ["\"many\";q=16384;w=3600"]);
}

#[test]
fn places_have_no_time() {
    let origin = Origin::ok();
    let policy = "parallel: { algorithm: concurrency, key: ip, limit: 8 }";
    let tollgate = start(&origin, None, &[policy], "reply_headers: { ratelimit: both }\n");
    let reply = get(tollgate.address, "/", &[]);
    assert_eq!(reply.all("ratelimit-policy"), ["\"parallel\";q=8;qu=\"concurrent-requests\""]);
    assert_eq!(reply.all("ratelimit"), ["\"parallel\";r=7"]);
    assert_eq!(LEGACY.map(|name| reply.header(name)), [Some("8"), Some("7"), None]);
}
