//! The probes: they find out which servers answer, and what each is.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use bb8_redis::redis::{self, RedisResult};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::{MonitorConfig, heartbeat::Heartbeat, server_status, time::jittered};
use crate::{
    limit::Clock,
    store::redis::{
        Failure, Node, RoutedConnection, ServerConnection, check_server, read_memory, read_replicas,
    },
    telemetry::metrics::StoreFailure,
};

/// From one probe of a server to the next.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often the breaker is looked at.
const BREAKER_POLL: Duration = Duration::from_millis(50);
/// Connections on which a probe is tried, where each ends before it has an answer: the server, or what is before it, may close all
/// of them again and again.
const MAX_TRIES: usize = 3;
/// Checks that must find no key evicted before that is no longer warned of.
const QUIET_CHECKS: u32 = 10;
/// How often the replicas of a server are looked at, where there are several servers.
const REPLICAS_EVERY: Duration = Duration::from_secs(2);

/// The probes of all servers that decide.
pub(super) struct Probes<'a> {
    config: &'a MonitorConfig,
    heartbeat: Heartbeat<'a>,
    probes: RefCell<Vec<Rc<Probe>>>,
}

/// The probe of one server.
struct Probe {
    node: Arc<Node>,
    /// Of the last probe, if that went well.
    connection: RefCell<Option<ServerConnection>>,
    next_at: Cell<Instant>,
    /// When the breaker was seen to be open, since the last probe.
    opened: Cell<Option<Instant>>,
    check_at: Cell<Instant>,
    replicas_at: Cell<Instant>,
    /// The decisions that the server had answered, and when that was.
    decisions: Cell<(Instant, u64)>,
    /// Which start of which server the connection is to. Another one may have lost what this one was told.
    server: RefCell<ServerId>,
}

/// A server from its start to its end: what it calls itself, or, where it does not say, one of our connections to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServerId(String);

impl<'a> Probes<'a> {
    pub(super) fn new(config: &'a MonitorConfig, heartbeat: Heartbeat<'a>) -> Self {
        Self { config, heartbeat, probes: RefCell::default() }
    }

    /// A connection to the server that has `key`, if that answered a moment ago.
    pub(super) fn connection(&self, key: &str) -> Option<RoutedConnection> {
        let topology = &self.config.topology;
        let node = topology.owner_of(key.as_bytes()).filter(|node| !node.breaker.is_open())?;
        let probes = self.probes.borrow();
        let probe = probes.iter().find(|probe| Arc::ptr_eq(&probe.node, &node))?;
        let connection = probe.connection.borrow().clone().filter(|connection| !connection.has_ended())?;
        Some(RoutedConnection::new(Arc::clone(topology), connection, node.address.clone()))
    }

    /// The server that [`Probes::connection`] is to.
    pub(super) fn server(&self, key: &str) -> ServerId {
        let owner = self.config.topology.owner_of(key.as_bytes());
        let probes = self.probes.borrow();
        let probe =
            probes.iter().find(|probe| owner.as_ref().is_some_and(|node| Arc::ptr_eq(&probe.node, node)));
        probe.map(|probe| probe.server.borrow().clone()).unwrap_or_default()
    }

    /// Goes on for as long as it is polled.
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
                // Slots that move change the map as well, maybe more often than a probe takes.
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

    /// A probe for each server that there is now.
    fn renew(&self) -> Vec<Rc<Probe>> {
        let map = self.config.topology.map();
        let mut probes = self.probes.borrow_mut();
        let known = std::mem::take(&mut *probes);
        *probes = map
            .nodes
            .iter()
            .map(|node| {
                let known = known.iter().find(|probe| Arc::ptr_eq(&probe.node, node));
                known.cloned().unwrap_or_else(|| Rc::new(Probe::new(Arc::clone(node))))
            })
            .collect();
        probes.clone()
    }

    /// Probes one server for as long as it is polled.
    async fn probe(&self, probe: &Probe) {
        loop {
            self.wait_for_next(probe).await;
            let result = self.beat(probe).await;
            probe.next_at.set(Instant::now() + jittered(INTERVAL));
            self.record(probe, result);
        }
    }

