//! How full a bucket is, to the last part of a unit.

use super::Tier;

/// `whole + part / window` units, where `0 <= part < window`. The window belongs to the key, so that a state never meets
/// another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Level {
    pub whole: u64,
    pub part: i64,
}

impl Level {
    /// What drains within `time` microseconds, or is not there to be drained.
    pub(super) fn of(tier: Tier, time: i64) -> Self {
        Self::from_parts(tier, i128::from(time).saturating_mul(i128::from(tier.limit)))
    }

    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Units, each begun one counted.
    pub(super) fn units(self) -> u64 {
        self.whole.saturating_add(u64::from(self.part > 0))
    }

    pub(super) fn plus(self, units: u64) -> Self {
        Self { whole: self.whole.saturating_add(units), ..self }
    }

    /// Without so many units, but for what may have drained of them in `time` microseconds.
    pub(super) fn without(self, tier: Tier, units: u64, time: i128) -> Self {
        let drained = time.max(0).saturating_mul(i128::from(tier.limit));
        let left = i128::from(units).saturating_mul(i128::from(tier.window)).saturating_sub(drained);
        Self::from_parts(tier, self.parts(tier).saturating_sub(left.max(0)))
    }

    /// What is left of it after `time` microseconds.
    pub(super) fn drained(self, tier: Tier, time: i128) -> Self {
        let drained = time.saturating_mul(i128::from(tier.limit));
        Self::from_parts(tier, self.parts(tier).saturating_sub(drained))
    }

    /// Microseconds until nothing is left.
    pub(super) fn empties_in(self, tier: Tier) -> i64 {
        time(tier, self.parts(tier))
    }

    /// Microseconds until it is at most so many units.
    pub(super) fn falls_in(self, tier: Tier, units: i128) -> i64 {
        time(tier, self.parts(tier).saturating_sub(units.saturating_mul(i128::from(tier.window))))
    }

    /// Microseconds until it counts as one unit less.
    pub(super) fn shrinks_in(self, tier: Tier) -> i64 {
        time(tier, i128::from(if self.part > 0 { self.part } else { tier.window }))
    }

    /// In parts of which a unit has as many as the window has microseconds, and of which as many drain in one as the limit
    /// has units.
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

/// No bucket is waited for longer, in microseconds: 73,000 years, so that times to come have bits enough.
const LONGEST: i64 = i64::MAX / 4;

/// Microseconds in which so many parts drain.
fn time(tier: Tier, parts: i128) -> i64 {
    let limit = i128::from(tier.limit.max(1));
    let time = parts.max(0).saturating_add(limit - 1) / limit;
    i64::try_from(time).unwrap_or(LONGEST).min(LONGEST)
}
