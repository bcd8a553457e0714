//! One client's connection: hyper's HTTP/1.1 connection, driven until it ends or times out, and the lingering close
//! after it.

use std::{
    convert::Infallible,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::{body::Incoming, server::conn::http1, service::Service};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{alarm::Alarm, connections::RegisteredConnection, io::ClientIo, stream::Stream};
use crate::proxy::{HeadFault, Phase, PhaseTimer, ResponseBody, Tunnel};

/// A connection without a request for this long is parked, which frees its buffers.
const PARK_AFTER: Duration = Duration::from_millis(250);

/// A connection being served. Its output says how it ended.
pub(super) struct Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>,
{
    state: ConnectionState<S>,
    builder: Rc<http1::Builder>,
    timer: Rc<PhaseTimer>,
    registered: Rc<RegisteredConnection>,
    alarm: Alarm,
    draining: bool,
    /// Whether the client may still begin with HTTP/2 instead.
    may_be_http2: bool,
}

/// How a connection ended.
pub(super) enum Ended {
    Closed,
    /// The client may still be sending.
    Lingering(Stream),
    /// What came is no request that hyper could hand on.
    Refused(Box<RefusedHead>),
    /// The client speaks HTTP/2. Nothing was served yet.
    Http2(Box<ClientIo>),
    /// Both sides have agreed to another protocol.
    Tunnel(Box<Tunnel>, Box<ClientIo>),
}

/// A head of which hyper made no request.
pub(super) struct RefusedHead {
    pub(super) stream: Stream,
    pub(super) fault: HeadFault,
    /// What there is of the head. Empty if hyper had read it to its end.
    pub(super) head: Bytes,
    /// hyper has answered it already.
    pub(super) is_answered: bool,
}

/// hyper's connection holds some 20 KiB of buffers, which is much for an idle client. So it is made when the
/// first byte of a request waits to be read, and dropped when no other request follows soon.
enum ConnectionState<S>
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
        timer: Rc<PhaseTimer>,
        registered: Rc<RegisteredConnection>,
        may_be_http2: bool,
    ) -> Self {
        let alarm = Alarm::new(timer.deadline());
        let state = ConnectionState::Parked { io, service };
        Self { state, builder, timer, registered, alarm, draining: false, may_be_http2 }
    }

    /// Serves until the connection has to wait.
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        loop {
            match &mut self.state {
                ConnectionState::Ended => return Poll::Ready(Ended::Closed),
                ConnectionState::Parked { io, .. } if self.may_be_http2 => match io.poll_is_http2(cx) {
                    Poll::Ready(Some(false)) => {
                        self.may_be_http2 = false;
                        continue;
                    }
                    Poll::Ready(Some(true)) => return Poll::Ready(self.begin_http2()),
                    Poll::Ready(None) => return Poll::Ready(Ended::Closed),
                    Poll::Pending if self.timer.is_draining() => return Poll::Ready(Ended::Closed),
                    Poll::Pending => {}
                },
                ConnectionState::Parked { io, .. } => match io.poll_readable(cx) {
                    Poll::Ready(true) => {
                        self.unpark();
                        continue;
                    }
                    Poll::Ready(false) => return Poll::Ready(Ended::Closed),
                    Poll::Pending if self.timer.is_draining() => {
                        io.close(cx);
                        return Poll::Ready(Ended::Closed);
                    }
                    Poll::Pending => {}
                },
                ConnectionState::Serving(http) => {
                    if let Poll::Ready(result) = Pin::new(&mut **http).poll(cx) {
                        return Poll::Ready(self.ended(result, cx));
                    }
                    // Only after the socket was polled: a request that has come already is served.
                    if self.timer.is_draining() && !self.draining {
                        self.draining = true;
                        Pin::new(&mut **http).graceful_shutdown();
                        continue;
                    }
                    if self.timer.take_timed_out() {
                        // The phase timed out, and no code of the request was left to answer.
                        return Poll::Ready(Ended::Closed);
                    }
                }
            }
            let is_evicted = self.timer.is_evicted();
            if !is_evicted {
                ready!(self.poll_deadline(cx));
            }
            match self.timer.phase() {
                // The code that waits answers the client.
                phase @ (Phase::Upstream | Phase::RequestBody) => {
                    if is_evicted || phase == Phase::RequestBody {
                        self.timer.cut_off_client();
                    }
                    self.timer.set_timed_out();
                }
                phase if !is_evicted && self.timer.deadline() > Instant::now() => {
                    self.registered.set_idle();
                    if phase != Phase::RequestHead {
                        self.park();
                    }
                }
                Phase::Client => {
                    self.timer.cut_off_client();
                    self.reset();
                    return Poll::Ready(Ended::Closed);
                }
                // hyper has the end of the response, and the client has not taken it.
                Phase::Request if self.timer.is_response_pending() && self.timer.is_write_blocked() => {
                    self.registered.count_cut_off(self.timer.slow_reader());
                    self.reset();
                    return Poll::Ready(Ended::Closed);
                }
                Phase::RequestHead if !self.timer.is_response_pending() && self.is_serving() => {
                    return Poll::Ready(self.refuse(HeadFault::Timeout, true));
                }
                phase => {
                    tracing::debug!(waiting = ?phase, "connection timed out");
                    if let ConnectionState::Parked { io, .. } = &mut self.state {
                        io.close(cx);
                    }
                    return Poll::Ready(Ended::Closed);
                }
            }
        }
    }

    /// Ready once the phase has timed out, or the connection has been without a request for long enough to be idle.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut deadline = self.timer.deadline();
        if self.may_park() || self.waits_for_head() {
            deadline = deadline.min(self.timer.since() + PARK_AFTER);
        }
        self.alarm.poll(cx, deadline, self.timer.now())
    }

    /// Whether the connection is idle: no request is in flight, nor the rest of an answer or of a body.
    fn may_park(&self) -> bool {
        matches!(self.state, ConnectionState::Serving(_))
            && matches!(self.timer.phase(), Phase::FirstRequest | Phase::Request)
            && !self.timer.is_body_unread()
            && !self.timer.is_write_blocked()
    }

    /// Whether a head has begun to come, and the connection does not count as idle yet: one whose head never ends does.
    fn waits_for_head(&self) -> bool {
        self.timer.phase() == Phase::RequestHead && !self.registered.is_idle()
    }

    fn park(&mut self) {
        if let ConnectionState::Serving(http) = std::mem::replace(&mut self.state, ConnectionState::Ended) {
            let http1::Parts { io, read_buf, service, .. } = http.into_parts();
            let mut io = io.into_inner();
            // The beginning of the next request may have been read with the last one.
            io.unread(read_buf);
            self.state = ConnectionState::Parked { io, service };
        }
    }

    fn unpark(&mut self) {
        if let ConnectionState::Parked { io, service } =
            std::mem::replace(&mut self.state, ConnectionState::Ended)
        {
            self.state =
                ConnectionState::Serving(Box::new(self.builder.serve_connection(TokioIo::new(io), service)));
        }
    }

    fn begin_http2(&mut self) -> Ended {
        match std::mem::replace(&mut self.state, ConnectionState::Ended) {
            ConnectionState::Parked { io, .. } => Ended::Http2(Box::new(io)),
            _ => Ended::Closed,
        }
    }

    fn ended(&mut self, result: hyper::Result<()>, cx: &mut Context<'_>) -> Ended {
        if self.timer.phase() == Phase::Tunnel && result.is_ok() {
            return self.begin_tunnel();
        }
        let still_sending = match result {
            Ok(()) => self.timer.is_body_unread(),
            Err(error) => {
                tracing::debug!("connection closed: {error}");
                if error.is_parse() {
                    let fault = match (error.is_parse_version_h2(), error.is_parse_too_large()) {
                        (true, _) => HeadFault::Http2,
                        (false, true) => HeadFault::Unparsed(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
                        (false, false) => HeadFault::Unparsed(StatusCode::BAD_REQUEST),
                    };
                    return self.refuse(fault, !is_head_read(&error));
                }
                if self.timer.is_end_of_response() {
                    self.reset();
                }
                false
            }
        };
        match std::mem::replace(&mut self.state, ConnectionState::Ended) {
            ConnectionState::Serving(http) if still_sending => {
                Ended::Lingering(http.into_parts().io.into_inner().into_stream())
            }
            // Where a request asked for another protocol and did not get it, hyper leaves this to others.
            ConnectionState::Serving(http) => {
                http.into_parts().io.into_inner().close(cx);
                Ended::Closed
            }
            _ => Ended::Closed,
        }
    }

    fn is_serving(&self) -> bool {
        matches!(self.state, ConnectionState::Serving(_))
    }

    /// hyper made no request of a head, which it has still, if it `has_head`.
    fn refuse(&mut self, fault: HeadFault, has_head: bool) -> Ended {
        match std::mem::replace(&mut self.state, ConnectionState::Ended) {
            ConnectionState::Serving(http) => {
                let http1::Parts { io, read_buf, .. } = http.into_parts();
                let io = io.into_inner();
                let head = if has_head { read_buf } else { Bytes::new() };
                // hyper answers every head that it can't parse, but for one of HTTP/2.
                let is_answered = matches!(fault, HeadFault::Unparsed(_)) && io.withheld().is_none();
                let fault = io.withheld().map_or(fault, HeadFault::Unparsed);
                Ended::Refused(Box::new(RefusedHead { stream: io.into_stream(), fault, head, is_answered }))
            }
            _ => Ended::Closed,
        }
    }

    /// hyper's connection ends with an answer that switches protocols, and leaves the socket open.
    fn begin_tunnel(&mut self) -> Ended {
        // hyper does not wait until the whole answer is written: a client that has not read earlier ones gets no tunnel.
        let tunnel = self.timer.take_tunnel().filter(|_| !self.timer.is_write_blocked());
        match (tunnel, std::mem::replace(&mut self.state, ConnectionState::Ended)) {
            (Some(tunnel), ConnectionState::Serving(http)) => {
                let http1::Parts { io, read_buf, .. } = http.into_parts();
                let mut io = io.into_inner();
                // What the client has sent right behind its request.
                io.unread(read_buf);
                Ended::Tunnel(tunnel, Box::new(io))
            }
            _ => Ended::Closed,
        }
    }
}

