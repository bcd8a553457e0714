//! The thread that exchanges state with other instances over Redis, so that requests need not wait for it. Its
//! heartbeats also probe servers that were away.

use std::{
    cell::Cell,
    io,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use bb8_redis::redis::Script;
use parking_lot::Mutex;
use tokio::{
    runtime,
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    api_keys::{self, KeySync, KeyTable, share_uses},
    audit_log::{self, SharedAuditLog},
    bans::{self, BanSync},
    drains::{self, SharedDrains},
    heartbeat::{self, Heartbeat},
    incidents::SharedIncidents,
    introduction::Peers,
    lost_nodes::LostNodes,
    monitor_config::MonitorConfig,
    probe::Probes,
    records,
    rounds::Rounds,
    server_status,
    subscription::{self, SubscriptionEvent},
};
use crate::{
    api_keys::KeyStore,
    limit::{Clock, Instances},
    store::redis::{NodeSeen, RedisNode, ReplicaSeen, ServerAddress, Topology, channel::ChannelMessage},
    telemetry::metrics::{NodeFacts, NodeRole, NodeState, StoreFacts, StoreTopology},
};

/// How often records of limited clients are published.
const PUBLISH_EVERY: Duration = Duration::from_millis(250);
/// Time for learning the topology, subscribing, and reading bans and drains, before clients are served.
const READY_TIMEOUT: Duration = Duration::from_secs(2);
/// Round trips for that, if they are long.
const READY_TRIPS: u32 = 10;
/// Time for sending pending changes to other instances at shutdown.
const LAST_ROUNDS: Duration = Duration::from_secs(3);

/// The running monitor. It ends when dropped.
#[derive(Debug)]
pub struct Monitor {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
    topology: Arc<Topology>,
    peers: Arc<Mutex<Peers>>,
    /// Timeout of a decision.
    timeout: Duration,
}

impl Monitor {
    /// Starts the thread, and waits a moment until it knows the topology, bans and drains, and is subscribed to
    /// invalidations.
    ///
    /// # Errors
    /// There is no thread or runtime left.
    pub fn spawn(config: MonitorConfig) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let peers = Arc::new(Mutex::new(Peers::default()));
        let (updated, timeout, topology) =
            (Arc::clone(&peers), config.redis.timeout, Arc::clone(&config.topology));
        let ready_timeout = config.redis.time_for(READY_TRIPS).max(READY_TIMEOUT);
        let (ready, is_ready) = mpsc::channel();
        let run = move || {
            runtime.block_on(async {
                learn_first(&config.topology).await;
                sync_loop(&config, &updated, ready, stopped).await;
            });
            // A DNS lookup in progress must not delay the end of the process.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("redis".into()).spawn(run)?;
        // Without servers, policies follow their on_store_error. A worker that decided before the first subscription
        // could miss an unblock, so the subscription would void its earlier decisions.
        let _late = is_ready.recv_timeout(ready_timeout);
        Ok(Self { stop, thread, topology, peers, timeout })
    }

    /// The current facts about the servers; callable at any time.
    pub fn facts(&self, instances: Arc<Instances>) -> impl Fn() -> StoreFacts + Send + Sync + use<> {
        let (topology, peers, timeout) = (Arc::clone(&self.topology), Arc::clone(&self.peers), self.timeout);
        let lost = Mutex::new(LostNodes::default());
        move || {
            let mut facts = store_facts(&topology, &peers.lock(), &instances, timeout);
            lost.lock().append_to(&mut facts.nodes, Instant::now());
            facts
        }
    }

    /// Sends pending changes to other instances, for three seconds at most, removes this one from their list, and ends the
    /// thread.
    pub fn stop(self) {
        self.stop.send_replace(true);
        if self.thread.join().is_err() {
            tracing::error!("the Redis monitor crashed");
        }
    }
}

/// All scripts of the peers, loaded together.
fn scripts() -> Vec<&'static Script> {
    let mut scripts = vec![&*heartbeat::HEARTBEAT, &*drains::WRITE, &*audit_log::APPEND];
    scripts.extend(bans::scripts());
    scripts.extend(records::scripts());
    scripts.extend(api_keys::scripts());
    scripts
}

/// Learns the topology for the first time.
async fn learn_first(topology: &Topology) {
    if let Err(failure) = topology.learn().await {
        tracing::warn!(error = %failure.reason(), "Tollgate can't learn which Redis servers there are ({}): policies follow their on_store_error", failure.reason());
        return;
    }
    if let Err(failure) = topology.test_slots().await {
        tracing::warn!(error = %failure.reason(), "the slots of keys can't be compared with the cluster's: {}", failure.reason());
    }
}

