//! The decisions of a route's policies on one request.

use smallvec::SmallVec;

use crate::limit::{Check, Policy, ResponseStatus, algorithm::Verdict};

/// A policy's limits: its own or an override's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VariantRef {
    /// The policy's index.
    pub policy: usize,
    /// Which of [`Policy::variants`].
    pub(super) variant: u32,
    /// Whether another key of the policy counts the same request: its usage is that of the first.
    pub(super) is_further: bool,
}

impl VariantRef {
    /// The policy with these limits.
    pub fn resolve(self, policies: &[Policy]) -> Option<&Policy> {
        policies.get(self.policy)?.variants().nth(self.variant as usize)
    }
}

/// One check, its limits, and the store's verdict.
pub(super) struct CheckOutcome<'a> {
    pub(super) check: &'a Check<'a>,
    pub(super) variant: VariantRef,
    pub(super) verdict: Verdict,
}

impl CheckOutcome<'_> {
    /// Whether it denies the request, and not only in shadow.
    pub(super) fn is_denial(&self) -> bool {
        !self.verdict.admitted && !self.check.policy.is_shadow
    }
}

/// The part of a [`CheckOutcome`] that outlives its check, for the fields that clients get about one policy.
#[derive(Debug, Clone, Copy)]
pub(super) struct PolicyOutcome {
    pub(super) variant: VariantRef,
    /// The cost of the request, in units.
    pub(super) cost: u64,
    pub(super) verdict: Verdict,
}

/// The outcomes of a request's enforced policies. Few requests have more than two.
pub(super) type Outcomes = SmallVec<[PolicyOutcome; 2]>;

impl From<CheckOutcome<'_>> for PolicyOutcome {
    fn from(CheckOutcome { check, variant, verdict }: CheckOutcome<'_>) -> Self {
        Self { variant, cost: check.cost, verdict }
    }
}

impl PolicyOutcome {
    /// The outcome of a policy that can never admit the request, which lacks the value that identifies it. The store
    /// was not asked. `index`: the policy's.
    pub(super) fn unidentified(index: usize, policy: &Policy) -> Self {
        let verdict = Verdict {
            admitted: false,
            tier: 0,
            limit: policy.tiers.first().map_or(0, |tier| tier.limit),
            remaining: 0,
            reset: 0,
            retry_after: None,
            delay: 0,
            renews: false,
        };
        Self { variant: VariantRef { policy: index, variant: 0, is_further: false }, cost: 0, verdict }
    }

    /// The outcome once the upstream has responded with `status`: the cost is refunded if `policy` does not count
    /// this status.
    pub(super) fn after_response(self, policy: &Policy, status: ResponseStatus) -> Self {
        if policy.counts(status) == Some(false) { self.refunded() } else { self }
    }

    /// The outcome once its cost is refunded.
    pub(super) fn refunded(self) -> Self {
        let mut verdict = self.verdict;
        if verdict != Verdict::UNKNOWN {
            verdict.remaining = verdict.remaining.saturating_add(self.cost).min(verdict.limit);
            if verdict.remaining == verdict.limit {
                verdict.reset = 0;
            }
        }
        Self { verdict, ..self }
    }

    fn retry_after(&self) -> i64 {
        self.verdict.retry_after.unwrap_or(i64::MAX)
    }
}

/// The index of the outcome for the client to follow: the denial with the longest wait, or else the outcome with the
/// least remaining.
pub(super) fn tightest(outcomes: &[PolicyOutcome]) -> Option<usize> {
    let all = || outcomes.iter().enumerate();
    let denying = all().filter(|(_, outcome)| !outcome.verdict.admitted);
    let longest_wait = denying.max_by_key(|(_, outcome)| outcome.retry_after());
    let least = || all().min_by_key(|(_, outcome)| (outcome.verdict.remaining, -outcome.verdict.reset));
    longest_wait.or_else(least).map(|(index, _)| index)
}
