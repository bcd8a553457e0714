//! The topology, shared by all threads.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Acquire, Ordering::Release},
    },
    time::Duration,
};

use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout},
};

use super::{
    NodeMap, RedisNode, SLOTS,
    cluster::{self, ClusterView},
    node::NO_NODE,
    sentinel::SentinelGroup,
};
use crate::{
    config::model::{self, RedisTopology},
    limit::Unavailable,
    store::redis::{
        connection::{Server, ServerCredentials, ServerError},
        failure::Failure,
        server_address::ServerAddress,
    },
};

/// How often the topology is read while all nodes are up.
const LEARN_EVERY: Duration = Duration::from_secs(30);
/// How often Sentinels are queried: their messages may be lost.
const ASK_SENTINELS_EVERY: Duration = Duration::from_secs(1);
/// How often it is read while a node is down.
const LEARN_EVERY_FAILING: Duration = Duration::from_millis(100);
/// After this many failures in a row it is read less often: an operator may be needed.
const MAX_FAILING: u32 = 300;
const LEARN_EVERY_LONG_FAILING: Duration = Duration::from_secs(1);
/// Least time between reads.
const LEARN_PAUSE: Duration = Duration::from_millis(100);
/// Round trips for one read from a node: connect, handshake, and a command, which may have to load a script first.
const LEARN_TRIPS: u32 = 6;
/// Timeout of one Sentinel's reply, unless round trips are long.
const ASK_TIMEOUT: Duration = Duration::from_millis(300);
const ASK_TRIPS: u32 = 4;

/// The servers and their roles, as known to this process. Shared by all threads.
#[derive(Debug)]
pub struct Topology {
    source: TopologySource,
    /// Failures in a row that open a node's breaker.
    failures: u32,
    /// The prefix of all keys.
    prefix: String,
    /// Timeout of one read from a node, and from a Sentinel: a silent one must not delay a failover.
    learn_timeout: Duration,
    ask_timeout: Duration,
    map: RwLock<Arc<NodeMap>>,
    /// The epoch of the current map, to compare without a lock.
    epoch: AtomicU64,
    changed: watch::Sender<u64>,
    /// Wakes [`Topology::keep_current`].
    doubted: Notify,
    warnings: Mutex<Vec<String>>,
}

/// The source of the topology.
#[derive(Debug)]
enum TopologySource {
    /// The configuration.
    Server,
    Sentinels(Box<SentinelGroup>),
    /// The cluster's nodes, of which these are configured.
    Cluster(Vec<Server>),
}

impl Topology {
    /// The configured topology. Reads certificates, but does not connect.
    ///
    /// # Errors
    /// A file can't be read, or is not a certificate or key.
    pub fn open(config: &model::Redis) -> Result<Arc<Self>, ServerError> {
        let credentials =
            ServerCredentials { user: config.user.as_deref(), password: config.password.as_ref() };
        let open_all = |urls: &[model::Secret], credentials| -> Result<Vec<Server>, ServerError> {
            urls.iter().map(|url| Server::open(url.reveal(), credentials, config)).collect()
        };
        let failures = config.breaker.failures;
        let mut map = NodeMap::default();
        let source = match &config.topology {
            RedisTopology::Url(url) => {
                let server = Server::open(url.reveal(), ServerCredentials::default(), config)?;
                map.nodes.push(Arc::new(RedisNode::new(server, failures)));
                TopologySource::Server
            }
            RedisTopology::Sentinel(sentinel) => {
                let own = ServerCredentials {
                    user: sentinel.user.as_deref(),
                    password: sentinel.password.as_ref(),
                };
                let sentinels = open_all(&sentinel.nodes, own)?;
                // Servers are reached like Sentinels, with other credentials, at addresses that Sentinels name.
                let scheme = sentinel.nodes.first().and_then(|url| url.reveal().split_once("://"));
                let scheme = scheme.map_or("redis", |(scheme, _)| scheme);
                let primary = format!("{scheme}://localhost");
                let primary = Server::open(&primary, credentials, config)?;
                let primary = primary.into_primary(config.database)?;
                let group = SentinelGroup::new(sentinel.master.clone(), sentinels, primary);
                TopologySource::Sentinels(Box::new(group))
            }
            RedisTopology::Cluster(cluster) => {
                let mut seeds = open_all(&cluster.nodes, credentials)?;
                // All nodes share a password, which a URL may leave out.
                if let Some(known) = seeds.iter().find(|seed| seed.has_password()).cloned() {
                    for seed in seeds.iter_mut().filter(|seed| !seed.has_password()) {
                        *seed = known.at(&seed.address())?;
                    }
                }
                map.slots = Some(Box::new([NO_NODE; SLOTS]));
                TopologySource::Cluster(seeds)
            }
        };
        Ok(Arc::new(Self {
            source,
            failures,
            prefix: config.key_prefix(),
            learn_timeout: config.time_for(LEARN_TRIPS).max(config.call_timeout()),
            ask_timeout: config.time_for(ASK_TRIPS).max(ASK_TIMEOUT),
            map: RwLock::new(Arc::new(map)),
            epoch: AtomicU64::new(0),
            changed: watch::channel(0).0,
            doubted: Notify::new(),
            warnings: Mutex::default(),
        }))
    }