fn store_facts(topology: &Topology, peers: &Peers, instances: &Instances, timeout: Duration) -> StoreFacts {
    let map = topology.map();
    let (mut nodes, mut warnings) = (Vec::new(), topology.warnings());
    for node in &map.nodes {
        let seen = node.seen.lock().clone();
        let own = server_status::warnings(&seen, timeout).into_iter();
        match topology.is_cluster() {
            true => warnings.extend(own.map(|warning| format!("{}: {warning}", node.address))),
            false => warnings.extend(own),
        }
        let primary = primary_facts(node, &seen, map.slot_ranges(node));
        let mut replicas: Vec<_> =
            seen.replicas.iter().map(|seen| replica_facts(&seen.address, &primary, Some(seen))).collect();
        for (replica, _) in map.replicas.iter().filter(|(_, its_primary)| *its_primary == node.address) {
            if !seen.replicas.iter().any(|seen| seen.address == *replica) {
                replicas.push(replica_facts(replica, &primary, None));
            }
        }
        nodes.push(primary);
        nodes.append(&mut replicas);
    }
    let first = map.nodes.first().map(|node| node.seen.lock().clone()).unwrap_or_default();
    StoreFacts {
        topology: match () {
            () if topology.is_cluster() => StoreTopology::Cluster,
            () if topology.has_sentinels() => StoreTopology::Sentinel,
            () => StoreTopology::Single,
        },
        nodes,
        breaker_open: map.nodes.iter().any(|node| node.breaker.is_open()),
        instances: instances.count(),
        sharing: instances.sharing(),
        role: first.check.role,
        version: first.check.version,
        latency: map.nodes.iter().filter_map(|node| node.seen.lock().latency).max(),
        warnings,
        clock_offset: peers.own.as_ref().map(|own| own.clock_offset),
        own: peers.own.clone(),
        others: peers.others.clone(),
    }
}

fn primary_facts(node: &RedisNode, seen: &NodeSeen, slots: Vec<(u16, u16)>) -> NodeFacts {
    NodeFacts {
        address: node.address.to_string(),
        role: match seen.check.role.as_str() {
            "master" => Some(NodeRole::Primary),
            "slave" => Some(NodeRole::Replica),
            _ => None,
        },
        primary: None,
        slots,
        state: match () {
            () if node.breaker.is_open() => NodeState::BreakerOpen,
            () if seen.failure.is_some() => NodeState::Down,
            () if seen.latency.is_some() => NodeState::Up,
            () => NodeState::Unknown,
        },
        failure: seen.failure.clone(),
        is_lost: false,
        latency: seen.latency,
        lag: None,
        decisions: node.decisions(),
        decisions_per_second: seen.rate,
        version: seen.check.version.clone(),
    }
}

/// The facts about a replica, from its primary. `seen`: as the primary reports it; `None` if it does not.
fn replica_facts(address: &ServerAddress, primary: &NodeFacts, seen: Option<&ReplicaSeen>) -> NodeFacts {
    let (state, failure) = match seen {
        // The last report may be outdated; and without a role, the primary's INFO is not readable.
        _ if primary.state != NodeState::Up || primary.role.is_none() => (NodeState::Unknown, None),
        Some(seen) if seen.is_online => (NodeState::Up, None),
        Some(_) => (NodeState::Down, Some("it is still copying its primary")),
        None => (NodeState::Down, Some("it is not connected to its primary")),
    };
    NodeFacts {
        address: address.to_string(),
        role: Some(NodeRole::Replica),
        primary: Some(primary.address.clone()),
        state,
        failure: failure.map(str::to_owned),
        lag: seen.and_then(|seen| seen.lag),
        ..NodeFacts::default()
    }
}

/// The steps to complete before clients are served, unless no server is reachable.
struct FirstSteps {
    ready: mpsc::Sender<()>,
    is_subscribed: Cell<bool>,
    has_bans: Cell<bool>,
    has_drains: Cell<bool>,
    has_keys: Cell<bool>,
}

impl FirstSteps {
    /// `has_keys`: there are no API keys to read.
    fn new(ready: mpsc::Sender<()>, has_keys: bool) -> Self {
        let (is_subscribed, has_bans, has_drains) = Default::default();
        Self { ready, is_subscribed, has_bans, has_drains, has_keys: Cell::new(has_keys) }
    }

