//! Writes the requests of a worker that are ready in the same turn, one after the other.

use std::{cell::RefCell, rc::Rc};

use tokio::{
    sync::Notify,
    task::{AbortHandle, yield_now},
};

/// So few that reads and writes of TLS fit into the turns that tokio gives a task at once, which are 128.
const FLUSHED_AT_ONCE: usize = 16;

/// The connections of one worker with bytes to write.
pub(in crate::upstream) struct Flusher {
    queue: Rc<FlushQueue>,
    task: AbortHandle,
}

#[derive(Default)]
struct FlushQueue {
    waiting: RefCell<Vec<Rc<dyn Flush>>>,
    has_any: Notify,
}

/// A connection with bytes to write.
pub(super) trait Flush {
    /// Writes as much as the socket takes at once.
    fn flush(&self);
}

impl Flusher {
    /// Starts its task, on the worker's thread.
    pub(in crate::upstream) fn start() -> Self {
        let queue = Rc::<FlushQueue>::default();
        let task = tokio::task::spawn_local(flush_each_turn(Rc::clone(&queue)));
        Self { queue, task: task.abort_handle() }
    }

    /// Writes the bytes of `connection` once the other tasks that are ready now have run.
    pub(super) fn flush_soon(&self, connection: Rc<dyn Flush>) {
        let mut waiting = self.queue.waiting.borrow_mut();
        if waiting.is_empty() {
            self.queue.has_any.notify_one();
        }
        waiting.push(connection);
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn flush_each_turn(queue: Rc<FlushQueue>) {
    let mut turn = Vec::new();
    loop {
        queue.has_any.notified().await;
        std::mem::swap(&mut turn, &mut *queue.waiting.borrow_mut());
        for (index, connection) in turn.drain(..).enumerate() {
            if index % FLUSHED_AT_ONCE == FLUSHED_AT_ONCE - 1 {
                yield_now().await;
            }
            connection.flush();
        }
    }
}
