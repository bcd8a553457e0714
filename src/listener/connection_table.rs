//! The client connections of the whole process: their limits, per address and in total, and the choice of connections
//! that make room for others.

use std::{
    cell::Cell,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::connections_by_address::ConnectionsByAddress;
pub(super) use super::connections_by_address::Owner;
use crate::{
    config::model::ClientLimits,
    telemetry::metrics::{ConnectionFacts, ConnectionRefusal},
};

/// Connections that a banned address may have open at a time: enough for each client behind it to read the reason.
const MAX_BANNED: usize = 10;

/// Connections beyond the limit at most: connections being closed to make room, and connections whose PROXY header was
/// not read yet.
const MAX_BEYOND: usize = 256;

/// File descriptors that the process needs without any client: sockets, files, and descriptors of its threads.
const OWN_DESCRIPTORS: u64 = 64;

/// Counts the client connections of all workers, and limits them.
#[derive(Debug)]
pub struct ConnectionTable {
    state: Mutex<TableState>,
    max: AtomicUsize,
    max_per_address: AtomicUsize,
    /// File descriptors that the process may have open. `None`: unknown.
    descriptors: Option<u64>,
    /// A channel to each worker, for connections that it has to close.
    evictions: Vec<UnboundedSender<Owner>>,
}

#[derive(Debug, Default)]
struct TableState {
    connections: ConnectionsByAddress,
    /// Connections beyond the limit whose client is not known yet.
    beyond: usize,
}

/// The connections of one worker that have to make room for others.
pub type Evictions = UnboundedReceiver<Owner>;

/// The client of a connection, as far as limits are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    /// A client whose connections are limited, together with the others of its `network`. `is_banned`:
    /// whether a ban denies all its requests.
    Limited { address: IpAddr, network: IpNet, is_banned: bool },
    /// A proxy with many clients behind it, or a process of this machine.
    Unlimited,
    /// The PROXY header, which names the client, was not read yet.
    Unknown,
}

impl Client {
    pub(super) fn is_banned(self) -> bool {
        matches!(self, Self::Limited { is_banned: true, .. })
    }
}

/// A connection's entry in the table, until it is closed.
#[derive(Debug)]
pub(super) struct TableEntry {
    key: usize,
    is_beyond: Cell<bool>,
}

impl ConnectionTable {
    /// `descriptors`: file descriptors that the process may have open.
    pub fn new(
        limits: &ClientLimits,
        workers: usize,
        descriptors: Option<u64>,
    ) -> (Arc<Self>, Vec<Evictions>) {
        let (evictions, receivers) = (0..workers).map(|_| unbounded_channel()).unzip();
        let table = Self {
            state: Mutex::default(),
            max: AtomicUsize::default(),
            max_per_address: AtomicUsize::default(),
            descriptors,
            evictions,
        };
        table.set_limits(limits);
        (Arc::new(table), receivers)
    }

    /// Sets the limits, lowered to the file descriptors that are available. Open connections are kept.
    pub fn set_limits(&self, limits: &ClientLimits) {
        let (mut max, mut per_address) = (limits.connections, limits.connections_per_address);
        if per_address == 0 {
            per_address = usize::MAX;
        }
        if let Some(descriptors) = self.descriptors
            && let most = connections_within(descriptors)
            && most < max
        {
            let connections = std::mem::replace(&mut max, most);
            per_address = per_address.min(most - most / 4);
            tracing::warn!(
                limit = descriptors,
                connections,
                "the limit of open files is {descriptors}, too low for client_limits.connections ({connections}): no more than \
                 {most} clients are connected at a time, {per_address} of one address"
            );
        }
        self.max.store(max, Relaxed);
        self.max_per_address.store(per_address, Relaxed);
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.state.lock().connections.len()
    }

    /// How the connections are spread over addresses.
    pub fn facts(&self) -> ConnectionFacts {
        let max = self.max.load(Relaxed);
        let TableState { connections, .. } = &mut *self.state.lock();
        ConnectionFacts { open: connections.len(), max, heaviest: connections.heaviest() }
    }

