//! How a request gets a connection: an idle one, one that another request checks in, or a new one.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use tokio::{sync::oneshot, time::timeout_at};

use super::{
    connection::UpstreamConnection,
    host_pool::HostPool,
    sharing::{Joined, OpeningNotice},
    upstream_pool::{ConnectionWaiter, HandedConnection, PooledConnection, UpstreamPool, Waiting},
};
use crate::{
    config::model::Protocol,
    upstream::{
        ConnectError, HostChoice, OutgoingBody, StreamNeeds, UpstreamClient, UpstreamHost,
        addresses::{AddressHold, HeldConnection},
        connect::{Connected, connect},
        http1::Http1Connection,
        http2::UpstreamHttp2Connection,
        io::OpenGuard,
        queue::{ConnectionPermit, Grant},
    },
};

/// How long a request waits for a connection before a slow request of another client is broken off for it, and then how
/// long until the next one.
const EVICT_AFTER: Duration = Duration::from_millis(10);
const EVICT_EVERY: Duration = Duration::from_millis(50);

impl<B: OutgoingBody> UpstreamPool<B> {
    /// Checks out an idle connection to `host` for a request of `client`, if there is one.
    pub fn checkout(
        self: &Rc<Self>,
        host: &Rc<HostPool<B>>,
        client: &Rc<UpstreamClient>,
        needs: StreamNeeds,
    ) -> Option<UpstreamConnection<B>> {
        let pooled = match host.take_idle() {
            Some(http1) => PooledConnection::Http1(http1),
            None if self.shared.config.protocol == Protocol::H1 => return None,
            None => self.take_stream(host, needs)?,
        };
        Some(self.reuse(pooled, host, client))
    }

    /// Checks out a connection that was opened for another request.
    fn reuse(
        self: &Rc<Self>,
        pooled: PooledConnection<B>,
        host: &Rc<HostPool<B>>,
        client: &Rc<UpstreamClient>,
    ) -> UpstreamConnection<B> {
        UpstreamConnection::new(pooled, host, self, HeldConnection::new(client), true)
    }

    /// Opens a connection to `host` for a request of `client`. While no permit is left in the process, the request
    /// takes the next connection that another request checks in: to any host, unless requests are tied to hosts.
    ///
    /// Waits for a permit, and then for the connection to open: at most `choice.within` each. If `host` is drained by
    /// then, another host replaces it.
    ///
    /// # Errors
    /// The queue is full, the wait timed out, or the host cannot be reached.
    pub async fn connect(
        self: &Rc<Self>,
        host: &mut Rc<HostPool<B>>,
        client: &Rc<UpstreamClient>,
        choice: &HostChoice<'_>,
        needs: StreamNeeds,
    ) -> Result<UpstreamConnection<B>, ConnectError> {
        let mut opening = None;
        if self.shared.config.protocol != Protocol::H1 {
            match self.join_connection(host, needs, choice.within).await? {
                Joined::Stream(pooled) => {
                    return Ok(self.reuse(pooled, host, client));
                }
                Joined::Opening(sender) => opening = sender,
            }
        }
        let permit = match self.shared.queue.try_acquire() {
            Some(permit) => permit,
            None => {
                // Other requests need not wait for this one.
                opening = None;
                if let Some(pooled) = self.take_any_stream(host, needs) {
                    return Ok(self.reuse(pooled, host, client));
                }
                match self.wait_for_connection(host, client, needs, choice.within).await? {
                    Acquired::Connection((pooled, host)) => {
                        return Ok(self.reuse(pooled, &host, client));
                    }
                    Acquired::Permit(permit) => permit,
                }
            }
        };
        // The host may have been drained while the request waited.
        self.follow_hosts();
        if host.is_retired() {
            *host = self.pick(choice, Instant::now()).ok_or(ConnectError::NoHost)?;
            // Requests that wait for this opening want the previous host.
            opening = None;
        }
        let (sender, opened) = oneshot::channel();
        let (pool, opened_for) = (Rc::clone(self), (Rc::clone(host), AddressHold::new(client)));
        tokio::task::spawn_local(pool.open_for_request(
            opened_for,
            permit,
            (needs, choice.within),
            opening,
            sender,
        ));
        // The sender is dropped without a result when the worker ends.
        let (pooled, hold) = opened.await.unwrap_or(Err(ConnectError::Timeout))?;
        Ok(UpstreamConnection::new(pooled, host, self, HeldConnection::holding(hold), false))
    }

