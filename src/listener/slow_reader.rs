//! How a client takes what was written to it, as far as the kernel tells.

use std::time::{Duration, Instant};

use crate::proxy::RateBudget;

/// How a client takes a response whose writes block.
///
/// Writes alone do not tell: the kernel's buffer may hold megabytes, and takes no more until it has sent a third of them,
/// which a client that is slow and yet fast enough may need an hour for. So the kernel is asked what the client has
/// acknowledged; seldom, because only a client that seems to be too slow needs to be measured.
#[derive(Debug)]
pub(super) struct SlowReader {
    budget: RateBudget,
    /// Bytes that the client had acknowledged when it was last measured.
    acknowledged: u64,
    /// Bytes that were written since: all that is known where the kernel does not tell.
    written: u64,
    /// Since when a write is blocked and the budget does not know of it.
    waits_since: Instant,
    /// When the client was last seen to read.
    progress: Instant,
}

impl SlowReader {
    pub(super) fn new(budget: RateBudget, acknowledged: u64, now: Instant) -> Self {
        Self { budget, acknowledged, written: 0, waits_since: now, progress: now }
    }

    /// When to measure, or else to give the client up; true: because of its rate.
    pub(super) fn deadline(&self, idle_timeout: Duration) -> (Instant, bool) {
        let (idle, rate) = (self.progress + idle_timeout, self.waits_since + self.budget.left());
        (idle.min(rate), rate < idle)
    }

    /// A write is blocked from now on.
    pub(super) fn wait(&mut self, now: Instant) {
        self.waits_since = now;
        self.progress = now;
    }

    /// So much was written.
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
