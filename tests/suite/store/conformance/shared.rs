//! A real Redis as a subject: one of each topology for all tests, and a prefix of its own for each store.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bb8_redis::redis::{Client, Connection, FromRedisValue, cmd};
use tollgate::{
    config::model::{self, Algorithm},
    limit::{Clock, DecisionSource, ManualClock, Receipt, ShardedStore},
    store::redis::{self, RedisStore},
    telemetry::metrics::StoreMetrics,
};

use super::{
    ALGORITHMS, Harness, MINUTE, SECOND, Subject,
    harness::{START, member_check},
    policy,
};
use crate::harness::{Deployment, Redis, Topology, eventually};

/// A Redis that all tests on its topology share. Never dropped, and ends with this process.
pub(crate) trait Deployed {
    /// Whether all keys are in one slot.
    const IS_STRICT: bool = false;

    fn deployment() -> &'static Deployment;

    /// The URLs of the servers with keys, which stay the same.
    fn primaries() -> &'static [String];
}

macro_rules! deployed {
    ($($topology:ident $name:ident;)*) => {
        $(
            pub(crate) struct $name;

            impl Deployed for $name {
                fn deployment() -> &'static Deployment {
                    static DEPLOYMENT: LazyLock<Deployment> = LazyLock::new(|| Topology::$topology.start());
                    &DEPLOYMENT
                }

                fn primaries() -> &'static [String] {
                    static PRIMARIES: LazyLock<Vec<String>> =
                        LazyLock::new(|| $name::deployment().primaries().into_iter().map(Redis::url).collect());
                    &PRIMARIES
                }
            }
        )*
    };
}

deployed! {
    Server Shared;
    Sentinel BehindSentinel;
    Cluster Clustered;
}

/// [`Clustered`], with all keys in one slot.
pub(crate) struct InOneSlot;

impl Deployed for InOneSlot {
    const IS_STRICT: bool = true;

    fn deployment() -> &'static Deployment {
        Clustered::deployment()
    }

    fn primaries() -> &'static [String] {
        Clustered::primaries()
    }
}

/// A part of a Redis.
pub(crate) struct Place {
    topology: Arc<redis::Topology>,
    pub(super) config: model::Redis,
    clock: Arc<ManualClock>,
    /// To the servers with keys.
    pub(super) primaries: Vec<Mutex<Connection>>,
}

impl Place {
    fn new<D: Deployed>(clock: Arc<ManualClock>) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let mut located = D::deployment().located();
        if let model::RedisTopology::Cluster(cluster) = &mut located {
            cluster.is_strict = D::IS_STRICT;
        }
        let config = model::Redis {
            // Many threads on few cores: it is not the time that is tested.
            timeout: Duration::from_secs(20),
            breaker: model::Breaker { failures: u32::MAX, retry_after: Duration::from_secs(1) },
            connections: 1,
            prefix: format!("test{}", NUMBERS.fetch_add(1, Ordering::Relaxed)),
            ..model::Redis::new(located)
        };
        let topology = redis::Topology::open(&config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        eventually("it says where its keys are", || runtime.block_on(topology.learn()).is_ok());
        let connect = |url: &String| Client::open(url.as_str()).unwrap().get_connection().unwrap();
        let primaries = D::primaries().iter().map(connect).map(Mutex::new).collect();
        Self { topology, config, clock, primaries }
    }

    /// What a script returns at each server that has keys. Its argument is the pattern of ours.
    fn each<T: FromRedisValue>(&self, script: &str) -> Vec<T> {
        let mut command = cmd("EVAL");
        command.arg(script).arg(0).arg(format!("{}:*", self.config.key_prefix()));
        let ask = |server: &Mutex<Connection>| command.query(&mut server.lock().unwrap()).unwrap();
        self.primaries.iter().map(ask).collect()
    }
}

impl Drop for Place {
    /// Leaves nothing behind: the servers look through all keys for a pattern.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.each::<()>(
                "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('UNLINK', key) end",
            );
        }
    }
}

impl<D: Deployed> Subject for D {
    type Place = Place;
    type Store = ShardedStore<RedisStore>;

    fn place(clock: Arc<ManualClock>) -> Place {
        Place::new::<D>(clock)
    }

    fn store(place: &Place) -> Self::Store {
        let clock: Arc<dyn Clock> = Arc::clone(&place.clock) as _;
        ShardedStore::new(RedisStore::new(
            Arc::clone(&place.topology),
            &place.config,
            Arc::new(StoreMetrics::default()),
            Some(clock),
        ))
    }

    fn dump(place: &Place) -> String {
        let script = "local found = {}
            for at, key in ipairs(redis.call('KEYS', ARGV[1])) do
                found[at] = { key, redis.call('DUMP', key), redis.call('PEXPIRETIME', key) }
            end
            return found";
        let found = place.each::<Vec<Found>>(script).into_iter().flatten();
        let text = |(key, value, expires): &Found| {
            format!("{} {value:02x?} {expires}\n", String::from_utf8_lossy(key))
        };
        let all: BTreeMap<_, _> = found.map(|found| (found.0.clone(), text(&found))).collect();
        all.into_values().collect()
    }
}

