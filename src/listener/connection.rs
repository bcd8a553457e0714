//! One client's connection: hyper's HTTP/1.1 machine, driven until it is done or time is up.

use std::{
    convert::Infallible,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Instant,
};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::{server::conn::http1, service::Service};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::Sleep};

use super::io::ClientIo;
use crate::proxy::{Patience, ResponseBody, Waiting};

/// A connection being served. Its output is the socket, for whoever closes it, where the client may
/// still be sending.
pub(super) struct Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>,
{
    http: Option<http1::Connection<TokioIo<ClientIo>, S>>,
    patience: Rc<Patience>,
    timer: Pin<Box<Sleep>>,
    /// Whether the timer knows whom to wake.
    armed: bool,
    draining: bool,
}

impl<S> Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>,
{
    pub(super) fn new(http: http1::Connection<TokioIo<ClientIo>, S>, patience: Rc<Patience>) -> Self {
        let timer = Box::pin(tokio::time::sleep_until(patience.deadline().into()));
        Self { http: Some(http), patience, timer, armed: false, draining: false }
    }

    /// Ready once the time for what the connection waits for is up.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.patience.deadline();
        if self.timer.deadline() > deadline.into() {
            self.timer.as_mut().reset(deadline.into());
            self.armed = false;
        }
        // Mostly the timer is set for some time to come, and needs no look.
        if self.armed && self.timer.deadline() > self.patience.now().into() {
            return Poll::Pending;
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                self.armed = false;
                return Poll::Ready(());
            }
            // The deadline has moved on since the timer was set.
            self.timer.as_mut().reset(deadline.into());
        }
        self.armed = true;
        Poll::Pending
    }

    fn finish(&mut self, still_sending: bool) -> Option<TcpStream> {
        let http = self.http.take()?;
        still_sending.then(|| http.into_parts().io.into_inner().into_stream())
    }
}

impl<S> Future for Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible> + Unpin,
{
    type Output = Option<TcpStream>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.patience.begin_poll(cx);
        loop {
            let Some(http) = &mut this.http else { return Poll::Ready(None) };
            if let Poll::Ready(result) = Pin::new(&mut *http).poll(cx) {
                if let Err(error) = &result {
                    tracing::debug!("connection ended: {error}");
                }
                // A head that is refused may come before its rest, as a body that nobody needs may.
                let still_sending =
                    result.map_or_else(|error| error.is_parse(), |()| this.patience.has_left_body());
                return Poll::Ready(this.finish(still_sending));
            }
            // Only after a look at the socket: a request that has come already is served.
            if this.patience.is_draining() && !this.draining {
                this.draining = true;
                Pin::new(&mut *http).graceful_shutdown();
                continue;
            }
            if this.patience.take_elapsed() {
                // Time was up, and nobody was left to answer for it.
                return Poll::Ready(this.finish(false));
            }
            ready!(this.poll_patience(cx));
            match this.patience.waiting() {
                // Whoever waits says so to the client.
                Waiting::Upstream | Waiting::RequestBody => this.patience.set_elapsed(),
                waiting @ (Waiting::FirstRequest
                | Waiting::Request
                | Waiting::RequestHead
                | Waiting::Client) => {
                    tracing::debug!(?waiting, "connection timed out");
                    return Poll::Ready(this.finish(false));
                }
            }
        }
    }
}