    fn done(&self, step: &Cell<bool>) {
        let steps = [&self.is_subscribed, &self.has_bans, &self.has_drains, &self.has_keys];
        if !step.replace(true) && steps.into_iter().all(Cell::get) {
            self.give_up();
        }
    }

    /// Ends the wait: all steps are done, or no server is reachable.
    fn give_up(&self) {
        // The receiver may have stopped waiting.
        let _late = self.ready.send(());
    }
}

/// Signals `ready` once bans, drains and API keys were read, or no server is reachable.
async fn sync_loop(
    config: &MonitorConfig,
    peers: &Mutex<Peers>,
    ready: mpsc::Sender<()>,
    stopped: watch::Receiver<bool>,
) {
    let MonitorConfig { topology, redis, instances, on_unblocked, on_cleared, .. } = config;
    let (ban_sync, prefix) = (BanSync::new(config), redis.key_prefix());
    let shared_drains = SharedDrains::new(&prefix);
    let (key_table, shares_keys) = (KeyTable::new(&prefix), config.api_keys.store() == KeyStore::Redis);
    let key_sync = KeySync::new(config, &key_table);
    let first = FirstSteps::new(ready, !shares_keys);
    let on_event = |event: SubscriptionEvent<'_>| {
        match event {
            SubscriptionEvent::Message(text) => match ChannelMessage::parse(text) {
                ChannelMessage::Array(drains::CHANGED) => return shared_drains.miss(),
                ChannelMessage::Array(api_keys::CHANGED) => return key_sync.miss(),
                ChannelMessage::Array(change) => return ban_sync.receive(change.as_bytes()),
                ChannelMessage::Identifier(identifier) => on_unblocked(identifier),
                ChannelMessage::Limit { policy, identifier } => on_cleared(policy, identifier),
            },
            SubscriptionEvent::MayHaveMissed => {
                ban_sync.miss();
                shared_drains.miss();
                key_sync.miss();
            }
            SubscriptionEvent::NotSubscribed => return first.give_up(),
        }
        instances.invalidate();
        first.done(&first.is_subscribed);
    };
    let probes = Probes::new(config, Heartbeat::new(config, peers), scripts());
    let audit_log = SharedAuditLog::new(&prefix);
    let shared_incidents = SharedIncidents::new(config, &prefix);
    let (bans_sent, is_sent) = watch::channel(false);
    let share = async {
        let bans = async {
            ban_sync.run(&probes, &stopped, || first.done(&first.has_bans)).await;
            // The audit log now has the bans of the last round.
            bans_sent.send_replace(true);
        };
        let audit = audit_log.run(&probes, &config.audit, &is_sent);
        let keys = async {
            if shares_keys {
                key_sync.run(&probes, &stopped, || first.done(&first.has_keys)).await;
            }
        };
        let uses = share_uses(config, &key_table, &probes, &stopped);
        let incidents = shared_incidents.run(&probes, &stopped);
        tokio::join!(publish_records(config, &probes, &stopped), bans, keys, uses, audit, incidents);
    };
    let mut ends = stopped.clone();
    let time_is_up = async move {
        drop(ends.wait_for(|stopped| *stopped).await);
        sleep(LAST_ROUNDS).await;
    };
    tokio::select! {
        () = topology.keep_current() => {}
        () = subscription::listen(topology, redis, on_event) => {}
        () = probes.run() => {}
        () = share => {}
        () = shared_drains.run(&probes, &config.drains, || first.done(&first.has_drains)) => {}
        () = time_is_up => {}
    }
    probes.say_goodbye().await;
}

/// Publishes records of limited clients until the process `ends`. Records that can't be published are kept for the next
/// round.
async fn publish_records(config: &MonitorConfig, probes: &Probes<'_>, ends: &watch::Receiver<bool>) {
    let MonitorConfig { scope, registry, clock, .. } = config;
    let mut rounds = Rounds::new(PUBLISH_EVERY, ends);
    while rounds.next().await {
        let Some(mut connection) = probes.connection(&scope.changed_key()) else { continue };
        let published = match rounds.is_last() {
            true => records::publish_rest(&mut connection, scope, registry, clock).await,
            false => records::publish_round(&mut connection, scope, registry, clock.now())
                .await
                .map(|_published| ()),
        };
        if let Err(error) = published {
            tracing::debug!(%error, "can't publish limited clients");
        }
    }
}
