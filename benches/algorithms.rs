//! The cost of each algorithm in either store: decisions a second, CPU time a decision, bytes a key. Prints the table
//! of `docs/limits.md`.
//!
//! `cargo bench --bench algorithms [NAME]`; takes `redis-server` from the PATH.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a table is what it is for, and it may end")]

use std::{
    env,
    process::Command,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use bb8_redis::redis;
use compact_str::format_compact;
use tollgate::{
    config::model::Algorithm,
    limit::{
        Check, Decision, Policy, SteadyClock, Store, Taken,
        algorithm::{Detail, metadata_list::Entry},
    },
    store::memory::MemoryStore,
};

mod support;

use support::{
    Redis, address,
    load::{RUN_TIME, block_on_local, run_concurrently},
    policy,
    process::{cpu_nanos, resident_bytes},
};

/// The allocator of the proxy.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Keys of each measurement, and the requests per key before its size is measured.
const KEYS: usize = 10_000;
const MANY_KEYS: usize = 1_000_000;
const FILL_REQUESTS: u64 = 100;
const FILLED_KEYS: usize = 50_000;
/// A limit that is never reached.
const UNREACHED: u64 = 1_000_000_000;

struct Subject {
    name: &'static str,
    algorithm: Algorithm,
    /// Units and milliseconds of each tier.
    tiers: &'static [(u64, u64)],
}

const MINUTE: u64 = 60_000;

const SUBJECTS: [Subject; 11] = [
    Subject { name: "single_counter", algorithm: Algorithm::SingleCounter, tiers: &[(UNREACHED, MINUTE)] },
    Subject { name: "fixed_window", algorithm: Algorithm::FixedWindow, tiers: &[(UNREACHED, MINUTE)] },
    Subject {
        name: "fixed_window, 3 tiers",
        algorithm: Algorithm::FixedWindow,
        tiers: &[(UNREACHED, 1_000), (UNREACHED, MINUTE), (UNREACHED, 60 * MINUTE)],
    },
    Subject { name: "metadata_list", algorithm: Algorithm::MetadataList, tiers: &[(UNREACHED, MINUTE)] },
    Subject {
        name: "sliding_window",
        algorithm: Algorithm::SlidingWindow { buckets: 10 },
        tiers: &[(UNREACHED, MINUTE)],
    },
    Subject {
        name: "sliding_window, 3 horizons",
        algorithm: Algorithm::SlidingWindow { buckets: 10 },
        tiers: &[(UNREACHED, 1_000), (UNREACHED, 10_000), (UNREACHED, 15_000)],
    },
    Subject {
        name: "sliding_log",
        algorithm: Algorithm::SlidingLog,
        tiers: &[(10 * FILL_REQUESTS, 10 * MINUTE)],
    },
    Subject { name: "sliding_counter", algorithm: Algorithm::SlidingCounter, tiers: &[(UNREACHED, MINUTE)] },
    Subject {
        name: "gcra",
        algorithm: Algorithm::Gcra { burst: UNREACHED, delay: Duration::ZERO },
        // So slow that no bucket is empty before it is measured.
        tiers: &[(100, 1440 * MINUTE)],
    },
    Subject { name: "concurrency", algorithm: Algorithm::Concurrency, tiers: &[(UNREACHED, MINUTE)] },
    Subject { name: "distinct", algorithm: Algorithm::Distinct, tiers: &[(10_000, MINUTE)] },
];

fn main() {
    if let Ok(name) = env::var("BENCH_SIZE_OF") {
        return size_in_memory(&name);
    }
    let only = env::args().nth(1).filter(|name| !name.starts_with("--"));
    println!(
        "| algorithm | memory: decisions/s a core | ns each | bytes a key | Redis: decisions/s | µs of its CPU each | \
         bytes a key, used once | {FILL_REQUESTS} times |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for subject in SUBJECTS.iter().filter(|s| only.as_ref().is_none_or(|only| s.name.contains(only))) {
        let nanos = in_memory(subject);
        let bytes = size_of(subject);
        let (micros, rate) = in_redis(subject);
        let (once, full) = sizes_in_redis(subject);
        println!(
            "| {} | {:.1} M | {nanos:.0} | {bytes} | {:.0} k | {micros:.1} | {once} | {full} |",
            subject.name,
            1e3 / nanos,
            rate / 1e3,
        );
    }
}

/// CPU nanoseconds a decision, on one thread, over keys that fit no cache.
fn in_memory(subject: &Subject) -> f64 {
    let (policy, store) = (subject.policy(), MemoryStore::new(MANY_KEYS, Arc::new(SteadyClock::new())));
    let keys = 100_000;
    let checks: Vec<Check<'_>> = (0..keys).map(|key| subject.check(&policy, key, 0)).collect();
    let (mut key, mut made) = (0, 0_u64);
    let mut run = |time: Duration| {
        let (begun, cpu, before) = (Instant::now(), cpu_nanos(), made);
        while begun.elapsed() < time {
            for _ in 0..1_000 {
                let check = std::slice::from_ref(&checks[key]);
                let decision = store.decide_now(check);
                subject.release(&store, check, &decision);
                // A stride that no prefetcher follows and that visits every key.
                key = (key + 48_611) % keys;
                made += 1;
            }
        }
        (cpu_nanos() - cpu) / (made - before) as f64
    };
    run(Duration::from_millis(300));
    run(Duration::from_millis(700))
}

/// Bytes a key in memory, once used and `FILL_REQUESTS` times, measured in a process of its own, so that memory
/// freed by another measurement is not reused.
fn size_of(subject: &Subject) -> String {
    let run = |this| {
        // Freed memory is returned at once, so that resident memory is memory in use.
        Command::new(this).env("BENCH_SIZE_OF", subject.name).env("MIMALLOC_PURGE_DELAY", "0").output()
    };
    let output = env::current_exe().and_then(run).unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn size_in_memory(name: &str) {
    let Some(subject) = SUBJECTS.iter().find(|subject| subject.name == name) else { return };
    let size = |keys: usize, times: u64| {
        let (policy, store) = (subject.policy(), MemoryStore::new(keys, Arc::new(SteadyClock::new())));
        let before = resident_bytes();
        for key in 0..keys {
            for time in 0..times {
                store.decide_now(&[subject.check(&policy, key, time)]);
            }
        }
        resident_bytes().saturating_sub(before) as usize / store.stats().keys.max(1)
    };
    // The smaller one first, since its memory is released before the other.
    let full = size(FILLED_KEYS, FILL_REQUESTS);
    println!("{} … {full}", size(MANY_KEYS, 1));
}

/// Microseconds of Redis' CPU a decision, with many decisions in flight, and decisions a second.
fn in_redis(subject: &'static Subject) -> (f64, f64) {
    let redis = Redis::start();
    block_on_local(async {
        let (policy, store) = (Rc::new(subject.policy()), Rc::new(redis.store()));
        let made = run_concurrently(&redis, |_| {
            let (policy, store) = (Rc::clone(&policy), Rc::clone(&store));
            async move |number| {
                let key = usize::try_from(number).unwrap() * 7_919 % KEYS;
                let checks = [subject.check(&policy, key, number)];
                let decision = store.decide(&checks).await.unwrap();
                if subject.algorithm == Algorithm::Concurrency {
                    store.settle(&Taken::all(&checks, decision.receipt(0))).await.unwrap();
                }
            }
        })
        .await;
        (redis.cpu_since_mark() / made as f64, made as f64 / RUN_TIME.as_secs_f64())
    })
}

/// The size of a key as Redis reports it, once used and `FILL_REQUESTS` times.
fn sizes_in_redis(subject: &Subject) -> (u64, u64) {
    let redis = Redis::start();
    block_on_local(async {
        let (policy, store, mut connection) = (subject.policy(), redis.store(), redis.connect().await);
        let mut usage = redis::cmd("MEMORY");
        store.decide(&[subject.check(&policy, 0, 0)]).await.unwrap();
        let keys: Vec<String> =
            redis::cmd("KEYS").arg("ratelimit:{ip:*").query_async(&mut connection).await.unwrap();
        usage.arg("USAGE").arg(&keys[0]).arg("SAMPLES").arg(0);
        let once = usage.query_async(&mut connection).await.unwrap();
        for time in 1..FILL_REQUESTS {
            store.decide(&[subject.check(&policy, 0, time)]).await.unwrap();
        }
        (once, usage.query_async(&mut connection).await.unwrap())
    })
}

impl Subject {
    fn policy(&self) -> Policy {
        policy(self.algorithm, self.tiers)
    }

    /// The check of a key's request number `time`.
    fn check<'a>(&self, policy: &'a Policy, key: usize, time: u64) -> Check<'a> {
        let detail = match self.algorithm {
            Algorithm::MetadataList => Detail::Entry(Arc::new(Entry {
                time: 1_800_000_000_000_000 + time as i64,
                user: Some(format_compact!("user-{}", time % 100)),
                method: http::Method::GET,
                path: "/api/orders".into(),
            })),
            // The hash of one of `FILL_REQUESTS` users.
            Algorithm::Distinct => Detail::Member(
                u128::from(time % FILL_REQUESTS).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835),
            ),
            Algorithm::Concurrency => Detail::Member(u128::from(time)),
            _ => Detail::None,
        };
        Check { policy, identifier: address(key).into(), cost: 1, detail }
    }

    /// Refunds a lease.
    fn release(&self, store: &MemoryStore, check: &[Check<'_>], decision: &Decision) {
        if self.algorithm == Algorithm::Concurrency {
            store.settle_now(&Taken::all(check, decision.receipt(0)));
        }
    }
}
