//! `/v1/limits`: shows the limits of a key, and clears them.

use serde_json::{Value, json};

use super::keys::send;
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
    assert_eq!(
        cleared,
        json!({ "cleared": [{ "policy": "one", "key": "ip:127.0.0.1" }], "redis_away": false })
    );
    let entry = tollgate.admin("GET", "/v1/audit").json()["entries"][0].clone();
    let written = [&entry["action"], &entry["target"], &entry["detail"]];
    assert_eq!(written, ["reset", "ip:127.0.0.1", "one"]);
    assert_eq!(status(&tollgate), 429, "the composite is another limit");
    let cleared = clear(&tollgate, "key=ip:127.0.0.1+path:/a").json();
    assert_eq!(cleared["cleared"].as_array().unwrap().len(), 1);
    assert_eq!(status(&tollgate), 200);
    assert_eq!(
        clear(&tollgate, "policy=other&key=user:nobody").json(),
        json!({ "cleared": [], "redis_away": false })
    );
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
fn a_limit_that_is_cleared_is_free_on_other_instances_at_once_and_its_client_stays_listed() {
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

/// What each place says of the limit that holds for a request now: `used` of `limit`, or that there is none.
#[test]
fn the_limits_of_a_customer_are_those_of_its_plan_wherever_they_are_shown() {
    let origin = Origin::ok();
    let upstream = format!("upstreams: {{ api: {{ endpoints: [\"http://{}\"] }} }}", origin.address);
    let tollgate = Tollgate::start(Config::yaml(
        upstream
            + "
api_keys: { store: true, data: keys.json }
user: [{ api_key: customer }]
policies:
  per-day:
    algorithm: fixed_window
    key: customer
    limit: 10/1d
    overrides: [{ customer: special, limit: 30/1d }]
    exempt: [customer:partner]
  per-key: { algorithm: fixed_window, key: api_key, limit: 50/1d }
  per-user: { algorithm: fixed_window, key: user, limit: 5000/1d }
  per-ip: { algorithm: fixed_window, key: ip, limit: 6000/1d, exempt: [plan:endless] }
plans:
  pro: { per-day: 20/1d, per-key: 1000/1d, per-user: 4000/1d, per-ip: 3000/1d }
  endless: { per-day: unlimited }
routes:
  - { path: /usage, usage: true, policies: [per-day, per-key, per-user, per-ip] }
  - { path: /*, upstream: api, policies: [per-day, per-key, per-user, per-ip] }
",
    ));
    let asked = [
        // The customer, its plan, the requests it sends, and the limit of `per-day`.
        ("plain", None, 12, Some(10)),
        ("globex", Some("pro"), 22, Some(20)),
        ("special", Some("pro"), 3, Some(30)),
        ("idle", Some("pro"), 0, Some(20)),
        ("partner", Some("pro"), 3, None),
        ("big", Some("endless"), 3, None),
    ];
    let keys = asked.map(|(customer, plan, ..)| {
        let new = json!({ "customer": customer, "plan": plan, "id": customer });
        send(&tollgate, "POST", "/v1/keys", &new).json()["key"].as_str().unwrap().to_owned()
    });
    let per_day = |limits: &Value| {
        let rows = limits.as_array().unwrap().iter().filter(|row| row["policy"] == "per-day");
        rows.map(|row| (row["used"].as_u64().unwrap(), row["limit"].as_u64().unwrap())).collect::<Vec<_>>()
    };
    for ((customer, plan, requests, limit), key) in asked.iter().zip(&keys) {
        let key = [("x-api-key", key.as_str())];
        let replies: Vec<_> = (0..*requests).map(|_| get(tollgate.address, "/a", &key)).collect();
        let used = limit.map_or(0, |limit| limit.min(*requests));
        let expected: Vec<_> = limit.map(|limit| (used, limit)).into_iter().collect();

        // To the customer itself.
        let usage = get(tollgate.address, "/usage", &key).json()["limits"].clone();
        let (limited, free): (Vec<_>, Vec<_>) =
            usage.as_array().unwrap().iter().cloned().partition(|row| row["limit"].is_u64());
        assert_eq!(per_day(&json!(limited)), expected, "{customer}: {usage}");
        assert_eq!(free.iter().any(|row| row["policy"] == "per-day"), limit.is_none());
        if let Some(denied) = replies.iter().find(|reply| reply.status == 429) {
            let told = denied.header("ratelimit-policy").unwrap();
            assert!(told.contains(&format!("\"per-day\";q={}", limit.unwrap())), "{told}");
        }
        let is_denied = limit.is_some_and(|limit| *requests > limit);

        // To operators.
        let of_customer = tollgate.admin("GET", &format!("/v1/limits?key=customer:{customer}")).json();
        assert_eq!(per_day(&of_customer["limits"]), expected, "{customer}: {of_customer}");
        assert_eq!(of_customer["unlimited"].as_array().unwrap().len(), usize::from(limit.is_none()));
        let shown = tollgate.command(&["limits", &format!("customer:{customer}")]).stdout;
        let words = match (limit, plan) {
            (Some(10), _) => " 10  ",
            (Some(30), _) => "30 (customer:special)",
            (Some(_), _) => "20 (plan:pro)",
            (None, Some("endless")) => "unlimited (plan:endless)",
            (None, _) => "unlimited (customer:partner)",
        };
        assert!(shown.contains(words), "{shown}");
        let page = tollgate.admin("GET", &format!("/keys?customer={customer}")).text();
        let on_page = limit.map_or("per-day: unlimited".into(), |of| format!("per-day: {used} of {of}"));
        assert!(page.contains(&on_page), "{customer}: no {on_page:?}");

        // As a user, who is the customer: what holds, by each key that the requests have.
        if requests > &0 {
            let mut user = Value::Null;
            eventually("the denials are recorded", || {
                user = tollgate.admin("GET", &format!("/v1/users/{customer}")).json();
                !is_denied || user["denied"] == requests - used
            });
            let held = |policy: &str| {
                let mut rows =
                    user["limits"].as_array().unwrap().iter().filter(|row| row["policy"] == policy);
                rows.find(|row| row["used"] != 0).map(|row| row["limit"].as_u64().unwrap())
            };
            assert_eq!(per_day(&user["limits"]), expected, "{customer}: {user}");
            let is_pro = *plan == Some("pro");
            assert_eq!(held("per-key"), Some(if is_pro { 1000 } else { 50 }), "{user}");
            assert_eq!(held("per-user"), Some(if is_pro { 4000 } else { 5000 }), "{user}");
            let shown = tollgate.command(&["user", customer]).stdout;
            assert!(shown.contains(words) && shown.contains("per-key"), "{shown}");
            let page = tollgate.admin("GET", &format!("/users/{customer}")).text();
            let on_page = limit.map_or("unlimited".into(), |of| format!("{used} of {of}"));
            assert!(page.contains(&on_page), "{customer}: no {on_page:?}");
        }
    }

    // Behind their address: the limits that denied.
    let behind = tollgate.admin("GET", "/v1/blocked/127.0.0.1").json();
    let mut denying = per_day(&behind["limits"]);
    denying.sort_unstable();
    assert_eq!(denying, [(10, 10), (20, 20)], "{behind}");
    let shown = tollgate.command(&["blocked", "127.0.0.1"]).stdout;
    assert!(shown.contains("20 (plan:pro)"), "{shown}");
    // Nobody knows which of its requests have a plan: both limits are shown, with the plan.
    let per_ip = |key: &str| {
        let limits = tollgate.admin("GET", &format!("/v1/limits?policy=per-ip&key={key}")).json();
        let rows = limits["limits"].as_array().unwrap().iter();
        rows.map(|row| (row["limit"].as_u64().unwrap(), row["condition"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(per_ip("127.0.0.1"), [(6000, Value::Null), (3000, json!("plan:pro"))]);
    assert_eq!(per_ip("127.0.0.9"), [(6000, Value::Null)], "nothing is used");

    // A customer whose plan is changed has the other limit from then on.
    let change = json!({ "plan": null });
    assert_eq!(send(&tollgate, "PATCH", "/v1/keys/globex", &change).status, 200);
    let of_customer = tollgate.admin("GET", "/v1/limits?key=customer:globex").json();
    assert_eq!(per_day(&of_customer["limits"]), [(20, 10)], "{of_customer}");
    // With keys of two plans it has both, and says which is whose.
    let new = json!({ "customer": "globex", "plan": "pro", "id": "globex-2" });
    assert_eq!(send(&tollgate, "POST", "/v1/keys", &new).status, 201);
    let of_customer = tollgate.admin("GET", "/v1/limits?policy=per-day&key=customer:globex").json();
    let conditions: Vec<_> =
        of_customer["limits"].as_array().unwrap().iter().map(|row| row["condition"].clone()).collect();
    assert_eq!(conditions, [Value::Null, json!("plan:pro")], "{of_customer}");
}
