//! Connections to a host, checked out for one request at a time.

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, future::Either};
use http::{Request, Response};
use hyper::upgrade::Parts;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::{
    host_pool::HostPool,
    upgraded::{UpgradedConnection, UpgradedStream},
    upstream_pool::{InFlightGuard, PooledConnection, UpstreamPool},
};
use crate::upstream::{
    ExchangeError, IncomingBody, OutgoingBody, SendError, addresses::HeldConnection, http2::Http2Tunnel,
    io::UpstreamIo,
};

/// How long a connection may take from the end of an answer until it takes the next request.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection checked out for one request. Dropped before [`UpstreamConnection::release`], it is closed: that
/// is how an abandoned request cancels the upstream's work.
pub struct UpstreamConnection<B: OutgoingBody> {
    link: PooledConnection<B>,
    in_flight: InFlightGuard<B>,
    held: HeldConnection,
    reused: bool,
}

impl<B: OutgoingBody> UpstreamConnection<B> {
    pub(super) fn new(
        link: PooledConnection<B>,
        host: &Rc<HostPool<B>>,
        upstream: &Rc<UpstreamPool<B>>,
        held: HeldConnection,
        reused: bool,
    ) -> Self {
        if let PooledConnection::Http2(stream) = &link {
            stream.slot.set_client(held.client());
        }
        Self { in_flight: InFlightGuard::new(upstream, host), held, link, reused }
    }

    /// If the request on it ends before its time, that is no doing of its client: the endpoint was too slow, or did not want it.
    pub fn excuse_client(&self) {
        if let PooledConnection::Http2(stream) = &self.link {
            stream.slot.excuse_client();
        }
    }

    /// Whether it served another request before: the upstream may have closed it in the meantime.
    pub fn is_reused(&self) -> bool {
        self.reused
    }

    /// What it is connected to.
    pub fn host(&self) -> &Rc<HostPool<B>> {
        &self.in_flight.host
    }

    /// Whether it is a stream of a connection that others share. Then [`UpstreamConnection::send`] itself says what may be sent again.
    pub fn is_shared(&self) -> bool {
        matches!(self.link, PooledConnection::Http2(_))
    }

    /// Whether a request `failed` because this connection, which serves or served another one, was closed by the time it was
    /// used: not one byte of an answer has come.
    pub fn was_closed<Q>(&self, failed: &SendError<Q>) -> bool {
        match &self.link {
            PooledConnection::Http1(pooled) => {
                self.reused && (failed.is_unprocessed || !pooled.received.has_any())
            }
            PooledConnection::Http2(stream) => {
                (self.reused || stream.slot.has_had_company()) && failed.error.is_end_of_connection()
            }
        }
    }

    /// Sends `request` and waits for the head of the answer.
    ///
    /// # Errors
    /// No answer came, or none that is HTTP.
    #[inline]
    pub fn send(
        &mut self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<IncomingBody>, SendError<B>>> + use<B> {
        match &mut self.link {
            PooledConnection::Http1(pooled) => {
                pooled.received.reset();
                Either::Left(pooled.sender.try_send_request(request).map(|answer| match answer {
                    Ok(response) => Ok(response.map(IncomingBody::Http1)),
                    Err(mut failed) => {
                        let request = failed.take_message().map(Box::new);
                        let error = ExchangeError::Http1(failed.into_error());
                        Err(SendError { error, is_unprocessed: request.is_some(), request })
                    }
                }))
            }
            // Boxed: it is large, and most connections are the other ones.
            PooledConnection::Http2(stream) => Either::Right(Box::pin(stream.slot.send(request))),
        }
    }

    /// Ready once the connection is wanted for requests of other clients. To be called where the client of the request on
    /// it has gone, and will never read the answer.
    pub async fn evicted(&self) {
        self.held.evicted(false).await;
    }

    /// Whether a WebSocket may pass on it.
    pub fn offers_websockets(&self) -> bool {
        match &self.link {
            PooledConnection::Http1(_) => true,
            PooledConnection::Http2(stream) => stream.slot.offers_websockets(),
        }
    }

    /// The stream of bytes that the connection has become with `response`, which switches protocols. It does not return to
    /// the pool. `None`: the connection has ended.
    pub async fn upgrade(self, response: Response<IncomingBody>) -> Option<UpgradedConnection<B>> {
        let (stream, received) = match self.link {
            PooledConnection::Http1(pooled) => {
                let upgraded = hyper::upgrade::on(response).await.ok()?;
                drop(pooled);
                let Parts { io, read_buf, .. } = upgraded.downcast::<TokioIo<UpstreamIo>>().ok()?;
                let mut io = io.into_inner();
                io.set_upgraded();
                (UpgradedStream::Socket(io), read_buf)
            }
            PooledConnection::Http2(stream) => {
                let tunnel = Http2Tunnel::new(response.into_body(), &stream.slot)?;
                (UpgradedStream::Http2(tunnel, stream), Bytes::new())
            }
        };
        Some(UpgradedConnection::new(stream, received, self.in_flight, self.held))
    }

    /// Checks the connection in after a whole request was sent and its whole answer was read.
    pub fn release(self) {
        let Self { link, in_flight, held, .. } = self;
        // The request that gets it next may be of an address that holds as many.
        drop(held);
        let mut pooled = match link {
            PooledConnection::Http1(pooled) => pooled,
            PooledConnection::Http2(stream) => return stream.slot.release(),
        };
        if pooled.sender.is_ready() {
            in_flight.upstream.check_in(pooled, &in_flight.host);
        } else if !pooled.sender.is_closed() {
            // The task that drives it has not noticed the end of the exchange yet. It may never notice, where
            // the upstream answered without reading the request to its end.
            tokio::task::spawn_local(async move {
                if let Ok(Ok(())) = timeout(READY_TIMEOUT, pooled.sender.ready()).await {
                    in_flight.upstream.check_in(pooled, &in_flight.host);
                }
            });
        }
    }
}
