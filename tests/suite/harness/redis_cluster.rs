//! A real Redis Cluster: three primaries with a replica each, which end with the test that started them.

use std::{cell::RefCell, collections::BTreeSet, path::Path};

use super::{
    Redis, Relay,
    bound::Room,
    eventually, free_port,
    redis_topology::{SEVERAL_SERVERS, SILENCE_AFTER_KILL, SILENCE_AT_REST},
};

/// Hash slots of a cluster.
const SLOTS: u16 = 16_384;
const PRIMARIES: usize = 3;

/// Nodes by number: primaries first, their replicas in the same order behind them, then those that were added.
pub struct Cluster {
    pub nodes: Vec<Redis>,
    ids: Vec<String>,
    arguments: Vec<String>,
    /// Before each node, if clients and replicas are to go that way.
    relays: Option<Vec<Relay>>,
    _room: Room,
}

/// The slot of a key: that of its hash tag, if it has one.
pub fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc = hashed.bytes().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| crc << 1 ^ if crc >> 15 == 1 { 0x1021 } else { 0 })
    });
    crc % SLOTS
}

/// Ranges of slots, with their ends.
type Slots = Vec<(u16, u16)>;

/// A node as one of them knows it: a line of `CLUSTER NODES`.
struct Known {
    id: String,
    flags: String,
    /// Of a replica.
    primary: Option<String>,
    epoch: u64,
    slots: Slots,
}

impl Known {
    fn parse(line: &str) -> Self {
        let words: Vec<_> = line.split(' ').collect();
        // What is in brackets is a slot under way.
        let slots = words.iter().skip(8).filter(|word| !word.starts_with('['));
        let range = |word: &&str| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            (first.parse().unwrap(), last.parse().unwrap())
        };
        Self {
            id: words[0].to_owned(),
            flags: words[2].to_owned(),
            primary: (words[3] != "-").then(|| words[3].to_owned()),
            epoch: words[6].parse().unwrap(),
            slots: slots.map(range).collect(),
        }
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.split(',').any(|known| known == flag)
    }

    fn is_sure(&self) -> bool {
        !self.flags.contains("fail") && !self.is("handshake")
    }

    fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|&(first, last)| (first..=last).contains(&slot))
    }
}

impl Cluster {
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With these settings of each node besides, as arguments of `redis-server`.
    pub fn with(arguments: &[&str]) -> Self {
        Self::start_nodes(arguments, false)
    }

    /// Each node behind a relay, where clients and replicas are told that it is.
    pub fn behind_relays() -> Self {
        Self::start_nodes(&[], true)
    }

