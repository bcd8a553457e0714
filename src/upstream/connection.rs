//! One connection to an endpoint, lent to one request at a time.

use std::{future::poll_fn, pin::pin, rc::Rc, task::Context};

use http::{Request, Response};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use tokio::sync::OwnedSemaphorePermit;

use super::{RequestBody, driver::Driver, pool::Open, pool::Upstream};

/// What is kept of a connection between requests. Dropped, it is closed.
pub(super) struct Link<B: RequestBody> {
    pub(super) sender: SendRequest<B>,
    pub(super) driver: Driver<B>,
    pub(super) endpoint: usize,
    /// Its place among the connections of the process, and of the worker.
    pub(super) _permit: OwnedSemaphorePermit,
    pub(super) _open: Open,
}

impl<B: RequestBody> Link<B> {
    /// Whether it is open and takes another request, as far as is known without looking at the socket.
    pub(super) fn is_ready(&self) -> bool {
        self.driver.is_inline() && self.sender.is_ready()
    }

    /// Whether it is open and takes another request.
    pub(super) fn looks_ready(&mut self) -> bool {
        self.driver.glance();
        self.is_ready()
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
        let mut answer = pin!(self.link.sender.try_send_request(request));
        let driver = &mut self.link.driver;
        let answer = poll_fn(|cx| {
            driver.poll(cx);
            answer.as_mut().poll(cx)
        });
        answer.await.map_err(|mut failed| {
            let unsent = failed.take_message();
            SendError { error: failed.into_error(), unsent }
        })
    }

    /// Reads and writes what there is: whoever waits for the answer's body calls it.
    pub fn drive(&mut self, cx: &mut Context<'_>) {
        self.link.driver.poll(cx);
    }

    /// Lets the connection run by itself: the request is still being sent while its answer comes.
    pub fn drive_by_itself(&mut self) {
        self.link.driver.spawn();
    }

    /// Gives the connection back after a whole request was sent and its whole answer was read.
    pub fn release(self) {
        let Self { mut link, in_flight, .. } = self;
        if link.is_ready() || link.looks_ready() {
            in_flight.upstream.put_back(link);
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
