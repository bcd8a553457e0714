//! The ladder of bans of one key under one rule. Pure: times in, bans out. `lua/offense.lua` is its twin.

use super::window::Window;

/// Steps that are told apart.
const HIGHEST: u32 = 1_000_000;
/// How long a step is remembered at most, in microseconds: 366 days.
const REMEMBERED: i64 = 366 * 86_400 * 1_000_000;

/// What a rule says of a ladder. Microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LadderTerms {
    /// Denials within the window that ban.
    pub limit: u64,
    pub window: i64,
    /// How long the first ban lasts.
    pub lasts: i64,
    /// How much longer each further one is.
    pub factor: f64,
    /// How long any lasts at most.
    pub max: i64,
}

/// Where a key stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ladder {
    window: Window,
    /// Bans in a row, as of the end of the last.
    level: u32,
    /// How long the last ban was, and when it ends.
    length: i64,
    ends: i64,
}

/// A ban is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LadderStep {
    /// Microseconds.
    pub lasts: i64,
    /// How often in a row, this time included.
    pub level: u32,
}

impl Ladder {
    /// A ladder on which this ban was given elsewhere.
    pub fn after(level: u32, length: i64, ends: i64) -> Self {
        Self { window: Window::default(), level, length, ends }
    }

    /// Counts denials that fell between `first` and `last`. What was denied before the last ban had ended has no weight
    /// any more. `jitter`: by what this ban's length is multiplied, in millionths.
    pub fn count(
        &mut self,
        (first, last, count): (i64, i64, u64),
        terms: &LadderTerms,
        jitter: u32,
        now: i64,
    ) -> Option<LadderStep> {
        if self.ends.saturating_sub(now) > self.length {
            // The clock was set back.
            *self = Self::default();
        }
        if first < self.ends || self.window.add(first, last, count, terms.window, now) < terms.limit {
            return None;
        }
        let level = self.level_at(now);
        let length = terms.lasts as f64 * terms.factor.powf(f64::from(level)) * f64::from(jitter) / 1e6;
        let lasts = length.min(terms.max as f64).max(1.0) as i64;
        let level = (level + 1).min(HIGHEST);
        *self = Self::after(level, lasts, now.saturating_add(lasts));
        Some(LadderStep { lasts, level })
    }

    /// Bans in a row as of now: one fewer for each length of the last one that has passed since its end.
    fn level_at(&self, now: i64) -> u32 {
        let passed = now.saturating_sub(self.ends).max(0) / self.length.max(1);
        self.level.saturating_sub(u32::try_from(passed).unwrap_or(u32::MAX))
    }

    /// When nothing of it is of any weight any more.
    pub fn expires(&self, window: i64) -> i64 {
        let decayed = self.length.saturating_mul(i64::from(self.level)).min(REMEMBERED);
        self.window.ends(window).max(self.ends.saturating_add(decayed))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000;
    const NOW: i64 = 1_783_080_001 * SECOND;
    const TERMS: LadderTerms =
        LadderTerms { limit: 3, window: 60 * SECOND, lasts: 10 * SECOND, factor: 2.0, max: 50 * SECOND };

    fn offense(ladder: &mut Ladder, at: i64, count: u64) -> Option<(i64, u32)> {
        let step = ladder.count((at, at, count), &TERMS, 1_000_000, at);
        step.map(|step| (step.lasts / SECOND, step.level))
    }

    #[test]
    fn each_ban_in_a_row_is_longer_up_to_the_most() {
        let (mut ladder, mut now) = (Ladder::default(), NOW);
        for (lasts, level) in [(10, 1), (20, 2), (40, 3), (50, 4), (50, 5)] {
            assert_eq!(offense(&mut ladder, now, 2), None);
            assert_eq!(offense(&mut ladder, now, 1), Some((lasts, level)));
            assert_eq!(offense(&mut ladder, now + 1, 99), None, "it is banned");
            now += lasts * SECOND;
        }
    }

    #[test]
    fn a_step_is_lost_for_each_length_of_the_last_ban_without_a_new_one() {
        let mut climbed = Ladder::default();
        for (at, level) in [(0, 1), (10, 2), (30, 3)] {
            assert_eq!(offense(&mut climbed, NOW + at * SECOND, 3).map(|(_, level)| level), Some(level));
        }
        // The third lasts 40 s, until second 70.
        for (at, level) in [(70, 4), (109, 4), (110, 3), (149, 3), (150, 2), (190, 1), (100_000, 1)] {
            let mut ladder = climbed;
            assert_eq!(
                offense(&mut ladder, NOW + at * SECOND, 3).map(|(_, level)| level),
                Some(level),
                "{at}"
            );
        }
        assert_eq!(climbed.expires(TERMS.window), NOW + 190 * SECOND);
    }

    #[test]
    fn a_clock_that_was_set_back_gives_no_endless_ban() {
        let mut ladder = Ladder::default();
        assert!(offense(&mut ladder, NOW, 3).is_some());
        assert_eq!(offense(&mut ladder, NOW - 1_000 * SECOND, 3), Some((10, 1)));
    }

    proptest! {
        #[test]
        fn no_length_leaves_its_bounds(
            lasts in SECOND..REMEMBERED,
            more in 0..REMEMBERED,
            factor in 1.0..1_000.0_f64,
            jitter in 500_000..1_500_000_u32,
            level in 0..HIGHEST,
        ) {
            let max = lasts.saturating_add(more).min(REMEMBERED);
            let terms = LadderTerms { limit: 1, window: SECOND, lasts, factor, max };
            let mut ladder = Ladder::after(level, SECOND, NOW);
            let step = ladder.count((NOW, NOW, 1), &terms, jitter, NOW).unwrap();
            prop_assert!(step.lasts <= max);
            prop_assert!(step.lasts >= (lasts as f64 * f64::from(jitter) / 1e6) as i64 - 1 || step.lasts == max);
            prop_assert_eq!(step.level, level + 1);
        }
    }
}
