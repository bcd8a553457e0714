//! The costs of one request that its response tells. Units are reserved before; when the response has ended, the store
//! gets the difference.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use smallvec::SmallVec;
use tokio::time::{Instant, sleep};

use super::guard::{Charge, MissingReason, RequestProgress, RequestStage, ReservedCost};
use crate::{
    config::model::Measure,
    history::{ChargedUnits, UsageOwner},
    limit::{Check, DecisionSource, Receipt, Store, Taken, Unavailable},
    proxy::worker::Worker,
    telemetry::metrics::WorkerMetrics,
};

/// The pause after the first attempt that failed, to release leases or to settle costs; it doubles with each attempt.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Most settlements of the process that wait for the store.
const MAX_LATE: usize = 16_384;
static LATE: AtomicUsize = AtomicUsize::new(0);

/// The units that one request has reserved.
pub(super) struct OpenCosts<'a, S> {
    worker: &'a Worker<S>,
    open: SmallVec<[OpenCost<'a>; 1]>,
    /// Settlements that the store has not got.
    late: SmallVec<[Taken<'a>; 1]>,
}

struct OpenCost<'a> {
    check: Check<'a>,
    /// `None`: no limit has counted it, and its usage alone is recorded.
    receipt: Option<Receipt>,
    /// When `receipt` was given.
    taken: Instant,
    /// The units of `check` that are charged for good, because so many bytes have passed. The others may be refunded.
    passed: u64,
    /// The index of its policy.
    policy: usize,
    /// Whether what it costs is recorded as usage.
    is_used: bool,
}

impl<'a, S: Store> OpenCosts<'a, S> {
    pub(super) fn new(worker: &'a Worker<S>) -> Self {
        Self { worker, open: SmallVec::new(), late: SmallVec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Adds the units that `check` has taken. `used_by`: the index of its policy, if its usage is recorded.
    pub(super) fn push(&mut self, check: Check<'a>, receipt: Receipt, used_by: Option<usize>) {
        let policies = &self.worker.rules.policies;
        let policy = policies.iter().position(|policy| policy.name == check.policy.name).unwrap_or_default();
        self.worker.metrics().reserve_cost(policy, check.cost);
        let is_used = used_by.is_some() && !self.is_used_by(policy);
        let receipt = Some(receipt);
        self.open.push(OpenCost { check, receipt, taken: Instant::now(), passed: 0, policy, is_used });
    }

    /// Adds a check that no limit has counted, of the policy with this index, for its usage.
    pub(super) fn push_uncounted(&mut self, check: Check<'a>, policy: usize) {
        if !self.is_used_by(policy) {
            let (receipt, taken) = (None, Instant::now());
            self.open.push(OpenCost { check, receipt, taken, passed: 0, policy, is_used: true });
        }
    }

    /// Whether the response is recorded as usage of this policy. Its keys, and the calls of a batch, share the response.
    fn is_used_by(&self, policy: usize) -> bool {
        self.open.iter().any(|open| open.is_used && open.policy == policy)
    }

    /// The costs, for the request, in the same order.
    pub(super) fn for_request(&self) -> Box<[ReservedCost]> {
        let settings = |open: &OpenCost<'_>| {
            let settings = open.check.policy.cost.of_response()?;
            Some(ReservedCost::new(&open.check, settings, open.receipt.is_some()))
        };
        self.open.iter().filter_map(settings).collect()
    }

    /// Charges bytes that have passed, and settles all costs once the response has told them.
    pub(super) async fn settle(&mut self, request: &RequestProgress, owner: Option<&UsageOwner>) {
        let charges: Option<SmallVec<[Charge; 1]>> =
            request.costs().iter().map(ReservedCost::charge).collect();
        match charges {
            Some(charges) => {
                request.settled();
                let taken = self.close(&charges, owner);
                self.send(taken).await;
            }
            None => self.take_more(request.costs()).await,
        }
    }

    /// Settles what is left when the request has ended. One that was sent, and has no response, costs what it has
    /// reserved: the upstream may have processed it. Its bytes are known: none have passed.
    pub(super) async fn end(&mut self, request: &RequestProgress, owner: Option<&UsageOwner>) {
        if self.open.is_empty() {
            return;
        }
        let is_sent = !matches!(request.stage(), RequestStage::Unsent | RequestStage::Refused);
        let reserved = |cost: &ReservedCost| match cost.settings.measure {
            Measure::Sum(_) if is_sent => {
                Charge { units: cost.units.get(), missing: Some(MissingReason::NoNumber) }
            }
            _ => Charge::NONE,
        };
        let charges: SmallVec<[Charge; 1]> =
            request.costs().iter().map(|cost| cost.charge().unwrap_or_else(|| reserved(cost))).collect();
        for (cost, charge) in request.costs().iter().zip(&charges) {
            cost.set_charge(*charge);
        }
        request.settled();
        let taken = self.close(&charges, owner);
        self.send(taken).await;
    }

    /// The settlements of all costs, by what they are `charges`. They are usage of the `owner`.
    fn close(&mut self, charges: &[Charge], owner: Option<&UsageOwner>) -> SmallVec<[Taken<'a>; 1]> {
        let metrics = self.worker.metrics();
        let open = std::mem::take(&mut self.open);
        let used: ChargedUnits = open
            .iter()
            .zip(charges)
            .filter(|(open, charge)| open.is_used && charge.units > 0)
            .map(|(open, charge)| (open.policy as u32, charge.units))
            .collect();
        if let (Some(owner), Some(history)) = (owner, &self.worker.telemetry.history) {
            history.record_units(owner, &used);
        }
        let settled = open.into_iter().zip(charges).filter_map(|(open, charge)| {
            let receipt = open.receipt?;
            metrics.settle_cost(
                open.policy,
                open.passed + open.check.cost,
                charge.units,
                charge.missing.is_some(),
            );
            Some(Taken { actual: charge.units.saturating_sub(open.passed), check: open.check, receipt })
        });
        // The fallback may have taken less than the check says: at most this instance's share.
        let differs = |taken: &Taken<'_>| {
            taken.actual != taken.check.cost || taken.receipt.source == DecisionSource::Fallback
        };
        settled.filter(differs).collect()
    }

