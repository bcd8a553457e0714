//! The middle layer of a worker's store: policies with a `slice` take many units at once, and spend them locally.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    Check, ClearedLimit, Clock, Decision, DecisionSource, Epoch, LimitUsage, Policy, Store, StoreAdmin,
    Taken, Unavailable,
    algorithm::{Verdict, metadata_list::Entry},
    slices::{AfterDenial, Slices, SpendOutcome},
};

/// Wraps the store `S` that instances share. A check that fits into the instance's slice does not reach `S`.
pub struct SlicedStore<S> {
    store: S,
    slices: Arc<Slices>,
    clock: Arc<dyn Clock>,
}

/// How one check is decided.
#[derive(Debug)]
enum CheckPlan<'a> {
    /// Take the check's units from the store.
    AskStore,
    /// The units were taken from a slice, which ends at `end`.
    FromSlice { verdict: Verdict, end: i64, epoch: Epoch },
    /// Take a whole slice from the store.
    Refill(SliceRequest<'a>),
}

/// One decision of the store, and the result for the checks.
struct Round {
    /// Whether the store has admitted all checks that it was asked about.
    is_admitted: bool,
    now: i64,
    /// The epoch of the slices before the request.
    epoch: Epoch,
    /// Whether the store may be asked again for the sake of a slice that is on its way.
    may_await_slice: bool,
    /// Whether another round may admit a check that this one has not.
    is_short: bool,
    /// Whether a check is denied for good.
    is_denied: bool,
}

/// A request to the store for a slice. If it is dropped without a result, the store may have granted the slice.
#[derive(Debug)]
struct SliceRequest<'a> {
    slices: &'a Slices,
    check: &'a Check<'a>,
    asked: i64,
    epoch: Epoch,
    is_done: bool,
}

impl Drop for SliceRequest<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.slices.refill_unknown(self.check, self.asked, self.epoch);
        }
    }
}

impl SliceRequest<'_> {
    fn units(&self) -> u64 {
        self.check.policy.slice
    }

    fn granted(&mut self, verdict: Verdict) -> Verdict {
        self.is_done = true;
        self.slices.refill(self.check, self.units(), verdict, self.asked, self.epoch)
    }

    fn refused(&mut self, verdict: Verdict) {
        self.is_done = true;
        self.slices.refill_failed(self.check, Some(verdict), self.asked, self.epoch);
    }

    /// The store has taken nothing. Another request may try.
    fn not_taken(&mut self) {
        self.is_done = true;
        self.slices.refill_failed(self.check, None, self.asked, self.epoch);
    }
}

impl<S: Store> SlicedStore<S> {
    /// Wraps `store`. All workers of an instance share `slices`.
    pub fn new(store: S, slices: Arc<Slices>, clock: Arc<dyn Clock>) -> Self {
        Self { store, slices, clock }
    }

