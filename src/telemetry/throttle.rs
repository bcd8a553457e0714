//! Limits log messages that clients or upstreams could cause thousands of times a second.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// Between two messages of one kind.
const PAUSE: Duration = Duration::from_secs(1);

/// Lets one message a second through, or some, and counts the others: writing each down would cost more than
/// what it is about. Belongs to one thread.
#[derive(Debug, Default)]
pub struct Throttle {
    /// Besides the first of each second.
    more: u32,
    until: Cell<Option<Instant>>,
    passed: Cell<u32>,
    held_back: Cell<u64>,
}

impl Throttle {
    /// One that lets so many messages through in a second, and one at least.
    pub fn of(messages: u32) -> Self {
        Self { more: messages.saturating_sub(1), ..Self::default() }
    }

    /// Whether to write a message now, and if so, how many were held back since the last one.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        if self.until.get().is_none_or(|until| now >= until) {
            self.until.set(Some(now + PAUSE));
            self.passed.set(0);
        } else if self.passed.get() < self.more {
            self.passed.set(self.passed.get() + 1);
        } else {
            self.held_back.set(self.held_back.get() + 1);
            return None;
        }
        Some(self.held_back.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_passes_with_the_count_of_the_others() {
        let throttle = Throttle::default();
        let start = Instant::now();
        let passed: Vec<_> =
            (0..25).map(|tenths| throttle.pass(start + Duration::from_millis(tenths * 100))).collect();
        let counts: Vec<_> = passed.into_iter().flatten().collect();
        assert_eq!(counts, [0, 9, 9]);
    }

    #[test]
    fn several_a_second_pass_where_several_may() {
        let throttle = Throttle::of(3);
        let start = Instant::now();
        let passed: Vec<_> =
            (0..12).map(|tenths| throttle.pass(start + Duration::from_millis(tenths * 100))).collect();
        let counts: Vec<_> = passed.into_iter().flatten().collect();
        assert_eq!(counts, [0, 0, 0, 7, 0]);
    }
}
