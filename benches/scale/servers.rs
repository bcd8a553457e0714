//! Real servers under the same traffic.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{task::spawn_local, time::sleep_until};
use tollgate::{
    limit::{
        Check, DecisionSource, GuardShared, GuardedStore, Policy, SlicedStore, Slices, SteadyClock, Store,
        algorithm::Detail,
    },
    store::{
        memory::MemoryStore,
        redis::{RedisStore, Topology},
    },
    telemetry::metrics::StoreMetrics,
};

use super::{
    simulation::{MILLI, SECOND},
    support::{Redis, load::block_on_local, settings},
    traffic::{Demand, Variant, identifier},
};

/// What servers have done after the warm-up, by server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) wakes: f64,
    pub(crate) calls: f64,
    /// Nanoseconds of CPU time.
    pub(crate) busy: f64,
}

pub(crate) struct Run {
    pub(crate) servers: Vec<Done>,
    /// Of all servers together.
    pub(crate) decisions: f64,
    /// How long each request waited, in nanoseconds, sorted.
    pub(crate) waits: Vec<i64>,
}

/// An instance's stores.
enum Limiter {
    Redis(RedisStore),
    Guarded(GuardedStore<RedisStore, MemoryStore>),
    Sliced(GuardedStore<SlicedStore<RedisStore>, MemoryStore>),
}

impl Limiter {
    async fn new(nodes: &[Redis], variant: Variant) -> Self {
        let config = settings(nodes, Duration::from_millis(50));
        let topology = Topology::open(&config).unwrap();
        topology.learn().await.unwrap();
        let store = RedisStore::new(topology, &config, Arc::<StoreMetrics>::default(), None);
        store.warm_up();
        let clock = SteadyClock::new();
        let shared = GuardShared { instances: Arc::default(), clock };
        let local = MemoryStore::new(100_000, Arc::new(clock));
        match variant {
            Variant::Bare => Self::Redis(store),
            Variant::Denials => Self::Guarded(GuardedStore::new(store, local, shared)),
            Variant::Slices => {
                let slices = Arc::new(Slices::new(Arc::clone(&shared.instances)));
                let sliced = SlicedStore::new(store, slices, Arc::new(clock));
                Self::Sliced(GuardedStore::new(sliced, local, shared))
            }
        }
    }

    /// Whether Redis has decided.
    async fn asks_redis(&self, check: Check<'_>) -> bool {
        let checks = &[check];
        let decided = match self {
            Self::Redis(store) => store.decide(checks).await,
            Self::Guarded(store) => store.decide(checks).await,
            Self::Sliced(store) => store.decide(checks).await,
        };
        decided.unwrap().source == DecisionSource::Store
    }
}

/// Requests at this rate for so many nanoseconds, of which the first do not count.
pub(crate) fn run(
    nodes: &[Redis],
    demand: &Demand,
    policy: &Policy,
    variant: Variant,
    instances: usize,
    rate: f64,
    (warm, end): (i64, i64),
) -> Run {
    block_on_local(async {
        let mut limiters = Vec::new();
        for _ in 0..instances {
            limiters.push(Rc::new(Limiter::new(nodes, variant).await));
        }
        let policy = Rc::new(policy.clone());
        let made = Rc::new(RefCell::new((0.0, Vec::new())));
        let begun = Instant::now();
        let (mut tasks, mut is_warm) = (Vec::new(), false);
        for arrival in demand.arrivals(rate, instances, 1, MILLI).take_while(|arrival| arrival.at < end) {
            sleep_until((begun + Duration::from_nanos(arrival.at.unsigned_abs())).into()).await;
            if arrival.at >= warm && !is_warm {
                is_warm = true;
                nodes.iter().for_each(Redis::mark);
            }
            let (limiter, policy) = (Rc::clone(&limiters[arrival.instance]), Rc::clone(&policy));
            let made = Rc::clone(&made);
            tasks.push(spawn_local(async move {
                let identifier = identifier(arrival.key);
                let check = Check { policy: &policy, identifier, cost: 1, detail: Detail::None };
                let begun = Instant::now();
                let asked = limiter.asks_redis(check).await;
                if arrival.at >= warm {
                    let (decisions, waits) = &mut *made.borrow_mut();
                    *decisions += f64::from(u8::from(asked));
                    waits.push(i64::try_from(begun.elapsed().as_nanos()).unwrap_or(SECOND));
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let done = |node: &Redis| Done {
            busy: node.cpu_since_mark() * 1e3,
            wakes: node.wakes_since_mark(),
            calls: node.calls_since_mark(),
        };
        let servers = nodes.iter().map(done).collect();
        let (decisions, mut waits) = made.take();
        waits.sort_unstable();
        Run { servers, decisions, waits }
    })
}
