//! Early hints on their way from a request's upstream to its client.
//!
//! hyper sends a client nothing before the head of the response. So hints are queued here, and the client's stream
//! writes them when hyper flushes it: then hyper has handed over all of its bytes, and since the response has not
//! begun, these are whole messages.

use std::task::Waker;

use parking_lot::Mutex;

/// Bytes of hints that wait for their client. More are dropped, which is safe: a response does not depend on hints.
const MAX_QUEUED: usize = 16 << 10;

/// The hints of one request that were received but not sent to the client yet.
#[derive(Debug)]
pub(in crate::proxy) struct QueuedHints {
    /// Whole heads, one after another.
    queued: Mutex<Vec<u8>>,
    /// Wakes the client's connection.
    connection: Option<Waker>,
}

impl QueuedHints {
    /// `connection` wakes the client's connection, which writes the hints.
    pub(in crate::proxy) fn new(connection: Option<Waker>) -> Self {
        Self { queued: Mutex::default(), connection }
    }

    /// Queues a whole head.
    pub(in crate::proxy) fn push(&self, head: &[u8]) {
        let mut queued = self.queued.lock();
        if queued.len() + head.len() <= MAX_QUEUED {
            queued.extend_from_slice(head);
            drop(queued);
            self.connection.iter().for_each(Waker::wake_by_ref);
        }
    }

    pub(in crate::proxy) fn is_empty(&self) -> bool {
        self.queued.lock().is_empty()
    }

    /// Takes the heads that were queued since the last call.
    pub(super) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.queued.lock())
    }
}
