//! A window with one count: the state of `single_counter` and `fixed_window`.

use super::{Tier, verdict::TierStatus};

/// Units taken since a window's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CountWindow {
    /// Microseconds since the Unix epoch.
    pub(super) start: i64,
    /// 0 if there is no window.
    pub(super) used: u64,
}

impl CountWindow {
    /// This window, if it began at `earliest` or later and is not void; else an unused one that begins at `next`.
    pub(super) fn current(self, tier: Tier, now: i64, earliest: i64, next: i64) -> Self {
        if self.used > 0 && self.start >= earliest && !self.is_ahead(tier, now) {
            self
        } else {
            Self { start: next, used: 0 }
        }
    }

    /// Whether the window starts more than its length ahead of now, so that it is void.
    pub(super) fn is_ahead(self, tier: Tier, now: i64) -> bool {
        self.used > 0 && self.start.saturating_sub(now) > tier.window
    }

    /// This window with the `cost` units of a denied request, up to the limit. `self` must be the current window.
    pub(super) fn with_denied(self, tier: Tier, cost: u64) -> Self {
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

    /// The tier's status for a request of `cost` units. `self` must be the current window.
    pub(super) fn status(self, tier: Tier, cost: u64) -> TierStatus {
        let end = self.end(tier);
        TierStatus {
            limit: tier.limit,
            used: self.used,
            frees_at: end,
            fits_at: (cost <= tier.limit).then_some(end),
            max_delay: 0,
        }
    }
}
