//! The permits for connections to an upstream, and the requests that wait for one, for all workers together.
//!
//! A connection is given to the waiting request whose address holds the fewest connections, and among equals to the one
//! that has waited longest. So an address with many requests can't push others back.

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::addresses::AddressUsage;

/// The free permits, and the queue for them.
#[derive(Debug)]
pub(super) struct ConnectionQueue {
    /// The most connections, and the most requests that wait for one.
    max_connections: usize,
    /// The length of the queue.
    waiting: AtomicUsize,
    state: Mutex<QueueState>,
}

#[derive(Debug)]
struct QueueState {
    /// Connections that may still be opened. 0 while any request waits.
    permits: usize,
    next_ticket: u64,
    by_address: IndexMap<IpAddr, WaitingAddress, RandomState>,
}

/// The waiting requests of one address, the oldest in front. Never empty.
#[derive(Debug)]
struct WaitingAddress {
    address: Arc<AddressUsage>,
    requests: VecDeque<QueuedRequest>,
}

#[derive(Debug)]
struct QueuedRequest {
    /// Increases with each request.
    ticket: u64,
    worker: usize,
    grant: oneshot::Sender<Grant>,
}

/// The result for a waiting request.
#[derive(Debug)]
pub(super) enum Grant {
    /// It may open a connection.
    Permit(ConnectionPermit),
    /// It has lost its place to a request of an address that holds fewer connections.
    Displaced,
}

/// The right to one open connection. Dropping it returns it.
#[derive(Debug)]
pub(super) struct ConnectionPermit(Arc<ConnectionQueue>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.return_permit();
    }
}

/// Which request gets a connection that a worker no longer needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextRequest {
    /// No request waits.
    None,
    /// The request of the same worker with this ticket. It has left the queue.
    Here(u64),
    /// A request of another worker or for another host: it can't use the connection, only its permit.
    Elsewhere,
}

/// A request's place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(super) struct QueuePlace {
    queue: Arc<ConnectionQueue>,
    address: Arc<AddressUsage>,
    pub(super) ticket: u64,
    /// Requests of the same address in front of it.
    pub(super) ahead: usize,
    pub(super) granted: oneshot::Receiver<Grant>,
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let queue = &self.queue;
        queue.take(&mut queue.state.lock(), self.address.ip, self.ticket);
    }
}

impl ConnectionQueue {
    pub(super) fn new(max_connections: usize) -> Arc<Self> {
        let state = QueueState { permits: max_connections, next_ticket: 0, by_address: IndexMap::default() };
        Arc::new(Self { max_connections, waiting: AtomicUsize::new(0), state: Mutex::new(state) })
    }

    /// The number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// The number of requests that wait in other workers.
    pub(super) fn waiting_elsewhere(&self, worker: usize) -> usize {
        if self.waiting() == 0 {
            return 0;
        }
        self.state.lock().requests().filter(|request| request.worker != worker).count()
    }

    /// A permit, if one is left.
    pub(super) fn try_acquire(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let mut state = self.state.lock();
        state.permits = state.permits.checked_sub(1)?;
        Some(ConnectionPermit(Arc::clone(self)))
    }

    /// Queues a request of `address` in `worker`. If a permit has become free in the meantime, it is granted at once.
    /// `None`: the queue is full, and no address has much more of it.
    ///
    /// The queue is as long as the number of connections: in a longer one, requests would wait for more than one
    /// response, and a clear refusal serves the client better. In a full queue, the address with the most connections
    /// and waiting requests loses its last place to an address that has fewer.
    pub(super) fn join(self: &Arc<Self>, address: &Arc<AddressUsage>, worker: usize) -> Option<QueuePlace> {
        let mut state = self.state.lock();
        let (grant, granted) = oneshot::channel();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let place = |ahead| {
            let (queue, address) = (Arc::clone(self), Arc::clone(address));
            QueuePlace { queue, address, ticket, ahead, granted }
        };
        if let Some(left) = state.permits.checked_sub(1) {
            state.permits = left;
            drop(state);
            let _received = grant.send(Grant::Permit(ConnectionPermit(Arc::clone(self))));
            return Some(place(0));
        }
        let waiting = state.by_address.get(&address.ip).map_or(0, |waiting| waiting.requests.len());
        let mut displaced = None;
        if self.waiting() >= self.max_connections {
            let heaviest = state.by_address.values().max_by_key(|waiting| waiting.weight())?;
            if heaviest.weight() <= address.connections() + waiting + 1 {
                return None;
            }
            let ip = heaviest.address.ip;
            let last = heaviest.requests.back().map(|request| request.ticket)?;
            displaced = self.take(&mut state, ip, last);
        }
        let entry = state.by_address.entry(address.ip);
        let waiting_address = entry
            .or_insert_with(|| WaitingAddress { address: Arc::clone(address), requests: VecDeque::new() });
        waiting_address.requests.push_back(QueuedRequest { ticket, worker, grant });
        self.waiting.fetch_add(1, Ordering::AcqRel);
        drop(state);
        if let Some(request) = displaced {
            // It may have stopped waiting.
            let _gone = request.grant.send(Grant::Displaced);
        }
        Some(place(waiting))
    }

