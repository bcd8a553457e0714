//! What an instance tells the others when it ends.

use serde_json::{Value, json};

use crate::harness::{Client, Config, Deployment, Origin, Tollgate, eventually, on_each_topology, request};

on_each_topology!(denials_and_bans_just_before_the_end_are_known_afterwards);

/// One request of an address passes, and five that are denied ban it.
const SETTINGS: &str = "
user: [{ header: x-user-id, from: anyone }]
trusted_proxies: [127.0.0.1]
policies:
  strict: { algorithm: metadata_list, key: ip, limit: 1/1h, record: { for: 1h } }
bans:
  hammering: { key: ip, after: 5/1h, for: 1h }
";

fn start(origin: &Origin, redis: &Deployment) -> Tollgate {
    let rest = format!("{SETTINGS}store: {{ redis: {{ {}, timeout: 5s }} }}\n", redis.settings());
    let tollgate = Tollgate::start(Config::new(&[origin.address], &rest).with_policy("strict"));
    eventually("it is in touch", || tollgate.admin("GET", "/v1/status").json()["store"]["instances"] == 1);
    tollgate
}

fn names(list: &Value, name: &str) -> Vec<String> {
    let mut names: Vec<_> =
        list.as_array().unwrap().iter().map(|item| item[name].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

fn denials_and_bans_just_before_the_end_are_known_afterwards(redis: &Deployment) {
    let origin = Origin::ok();
    let mut ending = start(&origin, redis);
    let mut client = Client::connect(ending.address);
    let fields = [("x-forwarded-for", "203.0.113.7"), ("x-user-id", "ann")];
    let mut ask = |()| client.request("GET", "/", &fields, b"").status;
    let before = [(); 2].map(&mut ask);
    // The rest is denied before its next turn to be told has come.
    eventually("others are told of the first denial", || {
        redis.keys().iter().any(|key| key.contains(":client:"))
    });
    let statuses = [(); 4].map(ask);
    let ban = json!({"key": "user:eve", "for": "1h", "reason": "abuse"}).to_string();
    let is_json = [("content-type", "application/json")];
    let banned = request(ending.admin, "POST", "/v1/bans", &is_json, ban.as_bytes()).status;
    ending.signal("TERM");
    assert_eq!((before, statuses, banned), ([200, 429], [429; 4], 201));
    assert!(ending.wait().success());

    let next = start(&origin, redis);
    let bans = next.admin("GET", "/v1/bans").json();
    assert_eq!(names(&bans["bans"], "key"), ["ip:203.0.113.7", "user:eve"], "{bans:#}");
    let audit = || next.admin("GET", "/v1/audit").json()["entries"].clone();
    eventually("it has the audit log", || names(&audit(), "target") == ["ip:203.0.113.7", "user:eve"]);
    let client = next.admin("GET", "/v1/blocked/203.0.113.7").json();
    assert_eq!((&client["denied"], &client["records"][0]["user"]), (&json!(5), &json!("ann")), "{client:#}");
}
