//! A snapshot with two routes and three addresses, and evidence that contains control sequences.

use serde_json::json;

use super::snapshot::Snapshot;
use crate::admin::dto::{Evidence, Status};

/// The time of the snapshot.
pub(super) const NOW: &str = "2026-07-03T12:00:01Z";

pub(super) fn snapshot() -> Snapshot {
    let status = json!({
        "version": "1.2.3", "started": "2026-07-03T09:00:00.000Z", "uptime": "10801s",
        "ready": true, "draining": false,
        "configuration": {"hash": "abc", "decides": "abc", "loaded": "2026-07-03T09:00:00.000Z", "last_reload": null},
        "store": {"topology": "redis", "keys": 3, "evicted": 0, "role": "master", "version": "7.0.15",
            "latency": "2ms", "breaker": "closed", "instances": 2},
        "workers": 2, "listeners": ["127.0.0.1:8080"],
        "warnings": ["Redis evicts keys", "clocks differ"],
    });
    let route = |name: &str| {
        json!({
            "name": name, "hosts": [], "path": name, "methods": [], "upstream": "api", "policies": ["per-ip"],
            "requests": 100, "denied": 10, "statuses": [0, 80, 0, 15, 5],
            "latency": {"p50": 0.0021, "p90": 0.02, "p99": 1.25},
        })
    };
    let upstreams = json!([{
        "name": "api", "policies": ["per-ip"], "attempts": {"ok": 80}, "connections": {"active": 1, "idle": 2},
        "endpoints": [
            {"url": "http://10.0.0.5:3000", "weight": 1, "state": "healthy", "healthy": true, "active": 1, "requests": 90, "errors": 2},
            {"url": "http://10.0.0.6:3000", "weight": 1, "state": "unhealthy", "healthy": false, "active": 0,
                "reason": "Connection refused"},
        ],
    }]);
    let policies = json!([{
        "name": "per-ip", "algorithm": "sliding_log", "keys": ["ip"], "limits": ["100/1s"], "mode": "enforce",
        "overrides": 0, "routes": ["/api/*", "/*"], "used": true, "allowed": 90, "denied": 10, "shadow_denied": 0, "errors": 0,
    }]);
    let mut blocked = json!([
        address("203.0.113.7", 60, 3, "credential stuffing"),
        address("198.51.100.9", 20, 1, "password guessing"),
        address("2001:db8::/64", 5, 0, "unknown"),
    ]);
    blocked[1]["state"] = json!("banned");
    for field in ["until", "banned_until"] {
        blocked[1][field] = json!("2026-07-03T12:12:01.000Z");
    }
    Snapshot {
        status: serde_json::from_value::<Status>(status).unwrap(),
        routes: serde_json::from_value(json!([route("/api/*"), route("/*")])).unwrap(),
        upstreams: serde_json::from_value(upstreams).unwrap(),
        policies: serde_json::from_value(policies).unwrap(),
        blocked: serde_json::from_value(blocked).unwrap(),
    }
}

/// The evidence of the first address.
pub(super) fn evidence() -> Evidence {
    let mut evidence = address("203.0.113.7", 60, 3, "credential stuffing");
    evidence["state"] = json!("banned");
    for field in ["until", "banned_until"] {
        evidence[field] = json!("2026-07-03T13:00:00.000Z");
    }
    let record = |user: &str, path: &str| json!({"time": "2026-07-03T12:00:00.000Z", "user": user, "method": "GET", "path": path, "policy": "per-ip"});
    let records = [record("ann", "/a"), record("\u{1b}]0;owned\u{7}", "/\u{202e}b"), record("ann", "/c")];
    evidence["records"] = json!(records);
    evidence["users"] = json!([
        {"user": "ann", "records": 2, "banned_until": "2026-07-03T12:00:42.000Z"},
        {"user": "\u{1b}]0;owned\u{7}", "records": 1, "banned_until": null},
    ]);
    evidence["limits"] = json!([{
        "policy": "per-ip", "key": "ip:203.0.113.7", "used": 100, "limit": 100, "remaining": 0, "reset": "41s",
    }]);
    evidence["bans"] = json!([{
        "key": "ip:203.0.113.0/24", "since": "2026-07-03T12:00:00.000Z", "until": "2026-07-03T13:00:00.000Z",
        "reason": "scraping", "by": "operator at 127.0.0.1", "level": 0, "mode": "enforce",
    }]);
    serde_json::from_value(evidence).unwrap()
}

fn address(address: &str, denied: u64, users: usize, hint: &str) -> serde_json::Value {
    json!({
        "address": address, "policies": ["per-ip"], "first": "2026-07-03T11:00:00.000Z",
        "last": "2026-07-03T12:00:00.000Z", "until": "2026-07-03T12:01:00.000Z", "denied": denied,
        "distinct_users": users, "hint": hint,
        "hint_reason": "3 users, 94 % of answers 401 or 403, all to /a", "state": "limited", "banned_until": null, "unblocked": null,
    })
}
