//! A Redis of each topology, so that one test runs on all of them.

use tollgate::config::model;

use super::{Authority, Cluster, MASTER, Redis, Sentinels, eventually, file_name, redis_cluster::slot_of};

/// After so many milliseconds of silence the others take a server for failed. No stall of the machine is that long:
/// nothing is promoted that no test has killed.
pub(super) const SILENCE_AT_REST: &str = "10000";
/// Likewise from a kill to the promotion of a replica, and while a cluster is put together.
pub(super) const SILENCE_AFTER_KILL: &str = "1000";

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
pub enum Deployment {
    Server(Redis),
    Sentinel(Sentinels),
    Cluster(Cluster),
}

impl Topology {
    pub fn start(self) -> Deployment {
        self.with(&[])
    }

    /// With these settings of each server besides, as arguments of `redis-server`: those for TLS are the Sentinels', too.
    pub fn with(self, arguments: &[&str]) -> Deployment {
        match self {
            Self::Server => Deployment::Server(Redis::with(arguments)),
            Self::Sentinel => {
                let of_tls = arguments.chunks(2).filter(|pair| pair[0].starts_with("--tls-"));
                Deployment::Sentinel(Sentinels::with(
                    arguments,
                    &of_tls.flatten().copied().collect::<Vec<_>>(),
                ))
            }
            Self::Cluster => Deployment::Cluster(Cluster::with(arguments)),
        }
    }
}

impl Deployment {
    pub fn topology(&self) -> Topology {
        match self {
            Self::Server(_) => Topology::Server,
            Self::Sentinel(_) => Topology::Sentinel,
            Self::Cluster(_) => Topology::Cluster,
        }
    }

    /// What stands in `store.redis`: where it is.
    pub fn settings(&self) -> String {
        match self {
            Self::Server(redis) => {
                let password = redis.password().map(|password| format!("://:{password}@"));
                format!("url: \"{}\"", redis.url().replace("://", password.as_deref().unwrap_or("://")))
            }
            Self::Sentinel(redis) => redis.settings(),
            Self::Cluster(redis) => redis.settings(),
        }
    }

    /// The same, read.
    pub fn located(&self) -> model::RedisTopology {
        let url = |server: &Redis| model::Secret::new(server.url());
        match self {
            Self::Server(redis) => model::RedisTopology::Url(url(redis)),
            Self::Sentinel(redis) => model::RedisTopology::Sentinel(model::Sentinel {
                master: MASTER.to_owned(),
                nodes: redis.sentinels.iter().map(url).collect(),
                user: None,
                password: None,
            }),
            Self::Cluster(redis) => model::RedisTopology::Cluster(model::Cluster {
                nodes: redis.nodes.iter().map(url).collect(),
                is_strict: false,
            }),
        }
    }

    /// What `redis-cli ARGUMENTS` prints, asked of the server that has the command's key.
    pub fn cli(&self, arguments: &[&str]) -> String {
        match self {
            Self::Server(redis) => redis.cli(arguments),
            Self::Sentinel(redis) => redis.cli(arguments),
            Self::Cluster(redis) => redis.cli_key(arguments),
        }
    }

    /// The same asked of each primary, for commands without a key.
    pub fn each(&self, arguments: &[&str]) -> Vec<String> {
        self.primaries().into_iter().map(|primary| primary.cli(arguments)).collect()
    }

    /// The servers that have keys.
    pub fn primaries(&self) -> Vec<&Redis> {
        match self {
            Self::Server(redis) => vec![redis],
            Self::Sentinel(redis) => vec![&redis.servers[redis.primary()]],
            Self::Cluster(redis) => redis.primaries().into_iter().map(|node| &redis.nodes[node]).collect(),
        }
    }

    /// The server that has a key.
    pub fn server_of(&self, key: &str) -> &Redis {
        self.server_of_slot(slot_of(key))
    }

    /// The server that has the keys of a slot.
    pub fn server_of_slot(&self, slot: u16) -> &Redis {
        self.servers()[self.primary(slot).expect("somebody has the slot")]
    }

    /// The server that has the keys of a slot, as the others know it, if it is known.
    fn primary(&self, slot: u16) -> Option<usize> {
        match self {
            Self::Server(_) => Some(0),
            Self::Sentinel(redis) => redis.primary_by(0),
            Self::Cluster(redis) => redis.owner(slot),
        }
    }

