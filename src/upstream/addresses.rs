//! The connections to an upstream that each client address holds, and the requests among them that wait for their own
//! client.
//!
//! While requests of other addresses wait for a connection, an address with more than its share loses those connections
//! whose requests only wait for a slow client ([`AddressTable::evict_for`]).

use std::{
    cell::Cell,
    collections::HashMap,
    future::poll_fn,
    net::IpAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
    time::{Duration, Instant},
};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use slab::Slab;

use crate::config::model;

/// A request that has waited less for its client does not count as slow: it would end soon by itself.
const SLOW: Duration = Duration::from_millis(100);

/// The table has at least this many addresses before it drops those without clients.
const MIN_CLEANED: usize = 1024;

/// Requests of an address that may end early at once, and the time until it may have another. Beyond that, the address
/// gets connections of its own: an endpoint that closes connections with many resets must not harm others.
const EARLY_ENDS: u32 = 60;
const EARLY_END_EVERY: Duration = Duration::from_secs(1);

/// The client addresses with requests to one upstream, in the whole process.
#[derive(Debug)]
pub(super) struct AddressTable {
    /// Connections that one address may hold while others wait.
    share: usize,
    /// The epoch of the addresses' times.
    since: Instant,
    addresses: Mutex<AddressMap>,
    /// Addresses that may hold more than their share.
    over_share: Mutex<Vec<Arc<AddressUsage>>>,
}

#[derive(Debug, Default)]
struct AddressMap {
    by_ip: HashMap<IpAddr, Arc<AddressUsage>, RandomState>,
    /// With this many addresses, those without clients are dropped.
    clean_at: usize,
}

/// One client address: its connections, and its slow requests.
#[derive(Debug)]
pub(super) struct AddressUsage {
    pub(super) ip: IpAddr,
    connections: AtomicUsize,
    /// When its budget of [`EARLY_ENDS`] is full again, in milliseconds since the epoch of the table.
    forgiven_at: AtomicU64,
    /// Bytes of responses that are buffered because its clients do not read them.
    buffered_bytes: AtomicUsize,
    /// Requests that hold a connection and have waited for their client.
    slow: Mutex<Slab<SlowRequest>>,
}

#[derive(Debug)]
struct SlowRequest {
    /// The start of the wait, moved back by all earlier waits of the request. `None`: it does not wait now.
    waits_since: Option<Instant>,
    /// Whether it is a tunnel. Tunnels are broken off last: they may still be in use.
    is_tunnel: bool,
    is_evicted: bool,
    /// Whether it was broken off because too much is buffered for clients that do not read.
    is_for_memory: bool,
    /// Wakes its client's connection.
    waker: Waker,
}

impl SlowRequest {
    fn new(waits_since: Option<Instant>, is_tunnel: bool, waker: &Waker) -> Self {
        Self { waits_since, is_tunnel, is_evicted: false, is_for_memory: false, waker: waker.clone() }
    }
}

impl AddressUsage {
    /// Connections that its requests hold.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }
}

impl AddressTable {
    pub(super) fn new(upstream: &model::Upstream) -> Self {
        let share = upstream.max_connections as f64 * upstream.max_connections_per_address;
        Self {
            // In range: at most `max_connections`.
            share: (share as usize).max(1),
            since: Instant::now(),
            addresses: Mutex::default(),
            over_share: Mutex::default(),
        }
    }

    fn find(&self, ip: IpAddr) -> Arc<AddressUsage> {
        let AddressMap { by_ip, clean_at } = &mut *self.addresses.lock();
        if let Some(address) = by_ip.get(&ip) {
            return Arc::clone(address);
        }
        if by_ip.len() >= *clean_at {
            let now = self.millis(Instant::now());
            by_ip.retain(|_, address| {
                Arc::strong_count(address) > 1 || address.forgiven_at.load(Ordering::Relaxed) > now
            });
            *clean_at = MIN_CLEANED.max(by_ip.len() * 2);
        }
        let address = Arc::new(AddressUsage {
            ip,
            connections: AtomicUsize::new(0),
            forgiven_at: AtomicU64::new(0),
            buffered_bytes: AtomicUsize::new(0),
            slow: Mutex::default(),
        });
        by_ip.insert(ip, Arc::clone(&address));
        address
    }

