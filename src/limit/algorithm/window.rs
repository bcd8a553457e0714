//! A window with one count: what the counters are made of.

use super::{Tier, verdict::TierStanding};

/// Units taken since a window's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Window {
    /// Microseconds since the Unix epoch.
    pub(super) start: i64,
    /// 0: there is no window.
    pub(super) used: u64,
}

impl Window {
    /// This window if it began at `earliest` or later, and does not lie more than a window ahead of
    /// now; else an untouched one that begins at `next`.
    pub(super) fn current(self, tier: Tier, now: i64, earliest: i64, next: i64) -> Self {
        if self.used > 0 && self.start >= earliest && !self.is_ahead(tier, now) {
            self
        } else {
            Self { start: next, used: 0 }
        }
    }

    /// Whether it lies more than a window ahead of now, so that it is void.
    pub(super) fn is_ahead(self, tier: Tier, now: i64) -> bool {
        self.used > 0 && self.start.saturating_sub(now) > tier.window
    }

    /// This window, which must be the current one, with `cost` units more, but not above the limit.
    pub(super) fn filled(self, tier: Tier, cost: u64) -> Self {
        Self { used: self.used.saturating_add(cost).min(tier.limit).max(self.used), ..self }
    }

    /// Refunds `cost` units that were taken at `at`, if that was in this window.
    pub(super) fn refund(&mut self, tier: Tier, at: i64, cost: u64) {
        if self.start <= at && at < self.end(tier) {
            self.used = self.used.saturating_sub(cost);
        }
    }

    pub(super) fn end(self, tier: Tier) -> i64 {
        self.start.saturating_add(tier.window)
    }

    /// How the tier stands in this window, which must be the current one.
    pub(super) fn standing(self, tier: Tier, cost: u64) -> TierStanding {
        let end = self.end(tier);
        TierStanding {
            limit: tier.limit,
            used: self.used,
            returns: end,
            fits: (cost <= tier.limit).then_some(end),
            max_delay: 0,
        }
    }
}
