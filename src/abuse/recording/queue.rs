//! The queue between the workers and the collector, bounded in ticks and in bytes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::Duration,
};

use super::denial::TickDenials;

/// Number of ticks that may wait to be merged.
const TICKS: usize = 64;

/// The number of bytes that wait to be merged.
#[derive(Debug, Default)]
pub(in crate::abuse) struct QueuedBytes {
    held: AtomicUsize,
    max: AtomicUsize,
}

impl QueuedBytes {
    pub(in crate::abuse) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    pub(in crate::abuse) fn set_max(&self, max: usize) {
        self.max.store(max, Relaxed);
    }
}

/// The worker's end of the queue.
#[derive(Debug, Clone)]
pub(in crate::abuse) struct TickSender {
    queue: SyncSender<(TickDenials, usize)>,
    bytes: Arc<QueuedBytes>,
}

/// The collector's end of the queue.
#[derive(Debug)]
pub(in crate::abuse) struct TickReceiver {
    queue: Receiver<(TickDenials, usize)>,
    bytes: Arc<QueuedBytes>,
}

/// An empty queue, whose content is counted in `bytes`.
pub(in crate::abuse) fn tick_queue(bytes: Arc<QueuedBytes>) -> (TickSender, TickReceiver) {
    let (sender, receiver) = sync_channel(TICKS);
    (TickSender { queue: sender, bytes: Arc::clone(&bytes) }, TickReceiver { queue: receiver, bytes })
}

impl TickSender {
    /// Hands a tick over, without waiting. False if there is no room; an empty queue always has room for one.
    pub(in crate::abuse) fn try_send(&self, tick: TickDenials) -> bool {
        let bytes = tick.bytes();
        let before = self.bytes.held.fetch_add(bytes, Relaxed);
        let fits = before == 0 || before.saturating_add(bytes) <= self.bytes.max.load(Relaxed);
        let is_sent = fits && self.queue.try_send((tick, bytes)).is_ok();
        if !is_sent {
            self.bytes.held.fetch_sub(bytes, Relaxed);
        }
        is_sent
    }
}

impl TickReceiver {
    /// Passes the next tick to `merge`, and counts it until it is merged.
    ///
    /// # Errors
    /// None was received in time, or all senders are gone.
    pub(in crate::abuse) fn receive(
        &self,
        timeout: Duration,
        merge: impl FnOnce(TickDenials),
    ) -> Result<(), RecvTimeoutError> {
        let (tick, bytes) = self.queue.recv_timeout(timeout)?;
        merge(tick);
        self.bytes.held.fetch_sub(bytes, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
impl TickReceiver {
    /// The tick that waits longest, if there is one.
    pub(in crate::abuse) fn try_recv(&self) -> Option<TickDenials> {
        let (tick, bytes) = self.queue.try_recv().ok()?;
        self.bytes.held.fetch_sub(bytes, Relaxed);
        Some(tick)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::testing::{batch, entry, tally_of},
        *,
    };

    #[test]
    fn a_queue_that_is_full_in_bytes_takes_no_more_until_a_tick_is_merged() {
        let tick = || batch("203.0.113.7", tally_of(&[entry(1, "acme"), entry(2, "bob")], 3));
        let bytes = Arc::new(QueuedBytes::default());
        let (sender, receiver) = tick_queue(Arc::clone(&bytes));
        assert!(sender.try_send(tick()), "the first fits into any queue");
        assert!(!sender.try_send(tick()));
        let one = bytes.held();
        assert!(one > 200, "{one}");
        bytes.set_max(one * 3);
        assert!(sender.try_send(tick()) && sender.try_send(tick()) && !sender.try_send(tick()));
        assert_eq!(bytes.held(), one * 3);
        receiver.receive(Duration::ZERO, |_| assert_eq!(bytes.held(), one * 3)).unwrap();
        assert_eq!(bytes.held(), one * 2);
        assert!(sender.try_send(tick()));
    }
}
