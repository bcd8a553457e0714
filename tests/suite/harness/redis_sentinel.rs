//! A real Redis with two replicas, watched by three Sentinels, which end with the test that started them.

use super::{
    Redis,
    bound::Room,
    eventually,
    redis_topology::{SEVERAL_SERVERS, SILENCE_AFTER_KILL, SILENCE_AT_REST},
};

/// What the Sentinels call the servers that they watch.
pub const MASTER: &str = "mymaster";
/// Sentinels that have to agree that the primary is away.
const QUORUM: usize = 2;

/// Servers and Sentinels by number. The first server is the primary at first.
pub struct Sentinels {
    pub servers: Vec<Redis>,
    pub sentinels: Vec<Redis>,
    _room: Room,
}

impl Sentinels {
    pub fn start() -> Self {
        Self::with(&[], &[])
    }

    /// With these settings of each server and each Sentinel besides, as arguments of `redis-server`.
    pub fn with(of_servers: &[&str], of_sentinels: &[&str]) -> Self {
        let room = SEVERAL_SERVERS.enter();
        let quick = ["--repl-diskless-sync-delay", "0"];
        let primary = Redis::with(&[&quick, of_servers].concat());
        let port = primary.peer_port();
        let mut servers = vec![primary];
        for _ in 0..2 {
            let replica = ["--replicaof", &format!("127.0.0.1 {port}")];
            servers.push(Redis::with(&[&quick, replica.as_slice(), of_servers].concat()));
        }
        eventually("both replicas are in step", || {
            servers[1..]
                .iter()
                .all(|replica| replica.cli(&["info", "replication"]).contains("master_link_status:up"))
        });
        let mut configuration = monitor(port, QUORUM);
        if let Some(password) = servers[0].password() {
            configuration += &format!("sentinel auth-pass {MASTER} {password}\n");
        }
        if let Some(at) = of_sentinels.iter().position(|&argument| argument == "--requirepass") {
            configuration += &format!("sentinel sentinel-pass {}\n", of_sentinels[at + 1]);
        }
        let sentinels = (0..3).map(|_| Redis::sentinel(&configuration, of_sentinels)).collect();
        let started = Self { servers, sentinels, _room: room };
        started.wait_until_known();
        started
    }

    /// A Sentinel alone, which finds the primary at this port of the loopback and knows no replica to promote.
    pub fn alone(port: u16) -> Redis {
        Redis::sentinel(&monitor(port, 1), &[])
    }

    /// Waits until each Sentinel knows the others and both replicas.
    fn wait_until_known(&self) {
        eventually("each Sentinel knows the others", || {
            self.sentinels.iter().all(|sentinel| {
                let known = sentinel.cli(&["sentinel", "master", MASTER]);
                let lines: Vec<_> = known.lines().collect();
                let is = |name, value| lines.windows(2).any(|pair| pair == [name, value]);
                is("num-other-sentinels", "2") && is("num-slaves", "2") && is("flags", "master")
            })
        });
    }

    /// What stands in `store.redis`.
    pub fn settings(&self) -> String {
        let nodes: Vec<_> = self.sentinels.iter().map(|sentinel| format!("\"{}\"", sentinel.url())).collect();
        let password = |redis: &Redis| {
            redis.password().map(|password| format!(", password: \"{password}\"")).unwrap_or_default()
        };
        let (of_sentinels, of_servers) = (password(&self.sentinels[0]), password(&self.servers[0]));
        format!("sentinel: {{ master: {MASTER}, nodes: [{}]{of_sentinels} }}{of_servers}", nodes.join(", "))
    }

    /// The server that this Sentinel takes for the primary.
    pub fn primary_by(&self, sentinel: usize) -> Option<usize> {
        let said = self.sentinels[sentinel].cli(&["sentinel", "get-master-addr-by-name", MASTER]);
        let port: u16 = said.lines().last()?.parse().ok()?;
        self.servers.iter().position(|server| server.port == port || server.tls_port == Some(port))
    }

    /// The server that all Sentinels that answer take for the primary, once they agree.
    #[track_caller]
    pub fn primary(&self) -> usize {
        let live = || (0..self.sentinels.len()).filter(|&sentinel| self.sentinels[sentinel].answers());
        let mut primary = None;
        eventually("the Sentinels agree", || {
            let mut named = live().map(|sentinel| self.primary_by(sentinel));
            primary = named.next().expect("a Sentinel answers");
            primary.is_some() && named.all(|named| named == primary)
        });
        primary.expect("they agree")
    }

    /// What `redis-cli ARGUMENTS` prints, asked of the primary.
    pub fn cli(&self, arguments: &[&str]) -> String {
        self.servers[self.primary()].cli(arguments)
    }

    /// Kills a server, which the Sentinels soon take for failed.
    pub fn kill(&mut self, server: usize) {
        self.set_down_after(SILENCE_AFTER_KILL);
        self.servers[server].kill();
    }

    /// Starts a server again that was killed.
    #[track_caller]
    pub fn restart(&mut self, server: usize) {
        self.set_down_after(SILENCE_AT_REST);
        self.servers[server].restart();
    }

    /// Milliseconds, for all Sentinels that answer.
    pub(super) fn set_down_after(&self, silence: &str) {
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.answers()) {
            let set = ["sentinel", "set", MASTER, "down-after-milliseconds", silence];
            assert_eq!(sentinel.cli(&set), "OK");
        }
    }

    /// Kills the primary, and waits for another one.
    #[track_caller]
    pub fn failover(&mut self) -> usize {
        let old = self.primary();
        self.kill(old);
        self.promoted(old)
    }

    /// Waits until the Sentinels agree upon another primary than this one, which is one: its number.
    #[track_caller]
    pub fn promoted(&self, old: usize) -> usize {
        let mut new = old;
        eventually("another primary is named", || {
            new = self.primary();
            new != old && self.servers[new].cli(&["role"]).starts_with("master")
        });
        self.set_down_after(SILENCE_AT_REST);
        new
    }

    /// Waits until a server follows the primary: one that comes back is a primary of its own at first.
    #[track_caller]
    pub fn wait_until_replica(&self, server: usize) {
        eventually("it is a replica", || {
            let replication = self.servers[server].cli(&["info", "replication"]);
            replication.contains("role:slave") && replication.contains("master_link_status:up")
        });
    }
}

fn monitor(port: u16, quorum: usize) -> String {
    format!(
        "sentinel monitor {MASTER} 127.0.0.1 {port} {quorum}
sentinel down-after-milliseconds {MASTER} {SILENCE_AT_REST}
sentinel failover-timeout {MASTER} 3000
"
    )
}

#[test]
fn sentinels_promote_a_replica_when_the_primary_goes() {
    let mut redis = Sentinels::start();
    assert_eq!(redis.primary(), 0);
    assert_eq!(redis.cli(&["set", "a", "1"]), "OK");
    eventually("it is replicated", || redis.servers[1..].iter().all(|replica| replica.keys() == ["a"]));
    let primary = redis.failover();
    assert_ne!(primary, 0);
    assert_eq!(redis.cli(&["get", "a"]), "1");
    redis.restart(0);
    redis.wait_until_replica(0);
    assert_eq!(redis.primary(), primary);
}

#[test]
fn sentinels_and_servers_may_ask_for_passwords() {
    let servers = ["--requirepass", "of-servers", "--masterauth", "of-servers"];
    let mut redis = Sentinels::with(&servers, &["--requirepass", "of-sentinels"]);
    redis.sentinels[0].kill();
    assert_ne!(redis.failover(), 0, "two of three are enough");
}
