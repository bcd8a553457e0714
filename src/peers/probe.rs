//! Probes: they find out whether each server is up, its role and version, and how full it is.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use bb8_redis::redis::{self, RedisResult, Script};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::{heartbeat::Heartbeat, monitor_config::MonitorConfig, server_status, time::jittered};
use crate::{
    api_keys::KeyStore,
    limit::Clock,
    store::redis::{
        Failure, RedisNode, RoutedConnection, ServerConnection, check_server, read_memory, read_replicas,
    },
    telemetry::metrics::StoreFailure,
};

/// Time between probes of a server.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often the breaker is polled.
const BREAKER_POLL: Duration = Duration::from_millis(50);
/// Connections tried for one probe: the server, or a proxy before it, may close several in a row.
const MAX_TRIES: usize = 3;
/// Checks without an evicted key before the warning ends.
const QUIET_CHECKS: u32 = 10;
/// How often the replicas of a server are read, in topologies that have them.
const REPLICAS_EVERY: Duration = Duration::from_secs(2);

/// The probes of all primaries.
pub(super) struct Probes<'a> {
    config: &'a MonitorConfig,
    heartbeat: Heartbeat<'a>,
    /// Loaded into each server with its check.
    scripts: Vec<&'static Script>,
    probes: RefCell<Vec<Rc<NodeProbe>>>,
}

/// The probe of one server.
struct NodeProbe {
    node: Arc<RedisNode>,
    /// The connection of the last probe, if that succeeded.
    connection: RefCell<Option<ServerConnection>>,
    next_at: Cell<Instant>,
    /// When the breaker was first seen open since the last probe.
    opened: Cell<Option<Instant>>,
    check_at: Cell<Instant>,
    replicas_at: Cell<Instant>,
    /// The time of the last probe, and the server's decisions until then.
    decisions: Cell<(Instant, u64)>,
    /// The server run that the connection is to. Another run may have lost data that was sent to this one.
    server: RefCell<ServerId>,
}

/// Identifies a server from its start to its end: its run ID, or a random number for each connection if it has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServerId(String);

impl<'a> Probes<'a> {
    pub(super) fn new(
        config: &'a MonitorConfig,
        heartbeat: Heartbeat<'a>,
        scripts: Vec<&'static Script>,
    ) -> Self {
        Self { config, heartbeat, scripts, probes: RefCell::default() }
    }

    /// A connection to the server that has `key`, if its last probe succeeded.
    pub(super) fn connection(&self, key: &str) -> Option<RoutedConnection> {
        let topology = &self.config.topology;
        let node = topology.owner_of(key.as_bytes()).filter(|node| !node.breaker.is_open())?;
        let probes = self.probes.borrow();
        let probe = probes.iter().find(|probe| Arc::ptr_eq(&probe.node, &node))?;
        let connection = probe.connection.borrow().clone().filter(|connection| !connection.has_ended())?;
        Some(RoutedConnection::new(Arc::clone(topology), connection, node.address.clone()))
    }

    /// The server of [`Probes::connection`].
    pub(super) fn server(&self, key: &str) -> ServerId {
        let owner = self.config.topology.owner_of(key.as_bytes());
        let probes = self.probes.borrow();
        let probe =
            probes.iter().find(|probe| owner.as_ref().is_some_and(|node| Arc::ptr_eq(&probe.node, node)));
        probe.map(|probe| probe.server.borrow().clone()).unwrap_or_default()
    }

