//! The thread that keeps in touch with Redis, so that no request has to. It hosts all that instances tell each other: its
//! heartbeats probe a server that was away, too.

use std::{
    cell::Cell,
    io,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    runtime,
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    audit_log::SharedAuditLog,
    bans::BanSync,
    drains::{self, SharedDrains},
    heartbeat::Heartbeat,
    introduction::Peers,
    lost_nodes::LostNodes,
    probe::Probes,
    records::{self, Scope},
    rounds::Rounds,
    server_status,
    subscription::{self, SubscriptionEvent},
};
use crate::{
    abuse::{AuditLog, ClientRegistry, bans::BanTable},
    config::model,
    limit::{Clock, Instances, SystemClock},
    store::redis::{Address, Node, NodeSeen, ReplicaSeen, Topology, channel::Message},
    telemetry::metrics::{NodeFacts, NodeRole, NodeState, StoreFacts, StoreTopology},
    upstream::DrainTable,
};

/// How often records of limited clients are published.
const PUBLISH_EVERY: Duration = Duration::from_millis(250);
/// For finding out which servers there are, subscribing, and reading bans and drains, before clients are served.
const READY_TIMEOUT: Duration = Duration::from_secs(2);
/// Round trips that takes, where they are long.
const READY_TRIPS: u32 = 10;
/// For telling the other instances what they don't know yet, when this one ends.
const LAST_ROUNDS: Duration = Duration::from_secs(1);

/// Takes a policy's name and an identifier.
type OnLimit = Box<dyn Fn(&str, &str) + Send>;

/// What the monitor works with.
pub struct MonitorConfig {
    pub topology: Arc<Topology>,
    pub redis: model::Redis,
    /// How this instance is told from others, and whose records it publishes.
    pub instance: String,
    /// How often the server is checked again: a warning ends once an operator has mended its cause.
    pub check_every: Duration,
    pub scope: Scope,
    pub registry: Arc<ClientRegistry>,
    pub bans: Arc<BanTable>,
    pub drains: Arc<DrainTable>,
    pub audit: Arc<AuditLog>,
    pub clock: SystemClock,
    pub instances: Arc<Instances>,
    /// The hash of the configuration, which may change.
    pub configuration: Box<dyn Fn() -> String + Send>,
    /// Called with the identifier whose limits were all taken back, by whatever instance.
    pub on_unblocked: Box<dyn Fn(&str) + Send>,
    /// Called with the policy and the identifier whose limit alone was taken back.
    pub on_cleared: OnLimit,
}

/// The running monitor. Dropped, it ends by itself.
#[derive(Debug)]
pub struct Monitor {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
    topology: Arc<Topology>,
    peers: Arc<Mutex<Peers>>,
    /// For a decision.
    timeout: Duration,
}

impl Monitor {
    /// Starts the thread, and waits a moment until it knows which servers there are, who is banned and what is drained, and
    /// hears what other instances invalidate.
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
                keep_in_touch(&config, &updated, ready, stopped).await;
            });
            // A name that is still looked up must not keep the process.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("redis".into()).spawn(run)?;
        // Without servers, policies follow their on_store_error. A worker that decided before the first subscription
        // could miss an unblock, so the subscription would void what was decided until then.
        let _late = is_ready.recv_timeout(ready_timeout);
        Ok(Self { stop, thread, topology, peers, timeout })
    }

    /// What is known of the servers, to be asked at any time.
    pub fn facts(&self, instances: Arc<Instances>) -> impl Fn() -> StoreFacts + Send + Sync + use<> {
        let (topology, peers, timeout) = (Arc::clone(&self.topology), Arc::clone(&self.peers), self.timeout);
        let lost = Mutex::new(LostNodes::default());
        move || {
            let mut facts = store_facts(&topology, &peers.lock(), instances.count(), timeout);
            lost.lock().append_to(&mut facts.nodes, Instant::now());
            facts
        }
    }

    /// Tells the other instances what they don't know yet, for a second at most, then that this one ends; and ends the
    /// thread.
    pub fn stop(self) {
        self.stop.send_replace(true);
        if self.thread.join().is_err() {
            tracing::error!("the Redis monitor crashed");
        }
    }
}

/// Finds out which servers there are, for the first time.
async fn learn_first(topology: &Topology) {
    if let Err(failure) = topology.learn().await {
        tracing::warn!(error = %failure.reason(), "Tollgate can't learn which Redis servers there are ({}): policies follow their on_store_error", failure.reason());
        return;
    }
    if let Err(failure) = topology.test_slots().await {
        tracing::warn!(error = %failure.reason(), "the slots of keys can't be compared with the cluster's: {}", failure.reason());
    }
}

