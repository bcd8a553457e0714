//! Limits log messages that clients or upstreams could cause thousands of times a second.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// Between two messages of one kind.
const PAUSE: Duration = Duration::from_secs(1);

/// Lets one message a second through and counts the others: writing each down would cost more than
/// what it is about. Belongs to one thread.
#[derive(Debug, Default)]
pub struct Throttle {
    until: Cell<Option<Instant>>,
    held_back: Cell<u64>,
}

impl Throttle {
    /// Whether to write a message now, and if so, how many were held back since the last one.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        if self.until.get().is_some_and(|until| now < until) {
            self.held_back.set(self.held_back.get() + 1);
            return None;
        }
        self.until.set(Some(now + PAUSE));
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
}
