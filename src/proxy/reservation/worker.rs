//! A worker's state for the reservations of its requests.

use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use tokio::sync::Notify;

use crate::limit::algorithm::Member;

/// How long a worker waits for its reservations once its last request has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Counts the reservations of a worker that are not released yet.
#[derive(Debug, Default)]
pub struct PendingReservations {
    count: Cell<usize>,
    ended: Notify,
    is_draining: Cell<bool>,
    drain: Notify,
}

impl PendingReservations {
    /// Ready once all are released, or after a second, when it is too late for that.
    pub async fn drained(&self) {
        self.is_draining.set(true);
        self.drain.notify_waiters();
        let drained = async {
            while self.count.get() > 0 {
                self.ended.notified().await;
            }
        };
        if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
            tracing::warn!(
                requests = self.count.get(),
                "leases of concurrency can't be released, because the store is unavailable: they expire instead"
            );
        }
    }

    /// Ready once the worker waits for its reservations: from then on, upstreams can't be waited for any longer.
    pub(in crate::proxy) async fn draining(&self) {
        let draining = self.drain.notified();
        if !self.is_draining.get() {
            draining.await;
        }
    }

    /// Whether any is not released yet.
    pub(in crate::proxy) fn are_pending(&self) -> bool {
        self.count.get() > 0
    }

    /// Counts one more until the guard is dropped.
    pub(super) fn begin(&self) -> PendingGuard<'_> {
        self.count.set(self.count.get() + 1);
        PendingGuard(self)
    }
}

/// Counts one reservation until dropped.
pub(super) struct PendingGuard<'a>(&'a PendingReservations);

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get().saturating_sub(1));
        self.0.ended.notify_one();
    }
}

/// Draws the tokens of one worker's leases: unique over all requests of all instances.
#[derive(Debug)]
pub struct LeaseTokens {
    /// Distinguishes this worker from all others; from the system's random numbers.
    worker: u64,
    drawn: Cell<u64>,
}

impl LeaseTokens {
    /// The tokens of one more worker.
    pub(crate) fn new() -> Self {
        // The keys of a hasher are the only random numbers of the standard library.
        Self { worker: RandomState::new().hash_one(()), drawn: Cell::new(0) }
    }

    /// A new token.
    pub fn draw(&self) -> Member {
        self.drawn.set(self.drawn.get().wrapping_add(1));
        Member::from(self.worker) << 64 | Member::from(self.drawn.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_tokens_are_the_same() {
        let (one, other) = (LeaseTokens::new(), LeaseTokens::new());
        let drawn = [one.draw(), one.draw(), other.draw(), other.draw()];
        let different: std::collections::HashSet<_> = drawn.into_iter().collect();
        assert_eq!(different.len(), 4);
    }
}
