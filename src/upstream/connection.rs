//! Connections to an endpoint: opening one, and checking it out for one request at a time.

use std::{io, net::SocketAddr, rc::Rc, time::Duration};

use http::{Request, Response};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use tokio::{net::TcpStream, task::AbortHandle, time::timeout};

use super::{RequestBody, addresses::HeldConnection, pool::UpstreamPool};
use crate::config::model::Endpoint;

/// How long a connection may take from the end of an answer until it takes the next request.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// Connects to `endpoint`, one of its addresses after the other, each for its share of `within`: an
/// address that does not answer must not use up the time of the others.
///
/// A name is resolved at every connect, by the system's resolver and on a thread of its own, so that
/// a change of address is followed as soon as the system knows it.
///
/// # Errors
/// The last address' error, or that the name has none.
pub(super) async fn connect(endpoint: &Endpoint, within: Duration) -> io::Result<TcpStream> {
    let host = endpoint.authority.host();
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = literal.parse() {
        return open(SocketAddr::new(ip, endpoint.port)).await;
    }
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host name resolves to no address");
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, endpoint.port)).await?.collect();
    let share = within / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    for address in addresses {
        match timeout(share, open(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = error,
            Err(late) => failed = io::Error::new(io::ErrorKind::TimedOut, late),
        }
    }
    Err(failed)
}

async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A connection as the pool keeps it between requests. Closed when dropped.
///
/// A task of its own drives hyper's connection. Polling the connection from the request that waits on it
/// was tried: it saves task switches, but costs more in the kernel, because requests then go out one by
/// one instead of in batches, and the origin is woken for each.
pub(super) struct PooledConnection<B> {
    pub(super) sender: SendRequest<B>,
    pub(super) task: AbortHandle,
    pub(super) endpoint: usize,
}

impl<B> Drop for PooledConnection<B> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection checked out for one request. Dropped before [`Connection::release`], it is closed: that
/// is how an abandoned request cancels the upstream's work.
pub struct Connection<B: RequestBody> {
    pooled: PooledConnection<B>,
    in_flight: InFlightGuard<B>,
    held: HeldConnection,
    reused: bool,
}

/// Why a request got no answer.
pub struct SendError<B> {
    /// What went wrong.
    pub error: hyper::Error,
    /// The request itself, if not one byte of it was sent: then any method may be retried.
    pub unsent: Option<Request<B>>,
}

impl<B: RequestBody> Connection<B> {
    pub(super) fn new(
        pooled: PooledConnection<B>,
        upstream: &Rc<UpstreamPool<B>>,
        held: HeldConnection,
        reused: bool,
    ) -> Self {
        Self { in_flight: InFlightGuard::new(upstream, pooled.endpoint), held, pooled, reused }
    }

    /// Whether it served another request before: the upstream may have closed it in the meantime.
    pub fn is_reused(&self) -> bool {
        self.reused
    }

    /// The index of its endpoint.
    pub fn endpoint(&self) -> usize {
        self.pooled.endpoint
    }

    /// The URL of its endpoint.
    pub fn endpoint_url(&self) -> String {
        self.in_flight.upstream.shared().endpoint_url(self.pooled.endpoint)
    }

    /// Sends `request` and waits for the head of the answer.
    ///
    /// # Errors
    /// No answer came, or none that is HTTP.
    #[inline]
    pub fn send(
        &mut self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<Incoming>, SendError<B>>> + use<B> {
        let answer = self.pooled.sender.try_send_request(request);
        async move {
            answer.await.map_err(|mut failed| {
                let unsent = failed.take_message();
                SendError { error: failed.into_error(), unsent }
            })
        }
    }

    /// Ready once the connection is wanted for requests of other clients. To be called where the client of the request on
    /// it has gone, and will never read the answer.
    pub async fn evicted(&self) {
        self.held.evicted().await;
    }

    /// Checks the connection in after a whole request was sent and its whole answer was read.
    pub fn release(self) {
        let Self { mut pooled, in_flight, held, .. } = self;
        // The request that gets it next may be of an address that holds as many.
        drop(held);
        if pooled.sender.is_ready() {
            in_flight.upstream.check_in(pooled);
        } else if !pooled.sender.is_closed() {
            // The task that drives it has not noticed the end of the exchange yet. It may never notice, where
            // the upstream answered without reading the request to its end.
            tokio::task::spawn_local(async move {
                if let Ok(Ok(())) = timeout(READY_TIMEOUT, pooled.sender.ready()).await {
                    in_flight.upstream.check_in(pooled);
                }
            });
        }
    }
}

/// Counts a request in flight on its endpoint until dropped.
struct InFlightGuard<B: RequestBody> {
    upstream: Rc<UpstreamPool<B>>,
    endpoint: usize,
}

impl<B: RequestBody> InFlightGuard<B> {
    fn new(upstream: &Rc<UpstreamPool<B>>, endpoint: usize) -> Self {
        upstream.shared().request_started(endpoint);
        Self { upstream: Rc::clone(upstream), endpoint }
    }
}

impl<B: RequestBody> Drop for InFlightGuard<B> {
    fn drop(&mut self) {
        self.upstream.shared().request_ended(self.endpoint);
    }
}