/// A key, its value and when it expires.
type Found = (Vec<u8>, Option<Vec<u8>>, i64);

/// The one server of [`Shared`].
static SERVER: LazyLock<&Redis> = LazyLock::new(|| Shared::deployment().primaries()[0]);

#[test]
fn a_log_from_which_units_were_taken_by_hand_goes_on() {
    let harness = Harness::<Shared>::new();
    let policy = policy("p", Algorithm::SlidingLog, &[(5, SECOND)]);
    for micros in 0..5 {
        assert!(harness.at(micros).take(&policy, "ip:1", 1).admitted);
    }
    let key = format!("{}:{{ip:1}}:p:sl.1s", harness.place.config.prefix);
    assert_eq!(SERVER.cli(&["zremrangebyrank", &key, "1", "3"]), "3");
    // By their numbers it would be full: before it denies, it counts.
    let admitted = harness.at(10).take(&policy, "ip:1", 3);
    assert_eq!((admitted.admitted, admitted.remaining), (true, 0));
    let denied = harness.at(11).take(&policy, "ip:1", 1);
    assert_eq!((denied.admitted, denied.remaining), (false, 0));
    assert!(harness.at(1_000_010).take(&policy, "ip:1", 5).admitted);
}

#[test]
fn a_denial_leaves_the_bytes_and_the_expiry_of_a_key() {
    for algorithm in ALGORITHMS {
        let harness = Harness::<Shared>::new();
        let policy = policy("p", algorithm, &[(3, SECOND)]);
        harness.at(250_000).exhaust(&policy, "ip:1");
        let pattern = format!("{}:*", harness.place.config.prefix);
        let key = SERVER.cli(&["keys", &pattern]).trim().to_owned();
        let seen = || (SERVER.cli(&["--no-raw", "dump", &key]), SERVER.cli(&["pexpiretime", &key]));
        let before = seen();
        for micros in [250_000, 250_001, 700_000, 999_999, 249_000] {
            // All three fit nowhere here, though one may.
            assert!(!harness.at(micros).take(&policy, "ip:1", 3).admitted, "{algorithm:?} at {micros}");
            assert_eq!(seen(), before, "{algorithm:?} at {micros}");
        }
        assert!(before.1.trim().parse::<u64>().is_ok_and(|time| time > 0), "{algorithm:?}: {before:?}");
    }
}

#[test]
fn a_denial_leaves_the_members_of_a_key_those_that_count_no_longer_included() {
    for algorithm in [Algorithm::Distinct, Algorithm::Concurrency] {
        let harness = Harness::<Shared>::new();
        let policy = policy("p", algorithm, &[(2, SECOND)]);
        for (time, member) in [(0, 1), (600_000, 2), (1_100_000, 3)] {
            assert!(harness.at(time).enter(&policy, "ip:1", member).admitted, "{algorithm:?}");
        }
        let key = SERVER.cli(&["keys", &format!("{}:*", harness.place.config.prefix)]);
        let seen = || (SERVER.cli(&["--no-raw", "dump", &key]), SERVER.cli(&["pexpiretime", &key]));
        // One that counts no longer: the next write would remove it.
        SERVER.cli(&["zadd", &key, &START.to_string(), "sixteen bytes, 1"]);
        let before = seen();
        for micros in [1_100_000, 1_100_001, 1_599_999] {
            assert!(!harness.at(micros).enter(&policy, "ip:1", 4).admitted, "{algorithm:?} at {micros}");
            assert_eq!(seen(), before, "{algorithm:?} at {micros}");
        }
        assert!(before.1.parse::<u64>().is_ok_and(|time| time > 0), "{algorithm:?}: {before:?}");
        assert!(harness.at(1_600_000).enter(&policy, "ip:1", 4).admitted, "{algorithm:?}");
        assert_eq!(SERVER.cli(&["zcard", &key]), "2", "{algorithm:?}");
    }
}

/// However a key lost its expiry: it counts as before, and has one again in the next window at the latest.
#[test]
fn a_key_whose_expiry_was_taken_away_has_one_again() {
    for algorithm in ALGORITHMS.into_iter().chain([Algorithm::Distinct, Algorithm::Concurrency]) {
        let harness = Harness::<Shared>::new();
        let policy = policy("p", algorithm, &[(100, MINUTE)]);
        let enter = |member| harness.at(0).enter(&policy, "ip:1", member);
        assert!(enter(0).admitted, "{algorithm:?}");
        let key = SERVER.cli(&["keys", &format!("{}:*", harness.place.config.prefix)]);
        assert_eq!(SERVER.cli(&["persist", &key]), "1", "{algorithm:?}");
        for (member, left) in (1..=16).zip((0..99).rev()) {
            assert_eq!(enter(member).remaining, left, "{algorithm:?}: what it holds counts");
        }
        assert!(harness.at(60_000_000).enter(&policy, "ip:1", 17).admitted, "{algorithm:?}");
        let left: i64 = SERVER.cli(&["pttl", &key]).parse().unwrap();
        assert!(left > 0, "{algorithm:?}: {left}");
    }
}

