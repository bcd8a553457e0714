//! Counters of the connections to a store that instances share. Each has one writer; any thread may read.

use std::time::Duration;

use super::{
    Counter,
    histogram::{BatchSize, Histogram, StoreTime},
};

/// Why a store was not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFailure {
    Timeout,
    /// Those before it took so long that it was not sent.
    Overdue,
    /// It could not be reached, or the connection broke.
    Connection,
    /// The breaker is open after too many failures.
    BreakerOpen,
    /// It is a replica.
    ReadOnly,
    /// It is starting, or busy.
    Loading,
    /// A node of a cluster that does not serve, since slots have no node at the moment.
    ClusterDown,
    OutOfMemory,
    /// The user or the password is wrong, or may not do what it takes.
    Rights,
    /// Its answer is malformed.
    Protocol,
}

impl StoreFailure {
    pub(super) const ALL: [(Self, &'static str); 10] = [
        (Self::Timeout, "timeout"),
        (Self::Overdue, "overdue"),
        (Self::Connection, "connection"),
        (Self::BreakerOpen, "breaker_open"),
        (Self::ReadOnly, "read_only"),
        (Self::Loading, "loading"),
        (Self::ClusterDown, "cluster_down"),
        (Self::OutOfMemory, "out_of_memory"),
        (Self::Rights, "rights"),
        (Self::Protocol, "protocol"),
    ];
}

/// The counters of one connection to the store.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct StoreMetrics {
    pub(super) latency: Histogram<StoreTime>,
    pub(super) batches: Histogram<BatchSize>,
    pub(super) failures: [Counter; StoreFailure::ALL.len()],
    pub(super) discarded: Counter,
}

impl StoreMetrics {
    /// A batch of `size` decisions was answered after `elapsed`; `discarded` states were found to lie in the
    /// future.
    pub fn answered(&self, size: usize, elapsed: Duration, discarded: u64) {
        self.latency.observe_time(elapsed);
        self.batches.observe(size as u64);
        self.discarded.add(discarded);
    }

    /// A batch was not answered.
    pub fn failed(&self, failure: StoreFailure) {
        self.failures[failure as usize].inc();
    }
}
