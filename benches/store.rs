//! The memory store alone: decisions a second with 1, 2 and 8 threads over spread keys and over one
//! hot key, the cost of new keys, and the bytes that a key takes.
//!
//! `cargo bench --bench store`
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a table is what it is for")]

use std::{
    env,
    hint::black_box,
    process::Command,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tollgate::{
    config::model::Algorithm,
    limit::{
        Check, Policy, SteadyClock,
        algorithm::{Detail, metadata_list::Entry},
    },
    store::memory::MemoryStore,
};

mod support;

use support::{
    address, policy,
    process::{cpu_nanos, resident_bytes},
};

/// The allocator of the proxy.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SPREAD_KEYS: usize = 100_000;
const MANY_KEYS: usize = 1_000_000;
const RUN: Duration = Duration::from_millis(500);

const ALGORITHMS: [(&str, Algorithm); 7] = [
    ("single_counter", Algorithm::SingleCounter),
    ("fixed_window", Algorithm::FixedWindow),
    ("metadata_list", Algorithm::MetadataList),
    ("sliding_window", Algorithm::SlidingWindow { buckets: 10 }),
    ("sliding_log", Algorithm::SlidingLog),
    ("sliding_counter", Algorithm::SlidingCounter),
    ("gcra", Algorithm::Gcra { burst: 1_000_000_000, delay: Duration::ZERO }),
];

fn main() {
    // Memory is measured in a process of its own, so that memory freed by another measurement is not reused.
    if let Ok(algorithm) = env::var("BENCH_MANY_KEYS") {
        return many_keys(&algorithm);
    }
    println!("decisions of one check; ns are CPU time a decision");
    println!("{:<16} {:<12} {:>8} {:>14} {:>8}", "algorithm", "keys", "threads", "decisions/s", "ns");
    for (name, algorithm) in ALGORITHMS {
        let admitting = policy(algorithm, &[(1_000_000_000, 10)]);
        let denying = policy(algorithm, &[(1, 366 * 86_400_000)]);
        for (keys, policy, count) in
            [("spread", &admitting, SPREAD_KEYS), ("one", &admitting, 1), ("one, denied", &denying, 1)]
        {
            for threads in [1, 2, 8] {
                decide(name, keys, policy, count, threads);
            }
        }
    }
    let tiers = policy(Algorithm::FixedWindow, &[(1_000_000_000, 1_000), (1_000_000_000, 60_000)]);
    decide("fixed_window ×2", "spread", &tiers, SPREAD_KEYS, 1);
    decide("fixed_window ×2", "one", &tiers, 1, 1);

    pauses();

    println!("\n{MANY_KEYS} keys such as ip:203.100.113.107");
    println!("{:<16} {:>12} {:>16} {:>18}", "algorithm", "bytes a key", "ns a new key", "ns a new, full");
    for (name, _) in ALGORITHMS {
        // Freed memory is returned at once, so that resident memory is memory in use.
        let run =
            |this| Command::new(this).env("BENCH_MANY_KEYS", name).env("MIMALLOC_PURGE_DELAY", "0").status();
        if let Err(error) = env::current_exe().and_then(run) {
            println!("{name}: {error}");
        }
    }
}

/// Sweeps a million expired limits as the proxy does, ten times a second, during decisions. Prints how long a decision
/// takes then, and the CPU time of a sweep (a 256th of it under any one lock).
fn pauses() {
    const TICK: Duration = Duration::from_millis(100);
    const SWEEP: usize = 20_000;
    // Long enough for all to be added before the first is over.
    const LIFE: Duration = Duration::from_secs(3);
    let short = policy(Algorithm::SingleCounter, &[(100, LIFE.as_millis() as u64)]);
    let long = policy(Algorithm::SingleCounter, &[(1_000_000_000, 86_400_000)]);
    let store = MemoryStore::new(MANY_KEYS, Arc::new(SteadyClock::new()));
    let check = |policy, i| Check { policy, identifier: address(i).into(), cost: 1, detail: Detail::None };
    for i in 0..MANY_KEYS {
        store.decide_now(&[check(&short, i)]);
    }
    thread::sleep(LIFE);
    let asked: Vec<Check<'_>> = (0..SPREAD_KEYS).map(|i| check(&long, i)).collect();
    let is_done = AtomicBool::new(false);
    let (mut times, mut sweeps) = (Vec::with_capacity(1 << 24), Vec::new());
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut i = 0;
            while !is_done.load(Relaxed) && times.len() < times.capacity() {
                let begun = Instant::now();
                black_box(store.decide_now(std::slice::from_ref(&asked[i])));
                times.push(begun.elapsed());
                i = (i + 48_611) % asked.len();
            }
        });
        while store.stats().keys > SPREAD_KEYS {
            let cpu = cpu_nanos();
            store.sweep(SWEEP);
            sweeps.push(cpu_nanos() - cpu);
            thread::sleep(TICK);
        }
        is_done.store(true, Relaxed);
        let _ = asking.join();
    });
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let most = sweeps.iter().copied().fold(0.0, f64::max) / 1e3;
    println!(
        "\n{MANY_KEYS} limits over, {} sweeps of {SWEEP}: a decision p50 {:?}, p99.99 {:?}, p99.9999 {:?}; the longest \
         sweep {most:.0} µs, {:.1} µs with a lock",
        sweeps.len(),
        at(0.5),
        at(0.9999),
        at(0.999_999),
        most / 256.0,
    );
}