impl<S> Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>,
{
    /// Ends the connection amid a response. Closed in order, the kernel would keep what was written of it, for as long as
    /// the client likes: megabytes of a client that does not read.
    fn reset(&mut self) {
        if let ConnectionState::Serving(http) = std::mem::replace(&mut self.state, ConnectionState::Ended) {
            http.into_parts().io.into_inner().into_stream().into_socket().reset();
        }
    }
}

/// Whether hyper had read the head to its end when it failed, so that what is left came behind it. hyper tells only by its
/// words.
fn is_head_read(error: &hyper::Error) -> bool {
    let words = error.to_string();
    ["content-length", "transfer-encoding"].iter().any(|field| words.contains(field))
}

impl RefusedHead {
    /// Answers, unless hyper has, and ends the connection.
    pub(super) async fn close(mut self, answer: &[u8]) {
        let answered = async {
            self.is_answered
                || (self.stream.write_all(answer).await.is_ok() && self.stream.flush().await.is_ok())
        };
        if timeout(Linger::SHORT.time, answered).await == Ok(true) {
            lingering_close(self.stream, Linger::SHORT).await;
        }
    }
}

impl<S> Drop for Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>,
{
    fn drop(&mut self) {
        // One that was never begun has the timer that has it.
        drop(self.timer.take_tunnel());
        if self.timer.is_end_of_response() {
            self.reset();
        }
    }
}