    fn millis(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.since).as_millis() as u64
    }

    fn acquired(&self, address: &Arc<AddressUsage>) {
        if address.connections.fetch_add(1, Ordering::AcqRel) == self.share {
            let mut over_share = self.over_share.lock();
            over_share.retain(|other| other.connections() > self.share && !Arc::ptr_eq(other, address));
            over_share.push(Arc::clone(address));
        }
    }

    /// Breaks off one request, so that its connection becomes free for a request of `newcomer`, which has `ahead` other
    /// requests in the queue before it. Of the addresses with more than their share, this is the request that has
    /// waited for its client longest. Does nothing if `newcomer` would itself have more than its share, nor while as
    /// many requests are being broken off as are `waiting`.
    pub(super) fn evict_for(&self, newcomer: &Arc<AddressUsage>, ahead: usize, waiting: usize, now: Instant) {
        if newcomer.connections() + ahead >= self.share {
            return;
        }
        let over_share = {
            let mut over_share = self.over_share.lock();
            over_share.retain(|address| address.connections() > self.share);
            over_share.clone()
        };
        let mut all_evicted = 0;
        let slowest = over_share.iter().filter_map(|address| {
            let slow = address.slow.lock();
            // A request that was broken off holds its connection for another moment.
            let evicted = slow.iter().filter(|(_, request)| request.is_evicted).count();
            all_evicted += evicted;
            if address.connections() <= self.share + evicted {
                return None;
            }
            let waiting = slow.iter().filter(|(_, request)| !request.is_evicted);
            let waiting =
                waiting.filter_map(|(key, request)| Some((request.is_tunnel, request.waits_since?, key)));
            let (is_tunnel, since, key) = waiting.min()?;
            Some((is_tunnel, since, address, key))
        });
        let slowest = slowest.min_by_key(|(is_tunnel, since, ..)| (*is_tunnel, *since));
        let Some((_, since, address, key)) = slowest else { return };
        if all_evicted >= waiting || now.saturating_duration_since(since) < SLOW {
            return;
        }
        let mut slow = address.slow.lock();
        // It may have ended in the meantime, and its key may be another request's; then the next attempt picks again.
        if let Some(request) = slow.get_mut(key).filter(|request| request.waits_since == Some(since)) {
            request.is_evicted = true;
            request.waker.wake_by_ref();
        }
    }
}

impl AddressTable {
    /// Breaks off one request of the address with the most buffered bytes: the one that has waited for its client
    /// longest.
    fn evict_heaviest(&self, now: Instant) {
        let heaviest = {
            let addresses = self.addresses.lock();
            let heaviest =
                addresses.by_ip.values().max_by_key(|address| address.buffered_bytes.load(Ordering::Relaxed));
            heaviest.map(Arc::clone)
        };
        let Some(heaviest) = heaviest else { return };
        let mut slow = heaviest.slow.lock();
        let waiting = slow.iter_mut().filter(|(_, request)| !request.is_evicted && !request.is_tunnel);
        let waiting = waiting.filter_map(|(_, request)| Some((request.waits_since?, request)));
        if let Some((since, request)) = waiting.min_by_key(|(since, _)| *since)
            && now.saturating_duration_since(since) >= SLOW
        {
            (request.is_evicted, request.is_for_memory) = (true, true);
            request.waker.wake_by_ref();
        }
    }
}

/// The part of an exchange that waits for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientWait {
    /// The request body: the client has to send.
    Request = 1,
    /// The response body: the client has to read.
    Response = 2,
}

/// Why a request that waits for its client is broken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// Other clients need its connection more.
    Connection,
    /// Too much is buffered for clients that do not read.
    Memory,
}

/// A client's connection, from the view of one upstream: only its address counts.
#[derive(Debug)]
pub struct UpstreamClient {
    table: Arc<AddressTable>,
    pub(super) address: Arc<AddressUsage>,
    holds_connection: Cell<bool>,
    /// The current [`ClientWait`]s, as bits.
    waits: Cell<u8>,
    /// When the first of them began.
    waiting_since: Cell<Instant>,
    /// How long this request has waited for its client so far.
    waited: Cell<Duration>,
    /// The request's key among the slow ones, once it has waited.
    key: Cell<Option<usize>>,
}

impl UpstreamClient {
    /// A client with this address, as limits identify it.
    pub(super) fn new(table: &Arc<AddressTable>, ip: IpAddr) -> Rc<Self> {
        Rc::new(Self {
            address: table.find(ip),
            table: Arc::clone(table),
            holds_connection: Cell::new(false),
            waits: Cell::new(0),
            waiting_since: Cell::new(Instant::now()),
            waited: Cell::default(),
            key: Cell::default(),
        })
    }

    /// Its address, as limits identify it.
    pub fn ip(&self) -> IpAddr {
        self.address.ip
    }

    /// Whether it is the client with this address of the upstream with this `table`.
    pub(super) fn is(&self, table: &Arc<AddressTable>, ip: IpAddr) -> bool {
        Arc::ptr_eq(&self.table, table) && self.address.ip == ip
    }

    /// The request that holds a connection begins to wait for its client. `waker` is woken if the request is to be
    /// broken off.
    pub fn wait_begins(&self, wait: ClientWait, now: Instant, waker: &Waker) {
        if !self.holds_connection.get() {
            return;
        }
        let waits = self.waits.replace(self.waits.get() | wait as u8);
        if waits > 0 {
            return;
        }
        self.waiting_since.set(now);
        let waits_since = now.checked_sub(self.waited.get()).or(Some(now));
        let mut slow = self.address.slow.lock();
        match self.key.get().and_then(|key| slow.get_mut(key)) {
            Some(request) => request.waits_since = waits_since,
            None => {
                let request = SlowRequest::new(waits_since, false, waker);
                self.key.set(Some(slow.insert(request)));
            }
        }
    }

