//! What one worker serves requests with.

use std::{net::SocketAddr, rc::Rc, sync::Arc, time::Instant};

use super::{
    client::Client, exchange::Ledger, patience::Patience, pools::Pools, request_body::RequestBody,
    rules::Rules, settlements::Settlements, tokens::Tokens,
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
        diagnostics::TrafficSampler,
        metrics::{Metrics, WorkerMetrics},
        traces::Tracer,
    },
    upstream::{Shared, Upstream},
};

/// What the composition root gives each worker once.
pub struct Parts<S> {
    /// The worker's number, from 0.
    pub index: usize,
    /// Makes the worker's end of the store, on its own thread.
    pub store: Box<dyn FnOnce() -> S + Send>,
    /// Where its connections to upstreams are counted.
    pub metrics: Arc<Metrics>,
    /// The worker's end of the access log.
    pub access_log: WorkerLog,
    /// The worker's end of the traces; `None`: requests are not traced.
    pub tracer: Option<Tracer>,
    /// What it counts for warnings.
    pub sampler: TrafficSampler,
    /// Who is shut out.
    pub bans: Arc<Bans>,
    /// The time.
    pub clock: SystemClock,
    /// What it begins with.
    pub generation: Generation,
}

/// What each configuration gives a worker.
pub struct Generation {
    /// What requests are held against.
    pub rules: Arc<Rules>,
    /// The upstreams, in the configuration's order. One that stays as it was is the same as before.
    pub upstreams: Vec<Arc<Shared>>,
    /// The worker's counters.
    pub metrics: Arc<WorkerMetrics>,
    /// The worker's end of the abuse records.
    pub recorder: Recorder,
}

/// One worker under one configuration: everything that a request needs, in one thread. A request keeps the one that it
/// began with.
pub struct Worker<S> {
    pub(super) rules: Arc<Rules>,
    pub(super) store: Rc<S>,
    pub(super) tokens: Rc<Tokens>,
    pub(super) settlements: Rc<Settlements>,
    pub(super) upstreams: Vec<Rc<Upstream<RequestBody>>>,
    pub(super) sampler: Rc<TrafficSampler>,
    pub(super) recorder: Recorder,
    pub(super) bans: Arc<Bans>,
    pub(super) strikes: Rc<Strikes>,
    pub(super) ledger: Rc<Ledger>,
    pools: Rc<Pools>,
    /// How many there were before it in this thread.
    number: u64,
}

impl<S> Worker<S> {
    /// Puts a thread's first worker together. To be called on that thread, in its runtime.
    pub fn new(parts: Parts<S>) -> Self {
        let Parts { index, store, metrics, access_log, tracer, sampler, bans, clock, generation } = parts;
        let pools = Rc::new(Pools::new(index, metrics));
        let access_log = Rc::new(access_log);
        Self {
            store: Rc::new(store()),
            tokens: Rc::new(Tokens::new()),
            settlements: Rc::default(),
            upstreams: pools.adopt(generation.upstreams),
            sampler: Rc::new(sampler),
            recorder: generation.recorder,
            strikes: Rc::new(Strikes::new(Arc::clone(&bans))),
            bans,
            ledger: Rc::new(ledger(
                &generation.rules,
                generation.metrics,
                Books { access_log, tracer, clock },
            )),
            rules: generation.rules,
            pools,
            number: 0,
        }
    }

    /// The next one in the same thread, under another configuration. What this one has taken of limits is given back
    /// where it was taken; connections to upstreams that stay as they are are used on.
    pub fn succeed(&self, generation: Generation) -> Self {
        let Generation { rules, upstreams, metrics, recorder } = generation;
        let access_log = Rc::clone(&self.ledger.access_log);
        access_log.reconfigure(rules.config.access_log.format, rules.config.access_log.sample);
        let (tracer, clock) = (self.ledger.tracer.clone(), self.ledger.clock.clone());
        let books = Books { access_log, tracer, clock };
        Self {
            store: Rc::clone(&self.store),
            tokens: Rc::clone(&self.tokens),
            settlements: Rc::clone(&self.settlements),
            upstreams: self.pools.adopt(upstreams),
            sampler: Rc::clone(&self.sampler),
            recorder,
            bans: Arc::clone(&self.bans),
            strikes: Rc::clone(&self.strikes),
            ledger: Rc::new(ledger(&rules, metrics, books)),
            rules,
            pools: Rc::clone(&self.pools),
            number: self.number + 1,
        }
    }

    /// How many there were before it in its thread.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What is configured.
    pub fn config(&self) -> &Config {
        &self.rules.config
    }

    /// The worker's counters.
    pub fn metrics(&self) -> &WorkerMetrics {
        &self.ledger.metrics
    }

    /// A connection from `peer`.
    pub fn client(&self, peer: SocketAddr, patience: Rc<Patience>) -> Client {
        let address = address_text(peer.ip(), self.config().client_address.ipv6_prefix);
        Client::new(peer, self.rules.trusts(peer), address, patience)
    }

    /// Hands on what has been gathered, and closes connections that were idle for too long. Called
    /// a few times a second, with the number of open client connections.
    pub fn tick(&self, now: Instant, connections: usize) {
        self.hand_on();
        self.strikes.flush();
        self.sampler.flush();
        self.ledger.access_log.flush();
        self.metrics().thread().connections().set(connections as u64);
        self.pools.tick(now);
    }

    /// Hands on what it has noted. Called as often for one whose configuration is not in force any more.
    pub fn hand_on(&self) {
        self.recorder.flush();
    }

    /// Ready once all that requests have held of their limits is given back, or, after a second, it is too late for it.
    /// Called when the last of them has ended.
    pub async fn settled(&self) {
        self.settlements.settled().await;
    }
}

/// What of a ledger no configuration changes.
struct Books {
    access_log: Rc<WorkerLog>,
    tracer: Option<Tracer>,
    clock: SystemClock,
}

fn ledger(rules: &Rules, metrics: Arc<WorkerMetrics>, books: Books) -> Ledger {
    let Books { access_log, tracer, clock } = books;
    let config = &rules.config;
    Ledger {
        metrics,
        access_log,
        tracer,
        clock,
        routes: config.routes.iter().map(|route| route.name.clone()).collect(),
        policies: names(rules),
        request_id: config.request_id.clone(),
        idle_timeout: config.client_limits.idle_timeout,
        complaints: Throttle::default(),
    }
}

/// What may deny a request, by the index that it has in records: policies, rules of bans, bans by hand.
fn names(rules: &Rules) -> Vec<String> {
    let policies = rules.config.policies.iter().map(|policy| policy.name.clone());
    let bans = rules.bans.iter().map(|rule| rule.name.to_string());
    policies.chain(bans).chain([HAND.to_owned()]).collect()
}
