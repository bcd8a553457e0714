//! The number of clients that are limited at a time, without a scan over all of them.

use std::collections::BTreeMap;

/// Microseconds.
const SECOND: i64 = 1_000_000;

/// Clients by the second in which the last of their limits ends.
#[derive(Debug, Default)]
pub(super) struct ActiveCounts(BTreeMap<i64, usize>);

impl ActiveCounts {
    /// Counts a client whose last limit ends at `until`, in microseconds since the Unix epoch.
    pub(super) fn add(&mut self, until: i64) {
        *self.0.entry(second(until)).or_default() += 1;
    }

    /// Removes a client.
    pub(super) fn remove(&mut self, until: i64) {
        if let Some(count) = self.0.get_mut(&second(until)) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&second(until));
            }
        }
    }

    /// The number of clients that are limited at `now`, to the second.
    pub(super) fn active_at(&self, now: i64) -> usize {
        self.0.range(second(now)..).map(|(_, count)| count).sum()
    }
}

/// Whether a client whose last limit ends at `until` counts as limited.
pub(super) fn is_active(until: i64, now: i64) -> bool {
    second(until) >= second(now)
}

/// The second that begins at `time` or next: a client whose limit ends at its start is not limited in it.
fn second(time: i64) -> i64 {
    time.saturating_add(SECOND - 1).div_euclid(SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_whose_limits_are_over_do_not_count() {
        let mut counts = ActiveCounts::default();
        for until in [i64::MIN, 0, 5 * SECOND, 5 * SECOND + 1, i64::MAX] {
            counts.add(until);
        }
        assert_eq!(
            [counts.active_at(0), counts.active_at(5 * SECOND + 1), counts.active_at(6 * SECOND + 1)],
            [4, 2, 1]
        );
        counts.remove(i64::MAX);
        counts.remove(5 * SECOND);
        counts.remove(7 * SECOND);
        assert_eq!([counts.active_at(0), counts.active_at(7 * SECOND)], [2, 0]);
        counts.remove(5 * SECOND + 1);
        counts.remove(0);
        counts.remove(i64::MIN);
        assert!(counts.0.is_empty());
    }
}
