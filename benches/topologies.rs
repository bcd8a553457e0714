//! The cost of a decision on a Redis Cluster of three, beside one server: CPU time of all nodes and of this thread, and
//! decisions a second. And decisions over long round trips: their latency, and the share of timeouts.
//!
//! `cargo bench --bench topologies`; takes `redis-server` from the PATH.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a table is what it is for, and it may end")]

use std::{
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::mpsc,
    task::spawn_local,
    time::sleep_until,
};
use tollgate::{
    config::model::{self, Algorithm, Secret},
    limit::{Check, Policy, ShardedStore, Store, algorithm::Detail},
    store::redis::{RedisStore, Topology},
    telemetry::metrics::StoreMetrics,
};

mod support;

use support::{Redis, load::block_on_local, policy, process::cpu_nanos, settings};

const KEYS: u64 = 10_000;
const RUN_TIME: Duration = Duration::from_secs(3);
const TIMEOUT: Duration = Duration::from_millis(50);
const PATIENT: Duration = Duration::from_secs(5);
/// Decisions a second over long round trips.
const RATE: u32 = 5_000;

fn main() {
    println!(
        "{:<34} {:>12} {:>12} {:>12} {:>12} {:>8}",
        "decisions in flight", "Redis µs", "worker µs", "decisions/s", "a call", "CPU"
    );
    for concurrency in [8, 32, 128, 512] {
        for (name, identifiers) in [("ip", &["ip:"][..]), ("ip and user", &["ip:", "user:"])] {
            let one = [Redis::start()];
            let single = measure(&one, &settings(&one, PATIENT), identifiers, concurrency);
            let three = Redis::cluster(3);
            let cluster = measure(&three, &settings(&three, PATIENT), identifiers, concurrency);
            for (topology, result) in [("one server", &single), ("cluster of 3", &cluster)] {
                println!(
                    "{:<34} {:>12.2} {:>12.2} {:>12.0} {:>12.1} {:>7.2}×",
                    format!("{concurrency:>3}, {name}, {topology}"),
                    result.redis,
                    result.worker,
                    result.rate,
                    result.batch,
                    (result.redis + result.worker) / (single.redis + single.worker),
                );
            }
        }
    }
    println!("\n{RATE} decisions a second at a timeout of {TIMEOUT:?}");
    for delay in [0, 10, 25, 40] {
        round_trips(Duration::from_millis(delay));
    }
}

/// CPU time a decision in microseconds, decisions a second, and decisions a call.
struct Cost {
    redis: f64,
    worker: f64,
    rate: f64,
    batch: f64,
}

async fn open(config: &model::Redis, metrics: Arc<StoreMetrics>) -> Rc<ShardedStore<RedisStore>> {
    let topology = Topology::open(config).unwrap();
    topology.learn().await.unwrap();
    Rc::new(ShardedStore::new(RedisStore::new(topology, config, metrics, None)))
}

fn measure(
    nodes: &[Redis],
    config: &model::Redis,
    identifiers: &'static [&'static str],
    concurrency: usize,
) -> Cost {
    block_on_local(async {
        let store = open(config, Arc::default()).await;
        let policy = Rc::new(policy(Algorithm::FixedWindow, &[(1_000_000_000, 60_000)]));
        let warm_until = Instant::now() + Duration::from_millis(500);
        let end = warm_until + RUN_TIME;
        let tasks: Vec<_> = (0..concurrency)
            .map(|index| {
                let (store, policy) = (Rc::clone(&store), Rc::clone(&policy));
                spawn_local(async move {
                    let (mut number, mut made) = (index as u64, 0_u64);
                    while Instant::now() < end {
                        let key = number * 7919 % KEYS;
                        let checks: Vec<_> = identifiers
                            .iter()
                            .map(|kind| check(&policy, &format!("{kind}key-{key}")))
                            .collect();
                        store.decide(&checks).await.unwrap();
                        number += concurrency as u64;
                        made += u64::from(Instant::now() >= warm_until);
                    }
                    made
                })
            })
            .collect();
        sleep_until(warm_until.into()).await;
        // This runs programs, which takes some milliseconds of both topologies' time.
        nodes.iter().for_each(Redis::mark);
        let before = cpu_nanos();
        let mut made = 0;
        for task in tasks {
            made += task.await.unwrap();
        }
        let made = made as f64;
        Cost {
            redis: nodes.iter().map(Redis::cpu_since_mark).sum::<f64>() / made,
            worker: (cpu_nanos() - before) / 1e3 / made,
            rate: made / RUN_TIME.as_secs_f64(),
            batch: made / nodes.iter().map(Redis::calls_since_mark).sum::<f64>(),
        }
    })
}

fn check<'a>(policy: &'a Policy, identifier: &str) -> Check<'a> {
    Check { policy, identifier: identifier.into(), cost: 1, detail: Detail::None }
}

/// Decisions at an even pace, over round trips of this length.
fn round_trips(round_trip: Duration) {
    let redis = Redis::start();
    block_on_local(async {
        let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", relay.local_addr().unwrap());
        spawn_local(delay_all(relay, redis.address(), round_trip / 2));
        let config = model::Redis { timeout: TIMEOUT, ..model::Redis::at(Secret::new(url)) };
        let store = open(&config, Arc::default()).await;
        let policy = Rc::new(policy(Algorithm::FixedWindow, &[(1_000_000_000, 60_000)]));
        // Until the connections are open and the script is known.
        for _ in 0..20 {
            let _not_yet = store.decide(&[check(&policy, "ip:warm-up")]).await;
        }
        let begun = Instant::now();
        let mut tasks = Vec::new();
        for number in 0..RATE * 4 {
            sleep_until((begun + Duration::from_secs(1) / RATE * number).into()).await;
            let (store, policy) = (Rc::clone(&store), Rc::clone(&policy));
            tasks.push(spawn_local(async move {
                let asked = Instant::now();
                let decided = store.decide(&[check(&policy, &format!("ip:{}", number % 1_000))]).await;
                decided.is_ok().then(|| asked.elapsed())
            }));
        }
        let (mut times, mut failed) = (Vec::new(), 0);
        for task in tasks {
            match task.await.unwrap() {
                Some(time) => times.push(time),
                None => failed += 1,
            }
        }
        times.sort();
        let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
        println!(
            "{:<34} p50 {:>8.1?}  p99 {:>8.1?}  max {:>8.1?}  timed out {failed} of {}",
            format!("round trip {round_trip:?}"),
            at(0.5),
            at(0.99),
            times.last().copied().unwrap_or_default(),
            RATE * 4
        );
    });
}

/// Forwards connections with a delay of each byte.
async fn delay_all(relay: TcpListener, server: String, delay: Duration) {
    while let Ok((client, _)) = relay.accept().await {
        let server = TcpStream::connect(&server).await.unwrap();
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        spawn_local(delay_one_way(from_client, to_server, delay));
        spawn_local(delay_one_way(from_server, to_client, delay));
    }
}

async fn delay_one_way(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (sender, mut receiver) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    spawn_local(async move {
        let mut waiting = VecDeque::new();
        while let Some(chunk) = receiver.recv().await {
            waiting.push_back(chunk);
            while let Some((due, bytes)) = waiting.pop_front() {
                sleep_until(due.into()).await;
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        }
    });
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if sender.send((Instant::now() + delay, buffer[..read].to_vec())).is_err() {
            return;
        }
    }
}