    fn plan<'a>(&'a self, check: &'a Check<'_>, now: i64) -> CheckPlan<'a> {
        if !is_sliced(check) {
            return CheckPlan::AskStore;
        }
        match self.slices.spend(check, now) {
            SpendOutcome::FromSlice(verdict, epoch) => CheckPlan::from_slice(verdict, epoch, now),
            SpendOutcome::Refill(epoch) => CheckPlan::Refill(SliceRequest {
                slices: &self.slices,
                check,
                asked: now,
                epoch,
                is_done: false,
            }),
            SpendOutcome::AskStore => CheckPlan::AskStore,
        }
    }

    async fn decide_with_slices(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        let (now, epoch) = (self.clock.now(), self.slices.epoch());
        let mut plans: SmallVec<[CheckPlan<'_>; 2]> =
            checks.iter().map(|check| self.plan(check, now)).collect();
        // Once: by then the slice has arrived, or nothing is left.
        let mut may_await_slice = true;
        loop {
            let asked: SmallVec<[Check<'_>; 2]> =
                checks.iter().zip(&plans).filter_map(|(check, plan)| plan.store_check(check)).collect();
            if asked.is_empty() {
                return Ok(admitted_by_slices(plans.iter().filter_map(CheckPlan::slice_verdict), now));
            }
            let decision = match self.store.decide(&asked).await {
                Ok(decision) => decision,
                Err(unavailable) => {
                    self.put_back(checks, &mut plans, unavailable.may_have_run());
                    return Err(unavailable);
                }
            };
            let mut round = Round {
                is_admitted: decision.admitted,
                now,
                epoch,
                may_await_slice,
                is_short: false,
                is_denied: false,
            };
            let mut of_store = decision.verdicts.iter().copied();
            let judged = checks.iter().zip(&mut plans);
            let verdicts =
                judged.map(|(check, plan)| self.judge(check, plan, &mut of_store, &mut round)).collect();
            if decision.admitted {
                return Ok(Decision { verdicts, ..decision });
            }
            // No whole slice is left in the window: take the request's own units. Or a slice has the last ones.
            if round.is_short && !round.is_denied {
                may_await_slice = round.may_await_slice;
                continue;
            }
            self.put_back(checks, &mut plans, false);
            return Ok(Decision { verdicts, ..decision });
        }
    }

    /// The verdict on one check, once the store has decided. `of_store`: the store's verdicts on this check, if it was
    /// asked, and on those after it. If the check can still be admitted, changes its plan for the next round.
    fn judge(
        &self,
        check: &Check<'_>,
        plan: &mut CheckPlan<'_>,
        mut of_store: impl Iterator<Item = Verdict>,
        round: &mut Round,
    ) -> Verdict {
        let Round { is_admitted, now, epoch, .. } = *round;
        match plan {
            CheckPlan::FromSlice { verdict, .. } => *verdict,
            CheckPlan::AskStore => {
                let mut verdict = of_store.next().unwrap_or(Verdict::UNKNOWN);
                // If another check denied the request, an admitting verdict reports the units that would be left.
                if may_have_slice(check) && (is_admitted || !verdict.admitted) {
                    verdict = self.slices.note_verdict(check, verdict, now, epoch);
                }
                let after_denial = match is_sliced(check) && !verdict.admitted {
                    true => self.slices.spend_after_denial(check, now),
                    false => AfterDenial::Denied,
                };
                match after_denial {
                    AfterDenial::FromSlice(verdict, epoch) => {
                        round.is_short = true;
                        *plan = CheckPlan::from_slice(verdict, epoch, now);
                        verdict
                    }
                    AfterDenial::Awaited if round.may_await_slice => {
                        (round.is_short, round.may_await_slice) = (true, false);
                        verdict
                    }
                    AfterDenial::Awaited | AfterDenial::Denied => {
                        round.is_denied |= !verdict.admitted && !check.policy.is_shadow;
                        verdict
                    }
                }
            }
            CheckPlan::Refill(request) => {
                let verdict = of_store.next().unwrap_or(Verdict::UNKNOWN);
                if is_admitted {
                    return request.granted(verdict);
                }
                if verdict.admitted {
                    return verdict;
                }
                request.refused(verdict);
                let fits = verdict.remaining >= check.cost;
                (round.is_short, round.is_denied) = (round.is_short | fits, round.is_denied | !fits);
                *plan = CheckPlan::AskStore;
                let verdict = self.slices.note_verdict(check, verdict, now, epoch);
                // The slice does not fit, but the check does.
                if fits { admitting(verdict) } else { verdict }
            }
        }
    }

    /// Undoes the plans of a request that is not admitted. `may_have_run`: the store may have taken the units.
    fn put_back(&self, checks: &[Check<'_>], plans: &mut [CheckPlan<'_>], may_have_run: bool) {
        let now = self.clock.now();
        for (check, plan) in checks.iter().zip(plans) {
            match plan {
                CheckPlan::FromSlice { end, epoch, .. } => self.slices.put_back(check, *end, now, *epoch),
                CheckPlan::Refill(request) if !may_have_run => request.not_taken(),
                CheckPlan::Refill(_) | CheckPlan::AskStore => {}
            }
        }
    }
}

/// Whether the check may be decided from a slice.
fn is_sliced(check: &Check<'_>) -> bool {
    check.policy.slice > check.cost && check.cost > 0 && !check.policy.is_shadow
}

/// Whether the check's limit may have a slice, whether the check fits into it or not.
fn may_have_slice(check: &Check<'_>) -> bool {
    check.policy.slice > 0 && !check.policy.is_shadow
}

/// The verdict of a check that fits, made from the denial of a whole slice.
fn admitting(verdict: Verdict) -> Verdict {
    Verdict { admitted: true, retry_after: Some(0), ..verdict }
}

impl CheckPlan<'_> {
    fn from_slice(verdict: Verdict, epoch: Epoch, now: i64) -> Self {
        Self::FromSlice { verdict, end: now.saturating_add(verdict.reset), epoch }
    }

    /// The check for the store, if any.
    fn store_check<'a>(&self, check: &Check<'a>) -> Option<Check<'a>> {
        match self {
            Self::FromSlice { .. } => None,
            Self::AskStore => Some(check.clone()),
            Self::Refill(request) => Some(Check { cost: request.units(), ..check.clone() }),
        }
    }

    fn slice_verdict(&self) -> Option<Verdict> {
        match self {
            Self::FromSlice { verdict, .. } => Some(*verdict),
            Self::AskStore | Self::Refill(_) => None,
        }
    }
}

