//! Connections that requests share: which one gets the next request, and which request opens another.

use std::{rc::Rc, time::Duration};

use tokio::{sync::watch, time::timeout_at};

use super::{
    host_pool::HostPool,
    upstream_pool::{PooledConnection, PooledStream, UpstreamPool},
};
use crate::upstream::{
    ConnectError, OutgoingBody, StreamNeeds,
    http2::{StreamSlot, UpstreamHttp2Connection},
    queue::NextRequest,
};

/// The result for a request that may share a connection.
pub(super) enum Joined<B: OutgoingBody> {
    Stream(PooledConnection<B>),
    /// No connection has room: the request has to open one, and to report a failure. `None`: no other request waits for
    /// it.
    Opening(Option<OpeningNotice>),
}

/// Reports why the opening of a connection failed to the requests that wait for it. Dropping it ends their wait.
pub(super) type OpeningNotice = watch::Sender<Option<ConnectError>>;

/// Waits for the end of a connection attempt of another request. `None`: it succeeded, or was given up.
async fn failure(
    mut under_way: watch::Receiver<Option<ConnectError>>,
    late: tokio::time::Instant,
) -> Result<Option<ConnectError>, ConnectError> {
    let failed =
        timeout_at(late, under_way.wait_for(Option::is_some)).await.map_err(|_| ConnectError::Timeout)?;
    Ok(failed.ok().and_then(|failed| failed.clone()))
}

impl<B: OutgoingBody> UpstreamPool<B> {
    /// A stream of a connection to `host` that has room, preferably of the one with the fewest streams. Silent
    /// connections are skipped.
    pub(super) fn take_stream(
        self: &Rc<Self>,
        host: &Rc<HostPool<B>>,
        needs: StreamNeeds,
    ) -> Option<PooledConnection<B>> {
        let mut connections = host.shared.borrow_mut();
        connections.retain(|connection| host.takes_streams(connection));
        let with_room = connections.open.iter().filter(|open| open.has_room_for(needs) && !open.is_silent());
        let connection = with_room.min_by_key(|connection| connection.streams())?;
        Some(self.pooled_stream(connection, host))
    }

    /// The same where no other connection may be opened. Then a body may wait behind others, and if all connections are
    /// silent, these are tried for a while.
    pub(super) fn take_any_stream(
        self: &Rc<Self>,
        host: &Rc<HostPool<B>>,
        needs: StreamNeeds,
    ) -> Option<PooledConnection<B>> {
        let needs = StreamNeeds { window: 0, ..needs };
        if let Some(pooled) = self.take_stream(host, needs) {
            return Some(pooled);
        }
        let connections = host.shared.borrow();
        if connections.open.iter().any(|open| !open.is_silent()) {
            return None;
        }
        let with_room =
            connections.open.iter().filter(|open| open.has_room_for(needs) && !open.is_given_up());
        let connection = with_room.min_by_key(|connection| connection.streams())?;
        Some(self.pooled_stream(connection, host))
    }

    /// A stream of `connection`, which has room.
    fn pooled_stream(
        self: &Rc<Self>,
        connection: &Rc<UpstreamHttp2Connection>,
        host: &Rc<HostPool<B>>,
    ) -> PooledConnection<B> {
        let slot = StreamSlot::take(Rc::clone(connection));
        PooledConnection::Http2(Box::new(PooledStream { slot, host: Rc::clone(host), pool: Rc::clone(self) }))
    }

    /// A stream of a connection to `host`, even of one that another request is opening. Otherwise the request has to
    /// open one.
    pub(super) async fn join_connection(
        self: &Rc<Self>,
        host: &Rc<HostPool<B>>,
        needs: StreamNeeds,
        within: Duration,
    ) -> Result<Joined<B>, ConnectError> {
        let late = tokio::time::Instant::now() + within;
        loop {
            if let Some(pooled) = self.take_stream(host, needs) {
                return Ok(Joined::Stream(pooled));
            }
            let under_way = {
                let mut connections = host.shared.borrow_mut();
                if !connections.is_expected || needs.is_alone {
                    return Ok(Joined::Opening(None));
                }
                match connections.opening.clone() {
                    // One handshake at a time: many requests may share its connection.
                    Some(under_way) if under_way.has_changed().is_ok() => under_way,
                    _ => {
                        let (opening, under_way) = watch::channel(None);
                        connections.opening = Some(under_way);
                        return Ok(Joined::Opening(Some(opening)));
                    }
                }
            };
            if let Some(error) = failure(under_way, late).await? {
                return Err(error);
            }
        }
    }

    /// A stream of a new `connection`. Waiting requests get its other streams.
    pub(super) fn share(
        self: &Rc<Self>,
        connection: &Rc<UpstreamHttp2Connection>,
        host: &Rc<HostPool<B>>,
    ) -> PooledConnection<B> {
        let pooled = self.pooled_stream(connection, host);
        if !host.is_retired() {
            host.shared.borrow_mut().open.push(Rc::clone(connection));
            while connection.has_room() && self.offer_stream(connection, host) {}
        }
        pooled
    }

    /// A stream of `connection` has ended.
    pub(super) fn stream_ended(
        self: &Rc<Self>,
        connection: &Rc<UpstreamHttp2Connection>,
        host: &Rc<HostPool<B>>,
    ) {
        connection.give_stream_back(self.now.get());
        // A waiting request must not get a stream to a host that was drained in the meantime.
        self.follow_hosts();
        let is_useless = connection.is_silent() && connection.streams() == 0;
        if is_useless || !host.takes_streams(connection) {
            return retire_connection(connection, host);
        }
        let is_kept = host.shared.borrow().contains(connection);
        if is_kept && connection.has_room() && !connection.is_given_up() {
            self.offer_stream(connection, host);
            let is_idle = connection.streams() == 0;
            if is_idle && (host.is_retired() || self.idle_connections() > self.shared.config.idle_connections)
            {
                retire_connection(connection, host);
            }
        }
    }

    /// Gives a stream of `connection`, which has room, to a waiting request. False: no request of this worker waits.
    fn offer_stream(
        self: &Rc<Self>,
        connection: &Rc<UpstreamHttp2Connection>,
        host: &Rc<HostPool<B>>,
    ) -> bool {
        match self.next_request(host, |needs| connection.has_room_for(needs)) {
            NextRequest::None => false,
            NextRequest::Here(ticket) => {
                let waiting = self.waiting.borrow_mut().remove(&ticket);
                if let Some(waiting) = waiting {
                    // A dropped stream is offered to the next request.
                    let _gone = waiting.sender.send((self.pooled_stream(connection, host), Rc::clone(host)));
                }
                true
            }
            NextRequest::Elsewhere => {
                // A stream can't move to another thread, but the permit of the connection can, once its streams have
                // ended. One connection at a time, because streams may last long.
                let is_yielding = self.yielding.borrow().upgrade().is_some();
                if connection.streams() == 0 || !is_yielding {
                    *self.yielding.borrow_mut() = Rc::downgrade(connection);
                    retire_connection(connection, host);
                }
                false
            }
        }
    }
}

/// Closes a connection once its last stream has ended.
fn retire_connection<B: OutgoingBody>(connection: &Rc<UpstreamHttp2Connection>, host: &HostPool<B>) {
    host.shared.borrow_mut().retain(|open| !Rc::ptr_eq(open, connection));
}
