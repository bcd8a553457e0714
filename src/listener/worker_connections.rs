//! The client connections of one worker.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    net::IpAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use slab::Slab;
use tokio::{sync::Notify, task::AbortHandle};

use super::connection_table::{Client, ConnectionTable, Evictions, Owner, TableEntry};
use crate::{
    proxy::{ConnectionState, Phase},
    telemetry::metrics::{ConnectionRefusal, CutOff, IdleClosure, ThreadMetrics},
};

/// Time for the first request of a connection that was accepted just before the drain.
const FIRST_REQUEST: Duration = Duration::from_millis(100);

/// Connections checked at a time in a loop over all of them: no request is served meanwhile.
const MAX_AT_ONCE: usize = 256;

/// Response bytes that all HTTP/2 connections of the process may buffer for clients that do not read. Beyond that,
/// connections are closed: of the address with most buffered bytes, the connection with most.
const MAX_BUFFERED: u64 = 128 << 20;

/// Buffered bytes of the process.
static BUFFERED: AtomicU64 = AtomicU64::new(0);

/// The open connections of one worker, so that they can be closed, drained or aborted.
#[derive(Debug)]
pub(super) struct WorkerConnections {
    worker: usize,
    /// All connections of the process.
    table: Arc<ConnectionTable>,
    metrics: Arc<ThreadMetrics>,
    open: RefCell<Slab<OpenConnection>>,
    /// The number of the newest connection.
    last: Cell<u64>,
    /// Open connections that carry only tunnels.
    only_tunnels: Cell<usize>,
    /// Notified when a connection has closed, or carries only tunnels.
    closed: Notify,
    /// Open connections that are not known to be idle.
    busy: Cell<usize>,
    /// Notified when a connection begins or ends, becomes idle, or gets its first request after it was idle.
    stirred: Notify,
}

#[derive(Debug)]
struct OpenConnection {
    /// Unique among all connections that this worker ever had.
    number: u64,
    state: Rc<ConnectionState>,
    /// The task that serves the connection, once it runs.
    task: Option<AbortHandle>,
    /// The client's address, if it is known and its connections are limited.
    address: Option<IpAddr>,
    /// The connection closes after its next response, because its address is banned.
    is_banned: bool,
    /// PROXY header and TLS handshake are not complete yet.
    is_opening: bool,
    /// Response bytes that are buffered because the client does not read.
    buffered: u64,
    /// The connection has to close, because too much is buffered.
    is_shed: bool,
}

impl WorkerConnections {
    /// Of `worker`, in the process' `table`.
    pub(super) fn new(worker: usize, table: Arc<ConnectionTable>, metrics: Arc<ThreadMetrics>) -> Rc<Self> {
        let open = RefCell::default();
        Rc::new(Self {
            worker,
            table,
            metrics,
            open,
            last: Cell::default(),
            only_tunnels: Cell::default(),
            closed: Notify::new(),
            busy: Cell::default(),
            stirred: Notify::new(),
        })
    }

    /// Registers a connection until the guard is dropped.
    ///
    /// # Errors
    /// There are too many connections: this one has to be closed.
    pub(super) fn register(
        self: &Rc<Self>,
        state: &Rc<ConnectionState>,
        client: Client,
    ) -> Result<Rc<RegisteredConnection>, ConnectionRefusal> {
        let mut open = self.open.borrow_mut();
        let (key, number) = (open.vacant_key(), self.last.get() + 1);
        let entry = self.table.add(Owner { worker: self.worker, key, number }, client)?;
        self.last.set(number);
        open.insert(OpenConnection {
            number,
            state: Rc::clone(state),
            task: None,
            address: None,
            is_banned: false,
            is_opening: true,
            buffered: 0,
            is_shed: false,
        });
        drop(open);
        self.stirred.notify_one();
        let connections = Rc::clone(self);
        let registered = RegisteredConnection {
            connections,
            key,
            entry,
            is_idle: Cell::new(true),
            has_only_tunnels: Cell::new(false),
            buffered: Cell::new(0),
        };
        registered.note(client);
        Ok(Rc::new(registered))
    }

    /// Closes an idle connection, because no file descriptor is left. Returns whether there was one.
    pub(super) fn make_room(&self) -> bool {
        self.table.make_room()
    }

