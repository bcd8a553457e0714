//! Limits the retries of an upstream's requests, so that they do not multiply the load on one that fails.
//!
//! `tower`'s `TpsBudget` was considered. It takes a lock and reads the clock for every request, though few are retried,
//! and it has one share for all, rounded to 1/n, whereas each route may have its own.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// How fast requests and retries are forgotten: after this time, a third of each still counts.
const MEMORY: Duration = Duration::from_secs(10);
/// Retries a second that are allowed besides the share, for upstreams with few requests.
const MINIMUM: f64 = 3.0;

/// The recent requests and retries of one worker to one upstream.
#[derive(Debug)]
pub struct RetryBudget {
    /// Requests since `faded`.
    new_requests: Cell<u64>,
    /// When the counts below were last updated.
    faded: Cell<Instant>,
    requests: Cell<f64>,
    retries: Cell<f64>,
}

impl RetryBudget {
    /// An unused budget.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            new_requests: Cell::new(0),
            faded: Cell::new(now),
            requests: Cell::new(0.0),
            retries: Cell::new(0.0),
        }
    }

    /// Counts a request. Called for each, so it is cheap.
    pub fn count_request(&self) {
        self.new_requests.set(self.new_requests.get() + 1);
    }

    /// Takes a retry, if no more than this `share` of all requests are retried. False: none is left.
    pub fn take(&self, share: f64, now: Instant) -> bool {
        self.fade(now);
        let retries = self.retries.get() + 1.0;
        let is_left = retries <= share * self.requests.get() + MINIMUM * MEMORY.as_secs_f64();
        if is_left {
            self.retries.set(retries);
        }
        is_left
    }

    fn fade(&self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.faded.get()).as_secs_f64() / MEMORY.as_secs_f64();
        let left = (-elapsed).exp();
        // New requests are taken to be evenly spread.
        let left_of_new = if elapsed > 0.0 { -(-elapsed).exp_m1() / elapsed } else { 1.0 };
        let new = self.new_requests.take() as f64;
        self.requests.set(self.requests.get() * left + new * left_of_new);
        self.retries.set(self.retries.get() * left);
        self.faded.set(self.faded.get().max(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The allowed retries if this many requests a second all fail for this many seconds.
    fn retries(budget: &RetryBudget, share: f64, start: Instant, requests: u32, seconds: u32) -> u32 {
        let mut retries = 0;
        for request in 0..requests * seconds {
            budget.count_request();
            let now = start + Duration::from_secs(1) * request / requests;
            retries += u32::from(budget.take(share, now));
        }
        retries
    }

    #[test]
    fn with_everything_down_a_share_and_the_minimum_are_retried() {
        let start = Instant::now();
        for (share, most) in [(0.2, 2_000 + 30 + 30), (0.0, 30 + 30), (1.0, 10_000)] {
            let found = retries(&RetryBudget::new(start), share, start, 1_000, 10);
            assert!((most * 9 / 10..=most).contains(&found), "{found} of {most}");
        }
    }

    #[test]
    fn few_requests_are_always_retried() {
        let start = Instant::now();
        assert_eq!(retries(&RetryBudget::new(start), 0.2, start, 3, 100), 300);
    }

    #[test]
    fn requests_of_long_ago_are_forgotten() {
        let start = Instant::now();
        let budget = RetryBudget::new(start);
        (0..1_000_000).for_each(|_| budget.count_request());
        let hour = start + Duration::from_secs(3_600);
        // 278 a second: 2,780 in ten seconds.
        let allowed = (0..10_000).take_while(|_| budget.take(0.2, hour)).count();
        assert!((560..=590).contains(&allowed), "{allowed}");
        let later = hour + Duration::from_secs(3_600);
        assert_eq!((0..1_000).take_while(|_| budget.take(0.2, later)).count(), 30);
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_is_no_harm() {
        let (start, before) = (Instant::now(), Instant::now());
        let budget = RetryBudget::new(start + Duration::from_secs(1));
        budget.count_request();
        assert!(budget.take(0.2, before) && budget.take(0.2, before));
    }
}