    /// Picks the request that gets a free connection of `worker`. A request of this worker qualifies only if `may_use`
    /// accepts its ticket.
    ///
    /// Among requests with equal rights, other workers get their turn in proportion to their number of requests: a busy
    /// worker must not starve the others, nor close all its connections for them.
    pub(super) fn next_request(&self, worker: usize, may_use: impl Fn(u64) -> bool) -> NextRequest {
        if self.waiting() == 0 {
            return NextRequest::None;
        }
        let mut state = self.state.lock();
        let Some(least) = state.by_address.values().map(|waiting| waiting.address.connections()).min() else {
            return NextRequest::None;
        };
        let (mut here, mut elsewhere, mut first) = (0, 0, None);
        for waiting in state.by_address.values().filter(|waiting| waiting.address.connections() <= least) {
            for request in &waiting.requests {
                if request.worker != worker || !may_use(request.ticket) {
                    elsewhere += 1;
                    continue;
                }
                here += 1;
                if first.is_none_or(|(ticket, _)| request.ticket < ticket) {
                    first = Some((request.ticket, waiting.address.ip));
                }
            }
        }
        match first {
            Some((ticket, ip)) if fastrand::usize(..here + elsewhere) < here => {
                // This drops the sender: the request is handed the connection itself.
                self.take(&mut state, ip, ticket);
                NextRequest::Here(ticket)
            }
            _ if elsewhere > 0 => NextRequest::Elsewhere,
            _ => NextRequest::None,
        }
    }

    /// A connection has ended: the next request may open one.
    fn return_permit(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let next = state.by_address.values().min_by_key(|waiting| {
            (waiting.address.connections(), waiting.requests.front().map(|request| request.ticket))
        });
        let next = next.and_then(|waiting| Some((waiting.address.ip, waiting.requests.front()?.ticket)));
        let Some(request) = next.and_then(|(ip, ticket)| self.take(&mut state, ip, ticket)) else {
            state.permits += 1;
            return;
        };
        drop(state);
        // A request that has just stopped waiting drops the permit, which returns it again.
        let _gone = request.grant.send(Grant::Permit(ConnectionPermit(Arc::clone(self))));
    }

    /// Removes a request from the queue, if it is still there.
    fn take(&self, state: &mut QueueState, ip: IpAddr, ticket: u64) -> Option<QueuedRequest> {
        let waiting = state.by_address.get_mut(&ip)?;
        let at = waiting.requests.iter().position(|request| request.ticket == ticket)?;
        let request = waiting.requests.remove(at);
        if waiting.requests.is_empty() {
            state.by_address.swap_remove(&ip);
        }
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        request
    }
}

impl QueueState {
    fn requests(&self) -> impl Iterator<Item = &QueuedRequest> {
        self.by_address.values().flat_map(|waiting| &waiting.requests)
    }
}

impl WaitingAddress {
    /// The connections that its address holds or waits for.
    fn weight(&self) -> usize {
        self.address.connections() + self.requests.len()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        rc::Rc,
        task::Waker,
        time::{Duration, Instant},
    };

    use futures_util::FutureExt;

    use super::*;
    use crate::{
        config::model::{Endpoint, Upstream},
        telemetry::Events,
        upstream::{ClientWait, DrainTable, SharedUpstream, UpstreamClient, addresses::HeldConnection},
    };

    fn upstream(max_connections: usize) -> Arc<SharedUpstream> {
        let endpoints = vec![Endpoint {
            url: "http://127.0.0.1:1".parse().unwrap(),
            authority: "127.0.0.1:1".parse().unwrap(),
            port: 1,
            weight: 1,
            drain: false,
        }];
        let config = Upstream {
            outlier: None,
            max_connections,
            request_buffering: 0,
            idle_connections: 1,
            ..Upstream::new("u", endpoints)
        };
        let drains = Arc::new(DrainTable::new(Events::new(), false));
        SharedUpstream::open(config, None, &drains, None).unwrap()
    }

    fn client(shared: &Arc<SharedUpstream>, last: u8) -> Rc<UpstreamClient> {
        shared.client([127, 0, 0, last].into())
    }

    fn join(shared: &Arc<SharedUpstream>, client: &UpstreamClient, worker: usize) -> Option<QueuePlace> {
        shared.queue.join(&client.address, worker)
    }

    fn granted(place: &mut QueuePlace) -> Option<Grant> {
        place.granted.try_recv().ok()
    }

