//! Many instances and shards in one thread, without a clock: the limiter is the real one (local denials, slices, fallback and
//! algorithms), and so is each shard's state; links gather batches by the rules of `store/redis/link.rs`; and the time that a call
//! takes is what was measured.
//!
//! The same seed gives the same run. Not in it: the refunds of batches that have timed out, and more workers than one for each
//! instance.

use std::{
    cell::{Cell, RefCell},
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Poll, Waker},
};

use compact_str::CompactString;
use futures_executor::{LocalPool, LocalSpawner};
use futures_util::{
    FutureExt,
    future::{self, Either, LocalFutureObj, poll_fn},
    task::LocalSpawn,
};
use tokio::sync::oneshot;
use tollgate::{
    limit::{
        Check, CircuitBreaker, Clock, Decision, DecisionSource, GuardShared, GuardedStore, Instances,
        ManualClock, Policy, SlicedStore, Slices, Store, Taken, Unavailable, algorithm::Detail,
    },
    store::memory::MemoryStore,
};

use super::{
    model::Model,
    traffic::{Demand, Variant, identifier, node_of},
};

/// As in `store/redis`.
const MAX_REQUESTS: usize = 64;
const MAX_IN_FLIGHT: usize = 32;
const PATIENCE: i64 = 20;
const FAILURES: u32 = 5;
const PROBE_AFTER: i64 = 760 * MILLI;
const BREAKER_POLL: i64 = 50 * MILLI;

pub(crate) const MICRO: i64 = 1_000;
pub(crate) const MILLI: i64 = 1_000 * MICRO;
pub(crate) const SECOND: i64 = 1_000 * MILLI;
pub(crate) const TIMEOUT: i64 = 50 * MILLI;

/// What is simulated.
pub(crate) struct Setup<'a> {
    pub(crate) model: &'a Model,
    pub(crate) demand: &'a Demand,
    pub(crate) policy: Policy,
    pub(crate) variant: Variant,
    pub(crate) instances: usize,
    pub(crate) shards: usize,
    /// Decisions a second, of all instances together.
    pub(crate) rate: f64,
    /// From when it is measured, and when it ends, in nanoseconds.
    pub(crate) warm: i64,
    pub(crate) end: i64,
    /// Requests arrive at multiples of this many nanoseconds.
    pub(crate) tick: i64,
    /// From when to when the shard of the hottest key answers nothing.
    pub(crate) away: Option<(i64, i64)>,
    pub(crate) seed: u64,
}

/// What was seen, after the warm-up.
#[derive(Default, Clone)]
pub(crate) struct Outcome {
    pub(crate) requests: u64,
    pub(crate) admitted: u64,
    /// Decided without Redis.
    pub(crate) by_slice: u64,
    pub(crate) by_denial: u64,
    pub(crate) by_fallback: u64,
    pub(crate) failed: u64,
    /// Nanoseconds, sorted.
    pub(crate) waits: Vec<i64>,
    /// Of each shard.
    pub(crate) shards: Vec<Load>,
    /// The most that was admitted of one key in one window.
    pub(crate) most: u64,
}

/// Of a shard, after the warm-up.
#[derive(Default, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) calls: u64,
    pub(crate) decisions: u64,
    /// Nanoseconds.
    pub(crate) busy: f64,
}

impl Outcome {
    pub(crate) fn wait(&self, share: f64) -> f64 {
        let nth = (self.waits.len() as f64 * share) as usize;
        self.waits.get(nth).map_or(0.0, |&wait| wait as f64 / MILLI as f64)
    }

    pub(crate) fn sum(&self, of: impl Fn(&Load) -> f64) -> f64 {
        self.shards.iter().map(of).sum()
    }

    pub(crate) fn hottest(&self) -> f64 {
        self.shards.iter().map(|load| load.busy).fold(0.0, f64::max)
    }
}

