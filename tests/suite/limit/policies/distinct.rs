//! `distinct`: how many different users stand behind an address.

use super::{ANYONE, on_each_store, start};
use crate::harness::{Client, Deployment, Origin, get};

on_each_store!(
    one_user_too_many_is_denied_and_known_users_pass,
    a_request_without_a_user_is_skipped_counted_by_address_or_denied,
);

fn policy(rest: &str) -> String {
    format!("users: {{ algorithm: distinct, key: ip, value: user, limit: 20/10m{rest} }}")
}

fn one_user_too_many_is_denied_and_known_users_pass(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let rest = format!("workers: 1\n{ANYONE}");
    let tollgate = start(&origin, redis, &[&policy("")], &rest);
    let mut client = Client::connect(tollgate.address);
    let mut ask = |user: &str| client.request("GET", "/", &[("x-user-id", user)], b"");
    for user in 0..20 {
        for _ in 0..2 {
            let reply = ask(&format!("user-{user}"));
            assert_eq!(reply.status, 200, "{user}");
            assert_eq!(reply.all("ratelimit-policy"), ["\"users\";q=20;w=600"]);
            let left = format!("\"users\";r={};t=", 19 - user);
            assert!(reply.header("ratelimit").unwrap().starts_with(&left), "{reply:?}");
        }
    }
    for _ in 0..3 {
        // What is remembered of one says nothing of others.
        assert_eq!(ask("user-20").status, 429);
        assert_eq!(ask("user-0").status, 200);
        assert_eq!(ask("user-21").status, 429);
        assert_eq!(ask("user-19").status, 200);
    }
    if let Some(redis) = redis {
        let keys = redis.keys().join(" ");
        let values = redis.cli(&["zrange", "ratelimit:{ip:127.0.0.1}:users:di.10m.user", "0", "-1"]);
        assert!(!values.is_empty() && !values.contains("user-"), "{keys}: {values}");
    }
}

fn a_request_without_a_user_is_skipped_counted_by_address_or_denied(redis: Option<&Deployment>) {
    for (missing, status, told) in [("skip", 200, false), ("ip", 200, true), ("deny", 429, false)] {
        let origin = Origin::ok();
        let policy = policy(&format!(", missing: {missing}"));
        let tollgate = start(&origin, redis, &[&policy], ANYONE);
        let reply = get(tollgate.address, "/", &[]);
        assert_eq!((reply.status, reply.header("ratelimit").is_some()), (status, told), "{missing}");
    }
}
