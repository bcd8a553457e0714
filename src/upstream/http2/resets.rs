//! Streams that end before their time.
//!
//! A client that goes away has its stream reset, so that the endpoint stops to work for it. Endpoints count resets, and close a
//! connection that has many of them: nginx, Envoy, Netty and others defend themselves so against floods (CVE-2023-44487). All
//! other requests on it would break off. So a connection has a budget, and what is beyond waits.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// Resets that a connection has at once, and how long it takes until it has another. The h2 crate allows 20 of requests that it has
/// not looked at yet, Netty 200 in 30 seconds, Jetty 128 in one, Node 1,000 and then 33 a second.
const BURST: u32 = 16;
pub(super) const EVERY: Duration = Duration::from_millis(333);

/// So many streams allow for another reset. Envoy closes a connection once half of at least 500 were reset.
const STREAMS_A_RESET: u64 = 4;

/// The resets that a connection may still have.
#[derive(Debug)]
pub(super) struct ResetBudget {
    /// When all of them are there again.
    full_at: Cell<Instant>,
    resets: Cell<u64>,
}

impl ResetBudget {
    /// That of a connection that begins.
    pub(super) fn new() -> Self {
        Self { full_at: Cell::new(Instant::now()), resets: Cell::new(0) }
    }

    /// Takes one, where there is one for a connection of which so many streams were opened.
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