    /// Waits until the next probe is due: soon if the server has closed the connection. While the circuit breaker is open, that
    /// is `retry_after` after the breaker was seen to be open.
    async fn wait_for_next(&self, probe: &Probe) {
        let retry_after = jittered(self.config.redis.breaker.retry_after);
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

    /// One probe, on a connection that may have to be made. Gives how long it took.
    async fn beat(&self, probe: &Probe) -> Result<Duration, Failure> {
        // Others ask on it meanwhile.
        let known = probe.connection.borrow().clone();
        let mut result = match known {
            Some(connection) => self.beat_on(probe, connection).await,
            None => self.beat_anew(probe).await,
        };
        for _ in 1..MAX_TRIES {
            // It ended meanwhile, as it does when the server is started anew: that says nothing of the server.
            if !result.as_ref().is_err_and(|failure| failure.kind == StoreFailure::Connection) {
                break;
            }
            result = self.beat_anew(probe).await;
        }
        result
    }

    /// One probe on a new connection.
    async fn beat_anew(&self, probe: &Probe) -> Result<Duration, Failure> {
        let connection = probe.node.server.connect().await?;
        let was_known = *probe.server.borrow() != ServerId::default();
        self.check(probe, &connection, !was_known).await?;
        let run_id = probe.node.seen.lock().check.run_id.clone();
        let server = ServerId(if run_id.is_empty() { format!("{:016x}", fastrand::u64(..)) } else { run_id });
        if probe.server.replace(server.clone()) != server {
            // It may have come back empty.
            self.config.registry.republish_all(self.config.clock.now());
        }
        self.beat_on(probe, connection).await
    }

    /// For finding out what a server is.
    fn check_timeout(&self) -> Duration {
        self.config.redis.connect_timeout() * 2
    }

    /// One probe. The connection is kept if it serves.
    async fn beat_on(&self, probe: &Probe, connection: ServerConnection) -> Result<Duration, Failure> {
        let result = self.exchange(probe, connection.clone()).await;
        // A server that has no memory answers all the same: another connection would not help.
        let serves = result.as_ref().err().is_none_or(|failure| failure.kind == StoreFailure::OutOfMemory);
        probe.connection.replace(serves.then_some(connection));
        result
    }

    /// No answer takes longer than a decision may.
    async fn exchange(&self, probe: &Probe, mut connection: ServerConnection) -> Result<Duration, Failure> {
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
        // First: a server that has no memory left refuses the heartbeat, and is the one whose memory counts.
        self.read_memory(probe, &mut connection).await?;
        let begun = Instant::now();
        self.beat_or_ping(probe, &mut connection).await?;
        Ok(begun.elapsed())
    }

    async fn beat_or_ping(&self, probe: &Probe, connection: &mut ServerConnection) -> Result<(), Failure> {
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

    /// Finds out how full the server is.
    async fn read_memory(&self, probe: &Probe, connection: &mut ServerConnection) -> Result<(), Failure> {
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

    /// Finds out what the server is. `is_first`: it was never asked before.
    async fn check(
        &self,
        probe: &Probe,
        connection: &ServerConnection,
        is_first: bool,
    ) -> Result<(), Failure> {
        let MonitorConfig { topology, check_every, .. } = self.config;
        let node = &probe.node;
        let prefix = self.config.redis.key_prefix();
        let mut connection = connection.clone();
        connection.set_response_timeout(self.check_timeout());
        // Again now and then: what has to load a script takes two more round trips.
        let scripts = super::scripts();
        let check = check_server(&mut connection, &prefix, topology, node, &scripts);
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

    fn record(&self, probe: &Probe, result: Result<Duration, Failure>) {
        let (topology, Node { address, breaker, .. }) = (&self.config.topology, &*probe.node);
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

    /// Tells the other instances that this one ends.
    pub(super) async fn say_goodbye(self) {
        if let Some(mut connection) = self.connection(self.heartbeat.key()) {
            self.heartbeat.say_goodbye(&mut connection).await;
        }
    }
}

impl Probe {
    fn new(node: Arc<Node>) -> Self {
        let now = Instant::now();
        let decisions = Cell::new((now, node.decisions()));
        let (next_at, check_at, replicas_at) = (Cell::new(now), Cell::new(now), Cell::new(now));
        let (connection, opened) = (RefCell::new(None), Cell::new(None));
        let server = RefCell::default();
        Self { node, connection, next_at, opened, check_at, replicas_at, decisions, server }
    }
}
