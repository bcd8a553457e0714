//! Redis' CPU time a decision, with 32 under way, against what most do: one EVALSHA a request, on a connection
//! of its own, of a script for that algorithm alone. And the latency of one decision beside a PING.
//!
//! `cargo bench --bench redis [NAME]`; takes `redis-server` from the PATH.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a table is what it is for, and it may end")]

use std::{
    env, fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{Client, Script, aio::MultiplexedConnection};
use tokio::{
    runtime::{Builder, LocalOptions},
    task::spawn_local,
};
use tollgate::{
    config::model::{self, Algorithm},
    limit::{
        Breaker, Check, Policy, PolicyId, Store,
        algorithm::{Detail, metadata_list::Entry},
    },
    store::redis::{RedisStore, Server},
    telemetry::metrics::StoreMetrics,
};

const UNDER_WAY: usize = 32;
const KEYS: u64 = 10_000;
const WARM: Duration = Duration::from_millis(500);
const RUN: Duration = Duration::from_secs(2);

/// What is compared: the checks of a request, and what a script written for them alone would do.
struct Workload {
    name: &'static str,
    algorithm: Algorithm,
    /// So many in so many milliseconds.
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

const MANY: u64 = 1_000_000_000;

const WORKLOADS: [Workload; 7] = [
    Workload {
        name: "single_counter",
        algorithm: Algorithm::SingleCounter,
        tiers: &[(MANY, 60_000)],
        identifiers: &["ip:"],
        keys: KEYS,
        naive: COUNTER,
    },
    Workload {
        name: "fixed_window",
        algorithm: Algorithm::FixedWindow,
        tiers: &[(MANY, 60_000)],
        identifiers: &["ip:"],
        keys: KEYS,
        naive: COUNTER,
    },
    Workload {
        name: "fixed_window, hot key",
        algorithm: Algorithm::FixedWindow,
        tiers: &[(MANY, 60_000)],
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
        tiers: &[(MANY, 1_000), (MANY, 60_000), (MANY, 3_600_000)],
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

/// Runs `load` against a server of its own. Gives the server's CPU time a decision in microseconds, and
/// decisions a second.
fn measure(load: &impl AsyncFn(&Redis) -> u64) -> (f64, f64) {
    let redis = Redis::start();
    local(async {
        // The load says how many it made in its second part, and notes the CPU time at its beginning.
        let made = load(&redis).await;
        (redis.since_mark() / made as f64, made as f64 / RUN.as_secs_f64())
    })
}

async fn ours(workload: &Workload, redis: &Redis) -> u64 {
    let policy = Rc::new(policy(workload));
    let store = Rc::new(redis.store());
    let entry = Arc::new(Entry {
        time: 1_800_000_000_000_000,
        user: Some("acme".into()),
        method: http::Method::GET,
        path: "/a".into(),
    });
    let identifiers = workload.identifiers;
    let keys = workload.keys;
    under_way(redis, |_| {
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
    for _ in 0..UNDER_WAY {
        connections.push(redis.connect().await);
    }
    let (keys, identifiers, tiers) = (workload.keys, workload.identifiers, workload.tiers);
    let is_tiers = workload.naive == TIERS;
    under_way(redis, |index| {
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

/// Keeps as many decisions under way for the time of a run, and says how many were made after the warm-up.
async fn under_way<W: AsyncFn(u64) + 'static>(redis: &Redis, worker: impl Fn(usize) -> W) -> u64 {
    let (begun, end) = (Instant::now() + WARM, Instant::now() + WARM + RUN);
    let tasks: Vec<_> = (0..UNDER_WAY)
        .map(|index| {
            let worker = worker(index);
            spawn_local(async move {
                let (mut number, mut made) = (index as u64, 0);
                while Instant::now() < end {
                    worker(number).await;
                    number += UNDER_WAY as u64;
                    made += u64::from(Instant::now() >= begun);
                }
                made
            })
        })
        .collect();
    tokio::time::sleep_until(begun.into()).await;
    redis.mark();
    let mut made = 0;
    for task in tasks {
        made += task.await.unwrap();
    }
    made
}

/// What one decision takes when nothing else is asked, in turn with a PING.
fn latency() {
    let redis = Redis::start();
    let (mut pings, mut decisions) = local(async {
        let policy = policy(&WORKLOADS[1]);
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

fn policy(workload: &Workload) -> Policy {
    let rate = |&(limit, millis)| model::Rate { limit, window: Duration::from_millis(millis) };
    let keys = vec![model::KeyRecipe(vec![model::KeyPart::Ip])];
    let config =
        model::Policy::new("bench", workload.algorithm, keys, workload.tiers.iter().map(rate).collect());
    Policy::new(&config, PolicyId(0))
}

fn local<T>(work: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.unwrap().block_on(work)
}

/// A server of its own, which ends when it is dropped.
struct Redis {
    child: Child,
    port: u16,
    mark: std::cell::Cell<f64>,
}

impl Redis {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Self { child, port, mark: std::cell::Cell::new(0.0) };
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        redis
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    async fn connect(&self) -> MultiplexedConnection {
        Client::open(self.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
    }

    fn store(&self) -> RedisStore {
        let config = model::Redis {
            url: model::Secret::new(self.url()),
            tls: model::RedisTls::default(),
            timeout: Duration::from_secs(5),
            connections: 2,
            prefix: "ratelimit".to_owned(),
            breaker: model::Breaker { failures: 5, retry_after: Duration::from_secs(1) },
        };
        let server = Server::new(&config).unwrap();
        let metrics = Arc::new(StoreMetrics::default());
        RedisStore::new(server, &config, Arc::new(Breaker::new(5)), metrics, None)
    }

    /// CPU time so far, in microseconds.
    fn cpu(&self) -> f64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let of = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("schedstat")).unwrap();
            stat.split(' ').next().unwrap().parse::<f64>().unwrap()
        };
        tasks.map(|task| of(task.unwrap())).sum::<f64>() / 1e3
    }

    fn mark(&self) {
        self.mark.set(self.cpu());
    }

    fn since_mark(&self) -> f64 {
        self.cpu() - self.mark.get()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
