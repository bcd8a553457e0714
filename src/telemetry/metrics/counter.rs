//! Counters and gauges with one writer and any number of readers.
//!
//! The writer loads, adds and stores: two plain moves, where `fetch_add` would lock the cache line at
//! every request. A second writer would lose counts, hence one set a worker.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Only ever grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// What was counted.
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Goes up and down, never below 0.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// One more.
    pub fn inc(&self) {
        self.set(self.value().saturating_add(1));
    }

    /// One less.
    pub fn dec(&self) {
        self.set(self.value().saturating_sub(1));
    }

    /// `n` more.
    pub fn add(&self, n: u64) {
        self.set(self.value().saturating_add(n));
    }

    /// `n` less.
    pub fn sub(&self, n: u64) {
        self.set(self.value().saturating_sub(n));
    }

    /// Exactly `value`.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// As it stands.
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
