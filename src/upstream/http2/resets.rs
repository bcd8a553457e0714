//! Streams that are reset before their end.
//!
//! When a client leaves, its stream is reset, so that the endpoint stops working for it. Endpoints count resets, and
//! close a connection that has many: nginx, Envoy, Netty and others defend themselves against floods this way
//! (CVE-2023-44487). All other requests on the connection would break off. So a connection has a budget of resets, and
//! further ones wait.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// Resets that a connection may have at once, and the time until it may have another. The h2 crate allows 20 resets of
/// requests that it has not looked at yet, Netty 200 in 30 seconds, Jetty 128 in one, Node 1,000 and then 33 a second.
const BURST: u32 = 16;
pub(super) const EVERY: Duration = Duration::from_millis(333);

/// Streams for each further reset. Envoy closes a connection once half of at least 500 streams were reset.
const STREAMS_A_RESET: u64 = 4;

/// The resets that a connection may still have.
#[derive(Debug)]
pub(super) struct ResetBudget {
    /// When the whole budget is available again.
    full_at: Cell<Instant>,
    resets: Cell<u64>,
}

impl ResetBudget {
    pub(super) fn new() -> Self {
        Self { full_at: Cell::new(Instant::now()), resets: Cell::new(0) }
    }

    /// Takes a reset from the budget of a connection with this many `opened` streams. False: none is left.
    pub(super) fn take(&self, opened: u64, now: Instant) -> bool {
        let full_at = self.full_at.get().max(now) + EVERY;
        let may =
            full_at - now <= EVERY * BURST && self.resets.get() < u64::from(BURST) + opened / STREAMS_A_RESET;
        if may {
            self.full_at.set(full_at);
            self.resets.set(self.resets.get() + 1);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_few_at_once_few_in_time_and_few_of_all_streams() {
        let (budget, start) = (ResetBudget::new(), Instant::now() + EVERY);
        let at_once = (0..1_000).filter(|_| budget.take(10_000, start)).count();
        assert_eq!(at_once, BURST as usize);
        let later = start + Duration::from_secs(3);
        let then = (0..1_000).filter(|_| budget.take(10_000, later)).count();
        assert!((8..=10).contains(&then), "{then}");
        let (budget, mut now, mut resets) = (ResetBudget::new(), start, 0);
        for opened in 1..2_000 {
            now += EVERY;
            resets += u64::from(budget.take(opened, now));
            assert!(opened < 500 || resets * 2 < opened, "{resets} of {opened}");
        }
        assert!(resets > 400, "{resets}");
    }
}
