//! The audit log that instances share.

use serde_json::json;

use crate::harness::{Config, Origin, Redis, Tollgate, eventually};

#[test]
fn entries_that_could_not_be_read_are_read_later() {
    let (origin, redis) = (Origin::ok(), Redis::start());
    let rest = format!("store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}\n", redis.url());
    let tollgate = Tollgate::start(Config::new(&[origin.address], &rest));
    eventually("it is in touch", || tollgate.admin("GET", "/v1/status").json()["store"]["instances"] == 1);
    // It sees that there is a new entry, and is refused the list.
    assert_eq!(redis.cli(&["acl", "setuser", "default", "-lrange"]), "OK");
    let entry = json!({
        "id": 7, "time": 1_783_080_001_000_000_i64, "by": "operator at 192.0.2.1", "action": "ban", "target": "user:eve",
        "detail": "for 1h", "instance": "another"
    });
    assert_eq!(redis.cli(&["rpush", "ratelimit:{audit}", &entry.to_string()]), "1");
    eventually("the list is refused", || redis.cli(&["acl", "log"]).contains("lrange"));
    assert_eq!(redis.cli(&["acl", "setuser", "default", "+lrange"]), "OK");
    eventually("the entry is listed", || {
        tollgate.admin("GET", "/v1/audit").json()["entries"][0]["target"] == "user:eve"
    });
}
