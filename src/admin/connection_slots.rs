//! Slots for connections: a new connection always gets one.
//!
//! Where all are taken, a connection goes that nobody was let in by, the oldest first; only where there is none, the oldest
//! of all. So whoever may not ask can't keep out those who may, however many connections he opens and however slow he is.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// Connections in the order in which they came, and how to tell each that it is evicted.
type Queue = BTreeMap<u64, Arc<Notify>>;

/// All slots.
#[derive(Debug, Clone)]
pub(super) struct ConnectionSlots(Arc<SlotTable>);

#[derive(Debug)]
struct SlotTable {
    capacity: usize,
    queues: Mutex<Queues>,
    /// How many are taken.
    taken: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Queues {
    next: u64,
    /// By whom nobody was let in yet.
    unauthenticated: Queue,
    authenticated: Queue,
}

/// A slot, given back when dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    table: Arc<SlotTable>,
    number: u64,
    is_authenticated: AtomicBool,
    evict: Arc<Notify>,
}

impl ConnectionSlots {
    pub(super) fn new(capacity: usize) -> Self {
        Self(Arc::new(SlotTable { capacity, queues: Mutex::default(), taken: watch::Sender::new(0) }))
    }

    /// A slot. If there was none left, another connection is told to evict.
    pub(super) fn acquire(&self) -> Arc<ConnectionSlot> {
        let evict = Arc::new(Notify::new());
        let mut queues = self.0.queues.lock();
        if queues.unauthenticated.len() + queues.authenticated.len() >= self.0.capacity {
            let Queues { unauthenticated, authenticated, .. } = &mut *queues;
            if let Some((_, gone)) = unauthenticated.pop_first().or_else(|| authenticated.pop_first()) {
                gone.notify_one();
            }
        }
        let number = queues.next;
        queues.next += 1;
        queues.unauthenticated.insert(number, Arc::clone(&evict));
        drop(queues);
        self.0.taken.send_modify(|taken| *taken += 1);
        Arc::new(ConnectionSlot {
            table: Arc::clone(&self.0),
            number,
            is_authenticated: AtomicBool::new(false),
            evict,
        })
    }

    /// Ready once every slot was given back.
    pub(super) async fn all_released(&self) {
        let mut taken = self.0.taken.subscribe();
        // The sender lives as long as this does.
        let _free = taken.wait_for(|&taken| taken == 0).await;
    }
}

impl ConnectionSlot {
    /// Somebody was let in by this connection: it goes after all others.
    pub(super) fn mark_authenticated(&self) {
        if self.is_authenticated.swap(true, Relaxed) {
            return;
        }
        let mut queues = self.table.queues.lock();
        // One that was told to evict is in neither line.
        if let Some(evict) = queues.unauthenticated.remove(&self.number) {
            queues.authenticated.insert(self.number, evict);
        }
    }

    /// Ready once another needs the slot.
    pub(super) async fn evicted(&self) {
        self.evict.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut queues = self.table.queues.lock();
        queues.unauthenticated.remove(&self.number);
        queues.authenticated.remove(&self.number);
        drop(queues);
        self.table.taken.send_modify(|taken| *taken -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn goes(slot: &ConnectionSlot) -> bool {
        slot.evicted().now_or_never().is_some()
    }

    #[test]
    fn whoever_was_let_in_goes_last() {
        let slots = ConnectionSlots::new(3);
        let (operator, stranger, other) = (slots.acquire(), slots.acquire(), slots.acquire());
        operator.mark_authenticated();
        let newcomer = slots.acquire();
        assert!(goes(&stranger) && !goes(&operator) && !goes(&other));
        stranger.mark_authenticated();
        drop(stranger);
        newcomer.mark_authenticated();
        other.mark_authenticated();
        let last = slots.acquire();
        assert!(goes(&operator), "where all were let in, the oldest goes");
        assert!(!goes(&newcomer) && !goes(&other) && !goes(&last));
    }

    #[test]
    fn places_are_given_back() {
        let slots = ConnectionSlots::new(1);
        let first = slots.acquire();
        assert!(slots.all_released().now_or_never().is_none());
        drop(first);
        let second = slots.acquire();
        assert!(!goes(&second), "the first had gone by itself");
        drop(second);
        assert!(slots.all_released().now_or_never().is_some());
    }
}
