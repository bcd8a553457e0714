//! Redis' CPU time a decision, with 32 decisions in flight, against the usual way: one EVALSHA a request, on a
//! connection of its own, of a script for that algorithm alone. And the latency of one decision beside a PING.
//!
//! `cargo bench --bench redis [NAME]`; takes `redis-server` from the PATH.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a table is what it is for, and it may end")]

use std::{env, rc::Rc, sync::Arc, time::Instant};

use bb8_redis::redis::{self, Script};
use tollgate::{
    config::model::Algorithm,
    limit::{
        Check, Store,
        algorithm::{Detail, metadata_list::Entry},
    },
};

mod support;

use support::{
    Redis,
    load::{CONCURRENCY, RUN_TIME, block_on_local, run_concurrently},
    policy,
};

const KEYS: u64 = 10_000;

/// A comparison: the checks of a request, and a script written for them alone.
struct Workload {
    name: &'static str,
    algorithm: Algorithm,
    /// Units and milliseconds of each tier.
    tiers: &'static [(u64, u64)],
    identifiers: &'static [&'static str],
    keys: u64,
    naive: &'static str,
}

const COUNTER: &str = "
local n = redis.call('INCR', KEYS[1])
if n == 1 then redis.call('PEXPIRE', KEYS[1], 60000) end
return n <= 1000000000 and 1 or 0";

const LOG: &str = "
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 1000000)
local n = redis.call('ZCARD', KEYS[1])
if n >= 100 then return 0 end
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('PEXPIRE', KEYS[1], 1000)
return 1";

const LIST: &str = "
local n = redis.call('LLEN', KEYS[1])
if n >= 600 then return 0 end
redis.call('RPUSH', KEYS[1], ARGV[2])
if n == 0 then redis.call('PEXPIRE', KEYS[1], 60000) end
return 1";

const TIERS: &str = "
local ok = 1
for i = 1, #KEYS do
  local n = redis.call('INCR', KEYS[i])
  redis.call('PEXPIRE', KEYS[i], 60000)
  if n > 1000000000 then ok = 0 end
end
return ok";

const UNREACHED: u64 = 1_000_000_000;

const WORKLOADS: [Workload; 7] = [
    Workload {
        name: "single_counter",
        algorithm: Algorithm::SingleCounter,
        tiers: &[(UNREACHED, 60_000)],
        identifiers: &["ip:"],
        keys: KEYS,
        naive: COUNTER,
    },
    Workload {
        name: "fixed_window",
        algorithm: Algorithm::FixedWindow,
        tiers: &[(UNREACHED, 60_000)],
        identifiers: &["ip:"],
        keys: KEYS,
        naive: COUNTER,
    },
    Workload {
        name: "fixed_window, hot key",
        algorithm: Algorithm::FixedWindow,
        tiers: &[(UNREACHED, 60_000)],
        identifiers: &["ip:"],
        keys: 1,
        naive: COUNTER,
    },
    Workload {
        name: "sliding_log",
        algorithm: Algorithm::SlidingLog,
        tiers: &[(100, 1_000)],
        identifiers: &["ip:"],
        keys: KEYS,
        naive: LOG,
    },
    Workload {
        name: "sliding_log, 100 a key",
        algorithm: Algorithm::SlidingLog,
        tiers: &[(100, 1_000)],
        identifiers: &["ip:"],
        keys: 300,
        naive: LOG,
    },
    Workload {
        name: "metadata_list",
        algorithm: Algorithm::MetadataList,
        tiers: &[(600, 60_000)],
        identifiers: &["ip:"],
        keys: KEYS,
        naive: LIST,
    },
    Workload {
        name: "3 tiers × 2 identifiers",
        algorithm: Algorithm::FixedWindow,
        tiers: &[(UNREACHED, 1_000), (UNREACHED, 60_000), (UNREACHED, 3_600_000)],
        identifiers: &["ip:", "user:"],
        keys: KEYS,
        naive: TIERS,
    },
];

