//! How fast a client reads, according to the kernel.

use std::time::{Duration, Instant};

use crate::proxy::RateBudget;

/// How fast a client reads a response whose writes block.
///
/// Successful writes alone do not show it: the kernel's buffer may have megabytes, and accepts no more until a third of
/// them is sent, which may take an hour for a client that is slow but fast enough. So the kernel is asked how much the
/// client has acknowledged; rarely, because only a client that seems too slow needs to be measured.
#[derive(Debug)]
pub(super) struct SlowReader {
    budget: RateBudget,
    /// Bytes that the client had acknowledged at the last measurement.
    acknowledged: u64,
    /// Bytes written since: the only measure if the kernel does not tell.
    written: u64,
    /// The beginning of the blocked time that the budget was not charged for yet.
    waits_since: Instant,
    /// When the client was last seen to read.
    progress: Instant,
}

impl SlowReader {
    pub(super) fn new(budget: RateBudget, acknowledged: u64, now: Instant) -> Self {
        Self { budget, acknowledged, written: 0, waits_since: now, progress: now }
    }

    /// When to measure again, or else to give the client up. True: because of its rate.
    pub(super) fn deadline(&self, idle_timeout: Duration) -> (Instant, bool) {
        let (idle, rate) = (self.progress + idle_timeout, self.waits_since + self.budget.left());
        (idle.min(rate), rate < idle)
    }

    /// Notes that a write is blocked from now on.
    pub(super) fn wait(&mut self, now: Instant) {
        self.waits_since = now;
        self.progress = now;
    }

    /// Adds bytes that were written.
    pub(super) fn wrote(&mut self, bytes: u64) {
        self.written += bytes;
    }

    pub(super) fn waited(&mut self, now: Instant) {
        self.budget.spend(now.saturating_duration_since(self.waits_since));
        self.waits_since = now;
    }

    pub(super) fn measure(&mut self, acknowledged: u64, now: Instant) {
        let taken = acknowledged.saturating_sub(self.acknowledged).max(self.written);
        self.waited(now);
        self.budget.earn(taken);
        if taken > 0 {
            self.progress = now;
        }
        self.acknowledged = acknowledged;
        self.written = 0;
    }
}
