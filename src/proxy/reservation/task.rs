//! The task of a reservation: it asks the store, renews leases while the request runs, and releases the reservation.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    rc::Rc,
    task::Poll,
    time::Duration,
};

use compact_str::CompactString;
use futures_util::future::{join_all, select};
use smallvec::{SmallVec, smallvec};
use tokio::{
    sync::oneshot,
    task::spawn_local,
    time::{Instant, Sleep, sleep, sleep_until},
};

use super::{
    costs::{FIRST_PAUSE, LONGEST_PAUSE, OpenCosts},
    guard::{RequestProgress, RequestStage, ReservationGuard},
};
use crate::{
    history::UsageOwner,
    limit::{
        Check, Decision, DecisionSource, Policy, Receipt, Store, Taken, Unavailable,
        algorithm::{Detail, Kind, Verdict, concurrency::RETRY_AFTER},
    },
    proxy::{
        checks::{Checks, has_units},
        outcome::VariantRef,
        worker::Worker,
    },
    telemetry::metrics::WorkerMetrics,
};

/// How long a request that was sent to an upstream keeps its leases if its connection is closed before the whole
/// response has arrived: the upstream may not stop at once. A denied client is asked to wait as long
/// ([`RETRY_AFTER`]).
const HOLD: Duration = Duration::from_micros(RETRY_AFTER.unsigned_abs());

/// The store's decision, and the request's reservation.
type Reserved = (Result<Decision, Unavailable>, Option<ReservationGuard>);

/// Asks the store about checks whose units may have to be refunded in part.
///
/// From the first wait on, a task asks rather than the request: it continues if the client goes away meanwhile, and knows
/// the units taken. `owner`: whose usage it is; `None`: it is recorded otherwise.
pub(in crate::proxy) async fn reserve<S: Store + 'static>(
    worker: &Rc<Worker<S>>,
    checks: &Checks<'_>,
    owner: Option<UsageOwner>,
) -> Reserved {
    let uncounted =
        checks.uncounted().iter().map(|(check, variant)| OwnedCheck::new((check, *variant))).collect();
    let owned = checks.iter().map(OwnedCheck::new).collect();
    let (sender, reserved) = oneshot::channel();
    // Boxed: it is large, and tokio moves a task several times.
    let asked = (checks.is_question, owned);
    let mut task = Box::pin(hold(Rc::clone(worker), asked, (owner, uncounted), sender));
    // A first step here saves a wait for the task: a store in memory decides at once.
    let is_over = poll_fn(|cx| Poll::Ready(task.as_mut().poll(cx).is_ready())).await;
    if !is_over {
        spawn_local(task);
    }
    reserved.await.unwrap_or_else(|_| (Err(Unavailable::Abandoned("the decision was abandoned")), None))
}