    /// The client has sent or read something.
    pub fn wait_ends(&self, wait: ClientWait, now: Instant) {
        let waits = self.waits.get();
        self.waits.set(waits & !(wait as u8));
        if waits != wait as u8 {
            return;
        }
        let waited = now.saturating_duration_since(self.waiting_since.get());
        self.waited.set(self.waited.get() + waited);
        if let Some(key) = self.key.get()
            && let Some(request) = self.address.slow.lock().get_mut(key)
        {
            request.waits_since = None;
        }
    }

    /// One of its HTTP/2 requests has ended early.
    pub(super) fn ended_early(&self, now: Instant) {
        let (now, every) = (self.table.millis(now), EARLY_END_EVERY.as_millis() as u64);
        // Two minutes without early ends always suffice for a full budget.
        let longest = now + 2 * every * u64::from(EARLY_ENDS);
        let later = |forgiven_at: u64| Some((forgiven_at.max(now) + every).min(longest));
        let _always = self.address.forgiven_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// Whether so many requests of its address have ended early that it may not share connections with others.
    pub fn is_isolated(&self, now: Instant) -> bool {
        let (now, every) = (self.table.millis(now), EARLY_END_EVERY.as_millis() as u64);
        self.address.forgiven_at.load(Ordering::Relaxed) >= now + every * u64::from(EARLY_ENDS)
    }

    /// Counts buffered bytes of a response to it.
    pub(super) fn add_buffered(&self, bytes: usize) {
        self.address.buffered_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn remove_buffered(&self, bytes: usize) {
        self.address.buffered_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Too much is buffered for clients that do not read: breaks off one response.
    pub(super) fn evict_heaviest(&self, now: Instant) {
        self.table.evict_heaviest(now);
    }

    /// Why the request is to be broken off. `None`: it is not.
    pub fn eviction(&self) -> Option<Eviction> {
        let key = self.key.get()?;
        let slow = self.address.slow.lock();
        let request = slow.get(key).filter(|request| request.is_evicted)?;
        Some(if request.is_for_memory { Eviction::Memory } else { Eviction::Connection })
    }
}

/// Counts a connection that requests of a client's address hold, until dropped.
#[derive(Debug)]
pub(super) struct AddressHold(Rc<UpstreamClient>);

impl AddressHold {
    pub(super) fn new(client: &Rc<UpstreamClient>) -> Self {
        client.table.acquired(&client.address);
        Self(Rc::clone(client))
    }
}

impl Drop for AddressHold {
    fn drop(&mut self) {
        self.0.address.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connection that a client's request holds, until dropped.
#[derive(Debug)]
pub(super) struct HeldConnection {
    hold: AddressHold,
    /// The client no longer waits for the request: another one of it may hold a connection.
    is_abandoned: Cell<bool>,
    /// Its key among the slow requests, once it is abandoned.
    abandoned: Cell<Option<usize>>,
}

impl HeldConnection {
    pub(super) fn new(client: &Rc<UpstreamClient>) -> Self {
        Self::holding(AddressHold::new(client))
    }

    /// For a connection that is counted already.
    pub(super) fn holding(hold: AddressHold) -> Self {
        hold.0.holds_connection.set(true);
        Self { hold, is_abandoned: Cell::new(false), abandoned: Cell::new(None) }
    }

    /// The client whose request holds it.
    pub(super) fn client(&self) -> &Rc<UpstreamClient> {
        &self.hold.0
    }

    /// Ready once the request is to be broken off. To be called only where its client has left, or where it has become
    /// a tunnel: from then on it counts as one that waits for its client.
    pub(super) async fn evicted(&self, is_tunnel: bool) {
        self.abandon();
        poll_fn(|cx| {
            let mut slow = self.hold.0.address.slow.lock();
            let key = self.abandoned.get().unwrap_or_else(|| {
                slow.insert(SlowRequest::new(Some(Instant::now()), is_tunnel, cx.waker()))
            });
            self.abandoned.set(Some(key));
            let Some(request) = slow.get_mut(key) else { return Poll::Ready(()) };
            request.waker.clone_from(cx.waker());
            if request.is_evicted { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn abandon(&self) {
        if self.is_abandoned.replace(true) {
            return;
        }
        let AddressHold(client) = &self.hold;
        client.holds_connection.set(false);
        if let Some(key) = client.key.take() {
            client.address.slow.lock().try_remove(key);
            client.waits.set(0);
            client.waited.set(Duration::ZERO);
        }
    }
}

impl Drop for HeldConnection {
    fn drop(&mut self) {
        self.abandon();
        if let Some(key) = self.abandoned.get() {
            self.hold.0.address.slow.lock().try_remove(key);
        }
    }
}