fn main() {
    let only = env::args().nth(1).filter(|name| !name.starts_with("--"));
    println!("{:<26} {:>14} {:>14} {:>7} {:>14}", "", "ours µs", "naive µs", "ratio", "decisions/s");
    for workload in WORKLOADS.iter().filter(|w| only.as_ref().is_none_or(|only| w.name.contains(only))) {
        let (ours, rate) = measure(&async |redis| ours(workload, redis).await);
        let (naive, _) = measure(&async |redis| naive(workload, redis).await);
        println!("{:<26} {ours:>14.2} {naive:>14.2} {:>7.2} {rate:>14.0}", workload.name, ours / naive);
    }
    if only.is_none() {
        latency();
    }
}

/// Runs `load` against a server of its own. Returns the server's CPU time a decision in microseconds, and
/// decisions a second.
fn measure(load: &impl AsyncFn(&Redis) -> u64) -> (f64, f64) {
    let redis = Redis::start();
    block_on_local(async {
        // The load returns the number of decisions in its second part, and records the CPU time at its beginning.
        let made = load(&redis).await;
        (redis.cpu_since_mark() / made as f64, made as f64 / RUN_TIME.as_secs_f64())
    })
}

async fn ours(workload: &Workload, redis: &Redis) -> u64 {
    let policy = Rc::new(policy(workload.algorithm, workload.tiers));
    let store = Rc::new(redis.store());
    let entry = Arc::new(Entry {
        time: 1_800_000_000_000_000,
        user: Some("acme".into()),
        method: http::Method::GET,
        path: "/a".into(),
    });
    let identifiers = workload.identifiers;
    let keys = workload.keys;
    run_concurrently(redis, |_| {
        let (policy, store, entry) = (Rc::clone(&policy), Rc::clone(&store), Arc::clone(&entry));
        async move |number| {
            let key = number * 7919 % keys;
            let checks: Vec<Check<'_>> = identifiers
                .iter()
                .map(|kind| Check {
                    policy: &policy,
                    identifier: format!("{kind}key-{key}").into(),
                    cost: 1,
                    detail: match policy.keeps_entries() {
                        true => Detail::Entry(Arc::clone(&entry)),
                        false => Detail::None,
                    },
                })
                .collect();
            store.decide(&checks).await.unwrap();
        }
    })
    .await
}

async fn naive(workload: &Workload, redis: &Redis) -> u64 {
    let script = Rc::new(Script::new(workload.naive));
    let mut connections = Vec::new();
    for _ in 0..CONCURRENCY {
        connections.push(redis.connect().await);
    }
    let (keys, identifiers, tiers) = (workload.keys, workload.identifiers, workload.tiers);
    let is_tiers = workload.naive == TIERS;
    run_concurrently(redis, |index| {
        let (script, connection) = (Rc::clone(&script), connections[index].clone());
        async move |number| {
            let key = number * 7919 % keys;
            let mut call = script.prepare_invoke();
            for kind in identifiers {
                for tier in 0..if is_tiers { tiers.len() } else { 1 } {
                    call.key(format!("ratelimit:{{{kind}key-{key}}}:p:{tier}"));
                }
            }
            call.arg(number).arg(r#"{"time":1800000000000000,"user":"acme","method":"GET","path":"/a"}"#);
            let _: u64 = call.invoke_async(&mut connection.clone()).await.unwrap();
        }
    })
    .await
}

/// The latency of single decisions without other load, alternating with PINGs.
fn latency() {
    let redis = Redis::start();
    let (mut pings, mut decisions) = block_on_local(async {
        let policy = policy(WORKLOADS[1].algorithm, WORKLOADS[1].tiers);
        let (store, mut connection) = (redis.store(), redis.connect().await);
        let (mut pings, mut decisions) = (Vec::new(), Vec::new());
        for number in 0..5_000 {
            let begun = Instant::now();
            let _: String = redis::cmd("PING").query_async(&mut connection).await.unwrap();
            pings.push(begun.elapsed());
            let check = Check {
                policy: &policy,
                identifier: format!("ip:{number}").into(),
                cost: 1,
                detail: Detail::None,
            };
            let begun = Instant::now();
            store.decide(&[check]).await.unwrap();
            decisions.push(begun.elapsed());
        }
        (pings, decisions)
    });
    for times in [&mut pings, &mut decisions] {
        times.sort();
    }
    println!("\none at a time, p50: PING {:?}, a decision {:?}", pings[2_500], decisions[2_500]);
}
