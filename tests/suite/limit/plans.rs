//! Plans on three instances that share a Redis: each customer gets exactly the limit of its plan, over all its keys.
//!
//! `TOLLGATE_TEST_ROUNDS=20` for a long run.

use std::{
    collections::BTreeMap,
    env, iter,
    sync::{
        Barrier, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    admin::keys::send,
    harness::{Client, Config, Deployment, Origin, Reply, Tollgate, eventually, get, on_topologies},
};

on_topologies!(shared [server cluster]
    each_customer_gets_exactly_its_plan_over_two_keys,
    a_plan_that_changes_under_load_holds_on_all_instances_and_loses_no_count,
);

const CLIENTS: usize = 64;
const PLANS: [(&str, usize); 5] =
    [("trial", 5), ("free", 10), ("basic", 20), ("pro", 35), ("enterprise", 50)];
/// The routes, each held back by the policy of its name.
const ROUTES: [&str; 3] = ["fixed", "sliding", "month"];

fn rounds() -> usize {
    env::var("TOLLGATE_TEST_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap())
}

/// Three instances.
struct Site([Tollgate; 3]);

impl Site {
    fn start(redis: &Deployment, origin: &Origin) -> Self {
        let plan = |(name, limit): (&str, usize)| {
            format!("  {name}: {{ fixed: {limit}/1d, sliding: {limit}/1d, month: {limit}/month }}\n")
        };
        let yaml = format!(
            "
api_keys: {{ store: true }}
store: {{ redis: {{ {}, timeout: 10s }} }}
plans:
{}policies:
  fixed: {{ algorithm: fixed_window, key: customer, limit: 1/1d }}
  sliding: {{ algorithm: sliding_window, key: customer, limit: 1/1d }}
  month: {{ algorithm: fixed_window, key: customer, limit: 1/month }}
upstreams: {{ origin: {{ endpoints: [\"http://{}\"] }} }}
routes:
  - {{ path: /usage, usage: true }}
  - {{ path: /fixed, upstream: origin, policies: [fixed] }}
  - {{ path: /sliding, upstream: origin, policies: [sliding] }}
  - {{ path: /month, upstream: origin, policies: [month] }}
",
            redis.settings(),
            PLANS.map(plan).concat(),
            origin.address
        );
        let site = Self([(); 3].map(|()| Tollgate::start(Config::yaml(yaml.as_str()))));
        for tollgate in &site.0 {
            eventually("the keys are read", || tollgate.admin("GET", "/readyz").status == 200);
        }
        site
    }

    /// Makes two keys of a customer, which all instances know then.
    fn make_keys(&self, customer: &str, plan: &str) -> [String; 2] {
        let keys = [0, 1].map(|nth| {
            let new = json!({ "customer": customer, "plan": plan, "id": format!("{customer}-{nth}") });
            let mut made = send(&self.0[nth], "POST", "/v1/keys", &new);
            // Redis was not connected to yet.
            eventually("the key is made", || {
                if made.status == 503 {
                    made = send(&self.0[nth], "POST", "/v1/keys", &new);
                }
                made.status == 201
            });
            made.json()["key"].as_str().unwrap().to_owned()
        });
        for tollgate in &self.0 {
            for nth in [0, 1] {
                let path = format!("/v1/keys/{customer}-{nth}");
                eventually("the key is known", || tollgate.admin("GET", &path).status == 200);
            }
        }
        keys
    }

    /// What `/usage` of an instance says of a policy.
    fn usage(&self, instance: usize, key: &str, policy: &str) -> Value {
        let usage = get(self.0[instance].address, "/usage", &[("x-api-key", key)]).json();
        usage["limits"].as_array().unwrap().iter().find(|of| of["policy"] == policy).cloned().unwrap()
    }
}

#[track_caller]
fn passed(reply: &Reply) -> bool {
    assert!(matches!(reply.status, 200 | 429), "{reply:?}");
    reply.status == 200
}

/// The limit that the client was told.
fn told(reply: &Reply) -> Option<usize> {
    let (_, quota) = reply.header("ratelimit-policy")?.split_once("q=")?;
    quota.split(';').next()?.parse().ok()
}

fn each_customer_gets_exactly_its_plan_over_two_keys(redis: &Deployment) {
    /// Of each client to each route: all of a customer together send more than any plan allows.
    const EACH: usize = 6;
    let origin = Origin::ok();
    let site = Site::start(redis, &origin);
    let mut expected = BTreeMap::new();
    let admitted = Mutex::new(BTreeMap::<(String, &str), usize>::new());
    for round in 0..rounds() {
        let customers = PLANS.map(|(plan, limit)| {
            let customer = format!("{plan}-{round}");
            expected.extend(ROUTES.map(|route| ((customer.clone(), route), limit)));
            let keys = site.make_keys(&customer, plan);
            (customer, keys)
        });
        let barrier = Barrier::new(CLIENTS);
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (site, barrier, admitted, customers) = (&site, &barrier, &admitted, &customers);
                scope.spawn(move || {
                    let (customer, keys) = &customers[client % PLANS.len()];
                    let key = [("x-api-key", keys[client / PLANS.len() % 2].as_str())];
                    let mut connection = Client::connect(site.0[client % 3].address);
                    barrier.wait();
                    for nth in 0..EACH * ROUTES.len() {
                        let route = ROUTES[(client + nth) % ROUTES.len()];
                        let reply = connection.request("GET", &format!("/{route}"), &key, b"");
                        if passed(&reply) {
                            *admitted.lock().unwrap().entry((customer.clone(), route)).or_default() += 1;
                        }
                    }
                });
            }
        });
        for (nth, ((_, limit), (_, [_, second]))) in PLANS.iter().zip(&customers).enumerate() {
            for route in ROUTES {
                let usage = site.usage(nth % 3, second, route);
                let [of, used, remaining] = ["limit", "used", "remaining"].map(|field| usage[field].clone());
                assert_eq!([of, used, remaining], [json!(limit), json!(limit), json!(0)], "{route}");
            }
        }
    }
    assert_eq!(admitted.into_inner().unwrap(), expected);
    let all = PLANS.iter().map(|(_, limit)| limit).sum::<usize>() * ROUTES.len() * rounds();
    assert_eq!(origin.heads().len(), all, "what was denied never reached the origin");
}

/// A request of a customer, by the limit that it was told.
struct Sample {
    sent: Instant,
    instance: usize,
    told: Option<usize>,
    passed: bool,
}

fn a_plan_that_changes_under_load_holds_on_all_instances_and_loses_no_count(redis: &Deployment) {
    let origin = Origin::ok();
    let site = Site::start(redis, &origin);
    let mut took = Vec::new();
    for (round, route) in iter::repeat_n(ROUTES, rounds()).flatten().enumerate() {
        let customer = format!("grows-{round}");
        let keys = site.make_keys(&customer, "trial");
        let (samples, stop) = (Mutex::new(Vec::<Sample>::new()), AtomicBool::new(false));
        let count = |told: Option<usize>| {
            let samples = samples.lock().unwrap();
            samples
                .iter()
                .filter(|sample| sample.passed && told.is_none_or(|of| sample.told == Some(of)))
                .count()
        };
        // Whether each instance has told clients of this limit since then.
        let is_told = |limit: usize, since: Instant| {
            let samples = samples.lock().unwrap();
            let tells = |instance| {
                let mut of =
                    samples.iter().filter(|sample| sample.instance == instance && sample.sent > since);
                of.any(|sample| sample.told == Some(limit))
            };
            (0..3).all(tells)
        };
        let change = |plan: &str| {
            for nth in [0, 1] {
                let path = format!("/v1/keys/{customer}-{nth}");
                let changed = send(&site.0[(round + nth) % 3], "PATCH", &path, &json!({ "plan": plan }));
                assert_eq!(changed.status, 200, "{}", changed.text());
            }
            Instant::now()
        };
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (site, samples, stop, keys) = (&site, &samples, &stop, &keys);
                scope.spawn(move || {
                    let key = [("x-api-key", keys[client / 3 % 2].as_str())];
                    let instance = client % 3;
                    let mut connection = Client::connect(site.0[instance].address);
                    while !stop.load(SeqCst) {
                        let sent = Instant::now();
                        let reply = connection.request("GET", &format!("/{route}"), &key, b"");
                        let sample = Sample { sent, instance, told: told(&reply), passed: passed(&reply) };
                        samples.lock().unwrap().push(sample);
                        thread::sleep(Duration::from_millis(20));
                    }
                });
            }
            eventually("the first plan is used up", || count(None) == 5);
            let grown = change("enterprise");
            eventually("the new plan is used up", || count(None) == 50 && is_told(50, grown));
            let shrunk = change("basic");
            eventually("the smaller plan is known", || is_told(20, shrunk));
            let settled = Instant::now();
            eventually("clients go on", || is_told(20, settled));
            stop.store(true, SeqCst);
            let samples = samples.lock().unwrap();
            let late = |limit: usize, since: Instant, until: Instant| {
                let old = samples.iter().filter(|sample| sample.sent > since && sample.sent < until);
                let last = old.filter(|sample| sample.told != Some(limit)).map(|sample| sample.sent).max();
                last.map_or(Duration::ZERO, |last| last - since)
            };
            took.push([late(50, grown, shrunk), late(20, shrunk, settled + Duration::from_secs(9))]);
        });
        // What the first plan had admitted counts in the next one, and nothing comes on top of it.
        assert_eq!((count(Some(5)), count(Some(50)), count(None)), (5, 45, 50), "{route}");
        for instance in 0..3 {
            assert_eq!(site.usage(instance, &keys[0], route)["limit"], 20);
        }
    }
    eprintln!("a larger and a smaller plan hold on three instances after {took:.0?}");
    // A busy machine holds some of them up, but not all.
    for nth in [0, 1] {
        assert!(took.iter().map(|took| took[nth]).min().unwrap() < Duration::from_secs(1), "{took:?}");
    }
}