    /// Closes each connection that `evictions` names, until the channel is closed.
    pub(super) async fn close_evicted(self: Rc<Self>, mut evictions: Evictions) {
        while let Some(Owner { key, number, .. }) = evictions.recv().await {
            let open = self.open.borrow();
            // The connection may have closed in the meantime.
            let Some(connection) = open.get(key).filter(|connection| connection.number == number) else {
                continue;
            };
            self.metrics.idle_closed(IdleClosure::Replaced).inc();
            // A drain would wait for the end of the handshake or of the request head.
            let has_begun = connection.is_opening || connection.state.timer().phase() == Phase::RequestHead;
            match &connection.task {
                Some(task) if has_begun => task.abort(),
                _ => connection.state.make_room(),
            }
        }
    }

    /// Closes the connections of each client that `is_banned`. A request in flight still gets its response.
    pub(super) async fn close_banned(&self, is_banned: impl Fn(IpAddr) -> bool) {
        let mut from = 0;
        while from < self.open.borrow().capacity() {
            for key in from..from + MAX_AT_ONCE {
                if let Some(connection) = self.open.borrow_mut().get_mut(key)
                    && !connection.is_banned
                    && connection.address.is_some_and(&is_banned)
                {
                    connection.is_banned = true;
                    if matches!(connection.state.timer().phase(), Phase::FirstRequest | Phase::Request) {
                        self.metrics.idle_closed(IdleClosure::Banned).inc();
                    }
                    connection.state.drain();
                }
            }
            from += MAX_AT_ONCE;
            tokio::task::yield_now().await;
        }
    }

    /// Closes connections while too many response bytes are buffered.
    pub(super) fn shed(&self) {
        for _ in 0..MAX_AT_ONCE {
            if BUFFERED.load(Relaxed) <= MAX_BUFFERED || !self.shed_one() {
                break;
            }
        }
    }

    /// Returns whether there was a connection to close.
    fn shed_one(&self) -> bool {
        let mut open = self.open.borrow_mut();
        let mut by_address = HashMap::<_, u64, foldhash::fast::RandomState>::default();
        let holding = || open.iter().filter(|(_, connection)| connection.buffered > 0 && !connection.is_shed);
        for (_, connection) in holding() {
            *by_address.entry(connection.address).or_default() += connection.buffered;
        }
        // A connection without an address may have many clients behind it, so it is chosen last.
        let heaviest = by_address.iter().max_by_key(|(address, buffered)| (address.is_some(), **buffered));
        let Some((&address, _)) = heaviest else { return false };
        let of_it = holding().filter(|(_, connection)| connection.address == address);
        let Some((key, _)) = of_it.max_by_key(|(_, connection)| connection.buffered) else { return false };
        let connection = &mut open[key];
        connection.is_shed = true;
        BUFFERED.fetch_sub(std::mem::take(&mut connection.buffered), Relaxed);
        connection.state.timer().wake();
        true
    }

    /// Whether any connection may have a request in flight.
    pub(super) fn are_busy(&self) -> bool {
        self.busy.get() > 0
    }

    /// Ready if a connection began, ended, or became busy or idle since the last call, or once one does. Cancel-safe.
    pub(super) async fn stirred(&self) {
        self.stirred.notified().await;
    }

    /// The number of open connections.
    pub(super) fn count(&self) -> usize {
        self.open.borrow().len()
    }

    /// Makes the next response of each connection its last.
    pub(super) fn announce_close(&self) {
        self.open.borrow().iter().for_each(|(_, open)| open.state.announce_close());
    }

    /// Closes each connection after its request in flight. Ready once all are closed, except connections that carry
    /// only tunnels.
    pub(super) async fn drain(&self) {
        for (_, OpenConnection { state, .. }) in self.open.borrow().iter() {
            if state.timer().phase() != Phase::FirstRequest {
                state.drain();
            }
        }
        // A connection that was just accepted is not closed while its first request is on its way.
        tokio::time::sleep(FIRST_REQUEST).await;
        for (_, OpenConnection { state, .. }) in self.open.borrow().iter() {
            state.drain();
        }
        while self.open.borrow().len() > self.only_tunnels.get() {
            self.closed.notified().await;
        }
    }

    /// Ready once no connection carries only tunnels.
    pub(super) async fn tunnels_closed(&self) {
        while self.only_tunnels.get() > 0 {
            self.closed.notified().await;
        }
    }

    /// Aborts all connections, as if their clients had disconnected.
    pub(super) async fn abort(&self) {
        let tasks: Vec<AbortHandle> =
            self.open.borrow().iter().filter_map(|(_, open)| open.task.clone()).collect();
        tasks.iter().for_each(AbortHandle::abort);
        self.all_closed().await;
    }