/// Time, which passes from event to event.
struct World {
    now: Cell<i64>,
    clock: Arc<ManualClock>,
    timers: RefCell<BinaryHeap<Reverse<Timer>>>,
    timers_made: Cell<u64>,
    spawner: LocalSpawner,
    random: RefCell<fastrand::Rng>,
}

struct Timer {
    /// When, and the how manyth: timers of one instant ring in the order in which they were set.
    at: (i64, u64),
    waker: Waker,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

impl World {
    fn sleep_until(&self, at: i64) -> impl Future<Output = ()> {
        let mut is_set = false;
        poll_fn(move |context| {
            if self.now.get() >= at {
                return Poll::Ready(());
            }
            if !is_set {
                let number = self.timers_made.replace(self.timers_made.get() + 1);
                let timer = Timer { at: (at, number), waker: context.waker().clone() };
                self.timers.borrow_mut().push(Reverse(timer));
                is_set = true;
            }
            Poll::Pending
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.spawner.spawn_local_obj(LocalFutureObj::new(Box::new(task))).expect("the pool is there");
    }

    /// Lets the next timer ring. Returns false if there is none.
    fn pass(&self) -> bool {
        let Some(Reverse(Timer { at: (at, _), waker })) = self.timers.borrow_mut().pop() else {
            return false;
        };
        self.now.set(self.now.get().max(at));
        self.clock.set(EPOCH + self.now.get() / MICRO);
        waker.wake();
        true
    }
}

/// Some time in 2026, in microseconds, at which windows of all lengths up to a day begin.
const EPOCH: i64 = 1_785_024_000_000_000;

/// A Redis that has a part of the keys.
struct Shard {
    world: Rc<World>,
    model: Model,
    policy: Policy,
    store: MemoryStore,
    free_at: Cell<i64>,
    load: Cell<Load>,
    away: Option<(i64, i64)>,
    warm: i64,
}

/// The units that a request asks for, of a key.
type Units = (CompactString, u64);

impl Shard {
    fn is_away(&self) -> bool {
        self.away.is_some_and(|(from, to)| (from..to).contains(&self.world.now.get()))
    }

    /// The decisions over a batch. Never returns if the shard is away.
    async fn call(&self, batch: &[Units]) -> Vec<Decision> {
        let World { now, random, .. } = &*self.world;
        let one_way = self.model.one_way(&mut random.borrow_mut());
        self.world.sleep_until(now.get() + one_way).await;
        if self.is_away() {
            return future::pending().await;
        }
        let begin = self.free_at.get().max(now.get());
        // Calls that arrive while it works are read in the same turn of its loop.
        let is_woken = begin > self.free_at.get();
        let takes = self.model.service(batch.len(), is_woken);
        self.free_at.set(begin + takes);
        if begin >= self.warm {
            let Load { calls, decisions, busy } = self.load.get();
            let (calls, decisions) = (calls + 1, decisions + batch.len() as u64);
            self.load.set(Load { calls, decisions, busy: busy + takes as f64 });
        }
        self.world.sleep_until(begin).await;
        let decide = |(identifier, cost): &Units| {
            let check = self.policy_check(identifier.clone(), *cost);
            let decided = self.store.decide(&[check]).now_or_never();
            decided.expect("memory does not wait").expect("memory decides")
        };
        let decisions = batch.iter().map(decide).collect();
        self.world.sleep_until(begin + takes + one_way).await;
        decisions
    }

    fn policy_check(&self, identifier: CompactString, cost: u64) -> Check<'_> {
        Check { policy: &self.policy, identifier, cost, detail: Detail::None }
    }
}

/// An instance's link to a shard: see `store/redis/link.rs`.
struct Link {
    shard: Rc<Shard>,
    rounds: Rc<Rounds>,
    queue: RefCell<VecDeque<Batch>>,
    senders: Cell<usize>,
    sent: Cell<i64>,
    is_prompt: Cell<bool>,
    breaker: CircuitBreaker,
}

#[derive(Default)]
struct Batch {
    units: Vec<Units>,
    waiters: Vec<oneshot::Sender<Result<Decision, Unavailable>>>,
    deadline: i64,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.units.len() >= MAX_REQUESTS
    }
}

/// As `SendRounds` there.
#[derive(Default)]
struct Rounds {
    in_flight: Cell<usize>,
    waiting: RefCell<Vec<Rc<Link>>>,
}

struct RoundGuard(Rc<Rounds>);

impl Drop for RoundGuard {
    fn drop(&mut self) {
        self.0.in_flight.set(self.0.in_flight.get() - 1);
        if self.0.in_flight.get() > 0 {
            return;
        }
        for link in self.0.waiting.take() {
            if link.senders.get() == 0 && !link.queue.borrow().is_empty() {
                link.start_sender();
            }
        }
    }
}

impl Link {
    fn now(&self) -> i64 {
        self.shard.world.now.get()
    }

