//! One client's connection: hyper's HTTP/1.1 machine, driven until it is done or time is up.

use std::{
    convert::Infallible,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http1, service::Service};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::Sleep};

use super::io::ClientIo;
use crate::{
    proxy::{Patience, ResponseBody, Waiting},
    telemetry::metrics::ThreadMetrics,
};

/// After so long without a request a connection gives its buffers back.
const PARK_AFTER: Duration = Duration::from_millis(250);

/// A connection being served. Its output is the socket, for whoever closes it, where the client may
/// still be sending.
pub(super) struct Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>,
{
    state: State<S>,
    builder: Rc<http1::Builder>,
    patience: Rc<Patience>,
    metrics: Arc<ThreadMetrics>,
    timer: Pin<Box<Sleep>>,
    /// Whether the timer knows whom to wake.
    armed: bool,
    draining: bool,
}

/// hyper's machine holds some 20 KiB of buffers, which is much for a client that is silent. So it is
/// made when the first byte of a request waits to be read, and given up when no other follows soon.
enum State<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>,
{
    Parked { io: ClientIo, service: S },
    Serving(Box<http1::Connection<TokioIo<ClientIo>, S>>),
    Ended,
}

impl<S> Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible> + Unpin,
{
    pub(super) fn new(
        io: ClientIo,
        service: S,
        builder: Rc<http1::Builder>,
        patience: Rc<Patience>,
        metrics: Arc<ThreadMetrics>,
    ) -> Self {
        let timer = Box::pin(tokio::time::sleep_until(patience.deadline().into()));
        let state = State::Parked { io, service };
        Self { state, builder, patience, metrics, timer, armed: false, draining: false }
    }

    /// Serves what there is to serve.
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Option<TcpStream>> {
        loop {
            match &mut self.state {
                State::Ended => return Poll::Ready(None),
                State::Parked { io, .. } => match io.poll_readable(cx) {
                    Poll::Ready(true) => {
                        self.unpark();
                        continue;
                    }
                    Poll::Ready(false) => return Poll::Ready(None),
                    Poll::Pending if self.patience.is_draining() => return Poll::Ready(None),
                    Poll::Pending => {}
                },
                State::Serving(http) => {
                    if let Poll::Ready(result) = Pin::new(&mut **http).poll(cx) {
                        return Poll::Ready(self.ended(result));
                    }
                    // Only after a look at the socket: a request that has come already is served.
                    if self.patience.is_draining() && !self.draining {
                        self.draining = true;
                        Pin::new(&mut **http).graceful_shutdown();
                        continue;
                    }
                    if self.patience.take_elapsed() {
                        // Time was up, and nobody was left to answer for it.
                        return Poll::Ready(None);
                    }
                }
            }
            ready!(self.poll_patience(cx));
            match self.patience.waiting() {
                // Whoever waits says so to the client.
                Waiting::Upstream | Waiting::RequestBody => self.patience.set_elapsed(),
                _ if self.patience.deadline() > Instant::now() => self.park(),
                waiting => {
                    tracing::debug!(?waiting, "connection timed out");
                    return Poll::Ready(None);
                }
            }
        }
    }

    /// Ready once the time for what the connection waits for is up, or it is time to park.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut deadline = self.patience.deadline();
        if self.may_park() {
            deadline = deadline.min(self.patience.since() + PARK_AFTER);
        }
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

    /// Whether nothing is under way: neither a request, nor the rest of an answer or of a body.
    fn may_park(&self) -> bool {
        matches!(self.state, State::Serving(_))
            && matches!(self.patience.waiting(), Waiting::FirstRequest | Waiting::Request)
            && !self.patience.has_left_body()
            && !self.patience.is_write_blocked()
    }

    fn park(&mut self) {
        if let State::Serving(http) = std::mem::replace(&mut self.state, State::Ended) {
            let http1::Parts { io, read_buf, service, .. } = http.into_parts();
            let mut io = io.into_inner();
            // The beginning of another request may have come with the last one.
            io.unread(read_buf);
            self.state = State::Parked { io, service };
        }
    }

    fn unpark(&mut self) {
        if let State::Parked { io, service } = std::mem::replace(&mut self.state, State::Ended) {
            self.state = State::Serving(Box::new(self.builder.serve_connection(TokioIo::new(io), service)));
        }
    }

    /// The socket, where the client may still be sending.
    fn ended(&mut self, result: hyper::Result<()>) -> Option<TcpStream> {
        let still_sending = match result {
            Ok(()) => self.patience.has_left_body(),
            Err(error) => {
                tracing::debug!("connection ended: {error}");
                // hyper has answered a head that is none; its rest may still come.
                if error.is_parse() {
                    self.metrics.bad_requests().inc();
                }
                error.is_parse()
            }
        };
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Serving(http) if still_sending => Some(http.into_parts().io.into_inner().into_stream()),
            _ => None,
        }
    }
}

impl<S> Future for Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible> + Unpin,
{
    type Output = Option<TcpStream>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.patience.begin_poll(cx);
        let output = self.advance(cx);
        self.patience.end_poll(self.timer.deadline().into_std());
        output
    }
}