    #[test]
    fn a_permit_goes_to_the_address_that_holds_least_and_among_equals_to_the_longest_waiting() {
        let shared = upstream(2);
        let permits = [(); 2].map(|()| shared.queue.try_acquire().unwrap());
        assert!(shared.queue.try_acquire().is_none());
        let (many, one) = (client(&shared, 1), client(&shared, 2));
        let _held = HeldConnection::new(&many);
        let mut first = join(&shared, &many, 0).unwrap();
        let mut second = join(&shared, &one, 1).unwrap();
        assert_eq!(shared.queue.waiting_elsewhere(0), 1);
        let [permit, other] = permits;
        drop(permit);
        assert!(granted(&mut first).is_none());
        let taken = granted(&mut second);
        assert!(matches!(taken, Some(Grant::Permit(_))));
        drop(other);
        assert!(matches!(granted(&mut first), Some(Grant::Permit(_))));
        assert_eq!(shared.queue.waiting(), 0);
        // Two permits are free: the dropped grant, and the other one.
        drop(taken);
        assert!(shared.queue.try_acquire().is_some());
    }

    #[test]
    fn a_permit_that_is_granted_to_one_that_has_left_is_not_lost() {
        let shared = upstream(1);
        let permit = shared.queue.try_acquire().unwrap();
        let client = client(&shared, 1);
        let place = join(&shared, &client, 0).unwrap();
        drop(permit);
        assert!(shared.queue.try_acquire().is_none());
        drop(place);
        assert!(shared.queue.try_acquire().is_some());
    }

    #[test]
    fn a_permit_that_is_returned_before_a_request_joins_is_not_waited_for() {
        let shared = upstream(1);
        let permit = shared.queue.try_acquire().unwrap();
        assert!(shared.queue.try_acquire().is_none());
        // In another worker.
        drop(permit);
        let mut place = join(&shared, &client(&shared, 1), 0).unwrap();
        let taken = granted(&mut place);
        assert!(matches!(taken, Some(Grant::Permit(_))));
        assert!(shared.queue.try_acquire().is_none());
        drop((taken, place));
        assert_eq!(shared.queue.waiting(), 0);
        assert!(shared.queue.try_acquire().is_some());
    }

    #[test]
    fn a_full_queue_takes_the_last_place_of_the_address_that_has_most() {
        let shared = upstream(2);
        let _permits = [(); 2].map(|()| shared.queue.try_acquire().unwrap());
        let (many, one) = (client(&shared, 1), client(&shared, 2));
        let mut first = join(&shared, &many, 0).unwrap();
        let mut second = join(&shared, &many, 0).unwrap();
        assert!(join(&shared, &many, 0).is_none(), "the queue is full");
        let mut newcomer = join(&shared, &one, 1).unwrap();
        assert!(matches!(granted(&mut second), Some(Grant::Displaced)));
        assert!(granted(&mut first).is_none() && granted(&mut newcomer).is_none());
        assert!(join(&shared, &one, 1).is_none(), "both have as much");
        assert_eq!(shared.queue.waiting(), 2);
    }

    #[test]
    fn a_connection_stays_in_its_worker_unless_another_has_more_right_to_it() {
        let shared = upstream(2);
        let _permits = [(); 2].map(|()| shared.queue.try_acquire().unwrap());
        assert_eq!(shared.queue.next_request(0, |_| true), NextRequest::None);
        let (many, one) = (client(&shared, 1), client(&shared, 2));
        let held = HeldConnection::new(&many);
        let here = join(&shared, &many, 0).unwrap();
        let _elsewhere = join(&shared, &one, 1).unwrap();
        assert_eq!(shared.queue.next_request(0, |_| true), NextRequest::Elsewhere);
        drop(held);
        let mut taken = (0..1_000).map(|_| shared.queue.next_request(0, |_| true));
        assert!(taken.any(|next| next == NextRequest::Here(here.ticket)), "both have the same right");
    }

    #[test]
    fn counts_of_held_connections_are_exact_over_threads() {
        let shared = upstream(64);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let shared = &shared;
                scope.spawn(move || {
                    let client = client(shared, thread % 2);
                    for _ in 0..10_000 {
                        drop([(); 3].map(|()| HeldConnection::new(&client)));
                    }
                });
            }
        });
        let clients = [client(&shared, 0), client(&shared, 1)];
        let kept = HeldConnection::new(&clients[0]);
        assert_eq!(clients.map(|client| client.address.connections()), [1, 0]);
        drop(kept);
    }

    #[test]
    fn a_request_that_its_client_has_left_is_broken_off_whatever_the_client_asks_next() {
        let shared = upstream(2);
        let (many, newcomer) = (client(&shared, 1), client(&shared, 2));
        let abandoned = HeldConnection::new(&many);
        let mut evicted = Box::pin(abandoned.evicted(false));
        assert!(evicted.as_mut().now_or_never().is_none());
        // By the same client connection, which also waits, but not as long yet.
        let next = HeldConnection::new(&many);
        let later = Instant::now() + Duration::from_secs(1);
        many.wait_begins(ClientWait::Response, later, Waker::noop());
        shared.addresses.evict_for(&newcomer.address, 0, 1, later);
        assert!(many.eviction().is_none());
        assert!(evicted.as_mut().now_or_never().is_some());
        drop(evicted);
        drop(abandoned);
        assert!(many.address.connections() == 1 && many.eviction().is_none());
        drop(next);
    }
}