    fn start_nodes(arguments: &[&str], is_relayed: bool) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let relays = is_relayed.then(Vec::new);
        let room = SEVERAL_SERVERS.enter();
        let mut cluster = Self { nodes: Vec::new(), ids: Vec::new(), arguments, relays, _room: room };
        for _ in 0..2 * PRIMARIES {
            cluster.launch();
        }
        for node in 0..PRIMARIES {
            let bound = |node: usize| node * usize::from(SLOTS) / PRIMARIES;
            let (first, last) = (bound(node).to_string(), (bound(node + 1) - 1).to_string());
            cluster.order(node, &["addslotsrange", &first, &last]);
        }
        for node in 0..cluster.nodes.len() {
            cluster.order(node, &["set-config-epoch", &(node + 1).to_string()]);
            for other in 0..node {
                cluster.meet(node, other);
            }
        }
        for replica in PRIMARIES..2 * PRIMARIES {
            let primary = cluster.ids[replica - PRIMARIES].clone();
            eventually("the replica knows its primary", || {
                cluster.cli(replica, &["cluster", "replicate", &primary]) == "OK"
            });
        }
        cluster.wait_until_settled();
        cluster
    }

    /// Starts a node that knows nobody yet.
    fn launch(&mut self) {
        let relay = RefCell::new(None);
        let own = |_: &Path, port| {
            let bus = free_port().to_string();
            let mut announced = Vec::new();
            if self.relays.is_some() {
                let relay = relay.borrow_mut().insert(Relay::to(port)).address.port();
                announced = ["--cluster-announce-port".to_owned(), relay.to_string()].to_vec();
            }
            let settings = [
                ["--cluster-enabled", "yes"],
                ["--cluster-port", &bus],
                ["--cluster-node-timeout", SILENCE_AT_REST],
                // One shard that is away is no reason for the others to refuse.
                ["--cluster-require-full-coverage", "no"],
                // However long a replica has heard nothing, it is promoted; and each stays where it is.
                ["--cluster-replica-validity-factor", "0"],
                ["--cluster-allow-replica-migration", "no"],
                ["--repl-diskless-sync-delay", "0"],
            ];
            settings.concat().into_iter().map(str::to_owned).chain(announced).collect()
        };
        let arguments: Vec<_> = self.arguments.iter().map(String::as_str).collect();
        let node = Redis::with_each(own, &arguments);
        self.ids.push(node.cli(&["cluster", "myid"]));
        self.nodes.push(node);
        if let Some((relays, relay)) = self.relays.as_mut().zip(relay.into_inner()) {
            relays.push(relay);
        }
    }

    /// What is before the nodes.
    pub fn relays(&self) -> &[Relay] {
        self.relays.as_deref().unwrap_or_default()
    }

    /// An empty primary joins. Its number.
    pub fn add_node(&mut self) -> usize {
        self.launch();
        let added = self.nodes.len() - 1;
        for node in 0..added {
            if self.nodes[node].answers() {
                self.meet(node, added);
            }
        }
        self.wait_until_settled();
        added
    }

    fn meet(&self, node: usize, other: usize) {
        let other = &self.nodes[other];
        let port = other.peer_port().to_string();
        let bus = other.cli(&["config", "get", "cluster-port"]);
        self.order(node, &["meet", "127.0.0.1", &port, bus.lines().last().unwrap()]);
    }

    /// Waits until all nodes that answer agree who has which slot, and replicas are linked to their primaries.
    #[track_caller]
    pub fn wait_until_settled(&self) {
        // The shorter it is, the more often they tell each other what they know.
        self.set_node_timeout(SILENCE_AFTER_KILL);
        eventually("all nodes agree", || {
            let live = self.live();
            let views: Option<Vec<_>> = live.iter().map(|&node| self.view(node)).collect();
            views.is_some_and(|views| views.iter().all(|view| view.len() == live.len() && *view == views[0]))
                && live.iter().all(|&node| self.is_ready(node))
        });
        self.set_node_timeout(SILENCE_AT_REST);
    }

    /// The nodes that answer as this one knows them: who, the replica of whom, with which slots. `None` as long as it
    /// is not sure of one.
    fn view(&self, node: usize) -> Option<BTreeSet<(String, Option<String>, Slots)>> {
        let nodes = self.cli(node, &["cluster", "nodes"]);
        let answers = |known: &Known| self.number(&known.id).is_none_or(|node| self.nodes[node].answers());
        let known = nodes.lines().map(Known::parse).filter(answers);
        known.map(|known| known.is_sure().then_some((known.id, known.primary, known.slots))).collect()
    }

    fn is_ready(&self, node: usize) -> bool {
        let replication = self.cli(node, &["info", "replication"]);
        let is_linked = replication.contains("role:master") || replication.contains("master_link_status:up");
        is_linked && self.cli(node, &["cluster", "info"]).contains("cluster_state:ok")
    }

    /// What stands in `store.redis`.
    pub fn settings(&self) -> String {
        let url = |node: usize| self.relays().get(node).map_or_else(|| self.nodes[node].url(), Relay::url);
        let nodes: Vec<_> = (0..PRIMARIES).map(|node| format!("\"{}\"", url(node))).collect();
        let password = self.nodes[0].password().map(|password| format!(", password: \"{password}\""));
        format!("cluster: {{ nodes: [{}] }}{}", nodes.join(", "), password.unwrap_or_default())
    }

    /// What `redis-cli ARGUMENTS` prints, asked of this node.
    pub fn cli(&self, node: usize, arguments: &[&str]) -> String {
        self.nodes[node].cli(arguments)
    }

    /// The same asked of the node that has the command's key. It does not follow a key to where its slot is moving (`ASK`).
    pub fn cli_key(&self, arguments: &[&str]) -> String {
        let mut said = String::new();
        for node in self.live() {
            said = self.cli(node, arguments);
            if !said.starts_with("MOVED ") {
                break;
            }
        }
        said
    }

    /// What `CLUSTER ARGUMENTS` does at this node, which has to do it.
    #[track_caller]
    fn order(&self, node: usize, arguments: &[&str]) {
        assert_eq!(self.cli(node, &[&["cluster"], arguments].concat()), "OK", "{arguments:?}");
    }

    /// All keys, sorted.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<_> =
            self.primaries().into_iter().flat_map(|node| self.nodes[node].keys()).collect();
        keys.sort();
        // A key that moves may be seen at both ends.
        keys.dedup();
        keys
    }

    /// Nodes that run, and are not paused.
    pub fn live(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&node| self.nodes[node].answers()).collect()
    }

    /// Kills a node, which the others soon take for failed.
    pub fn kill(&mut self, node: usize) {
        self.set_node_timeout(SILENCE_AFTER_KILL);
        self.nodes[node].kill();
    }

    /// Starts a node again that was killed.
    #[track_caller]
    pub fn restart(&mut self, node: usize) {
        self.nodes[node].restart();
        self.set_node_timeout(SILENCE_AT_REST);
    }

    /// Milliseconds, for all nodes that answer.
    pub(super) fn set_node_timeout(&self, timeout: &str) {
        for node in self.live() {
            assert_eq!(self.cli(node, &["config", "set", "cluster-node-timeout", timeout]), "OK");
        }
    }

    fn number(&self, id: &str) -> Option<usize> {
        self.ids.iter().position(|known| known == id)
    }

    /// What each node that answers knows of itself.
    fn selves(&self) -> Vec<(usize, Known)> {
        let itself = |node: usize| {
            let view = self.cli(node, &["cluster", "nodes"]);
            (
                node,
                view.lines().map(Known::parse).find(|known| known.is("myself")).expect("a node knows itself"),
            )
        };
        self.live().into_iter().map(itself).collect()
    }

    /// The primaries that answer.
    pub fn primaries(&self) -> Vec<usize> {
        self.selves().into_iter().filter(|(_, known)| known.is("master")).map(|(node, _)| node).collect()
    }

    /// The replicas of a primary that answer.
    pub fn replicas(&self, primary: usize) -> Vec<usize> {
        let id = Some(&self.ids[primary]);
        self.selves()
            .into_iter()
            .filter(|(_, known)| known.primary.as_ref() == id)
            .map(|(node, _)| node)
            .collect()
    }

    /// The primary that has the slot, if one answers: where two claim it, the one that got it later.
    pub fn owner(&self, slot: u16) -> Option<usize> {
        let owners = self.selves().into_iter().filter(|(_, known)| known.is("master") && known.has(slot));
        owners.max_by_key(|(_, known)| known.epoch).map(|(node, _)| node)
    }

    /// The primary that has the slot.
    #[track_caller]
    pub fn node_of_slot(&self, slot: u16) -> usize {
        self.owner(slot).expect("somebody has the slot")
    }

    /// The primary that has the key.
    #[track_caller]
    pub fn node_of(&self, key: &str) -> usize {
        self.node_of_slot(slot_of(key))
    }

    /// Moves a slot while it is used, as `redis-cli --cluster reshard` does.
    pub fn migrate_slot(&self, slot: u16, to: usize) {
        let migration = self.begin_migration(slot, to);
        while migration.move_keys(10) > 0 {}
        migration.finish();
    }

    /// From now on the new node takes what is asked of it by ASKING, and the old one sends clients there for keys that
    /// it does not have.
    pub fn begin_migration(&self, slot: u16, to: usize) -> Migration<'_> {
        let (from, slot) = (self.node_of_slot(slot), slot.to_string());
        self.order(to, &["setslot", &slot, "importing", &self.ids[from]]);
        self.order(from, &["setslot", &slot, "migrating", &self.ids[to]]);
        Migration { cluster: self, slot, from, to }
    }

    /// Kills a primary, and waits until its replica has taken its place and all know: the new primary.
    #[track_caller]
    pub fn failover(&mut self, primary: usize) -> usize {
        let replicas = self.replicas(primary);
        self.kill(primary);
        self.promoted(&replicas)
    }

    /// A replica takes its primary's place while both live.
    #[track_caller]
    pub fn promote(&self, replica: usize) {
        self.order(replica, &["failover"]);
        self.promoted(&[replica]);
    }

    /// Waits until one of these replicas is a primary, and all that live know.
    #[track_caller]
    pub fn promoted(&self, replicas: &[usize]) -> usize {
        let mut promoted = None;
        eventually("a replica is promoted", || {
            promoted = self.primaries().into_iter().find(|node| replicas.contains(node));
            promoted.is_some()
        });
        self.wait_until_settled();
        promoted.expect("it was promoted")
    }
}