impl<S> Future for Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible> + Unpin,
{
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.timer.begin_poll(cx);
        let output = self.advance(cx);
        self.timer.end_poll(self.alarm.time());
        output
    }
}

/// How long, and how much, a lingering close reads at most. What comes after that is reset.
#[derive(Clone, Copy)]
pub(super) struct Linger {
    time: Duration,
    pub(super) bytes: usize,
}

impl Linger {
    /// For a client that has no more to send than what is on its way.
    pub(super) const SHORT: Self = Self { time: Duration::from_secs(2), bytes: 1 << 20 };
    /// For one whose request was refused before its body had come. Many clients send all of it before they read the
    /// response. nginx waits for as long.
    pub(super) const UPLOAD: Self = Self { time: Duration::from_secs(30), bytes: 64 << 20 };
}

/// How long a client may send nothing meanwhile.
const LINGER_IDLE: Duration = Duration::from_secs(2);

/// Reads and drops what the client still sends, until it has seen that the connection is closing (nginx'
/// lingering close).
///
/// A socket that is closed with bytes unread is reset, and a reset may overtake the answer on its way
/// to the client (RFC 9112, 9.6): a client whose upload was refused would see a broken connection
/// instead of the refusal.
pub(super) async fn lingering_close(mut stream: Stream, linger: Linger) {
    let mut scratch = [0; 4096];
    let drain = async {
        // Nothing more is written. TLS says so, and what the client still sends need not be decrypted.
        let _broken = stream.shutdown().await;
        let mut socket = stream.into_socket();
        let mut left = linger.bytes;
        while let Ok(Ok(read @ 1..)) = timeout(LINGER_IDLE, socket.read(&mut scratch)).await {
            left = left.saturating_sub(read);
            // The reset would take from the client what the kernel still has for it.
            if left == 0 && socket.is_acknowledged() {
                break;
            }
        }
    };
    // Either way the connection ends here.
    let _ = timeout(linger.time, drain).await;
}
