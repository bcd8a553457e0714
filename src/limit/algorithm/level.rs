//! The exact level of a `gcra` bucket, in units and fractions of a unit.

use super::Tier;

/// `whole + part / window` units, where `0 <= part < window`. The window is part of the key's name, so a state is only
/// read with the window that it was written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Level {
    pub whole: u64,
    pub part: i64,
}

impl Level {
    /// The level that drains in `time` microseconds. Zero if `time` is not positive.
    pub(super) fn from_drain_time(tier: Tier, time: i64) -> Self {
        Self::from_parts(tier, i128::from(time).saturating_mul(i128::from(tier.limit)))
    }

    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Units, rounded up.
    pub(super) fn units(self) -> u64 {
        self.whole.saturating_add(u64::from(self.part > 0))
    }

    pub(super) fn with(self, units: u64) -> Self {
        Self { whole: self.whole.saturating_add(units), ..self }
    }

    /// The level without `units` that were added `time` microseconds ago, except those that may have drained since.
    pub(super) fn without(self, tier: Tier, units: u64, time: i128) -> Self {
        let drained = time.max(0).saturating_mul(i128::from(tier.limit));
        let left = i128::from(units).saturating_mul(i128::from(tier.window)).saturating_sub(drained);
        Self::from_parts(tier, self.parts(tier).saturating_sub(left.max(0)))
    }

    /// The level after `time` microseconds of draining.
    pub(super) fn drained(self, tier: Tier, time: i128) -> Self {
        let drained = time.saturating_mul(i128::from(tier.limit));
        Self::from_parts(tier, self.parts(tier).saturating_sub(drained))
    }

    /// Microseconds until the bucket is empty.
    pub(super) fn time_until_empty(self, tier: Tier) -> i64 {
        drain_time(tier, self.parts(tier))
    }

    /// Microseconds until at most `units` are left.
    pub(super) fn time_until_at_most(self, tier: Tier, units: i128) -> i64 {
        drain_time(tier, self.parts(tier).saturating_sub(units.saturating_mul(i128::from(tier.window))))
    }

    /// Microseconds until [`Level::units`] is one less.
    pub(super) fn time_until_less(self, tier: Tier) -> i64 {
        drain_time(tier, i128::from(if self.part > 0 { self.part } else { tier.window }))
    }

    /// The level in parts. A unit has `window` parts (microseconds), and `limit` parts drain each microsecond.
    fn parts(self, tier: Tier) -> i128 {
        i128::from(self.whole) * i128::from(tier.window) + i128::from(self.part)
    }

    fn from_parts(tier: Tier, parts: i128) -> Self {
        let (parts, window) = (parts.max(0), i128::from(tier.window.max(1)));
        // The remainder is less than the window, which is an i64.
        let part = i64::try_from(parts % window).unwrap_or_default();
        Self { whole: u64::try_from(parts / window).unwrap_or(u64::MAX), part }
    }
}

/// The longest drain time, in microseconds: 73,000 years. Times in the future then fit an `i64`.
const MAX_TIME: i64 = i64::MAX / 4;

/// Microseconds in which `parts` drain, rounded up.
fn drain_time(tier: Tier, parts: i128) -> i64 {
    let limit = i128::from(tier.limit.max(1));
    let time = parts.max(0).saturating_add(limit - 1) / limit;
    i64::try_from(time).unwrap_or(MAX_TIME).min(MAX_TIME)
}
