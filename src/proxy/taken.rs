//! What was taken for one request and may have to be refunded: units that not every answer costs, and leases, which are
//! renewed while it runs.

use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use smallvec::SmallVec;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use super::{held::Stage, worker::Worker};
use crate::{
    limit::{
        Check, Decision, Receipt, Source, Store, Unavailable,
        algorithm::{Kind, Verdict},
    },
    telemetry::metrics::WorkerMetrics,
};

/// Until a lease that could not be given back is tried again; twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What was taken for one request and may have to be refunded.
pub(super) struct Taken<'a, S> {
    worker: &'a Worker<S>,
    /// Units that only some answers cost.
    reserved: SmallVec<[Check<'a>; 2]>,
    receipt: Receipt,
    leases: SmallVec<[Check<'a>; 2]>,
    /// Where the leases are held: in the store, and in what stands in for it.
    in_store: InStore,
    in_fallback: bool,
    /// When they expire, but for another renewal.
    expire: Instant,
    /// Counts them while the request runs.
    counted: Option<Counted<'a>>,
}

/// What is known of leases in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InStore {
    Held,
    /// The store gave no answer. It may have taken them nevertheless.
    InDoubt,
    No,
}

impl<'a, S: Store> Taken<'a, S> {
    /// What the store said it took of these checks, and what it may have taken though it said nothing.
    pub(super) fn of(
        worker: &'a Worker<S>,
        checks: &[Check<'a>],
        decided: &Result<Decision, Unavailable>,
    ) -> Self {
        let mut taken = Self {
            worker,
            reserved: SmallVec::new(),
            receipt: Receipt { source: Source::Store, time: 0 },
            leases: SmallVec::new(),
            in_store: InStore::No,
            in_fallback: false,
            expire: Instant::now(),
            counted: None,
        };
        let leases = || checks.iter().filter(|check| check.policy.kind == Kind::Concurrency).cloned();
        match decided {
            Ok(decision) if decision.admitted => {
                taken.receipt = decision.receipt();
                for (check, verdict) in checks.iter().zip(&decision.verdicts) {
                    match check.policy.kind {
                        // One that nobody was asked for is asked for when the store is back.
                        Kind::Concurrency if verdict.admitted => taken.leases.push(check.clone()),
                        Kind::Concurrency => {}
                        _ if check.policy.count.is_some() && is_taken(verdict) => {
                            taken.reserved.push(check.clone());
                        }
                        _ => {}
                    }
                }
                taken.renewed(decision.source);
                taken.counted = Some(Counted::new(worker.metrics(), taken.leases.len()));
            }
            Ok(decision) if decision.source != Source::Fallback => {}
            _ => taken.leases.extend(leases()),
        }
        let is_answered = decided.as_ref().is_ok_and(|decision| decision.source != Source::Fallback);
        if !is_answered && !taken.leases.is_empty() {
            taken.in_store = InStore::InDoubt;
        }
        taken
    }

    /// Whether the request has nothing to tell.
    pub(super) fn is_empty(&self) -> bool {
        self.reserved.is_empty() && self.leases.is_empty()
    }

    /// Waits for the request's end, keeps its leases until then, and gives back what is to be given back.
    pub(super) async fn see_through(mut self, mut stage: watch::Receiver<Stage>) {
        let period = self.shortest_lease() / 3;
        let mut renewal = Instant::now() + period;
        while !self.is_empty() {
            tokio::select! {
                biased;
                ended = stage.changed() => match ended {
                    Ok(()) => {
                        let reached = *stage.borrow_and_update();
                        if let Stage::Answered(status) = reached {
                            self.refund(status).await;
                        }
                    }
                    Err(_) => break,
                },
                () = sleep_until(renewal), if !self.leases.is_empty() => {
                    self.renew().await;
                    renewal = Instant::now() + period;
                }
            }
        }
        self.counted = None;
        self.refund(None).await;
        self.release().await;
    }

    /// Refunds what the answer does not cost, once: what was not confirmed may have been done.
    async fn refund(&mut self, status: Option<StatusCode>) {
        let reserved = std::mem::take(&mut self.reserved);
        let is_free = |check: &Check<'_>| status.is_none_or(|status| !check.policy.counts(status.as_u16()));
        let free: SmallVec<[Check<'_>; 2]> = reserved.into_iter().filter(is_free).collect();
        if !free.is_empty()
            && let Err(error) = self.worker.store.refund(&free, self.receipt).await
        {
            tracing::debug!(%error, "units are left to expire");
        }
    }

    /// Asks for the same leases again, each on its own: one that was lost to others meanwhile keeps none of the rest from
    /// being renewed. Whatever is said, the request goes on.
    async fn renew(&mut self) {
        let store = &self.worker.store;
        let renewals = self.leases.iter().map(|lease| store.decide(std::slice::from_ref(lease)));
        for decision in join_all(renewals).await.into_iter().flatten() {
            if decision.verdicts.first().is_some_and(is_taken) {
                self.renewed(decision.source);
            }
        }
    }

    fn renewed(&mut self, source: Source) {
        match source {
            Source::Store => self.in_store = InStore::Held,
            // Held there as well from now on: until the store is back, that is what decides over others.
            Source::Fallback => self.in_fallback = true,
            // Neither of them has taken a lease.
            Source::LocalDenial | Source::Slice => {}
        }
        self.expire = Instant::now() + self.longest_lease();
    }

    /// Gives the leases back, wherever they are held. It is tried until they expire of themselves: a lease is known by
    /// its token, so that it does no harm to give it back twice.
    async fn release(&self) {
        if self.leases.is_empty() {
            return;
        }
        let receipt = |source| Receipt { source, ..self.receipt };
        if self.in_fallback {
            // This is memory, and always there.
            let _there = self.worker.store.refund(&self.leases, receipt(Source::Fallback)).await;
        }
        if self.in_store == InStore::No {
            return;
        }
        let mut pause = FIRST_PAUSE;
        while self.worker.store.refund(&self.leases, receipt(Source::Store)).await.is_err() {
            // While the store is away, each request is in doubt; they must not all be remembered.
            if self.in_store == InStore::InDoubt || Instant::now() + pause >= self.expire {
                break;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn shortest_lease(&self) -> Duration {
        self.leases.iter().map(lease).min().unwrap_or_default()
    }

    fn longest_lease(&self) -> Duration {
        self.leases.iter().map(lease).max().unwrap_or_default()
    }
}

/// Whether something was taken of the check that says this: of one that was not held against its limit, nothing.
fn is_taken(verdict: &Verdict) -> bool {
    verdict.admitted && *verdict != Verdict::UNKNOWN
}

/// How long a lease lasts.
fn lease(check: &Check<'_>) -> Duration {
    let window = check.policy.tiers.first().map_or(0, |tier| tier.window);
    Duration::from_micros(u64::try_from(window).unwrap_or(0))
}

/// Leases that a request under way holds, among those of its worker.
struct Counted<'a> {
    metrics: &'a WorkerMetrics,
    leases: u64,
}

impl<'a> Counted<'a> {
    fn new(metrics: &'a WorkerMetrics, leases: usize) -> Self {
        let leases = leases as u64;
        metrics.thread().leases().add(leases);
        Self { metrics, leases }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.metrics.thread().leases().sub(self.leases);
    }
}