fn store_facts(topology: &Topology, peers: &Peers, instances: u32, timeout: Duration) -> StoreFacts {
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
        instances,
        role: first.check.role,
        version: first.check.version,
        latency: map.nodes.iter().filter_map(|node| node.seen.lock().latency).max(),
        warnings,
        clock_offset: peers.own.as_ref().map(|own| own.clock_offset),
        own: peers.own.clone(),
        others: peers.others.clone(),
    }
}

fn primary_facts(node: &Node, seen: &NodeSeen, slots: Vec<(u16, u16)>) -> NodeFacts {
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

/// A replica, which only its primary is asked about. `seen`: as the primary sees it, if it does.
fn replica_facts(address: &Address, primary: &NodeFacts, seen: Option<&ReplicaSeen>) -> NodeFacts {
    let (state, failure) = match seen {
        // What was seen last may be out of date; and without a role, the primary does not say what it sees.
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

/// What has to be known before clients are served, as far as a server answers.
struct FirstSteps {
    ready: mpsc::Sender<()>,
    is_subscribed: Cell<bool>,
    has_bans: Cell<bool>,
    has_drains: Cell<bool>,
}

impl FirstSteps {
    fn new(ready: mpsc::Sender<()>) -> Self {
        Self { ready, is_subscribed: Cell::default(), has_bans: Cell::default(), has_drains: Cell::default() }
    }

    fn done(&self, step: &Cell<bool>) {
        if !step.replace(true) && self.is_subscribed.get() && self.has_bans.get() && self.has_drains.get() {
            self.give_up();
        }
    }

    /// No server answers, or there is nothing left to wait for.
    fn give_up(&self) {
        // Nobody waits for long.
        let _late = self.ready.send(());
    }
}

/// `ready` is told once bans and drains were read, or no server can be asked for them.
async fn keep_in_touch(
    config: &MonitorConfig,
    peers: &Mutex<Peers>,
    ready: mpsc::Sender<()>,
    stopped: watch::Receiver<bool>,
) {
    let MonitorConfig { topology, redis, instances, on_unblocked, on_cleared, .. } = config;
    let (ban_sync, prefix) = (BanSync::new(config), redis.key_prefix());
    let shared_drains = SharedDrains::new(&prefix);
    let first = FirstSteps::new(ready);
    let on_event = |event: SubscriptionEvent<'_>| {
        match event {
            SubscriptionEvent::Message(text) => match Message::parse(text) {
                Message::Array(drains::CHANGED) => return shared_drains.miss(),
                Message::Array(change) => return ban_sync.receive(change.as_bytes()),
                Message::Identifier(identifier) => on_unblocked(identifier),
                Message::Limit { policy, identifier } => on_cleared(policy, identifier),
            },
            SubscriptionEvent::MayHaveMissed => {
                ban_sync.miss();
                shared_drains.miss();
            }
            SubscriptionEvent::NotSubscribed => return first.give_up(),
        }
        instances.invalidate();
        first.done(&first.is_subscribed);
    };
    let probes = Probes::new(config, Heartbeat::new(config, peers));
    let audit_log = SharedAuditLog::new(&prefix);
    let (bans_sent, is_sent) = watch::channel(false);
    let share = async {
        let bans = async {
            ban_sync.run(&probes, &stopped, || first.done(&first.has_bans)).await;
            // Bans of the last round are in the audit log now.
            bans_sent.send_replace(true);
        };
        let audit = audit_log.run(&probes, &config.audit, &is_sent);
        tokio::join!(publish_records(config, &probes, &stopped), bans, audit);
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

/// Publishes records of limited clients until the process `ends`. What can't be published now stays due.
async fn publish_records(config: &MonitorConfig, probes: &Probes<'_>, ends: &watch::Receiver<bool>) {
    let MonitorConfig { scope, registry, clock, .. } = config;
    let mut rounds = Rounds::new(PUBLISH_EVERY, ends);
    while rounds.next().await {
        let Some(mut connection) = probes.connection(&scope.changed_key()) else { continue };
        if let Err(error) = records::publish_round(&mut connection, scope, registry, clock.now()).await {
            tracing::debug!(%error, "can't publish limited clients");
        }
    }
}
