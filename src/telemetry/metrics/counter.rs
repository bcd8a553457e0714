//! Counters and gauges with one writer and any number of readers.
//!
//! The writer loads, adds and stores: two plain moves, where `fetch_add` would lock the cache line at each request.
//! A second writer would lose counts, so each worker has its own set.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn inc(&self) {
        self.add(1);
    }

    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that goes up and down, never below 0.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    pub fn inc(&self) {
        self.set(self.value().saturating_add(1));
    }

    pub fn dec(&self) {
        self.set(self.value().saturating_sub(1));
    }

    pub fn add(&self, n: u64) {
        self.set(self.value().saturating_add(n));
    }

    pub fn sub(&self, n: u64) {
        self.set(self.value().saturating_sub(n));
    }

    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_stops_at_zero() {
        let gauge = Gauge::default();
        gauge.inc();
        gauge.dec();
        gauge.dec();
        assert_eq!(gauge.value(), 0);
    }

    #[test]
    fn a_counter_adds() {
        let counter = Counter::default();
        counter.inc();
        counter.add(4);
        assert_eq!(counter.value(), 5);
    }
}
