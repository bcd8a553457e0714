//! The costs of one request that its response tells. Units are reserved before; when the response has ended, the store
//! gets the difference.

use std::{
    future::poll_fn,
    slice,
    sync::atomic::{AtomicUsize, Ordering},
    task::Poll,
    time::Duration,
};

use futures_util::future::{FutureExt, LocalBoxFuture};
use smallvec::SmallVec;
use tokio::time::{Instant, sleep};

use super::guard::{Charge, RequestProgress, RequestStage, ReservedCost};
use crate::{
    config::model::Measure,
    limit::{Check, Receipt, Store, Taken, Unavailable},
    proxy::worker::Worker,
};

/// The pause before a settlement is tried again that the store has not got; it doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Most settlements of the process that wait for the store.
const MAX_LATE: usize = 16_384;
static LATE: AtomicUsize = AtomicUsize::new(0);

/// Most settlements of a request that are under way before more units of bytes are taken. Later ones take them together.
const MAX_SENDING: usize = 8;

/// A settlement that the store is asked for, and its result.
type Sending<'a> = LocalBoxFuture<'a, (Taken<'a>, Result<(), Unavailable>)>;

/// The units that one request has reserved.
pub(super) struct OpenCosts<'a, S> {
    worker: &'a Worker<S>,
    open: SmallVec<[OpenCost<'a>; 1]>,
    /// Settlements that are under way. The next one does not wait for them: the end of the response follows at once, and
    /// the client's next request arrives later.
    sending: Vec<Sending<'a>>,
    /// Settlements that the store has not got.
    late: SmallVec<[Taken<'a>; 1]>,
    decided: Instant,
}

struct OpenCost<'a> {
    check: Check<'a>,
    receipt: Receipt,
    /// The units of `check` that are charged for good, because so many bytes have passed. The others may be refunded.
    passed: u64,
    /// The index of its policy.
    policy: usize,
}

impl<'a, S: Store> OpenCosts<'a, S> {
    pub(super) fn new(worker: &'a Worker<S>) -> Self {
        Self {
            worker,
            open: SmallVec::new(),
            sending: Vec::new(),
            late: SmallVec::new(),
            decided: Instant::now(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Adds the units that `check` has taken.
    pub(super) fn push(&mut self, check: Check<'a>, receipt: Receipt) {
        let policies = &self.worker.rules.policies;
        let policy = policies.iter().position(|policy| policy.name == check.policy.name).unwrap_or_default();
        self.worker.metrics().reserve_cost(policy, check.cost);
        self.open.push(OpenCost { check, receipt, passed: 0, policy });
    }

    /// The costs, for the request, in the same order.
    pub(super) fn for_request(&self) -> Box<[ReservedCost]> {
        let settings =
            |open: &OpenCost<'_>| Some(ReservedCost::new(&open.check, open.check.policy.cost.of_response()?));
        self.open.iter().filter_map(settings).collect()
    }

    /// Whether settlements are under way.
    pub(super) fn is_sending(&self) -> bool {
        !self.sending.is_empty()
    }

    /// Charges bytes that have passed, and settles all costs once the response has told them: begins to, for
    /// [`OpenCosts::sent`].
    pub(super) fn settle(&mut self, request: &RequestProgress) {
        let charges: Option<SmallVec<[Charge; 1]>> =
            request.costs().iter().map(ReservedCost::charge).collect();
        match charges {
            Some(charges) => {
                let taken = self.close(&charges);
                self.send(taken);
            }
            None if self.sending.len() < MAX_SENDING => {
                let taken = self.take_more(request.costs());
                self.send(taken);
            }
            None => {}
        }
    }

    /// Settles what is left when the request has ended. One that was sent, and has no response, costs what it has
    /// reserved: the upstream may have processed it.
    pub(super) async fn end(&mut self, request: &RequestProgress) {
        let is_sent = !matches!(request.stage(), RequestStage::Unsent | RequestStage::Refused);
        let reserved = |cost: &ReservedCost| match is_sent {
            true => Charge { units: cost.units.get(), is_missing: true },
            false => Charge::NONE,
        };
        let charges: SmallVec<[Charge; 1]> =
            request.costs().iter().map(|cost| cost.charge().unwrap_or_else(|| reserved(cost))).collect();
        let taken = self.close(&charges);
        self.send(taken);
        self.sent().await;
    }

    /// The settlements of all costs, by what they are `charges`.
    fn close(&mut self, charges: &[Charge]) -> SmallVec<[Taken<'a>; 1]> {
        let metrics = self.worker.metrics();
        let open = std::mem::take(&mut self.open);
        let settled = open.into_iter().zip(charges).map(|(open, charge)| {
            metrics.settle_cost(open.policy, open.passed + open.check.cost, charge.units, charge.is_missing);
            Taken {
                actual: charge.units.saturating_sub(open.passed),
                check: open.check,
                receipt: open.receipt,
            }
        });
        settled.filter(|taken| taken.actual != taken.check.cost).collect()
    }

    /// Takes the units of bytes that have passed beyond the reserved ones. Of them, only the last step may be refunded.
    fn take_more(&mut self, costs: &[ReservedCost]) -> SmallVec<[Taken<'a>; 1]> {
        let elapsed = i64::try_from(self.decided.elapsed().as_micros()).unwrap_or(i64::MAX);
        let metrics = self.worker.metrics();
        let mut taken = SmallVec::new();
        for (open, cost) in self.open.iter_mut().zip(costs) {
            let more = cost.units.get() - open.passed - open.check.cost;
            if more == 0 || cost.settings.measure != Measure::Bytes {
                continue;
            }
            metrics.reserve_cost(open.policy, more);
            let check = Check { cost: 0, ..open.check.clone() };
            taken.push(Taken { check, receipt: open.receipt, actual: more });
            let step = cost.settings.reserve.default.min(more);
            open.passed += open.check.cost + more - step;
            open.check.cost = step;
            open.receipt.time = open.receipt.time.saturating_add(elapsed);
        }
        if !taken.is_empty() {
            self.decided = Instant::now();
        }
        taken
    }

    /// Sends each settlement by itself, so that one that the store has not got may be sent again.
    fn send(&mut self, taken: SmallVec<[Taken<'a>; 1]>) {
        let store = &self.worker.store;
        for one in taken {
            let sending = async move {
                let result = store.settle(slice::from_ref(&one)).await;
                (one, result)
            };
            self.sending.push(sending.boxed_local());
        }
    }

    /// Asks the store for all settlements that are under way, and waits for their results.
    pub(super) async fn sent(&mut self) {
        let Self { worker, sending, late, .. } = self;
        poll_fn(|cx| {
            sending.retain_mut(|one| {
                let Poll::Ready((taken, result)) = one.as_mut().poll(cx) else { return true };
                match result {
                    Ok(()) => {}
                    Err(error) if error.may_have_run() => {
                        worker.metrics().thread().settlements_lost().inc();
                        tracing::debug!(%error, "can't tell whether the store has settled a cost: it stays as it is");
                    }
                    Err(_) => late.push(taken),
                }
                false
            });
            if sending.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Tries again what the store has not got, until the windows have passed.
    pub(super) async fn settle_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let Some(_place) = LatePlaces::take(self.late.len()) else {
            return self.lose_late();
        };
        let mut pause = FIRST_PAUSE;
        while !self.late.is_empty() {
            let is_draining = tokio::select! {
                () = sleep(pause) => false,
                () = self.worker.reservations.draining() => true,
            };
            pause = (pause * 2).min(LONGEST_PAUSE);
            let elapsed = i64::try_from(self.decided.elapsed().as_micros()).unwrap_or(i64::MAX);
            let mut late = std::mem::take(&mut self.late);
            late.retain(|taken| elapsed < longest_window(taken));
            self.send(late);
            self.sent().await;
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
