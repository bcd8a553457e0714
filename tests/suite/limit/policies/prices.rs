//! One budget with different prices: `cost` in the `policies` of routes and upstreams.

use serde_json::{Value, json};

use crate::harness::{Config, Deployment, Origin, Reply, Tollgate, eventually, get, on_each_store, request};

on_each_store!(
    routes_take_their_prices_from_one_budget,
    a_denied_price_says_nothing_of_a_lower_one,
    units_of_a_slice_are_spent_at_the_price,
    a_price_comes_back_where_the_response_does_not_count,
);

/// The paths, and what a request to each costs.
const PRICES: [(&str, u64); 6] =
    [("/own", 2), ("/route", 3), ("/upstream", 5), ("/both", 4), ("/named", 5), ("/cheap", 1)];

/// With these settings of the policy `points`, whose own cost is 2.
fn start(origin: &Origin, redis: Option<&Deployment>, points: &str) -> Tollgate {
    let store = redis.map_or_else(String::new, |redis| {
        format!("store: {{ redis: {{ {}, timeout: 5s }} }}", redis.settings())
    });
    let address = origin.address;
    Tollgate::start(Config::yaml(format!(
        "
workers: 1
policies:
  points: {{ key: ip, cost: 2, {points} }}
upstreams:
  plain: {{ endpoints: [\"http://{address}\"], policies: [points] }}
  dear: {{ endpoints: [\"http://{address}\"], policies: [{{ name: points, cost: 5 }}] }}
routes:
  - {{ path: /own, upstream: plain }}
  - {{ path: /route, upstream: plain, policies: [{{ name: points, cost: 3 }}] }}
  - {{ path: /upstream, upstream: dear }}
  - {{ path: /both, upstream: dear, policies: [{{ name: points, cost: 4 }}] }}
  - {{ path: /named, upstream: dear, policies: [points] }}
  - {{ path: /cheap, upstream: plain, policies: [{{ name: points, cost: 1 }}] }}
{store}
"
    )))
}

/// The units that are left after `reply`.
fn left(reply: &Reply) -> u64 {
    reply.header("ratelimit").unwrap().split([';', '=']).nth(2).unwrap().parse().unwrap()
}

/// The check of a request to `path`, as it is explained.
fn explained(tollgate: &Tollgate, path: &str) -> Value {
    let asked =
        json!({ "method": "GET", "url": path, "peer": "127.0.0.1", "headers": { "host": "localhost" } });
    let json = [("content-type", "application/json")];
    let reply = request(tollgate.admin, "POST", "/v1/explain", &json, asked.to_string().as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["checks"][0].clone()
}

fn routes_take_their_prices_from_one_budget(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    for algorithm in [
        "fixed_window",
        "sliding_window",
        "sliding_log",
        "sliding_counter",
        "single_counter",
        "metadata_list",
        "gcra",
    ] {
        let tollgate = start(&origin, redis, &format!("algorithm: {algorithm}, limit: 20/1d"));
        let mut budget = 20;
        for (path, price) in PRICES {
            let check = explained(&tollgate, path);
            assert_eq!(
                (&check["cost"], &check["verdict"]),
                (&json!(price), &json!("allowed")),
                "{algorithm}"
            );
            let is_own = path == "/own";
            let because = check["because"].as_str().unwrap();
            assert_eq!(because.contains("cost set for this route"), !is_own, "{path}: {check}");
            let reply = get(tollgate.address, path, &[]);
            budget -= price;
            assert_eq!((reply.status, left(&reply)), (200, budget), "{algorithm} {path}");
        }
        assert_eq!(budget, 0);
        for (path, price) in PRICES {
            let check = explained(&tollgate, path);
            assert_eq!((&check["cost"], &check["verdict"]), (&json!(price), &json!("denied")), "{algorithm}");
            let denied = get(tollgate.address, path, &[]);
            assert_eq!((denied.status, left(&denied)), (429, 0), "{algorithm} {path}");
            assert!(denied.header("retry-after").is_some(), "{algorithm} {path}");
        }
        eventually("all are counted", || {
            let policy = tollgate.admin("GET", "/v1/policies").json()["policies"][0].clone();
            (policy["allowed"].as_u64(), policy["denied"].as_u64()) == (Some(6), Some(6))
        });
        let policy = tollgate.admin("GET", "/v1/policies").json()["policies"][0].clone();
        let prices: Vec<Value> = PRICES
            .iter()
            .filter(|(path, _)| *path != "/own")
            .map(|(path, price)| json!({ "route": path, "cost": price }))
            .collect();
        assert_eq!(policy["prices"], json!(prices));
    }
}

/// Of one worker, whose remembered denials are for one price each.
fn a_denied_price_says_nothing_of_a_lower_one(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let tollgate = start(&origin, redis, "algorithm: fixed_window, limit: 12/1d");
    let ask = |path: &str| {
        let reply = get(tollgate.address, path, &[]);
        (reply.status, left(&reply))
    };
    assert_eq!([ask("/upstream"), ask("/upstream")], [(200, 7), (200, 2)]);
    for _ in 0..3 {
        assert_eq!([ask("/upstream"), ask("/route"), ask("/both")], [(429, 2); 3]);
    }
    assert_eq!([ask("/cheap"), ask("/own")], [(200, 1), (429, 1)]);
    assert_eq!([ask("/cheap"), ask("/cheap")], [(200, 0), (429, 0)]);
    assert_eq!(ask("/upstream").0, 429);
    if redis.is_some() {
        let name = "tollgate_decisions_total{policy=\"points\",verdict=\"denied\",source=\"local_denial\"}";
        // Of each price, all but the first at most: they take turns, and one does not push out the other.
        eventually("some are denied from memory", || tollgate.metric(name) >= 6.0);
    }
}

fn units_of_a_slice_are_spent_at_the_price(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let tollgate = start(&origin, redis, "algorithm: fixed_window, limit: 40/1d, slice: 25%");
    let mut budget = 40;
    for (path, price) in PRICES.iter().cycle().take(12) {
        let reply = get(tollgate.address, path, &[]);
        budget -= price;
        assert_eq!((reply.status, left(&reply)), (200, budget), "{path}");
    }
    assert_eq!([("/route"), ("/cheap")].map(|path| get(tollgate.address, path, &[]).status), [429, 429]);
}

fn a_price_comes_back_where_the_response_does_not_count(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let tollgate = start(&origin, redis, "algorithm: fixed_window, limit: 5/1d, count: { statuses: [401] }");
    for (path, _) in PRICES.iter().cycle().take(12) {
        eventually("it was given back", || explained(&tollgate, "/upstream")["verdict"] == "allowed");
        assert_eq!(get(tollgate.address, path, &[]).status, 200, "{path}");
    }
}
