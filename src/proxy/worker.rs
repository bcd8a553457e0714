//! What one worker serves requests with.

use std::{net::SocketAddr, rc::Rc, sync::Arc, time::Instant};

use super::{
    client::Client, exchange::Ledger, patience::Patience, request_body::RequestBody, rules::Rules,
    settlements::Settlements, tokens::Tokens,
};
use crate::{
    abuse::{
        Recorder,
        bans::{Bans, HAND, Strikes},
    },
    config::model::Config,
    identity::address_text,
    limit::SystemClock,
    telemetry::{
        Throttle,
        access_log::WorkerLog,
        doctor::Watch,
        metrics::{PoolState, WorkerMetrics},
        traces::Tracer,
    },
    upstream::{Shared, Upstream},
};

/// What the composition root gives each worker.
pub struct Parts<S> {
    /// The worker's number, from 0.
    pub index: usize,
    /// What requests are held against.
    pub rules: Arc<Rules>,
    /// Makes the worker's end of the store, on its own thread.
    pub store: Box<dyn FnOnce() -> S + Send>,
    /// The upstreams, in the configuration's order.
    pub upstreams: Vec<Arc<Shared>>,
    /// The worker's counters.
    pub metrics: Arc<WorkerMetrics>,
    /// The worker's end of the access log.
    pub access_log: WorkerLog,
    /// The worker's end of the traces; `None`: requests are not traced.
    pub tracer: Option<Tracer>,
    /// What it counts for warnings.
    pub watch: Watch,
    /// The worker's end of the abuse records.
    pub recorder: Recorder,
    /// Who is shut out.
    pub bans: Arc<Bans>,
    /// The time.
    pub clock: SystemClock,
}

/// One worker: everything that a request needs, in one thread.
pub struct Worker<S> {
    pub(super) rules: Arc<Rules>,
    pub(super) store: S,
    pub(super) tokens: Tokens,
    pub(super) settlements: Settlements,
    pub(super) upstreams: Vec<Rc<Upstream<RequestBody>>>,
    pub(super) watch: Watch,
    pub(super) recorder: Recorder,
    pub(super) bans: Arc<Bans>,
    pub(super) strikes: Strikes,
    pub(super) ledger: Rc<Ledger>,
}

impl<S> Worker<S> {
    /// Puts a worker together.
    pub fn new(parts: Parts<S>) -> Self {
        let config = &parts.rules.config;
        let ledger = Ledger {
            metrics: parts.metrics,
            access_log: parts.access_log,
            tracer: parts.tracer,
            clock: parts.clock,
            routes: config.routes.iter().map(|route| route.name.clone()).collect(),
            policies: names(&parts.rules),
            request_id: config.request_id.clone(),
            idle_timeout: config.client_limits.idle_timeout,
            complaints: Throttle::default(),
        };
        let upstreams =
            parts.upstreams.into_iter().map(|shared| Upstream::new(shared, parts.index)).collect();
        Self {
            store: (parts.store)(),
            tokens: Tokens::new(),
            settlements: Settlements::default(),
            upstreams,
            watch: parts.watch,
            recorder: parts.recorder,
            strikes: Strikes::new(Arc::clone(&parts.bans)),
            bans: parts.bans,
            ledger: Rc::new(ledger),
            rules: parts.rules,
        }
    }

    /// What is configured.
    pub fn config(&self) -> &Config {
        &self.rules.config
    }

    /// The worker's counters.
    pub fn metrics(&self) -> &WorkerMetrics {
        &self.ledger.metrics
    }

    /// The same, to be kept.
    pub fn shared_metrics(&self) -> Arc<WorkerMetrics> {
        Arc::clone(&self.ledger.metrics)
    }

    /// A connection from `peer`.
    pub fn client(&self, peer: SocketAddr, patience: Rc<Patience>) -> Client {
        let address = address_text(peer.ip(), self.config().client_address.ipv6_prefix);
        Client::new(peer, self.rules.trusts(peer), address, patience)
    }

    /// Hands on what has been gathered, and closes connections that were idle for too long. Called
    /// a few times a second, with the number of open client connections.
    pub fn tick(&self, now: Instant, connections: usize) {
        self.recorder.flush();
        self.strikes.flush();
        self.watch.flush();
        self.ledger.access_log.flush();
        self.metrics().connections().set(connections as u64);
        for (index, upstream) in self.upstreams.iter().enumerate() {
            upstream.expire(now);
            for (state, count) in [
                (PoolState::Active, upstream.active_connections()),
                (PoolState::Idle, upstream.idle_connections()),
            ] {
                if let Some(gauge) = self.metrics().upstream_connections(index, state) {
                    gauge.set(count as u64);
                }
            }
        }
    }

    /// Ready once all that requests have held of their limits is given back, or, after a second, it is too late for it.
    /// Called when the last of them has ended.
    pub async fn settled(&self) {
        self.settlements.settled().await;
    }

    /// The worker's upstreams.
    pub fn upstreams(&self) -> &[Rc<Upstream<RequestBody>>] {
        &self.upstreams
    }
}

/// What may deny a request, by the index that it has in records: policies, rules of bans, bans by hand.
fn names(rules: &Rules) -> Vec<String> {
    let policies = rules.config.policies.iter().map(|policy| policy.name.clone());
    let bans = rules.bans.iter().map(|rule| rule.name.to_string());
    policies.chain(bans).chain([HAND.to_owned()]).collect()
}
