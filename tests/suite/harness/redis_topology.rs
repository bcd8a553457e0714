//! A Redis of each topology, so that one test runs on all of them.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tollgate::config::model;

use super::{
    Authority, Cluster, MASTER, Redis, Sentinels, bound::Bound, eventually, file_name, redis_cluster::slot_of,
};

/// After so many milliseconds of silence the others take a server for failed. No stall of the machine is that long:
/// nothing is promoted that no test has killed.
pub(super) const SILENCE_AT_REST: &str = "10000";
/// Likewise from a kill to the promotion of a replica, and while a cluster is put together.
pub(super) const SILENCE_AFTER_KILL: &str = "1000";

/// Groups of several servers at once. Four are those that tests share, once they run: two of the conformance tests.
pub(super) static SEVERAL_SERVERS: Bound = Bound::new(8);

/// How Redis is deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Server,
    /// A primary with replicas, watched by Sentinels.
    Sentinel,
    /// Primaries that share the keys, with a replica each.
    Cluster,
}

/// Servers that run.
pub enum Servers {
    Server(Redis),
    Sentinel(Sentinels),
    Cluster(Cluster),
}

/// Where a test has its keys: on servers of its own, which it may stop and configure, or on those that tests share, under a
/// prefix of its own. Tests name their keys by [`DEFAULT_PREFIX`] in both cases.
pub struct Deployment {
    servers: Held,
    prefix: String,
}

enum Held {
    Own(Servers),
    /// Never dropped: they end with this process.
    Shared(&'static Servers),
}

/// Of keys, unless `store.redis.prefix` says otherwise.
const DEFAULT_PREFIX: &str = "ratelimit";
/// What a command begins with that others would notice.
const OF_THE_WHOLE_SERVER: [&str; 15] = [
    "acl",
    "client",
    "cluster",
    "config",
    "debug",
    "failover",
    "flushall",
    "flushdb",
    "function",
    "keys",
    "replicaof",
    "script",
    "shutdown",
    "slowlog",
    "swapdb",
];

impl Topology {
    /// Servers of the test's own.
    pub fn start(self) -> Deployment {
        self.with(&[])
    }

    /// Likewise with these settings of each server, as arguments of `redis-server`: those for TLS are the Sentinels', too.
    pub fn with(self, arguments: &[&str]) -> Deployment {
        self.servers(arguments).into()
    }

    /// A part of the servers that tests share.
    pub fn shared(self) -> Deployment {
        static STARTED: [Mutex<Option<&Servers>>; 3] = [const { Mutex::new(None) }; 3];
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        // If they did not start for one test, the next one tries again.
        let mut started = STARTED[self as usize].lock().unwrap_or_else(PoisonError::into_inner);
        let servers = *started.get_or_insert_with(|| Box::leak(Box::new(self.servers(&[]))));
        let prefix = format!("shared{}", NUMBERS.fetch_add(1, Relaxed));
        Deployment { servers: Held::Shared(servers), prefix }
    }

    fn servers(self, arguments: &[&str]) -> Servers {
        match self {
            Self::Server => Servers::Server(Redis::with(arguments)),
            Self::Sentinel => {
                let of_tls = arguments.chunks(2).filter(|pair| pair[0].starts_with("--tls-"));
                Servers::Sentinel(Sentinels::with(arguments, &of_tls.flatten().copied().collect::<Vec<_>>()))
            }
            Self::Cluster => Servers::Cluster(Cluster::with(arguments)),
        }
    }
}

impl From<Servers> for Deployment {
    fn from(servers: Servers) -> Self {
        Self { servers: Held::Own(servers), prefix: DEFAULT_PREFIX.to_owned() }
    }
}

impl Deployment {
    /// The servers, to be looked at.
    pub fn running(&self) -> &Servers {
        match &self.servers {
            Held::Own(servers) => servers,
            Held::Shared(servers) => servers,
        }
    }

    /// The servers, to be stopped or configured.
    #[track_caller]
    pub fn own(&mut self) -> &mut Servers {
        match &mut self.servers {
            Held::Own(servers) => servers,
            Held::Shared(_) => panic!("other tests need these servers"),
        }
    }

    #[track_caller]
    pub fn cluster(&mut self) -> &mut Cluster {
        match self.own() {
            Servers::Cluster(cluster) => cluster,
            _ => panic!("it is no cluster"),
        }
    }

    fn is_shared(&self) -> bool {
        matches!(self.servers, Held::Shared(_))
    }

    /// Which keys are the test's: all, on servers of its own.
    pub fn pattern(&self) -> &'static str {
        if self.is_shared() { "ratelimit:*" } else { "*" }
    }

