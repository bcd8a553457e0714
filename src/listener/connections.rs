//! The client connections that are open: limited in the whole process, and registered in their worker.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use slab::Slab;
use tokio::{sync::Notify, task::AbortHandle};

use crate::proxy::{Phase, PhaseTimer};

/// How long a connection that was accepted just before the drain has to send its first request.
const FIRST_REQUEST: Duration = Duration::from_millis(100);

/// Counts the client connections of the whole process, and limits them.
#[derive(Debug)]
pub struct ConnectionLimit {
    open: AtomicUsize,
    limit: AtomicUsize,
}

impl ConnectionLimit {
    /// Allows `limit` connections at once.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { open: AtomicUsize::new(0), limit: AtomicUsize::new(limit) })
    }

    /// Allows `limit` connections from now on. Open ones stay.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// A permit for another connection, unless the limit is reached.
    pub(super) fn try_acquire(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let limit = self.limit.load(Ordering::Relaxed);
        self.open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| (open < limit).then_some(open + 1))
            .ok()
            .map(|_| ConnectionPermit(Arc::clone(self)))
    }
}

/// Counts one connection until dropped.
pub(super) struct ConnectionPermit(Arc<ConnectionLimit>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The open connections of one worker, so that they can be drained or aborted.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: RefCell<Slab<OpenConnection>>,
    closed: Notify,
}

#[derive(Debug)]
struct OpenConnection {
    timer: Rc<PhaseTimer>,
    /// The task that serves it, once it runs.
    task: Option<AbortHandle>,
}

impl Connections {
    /// Registers a connection until the guard is dropped.
    pub(super) fn register(self: &Rc<Self>, timer: &Rc<PhaseTimer>) -> RegisteredConnection {
        let connection = OpenConnection { timer: Rc::clone(timer), task: None };
        RegisteredConnection { key: self.open.borrow_mut().insert(connection), connections: Rc::clone(self) }
    }

    /// Sets the task that serves the connection registered as `key`.
    pub(super) fn set_task(&self, key: usize, task: AbortHandle) {
        if let Some(connection) = self.open.borrow_mut().get_mut(key) {
            connection.task = Some(task);
        }
    }

    /// The number of open connections.
    pub(super) fn count(&self) -> usize {
        self.open.borrow().len()
    }

    /// Ends each connection after its next response. Ready once all are closed.
    pub(super) async fn close_after_responses(&self) {
        self.open.borrow().iter().for_each(|(_, open)| open.timer.announce_close());
        self.all_closed().await;
    }

    /// Ends each connection after its request in flight. Ready once all are closed.
    pub(super) async fn drain(&self) {
        for (_, OpenConnection { timer, .. }) in self.open.borrow().iter() {
            if timer.phase() != Phase::FirstRequest {
                timer.drain();
            }
        }
        // A connection that was accepted last is not closed while its first request is on its way.
        tokio::time::sleep(FIRST_REQUEST).await;
        for (_, OpenConnection { timer, .. }) in self.open.borrow().iter() {
            timer.drain();
        }
        self.all_closed().await;
    }

    /// Aborts all connections, as if their clients had gone away.
    pub(super) async fn abort(&self) {
        let tasks: Vec<AbortHandle> =
            self.open.borrow().iter().filter_map(|(_, open)| open.task.clone()).collect();
        tasks.iter().for_each(AbortHandle::abort);
        self.all_closed().await;
    }

    async fn all_closed(&self) {
        while !self.open.borrow().is_empty() {
            self.closed.notified().await;
        }
    }
}

/// A connection's entry in [`Connections`], until dropped.
pub(super) struct RegisteredConnection {
    connections: Rc<Connections>,
    pub(super) key: usize,
}

impl Drop for RegisteredConnection {
    fn drop(&mut self) {
        self.connections.open.borrow_mut().remove(self.key);
        self.connections.closed.notify_one();
    }
}