    /// Takes the units of bytes that have passed beyond the reserved ones. Of them, only the last step may be refunded.
    /// What the store has not got is asked for again with the next bytes, or at the end.
    async fn take_more(&mut self, costs: &[ReservedCost]) {
        let metrics = self.worker.metrics();
        for (open, cost) in self.open.iter_mut().zip(costs) {
            let Some(receipt) = &mut open.receipt else { continue };
            let more = cost.units.get() - open.passed - open.check.cost;
            if more == 0 || cost.settings.measure != Measure::Bytes {
                continue;
            }
            let check = Check { cost: 0, ..open.check.clone() };
            let taken = Taken { check, receipt: *receipt, actual: more };
            match self.worker.store.settle(std::slice::from_ref(&taken)).await {
                Ok(()) => {}
                Err(error) if error.may_have_run() => note_lost(metrics, &error),
                Err(_) => continue,
            }
            metrics.reserve_cost(open.policy, more);
            let step = cost.settings.reserve.default.min(more);
            open.passed += open.check.cost + more - step;
            open.check.cost = step;
            receipt.time = receipt.time.saturating_add(micros_since(open.taken));
            open.taken = Instant::now();
        }
    }

    /// Sends each settlement by itself, so that one that the store has not got may be sent again.
    async fn send(&mut self, taken: SmallVec<[Taken<'a>; 1]>) {
        let store = &self.worker.store;
        let results = join_all(taken.iter().map(|one| store.settle(std::slice::from_ref(one)))).await;
        for (one, result) in taken.into_iter().zip(results) {
            match result {
                Ok(()) => {}
                Err(error) if error.may_have_run() => note_lost(self.worker.metrics(), &error),
                Err(_) => self.late.push(one),
            }
        }
    }

    /// Tries again what the store has not got, for a window from now on: units beyond the reserved ones count from when
    /// they are charged.
    pub(super) async fn settle_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let Some(_place) = LatePlaces::take(self.late.len()) else {
            return self.lose_late();
        };
        let (mut pause, ended) = (FIRST_PAUSE, Instant::now());
        while !self.late.is_empty() {
            let is_draining = tokio::select! {
                () = sleep(pause) => false,
                () = self.worker.reservations.draining() => true,
            };
            pause = (pause * 2).min(LONGEST_PAUSE);
            let mut late = std::mem::take(&mut self.late);
            late.retain(|taken| {
                let is_kept = micros_since(ended) < longest_window(taken);
                if !is_kept && taken.actual > taken.check.cost {
                    self.worker.metrics().thread().settlements_lost().inc();
                }
                is_kept
            });
            self.send(late).await;
            if is_draining {
                return self.lose_late();
            }
        }
    }

    fn lose_late(&mut self) {
        for _ in self.late.drain(..) {
            self.worker.metrics().thread().settlements_lost().inc();
        }
    }
}

fn note_lost(metrics: &WorkerMetrics, error: &Unavailable) {
    metrics.thread().settlements_lost().inc();
    tracing::debug!(%error, "can't tell whether the store has settled a cost: it stays as it is");
}

fn micros_since(instant: Instant) -> i64 {
    i64::try_from(instant.elapsed().as_micros()).unwrap_or(i64::MAX)
}

/// The longest window in which the units count, in microseconds.
fn longest_window(taken: &Taken<'_>) -> i64 {
    taken.check.policy.tiers.iter().map(|tier| tier.window).max().unwrap_or_default()
}

/// Places among the settlements that wait for the store, until dropped.
struct LatePlaces(usize);

impl LatePlaces {
    fn take(count: usize) -> Option<Self> {
        let waiting = LATE.fetch_add(count, Ordering::Relaxed) + count;
        let places = Self(count);
        (waiting <= MAX_LATE).then_some(places)
    }
}

impl Drop for LatePlaces {
    fn drop(&mut self) {
        LATE.fetch_sub(self.0, Ordering::Relaxed);
    }
}
