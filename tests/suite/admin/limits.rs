//! `/v1/limits`: shows the limits of a key, and clears them.

use serde_json::{Value, json};

use crate::harness::{Config, Origin, Redis, Reply, Tollgate, eventually, get, get_from};

fn config(origin: &Origin, store: &str) -> Config {
    Config::new(
        &[origin.address],
        &format!(
            "
{store}
user: [{{ header: x-user-id, from: anyone }}]
policies:
  one:
    algorithm: sliding_log
    key: [ip, ip+path]
    limit: 2/1h
  other: {{ algorithm: fixed_window, key: user, limit: 9/30d }}
"
        ),
    )
    .with_policy("one, other")
}

fn limits(tollgate: &Tollgate, query: &str) -> Value {
    let reply = tollgate.admin("GET", &format!("/v1/limits?{query}"));
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["limits"].clone()
}

fn clear(tollgate: &Tollgate, query: &str) -> Reply {
    tollgate.admin("DELETE", &format!("/v1/limits?{query}"))
}

fn status(tollgate: &Tollgate) -> u16 {
    get(tollgate.address, "/a", &[]).status
}

#[test]
fn a_limit_is_looked_at_and_cleared_by_its_key() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(config(&origin, ""));
    assert_eq!([(); 3].map(|()| status(&tollgate)), [200, 200, 429]);
    let usage = limits(&tollgate, "key=ip:127.0.0.1");
    let of =
        |usage: &Value| (usage[0]["policy"].clone(), usage[0]["used"].clone(), usage[0]["remaining"].clone());
    assert_eq!(of(&usage), (json!("one"), json!(2), json!(0)));
    // A request without a user is limited by address.
    assert_eq!((&usage[1]["policy"], &usage[1]["used"]), (&json!("other"), &json!(2)));
    assert_eq!(of(&limits(&tollgate, "policy=one&key=ip:127.0.0.1%2Bpath:/a")).1, json!(2));
    assert_eq!(
        of(&limits(&tollgate, "policy=one&key=ip:127.0.0.1+path:/a")).1,
        json!(2),
        "a plus is a space there"
    );
    assert_eq!(of(&limits(&tollgate, "policy=other&key=user:acme")).1, json!(0));

    let cleared = clear(&tollgate, "policy=one&key=ip:127.0.0.1").json();
    assert_eq!(cleared, json!({ "cleared": [{ "policy": "one", "key": "ip:127.0.0.1" }] }));
    let entry = tollgate.admin("GET", "/v1/audit").json()["entries"][0].clone();
    let written = [&entry["action"], &entry["target"], &entry["detail"]];
    assert_eq!(written, ["reset", "ip:127.0.0.1", "one"]);
    assert_eq!(status(&tollgate), 429, "the composite is another limit");
    let cleared = clear(&tollgate, "key=ip:127.0.0.1+path:/a").json();
    assert_eq!(cleared["cleared"].as_array().unwrap().len(), 1);
    assert_eq!(status(&tollgate), 200);
    assert_eq!(clear(&tollgate, "policy=other&key=user:nobody").json(), json!({ "cleared": [] }));
}

#[test]
fn a_malformed_or_unknown_key_is_reported_in_words() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(config(&origin, ""));
    for (query, status, words) in [
        ("", 400, "key"),
        ("key=", 400, "is not a valid part of a key"),
        ("key=acme", 400, "is not a valid part of a key"),
        ("key=ip:localhost", 400, "is not a client's address"),
        ("key=ip:127.0.0.1&policy=none", 404, "no policy is named none"),
        ("key=ip:127.0.0.1&x=1", 400, "x"),
        ("key=cookie:a=b", 404, "no policy has a key of the form cookie:a=b"),
        ("key=user:acme&policy=one", 404, "policy one has no key of the form user:acme"),
    ] {
        for method in ["GET", "DELETE"] {
            let reply = tollgate.admin(method, &format!("/v1/limits?{query}"));
            assert_eq!(reply.status, status, "{query}: {}", reply.text());
            assert!(reply.json()["detail"].as_str().unwrap().contains(words), "{}", reply.text());
        }
    }
}

#[test]
fn what_is_cleared_here_is_free_on_another_instance_at_once_and_stays_listed() {
    let (origin, redis) = (Origin::ok(), Redis::start());
    let store = format!("store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}", redis.url());
    let (here, there) = (Tollgate::start(config(&origin, &store)), Tollgate::start(config(&origin, &store)));
    let ask = || get_from("127.0.0.5", there.address, "/a", &[]).status;
    assert_eq!([(); 3].map(|()| ask()), [200, 200, 429]);
    let listed = || there.admin("GET", "/v1/blocked/127.0.0.5").status == 200;
    eventually("the address is listed", listed);
    for key in ["ip:127.0.0.5", "ip:127.0.0.5+path:/a"] {
        assert_eq!(clear(&here, &format!("policy=one&key={key}")).json()["cleared"][0]["key"], key);
    }
    eventually("its limits are free", || ask() == 200);
    assert!(listed(), "that its limits are cleared does not make it forgotten");
}