/// A slot that is on its way from one node to another.
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: usize,
    to: usize,
}

impl Migration<'_> {
    /// Moves so many keys, at most. How many there were.
    pub fn move_keys(&self, count: usize) -> usize {
        let Self { cluster, slot, from, to } = self;
        let found = cluster.cli(*from, &["cluster", "getkeysinslot", slot, &count.to_string()]);
        let keys: Vec<_> = found.lines().filter(|key| !key.is_empty()).collect();
        if !keys.is_empty() {
            let target = &cluster.nodes[*to];
            let port = target.peer_port().to_string();
            let mut command = vec!["migrate", "127.0.0.1", &port, "", "0", "5000"];
            command.extend(target.password().iter().flat_map(|password| ["auth", password]));
            command.push("keys");
            let said = cluster.cli(*from, &[command.as_slice(), &keys].concat());
            // All of them may have ended meanwhile.
            assert!(["OK", "NOKEY"].contains(&said.as_str()), "{said}");
        }
        keys.len()
    }

    /// The slot belongs to the new node, which every primary is told.
    pub fn finish(self) {
        let Self { cluster, slot, from, to } = self;
        let others = cluster.primaries().into_iter().filter(|&node| node != to && node != from);
        for node in [to, from].into_iter().chain(others) {
            cluster.order(node, &["setslot", &slot, "node", &cluster.ids[to]]);
        }
    }
}