    /// Probes all servers while polled.
    pub(super) async fn run(&self) {
        let topology = &self.config.topology;
        let mut changes = topology.changes();
        loop {
            changes.borrow_and_update();
            let probes = self.renew();
            let has_same_nodes = || {
                let map = topology.map();
                let is_probed = |node| probes.iter().any(|probe| Arc::ptr_eq(&probe.node, node));
                map.nodes.len() == probes.len() && map.nodes.iter().all(is_probed)
            };
            let changed = async {
                // Moving slots change the map, too, perhaps more often than a probe takes.
                while has_same_nodes() {
                    if changes.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
            };
            let runs = join_all(probes.iter().map(|probe| self.probe(probe)));
            tokio::select! {
                _ = runs, if !probes.is_empty() => {}
                () = changed => {}
            }
        }
    }

    /// One probe for each current server; existing ones are kept.
    fn renew(&self) -> Vec<Rc<NodeProbe>> {
        let map = self.config.topology.map();
        let mut probes = self.probes.borrow_mut();
        let known = std::mem::take(&mut *probes);
        *probes = map
            .nodes
            .iter()
            .map(|node| {
                let known = known.iter().find(|probe| Arc::ptr_eq(&probe.node, node));
                known.cloned().unwrap_or_else(|| Rc::new(NodeProbe::new(Arc::clone(node))))
            })
            .collect();
        probes.clone()
    }

    /// Probes one server while polled.
    async fn probe(&self, probe: &NodeProbe) {
        loop {
            self.wait_for_next(probe).await;
            let result = self.beat(probe).await;
            probe.next_at.set(Instant::now() + jittered(INTERVAL));
            self.record(probe, result);
        }
    }

    /// Waits until the next probe is due: soon if the server has closed the connection, or `retry_after` after the
    /// breaker was seen to open.
    async fn wait_for_next(&self, probe: &NodeProbe) {
        // With its jitter and a look at the breaker, no more than the setting, unless that is below a fifth of a second.
        let retry_after = self.config.redis.breaker.retry_after;
        let retry_after = jittered((retry_after - BREAKER_POLL.min(retry_after / 4)) * 4 / 5);
        let soon = Instant::now() + BREAKER_POLL;
        loop {
            let now = Instant::now();
            if probe.connection.borrow().as_ref().is_some_and(ServerConnection::has_ended) {
                probe.next_at.set(probe.next_at.get().min(soon));
            }
            if probe.node.breaker.is_open() && probe.opened.get().is_none() {
                probe.opened.set(Some(now));
            }
            let due = probe.opened.get().map_or(probe.next_at.get(), |opened| opened + retry_after);
            if due <= now {
                probe.opened.set(None);
                return;
            }
            sleep((due - now).min(BREAKER_POLL)).await;
        }
    }

    /// One probe, on the last connection or a new one. Returns its latency.
    async fn beat(&self, probe: &NodeProbe) -> Result<Duration, Failure> {
        // Others use the connection meanwhile.
        let known = probe.connection.borrow().clone();
        let mut result = match known {
            Some(connection) => self.beat_on(probe, connection).await,
            None => self.beat_anew(probe).await,
        };
        for _ in 1..MAX_TRIES {
            // The connection was closed, for example by a restart: that alone does not show that the server is down.
            if !result.as_ref().is_err_and(|failure| failure.kind == StoreFailure::Connection) {
                break;
            }
            result = self.beat_anew(probe).await;
        }
        result
    }

    /// One probe on a new connection.
    async fn beat_anew(&self, probe: &NodeProbe) -> Result<Duration, Failure> {
        let connection = probe.node.server.connect().await?;
        let was_known = *probe.server.borrow() != ServerId::default();
        self.check(probe, &connection, !was_known).await?;
        let run_id = probe.node.seen.lock().check.run_id.clone();
        let server = ServerId(if run_id.is_empty() { format!("{:016x}", fastrand::u64(..)) } else { run_id });
        if probe.server.replace(server.clone()) != server {
            // The server may have lost its data.
            self.config.registry.republish_all(self.config.clock.now());
        }
        self.beat_on(probe, connection).await
    }

    /// Timeout of [`Probes::check`].
    fn check_timeout(&self) -> Duration {
        self.config.redis.connect_timeout() * 2
    }

    /// One probe. The connection is kept if it serves.
    async fn beat_on(&self, probe: &NodeProbe, connection: ServerConnection) -> Result<Duration, Failure> {
        let result = self.exchange(probe, connection.clone()).await;
        // A server without memory still replies: another connection would not help.
        let serves = result.as_ref().err().is_none_or(|failure| failure.kind == StoreFailure::OutOfMemory);
        probe.connection.replace(serves.then_some(connection));
        result
    }

    /// Each reply has the timeout of a decision.
    async fn exchange(
        &self,
        probe: &NodeProbe,
        mut connection: ServerConnection,
    ) -> Result<Duration, Failure> {
        if probe.check_at.get() <= Instant::now() {
            self.check(probe, &connection, false).await?;
        }
        if probe.replicas_at.get() <= Instant::now() && self.has_replicas() {
            probe.replicas_at.set(Instant::now() + REPLICAS_EVERY);
            let replicas =
                timeout(self.check_timeout(), read_replicas(&mut connection, &probe.node.address.host));
            probe.node.seen.lock().replicas = replicas.await.map_err(|_| Failure::silent())??;
        }
        connection.set_response_timeout(self.config.redis.timeout);
        // First: a server without memory refuses the heartbeat, and its memory must be known then.
        self.read_memory(probe, &mut connection).await?;
        let begun = Instant::now();
        self.beat_or_ping(probe, &mut connection).await?;
        Ok(begun.elapsed())
    }

    async fn beat_or_ping(
        &self,
        probe: &NodeProbe,
        connection: &mut ServerConnection,
    ) -> Result<(), Failure> {
        let topology = &self.config.topology;
        let owner = topology.owner_of(self.heartbeat.key().as_bytes());
        if owner.is_some_and(|owner| Arc::ptr_eq(&owner, &probe.node)) {
            let (connection, address) = (connection.clone(), probe.node.address.clone());
            let evicts = server_status::is_evicting(&probe.node.seen.lock());
            let mut connection = RoutedConnection::new(Arc::clone(topology), connection, address);
            return self.heartbeat.beat(&mut connection, evicts).await;
        }
        let pong: RedisResult<()> = redis::cmd("PING").query_async(connection).await;
        Ok(pong?)
    }

    /// Reads how full the server is.
    async fn read_memory(&self, probe: &NodeProbe, connection: &mut ServerConnection) -> Result<(), Failure> {
        let MonitorConfig { topology, check_every, scope, .. } = self.config;
        let node = &probe.node;
        let memory = read_memory(connection).await?;
        let of_several = topology.is_cluster().then_some(&node.address);
        let quiet_after = *check_every * QUIET_CHECKS;
        server_status::update_memory(&mut node.seen.lock(), of_several, memory, quiet_after);
        let owner = topology.owner_of(scope.changed_key().as_bytes());
        if owner.is_some_and(|owner| Arc::ptr_eq(&owner, node)) {
            scope.budget().update(memory);
        }
        Ok(())
    }

    fn has_replicas(&self) -> bool {
        self.config.topology.is_cluster() || self.config.topology.has_sentinels()
    }

    /// Checks the server's role, version and rights, and loads the scripts. `is_first`: the first check of this server.
    async fn check(
        &self,
        probe: &NodeProbe,
        connection: &ServerConnection,
        is_first: bool,
    ) -> Result<(), Failure> {
        let MonitorConfig { topology, check_every, .. } = self.config;
        let node = &probe.node;
        let prefix = self.config.redis.key_prefix();
        let mut connection = connection.clone();
        connection.set_response_timeout(self.check_timeout());
        // Scripts are loaded with each check: a call that has to load one takes two more round trips.
        let check = check_server(
            &mut connection,
            &prefix,
            topology,
            node,
            &self.scripts,
            self.config.api_keys.store() == KeyStore::Redis,
        );
        let check =
            timeout(self.check_timeout(), check).await.map_err(|_| Failure::silent())?.map_err(|error| {
                match is_first && !node.server.is_encrypted() {
                    true => Failure::at_first(&error),
                    false => error.into(),
                }
            })?;
        let of_several = topology.is_cluster().then_some(&node.address);
        server_status::update_check(&mut node.seen.lock(), of_several, check);
        probe.check_at.set(Instant::now() + jittered(*check_every));
        Ok(())
    }

    fn record(&self, probe: &NodeProbe, result: Result<Duration, Failure>) {
        let (topology, RedisNode { address, breaker, .. }) = (&self.config.topology, &*probe.node);
        let mut seen = probe.node.seen.lock();
        let (before, decisions) = probe.decisions.replace((Instant::now(), probe.node.decisions()));
        let seconds = before.elapsed().as_secs_f64().max(0.001);
        seen.rate = ((probe.node.decisions().saturating_sub(decisions)) as f64 / seconds).round() as u64;
        match result {
            Ok(latency) => {
                seen.latency = u64::try_from(latency.as_micros()).ok();
                if seen.failure.take().is_some() | breaker.close() {
                    tracing::info!(node = %address, "Redis at {address} is available again");
                }
            }
            Err(failure) => {
                seen.latency = None;
                if let Some(text) = seen.fail(address, failure.reason(), topology.is_cluster()) {
                    tracing::warn!(node = %address, error = %failure.reason(), "{text}");
                }
                if !failure.trips_the_breaker() {
                    breaker.close();
                } else {
                    topology.doubt();
                    breaker.failed();
                }
            }
        }
    }

    /// Removes this instance from the list of live ones.
    pub(super) async fn say_goodbye(self) {
        if let Some(mut connection) = self.connection(self.heartbeat.key()) {
            self.heartbeat.say_goodbye(&mut connection).await;
        }
    }
}

impl NodeProbe {
    fn new(node: Arc<RedisNode>) -> Self {
        let now = Instant::now();
        let decisions = Cell::new((now, node.decisions()));
        let (next_at, check_at, replicas_at) = (Cell::new(now), Cell::new(now), Cell::new(now));
        let (connection, opened) = (RefCell::new(None), Cell::new(None));
        let server = RefCell::default();
        Self { node, connection, next_at, opened, check_at, replicas_at, decisions, server }
    }
}
