//! An attack with known counts: an office behind one address, one address that tries user names, one user on many
//! addresses, and a plain flood. The admin port tells them apart, whether one instance saw them or two together.

use std::{collections::BTreeSet, net::IpAddr, thread};

use serde_json::Value;

use crate::harness::{Client, Config, Deployment, Origin, Tollgate, eventually, on_each_topology};

on_each_topology!(two_instances_together_show_the_whole_attack);

/// Two hundred people, each at work for a while.
const OFFICE: &str = "127.1.0.1";
const COLLEAGUES: usize = 200;
const EACH: usize = 3;
/// Names that one address tries, each once.
const STUFFER: &str = "127.1.0.2";
const NAMES: usize = 5_000;
/// One user, from addresses that change all the time.
const WANDERER: &str = "mallory";
const ADDRESSES: usize = 300;
/// Requests without a user, as fast as possible.
const FLOODER: &str = "127.1.0.3";
const FLOOD: usize = 6_000;
/// Number of records kept of an address; the small office has fewer denials.
const SMALL: &str = "127.1.0.4";
const KEPT: usize = 50;

const CONFIGURATION: &str = "
user: [{ header: x-user-id, from: anyone }]
policies:
  per-ip: { algorithm: single_counter, key: ip, limit: 100/1h, record: { keep: 50 } }
  names: { algorithm: distinct, key: ip, value: user, limit: 20/10m }
  each: { algorithm: single_counter, key: user, limit: 10/1h }