    /// Ready once all connections are closed.
    pub(super) async fn all_closed(&self) {
        while !self.open.borrow().is_empty() {
            self.closed.notified().await;
        }
    }
}

/// A connection's entry in [`WorkerConnections`], until dropped.
#[derive(Debug)]
pub(super) struct RegisteredConnection {
    connections: Rc<WorkerConnections>,
    key: usize,
    entry: TableEntry,
    /// Whether the connection is known to have no request in flight.
    is_idle: Cell<bool>,
    has_only_tunnels: Cell<bool>,
    /// As last set by [`RegisteredConnection::set_buffered`].
    buffered: Cell<u64>,
}

impl RegisteredConnection {
    /// Sets the task that serves the connection.
    pub(super) fn set_task(&self, task: AbortHandle) {
        self.update(|connection| connection.task = Some(task));
    }

    /// Sets the client that the PROXY header names.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub(super) fn set_client(&self, client: Client) -> Result<(), ConnectionRefusal> {
        self.connections.table.set_client(&self.entry, client)?;
        self.note(client);
        Ok(())
    }

    /// PROXY header and TLS handshake are complete.
    pub(super) fn set_opened(&self) {
        self.update(|connection| connection.is_opening = false);
    }

    /// Whether the client is banned, so that the connection closes after its next response.
    pub(super) fn is_banned(&self) -> bool {
        self.connections.open.borrow().get(self.key).is_some_and(|connection| connection.is_banned)
    }

    /// Counts a client that was too slow, after its request has ended.
    pub(super) fn count_cut_off(&self, cut_off: CutOff) {
        self.connections.metrics.cut_offs().counter(cut_off).inc();
    }

    /// Marks the connection as idle: no request is in flight or arriving, so that it may make room for another
    /// connection.
    pub(super) fn set_idle(&self) {
        if !self.is_idle.replace(true) {
            // Its last request may have ended since the last tick.
            self.connections.stirred.notify_one();
            self.connections.busy.update(|busy| busy - 1);
            self.connections.table.set_idle(&self.entry);
        }
    }

    /// Whether the connection may make room for another.
    pub(super) fn is_idle(&self) -> bool {
        self.is_idle.get()
    }

    /// Marks the connection as busy: a request has arrived.
    pub(super) fn set_busy(&self) {
        if self.is_idle.replace(false) {
            self.connections.busy.update(|busy| busy + 1);
            self.connections.stirred.notify_one();
            self.connections.table.set_busy(&self.entry);
        }
    }

    /// Sets whether the connection carries only tunnels. A drain does not wait for such a connection.
    pub(super) fn set_has_only_tunnels(&self, has_only_tunnels: bool) {
        let (is, was) = (has_only_tunnels, self.has_only_tunnels.replace(has_only_tunnels));
        let count = &self.connections.only_tunnels;
        count.set(count.get() + usize::from(is) - usize::from(was));
        if is {
            self.connections.closed.notify_one();
        }
    }

    /// Sets the response bytes that are buffered because the client does not read.
    pub(super) fn set_buffered(&self, bytes: u64) {
        if self.buffered.replace(bytes) == bytes {
            return;
        }
        self.update(|connection| {
            if !connection.is_shed {
                BUFFERED.fetch_add(bytes.wrapping_sub(connection.buffered), Relaxed);
                connection.buffered = bytes;
            }
        });
    }

    /// Whether the connection has to close, because too much is buffered.
    pub(super) fn is_shed(&self) -> bool {
        self.buffered.get() > 0
            && self.connections.open.borrow().get(self.key).is_some_and(|connection| connection.is_shed)
    }

    fn note(&self, client: Client) {
        if let Client::Limited { address, is_banned, .. } = client {
            self.update(|connection| {
                connection.address = Some(address);
                connection.is_banned = is_banned;
                if is_banned {
                    connection.state.announce_close();
                }
            });
        }
    }

    fn update(&self, update: impl FnOnce(&mut OpenConnection)) {
        if let Some(connection) = self.connections.open.borrow_mut().get_mut(self.key) {
            update(connection);
        }
    }
}

impl Drop for RegisteredConnection {
    fn drop(&mut self) {
        self.set_has_only_tunnels(false);
        self.set_buffered(0);
        self.connections.open.borrow_mut().remove(self.key);
        self.connections.table.remove(&self.entry);
        self.connections.busy.update(|busy| busy - usize::from(!self.is_idle.get()));
        self.connections.stirred.notify_one();
        self.connections.closed.notify_one();
    }
}