    /// The current map.
    pub(crate) fn map(&self) -> Arc<NodeMap> {
        Arc::clone(&self.map.read())
    }

    /// The epoch of the current map.
    pub(in crate::store::redis) fn epoch(&self) -> u64 {
        self.epoch.load(Acquire)
    }

    /// Notifies of each new map, by its epoch.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Whether keys are in several slots.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.source, TopologySource::Cluster(_))
    }

    /// Whether Sentinels name the server.
    pub(crate) fn has_sentinels(&self) -> bool {
        matches!(self.source, TopologySource::Sentinels(_))
    }

    /// The node that decides over a key.
    pub(crate) fn owner_of(&self, key: &[u8]) -> Option<Arc<RedisNode>> {
        self.map.read().owner_of(key).cloned()
    }

    /// Warnings about Sentinels and slots.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }

    /// Reads the topology at once, since a node may be down.
    pub(crate) fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// Records a node's reply that a slot has moved.
    pub(in crate::store::redis) fn moved(&self, slot: u16, address: &ServerAddress) {
        {
            let mut current = self.map.write();
            let known = current.owner_index(slot).and_then(|index| current.nodes.get(index));
            if known.is_some_and(|node| node.address == *address) {
                return;
            }
            let mut map = NodeMap::clone(&current);
            let Some(index) = self.index_of(&mut map, address) else { return };
            if let Some(owner) = map.slots.as_mut().and_then(|slots| slots.get_mut(usize::from(slot))) {
                *owner = index;
            }
            self.replace(&mut current, map);
        }
        self.doubt();
    }

    /// The node at an address that another node has named. It may have no slots yet.
    pub(in crate::store::redis) fn node_at(&self, address: &ServerAddress) -> Option<Arc<RedisNode>> {
        if let Some(node) = self.map.read().node_at(address) {
            return Some(Arc::clone(node));
        }
        let mut current = self.map.write();
        let mut map = NodeMap::clone(&current);
        let index = self.index_of(&mut map, address)?;
        let node = map.nodes.get(usize::from(index)).cloned();
        self.replace(&mut current, map);
        node
    }

    /// The index of the node at this address, which is added if it is new.
    fn index_of(&self, map: &mut NodeMap, address: &ServerAddress) -> Option<u16> {
        let known = map.nodes.iter().position(|node| node.address == *address);
        let index = match known {
            Some(index) => index,
            None => {
                let TopologySource::Cluster(seeds) = &self.source else { return None };
                let server = seeds.first()?.at(address).ok()?;
                map.nodes.push(Arc::new(RedisNode::new(server, self.failures)));
                map.nodes.len() - 1
            }
        };
        u16::try_from(index).ok().filter(|index| *index != NO_NODE)
    }

    fn replace(&self, current: &mut Arc<NodeMap>, mut map: NodeMap) {
        map.epoch = current.epoch + 1;
        let epoch = map.epoch;
        *current = Arc::new(map);
        self.epoch.store(epoch, Release);
        self.changed.send_replace(epoch);
    }

    /// Keeps the map up to date while polled.
    pub(crate) async fn keep_current(&self) {
        let watches = async {
            match &self.source {
                TopologySource::Sentinels(group) => group.watch(|| self.doubt()).await,
                _ => std::future::pending().await,
            }
        };
        let learns = async {
            if matches!(self.source, TopologySource::Server) {
                return std::future::pending().await;
            }
            let (mut was_failing, mut failing_count) = (false, 0_u32);
            loop {
                let begun = Instant::now();
                let learned = self.learn().await;
                if let Err(failure) = &learned
                    && !was_failing
                {
                    tracing::warn!(error = %failure.reason(), "Tollgate can't learn which Redis servers there are: {}", failure.reason());
                }
                was_failing = learned.is_err();
                let is_failing = was_failing || self.has_failing_node();
                failing_count = if is_failing { failing_count.saturating_add(1) } else { 0 };
                let every = match &self.source {
                    _ if failing_count > MAX_FAILING => LEARN_EVERY_LONG_FAILING,
                    _ if is_failing => LEARN_EVERY_FAILING,
                    TopologySource::Sentinels(_) => ASK_SENTINELS_EVERY,
                    _ => LEARN_EVERY,
                };
                tokio::select! {
                    () = sleep(every) => {}
                    () = self.doubted.notified() => {}
                }
                sleep(LEARN_PAUSE.saturating_sub(begun.elapsed())).await;
            }
        };
        tokio::join!(watches, learns);
    }

    /// Whether a node is down, or a slot has none.
    fn has_failing_node(&self) -> bool {
        let map = self.map();
        map.nodes.is_empty()
            || map.nodes.iter().any(|node| node.breaker.is_open() || node.seen.lock().failure.is_some())
            || map.slots.as_ref().is_some_and(|slots| slots.contains(&NO_NODE))
    }

    /// Reads the topology from Sentinels or nodes, and adopts it.
    ///
    /// # Errors
    /// None of them replies.
    pub async fn learn(&self) -> Result<(), Unavailable> {
        Ok(self.ask_who_knows().await?)
    }

    async fn ask_who_knows(&self) -> Result<(), Failure> {
        match &self.source {
            TopologySource::Server => Ok(()),
            TopologySource::Sentinels(group) => {
                let report = group.ask(self.ask_timeout).await;
                *self.warnings.lock() = report.warnings;
                self.adopt_primary(&report.primary?)
            }
            TopologySource::Cluster(seeds) => {
                let view = self.ask_cluster(seeds).await?;
                self.adopt_view(&view);
                self.test_nodes().await;
                Ok(())
            }
        }
    }

    /// Reads the map from one node, preferably one that is up. Each time it begins with another: a node that is cut off
    /// has an outdated map. If a node does not know all slots, because it has joined no cluster or forgotten its own,
    /// others are asked, too, and the map with the most slots is used.
    async fn ask_cluster(&self, seeds: &[Server]) -> Result<ClusterView, Failure> {
        let map = self.map();
        let is_failing =
            |node: &&Arc<RedisNode>| node.breaker.is_open() || node.seen.lock().failure.is_some();
        let (failing, serving): (Vec<&Arc<RedisNode>>, Vec<&Arc<RedisNode>>) =
            map.nodes.iter().partition(is_failing);
        let start = fastrand::usize(..serving.len().max(1));
        let serving = serving.iter().cycle().skip(start).take(serving.len());
        let known = serving.chain(&failing).map(|node| &node.server);
        let seeds = seeds.iter().filter(|seed| map.node_at(&seed.address()).is_none());
        let (mut failure, mut fullest) = (Failure::timeout(), None::<ClusterView>);
        for server in known.chain(seeds) {
            match timeout(self.learn_timeout, cluster::ask(server)).await {
                Ok(Ok(view)) if view.slot_count() == SLOTS => return Ok(view),
                Ok(Ok(view)) => {
                    if fullest.as_ref().is_none_or(|known| known.slot_count() < view.slot_count()) {
                        fullest = Some(view);
                    }
                }
                Ok(Err(why)) => failure = why,
                Err(_) => failure = Failure::timeout(),
            }
        }
        fullest.ok_or(failure)
    }

    /// Tests new nodes for scripts with keys of several slots. Until then none gets one.
    async fn test_nodes(&self) {
        // With `cluster.strict` all keys are in one slot.
        if self.prefix.starts_with('{') {
            return;
        }
        let map = self.map();
        let test = async |node: &Arc<RedisNode>| {
            let is_foreign =
                |key: &String| map.owner_of(key.as_bytes()).is_some_and(|owner| !Arc::ptr_eq(owner, node));
            // A node with all slots needs no test.
            let foreign =
                (0..1_000).map(|number| format!("{}:{{{number}}}:audit", self.prefix)).find(is_foreign);
            let Some(key) = foreign else { return };
            match timeout(self.learn_timeout, cluster::takes_any_slots(&node.server, &key)).await {
                Ok(Ok(is_taken)) => {
                    if !is_taken {
                        let node = &node.address;
                        tracing::info!(%node, "Redis at {node} takes no scripts with keys of several slots: it gets one call for each slot");
                    }
                    node.set_takes_any_slots(is_taken);
                }
                // Tested again with the next read of the topology.
                Ok(Err(failure)) => {
                    tracing::debug!(error = %failure.reason(), "a Redis node can't be tested: {}", failure.reason());
                }
                Err(_) => tracing::debug!("the test of a Redis node timed out"),
            }
        };
        join_all(map.nodes.iter().filter(|node| !node.is_tested()).map(test)).await;
    }

    fn adopt_view(&self, view: &ClusterView) {
        let TopologySource::Cluster(seeds) = &self.source else { return };
        let mut current = self.map.write();
        let mut known: HashMap<&ServerAddress, &Arc<RedisNode>> =
            current.nodes.iter().map(|node| (&node.address, node)).collect();
        let (mut nodes, mut slots) = (Vec::new(), Box::new([NO_NODE; SLOTS]));
        for shard in &view.shards {
            let node = match known.remove(&shard.primary) {
                Some(node) => Arc::clone(node),
                None => match seeds.first().map(|seed| seed.at(&shard.primary)) {
                    Some(Ok(server)) => Arc::new(RedisNode::new(server, self.failures)),
                    _ => continue,
                },
            };
            let Ok(index) = u16::try_from(nodes.len()) else { break };
            nodes.push(node);
            for &(first, last) in &shard.slots {
                slots[usize::from(first)..=usize::from(last)].fill(index);
            }
        }
        let missing = slots.iter().filter(|owner| **owner == NO_NODE).count();
        *self.warnings.lock() = match missing {
            0 => Vec::new(),
            _ => vec![format!(
                "{missing} of {SLOTS} slots have no node: limits of keys in these slots follow on_store_error"
            )],
        };
        let replicas = view.replicas();
        let is_same = current.nodes.len() == nodes.len()
            && current.nodes.iter().zip(&nodes).all(|(a, b)| Arc::ptr_eq(a, b))
            && current.slots.as_deref() == Some(&*slots)
            && current.replicas == replicas;
        if !is_same {
            let map = NodeMap { epoch: 0, nodes, slots: Some(slots), replicas };
            self.replace(&mut current, map);
        }
    }

    /// Adopts the primary that Sentinels name.
    fn adopt_primary(&self, address: &ServerAddress) -> Result<(), Failure> {
        let TopologySource::Sentinels(group) = &self.source else { return Ok(()) };
        let mut current = self.map.write();
        if current.nodes.first().is_some_and(|node| node.address == *address) {
            return Ok(());
        }
        let server = group.server_at(address).map_err(|error| Failure::protocol(error.to_string()))?;
        match current.nodes.first() {
            Some(last) => {
                tracing::warn!(from = %last.address, to = %address, "Sentinel has named another primary: {address} instead of {}", last.address);
            }
            None => tracing::info!(%address, "Sentinel names {address} as the primary"),
        }
        let nodes = vec![Arc::new(RedisNode::new(server, self.failures))];
        self.replace(&mut current, NodeMap { nodes, ..NodeMap::default() });
        Ok(())
    }

    /// Compares our slots with the server's: a difference would split limits.
    ///
    /// # Errors
    /// No node replies, or its slots differ.
    pub(crate) async fn test_slots(&self) -> Result<(), Failure> {
        if !self.is_cluster() {
            return Ok(());
        }
        let map = self.map();
        let node = map.nodes.first().ok_or_else(Failure::no_node)?;
        timeout(self.learn_timeout, cluster::test_slots(&node.server))
            .await
            .map_err(|_| Failure::timeout())?
    }
}