    fn enqueue(self: &Rc<Self>, units: Units) -> oneshot::Receiver<Result<Decision, Unavailable>> {
        let (sender, receiver) = oneshot::channel();
        let mut queue = self.queue.borrow_mut();
        if queue.back().is_none_or(Batch::is_full) {
            queue.push_back(Batch { deadline: self.now() + TIMEOUT, ..Batch::default() });
        }
        let batch = queue.back_mut().expect("it was added");
        batch.units.push(units);
        batch.waiters.push(sender);
        drop(queue);
        self.wake();
        receiver
    }

    fn wake(self: &Rc<Self>) {
        let senders = self.senders.get();
        if senders == 0 && self.must_wait() {
            return;
        }
        let is_behind = || {
            let queue = self.queue.borrow();
            queue.len() > 1 || queue.front().is_some_and(Batch::is_full) || self.patience_ends() <= self.now()
        };
        if senders == 0 || senders < MAX_IN_FLIGHT && is_behind() {
            self.start_sender();
        }
    }

    fn must_wait(self: &Rc<Self>) -> bool {
        let is_small = self.queue.borrow().front().is_some_and(|batch| !batch.is_full());
        if !is_small || self.rounds.in_flight.get() == 0 {
            return false;
        }
        let mut waiting = self.rounds.waiting.borrow_mut();
        if !waiting.iter().any(|known| Rc::ptr_eq(known, self)) {
            waiting.push(Rc::clone(self));
        }
        true
    }

    fn patience_ends(&self) -> i64 {
        self.sent.get() + TIMEOUT / PATIENCE
    }

    fn start_sender(self: &Rc<Self>) {
        self.senders.set(self.senders.get() + 1);
        self.shard.world.spawn(Rc::clone(self).send());
    }

    async fn send(self: Rc<Self>) {
        loop {
            let next = self.queue.borrow_mut().pop_front();
            let Some(batch) = next else { break };
            let world = Rc::clone(&self.shard.world);
            self.sent.set(self.now());
            let mut round = None;
            let decided = if self.breaker.is_open() {
                Err(Unavailable::BreakerOpen)
            } else if self.now() >= batch.deadline {
                Err(Unavailable::Overdue)
            } else {
                if self.is_prompt.get() && self.rounds.waiting.borrow().is_empty() {
                    self.rounds.in_flight.set(self.rounds.in_flight.get() + 1);
                    round = Some(RoundGuard(Rc::clone(&self.rounds)));
                }
                let call = pin!(self.shard.call(&batch.units));
                let patience = pin!(world.sleep_until(self.patience_ends().min(batch.deadline)));
                match future::select(call, patience).await {
                    Either::Left((decisions, _)) => {
                        self.is_prompt.set(true);
                        Ok(decisions)
                    }
                    Either::Right(((), call)) => {
                        self.is_prompt.set(false);
                        round = None;
                        if !self.queue.borrow().is_empty() {
                            self.wake();
                        }
                        match future::select(call, pin!(world.sleep_until(batch.deadline))).await {
                            Either::Left((decisions, _)) => Ok(decisions),
                            Either::Right(_) => Err(Unavailable::Timeout),
                        }
                    }
                }
            };
            match decided {
                Ok(decisions) => {
                    self.breaker.succeeded();
                    for (waiter, decision) in batch.waiters.into_iter().zip(decisions) {
                        let _gone = waiter.send(Ok(decision));
                    }
                }
                Err(unavailable) => {
                    if unavailable == Unavailable::Timeout && self.breaker.failed() {
                        world.spawn(Rc::clone(&self).probe());
                    }
                    for waiter in batch.waiters {
                        let _gone = waiter.send(Err(unavailable.clone()));
                    }
                }
            }
            yield_now().await;
            drop(round);
            if self.senders.get() == 1 && self.must_wait() {
                break;
            }
        }
        self.senders.set(self.senders.get() - 1);
    }