/// Each kind of value, for each algorithm: most are of another kind than its own.
#[test]
fn foreign_values_limit_nobody_and_expire() {
    let far = "99999999999999999999999";
    let garbage: [&[&str]; 9] = [
        &["set", "KEY", ""],
        &["set", "KEY", "sixteen bytes, 1"],
        &["set", "KEY", "twenty-four bytes, 12345"],
        &["zadd", "KEY", "5", "foreign"],
        &["zadd", "KEY", "1e300", far, "-inf", "-1", "inf", "sixteen bytes, 1"],
        &["rpush", "KEY", "foreign", ""],
        &["rpush", "KEY", "99999999999999999999999:1 {}"],
        &["hset", "KEY", "a", "b"],
        &["sadd", "KEY", "a"],
    ];
    for algorithm in ALGORITHMS.into_iter().chain([Algorithm::Distinct, Algorithm::Concurrency]) {
        let harness = Harness::<Shared>::new();
        let policy = policy("p", algorithm, &[(2, MINUTE)]);
        let key = format!("{}:{{ip:1}}:p:{}", harness.place.config.prefix, policy.shape);
        for command in garbage {
            SERVER.cli(&["del", &key]);
            let command: Vec<_> =
                command.iter().map(|&word| if word == "KEY" { key.as_str() } else { word }).collect();
            let said = SERVER.cli(&command);
            assert!(!said.contains("ERR"), "{command:?}: {said}");
            for (member, left) in [(1, Some(1)), (2, Some(0)), (3, None)] {
                let verdict = harness.enter(&policy, "ip:1", member);
                let told = verdict.admitted.then_some(verdict.remaining);
                assert_eq!(told, left, "{algorithm:?} {command:?}");
            }
            let left: i64 = SERVER.cli(&["pttl", &key]).parse().unwrap();
            assert!(left > 0, "{algorithm:?} {command:?}: {left}");
        }
    }
}

#[test]
fn foreign_values_count_as_nothing() {
    let harness = Harness::<Shared>::new();
    let prefix = &harness.place.config.prefix;
    let window = policy("p", Algorithm::SlidingWindow { buckets: 10 }, &[(2, SECOND)]);
    for text in ["", "foreign", &"x".repeat(60)] {
        SERVER.cli(&["set", &format!("{prefix}:{{ip:1}}:p:sw.1s"), text]);
        assert_eq!(harness.take(&window, "ip:1", 1).remaining, 1, "{text:?}");
        assert_eq!(harness.take(&window, "ip:1", 1).remaining, 0, "{text:?}");
    }
    for (algorithm, shape) in [(Algorithm::Distinct, "di.1s"), (Algorithm::Concurrency, "cc.1s")] {
        let policy = policy("p", algorithm, &[(2, SECOND)]);
        let key = format!("{prefix}:{{ip:1}}:p:{shape}");
        SERVER.cli(&["set", &key, "foreign"]);
        let checks = [member_check(&policy, "ip:1", 7)];
        let decision = harness.exchange(&checks, Receipt { source: DecisionSource::Store, time: START });
        assert!(decision.admitted && decision.verdicts[0].remaining == 1, "{algorithm:?}");
        assert_eq!(SERVER.cli(&["type", &key]), "zset");
        assert_eq!(harness.enter(&policy, "ip:1", 8).remaining, 0, "{algorithm:?}");
        assert!(!harness.enter(&policy, "ip:1", 9).admitted, "{algorithm:?}");
        assert_ne!(SERVER.cli(&["pttl", &key]), "-1", "{algorithm:?}");
    }
}

#[test]
fn members_that_count_no_longer_are_removed_by_the_next_write() {
    for (algorithm, shape) in [(Algorithm::Distinct, "di.1s"), (Algorithm::Concurrency, "cc.1s")] {
        let harness = Harness::<Shared>::new();
        let policy = policy("p", algorithm, &[(2, SECOND)]);
        let key = format!("{}:{{ip:1}}:p:{shape}", harness.place.config.prefix);
        for (time, member) in [(0, 1), (1_000_000, 2), (900_000_000, 3), (1_000_000, 4)] {
            assert!(harness.at(time).enter(&policy, "ip:1", member).admitted, "{algorithm:?}");
            assert_eq!(SERVER.cli(&["zcard", &key]), "1", "{algorithm:?} at {time}");
        }
        harness.enter(&policy, "ip:1", 5);
        assert_eq!(SERVER.cli(&["zcard", &key]), "2", "{algorithm:?}");
    }
}
