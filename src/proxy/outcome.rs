//! What the policies of a route decide of one request.

use smallvec::SmallVec;

use super::checks::VariantRef;
use crate::limit::{AnswerStatus, Check, Policy, algorithm::Verdict};

/// One check, the limits it is checked against, and the store's verdict.
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

/// The part of a [`CheckOutcome`] that outlives its check: what clients are told of one policy.
#[derive(Debug, Clone, Copy)]
pub(super) struct PolicyOutcome {
    pub(super) variant: VariantRef,
    /// The units that were asked for.
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
    /// The outcome of a policy that can never admit the request, which lacks what identifies it. The store was not
    /// asked. `index`: the policy's.
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
        Self { variant: VariantRef { policy: index, variant: 0 }, cost: 0, verdict }
    }

    /// The same once the upstream has answered with `status`: the cost is refunded where `policy` does not count that.
    pub(super) fn after_answer(self, policy: &Policy, status: AnswerStatus) -> Self {
        if policy.counts(status) == Some(false) { self.refunded() } else { self }
    }

    /// The same once its cost is refunded.
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

/// The outcome that a client should go by: of those that deny the one with the longest wait, else the one with the
/// least remaining.
pub(super) fn tightest(outcomes: &[PolicyOutcome]) -> Option<PolicyOutcome> {
    let denying = outcomes.iter().filter(|outcome| !outcome.verdict.admitted);
    let longest_wait = denying.max_by_key(|outcome| outcome.retry_after());
    let least = || outcomes.iter().min_by_key(|outcome| (outcome.verdict.remaining, -outcome.verdict.reset));
    longest_wait.or_else(least).copied()
}