#[test]
fn a_cluster_has_all_slots_and_a_replica_for_each_primary() {
    let cluster = Cluster::start();
    assert_eq!(cluster.primaries(), [0, 1, 2]);
    assert_eq!([0, 1, 2].map(|primary| cluster.replicas(primary)), [[3], [4], [5]]);
    for key in ["a", "b", "c", "{a}:1"] {
        assert_eq!(cluster.cli_key(&["set", key, "1"]), "OK");
        assert_eq!(cluster.cli(cluster.node_of(key), &["get", key]), "1");
    }
    for key in ["a", "foo{bar}{zap}", "foo{}{bar}", "foo{{bar}}zap", "}{é", ""] {
        assert_eq!(cluster.cli(0, &["cluster", "keyslot", key]), slot_of(key).to_string(), "{key}");
    }
    assert_eq!(cluster.keys(), ["a", "b", "c", "{a}:1"]);
}

#[test]
fn a_slot_moves_with_its_keys() {
    let mut cluster = Cluster::with(&["--requirepass", "secret", "--masterauth", "secret"]);
    let keys: Vec<_> = (0..25).map(|number| format!("{{a}}:{number}")).collect();
    for key in &keys {
        assert_eq!(cluster.cli_key(&["set", key, "1"]), "OK");
    }
    let (slot, from) = (slot_of("{a}"), cluster.node_of("{a}"));
    let to = cluster.add_node();
    let migration = cluster.begin_migration(slot, to);
    assert_eq!(migration.move_keys(10), 10);
    assert_eq!(cluster.node_of_slot(slot), from, "it has not moved yet");
    assert!(cluster.cli(from, &["get", "{a}:new"]).starts_with("ASK "));
    assert_eq!(cluster.keys().len(), keys.len());
    while migration.move_keys(10) > 0 {}
    migration.finish();
    assert_eq!(cluster.node_of_slot(slot), to);
    assert_eq!(cluster.nodes[to].keys().len(), keys.len());
    assert!(cluster.cli(from, &["get", "{a}:1"]).starts_with("MOVED "));
    cluster.wait_until_settled();
    cluster.migrate_slot(slot, from);
    assert_eq!(cluster.node_of_slot(slot), from);
}

#[test]
fn a_replica_takes_the_place_of_its_primary() {
    let mut cluster = Cluster::start();
    let primary = cluster.node_of("a");
    assert_eq!(cluster.cli_key(&["set", "a", "1"]), "OK");
    let replica = cluster.replicas(primary)[0];
    eventually("it is replicated", || cluster.nodes[replica].keys() == ["a"]);
    assert_eq!(cluster.failover(primary), replica);
    assert_eq!(cluster.cli_key(&["get", "a"]), "1");
    cluster.restart(primary);
    cluster.wait_until_settled();
    assert_eq!(cluster.replicas(replica), [primary]);
    cluster.promote(primary);
    assert_eq!(cluster.node_of("a"), primary);
}
