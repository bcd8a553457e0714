//! The greatest number of the last 24 hours.

use smallvec::SmallVec;

/// Microseconds in an hour.
const HOUR: i64 = 3_600_000_000;
/// Hours that count: the current one, and those before it.
pub(super) const HOURS: i64 = 24;

/// The hour of a time in microseconds since the Unix epoch.
pub(super) fn hour(time: i64) -> i64 {
    time.div_euclid(HOUR)
}

/// The maximum of each hour, without those that a later hour exceeds. So hours ascend, numbers descend, and the first
/// number is the maximum of all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HourlyMax(SmallVec<[(u32, u32); 2]>);

impl HourlyMax {
    /// Adds a number. An hour before the latest counts as the latest: clocks of workers differ a little.
    pub(super) fn add(&mut self, hour: i64, number: u64) {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let hour = u32::try_from(hour).unwrap_or_default();
        let hour = self.0.last().map_or(hour, |&(last, _)| last.max(hour));
        while self.0.last().is_some_and(|&(_, less)| less <= number) {
            self.0.pop();
        }
        if self.0.last().is_none_or(|&(last, _)| last < hour) {
            self.0.push((hour, number));
        }
    }

    /// The maximum of the 24 hours that end with `now`. `None`: there was no number.
    pub(super) fn max(&self, now: i64) -> Option<u64> {
        self.0.iter().find(|&&(hour, _)| i64::from(hour) > now - HOURS).map(|&(_, number)| u64::from(number))
    }

    /// Forgets the hours that no longer count.
    pub(super) fn expire(&mut self, now: i64) {
        self.0.retain(|&mut (hour, _)| i64::from(hour) > now - HOURS);
        if !self.0.spilled() {
            return;
        }
        self.0.shrink_to_fit();
    }

    /// Whether no hour is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Numbers on the heap.
    pub(super) fn spilled(&self) -> usize {
        if self.0.spilled() { self.0.capacity() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_maximum_is_that_of_the_last_hours(
            numbers in prop::collection::vec((0_i64..80, 0_u64..50), 1..60),
            later in 0_i64..40,
        ) {
            let mut sorted = numbers;
            sorted.sort_by_key(|&(hour, _)| hour);
            let mut max = HourlyMax::default();
            for (at, &(hour, number)) in sorted.iter().enumerate() {
                max.add(hour, number);
                let now = hour + later;
                let counts = |&&(of, _): &&(i64, u64)| of > now - HOURS;
                let expected = sorted[..=at].iter().filter(counts).map(|&(_, number)| number).max();
                prop_assert_eq!(max.max(now), expected);
                let mut kept = max.clone();
                kept.expire(now);
                prop_assert_eq!(kept.max(now), expected);
                prop_assert_eq!(kept.is_empty(), expected.is_none());
            }
        }
    }

    #[test]
    fn a_falling_number_takes_an_entry_an_hour_at_most() {
        let mut max = HourlyMax::default();
        for hour in 0..100 {
            for repeat in 0..5 {
                max.add(hour, 1_000 - u64::try_from(hour).unwrap() - repeat);
            }
            max.expire(hour);
        }
        assert!(max.spilled() <= 64, "{}", max.spilled());
        assert_eq!(max.max(99), Some(924));
    }
}