/// Lets `threads` threads decide over `count` keys, and prints their rates.
fn decide(name: &str, keys: &str, policy: &Policy, count: usize, threads: usize) {
    let store = MemoryStore::new(MANY_KEYS, Arc::new(SteadyClock::new()));
    let entry = Arc::new(Entry { time: 0, user: None, method: http::Method::GET, path: "/a".into() });
    // Made in advance: building identifiers is not the store's work.
    let check = |i| Check {
        policy,
        identifier: address(i).into(),
        cost: 1,
        detail: Detail::Entry(Arc::clone(&entry)),
    };
    let checks: Vec<Check<'_>> = (0..count).map(check).collect();
    for check in &checks {
        store.decide_now(std::slice::from_ref(check));
    }
    let start = Barrier::new(threads);
    let work = |thread: usize| {
        let mut i = thread * checks.len() / threads;
        let mut done = 0_u64;
        start.wait();
        let (begin, cpu) = (Instant::now(), cpu_nanos());
        while begin.elapsed() < RUN {
            for _ in 0..1_000 {
                black_box(store.decide_now(std::slice::from_ref(&checks[i])));
                // A stride that no prefetcher follows and that visits every key.
                i = (i + 48_611) % checks.len();
            }
            done += 1_000;
        }
        (done as f64, done as f64 / begin.elapsed().as_secs_f64(), cpu_nanos() - cpu)
    };
    let (mut done, mut rate, mut cpu) = (0.0, 0.0, 0.0);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        for of_one in running.into_iter().filter_map(|thread| thread.join().ok()) {
            done += of_one.0;
            rate += of_one.1;
            cpu += of_one.2;
        }
    });
    println!("{name:<16} {keys:<12} {threads:>8} {rate:>14.0} {:>8.0}", cpu / done);
}

/// Prints the bytes a key, the CPU time of a new key, and that of a new key in a full store.
fn many_keys(name: &str) {
    let Some((_, algorithm)) = ALGORITHMS.iter().find(|algorithm| algorithm.0 == name) else { return };
    let policy = policy(*algorithm, &[(100, 86_400_000)]);
    let store = MemoryStore::new(MANY_KEYS, Arc::new(SteadyClock::new()));
    let before = resident_bytes();
    let add = |from: usize| {
        let cpu = cpu_nanos();
        for i in from..from + MANY_KEYS {
            let check =
                Check { policy: &policy, identifier: address(i).into(), cost: 1, detail: Detail::None };
            black_box(store.decide_now(std::slice::from_ref(&check)));
        }
        (cpu_nanos() - cpu) / MANY_KEYS as f64
    };
    let insert = add(0);
    let bytes = resident_bytes().saturating_sub(before) as f64 / store.stats().keys as f64;
    println!("{name:<16} {bytes:>12.0} {insert:>16.0} {:>18.0}", add(MANY_KEYS));
}