    /// Adds a new connection.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub(super) fn add(&self, owner: Owner, client: Client) -> Result<TableEntry, ConnectionRefusal> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let mut is_beyond = false;
        if client == Client::Unknown {
            let max = self.max.load(Relaxed);
            is_beyond = state.counted() >= max;
            if is_beyond && !state.may_go_beyond(max) {
                return Err(ConnectionRefusal::Connections);
            }
            state.beyond += usize::from(is_beyond);
        } else {
            self.admit(&mut state, client, now)?;
        }
        let key = state.connections.insert(owner, now);
        if let Client::Limited { network, .. } = client {
            state.connections.set_address(key, network);
        }
        Ok(TableEntry { key, is_beyond: Cell::new(is_beyond) })
    }

    /// Sets the client of a connection, once it is known.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub(super) fn set_client(&self, entry: &TableEntry, client: Client) -> Result<(), ConnectionRefusal> {
        let mut state = self.state.lock();
        if entry.is_beyond.get() {
            self.admit(&mut state, client, Instant::now())?;
            state.beyond -= 1;
            entry.is_beyond.set(false);
        } else {
            self.check_address(&state, client)?;
        }
        if let Client::Limited { network, .. } = client {
            state.connections.set_address(entry.key, network);
        }
        Ok(())
    }

    pub(super) fn set_idle(&self, entry: &TableEntry) {
        let now = Instant::now();
        self.state.lock().connections.set_idle(entry.key, now);
    }

    pub(super) fn set_busy(&self, entry: &TableEntry) {
        self.state.lock().connections.set_busy(entry.key);
    }

    pub(super) fn remove(&self, entry: &TableEntry) {
        let mut state = self.state.lock();
        state.beyond -= usize::from(entry.is_beyond.get());
        state.connections.remove(entry.key);
    }

    /// Closes an idle connection, because no file descriptor is left. Returns whether there was one.
    pub(super) fn make_room(&self) -> bool {
        let evicted = self.state.lock().connections.evict(None, Instant::now());
        evicted.inspect(|owner| self.notify_worker(*owner)).is_some()
    }

    fn notify_worker(&self, owner: Owner) {
        // The worker may have ended, together with the connection.
        let _ended = self.evictions.get(owner.worker).map(|evictions| evictions.send(owner));
    }

    /// Checks that another connection of `client` is within the limits. Evicts idle connections if necessary.
    fn admit(&self, state: &mut TableState, client: Client, now: Instant) -> Result<(), ConnectionRefusal> {
        self.check_address(state, client)?;
        let newcomer = match client {
            Client::Limited { network, .. } => Some(network),
            Client::Unlimited | Client::Unknown => None,
        };
        let max = self.max.load(Relaxed);
        while state.counted() >= max {
            // Each connection being closed counts beyond the limit, so this loop ends.
            let evicted =
                if state.may_go_beyond(max) { state.connections.evict(newcomer, now) } else { None };
            let Some(owner) = evicted else { return Err(ConnectionRefusal::Connections) };
            self.notify_worker(owner);
        }
        Ok(())
    }

    fn check_address(&self, state: &TableState, client: Client) -> Result<(), ConnectionRefusal> {
        let Client::Limited { network, is_banned, .. } = client else { return Ok(()) };
        let max = self.max_per_address.load(Relaxed);
        let (max, refusal) = match is_banned {
            true => (max.min(MAX_BANNED), ConnectionRefusal::Banned),
            false => (max, ConnectionRefusal::ConnectionsPerAddress),
        };
        if state.connections.count(network) < max { Ok(()) } else { Err(refusal) }
    }
}

/// Client connections that may be open with so many file descriptors. The rest is reserved for endpoints, stores and
/// files, which idle clients could otherwise starve.
fn connections_within(descriptors: u64) -> usize {
    let spare = descriptors / 4 + OWN_DESCRIPTORS;
    usize::try_from(descriptors.saturating_sub(spare).max(descriptors / 4)).unwrap_or(usize::MAX)
}

impl TableState {
    /// The connections that count towards the limit.
    fn counted(&self) -> usize {
        self.connections.len() - self.connections.closing() - self.beyond
    }

    fn may_go_beyond(&self, max: usize) -> bool {
        self.connections.closing() + self.beyond < MAX_BEYOND.min(max)
    }
}