    /// Opens a connection for a request that waits for it with `waiting`. Runs in a task of its own, because the
    /// request may end earlier, and must not cancel the attempt: a connection to an endpoint that is slower than its
    /// clients' patience serves later requests, and an unreachable endpoint is noticed.
    async fn open_for_request(
        self: Rc<Self>,
        (host, hold): (Rc<HostPool<B>>, AddressHold),
        permit: ConnectionPermit,
        (needs, within): (StreamNeeds, Duration),
        opening: Option<OpeningNotice>,
        waiting: oneshot::Sender<Result<(PooledConnection<B>, AddressHold), ConnectError>>,
    ) {
        // A host that is slow to accept connections is not idle.
        let connecting = ConnectingGuard::new(&host);
        let opened = self.open(&host, permit, needs, within).await;
        match &opened {
            // With TLS 1.3 the host may still refuse our certificate: only its first response proves that it did not.
            Ok(PooledConnection::Http1(http1)) if http1.tls_version > 0 => {}
            Ok(_) => self.shared.connected(&host),
            Err(error) => {
                self.shared.not_connected(&host, error);
                if let Some(opening) = opening {
                    opening.send_replace(Some(error.clone()));
                }
            }
        }
        drop(connecting);
        // A stream that no request waits for returns to the pool when it is dropped.
        if let Err(Ok((PooledConnection::Http1(http1), _))) =
            waiting.send(opened.map(|pooled| (pooled, hold)))
        {
            self.check_in(http1, &host);
        }
    }

    async fn open(
        self: &Rc<Self>,
        host: &Rc<HostPool<B>>,
        permit: ConnectionPermit,
        needs: StreamNeeds,
        within: Duration,
    ) -> Result<PooledConnection<B>, ConnectError> {
        let late = tokio::time::Instant::now() + within;
        let Connected { io, tls_version, is_http2 } = connect(&self.shared, host, within).await?;
        let io = io.holding((OpenGuard::new(&self.open), permit));
        if self.shared.config.protocol != Protocol::H1 {
            host.shared.borrow_mut().is_expected = is_http2;
        }
        if is_http2 {
            let opening =
                UpstreamHttp2Connection::open(io, &host.endpoint, tls_version, needs, self.now.get());
            let opened = timeout_at(late, opening).await.map_err(|_| ConnectError::Timeout)?;
            let connection = opened.map_err(ConnectError::from_io)?;
            return Ok(self.share(&connection, host));
        }
        Ok(PooledConnection::Http1(Http1Connection::new(io, tls_version, &self.flusher)))
    }

    /// Waits for a connection that another request checks in, or for a permit to open one.
    async fn wait_for_connection(
        &self,
        host: &Rc<HostPool<B>>,
        client: &UpstreamClient,
        needs: StreamNeeds,
        within: Duration,
    ) -> Result<Acquired<B>, ConnectError> {
        let full = ConnectError::Full(self.shared.config.max_connections);
        let Some(mut place) = self.shared.queue.join(&client.address, self.worker) else {
            return Err(full);
        };
        let (sender, mut handed_over) = oneshot::channel();
        let waiting = ConnectionWaiter { sender, host: Rc::clone(host), needs };
        let _waiting = WaitingGuard::new(&self.waiting, place.ticket, waiting);
        self.close_any_idle(); // frees its permit for the wanted host
        self.shared.wanted.notify_waiters();
        let mut late = std::pin::pin!(tokio::time::sleep(within));
        let mut delay = EVICT_AFTER;
        loop {
            tokio::select! {
                biased;
                handed = &mut handed_over => return handed.map(Acquired::Connection).map_err(|_| full),
                grant = &mut place.granted => match grant {
                    Ok(Grant::Permit(permit)) => return Ok(Acquired::Permit(permit)),
                    Ok(Grant::Displaced) | Err(_) => return Err(full),
                },
                () = &mut late => return Err(full),
                () = tokio::time::sleep(delay) => {
                    let waiting = self.shared.queue.waiting();
                    self.shared.addresses.evict_for(&client.address, place.ahead, waiting, Instant::now());
                    delay = EVICT_EVERY;
                }
            }
        }
    }
}

/// Counts a connection attempt as a request in flight, until dropped.
struct ConnectingGuard<'a>(&'a UpstreamHost);

impl<'a> ConnectingGuard<'a> {
    fn new(host: &'a UpstreamHost) -> Self {
        host.state.request_started();
        Self(host)
    }
}

impl Drop for ConnectingGuard<'_> {
    fn drop(&mut self) {
        self.0.state.request_ended();
    }
}

/// The result of a wait.
enum Acquired<B: OutgoingBody> {
    Connection(HandedConnection<B>),
    Permit(ConnectionPermit),
}

/// Registers a request that waits for a connection, until dropped.
struct WaitingGuard<'a, B: OutgoingBody> {
    waiting: &'a Waiting<B>,
    ticket: u64,
}

impl<'a, B: OutgoingBody> WaitingGuard<'a, B> {
    fn new(waiting: &'a Waiting<B>, ticket: u64, request: ConnectionWaiter<B>) -> Self {
        waiting.borrow_mut().insert(ticket, request);
        Self { waiting, ticket }
    }
}

impl<B: OutgoingBody> Drop for WaitingGuard<'_, B> {
    fn drop(&mut self) {
        self.waiting.borrow_mut().remove(&self.ticket);
    }
}