    /// Kills the primary that has the keys of a slot. Its number among the servers.
    pub fn kill_primary(&mut self, slot: u16) -> usize {
        let primary = self.primary(slot).expect("somebody has the slot");
        match self {
            Self::Server(redis) => redis.kill(),
            Self::Sentinel(redis) => redis.kill(primary),
            Self::Cluster(redis) => redis.kill(primary),
        }
        primary
    }

    /// Waits until another server than this one has the keys of a slot.
    #[track_caller]
    pub fn wait_for_another_primary(&self, slot: u16, dead: usize) {
        eventually("a replica is promoted", || self.primary(slot).is_some_and(|primary| primary != dead));
        match self {
            Self::Server(_) => {}
            Self::Sentinel(redis) => redis.set_down_after(SILENCE_AT_REST),
            Self::Cluster(redis) => redis.set_node_timeout(SILENCE_AT_REST),
        }
    }

    /// Starts again a server that was killed, and waits until it is a replica.
    #[track_caller]
    pub fn rejoin(&mut self, dead: usize) {
        match self {
            Self::Server(redis) => redis.restart(),
            Self::Sentinel(redis) => {
                redis.restart(dead);
                redis.wait_until_replica(dead);
            }
            Self::Cluster(redis) => {
                redis.restart(dead);
                redis.wait_until_settled();
            }
        }
    }

    /// All keys, sorted.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.primaries().into_iter().flat_map(Redis::keys).collect();
        keys.sort();
        keys
    }

    /// All servers, but for Sentinels.
    pub fn servers(&self) -> Vec<&Redis> {
        match self {
            Self::Server(redis) => vec![redis],
            Self::Sentinel(redis) => redis.servers.iter().collect(),
            Self::Cluster(redis) => redis.nodes.iter().collect(),
        }
    }

    fn servers_mut(&mut self) -> Vec<&mut Redis> {
        match self {
            Self::Server(redis) => vec![redis],
            Self::Sentinel(redis) => redis.servers.iter_mut().collect(),
            Self::Cluster(redis) => redis.nodes.iter_mut().collect(),
        }
    }

    /// Stops all servers where they stand.
    pub fn pause(&self) {
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
        if let Self::Cluster(redis) = self {
            redis.wait_until_settled();
        }
    }
}

/// Tests on each topology: `on_each_topology!(a, b)` runs `fn a(redis: &Deployment)` (or `&mut`) as the tests `a::server`,
/// `a::sentinel` and `a::cluster`. `on_topologies!([server cluster] a, b)` leaves some out.
macro_rules! on_each_topology {
    ($($test:ident),* $(,)?) => {
        $crate::harness::on_topologies!([server sentinel cluster] $($test),*);
    };
}

macro_rules! on_topologies {
    ($topologies:tt $($test:ident),* $(,)?) => {
        $(
            mod $test {
                $crate::harness::on_topologies!(@each $test $topologies);
            }
        )*
    };
    (@each $test:ident [$($topology:ident)*]) => {
        $($crate::harness::on_topologies!(@one $test $topology);)*
    };
    (@one $test:ident server) => {
        #[test]
        fn server() {
            super::$test(&mut $crate::harness::Topology::Server.start());
        }
    };
    (@one $test:ident sentinel) => {
        #[test]
        fn sentinel() {
            super::$test(&mut $crate::harness::Topology::Sentinel.start());
        }
    };
    (@one $test:ident cluster) => {
        #[test]
        fn cluster() {
            super::$test(&mut $crate::harness::Topology::Cluster.start());
        }
    };
}

/// Tests on each store: `on_each_store!(a, b)` runs `fn a(redis: Option<&Deployment>)` as the tests `a::memory`,
/// `a::server`, `a::sentinel` and `a::cluster`.
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
                    super::$test(Some(&$crate::harness::Topology::Server.start()));
                }

                #[test]
                fn sentinel() {
                    super::$test(Some(&$crate::harness::Topology::Sentinel.start()));
                }

                #[test]
                fn cluster() {
                    super::$test(Some(&$crate::harness::Topology::Cluster.start()));
                }
            }
        )*
    };
}

pub(crate) use {on_each_store, on_each_topology, on_topologies};

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

on_each_topology!(keys_are_found_wherever_they_are);

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
