//! Round trips to Redis: long ones, and how many there are.

use std::{
    cell::Cell,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use futures_util::future::{join, join_all};
use tokio::{
    runtime::{Builder, LocalOptions},
    time::{sleep, timeout},
};
use tollgate::{
    config::model::{self, Algorithm},
    limit::{Clock, ManualClock, ShardedStore, Store},
    store::redis::{self, RedisStore},
};

use super::conformance::{MINUTE, calendar_policy, policy, single_check};
use crate::harness::{
    Cluster, Config, Deployment, Origin, Redis, Relay, Servers, Tollgate, Topology, eventually, get, slot_of,
};

/// Of a decision; the round trip takes most of it.
const TIMEOUT: Duration = Duration::from_secs(4);
const ROUND_TRIP: Duration = Duration::from_millis(2_500);
/// From one request to the next, so that each comes while others are in flight.
const PACE: Duration = Duration::from_millis(100);

#[test]
fn no_decision_waits_for_the_round_trip_of_another() {
    let (origin, redis) = (Origin::ok(), Redis::start());
    let relay = Relay::to(redis.port);
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
workers: 1
upstreams: {{ origin: {{ endpoints: [\"http://{}\"] }} }}
store: {{ redis: {{ url: \"{}\", timeout: {}ms, connections: 1 }} }}
policies: {{ wide: {{ algorithm: fixed_window, key: ip, limit: 1000/1d, on_store_error: deny }} }}
routes: [{{ path: /*, upstream: origin, policies: [wide] }}]
",
        origin.address,
        relay.url(),
        TIMEOUT.as_millis()
    )));
    let ask = || get(tollgate.address, "/", &[]).status;
    eventually("Redis decides", || ask() == 200);
    relay.delay(ROUND_TRIP);
    let answers: Vec<u16> = thread::scope(|scope| {
        let begin = |number: u32| {
            scope.spawn(move || {
                thread::sleep(PACE * number);
                ask()
            })
        };
        let asked: Vec<_> = (0..60).map(begin).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    assert_eq!(answers, [200; 60], "a decision that times out is denied");
}

/// Small batches cost more: the nodes are asked at once, with a third of the requests each, and again after all answers.
#[test]
fn the_nodes_of_a_cluster_are_asked_in_rounds() {
    const CLIENTS: usize = 48;
    const ROUNDS: usize = 100;
    let cluster = Topology::Cluster.start();
    let config = model::Redis { timeout: Duration::from_secs(20), ..model::Redis::new(cluster.located()) };
    let policy = policy("wide", Algorithm::FixedWindow, &[(1_000, MINUTE)]);
    in_local_runtime(async {
        let topology = redis::Topology::open(&config).unwrap();
        topology.learn().await.unwrap();
        let store = ShardedStore::new(RedisStore::new(topology, &config, Arc::default(), None));
        let client = async |client: usize| {
            for round in 0..ROUNDS {
                let identifier = format!("ip:{client}-{round}");
                store.decide(&[single_check(&policy, &identifier, 1)]).await.unwrap();
            }
        };
        join_all((0..CLIENTS).map(client)).await;
    });
    let calls = |node: &Redis| -> usize {
        let stats = node.cli(&["info", "commandstats"]);
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
    };
    let calls: usize = cluster.primaries().into_iter().map(calls).sum();
    // A round needs a call to each node.
    assert!((3 * ROUNDS..4 * ROUNDS).contains(&calls), "{calls} calls for {} decisions", CLIENTS * ROUNDS);
}

fn in_local_runtime<T>(test: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(test)
}

/// The nodes are asked in rounds, but one that always has something to send puts off no round.
#[test]
fn a_node_that_is_busy_delays_no_decision_of_another() {
    const BUSY: usize = 300;
    let redis = Deployment::from(Servers::Cluster(Cluster::behind_relays()));
    let config = model::Redis { timeout: Duration::from_secs(5), ..model::Redis::new(redis.located()) };
    let Servers::Cluster(cluster) = redis.running() else { unreachable!("it is one") };
    let policy = policy("wide", Algorithm::FixedWindow, &[(1_000_000, MINUTE)]);
    let home = cluster.node_of_slot(slot_of("{ip:busy}"));
    let quiet: Vec<String> = (0..)
        .map(|n| format!("ip:{n}"))
        .filter(|identifier| cluster.node_of_slot(slot_of(&format!("{{{identifier}}}"))) != home)
        .take(20)
        .collect();
    in_local_runtime(async {
        let topology = redis::Topology::open(&config).unwrap();
        topology.learn().await.unwrap();
        let store = ShardedStore::new(RedisStore::new(topology, &config, Arc::default(), None));
        let ask =
            async |identifier: &str| store.decide(&[single_check(&policy, identifier, 1)]).await.unwrap();
        join_all(quiet.iter().map(|identifier| ask(identifier))).await;
        // Its batches overlap, as there are always enough requests for several.
        cluster.relays().iter().for_each(|relay| relay.delay(Duration::from_millis(5)));
        let is_over = Cell::new(false);
        let flood = join_all((0..BUSY).map(async |_| {
            while !is_over.get() {
                ask("ip:busy").await;
            }
        }));
        let others = async {
            for identifier in &quiet {
                sleep(Duration::from_millis(20)).await;
                let asked = timeout(Duration::from_secs(2), ask(identifier)).await;
                assert!(asked.is_ok(), "it waits for the other node");
            }
            is_over.set(true);
        };
        join(flood, others).await;
    });
}

/// Requests that come while the only connection is opened are sent as soon as it is open.
#[test]
fn no_request_waits_for_a_connection_that_there_is() {
    let redis = Redis::start();
    let relay = Relay::to(redis.port);
    let url = model::RedisTopology::Url(model::Secret::new(relay.url()));
    let config = model::Redis { timeout: Duration::from_secs(2), connections: 1, ..model::Redis::new(url) };
    let policy = policy("wide", Algorithm::FixedWindow, &[(1_000_000, MINUTE)]);
    in_local_runtime(async {
        let topology = redis::Topology::open(&config).unwrap();
        topology.learn().await.unwrap();
        let store = ShardedStore::new(RedisStore::new(topology, &config, Arc::default(), None));
        relay.delay(Duration::from_millis(20));
        // They go on asking for longer than one may wait.
        let end = Instant::now() + Duration::from_secs(4);
        let client = async |client: usize| {
            while Instant::now() < end {
                let identifier = format!("ip:{client}");
                store.decide(&[single_check(&policy, &identifier, 1)]).await.unwrap();
            }
        };
        join_all((0..400).map(client)).await;
    });
}

/// Windows of the calendar are sent about the time of the last reply. Another time is no failure: one would open the breaker.
#[test]
fn only_a_time_that_is_not_expected_costs_another_call() {
    let redis = Redis::start();
    let url = model::RedisTopology::Url(model::Secret::new(redis.url()));
    let breaker = model::Breaker { failures: 1, retry_after: Duration::from_secs(600) };
    let config = model::Redis { timeout: Duration::from_secs(20), breaker, ..model::Redis::new(url) };
    let month = model::Window::Calendar(model::CalendarUnit::Month);
    let policy = calendar_policy("monthly", "Europe/Berlin", 1, &[(1_000, month)]);
    let clock = Arc::new(ManualClock::new(0));
    let calls = || -> usize {
        let stats = redis.cli(&["info", "commandstats"]);
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
    };
    in_local_runtime(async {
        let topology = redis::Topology::open(&config).unwrap();
        topology.learn().await.unwrap();
        let clocked: Arc<dyn Clock> = Arc::clone(&clock) as _;
        let store = ShardedStore::new(RedisStore::new(topology, &config, Arc::default(), Some(clocked)));
        let decide = async |time: &str| {
            clock.set(time.parse::<jiff::Timestamp>().unwrap().as_microsecond());
            store.decide(&[single_check(&policy, "ip:1", 1)]).await.unwrap()
        };
        // Loads the script.
        decide("2035-01-02T00:00:00Z").await;
        for (time, expected, left) in [
            ("2035-01-31T22:59:59Z", 1, 998),
            ("2035-01-31T23:00:00Z", 1, 999),
            ("2035-03-31T21:59:59Z", 1, 999),
            ("2035-03-31T22:00:00Z", 1, 999),
            ("2035-07-01T00:00:00Z", 2, 999),
            ("2036-07-01T00:00:00Z", 2, 999),
            ("2036-07-02T00:00:00Z", 1, 998),
        ] {
            let before = calls();
            let decision = decide(time).await;
            assert!(decision.admitted, "{time}");
            assert_eq!((calls() - before, decision.verdicts[0].remaining), (expected, left), "{time}");
        }
    });
}
