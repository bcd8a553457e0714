//! One connection to an endpoint, lent to one request at a time.

use std::rc::Rc;

use http::{Request, Response};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use tokio::task::AbortHandle;

use super::{InFlight, RequestBody, pool::Upstream};

/// What is kept of a connection between requests.
pub(super) struct Link<B> {
    pub(super) sender: SendRequest<B>,
    /// Ends the task that drives the connection, and with it the connection.
    pub(super) task: AbortHandle,
    pub(super) endpoint: usize,
}

impl<B> Link<B> {
    pub(super) fn is_usable(&self) -> bool {
        self.sender.is_ready()
    }
}

/// A connection that serves one request. Dropped before [`Connection::release`], it is closed: that
/// is how a request that is given up cancels the upstream's work.
pub struct Connection<B: RequestBody> {
    link: Option<Link<B>>,
    upstream: Rc<Upstream<B>>,
    reused: bool,
    _in_flight: InFlight,
}

/// Why a request got no answer.
pub struct SendError<B> {
    /// What went wrong.
    pub error: hyper::Error,
    /// The request itself, if not one byte of it was sent: it may be repeated whatever it is.
    pub unsent: Option<Request<B>>,
}

impl<B: RequestBody> Connection<B> {
    pub(super) fn new(link: Link<B>, upstream: Rc<Upstream<B>>, reused: bool) -> Self {
        let in_flight = InFlight::new(upstream.shared(), link.endpoint);
        Self { link: Some(link), upstream, reused, _in_flight: in_flight }
    }

    /// Whether it served another request before: then the upstream may have closed it unseen.
    pub fn is_reused(&self) -> bool {
        self.reused
    }

    /// The index of its endpoint.
    pub fn endpoint(&self) -> usize {
        self.link.as_ref().map_or(0, |link| link.endpoint)
    }

    /// Sends `request` and waits for the head of the answer.
    ///
    /// # Errors
    /// No answer came, or none that is HTTP.
    pub async fn send(&mut self, request: Request<B>) -> Result<Response<Incoming>, SendError<B>> {
        // A connection has its link until it is released, which takes it by value.
        let Some(link) = &mut self.link else { unreachable!("a connection is sent on before its release") };
        link.sender.try_send_request(request).await.map_err(|mut failed| {
            let unsent = failed.take_message();
            SendError { error: failed.into_error(), unsent }
        })
    }

    /// Gives the connection back after a whole request was sent and its whole answer was read.
    pub fn release(mut self) {
        let Some(mut link) = self.link.take() else { return };
        let upstream = Rc::clone(&self.upstream);
        if link.is_usable() {
            upstream.put_back(link);
        } else if !link.sender.is_closed() {
            // The task that drives it has not noticed the end of the exchange yet.
            tokio::task::spawn_local(async move {
                if link.sender.ready().await.is_ok() {
                    upstream.put_back(link);
                }
            });
        }
    }
}

impl<B: RequestBody> Drop for Connection<B> {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            link.task.abort();
        }
    }
}