async fn hold<S: Store + 'static>(
    worker: Rc<Worker<S>>,
    (is_question, owned): (bool, SmallVec<[OwnedCheck; 2]>),
    (owner, uncounted): (Option<UsageOwner>, Vec<OwnedCheck>),
    reserved: oneshot::Sender<Reserved>,
) {
    let _pending = worker.reservations.begin();
    let policies = if is_question { &worker.rules.undelayed } else { &worker.rules.policies };
    let (mut checks, mut variants) = (SmallVec::<[Check<'_>; 2]>::new(), SmallVec::<[VariantRef; 2]>::new());
    for check in owned {
        let variant = check.variant;
        if let Some(check) = check.resolve(policies) {
            checks.push(check);
            variants.push(variant);
        }
    }
    let decided = match checks.is_empty() {
        // Its usage alone depends on the response.
        true => Ok(Decision::of_nothing()),
        false => worker.store.decide(&checks).await,
    };
    let mut reservation = Reservation::new(&worker, checks, &variants, &decided, owner);
    if decided.as_ref().is_ok_and(|decision| decision.admitted) {
        for check in uncounted {
            let policy = check.variant.policy;
            if let Some(check) = check.resolve(policies) {
                reservation.use_units(check, policy);
            }
        }
    }
    let (guard, request) = ReservationGuard::new(reservation.costs.for_request());
    // Without a guard, everything that may have been taken is released at once: if the request was not admitted, or
    // has gone away meanwhile.
    let is_admitted = decided.as_ref().is_ok_and(|decision| decision.admitted);
    let guard = (is_admitted && !reservation.is_empty()).then_some(guard);
    drop(reserved.send((decided, guard)));
    reservation.run(request).await;
}

/// A check that does not borrow its policy.
struct OwnedCheck {
    variant: VariantRef,
    identifier: CompactString,
    cost: u64,
    detail: Detail,
}

impl OwnedCheck {
    fn new((check, variant): (&Check<'_>, VariantRef)) -> Self {
        let Check { identifier, cost, detail, .. } = check;
        Self { variant, identifier: identifier.clone(), cost: *cost, detail: detail.clone() }
    }

    fn resolve(self, policies: &[Policy]) -> Option<Check<'_>> {
        let Self { variant, identifier, cost, detail } = self;
        Some(Check { policy: variant.resolve(policies)?, identifier, cost, detail })
    }
}

/// The units and leases taken for one request that may have to be released.
struct Reservation<'a, S> {
    worker: &'a Worker<S>,
    /// The checks whose units only some responses cost.
    units: SmallVec<[Taken<'a>; 2]>,
    /// The units of costs that the response tells.
    costs: OpenCosts<'a, S>,
    /// Units that are used, unless the response is one that does not count: by the indexes of their policies.
    used: SmallVec<[(Check<'a>, usize); 1]>,
    /// Whose usage it is. `None`: none is recorded.
    owner: Option<UsageOwner>,
    /// The checks that hold a lease.
    leases: SmallVec<[Taken<'a>; 2]>,
    in_store: InStore,
    /// Whether the store's fallback holds the leases, too.
    in_fallback: bool,
    /// When the leases were last taken or renewed.
    renewed_at: Instant,
    /// Counts the leases while the request runs.
    gauge: Option<LeaseGauge<'a>>,
}

/// Whether the store holds the leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InStore {
    Yes,
    /// The store gave no reply, but may hold them.
    Unknown,
    No,
}

impl<'a, S: Store> Reservation<'a, S> {
    /// The units and leases that the store took for `checks` according to `decided`, or may have taken if it gave no
    /// reply.
    fn new(
        worker: &'a Worker<S>,
        checks: SmallVec<[Check<'a>; 2]>,
        variants: &[VariantRef],
        decided: &Result<Decision, Unavailable>,
        owner: Option<UsageOwner>,
    ) -> Self {
        let mut reservation = Self {
            worker,
            units: SmallVec::new(),
            costs: OpenCosts::new(worker),
            used: SmallVec::new(),
            owner: owner.filter(|_| worker.telemetry.history.is_some()),
            leases: SmallVec::new(),
            in_store: InStore::No,
            in_fallback: false,
            renewed_at: Instant::now(),
            gauge: None,
        };
        let is_decided = decided.as_ref().is_ok_and(|decision| !has_fallback(decision, &checks));
        match decided {
            Ok(decision) if decision.admitted => {
                for (index, (check, verdict)) in checks.into_iter().zip(&decision.verdicts).enumerate() {
                    let receipt = decision.receipt(index);
                    let used_by = variants
                        .get(index)
                        .filter(|variant| !check.policy.is_shadow && !variant.is_further)
                        .map(|variant| variant.policy);
                    if let Some(policy) = used_by
                        && (check.policy.cost.of_response().is_none() || !is_taken(verdict))
                    {
                        reservation.use_units(check.clone(), policy);
                    }
                    match check.policy.kind {
                        // A lease without a decision is asked for again when the store is back.
                        Kind::Concurrency if verdict.admitted => {
                            reservation.leases.push(lease(check));
                            reservation.held_in(receipt.source);
                        }
                        Kind::Concurrency => {}
                        _ if !is_taken(verdict) => {}
                        _ if check.policy.cost.of_response().is_some() => {
                            reservation.costs.push(check, receipt, used_by);
                        }
                        _ if check.policy.count.is_some() => {
                            reservation.units.push(Taken::refunded(check, receipt));
                        }
                        _ => {}
                    }
                }
                reservation.gauge = Some(LeaseGauge::new(worker.metrics(), reservation.leases.len()));
            }
            Ok(_) if is_decided => {}
            _ => {
                let leases = checks.into_iter().filter(|check| check.policy.kind == Kind::Concurrency);
                reservation.leases.extend(leases.map(lease));
            }
        }
        if !is_decided && !reservation.leases.is_empty() {
            reservation.in_store = InStore::Unknown;
        }
        reservation
    }

    /// Notes that `check`, of the policy with this index, is used whether its policy counts it or not. Each policy uses what
    /// one response costs once.
    fn use_units(&mut self, check: Check<'a>, policy: usize) {
        if self.owner.is_none() || !has_units(check.policy) {
            return;
        }
        if check.policy.cost.of_response().is_some() {
            self.costs.push_uncounted(check, policy);
        } else if check.policy.count.is_some() {
            self.used.push((check, policy));
        } else {
            self.record_use(policy, check.cost);
        }
    }

    /// Records units that are used for good.
    fn record_use(&self, policy: usize, units: u64) {
        if let (Some(owner), Some(history)) = (&self.owner, &self.worker.telemetry.history)
            && units > 0
        {
            history.record_units(owner, &smallvec![(policy as u32, units)]);
        }
    }

    /// Records the units that are used for good, and keeps the ones that are undecided; the others are free.
    fn settle_used(&mut self, is_free: impl Fn(&Policy) -> Option<bool>) {
        for (check, policy) in std::mem::take(&mut self.used) {
            match is_free(check.policy) {
                Some(true) => {}
                Some(false) => self.record_use(policy, check.cost),
                None => self.used.push((check, policy)),
            }
        }
    }

    /// Whether there is nothing to release, or to record.
    fn is_empty(&self) -> bool {
        self.units.is_empty() && self.costs.is_empty() && self.leases.is_empty() && self.used.is_empty()
    }

    /// Renews the leases until the request ends and the upstream is finished with it, and releases the reservation.
    async fn run(&mut self, request: RequestProgress) {
        let mut renewal = pin!(sleep_until(self.renewed_at + self.renewal_period()));
        while !self.is_empty() {
            let is_open = !self.units.is_empty() || !self.costs.is_empty() || !self.used.is_empty();
            let next = request.next_stage(is_open);
            match self.renew_until(renewal.as_mut(), next).await {
                Some(stage) => {
                    self.settle_units(stage).await;
                    self.costs.settle(&request, self.owner.as_ref()).await;
                }
                None => break,
            }
        }
        self.costs.end(&request, self.owner.as_ref()).await;
        if may_be_under_way(request.stage()) {
            // A sent request without a response is charged: the upstream may have processed it.
            self.units.clear();
            self.settle_used(|_| Some(false));
            if !self.leases.is_empty() {
                let hold = sleep(HOLD.min(self.shortest_lease()));
                let (hold, draining) = (pin!(hold), pin!(self.worker.reservations.draining()));
                self.renew_until(renewal, select(hold, draining)).await;
            }
        }
        self.gauge = None;
        self.refund_units(|_| Some(true)).await;
        self.release_leases().await;
        self.costs.settle_late().await;
    }

    /// Renews the leases until `end` is ready.
    async fn renew_until<T>(&mut self, mut renewal: Pin<&mut Sleep>, end: impl Future<Output = T>) -> T {
        let mut end = pin!(end);
        loop {
            tokio::select! {
                biased;
                ended = end.as_mut() => return ended,
                () = renewal.as_mut(), if !self.leases.is_empty() => {
                    self.renew_leases().await;
                    renewal.as_mut().reset(Instant::now() + self.renewal_period());
                }
            }
        }
    }

    /// Refunds the units that a request at this stage does not cost.
    async fn settle_units(&mut self, stage: RequestStage) {
        match stage {
            RequestStage::Unsent | RequestStage::Sent => {}
            RequestStage::Refused => {
                self.used.clear();
                self.refund_units(|_| Some(true)).await;
            }
            RequestStage::Responded { status, .. } => {
                self.settle_used(|policy| policy.counts(status).map(|counts| !counts));
                self.refund_units(|taken| taken.check.policy.counts(status).map(|counts| !counts)).await;
            }
        }
    }

    /// Refunds the units that are free, and keeps the ones that are undecided; the others are charged. Tried once,
    /// because an unconfirmed refund may have been made.
    async fn refund_units(&mut self, is_free: impl Fn(&Taken<'_>) -> Option<bool>) {
        let mut free: SmallVec<[Taken<'_>; 2]> = SmallVec::new();
        for taken in std::mem::take(&mut self.units) {
            match is_free(&taken) {
                Some(true) => free.push(taken),
                Some(false) => {}
                None => self.units.push(taken),
            }
        }
        if !free.is_empty()
            && let Err(error) = self.worker.store.settle(&free).await
        {
            tracing::debug!(%error, "can't refund units: they expire instead");
        }
    }

    /// Asks for the same leases again, each on its own: a lost lease does not keep the others from being renewed.
    /// The request continues in any case.
    async fn renew_leases(&mut self) {
        let store = &self.worker.store;
        let renewals = self.leases.iter().map(|lease| store.decide(std::slice::from_ref(&lease.check)));
        for decision in join_all(renewals).await.into_iter().flatten() {
            if decision.verdicts.first().is_some_and(is_taken) {
                self.held_in(decision.source);
                self.renewed_at = Instant::now();
            }
        }
    }

    /// Notes that `source` has granted leases.
    fn held_in(&mut self, source: DecisionSource) {
        match source {
            DecisionSource::Store => self.in_store = InStore::Yes,
            // The fallback holds it as well from now on: until the store is back, it decides about other requests.
            DecisionSource::Fallback => self.in_fallback = true,
            // Neither grants leases.
            DecisionSource::LocalDenial | DecisionSource::Slice => {}
        }
    }

    /// Releases the leases in each store that holds them. Tried again until they expire: a lease is identified by its
    /// token, so releasing it twice does no harm.
    async fn release_leases(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        if self.in_fallback {
            // The fallback is memory, which is always available.
            let _available = self.release_in(DecisionSource::Fallback).await;
        }
        if self.in_store == InStore::No {
            return;
        }
        let mut pause = FIRST_PAUSE;
        while self.release_in(DecisionSource::Store).await.is_err() {
            // While the store is unavailable, the leases of all requests are unknown, and can't all be kept in
            // memory.
            if self.in_store == InStore::Unknown
                || Instant::now() + pause >= self.renewed_at + self.longest_lease()
            {
                break;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn release_in(&mut self, source: DecisionSource) -> Result<(), Unavailable> {
        for lease in &mut self.leases {
            lease.receipt.source = source;
        }
        self.worker.store.settle(&self.leases).await
    }

    fn renewal_period(&self) -> Duration {
        self.shortest_lease() / 3
    }

    fn shortest_lease(&self) -> Duration {
        self.leases.iter().map(|lease| lease_duration(&lease.check)).min().unwrap_or_default()
    }

    fn longest_lease(&self) -> Duration {
        self.leases.iter().map(|lease| lease_duration(&lease.check)).max().unwrap_or_default()
    }
}

/// Whether the upstream may still be processing a request that ended at this stage.
fn may_be_under_way(stage: RequestStage) -> bool {
    matches!(stage, RequestStage::Sent | RequestStage::Responded { is_complete: false, .. })
}

/// Whether `on_store_error` has decided about a lease.
fn has_fallback(decision: &Decision, checks: &[Check<'_>]) -> bool {
    let is_fallback = |index| decision.receipt(index).source == DecisionSource::Fallback;
    checks
        .iter()
        .enumerate()
        .any(|(index, check)| check.policy.kind == Kind::Concurrency && is_fallback(index))
}

/// Whether units were taken: none are if a check was not held against its limit.
fn is_taken(verdict: &Verdict) -> bool {
    verdict.admitted && *verdict != Verdict::UNKNOWN
}

/// A lease for its release, in the store or its fallback. It is found by its token, so the time does not matter.
fn lease(check: Check<'_>) -> Taken<'_> {
    Taken::refunded(check, Receipt { source: DecisionSource::Store, time: 0 })
}

fn lease_duration(check: &Check<'_>) -> Duration {
    let window = check.policy.tiers.first().map_or(0, |tier| tier.window);
    Duration::from_micros(u64::try_from(window).unwrap_or(0))
}

/// Counts the leases of one request among its thread's, until dropped.
struct LeaseGauge<'a> {
    metrics: &'a WorkerMetrics,
    leases: u64,
}

impl<'a> LeaseGauge<'a> {
    fn new(metrics: &'a WorkerMetrics, leases: usize) -> Self {
        let leases = leases as u64;
        metrics.thread().leases().add(leases);
        Self { metrics, leases }
    }
}

impl Drop for LeaseGauge<'_> {
    fn drop(&mut self) {
        self.metrics.thread().leases().sub(self.leases);
    }
}
