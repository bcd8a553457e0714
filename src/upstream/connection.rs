//! One connection to an endpoint, lent to one request at a time.

use std::{rc::Rc, time::Duration};

use http::{Request, Response};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use tokio::{task::AbortHandle, time::timeout};

use super::{RequestBody, pool::Upstream};

/// How long a connection may take from the end of an answer until it takes the next request.
const SETTLING: Duration = Duration::from_secs(1);

/// What is kept of a connection between requests. Dropped, it is closed.
///
/// hyper's machine for it has a task of its own. Polling the machine from the request that waits on it
/// was tried: it spares switches of tasks, but the kernel takes more than that back, for requests then
/// go out one by one instead of in batches, and the origin is woken for each.
pub(super) struct Link<B> {
    pub(super) sender: SendRequest<B>,
    pub(super) task: AbortHandle,
    pub(super) endpoint: usize,
}

impl<B> Drop for Link<B> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection that serves one request. Dropped before [`Connection::release`], it is closed: that
/// is how a request that is given up cancels the upstream's work.
pub struct Connection<B: RequestBody> {
    link: Link<B>,
    in_flight: InFlight<B>,
    reused: bool,
}

/// Why a request got no answer.
pub struct SendError<B> {
    /// What went wrong.
    pub error: hyper::Error,
    /// The request itself, if not one byte of it was sent: it may be repeated whatever it is.
    pub unsent: Option<Request<B>>,
}

impl<B: RequestBody> Connection<B> {
    pub(super) fn new(link: Link<B>, upstream: &Rc<Upstream<B>>, reused: bool) -> Self {
        Self { in_flight: InFlight::begin(upstream, link.endpoint), link, reused }
    }

    /// Whether it served another request before: then the upstream may have closed it unseen.
    pub fn is_reused(&self) -> bool {
        self.reused
    }

    /// The index of its endpoint.
    pub fn endpoint(&self) -> usize {
        self.link.endpoint
    }

    /// Sends `request` and waits for the head of the answer.
    ///
    /// # Errors
    /// No answer came, or none that is HTTP.
    pub async fn send(&mut self, request: Request<B>) -> Result<Response<Incoming>, SendError<B>> {
        self.link.sender.try_send_request(request).await.map_err(|mut failed| {
            let unsent = failed.take_message();
            SendError { error: failed.into_error(), unsent }
        })
    }

    /// Gives the connection back after a whole request was sent and its whole answer was read.
    pub fn release(self) {
        let Self { mut link, in_flight, .. } = self;
        if link.sender.is_ready() {
            in_flight.upstream.put_back(link);
        } else if !link.sender.is_closed() {
            // The task that drives it has not noticed the end of the exchange yet. It may never, where the
            // upstream answered without reading the request to its end.
            tokio::task::spawn_local(async move {
                if let Ok(Ok(())) = timeout(SETTLING, link.sender.ready()).await {
                    in_flight.upstream.put_back(link);
                }
            });
        }
    }
}

/// Counts a request under way on its endpoint until it is dropped.
struct InFlight<B: RequestBody> {
    upstream: Rc<Upstream<B>>,
    endpoint: usize,
}

impl<B: RequestBody> InFlight<B> {
    fn begin(upstream: &Rc<Upstream<B>>, endpoint: usize) -> Self {
        upstream.shared().begin(endpoint);
        Self { upstream: Rc::clone(upstream), endpoint }
    }
}

impl<B: RequestBody> Drop for InFlight<B> {
    fn drop(&mut self) {
        self.upstream.shared().end(self.endpoint);
    }
}
