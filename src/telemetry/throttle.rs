//! Limits log messages that clients or upstreams could cause thousands of times per second.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// Time between two messages of one kind.
const PAUSE: Duration = Duration::from_secs(1);

/// Passes one or some messages per second and counts the others, because logging each would cost more than handling the
/// event. Used by one thread.
#[derive(Debug, Default)]
pub struct Throttle {
    /// Messages besides the first of each second.
    more: u32,
    until: Cell<Option<Instant>>,
    passed: Cell<u32>,
    held_back: Cell<u64>,
}

impl Throttle {
    /// Passes this many messages per second, at least one.
    pub fn of(messages: u32) -> Self {
        Self { more: messages.saturating_sub(1), ..Self::default() }
    }

    /// The number of messages suppressed since the last one; `None` if this one is to be suppressed, too.
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