    /// What a test calls a key, or a text that names some, as the servers know it.
    fn in_place(&self, text: &str) -> String {
        text.replace(&format!("{DEFAULT_PREFIX}:"), &format!("{}:", self.prefix))
    }

    pub fn topology(&self) -> Topology {
        match self.running() {
            Servers::Server(_) => Topology::Server,
            Servers::Sentinel(_) => Topology::Sentinel,
            Servers::Cluster(_) => Topology::Cluster,
        }
    }

    /// What stands in `store.redis`: where it is, and the prefix.
    pub fn settings(&self) -> String {
        let settings = match self.running() {
            Servers::Server(redis) => {
                let password = redis.password().map(|password| format!("://:{password}@"));
                format!("url: \"{}\"", redis.url().replace("://", password.as_deref().unwrap_or("://")))
            }
            Servers::Sentinel(redis) => redis.settings(),
            Servers::Cluster(redis) => redis.settings(),
        };
        if self.is_shared() { format!("{settings}, prefix: {}", self.prefix) } else { settings }
    }

    /// The same, read: where it is.
    pub fn located(&self) -> model::RedisTopology {
        let url = |server: &Redis| model::Secret::new(server.url());
        match self.running() {
            Servers::Server(redis) => model::RedisTopology::Url(url(redis)),
            Servers::Sentinel(redis) => model::RedisTopology::Sentinel(model::Sentinel {
                master: MASTER.to_owned(),
                nodes: redis.sentinels.iter().map(url).collect(),
                user: None,
                password: None,
            }),
            Servers::Cluster(redis) => model::RedisTopology::Cluster(model::Cluster {
                nodes: redis.nodes.iter().map(url).collect(),
                is_strict: false,
            }),
        }
    }

    /// The prefix of all keys.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// What `redis-cli ARGUMENTS` prints, asked of the server that has the command's key.
    #[track_caller]
    pub fn cli(&self, arguments: &[&str]) -> String {
        let arguments = self.addressed(arguments);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        match self.running() {
            Servers::Server(redis) => redis.cli(&arguments),
            Servers::Sentinel(redis) => redis.cli(&arguments),
            Servers::Cluster(redis) => redis.cli_key(&arguments),
        }
    }

    /// The same asked of each primary, for commands without a key.
    #[track_caller]
    pub fn each(&self, arguments: &[&str]) -> Vec<String> {
        let arguments = self.addressed(arguments);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        self.primaries().into_iter().map(|primary| primary.cli(&arguments)).collect()
    }

    #[track_caller]
    fn addressed(&self, arguments: &[&str]) -> Vec<String> {
        let command =
            arguments.iter().find(|argument| !argument.starts_with('-')).map(|word| word.to_lowercase());
        let for_all = command.is_none_or(|command| OF_THE_WHOLE_SERVER.contains(&command.as_str()));
        assert!(!self.is_shared() || !for_all, "other tests would notice: {arguments:?}");
        arguments.iter().map(|argument| self.in_place(argument)).collect()
    }

    /// The servers that have keys.
    pub fn primaries(&self) -> Vec<&Redis> {
        match self.running() {
            Servers::Server(redis) => vec![redis],
            Servers::Sentinel(redis) => vec![&redis.servers[redis.primary()]],
            Servers::Cluster(redis) => redis.primaries().into_iter().map(|node| &redis.nodes[node]).collect(),
        }
    }

    /// The server that has a key.
    pub fn server_of(&self, key: &str) -> &Redis {
        self.server_of_slot(slot_of(&self.in_place(key)))
    }

    /// The server that has the keys of a slot.
    pub fn server_of_slot(&self, slot: u16) -> &Redis {
        self.servers()[self.primary(slot).expect("somebody has the slot")]
    }

    /// The server that has the keys of a slot, as the others know it, if it is known.
    fn primary(&self, slot: u16) -> Option<usize> {
        match self.running() {
            Servers::Server(_) => Some(0),
            Servers::Sentinel(redis) => redis.primary_by(0),
            Servers::Cluster(redis) => redis.owner(slot),
        }
    }

    /// Kills the primary that has the keys of a slot. Its number among the servers.
    pub fn kill_primary(&mut self, slot: u16) -> usize {
        let primary = self.primary(slot).expect("somebody has the slot");
        match self.own() {
            Servers::Server(redis) => redis.kill(),
            Servers::Sentinel(redis) => redis.kill(primary),
            Servers::Cluster(redis) => redis.kill(primary),
        }
        primary
    }

