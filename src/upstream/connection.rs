//! Connections to an endpoint, checked out for one request at a time.

use std::{rc::Rc, time::Duration};

use http::{Request, Response};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use tokio::{task::AbortHandle, time::timeout};

use super::{RequestBody, UpgradedConnection, addresses::HeldConnection, pool::UpstreamPool};

/// How long a connection may take from the end of an answer until it takes the next request.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection as the pool keeps it between requests. Closed when dropped.
///
/// A task of its own drives hyper's connection. Polling the connection from the request that waits on it
/// was tried: it saves task switches, but costs more in the kernel, because requests then go out one by
/// one instead of in batches, and the origin is woken for each.
pub(super) struct PooledConnection<B> {
    pub(super) sender: SendRequest<B>,
    pub(super) task: AbortHandle,
    pub(super) endpoint: usize,
    /// The version of the TLS settings that it was opened under. 0: it has no TLS.
    pub(super) tls_version: u64,
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

    /// The stream of bytes that the connection has become with `response`, which switches protocols. It does not return to
    /// the pool.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn upgrade(self, response: Response<Incoming>) -> hyper::Result<UpgradedConnection<B>> {
        let upgraded = hyper::upgrade::on(response).await?;
        Ok(UpgradedConnection::new(upgraded, self.in_flight, self.held))
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
pub(super) struct InFlightGuard<B: RequestBody> {
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
