//! A store of which policies with a `slice` take several units at once.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    Check, Cleared, Clock, Decision, Peek, Policy, Receipt, Source, Store, StoreAdmin, Unavailable,
    algorithm::{Verdict, metadata_list::Entry},
    slices::{Era, Slices, Spent},
};

/// Stands before the store `S` that instances share. A check that an instance's slice has room for is not asked
/// about.
pub struct Slicing<S> {
    store: S,
    slices: Arc<Slices>,
    clock: Arc<dyn Clock>,
}

/// What becomes of one check.
#[derive(Debug)]
enum Part<'a> {
    /// The store is asked for its units.
    Plain,
    /// It was taken here, of a slice until `end`.
    Spent { verdict: Verdict, end: i64, era: Era },
    /// The store is asked for a whole slice.
    Slice(Asking<'a>),
}

/// Somebody asks for a slice. If nothing comes of it, another may.
#[derive(Debug)]
struct Asking<'a> {
    slices: &'a Slices,
    check: &'a Check<'a>,
    asked: i64,
    era: Era,
    is_done: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.slices.give_up(self.check, None, self.asked, self.era);
        }
    }
}

impl Asking<'_> {
    fn units(&self) -> u64 {
        self.check.policy.slice
    }

    fn given(&mut self, verdict: Verdict) -> Verdict {
        self.is_done = true;
        self.slices.refill(self.check, self.units(), verdict, self.asked, self.era)
    }

    fn refused(&mut self, verdict: Verdict) {
        self.is_done = true;
        self.slices.give_up(self.check, Some(verdict), self.asked, self.era);
    }
}

impl<S: Store> Slicing<S> {
    /// Stands before `store`; all workers of an instance share its `slices`.
    pub fn new(store: S, slices: Arc<Slices>, clock: Arc<dyn Clock>) -> Self {
        Self { store, slices, clock }
    }

    fn part<'a>(&'a self, check: &'a Check<'_>, now: i64) -> Part<'a> {
        if !is_sliced(check) {
            return Part::Plain;
        }
        match self.slices.spend(check, now) {
            Spent::Here(verdict, era) => Part::Spent { verdict, end: now.saturating_add(verdict.reset), era },
            Spent::Refill(era) => {
                Part::Slice(Asking { slices: &self.slices, check, asked: now, era, is_done: false })
            }
            Spent::Ask => Part::Plain,
        }
    }

    async fn decide_in_parts(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        let now = self.clock.now();
        let mut parts: SmallVec<[Part<'_>; 2]> = checks.iter().map(|check| self.part(check, now)).collect();
        loop {
            let asked: SmallVec<[Check<'_>; 2]> =
                checks.iter().zip(&parts).filter_map(|(check, part)| part.asks(check)).collect();
            if asked.is_empty() {
                let verdicts = parts.iter().filter_map(Part::spent).collect();
                return Ok(Decision { admitted: true, source: Source::Slice, time: now, verdicts });
            }
            let decision = match self.store.decide(&asked).await {
                Ok(decision) => decision,
                Err(unavailable) => {
                    self.put_back(checks, &parts);
                    return Err(unavailable);
                }
            };
            let mut said = decision.verdicts.iter().copied();
            let (mut is_short, mut is_denied) = (false, false);
            let mut verdicts: SmallVec<[Verdict; 2]> = SmallVec::with_capacity(checks.len());
            for (check, part) in checks.iter().zip(&mut parts) {
                let verdict = match part {
                    Part::Spent { verdict, .. } => *verdict,
                    Part::Plain => {
                        let verdict = said.next().unwrap_or(Verdict::UNKNOWN);
                        is_denied |= !verdict.admitted && !check.policy.is_shadow;
                        verdict
                    }
                    Part::Slice(asking) => {
                        let verdict = said.next().unwrap_or(Verdict::UNKNOWN);
                        if decision.admitted {
                            asking.given(verdict)
                        } else if verdict.admitted {
                            verdict
                        } else {
                            asking.refused(verdict);
                            let fits = verdict.remaining >= check.cost;
                            (is_short, is_denied) = (is_short | fits, is_denied | !fits);
                            *part = Part::Plain;
                            // It was the slice that did not fit.
                            if fits { as_it_stands(verdict) } else { verdict }
                        }
                    }
                };
                verdicts.push(verdict);
            }
            if decision.admitted {
                return Ok(Decision { verdicts, ..decision });
            }
            // There is no whole slice left of the window; for the request itself there may be.
            if is_short && !is_denied {
                continue;
            }
            self.put_back(checks, &parts);
            return Ok(Decision { verdicts, ..decision });
        }
    }

    fn put_back(&self, checks: &[Check<'_>], parts: &[Part<'_>]) {
        for (check, part) in checks.iter().zip(parts) {
            if let Part::Spent { end, era, .. } = part {
                self.slices.put_back(check, *end, *era);
            }
        }
    }
}

/// Whether its units may be taken of a slice.
fn is_sliced(check: &Check<'_>) -> bool {
    check.policy.slice > check.cost && check.cost > 0 && !check.policy.is_shadow
}

/// What is said of a limit that denied more than the request asks for.
fn as_it_stands(verdict: Verdict) -> Verdict {
    Verdict { admitted: true, retry_after: Some(0), ..verdict }
}

impl Part<'_> {
    /// The check that the store is asked, if it is.
    fn asks<'a>(&self, check: &Check<'a>) -> Option<Check<'a>> {
        match self {
            Self::Spent { .. } => None,
            Self::Plain => Some(check.clone()),
            Self::Slice(asking) => Some(Check { cost: asking.units(), ..check.clone() }),
        }
    }

    fn spent(&self) -> Option<Verdict> {
        match self {
            Self::Spent { verdict, .. } => Some(*verdict),
            Self::Plain | Self::Slice(_) => None,
        }
    }
}

impl<S: Store> Store for Slicing<S> {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        if checks.iter().all(|check| check.policy.slice == 0) {
            return self.store.decide(checks).await;
        }
        self.decide_in_parts(checks).await
    }

    /// What is left of a slice that the check does not fit into is not told.
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
            let verdicts = spent.into_iter().flatten().collect();
            return Ok(Decision { admitted: true, source: Source::Slice, time: now, verdicts });
        }
        let decision = self.store.look(&asked).await?;
        let mut said = decision.verdicts.iter().copied();
        let verdicts = spent
            .into_iter()
            .map(|spent| spent.or_else(|| said.next()).unwrap_or(Verdict::UNKNOWN))
            .collect();
        Ok(Decision { verdicts, ..decision })
    }

    async fn refund(&self, checks: &[Check<'_>], receipt: Receipt) -> Result<(), Unavailable> {
        self.store.refund(checks, receipt).await
    }
}

impl<S: StoreAdmin> StoreAdmin for Slicing<S> {
    async fn peek(&self, policy: &Policy, identifier: &str) -> Result<Peek, Unavailable> {
        self.store.peek(policy, identifier).await
    }

    async fn entries(&self, policy: &Policy, identifier: &str) -> Result<Vec<Arc<Entry>>, Unavailable> {
        self.store.entries(policy, identifier).await
    }

    async fn reset(&self, policies: &[Policy], identifier: &str) -> Result<Vec<Cleared>, Unavailable> {
        self.store.reset(policies, identifier).await
    }

    async fn clear(&self, policies: &[Policy], identifier: &str) -> Result<Vec<Cleared>, Unavailable> {
        self.store.clear(policies, identifier).await
    }
}