    /// Waits until another server than this one has the keys of a slot.
    #[track_caller]
    pub fn wait_for_another_primary(&self, slot: u16, dead: usize) {
        eventually("a replica is promoted", || self.primary(slot).is_some_and(|primary| primary != dead));
        match self.running() {
            Servers::Server(_) => {}
            Servers::Sentinel(redis) => redis.set_down_after(SILENCE_AT_REST),
            Servers::Cluster(redis) => redis.set_node_timeout(SILENCE_AT_REST),
        }
    }

    /// Starts again a server that was killed, and waits until it is a replica.
    #[track_caller]
    pub fn rejoin(&mut self, dead: usize) {
        match self.own() {
            Servers::Server(redis) => redis.restart(),
            Servers::Sentinel(redis) => {
                redis.restart(dead);
                redis.wait_until_replica(dead);
            }
            Servers::Cluster(redis) => {
                redis.restart(dead);
                redis.wait_until_settled();
            }
        }
    }

    /// All keys of the test, sorted, as it calls them.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.primaries().into_iter().flat_map(Redis::keys).collect();
        if self.is_shared() {
            let own = format!("{}:", self.prefix);
            keys.retain(|key| key.starts_with(&own));
            keys = keys.iter().map(|key| key.replace(&own, &format!("{DEFAULT_PREFIX}:"))).collect();
        }
        keys.sort();
        keys
    }

    /// Removes all keys of the test.
    pub fn clear(&self) {
        for key in self.keys() {
            self.cli(&["del", &key]);
        }
    }

    /// All servers, but for Sentinels.
    pub fn servers(&self) -> Vec<&Redis> {
        match self.running() {
            Servers::Server(redis) => vec![redis],
            Servers::Sentinel(redis) => redis.servers.iter().collect(),
            Servers::Cluster(redis) => redis.nodes.iter().collect(),
        }
    }

    fn servers_mut(&mut self) -> Vec<&mut Redis> {
        match self.own() {
            Servers::Server(redis) => vec![redis],
            Servers::Sentinel(redis) => redis.servers.iter_mut().collect(),
            Servers::Cluster(redis) => redis.nodes.iter_mut().collect(),
        }
    }

    /// Stops all servers where they stand.
    #[track_caller]
    pub fn pause(&self) {
        assert!(!self.is_shared(), "other tests need these servers");
        self.servers().into_iter().for_each(Redis::pause);
    }

    pub fn resume(&self) {
        self.servers().into_iter().for_each(Redis::resume);
    }

    /// Ends all servers at once; Sentinels stay.
    pub fn kill(&mut self) {
        self.servers_mut().into_iter().for_each(Redis::kill);
    }

    /// Starts all servers again where they were, empty, and waits until they serve.
    pub fn restart(&mut self) {
        self.kill();
        self.servers_mut().into_iter().for_each(Redis::restart);
        if let Servers::Cluster(redis) = self.running() {
            redis.wait_until_settled();
        }
    }
}

/// Tests on each topology, on servers that tests share: `on_each_topology!(a, b)` runs `fn a(redis: &Deployment)` as the tests
/// `a::server`, `a::sentinel` and `a::cluster`. `on_own_servers!(a, b)` does so for `fn a(redis: &mut Deployment)`, each
/// test on servers of its own; `on_own_servers!([server cluster] a, b)` leaves some out.
macro_rules! on_each_topology {
    ($($test:ident),* $(,)?) => {
        $crate::harness::on_topologies!(shared [server sentinel cluster] $($test),*);
    };
}

macro_rules! on_own_servers {
    ([$($topology:ident)*] $($test:ident),* $(,)?) => {
        $crate::harness::on_topologies!(start [$($topology)*] $($test),*);
    };
    ($($test:ident),* $(,)?) => {
        $crate::harness::on_topologies!(start [server sentinel cluster] $($test),*);
    };
}

/// Tests on each store: `on_each_store!(a, b)` runs `fn a(redis: Option<&Deployment>)` as the tests `a::memory`,
/// `a::server`, `a::sentinel` and `a::cluster`, on servers that tests share.
macro_rules! on_each_store {
    ($($test:ident),* $(,)?) => {
        $(
            mod $test {
                #[test]
                fn memory() {
                    super::$test(None);
                }

                #[test]
                fn server() {
                    super::$test(Some(&$crate::harness::Topology::Server.shared()));
                }

                #[test]
                fn sentinel() {
                    super::$test(Some(&$crate::harness::Topology::Sentinel.shared()));
                }

                #[test]
                fn cluster() {
                    super::$test(Some(&$crate::harness::Topology::Cluster.shared()));
                }
            }
        )*
    };
}

