//! Slots for connections: a new connection always gets one.
//!
//! If all are taken, a connection is evicted: the oldest unauthenticated one, or if there is none, the oldest of all.
//! So a client without the token cannot lock others out, even with many slow connections. A connection is authenticated
//! once one of its requests was authorized.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// Connections in the order of their arrival, with a handle to evict each.
type Queue = BTreeMap<u64, Arc<Notify>>;

/// All slots.
#[derive(Debug, Clone)]
pub(super) struct ConnectionSlots(Arc<SlotTable>);

#[derive(Debug)]
struct SlotTable {
    capacity: usize,
    queues: Mutex<Queues>,
    /// Slots taken, including slots of evicted connections that have not ended yet.
    taken: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Queues {
    next: u64,
    /// Connections without an authorized request yet.
    unauthenticated: Queue,
    authenticated: Queue,
}

/// A slot, released when dropped.
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

    /// A slot. If none is left, another connection is evicted.
    pub(super) fn acquire(&self) -> Arc<ConnectionSlot> {
        let evict = Arc::new(Notify::new());
        let mut queues = self.0.queues.lock();
        if queues.unauthenticated.len() + queues.authenticated.len() >= self.0.capacity {
            let Queues { unauthenticated, authenticated, .. } = &mut *queues;
            if let Some((_, evicted)) = unauthenticated.pop_first().or_else(|| authenticated.pop_first()) {
                evicted.notify_one();
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

    /// Completes once every slot has been released.
    pub(super) async fn all_released(&self) {
        let mut taken = self.0.taken.subscribe();
        // The sender is part of `self`, so this does not fail.
        let _released = taken.wait_for(|&taken| taken == 0).await;
    }
}

impl ConnectionSlot {
    /// A request of this connection was authorized, so unauthenticated ones are evicted before it.
    pub(super) fn mark_authenticated(&self) {
        if self.is_authenticated.swap(true, Relaxed) {
            return;
        }
        let mut queues = self.table.queues.lock();
        // An evicted connection is in neither queue.
        if let Some(evict) = queues.unauthenticated.remove(&self.number) {
            queues.authenticated.insert(self.number, evict);
        }
    }

    /// Completes once the slot is needed for another connection.
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

    fn is_evicted(slot: &ConnectionSlot) -> bool {
        slot.evicted().now_or_never().is_some()
    }

    #[test]
    fn authenticated_connections_are_evicted_last() {
        let slots = ConnectionSlots::new(3);
        let (operator, oldest_unknown, other) = (slots.acquire(), slots.acquire(), slots.acquire());
        operator.mark_authenticated();
        let newcomer = slots.acquire();
        assert!(is_evicted(&oldest_unknown) && !is_evicted(&operator) && !is_evicted(&other));
        oldest_unknown.mark_authenticated();
        drop(oldest_unknown);
        newcomer.mark_authenticated();
        other.mark_authenticated();
        let last = slots.acquire();
        assert!(is_evicted(&operator), "if all are authenticated, the oldest is evicted");
        assert!(!is_evicted(&newcomer) && !is_evicted(&other) && !is_evicted(&last));
    }

    #[test]
    fn slots_are_released() {
        let slots = ConnectionSlots::new(1);
        let first = slots.acquire();
        assert!(slots.all_released().now_or_never().is_none());
        drop(first);
        let second = slots.acquire();
        assert!(!is_evicted(&second), "the first slot was released already");
        drop(second);
        assert!(slots.all_released().now_or_never().is_some());
    }
}
