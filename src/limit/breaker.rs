//! The circuit breaker: stops calls to a store that fails.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Closed while the store works. Opens after a number of consecutive failures; then requests no longer wait for the
/// store. A successful probe closes it again. Shared by all workers.
#[derive(Debug)]
pub struct CircuitBreaker {
    /// Consecutive failures that open it.
    limit: u32,
    failures: AtomicU32,
    open: AtomicBool,
}

impl CircuitBreaker {
    /// A closed breaker that opens after `limit` failures in a row.
    pub fn new(limit: u32) -> Self {
        Self { limit, failures: AtomicU32::new(0), open: AtomicBool::new(false) }
    }

    /// Whether requests must not call the store.
    pub fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    /// Records that the store replied to a request that was sent while the breaker was closed.
    pub fn succeeded(&self) {
        // Write only if necessary: a cache line that is only read stays in every core's cache.
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
    }

    /// Records a failure of the store. Returns true for the failure that opens the breaker.
    pub fn failed(&self) -> bool {
        let failures = self.failures.fetch_add(1, Relaxed).saturating_add(1);
        failures >= self.limit && !self.open.swap(true, Relaxed)
    }

    /// Records a successful probe. Returns true if the breaker was open.
    pub fn close(&self) -> bool {
        self.failures.store(0, Relaxed);
        self.open.swap(false, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_so_many_failures_in_a_row_and_says_so_once() {
        let breaker = CircuitBreaker::new(3);
        assert_eq!([breaker.failed(), breaker.failed()], [false, false]);
        breaker.succeeded();
        assert_eq!([breaker.failed(), breaker.failed()], [false, false]);
        assert!(!breaker.is_open());
        assert_eq!([breaker.failed(), breaker.failed()], [true, false]);
        assert!(breaker.is_open());
        breaker.succeeded();
        assert!(breaker.is_open(), "a late answer is no probe");
        assert_eq!([breaker.close(), breaker.close()], [true, false]);
        assert!(!breaker.is_open());
    }
}
