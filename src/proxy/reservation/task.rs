//! The task's side of a reservation: it renews leases while the request runs, and releases the reservation.

use std::time::Duration;

use futures_util::future::join_all;
use smallvec::SmallVec;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use super::guard::RequestStage;
use crate::{
    limit::{
        Check, Decision, DecisionSource, Receipt, Store, Taken, Unavailable,
        algorithm::{Kind, Verdict, concurrency::RETRY_AFTER},
    },
    proxy::worker::Worker,
    telemetry::metrics::WorkerMetrics,
};

/// The pause after the first attempt to release leases that failed; it doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long a request that was sent to an upstream keeps its leases if its connection is closed before the whole
/// response has arrived: the upstream may not stop at once. A denied client is asked to wait as long
/// ([`RETRY_AFTER`]).
const HOLD: Duration = Duration::from_micros(RETRY_AFTER.unsigned_abs());

/// The units and leases taken for one request that may have to be released.
pub(super) struct Reservation<'a, S> {
    worker: &'a Worker<S>,
    /// The checks whose units only some responses cost.
    units: SmallVec<[Taken<'a>; 2]>,
    /// The checks that hold a lease.
    leases: SmallVec<[Check<'a>; 2]>,
    in_store: InStore,
    /// Whether the store's fallback holds the leases, too.
    in_fallback: bool,
    /// When the leases expire, unless they are renewed again.
    expire: Instant,
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
    pub(super) fn new(
        worker: &'a Worker<S>,
        checks: &[Check<'a>],
        decided: &Result<Decision, Unavailable>,
    ) -> Self {
        let mut reservation = Self {
            worker,
            units: SmallVec::new(),
            leases: SmallVec::new(),
            in_store: InStore::No,
            in_fallback: false,
            expire: Instant::now(),
            gauge: None,
        };
        let leases = || checks.iter().filter(|check| check.policy.kind == Kind::Concurrency).cloned();
        match decided {
            Ok(decision) if decision.admitted => {
                for (index, (check, verdict)) in checks.iter().zip(&decision.verdicts).enumerate() {
                    let receipt = decision.receipt(index);
                    match check.policy.kind {
                        // A lease without a decision is asked for again when the store is back.
                        Kind::Concurrency if verdict.admitted => {
                            reservation.leases.push(check.clone());
                            reservation.renewed(receipt.source);
                        }
                        Kind::Concurrency => {}
                        _ if check.policy.count.is_some() && is_taken(verdict) => {
                            reservation.units.push(Taken { check: check.clone(), receipt });
                        }
                        _ => {}
                    }
                }
                reservation.gauge = Some(LeaseGauge::new(worker.metrics(), reservation.leases.len()));
            }
            Ok(decision) if !has_fallback(decision, checks) => {}
            _ => reservation.leases.extend(leases()),
        }
        let is_decided = decided.as_ref().is_ok_and(|decision| !has_fallback(decision, checks));
        if !is_decided && !reservation.leases.is_empty() {
            reservation.in_store = InStore::Unknown;
        }
        reservation
    }

    /// Whether there is nothing to release.
    pub(super) fn is_empty(&self) -> bool {
        self.units.is_empty() && self.leases.is_empty()
    }

    /// Renews the leases until the request ends and the upstream is finished with it, and releases the reservation.
    pub(super) async fn run(mut self, mut stage: watch::Receiver<RequestStage>) {
        let period = self.shortest_lease() / 3;
        let mut renewal = Instant::now() + period;
        let mut held_until: Option<Instant> = None;
        while !self.is_empty() {
            tokio::select! {
                biased;
                changed = stage.changed(), if held_until.is_none() => match changed {
                    Ok(()) => {
                        let reached = *stage.borrow_and_update();
                        self.settle_units(reached).await;
                    }
                    // The request has ended.
                    Err(_) => {
                        let reached = *stage.borrow();
                        if !may_be_under_way(reached) {
                            break;
                        }
                        // A sent request without a response is charged: the upstream may have processed it.
                        self.units.clear();
                        held_until = Some(Instant::now() + HOLD.min(self.shortest_lease()));
                    }
                },
                () = sleep_until(held_until.unwrap_or(renewal)), if held_until.is_some() => break,
                () = self.worker.reservations.draining(), if held_until.is_some() => break,
                () = sleep_until(renewal), if !self.leases.is_empty() => {
                    self.renew_leases().await;
                    renewal = Instant::now() + period;
                }
            }
        }
        self.gauge = None;
        self.refund_units(|_| Some(true)).await;
        self.release_leases().await;
    }

    /// Refunds the units that a request at this stage does not cost.
    async fn settle_units(&mut self, stage: RequestStage) {
        match stage {
            RequestStage::Unsent | RequestStage::Sent => {}
            RequestStage::Refused => self.refund_units(|_| Some(true)).await,
            RequestStage::Responded { status, .. } => {
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
            && let Err(error) = self.worker.store.refund(&free).await
        {
            tracing::debug!(%error, "can't refund units: they expire instead");
        }
    }

    /// Asks for the same leases again, each on its own: a lost lease does not keep the others from being renewed.
    /// The request continues in any case.
    async fn renew_leases(&mut self) {
        let store = &self.worker.store;
        let renewals = self.leases.iter().map(|lease| store.decide(std::slice::from_ref(lease)));
        for decision in join_all(renewals).await.into_iter().flatten() {
            if decision.verdicts.first().is_some_and(is_taken) {
                self.renewed(decision.source);
            }
        }
    }

    fn renewed(&mut self, source: DecisionSource) {
        match source {
            DecisionSource::Store => self.in_store = InStore::Yes,
            // The fallback holds it as well from now on: until the store is back, it decides about other requests.
            DecisionSource::Fallback => self.in_fallback = true,
            // Neither grants leases.
            DecisionSource::LocalDenial | DecisionSource::Slice => {}
        }
        self.expire = Instant::now() + self.longest_lease();
    }

    /// Releases the leases in each store that holds them. Tried again until they expire: a lease is identified by its
    /// token, so releasing it twice does no harm.
    async fn release_leases(&self) {
        if self.leases.is_empty() {
            return;
        }
        // A lease is found by its token, so the time does not matter.
        let held_in = |source| Taken::all(&self.leases, Receipt { source, time: 0 });
        if self.in_fallback {
            // The fallback is memory, which is always available.
            let _available = self.worker.store.refund(&held_in(DecisionSource::Fallback)).await;
        }
        if self.in_store == InStore::No {
            return;
        }
        let mut pause = FIRST_PAUSE;
        while self.worker.store.refund(&held_in(DecisionSource::Store)).await.is_err() {
            // While the store is unavailable, the leases of all requests are unknown, and can't all be kept in
            // memory.
            if self.in_store == InStore::Unknown || Instant::now() + pause >= self.expire {
                break;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn shortest_lease(&self) -> Duration {
        self.leases.iter().map(lease_duration).min().unwrap_or_default()
    }

    fn longest_lease(&self) -> Duration {
        self.leases.iter().map(lease_duration).max().unwrap_or_default()
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
