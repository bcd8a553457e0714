//! What policies said to one request.

use http::StatusCode;

use crate::{
    limit::{Check, Policy, algorithm::Verdict},
    proxy::checks::Limits,
};

/// What one policy said to one request.
#[derive(Debug, Clone, Copy)]
pub struct Said {
    /// The policy's index.
    pub policy: usize,
    /// Which of [`Policy::variants`] it was held against.
    pub variant: usize,
    /// The units that were asked for.
    pub cost: u64,
    /// Its verdict.
    pub verdict: Verdict,
}

impl Said {
    /// What a check's policy said.
    pub(in crate::proxy) fn of(check: &Check<'_>, limits: Limits, verdict: Verdict) -> Self {
        Self { policy: limits.policy, variant: limits.variant, cost: check.cost, verdict }
    }

    /// What a policy says that will never admit the request, since it lacks what it is counted by. No quota was asked.
    pub fn unidentified(policy: usize, of: &Policy) -> Self {
        let verdict = Verdict {
            admitted: false,
            tier: 0,
            limit: of.tiers.first().map_or(0, |tier| tier.limit),
            remaining: 0,
            reset: 0,
            retry_after: None,
            delay: 0,
        };
        Self { policy, variant: 0, cost: 0, verdict }
    }

    /// The same once the upstream has answered `status`: what `policy` counts no longer is refunded.
    pub fn once_answered(self, policy: &Policy, status: StatusCode) -> Self {
        let mut verdict = self.verdict;
        if !policy.counts(status.as_u16()) && verdict != Verdict::UNKNOWN {
            verdict.remaining = verdict.remaining.saturating_add(self.cost).min(verdict.limit);
            if verdict.remaining == verdict.limit {
                verdict.reset = 0;
            }
        }
        Self { verdict, ..self }
    }

    fn frees(&self) -> i64 {
        self.verdict.retry_after.unwrap_or(i64::MAX)
    }
}

/// The one check that a client should heed: of those that deny the one that frees last, else the one
/// with the least left.
pub fn tightest(said: &[Said]) -> Option<Said> {
    let denying = said.iter().filter(|said| !said.verdict.admitted).max_by_key(|said| said.frees());
    let least = || said.iter().min_by_key(|said| (said.verdict.remaining, -said.verdict.reset));
    denying.or_else(least).copied()
}
