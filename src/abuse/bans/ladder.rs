//! The ladder of bans of one key under one rule. Pure: times in, bans out. `lua/offense.lua` does the same.

use super::window::DenialWindow;

/// The highest level of a ban.
const MAX_LEVEL: u32 = 1_000_000;
/// The longest time that a level is remembered, in microseconds: 366 days.
const MAX_MEMORY: i64 = 366 * 86_400 * 1_000_000;

/// The terms of a rule. Times are microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LadderTerms {
    /// Denials within the window after which a key is banned.
    pub limit: u64,
    pub window: i64,
    /// Duration of the first ban.
    pub first_duration: i64,
    /// Factor by which each further ban in a row is longer.
    pub factor: f64,
    /// Maximum duration of a ban.
    pub max_duration: i64,
}

/// The state of a key under one rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ladder {
    window: DenialWindow,
    /// Bans in a row, as of the end of the last.
    level: u32,
    /// The duration of the last ban, and its end.
    duration: i64,
    until: i64,
}

/// A ban to be issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LadderStep {
    /// Microseconds.
    pub duration: i64,
    /// How often in a row the key is banned, including this ban.
    pub level: u32,
}

impl Ladder {
    /// The ladder of a key whose last ban is this one.
    pub fn from_ban(level: u32, duration: i64, until: i64) -> Self {
        Self { window: DenialWindow::default(), level, duration, until }
    }

    /// Counts denials between `first` and `last`, unless they are before the end of the last ban. `jitter`: the
    /// factor of a ban's duration, in millionths.
    pub fn count(
        &mut self,
        (first, last, count): (i64, i64, u64),
        terms: &LadderTerms,
        jitter: u32,
        now: i64,
    ) -> Option<LadderStep> {
        if self.until.saturating_sub(now) > self.duration {
            // The clock was set back.
            *self = Self::default();
        }
        if first < self.until || self.window.add(first, last, count, terms.window, now) < terms.limit {
            return None;
        }
        let level = self.level_at(now);
        let duration =
            terms.first_duration as f64 * terms.factor.powf(f64::from(level)) * f64::from(jitter) / 1e6;
        let duration = duration.min(terms.max_duration as f64).max(1.0) as i64;
        let level = (level + 1).min(MAX_LEVEL);
        *self = Self::from_ban(level, duration, now.saturating_add(duration));
        Some(LadderStep { duration, level })
    }

    /// Bans in a row at `now`: one fewer each time that the duration of the last ban has passed since its end.
    fn level_at(&self, now: i64) -> u32 {
        let passed = now.saturating_sub(self.until).max(0) / self.duration.max(1);
        self.level.saturating_sub(u32::try_from(passed).unwrap_or(u32::MAX))
    }

    /// When the ladder no longer makes a difference.
    pub fn expires(&self, window: i64) -> i64 {
        let decayed = self.duration.saturating_mul(i64::from(self.level)).min(MAX_MEMORY);
        self.window.expires(window).max(self.until.saturating_add(decayed))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000;
    const NOW: i64 = 1_783_080_001 * SECOND;
    const TERMS: LadderTerms = LadderTerms {
        limit: 3,
        window: 60 * SECOND,
        first_duration: 10 * SECOND,
        factor: 2.0,
        max_duration: 50 * SECOND,
    };

    fn offense(ladder: &mut Ladder, at: i64, count: u64) -> Option<(i64, u32)> {
        let step = ladder.count((at, at, count), &TERMS, 1_000_000, at);
        step.map(|step| (step.duration / SECOND, step.level))
    }

    #[test]
    fn each_ban_in_a_row_is_longer_up_to_the_most() {
        let (mut ladder, mut now) = (Ladder::default(), NOW);
        for (duration, level) in [(10, 1), (20, 2), (40, 3), (50, 4), (50, 5)] {
            assert_eq!(offense(&mut ladder, now, 2), None);
            assert_eq!(offense(&mut ladder, now, 1), Some((duration, level)));
            assert_eq!(offense(&mut ladder, now + 1, 99), None, "it is banned");
            now += duration * SECOND;
        }
    }

    #[test]
    fn a_level_is_lost_each_time_the_last_bans_duration_passes_without_a_new_one() {
        let mut climbed = Ladder::default();
        for (at, level) in [(0, 1), (10, 2), (30, 3)] {
            assert_eq!(offense(&mut climbed, NOW + at * SECOND, 3).map(|(_, level)| level), Some(level));
        }
        // The third ban lasts 40 s, until second 70.
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
        fn no_duration_leaves_its_bounds(
            first_duration in SECOND..MAX_MEMORY,
            more in 0..MAX_MEMORY,
            factor in 1.0..1_000.0_f64,
            jitter in 500_000..1_500_000_u32,
            level in 0..MAX_LEVEL,
        ) {
            let max_duration = first_duration.saturating_add(more).min(MAX_MEMORY);
            let terms =
                LadderTerms { limit: 1, window: SECOND, first_duration, factor, max_duration };
            let mut ladder = Ladder::from_ban(level, SECOND, NOW);
            let step = ladder.count((NOW, NOW, 1), &terms, jitter, NOW).unwrap();
            prop_assert!(step.duration <= max_duration);
            prop_assert!(step.duration >= (first_duration as f64 * f64::from(jitter) / 1e6) as i64 - 1 || step.duration == max_duration);
            prop_assert_eq!(step.level, level + 1);
        }
    }
}
