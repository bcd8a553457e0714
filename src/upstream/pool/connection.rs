//! Connections to a host, checked out for one request at a time.

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use futures_util::future::Either;
use http::{Request, Response};
use tokio::time::timeout;

use super::{
    host_pool::HostPool,
    upgraded::{UpgradedConnection, UpgradedStream},
    upstream_pool::{InFlightGuard, PooledConnection, UpstreamPool},
};
use crate::upstream::{IncomingBody, OutgoingBody, SendError, addresses::HeldConnection, http2::Http2Tunnel};

/// How long a connection may take from the end of a response until it is ready for the next request.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection checked out for one request. Dropped before [`UpstreamConnection::release`], it is closed: an abandoned
/// request cancels the upstream's work this way.
pub struct UpstreamConnection<B: OutgoingBody> {
    pooled: PooledConnection<B>,
    in_flight: InFlightGuard<B>,
    held: HeldConnection,
    reused: bool,
}

impl<B: OutgoingBody> UpstreamConnection<B> {
    pub(super) fn new(
        pooled: PooledConnection<B>,
        host: &Rc<HostPool<B>>,
        upstream: &Rc<UpstreamPool<B>>,
        held: HeldConnection,
        reused: bool,
    ) -> Self {
        if let PooledConnection::Http2(stream) = &pooled {
            stream.slot.set_client(held.client());
        }
        Self { in_flight: InFlightGuard::new(upstream, host), held, pooled, reused }
    }

    /// An early end of its request is not the client's fault: the endpoint was too slow, or did not want the request.
    pub fn excuse_client(&self) {
        if let PooledConnection::Http2(stream) = &self.pooled {
            stream.slot.excuse_client();
        }
    }

    /// Whether it served another request before: the upstream may have closed it in the meantime.
    pub fn is_reused(&self) -> bool {
        self.reused
    }

    /// The host that it is connected to.
    pub fn host(&self) -> &Rc<HostPool<B>> {
        &self.in_flight.host
    }

    /// Whether it is a stream of a shared connection. Then the error of [`UpstreamConnection::send`] says whether the
    /// request may be sent again.
    pub fn is_shared(&self) -> bool {
        matches!(self.pooled, PooledConnection::Http2(_))
    }

    /// Whether a request `failed` because this connection, on which there were other requests, was closed in the
    /// meantime: not one byte of a response was received.
    pub fn was_closed<Q>(&self, failed: &SendError<Q>) -> bool {
        match &self.pooled {
            PooledConnection::Http1(http1) => self.reused && (failed.is_unprocessed || !http1.has_received()),
            PooledConnection::Http2(stream) => {
                (self.reused || stream.slot.has_had_company()) && failed.error.is_end_of_connection()
            }
        }
    }

    /// Sends `request` and waits for the response head.
    ///
    /// # Errors
    /// No response was received, or none that is HTTP.
    #[inline]
    pub fn send(
        &self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<IncomingBody>, SendError<B>>> + use<B> {
        match &self.pooled {
            PooledConnection::Http1(http1) => Either::Left(http1.send(request)),
            // Boxed: it is large, and most connections are HTTP/1.1.
            PooledConnection::Http2(stream) => Either::Right(Box::pin(stream.slot.send(request))),
        }
    }

    /// Ready once requests of other clients need the connection. To be called only where the client of its request has
    /// left, and will never read the response.
    pub async fn evicted(&self) {
        self.held.evicted(false).await;
    }

    /// Whether it can carry a WebSocket.
    pub fn offers_websockets(&self) -> bool {
        match &self.pooled {
            PooledConnection::Http1(_) => true,
            PooledConnection::Http2(stream) => stream.slot.offers_websockets(),
        }
    }

    /// Turns the connection into a stream of bytes after `response`, which switches protocols. It does not return to
    /// the pool. `None`: the connection has ended.
    pub async fn upgrade(self, response: Response<IncomingBody>) -> Option<UpgradedConnection<B>> {
        let (stream, received) = match self.pooled {
            PooledConnection::Http1(http1) => {
                let (io, received) = http1.into_upgraded()?;
                (UpgradedStream::Socket(io), received)
            }
            PooledConnection::Http2(stream) => {
                let tunnel = Http2Tunnel::new(response.into_body(), &stream.slot)?;
                (UpgradedStream::Http2(tunnel, stream), Bytes::new())
            }
        };
        Some(UpgradedConnection::new(stream, received, self.in_flight, self.held))
    }

    /// Checks the connection in after the whole request was sent and the whole response was read.
    pub fn release(self) {
        let Self { pooled, in_flight, held, .. } = self;
        // The next request may be of an address that already holds as many connections as it may.
        drop(held);
        let http1 = match pooled {
            PooledConnection::Http1(http1) => http1,
            PooledConnection::Http2(stream) => return stream.slot.release(),
        };
        if http1.is_at_rest() {
            in_flight.upstream.check_in(http1, &in_flight.host);
        } else if http1.is_unfinished() {
            // The upstream may have responded without reading the whole request.
            tokio::task::spawn_local(async move {
                if let Ok(true) = timeout(READY_TIMEOUT, http1.finish()).await {
                    in_flight.upstream.check_in(http1, &in_flight.host);
                }
            });
        }
    }
}
