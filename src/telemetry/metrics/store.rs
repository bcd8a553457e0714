//! Counters of the connections to the shared store. Each has one writer; any thread may read.

use std::time::Duration;

use tollgate_derive::Label;

use super::{
    Counter,
    histogram::{BatchSize, Histogram, StoreTime},
};

/// Why a batch failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
pub enum StoreFailure {
    Timeout,
    /// Not sent in time, because earlier batches took too long.
    Overdue,
    /// Connecting failed, or the connection was lost.
    Connection,
    /// The circuit breaker is open after too many failures.
    BreakerOpen,
    /// The server is a replica.
    ReadOnly,
    /// The server is starting or busy.
    Loading,
    /// The cluster does not serve requests, because some slots have no node.
    ClusterDown,
    OutOfMemory,
    /// Wrong credentials, or missing permissions (ACL).
    Rights,
    /// The reply is malformed.
    Protocol,
}

/// The counters of one connection to the store.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct StoreMetrics {
    pub(super) latency: Histogram<StoreTime>,
    pub(super) batches: Histogram<BatchSize>,
    pub(super) failures: [Counter; StoreFailure::ALL.len()],
    pub(super) discarded: Counter,
    /// Limits whose values in Redis can't be ours.
    pub spoilt: Counter,
}

impl StoreMetrics {
    /// Counts a batch of `size` decisions whose reply took `elapsed`. `discarded`: states dropped because they were in
    /// the future.
    pub fn replied(&self, size: usize, elapsed: Duration, discarded: u64) {
        self.latency.observe_time(elapsed);
        self.batches.observe(size as u64);
        self.discarded.add(discarded);
    }

    /// Counts a batch without a usable reply.
    pub fn failed(&self, failure: StoreFailure) {
        self.failures[failure as usize].inc();
    }
}
