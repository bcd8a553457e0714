//! The memory store alone: decisions a second with 1, 2 and 8 threads over spread keys and over one
//! hot key, the cost of new keys, and the bytes that a key takes.
//!
//! `cargo bench --bench store`

use std::{
    fs,
    hint::black_box,
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

use tollgate::{
    config::model::{self, Algorithm},
    limit::{Check, Policy, PolicyId, SystemClock, algorithm::metadata_list::Entry},
    store::memory::MemoryStore,
};

/// The one of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SPREAD_KEYS: usize = 100_000;
const MANY_KEYS: usize = 1_000_000;
const RUN: Duration = Duration::from_millis(500);

const ALGORITHMS: [(&str, Algorithm); 4] = [
    ("single_counter", Algorithm::SingleCounter),
    ("fixed_window", Algorithm::FixedWindow),
    ("sliding_log", Algorithm::SlidingLog),
    ("metadata_list", Algorithm::MetadataList),
];

fn main() {
    println!("decisions of one check; ns are of one thread, wall time");
    println!("{:<16} {:<12} {:>8} {:>14} {:>8}", "algorithm", "keys", "threads", "decisions/s", "ns");
    for (name, algorithm) in ALGORITHMS {
        let admitting = policy(algorithm, &[(1_000_000_000, 10)]);
        let denying = policy(algorithm, &[(1, 366 * 86_400_000)]);
        for (keys, policy, identifiers) in [
            ("spread", &admitting, identifiers(SPREAD_KEYS)),
            ("one", &admitting, identifiers(1)),
            ("one, denied", &denying, identifiers(1)),
        ] {
            for threads in [1, 2, 8] {
                let rate = decisions_a_second(policy, &identifiers, threads);
                let nanos = threads as f64 / rate * 1e9;
                println!("{name:<16} {keys:<12} {threads:>8} {rate:>14.0} {nanos:>8.0}");
            }
        }
    }

    let tiers = policy(Algorithm::FixedWindow, &[(1_000_000_000, 1_000), (1_000_000_000, 60_000)]);
    let rate = decisions_a_second(&tiers, &identifiers(SPREAD_KEYS), 1);
    println!("{:<16} {:<12} {:>8} {rate:>14.0} {:>8.0}", "fixed_window ×2", "spread", 1, 1e9 / rate);

    println!("\n{MANY_KEYS} keys such as ip:203.100.113.107");
    println!("{:<16} {:>12} {:>16} {:>18}", "algorithm", "bytes a key", "ns a new key", "ns a new, full");
    for (name, algorithm) in ALGORITHMS {
        let (bytes, insert, evict) = many_keys(&policy(algorithm, &[(100, 86_400_000)]));
        println!("{name:<16} {bytes:>12.0} {insert:>16.0} {evict:>18.0}");
    }
}

/// Decisions a second of all threads together.
fn decisions_a_second(policy: &Policy, identifiers: &[String], threads: usize) -> f64 {
    let store = MemoryStore::new(MANY_KEYS, Arc::new(SystemClock::new()));
    let entry = Arc::new(Entry { time: 0, user: None, method: http::Method::GET, path: "/a".into() });
    // Made beforehand: to make identifiers is not the store's work.
    let checks: Vec<Check<'_>> = identifiers
        .iter()
        .map(|identifier| Check {
            policy,
            identifier: identifier.as_str().into(),
            cost: 1,
            entry: Some(Arc::clone(&entry)),
        })
        .collect();
    for check in &checks {
        store.decide_now(std::slice::from_ref(check));
    }
    let start = Barrier::new(threads);
    let work = |thread: usize| {
        let mut i = thread * checks.len() / threads;
        let mut done = 0_u64;
        start.wait();
        let begin = Instant::now();
        while begin.elapsed() < RUN {
            for _ in 0..1_000 {
                black_box(store.decide_now(std::slice::from_ref(&checks[i])));
                // A stride that no prefetcher follows and that visits every key.
                i = (i + 48_611) % checks.len();
            }
            done += 1_000;
        }
        done as f64 / begin.elapsed().as_secs_f64()
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or_default()).sum()
    })
}

/// Bytes a key, nanoseconds a new key, and nanoseconds a new key in a full store.
fn many_keys(policy: &Policy) -> (f64, f64, f64) {
    let store = MemoryStore::new(MANY_KEYS, Arc::new(SystemClock::new()));
    let before = resident_bytes();
    let add = |from: usize| {
        let begin = Instant::now();
        for i in from..from + MANY_KEYS {
            let check = Check { policy, identifier: address(i).into(), cost: 1, entry: None };
            black_box(store.decide_now(std::slice::from_ref(&check)));
        }
        begin.elapsed().as_nanos() as f64 / MANY_KEYS as f64
    };
    let insert = add(0);
    let bytes = resident_bytes().saturating_sub(before) as f64 / store.stats().keys as f64;
    (bytes, insert, add(MANY_KEYS))
}

fn identifiers(count: usize) -> Vec<String> {
    (0..count).map(address).collect()
}

/// 18 bytes, as most addresses.
fn address(i: usize) -> String {
    format!("ip:{}.{}.{}.{}", 100 + i / 1_000_000, 100 + i / 10_000 % 100, 100 + i / 100 % 100, 100 + i % 100)
}

fn policy(algorithm: Algorithm, tiers: &[(u64, u64)]) -> Policy {
    let rate = |&(limit, millis)| model::Rate { limit, window: Duration::from_millis(millis) };
    let config = model::Policy {
        name: "bench".to_owned(),
        algorithm,
        keys: vec![model::KeyRecipe(vec![model::KeyPart::Ip])],
        missing: model::Missing::Skip,
        tiers: tiers.iter().map(rate).collect(),
        record: model::Record { keep: 50, retain: Duration::from_secs(3600) },
    };
    Policy::new(&config, PolicyId(0))
}

/// What the process holds of the machine's memory.
fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default() * 4_096
}
