//! What is told of a server that is not as it should be, and that it is told no longer once it is.

use std::{sync::Arc, time::Duration};

use tollgate::{
    abuse::{AuditLog, ClientRegistry, bans::BanTable},
    api_keys::ApiKeys,
    config::{self, model},
    limit::{Clock, Instances, WallClock},
    peers::{Monitor, MonitorConfig, records::RecordScope},
    store::redis::Topology,
    telemetry::{
        Events,
        metrics::{Metrics, NodeRole, StoreFacts},
    },
    upstream::DrainTable,
};

use crate::{
    config::environment::Environment,
    harness::{
        Config, Deployment, Origin, Redis, Tollgate, Topology as Deployed, eventually, get, on_own_servers,
    },
};

on_own_servers!(
    settings_of_redis_that_change_while_it_runs_are_noticed,
    warnings_are_in_the_status_and_once_in_the_log
);

// The nodes of a cluster would have to evict at the same time.
on_own_servers!([server sentinel] a_server_that_evicts_is_reported_as_long_as_it_does);

/// The least that a configuration says.
const SMALLEST: &str = "
upstreams: { origin: { endpoints: [\"http://127.0.0.1:1\"] } }
routes: [{ path: /*, upstream: origin }]
";

/// One server.
pub(crate) fn by_url(url: &str) -> model::RedisTopology {
    model::RedisTopology::Url(model::Secret::new(url))
}

/// Settings of a server that there is nothing to say of.
pub(crate) const AS_IT_SHOULD_BE: [&str; 4] = ["--maxmemory", "64mb", "--maxmemory-policy", "volatile-ttl"];

/// A monitor that looks at its server all the time, and the instances that it counts.
pub(crate) fn monitor(
    redis: model::RedisTopology,
    prefix: &str,
    api_keys: Arc<ApiKeys>,
) -> (Monitor, Arc<Instances>) {
    let config = model::Redis {
        timeout: Duration::from_secs(5),
        connections: 1,
        prefix: prefix.to_owned(),
        breaker: model::Breaker { failures: 5, retry_after: Duration::from_millis(100) },
        ..model::Redis::new(redis)
    };
    let instances = Arc::new(Instances::default());
    let instance = format!("{:016x}", fastrand::u64(..));
    let retain = Duration::from_secs(3600);
    let metrics = Metrics::new(
        &config::parse("proxy.yaml", SMALLEST, &Environment).unwrap_or_else(|errors| panic!("{errors}")),
        1,
    );
    let clock: Arc<dyn Clock> = Arc::new(WallClock);
    let audit = Arc::new(AuditLog::new(Arc::clone(&clock), &instance, true));
    let bans = BanTable::new(clock, Events::new(), Arc::clone(&audit), Arc::clone(&metrics), true);
    let monitor = Monitor::spawn(MonitorConfig {
        topology: Topology::open(&config).unwrap(),
        redis: config,
        check_every: Duration::from_millis(10),
        scope: RecordScope::new(prefix, &instance, retain),
        instance,
        registry: Arc::new(ClientRegistry::new(&[], retain, Arc::clone(&metrics))),
        bans: Arc::new(bans),
        drains: Arc::new(DrainTable::new(Events::new(), true)),
        api_keys,
        audit,
        clock: WallClock,
        instances: Arc::clone(&instances),
        configuration: Box::new(|| "1a2b".to_owned()),
        on_unblocked: Box::new(|_| {}),
        on_cleared: Box::new(|_, _| {}),
    })
    .unwrap();
    (monitor, instances)
}

/// A monitor that looks at its server all the time.
pub(crate) struct Watched {
    monitor: Option<Monitor>,
    facts: Box<dyn Fn() -> StoreFacts>,
}

impl Watched {
    pub(crate) fn start(redis: model::RedisTopology, prefix: &str) -> Self {
        let (monitor, instances) = monitor(redis, prefix, Arc::default());
        let facts = Box::new(monitor.facts(instances));
        Self { monitor: Some(monitor), facts }
    }

    /// What is said of the server now, but for whether it answers.
    fn said(&self) -> Vec<String> {
        (self.facts)().warnings
    }

    /// What is said once it was looked at.
    pub(crate) fn audited(&self) -> Vec<String> {
        eventually("it is looked at", || !(self.facts)().role.is_empty() || !self.said().is_empty());
        self.said()
    }

    /// Waits until exactly this is said of each server with keys, a word of each warning.
    #[track_caller]
    fn says(&self, words: &[&str]) {
        eventually(&format!("{words:?} is said"), || {
            let (facts, said) = ((self.facts)(), self.said());
            let servers =
                facts.nodes.iter().filter(|node| node.role == Some(NodeRole::Primary)).count().max(1);
            let of_each = words.iter().cycle();
            said.len() == servers * words.len()
                && said.iter().zip(of_each).all(|(said, word)| said.contains(word))
        });
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(monitor) = self.monitor.take() {
            monitor.stop();
        }
    }
}

/// What `/v1/status` warns of.
pub(crate) fn warnings(tollgate: &Tollgate) -> Vec<String> {
    let warnings = tollgate.admin("GET", "/v1/status").json()["warnings"].take();
    serde_json::from_value(warnings).unwrap()
}

fn limited(origin: &Origin, redis: &Deployment) -> Tollgate {
    let rest = format!(
        "store: {{ redis: {{ {}, timeout: 5s }} }}
policies: {{ per-ip: {{ algorithm: sliding_log, key: ip, limit: 100/1h }} }}
",
        redis.settings()
    );
    Tollgate::start(Config::new(&[origin.address], &rest).with_policy("per-ip"))
}

fn counts_in(redis: &Deployment, tollgate: &Tollgate) {
    eventually("it counts in Redis", || {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
        redis.keys().iter().any(|key| key.contains("{ip:"))
    });
}

fn settings_of_redis_that_change_while_it_runs_are_noticed(redis: &Deployment) {
    let watched = Watched::start(redis.located(), "app");
    watched.says(&["maxmemory is not set"]);
    for (name, value, said) in [
        ("maxmemory", "64mb", ["is noeviction"].as_slice()),
        ("maxmemory-policy", "allkeys-lru", &["is allkeys-lru"]),
        ("maxmemory-policy", "volatile-lru", &["is volatile-lru"]),
        ("maxmemory-policy", "volatile-ttl", &[]),
        ("maxmemory", "0", &["maxmemory is not set"]),
        ("maxmemory", "64mb", &[]),
    ] {
        redis.each(&["config", "set", name, value]);
        watched.says(said);
    }
    assert_eq!(
        redis.keys(),
        ["app:instances", "app:{app:instances}:introductions"],
        "looking leaves nothing behind"
    );
}

fn warnings_are_in_the_status_and_once_in_the_log(redis: &Deployment) {
    let (origin, servers) = (Origin::ok(), redis.primaries().len());
    let tollgate = limited(&origin, redis);
    let reconnect = || {
        // Heartbeats are scripts. They are with one server.
        let server = redis.server_of("ratelimit:instances");
        let before = server.cli(&["client", "list"]);
        redis.each(&["client", "kill", "type", "normal"]);
        eventually("it is back", || {
            let now = server.cli(&["client", "list"]);
            now != before && now.lines().filter(|line| line.contains("cmd=evalsha")).count() > 0
        });
    };
    let told =
        || warnings(&tollgate).iter().filter(|warning| warning.contains("maxmemory is not set")).count();
    eventually("it is told of each", || told() == servers);
    for _ in 0..3 {
        reconnect();
    }
    assert_eq!(warnings(&tollgate).len(), servers);
    let count_of = |word: &str| {
        let log = tollgate.log();
        log.iter().filter(|line| line.contains(word) && line.contains("maxmemory is not set")).count()
    };
    assert_eq!(count_of("WARN Redis"), servers, "{:#?}", tollgate.log());
    redis.each(&["config", "set", "maxmemory", "64mb"]);
    redis.each(&["config", "set", "maxmemory-policy", "volatile-ttl"]);
    reconnect();
    eventually("it is told no longer", || warnings(&tollgate).is_empty());
    eventually("each says so", || count_of("INFO Redis") == servers);
    assert_eq!(count_of("WARN Redis"), servers);
    assert!(!tollgate.has_logged(&["rediss://"]), "a connection that broke says nothing of TLS");
}

/// Sentinels would take another server, and a node of a cluster refuses REPLICAOF.
#[test]
fn a_server_that_is_made_a_replica_is_named_and_nothing_waits_for_it() {
    let (origin, redis) = (Origin::ok(), Deployed::Server.with(&AS_IT_SHOULD_BE));
    let tollgate = limited(&origin, &redis);
    counts_in(&redis, &tollgate);
    eventually("there is nothing to say", || warnings(&tollgate).is_empty());
    redis.cli(&["replicaof", "127.0.0.1", "1"]);
    eventually("it is told", || {
        warnings(&tollgate).iter().any(|warning| warning.contains("the server is a read-only replica"))
    });
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    redis.cli(&["replicaof", "no", "one"]);
    eventually("it is told no longer", || warnings(&tollgate).is_empty());
}

/// Sentinels and the nodes of a cluster need these commands of each other, or we to start them.
#[test]
fn a_server_that_hides_what_it_is_serves_all_the_same() {
    let origin = Origin::ok();
    for (arguments, said) in [
        (["--rename-command", "INFO", ""].as_slice(), "the server rejects INFO"),
        (&["--rename-command", "SCAN", "hidden"], "does not know SCAN"),
        (&["--rename-command", "CONFIG", "", "--rename-command", "KEYS", ""], ""),
    ] {
        let redis = Deployed::Server.with(&[AS_IT_SHOULD_BE.as_slice(), arguments].concat());
        let tollgate = limited(&origin, &redis);
        // Without SCAN, keys can't be listed.
        eventually("it counts in Redis", || {
            assert_eq!(get(tollgate.address, "/", &[]).status, 200);
            redis.cli(&["dbsize"]).ends_with('3')
        });
        let warnings = warnings(&tollgate);
        assert_eq!(warnings.len(), usize::from(!said.is_empty()), "{warnings:?}");
        assert!(warnings.iter().all(|warning| warning.contains(said)), "{warnings:?}");
    }
}

#[test]
fn a_node_of_a_cluster_is_named() {
    let redis = Redis::with(&[AS_IT_SHOULD_BE.as_slice(), &["--cluster-enabled", "yes"]].concat());
    Watched::start(by_url(&redis.url()), "app").says(&["a node of a Redis Cluster"]);
}

fn a_server_that_evicts_is_reported_as_long_as_it_does(redis: &Deployment) {
    redis.each(&["config", "set", "maxmemory", "64mb", "maxmemory-policy", "volatile-ttl"]);
    let watched = Watched::start(redis.located(), "app");
    assert_eq!(watched.audited(), [""; 0]);
    // Half of what is there already has to go.
    redis.cli(&[
        "eval",
        "for i = 1, 200 do redis.call('SET', 'k' .. i, ('x'):rep(10000), 'EX', 1000 + i) end",
        "0",
    ]);
    let used = redis.cli(&["eval", "return redis.call('INFO', 'memory'):match('used_memory:(%d+)')", "0"]);
    let used: u64 = used.trim_matches('"').parse().unwrap();
    redis.each(&["config", "set", "maxmemory", &(used - 1_000_000).to_string()]);
    watched.says(&["Redis evicts keys", "90 % of maxmemory"]);
    redis.each(&["config", "set", "maxmemory", "64mb"]);
    watched.says(&[]);
}