routes:
  - { path: /login, upstream: origin, policies: [names] }
  - { path: /orders, upstream: origin, policies: [each] }
  - { path: /*, upstream: origin, policies: [per-ip] }
";

/// Sends one request for each of `users` from `source`, over one connection. Returns how many were denied.
fn ask(tollgate: &Tollgate, source: &str, path: &str, users: impl IntoIterator<Item = String>) -> usize {
    let mut client = Client::connect_from(source.parse::<IpAddr>().unwrap(), tollgate.address);
    let statuses = users.into_iter().map(|user| match user.is_empty() {
        true => client.request("GET", path, &[], b"").status,
        false => client.request("GET", path, &[("x-user-id", &user)], b"").status,
    });
    statuses.filter(|&status| status == 429).count()
}

/// The number of denials of each.
struct Truth {
    office: usize,
    stuffer: usize,
    flooder: usize,
    small: usize,
}

/// The whole attack, spread over these instances.
fn attack(instances: &[&Tollgate]) -> Truth {
    let of = |n: usize| instances[n % instances.len()];
    // Each part by itself, so that what they share is the proxy.
    thread::scope(|scope| {
        let office = scope.spawn(move || {
            let shifts = (0..EACH).map(|shift| {
                ask(of(shift), OFFICE, "/", (0..COLLEAGUES).map(|person| format!("colleague-{person}")))
            });
            shifts.sum::<usize>()
        });
        let stuffer = scope.spawn(move || {
            let halves = (0..2).map(|half| {
                let names = (half * NAMES / 2..(half + 1) * NAMES / 2).map(|name| format!("name-{name}"));
                ask(of(half), STUFFER, "/login", names)
            });
            halves.sum::<usize>()
        });
        let flooder = scope.spawn(move || {
            let waves = (0..2).map(|wave| ask(of(wave), FLOODER, "/", vec![String::new(); FLOOD / 2]));
            waves.sum::<usize>()
        });
        // Use up the user's own limit before the address changes.
        let again = |times| vec![WANDERER.to_owned(); times];
        assert_eq!(ask(of(0), "127.2.9.9", "/orders", again(10)), 0);
        for n in 0..ADDRESSES {
            let address = format!("127.2.{}.{}", n / 200, n % 200 + 1);
            assert_eq!(ask(of(n), &address, "/orders", again(2)), 2, "{address}");
        }
        assert_eq!(ask(of(0), SMALL, "/", vec!["warm-up".to_owned(); 100]), 0);
        let small = ask(of(1), SMALL, "/small", (0..KEPT - 10).map(|n| format!("small-{n}")));
        Truth {
            office: office.join().unwrap(),
            stuffer: stuffer.join().unwrap(),
            flooder: flooder.join().unwrap(),
            small,
        }
    })
}

/// One where nobody can log in.
fn origin() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.skip_body(&head)?;
            let status = if head.contains(" /login ") { "401 Unauthorized" } else { "200 OK" };
            conn.answer(status, &[], b"")?;
        }
        Ok(())
    })
}

/// The evidence of an address, once it shows this many denials.
#[track_caller]
fn evidence(tollgate: &Tollgate, address: &str, denied: usize) -> Value {
    let mut found = Value::Null;
    eventually(&format!("{address} was denied {denied} times"), || {
        found = tollgate.admin("GET", &format!("/v1/blocked/{address}")).json();
        found["denied"] == denied
    });
    found
}

fn users(evidence: &Value) -> BTreeSet<&str> {
    let records = evidence["records"].as_array().unwrap();
    records.iter().filter_map(|record| record["user"].as_str()).collect()
}

#[track_caller]
fn assert_distinct(evidence: &Value, truth: usize) {
    let shown = evidence["distinct_users"].as_u64().unwrap() as f64;
    let off = (shown - truth as f64).abs() / truth as f64;
    assert!(off <= 0.02, "{shown} users are shown, {truth} there were: {:.1} % off", off * 100.0);
}

/// Checks what `instance` shows of the attack.
fn examine(instance: &Tollgate, truth: &Truth) {
    // The office: many users, each with few denials.
    assert_eq!(truth.office, COLLEAGUES * EACH - 100);
    let office = evidence(instance, OFFICE, truth.office);
    assert_eq!(office["policies"], serde_json::json!(["per-ip"]));
    assert_eq!(office["hint"], "shared address", "{office}");
    assert_distinct(&office, COLLEAGUES);
    let named = users(&office);
    assert!(named.len() >= KEPT && named.iter().all(|user| user.starts_with("colleague-")), "{named:?}");

    // Tried names: far more than an office has users, denied by the policy made for that.
    assert_eq!(truth.stuffer, NAMES - 20);
    let stuffer = evidence(instance, STUFFER, truth.stuffer);
    assert_eq!(stuffer["policies"], serde_json::json!(["names"]));
    assert_eq!(stuffer["hint"], "credential stuffing", "{stuffer}");
    // The first 20 were admitted.
    assert_distinct(&stuffer, NAMES - 20);

    // A flood without a name.
    assert_eq!(truth.flooder, FLOOD - 100);
    let flooder = evidence(instance, FLOODER, truth.flooder);
    assert_eq!((&flooder["distinct_users"], &flooder["hint"]), (&0.into(), &"flood".into()));
    let most = instance.admin("GET", "/v1/blocked?sort=denied&limit=1").json();
    assert_eq!(most["blocked"][0]["address"], FLOODER);
    let most = instance.admin("GET", "/v1/blocked?sort=users&limit=1").json();
    assert_eq!(most["blocked"][0]["address"], STUFFER);

    // Fewer than are kept: every one is listed.
    assert_eq!(truth.small, KEPT - 10);
    let small = evidence(instance, SMALL, truth.small);
    let all: BTreeSet<String> = (0..KEPT - 10).map(|n| format!("small-{n}")).collect();
    assert_eq!(users(&small), all.iter().map(String::as_str).collect());
    assert_eq!(small["records"].as_array().unwrap().len(), KEPT - 10);
    assert_distinct(&small, KEPT - 10);

    // One user, at all addresses.
    let mut wanderer = Value::Null;
    eventually("all her addresses are known", || {
        wanderer = instance.admin("GET", &format!("/v1/users/{WANDERER}")).json();
        wanderer["addresses"].as_array().is_some_and(|addresses| addresses.len() == ADDRESSES)
    });
    let addresses = wanderer["addresses"].as_array().unwrap();
    let of = |n: usize| format!("127.2.{}.{}", n / 200, n % 200 + 1);
    let hers: BTreeSet<String> = (0..ADDRESSES).map(of).collect();
    assert_eq!(
        addresses.iter().map(|found| found["address"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>(),
        hers
    );
    assert!(addresses.iter().all(|found| found["denied"] == 2), "{addresses:?}");
    let one = evidence(instance, &of(7), 2);
    assert_eq!((&one["hint"], &one["policies"]), (&"unknown".into(), &serde_json::json!(["each"])));
    assert_eq!(instance.metric("tollgate_abuse_records_dropped_total"), 0.0);
}

#[test]
fn one_instance_tells_the_attackers_apart() {
    let origin = origin();
    let configuration =
        format!("upstreams:\n  origin: {{ endpoints: [\"http://{}\"] }}\n{CONFIGURATION}", origin.address);
    let tollgate = Tollgate::start(Config::yaml(configuration));
    let truth = attack(&[&tollgate]);
    examine(&tollgate, &truth);
}

fn two_instances_together_show_the_whole_attack(redis: &Deployment) {
    let origin = origin();
    let instance = || {
        Tollgate::start(Config::yaml(format!(
            "upstreams:\n  origin: {{ endpoints: [\"http://{}\"] }}\nstore: {{ redis: {{ {}, timeout: 5s }} }}\n{CONFIGURATION}",
            origin.address,
            redis.settings()
        )))
    };
    let (first, second) = (instance(), instance());
    let truth = attack(&[&first, &second]);
    examine(&first, &truth);
    examine(&second, &truth);
}