impl<S: Store> Store for SlicedStore<S> {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        if checks.iter().all(|check| check.policy.slice == 0) {
            return self.store.decide(checks).await;
        }
        self.decide_with_slices(checks).await
    }

    /// Ignores the rest of a slice that the check does not fit into.
    async fn look(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        let now = self.clock.now();
        let spent: SmallVec<[Option<Verdict>; 2]> = checks
            .iter()
            .map(|check| if is_sliced(check) { self.slices.look(check, now) } else { None })
            .collect();
        let asked: SmallVec<[Check<'_>; 2]> = checks
            .iter()
            .zip(&spent)
            .filter(|(_, spent)| spent.is_none())
            .map(|(check, _)| check.clone())
            .collect();
        if asked.is_empty() && !checks.is_empty() {
            return Ok(admitted_by_slices(spent.into_iter().flatten(), now));
        }
        let decision = self.store.look(&asked).await?;
        let mut store_verdicts = decision.verdicts.iter().copied();
        let verdicts = spent
            .into_iter()
            .map(|spent| spent.or_else(|| store_verdicts.next()).unwrap_or(Verdict::UNKNOWN))
            .collect();
        Ok(Decision { verdicts, ..decision })
    }

    async fn settle(&self, taken: &[Taken<'_>]) -> Result<(), Unavailable> {
        let now = self.clock.now();
        // Units of a limit with a slice are returned to the slice, even if they are from the store, which counts them
        // as taken.
        let is_put_back = |taken: &Taken<'_>| {
            is_sliced(&taken.check) && self.slices.give_back(&taken.check, taken.receipt.time, now)
        };
        if !taken.iter().any(|taken| taken.check.policy.slice > 0) {
            return self.store.settle(taken).await;
        }
        let of_store =
            |taken: &&Taken<'_>| !is_put_back(taken) && taken.receipt.source != DecisionSource::Slice;
        let rest: SmallVec<[Taken<'_>; 2]> = taken.iter().filter(of_store).cloned().collect();
        if rest.is_empty() { Ok(()) } else { self.store.settle(&rest).await }
    }

    fn shard(&self, check: &Check<'_>) -> u32 {
        self.store.shard(check)
    }

    fn is_sharded(&self) -> bool {
        self.store.is_sharded()
    }
}

impl<S: StoreAdmin> StoreAdmin for SlicedStore<S> {
    async fn peek(&self, policy: &Policy, identifier: &str) -> Result<LimitUsage, Unavailable> {
        self.store.peek(policy, identifier).await
    }

    async fn entries(&self, policy: &Policy, identifier: &str) -> Result<Vec<Arc<Entry>>, Unavailable> {
        self.store.entries(policy, identifier).await
    }

    async fn reset(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        self.store.reset(policies, identifier).await
    }

    async fn clear(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        self.store.clear(policies, identifier).await
    }
}

/// The decision on checks that were all admitted by slices.
fn admitted_by_slices(verdicts: impl Iterator<Item = Verdict>, now: i64) -> Decision {
    let verdicts = verdicts.collect();
    Decision { admitted: true, source: DecisionSource::Slice, time: now, verdicts, parts: None }
}