/// What the macros above have in common.
macro_rules! on_topologies {
    ($servers:ident $topologies:tt $($test:ident),* $(,)?) => {
        $(
            mod $test {
                $crate::harness::on_topologies!(@each $servers $test $topologies);
            }
        )*
    };
    (@each $servers:ident $test:ident [$($topology:ident)*]) => {
        $($crate::harness::on_topologies!(@one $servers $test $topology);)*
    };
    (@one $servers:ident $test:ident server) => {
        #[test]
        fn server() {
            super::$test(&mut $crate::harness::Topology::Server.$servers());
        }
    };
    (@one $servers:ident $test:ident sentinel) => {
        #[test]
        fn sentinel() {
            super::$test(&mut $crate::harness::Topology::Sentinel.$servers());
        }
    };
    (@one $servers:ident $test:ident cluster) => {
        #[test]
        fn cluster() {
            super::$test(&mut $crate::harness::Topology::Cluster.$servers());
        }
    };
}

pub(crate) use {on_each_store, on_each_topology, on_own_servers, on_topologies};

fn keys_are_found_wherever_they_are(redis: &mut Deployment) {
    for key in ["a", "b", "c"] {
        assert_eq!(redis.cli(&["set", key, "1"]), "OK");
    }
    assert_eq!(redis.keys(), ["a", "b", "c"]);
    assert_eq!(redis.each(&["flushall"]), vec!["OK"; redis.primaries().len()]);
    assert_eq!(redis.keys(), [""; 0]);
    let count = if redis.topology() == Topology::Cluster { 3 } else { 1 };
    assert_eq!(redis.primaries().len(), count);
    redis.pause();
    assert!(redis.servers().iter().all(|server| !server.answers()));
    redis.resume();
    redis.restart();
    assert!(redis.servers().iter().all(|server| server.answers()));
}

on_own_servers!(keys_are_found_wherever_they_are);

fn keys_of_one_test_are_no_others(redis: &Deployment) {
    let other = redis.topology().shared();
    let sum = "return redis.call('incrby', KEYS[1], 1) + redis.call('incrby', 'ratelimit:{a}:2', 1)";
    for (redis, expected) in [(redis, "2"), (&other, "2"), (redis, "4")] {
        assert_eq!(redis.cli(&["eval", sum, "1", "ratelimit:{a}:1"]), expected);
        assert_eq!(redis.keys(), ["ratelimit:{a}:1", "ratelimit:{a}:2"]);
        assert_eq!(
            redis.server_of("ratelimit:{a}:1").cli(&["exists", &format!("{}:{{a}}:1", redis.prefix())]),
            "1"
        );
    }
    redis.clear();
    assert_eq!(redis.keys(), [""; 0]);
    assert_eq!(other.keys().len(), 2);
    for unkind in [["flushall"].as_slice(), &["CONFIG", "SET", "maxmemory", "1"]] {
        catch_unwind(AssertUnwindSafe(|| redis.each(unkind))).expect_err("others would notice");
    }
    catch_unwind(AssertUnwindSafe(|| redis.pause())).expect_err("others would wait");
}

on_each_topology!(keys_of_one_test_are_no_others);

#[test]
fn each_topology_may_speak_tls_and_ask_for_a_password() {
    let authority = Authority::new("redis");
    let (issued, ca) = (authority.issue("server", &["localhost", "127.0.0.1"]), authority.file());
    let arguments = [
        ["--tls-cert-file", file_name(&issued.cert)],
        ["--tls-key-file", file_name(&issued.key)],
        ["--tls-ca-cert-file", file_name(&ca)],
        ["--tls-auth-clients", "no"],
        ["--tls-cluster", "yes"],
        ["--tls-replication", "yes"],
        ["--requirepass", "secret"],
        ["--masterauth", "secret"],
    ];
    for topology in [Topology::Server, Topology::Sentinel, Topology::Cluster] {
        let redis = topology.with(&arguments.concat());
        assert_eq!(redis.cli(&["set", "a", "1"]), "OK", "{topology:?}");
        let settings = redis.settings();
        assert!(settings.contains("rediss://") && settings.contains("secret"), "{settings}");
        let port = redis.primaries()[0].tls_port.unwrap().to_string();
        let by_tls = ["--tls", "--cacert", file_name(&ca), "-p", &port, "ping"];
        assert_eq!(redis.primaries()[0].cli(&by_tls), "PONG", "{topology:?}");
    }
}
