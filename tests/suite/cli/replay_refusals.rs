//! `tollgate replay`: requests that are denied for what they lack.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::tollgate_in;

/// The denials of each policy, by `policies`, of one request without a user.
fn denials(directory: &Path, policies: &str) -> Vec<(String, u64)> {
    let yaml = format!(
        "listeners: [{{ address: \"127.0.0.1:0\" }}]
upstreams: {{ a: {{ endpoints: [\"http://127.0.0.1:1\"] }} }}
trusted_proxies: [127.0.0.1]
user: [{{ header: x-user-id }}]
policies:
  watched: {{ algorithm: fixed_window, key: user, limit: 5/1h, missing: deny, mode: shadow }}
  enforced: {{ algorithm: fixed_window, key: user, limit: 5/1h, missing: deny }}
routes: [{{ name: all, path: /*, upstream: a, policies: [{policies}] }}]
"
    );
    fs::write(directory.join("proxy.yaml"), yaml).unwrap();
    let ended = tollgate_in(directory, &[], &["replay", "--json", "access.log"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let denied =
        |policy: &Value| (policy["policy"].as_str().unwrap().to_owned(), policy["denied"].as_u64().unwrap());
    report["policies"].as_array().unwrap().iter().map(denied).collect()
}

#[test]
fn a_shadow_policy_counts_no_request_that_a_later_one_denies_for_what_it_lacks() {
    let directory = TempDir::new().unwrap();
    let line = json!({
        "time": "2026-11-27T09:51:55.248Z", "client": "203.0.113.7", "method": "GET", "path": "/", "protocol": "HTTP/1.1",
        "status": 429, "bytes": 0, "duration_ms": 1.0, "route": "all", "upstream": null, "user": null, "host": "a",
        "verdict": "denied", "policy": "enforced", "shadow_policy": null, "source": null,
    });
    fs::write(directory.path().join("access.log"), format!("{line}\n")).unwrap();
    let of = |watched, enforced| vec![("watched".to_owned(), watched), ("enforced".to_owned(), enforced)];
    assert_eq!(denials(directory.path(), "watched, enforced"), of(0, 1));
    assert_eq!(denials(directory.path(), "enforced, watched"), of(0, 1));
    assert_eq!(denials(directory.path(), "watched"), of(1, 0));
}
