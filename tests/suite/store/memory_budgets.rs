//! The budgets of memory on the real binary, in a control group of its own: what it holds is what it says, and an attack on its
//! memory neither ends it nor frees who is limited.

use std::{net::SocketAddr, thread};

use serde_json::Value;

use crate::harness::{Cgroup, Client, Config, Origin, Tollgate, eventually};

const MIB: usize = 1 << 20;
/// What the container may take.
const CONTAINER: usize = 64 * MIB;
/// What connections and the threads that serve them may take.
const BUFFERS_KIB: u64 = 8 << 10;
/// The budgets that follow from it.
const BUDGETS: [(&str, u64); 2] = [("limits", CONTAINER as u64 / 4), ("evidence", CONTAINER as u64 / 5)];

const CONFIGURATION: &str = "
trusted_proxies: [127.0.0.1]
user: [{ header: x-user-id, from: anyone }]
upstreams:
  origin: { endpoints: [\"http://ORIGIN\"] }
policies:
  once: { algorithm: fixed_window, key: ip, limit: 1/1h }
  logged: { algorithm: sliding_log, key: ip, limit: 10000/1h }
  listed: { algorithm: metadata_list, key: ip, limit: 1000/1h }
  many:
    algorithm: gcra
    key: [\"query:k\", \"query:k+path\", \"query:k+method\", \"query:k+host\", \"query:k+route\", \"query:k+ip\"]
    limit: 100/1h
    burst: 100
routes:
  - { path: /denied/*, upstream: origin, policies: [once] }
  - { path: /logged/*, upstream: origin, policies: [logged] }
  - { path: /listed/*, upstream: origin, policies: [listed] }
  - { path: /*, upstream: origin, policies: [many] }
";

fn memory(tollgate: &Tollgate) -> Value {
    tollgate.admin("GET", "/v1/status").json()["memory"].clone()
}

fn held(memory: &Value) -> u64 {
    BUDGETS.iter().map(|(part, _)| memory[part]["held_bytes"].as_u64().unwrap()).sum()
}

/// Sends `count` requests over one connection, many at a time; `request` returns path and client of each.
fn send(address: SocketAddr, count: usize, request: impl Fn(usize) -> (String, String)) {
    const AT_ONCE: usize = 50;
    let mut client = Client::connect(address);
    for first in (0..count).step_by(AT_ONCE) {
        let mut requests = String::new();
        for n in first..count.min(first + AT_ONCE) {
            let (path, from) = request(n);
            requests += &format!(
                "GET {path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {from}\r\nX-User-Id: user-{}\r\n\r\n",
                n % 5_000
            );
        }
        client.send(requests);
        for _ in first..count.min(first + AT_ONCE) {
            let reply = client.reply();
            assert!(matches!(reply.status, 200 | 429), "{}", reply.text());
        }
    }
}

fn address(network: usize, n: usize) -> String {
    format!("10.{network}.{}.{}", n / 256 % 256, n % 256)
}

#[test]
fn an_attack_on_the_memory_stays_within_the_container_and_frees_nobody() {
    let origin = Origin::ok();
    let container = match Cgroup::with_memory(CONTAINER) {
        Ok(container) => container,
        Err(reason) => {
            println!("skipped: {reason}");
            return;
        }
    };
    let yaml = CONFIGURATION.replace("ORIGIN", &origin.address.to_string());
    let command = container.command(&["run", "--config", "proxy.yaml"]);
    let tollgate = Tollgate::launch(command, Config::yaml(yaml));
    let start = memory(&tollgate);
    assert_eq!(start["available_bytes"], CONTAINER, "{start}");
    for (part, budget) in BUDGETS {
        assert_eq!(start[part]["budget_bytes"], budget, "{start}");
    }
    assert!(tollgate.has_logged(&["limits may take 16 MiB and evidence 13 MiB of 64 MiB"]));

    let limited = |n| {
        let from = address(9, n);
        let mut client = Client::connect(tollgate.address);
        client.request("GET", "/denied/", &[("x-forwarded-for", &from)], b"").status == 429
    };
    (0..20).for_each(|n| assert!(!limited(n)));
    assert!((0..20).all(limited));
    let before = (tollgate.resident_kib(), held(&memory(&tollgate)));

    let (long, at) = ("x".repeat(450), tollgate.address);
    let long = &long;
    let user = "user-".repeat(20);
    let user = &user;
    thread::scope(|scope| {
        // Denials of many addresses, whose records take more than the budget.
        scope.spawn(|| send(at, 60_000, |n| (format!("/denied/{n}/{long}"), address(1, n % 1_500))));
        // Requests that are admitted, and listed.
        for of in 0..2 {
            scope.spawn(move || {
                send(at, 20_000, |n| (format!("/listed/{n}/{long}"), address(2 + of, n % 800)));
            });
        }
        scope.spawn(|| send(at, 2_000, |n| (format!("/logged/{n}"), address(4, n % 50))));
    });
    assert!(held(&memory(&tollgate)) > CONTAINER as u64 / 4, "{}", memory(&tollgate));
    // Ever new keys, several in each request.
    thread::scope(|scope| {
        for of in 0..2 {
            scope.spawn(move || send(at, 5_000, |n| (format!("/?k={of}-{n}-{user}"), address(5, of))));
        }
    });

    // What a thread has allocated and another has freed comes back to the system while the first goes on allocating. Beside
    // what is held there are half as much again that the allocator keeps (docs/limits.md), and buffers of connections.
    let (mut after, mut resident, mut held_more) = (memory(&tollgate), 0, 0);
    println!(
        "at first {} KiB resident, {} KiB held",
        tollgate.resident_kib().saturating_sub(before.0),
        (held(&after) - before.1) >> 10
    );
    eventually("what is held is what may be held, and about all that is resident", || {
        send(at, 100, |n| (format!("/logged/{n}"), address(4, n)));
        after = memory(&tollgate);
        resident = tollgate.resident_kib().saturating_sub(before.0);
        held_more = (held(&after) - before.1) >> 10;
        resident < held_more * 3 / 2 + BUFFERS_KIB
            && BUDGETS.iter().all(|(part, budget)| after[part]["held_bytes"].as_u64() <= Some(*budget))
    });
    println!("held {held_more} KiB more, resident {resident} KiB more, peak {} KiB", container.peak() >> 10);
    for (part, budget) in BUDGETS {
        assert!(
            after[part]["held_bytes"].as_u64() > Some(budget * 8 / 10),
            "too little to be a test: {after}"
        );
    }
    assert!(tollgate.metric("tollgate_evidence_evicted_total{kind=\"records\"}") > 0.0);
    assert!(tollgate.metric("tollgate_evidence_evicted_total{kind=\"entries\"}") > 0.0);
    assert_eq!(container.killed(), 0);
    assert!((0..20).all(limited), "nobody is free who was limited");
    eventually("it warns", || {
        let status = tollgate.admin("GET", "/v1/status").json();
        let warnings = status["warnings"].as_array().unwrap();
        let warns = |text: &str| warnings.iter().any(|warning| warning.as_str().unwrap().starts_with(text));
        warns("evidence takes ") && (warns("limits take ") || warns("the memory store is full"))
    });
}