    async fn probe(self: Rc<Self>) {
        let world = &self.shard.world;
        loop {
            let jitter = 0.75 + world.random.borrow_mut().f64() / 2.0;
            let after = (PROBE_AFTER as f64 * jitter) as i64 + world.random.borrow_mut().i64(0..BREAKER_POLL);
            world.sleep_until(self.now() + after).await;
            if !self.shard.is_away() {
                break;
            }
        }
        self.breaker.close();
    }
}

async fn yield_now() {
    let mut is_second = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_second, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// An instance's links, as a store of checks of one limit.
struct Links(Vec<Rc<Link>>);

impl Store for Links {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        let [check] = checks else { unreachable!("each request has one limit") };
        let link = &self.0[node_of(&check.identifier, self.0.len())];
        let reply = link.enqueue((check.identifier.clone(), check.cost));
        reply.await.unwrap_or(Err(Unavailable::Timeout))
    }

    async fn look(&self, _checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        Err(Unavailable::BreakerOpen)
    }

    async fn settle(&self, _taken: &[Taken<'_>]) -> Result<(), Unavailable> {
        Ok(())
    }

    fn is_sharded(&self) -> bool {
        self.0.len() > 1
    }
}

/// An instance's stores, of which a variant has a part.
enum Limiter {
    Links(Links),
    Guarded(GuardedStore<Links, MemoryStore, Arc<ManualClock>>),
    Sliced(GuardedStore<SlicedStore<Links>, MemoryStore, Arc<ManualClock>>),
}

impl Limiter {
    fn new(links: Links, variant: Variant, instances: usize, clock: &Arc<ManualClock>) -> Self {
        let known = Arc::new(Instances::default());
        let count = u32::try_from(instances).unwrap_or(u32::MAX);
        known.set_count(count, count);
        let local = || MemoryStore::new(100_000, Arc::clone(clock) as Arc<dyn Clock>);
        let shared = GuardShared { instances: Arc::clone(&known), clock: Arc::clone(clock) };
        match variant {
            Variant::Bare => Self::Links(links),
            Variant::Denials => Self::Guarded(GuardedStore::new(links, local(), shared)),
            Variant::Slices => {
                let sliced = SlicedStore::new(
                    links,
                    Arc::new(Slices::new(known)),
                    Arc::clone(clock) as Arc<dyn Clock>,
                );
                Self::Sliced(GuardedStore::new(sliced, local(), shared))
            }
        }
    }

    async fn decide(&self, check: Check<'_>) -> Result<Decision, Unavailable> {
        match self {
            Self::Links(store) => store.decide(&[check]).await,
            Self::Guarded(store) => store.decide(&[check]).await,
            Self::Sliced(store) => store.decide(&[check]).await,
        }
    }
}

/// What is counted while it runs.
#[derive(Default)]
struct Tally {
    outcome: Outcome,
    /// By key and window.
    admitted: HashMap<(u32, i64), u64>,
}

pub(crate) fn run(setup: &Setup<'_>) -> Outcome {
    let mut pool = LocalPool::new();
    let world = Rc::new(World {
        now: Cell::new(0),
        clock: Arc::new(ManualClock::new(EPOCH)),
        timers: RefCell::default(),
        timers_made: Cell::new(0),
        spawner: pool.spawner(),
        random: RefCell::new(fastrand::Rng::with_seed(setup.seed)),
    });
    let shard = |nth| {
        Rc::new(Shard {
            world: Rc::clone(&world),
            model: Model {
                cluster: if setup.shards > 1 { setup.model.cluster } else { 1.0 },
                ..setup.model.clone()
            },
            policy: setup.policy.clone(),
            store: MemoryStore::new(20_000_000, Arc::clone(&world.clock) as Arc<dyn Clock>),
            free_at: Cell::new(0),
            load: Cell::default(),
            away: setup.away.filter(|_| nth == node_of(&identifier(0), setup.shards)),
            warm: setup.warm,
        })
    };
    let shards: Vec<_> = (0..setup.shards).map(shard).collect();
    let links = || {
        let rounds = Rc::new(Rounds::default());
        let link = |shard: &Rc<Shard>| {
            Rc::new(Link {
                shard: Rc::clone(shard),
                rounds: Rc::clone(&rounds),
                queue: RefCell::default(),
                senders: Cell::new(0),
                sent: Cell::new(0),
                is_prompt: Cell::new(true),
                breaker: CircuitBreaker::new(FAILURES),
            })
        };
        Links(shards.iter().map(link).collect())
    };
    let instances: Vec<_> = (0..setup.instances)
        .map(|_| Rc::new(Limiter::new(links(), setup.variant, setup.instances, &world.clock)))
        .collect();
    let tally = Rc::new(RefCell::new(Tally::default()));
    let policy = Rc::new(setup.policy.clone());
    let mut arrivals = setup.demand.arrivals(setup.rate, setup.instances, setup.seed, setup.tick);
    // The next request is drawn when time has come to it.
    let mut next = arrivals.next();
    loop {
        // Those of one moment are queued before anything is sent, as by a worker that reads them from many connections.
        if next.is_none_or(|arrival| arrival.at > world.now.get()) {
            pool.run_until_stalled();
        }
        let timer = world.timers.borrow().peek().map(|Reverse(timer)| timer.at.0);
        match next.filter(|arrival| arrival.at < setup.end) {
            Some(arrival) if timer.is_none_or(|at| arrival.at <= at) => {
                world.now.set(world.now.get().max(arrival.at));
                world.clock.set(EPOCH + world.now.get() / MICRO);
                let (limiter, tally) = (Rc::clone(&instances[arrival.instance]), Rc::clone(&tally));
                let (world_of, policy) = (Rc::clone(&world), Rc::clone(&policy));
                let warm = setup.warm;
                world.spawn(async move {
                    let identifier = identifier(arrival.key);
                    let check = Check { policy: &policy, identifier, cost: 1, detail: Detail::None };
                    let decided = limiter.decide(check).await;
                    let now = world_of.now.get();
                    let mut tally = tally.borrow_mut();
                    let Tally { outcome, admitted } = &mut *tally;
                    if let Some(decision) = decided.as_ref().ok().filter(|decision| decision.admitted) {
                        let count = admitted
                            .entry((arrival.key, decision.time / policy.tiers[0].window))
                            .or_default();
                        *count += 1;
                        outcome.most = outcome.most.max(*count);
                    }
                    if arrival.at < warm {
                        return;
                    }
                    outcome.requests += 1;
                    outcome.waits.push(now - arrival.at);
                    let Ok(decision) = decided else {
                        outcome.failed += 1;
                        return;
                    };
                    outcome.admitted += u64::from(decision.admitted);
                    match decision.source {
                        DecisionSource::Store => {}
                        DecisionSource::Slice => outcome.by_slice += 1,
                        DecisionSource::LocalDenial => outcome.by_denial += 1,
                        DecisionSource::Fallback => outcome.by_fallback += 1,
                    }
                });
                next = arrivals.next();
            }
            _ if world.pass() => {}
            _ => break,
        }
    }
    let mut outcome = tally.borrow().outcome.clone();
    outcome.waits.sort_unstable();
    outcome.shards = shards.iter().map(|shard| shard.load.get()).collect();
    outcome
}
