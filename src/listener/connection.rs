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

/// A connection being served. Its output is how it ended.
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
    /// Whether the client may still start HTTP/2 by its preface.
    may_be_http2: bool,
}

/// How a connection ended.
pub(super) enum Ended {
    Closed,
    /// The client may still be sending.
    Lingering(Stream),
    /// hyper could not parse a request.
    Refused(Box<RefusedHead>),
    /// The client speaks HTTP/2. No request was served yet.
    Http2(Box<ClientIo>),
    /// Both sides have agreed to another protocol.
    Tunnel(Box<Tunnel>, Box<ClientIo>),
}

/// A request head that hyper rejected.
pub(super) struct RefusedHead {
    pub(super) stream: Stream,
    pub(super) fault: HeadFault,
    /// The bytes of the head, as far as they were received. Empty if hyper had read the whole head.
    pub(super) head: Bytes,
    /// hyper has already sent a response.
    pub(super) is_answered: bool,
}

/// hyper's connection needs some 20 KiB of buffers, which is too much for an idle client. So it is created when the
/// first byte of a request can be read, and dropped when no other request follows soon.
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

    /// Serves requests until the connection has to wait.
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
                    // Only after the socket was polled: a request that was already received is still served.
                    if self.timer.is_draining() && !self.draining {
                        self.draining = true;
                        Pin::new(&mut **http).graceful_shutdown();
                        continue;
                    }
                    if self.timer.take_timed_out() {
                        // The phase timed out, and no code of the request was left to send a response.
                        return Poll::Ready(Ended::Closed);
                    }
                }
            }
            let is_evicted = self.timer.is_evicted();
            if !is_evicted {
                ready!(self.poll_deadline(cx));
            }
            match self.timer.phase() {
                // The waiting code sends the response.
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
                // hyper has the whole response, but the client does not read it.
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

    /// Ready once the phase has timed out, or the connection has had no request for long enough to be idle.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut deadline = self.timer.deadline();
        if self.may_park() || self.waits_for_head() {
            deadline = deadline.min(self.timer.since() + PARK_AFTER);
        }
        self.alarm.poll(cx, deadline, self.timer.now())
    }

    /// Whether the connection is idle: no request is in flight, and neither a response nor a request body is
    /// incomplete.
    fn may_park(&self) -> bool {
        matches!(self.state, ConnectionState::Serving(_))
            && matches!(self.timer.phase(), Phase::FirstRequest | Phase::Request)
            && !self.timer.is_body_unread()
            && !self.timer.is_write_blocked()
    }

    /// Whether a request head has begun to arrive and the connection does not count as idle yet. A connection whose
    /// head never ends becomes idle.
    fn waits_for_head(&self) -> bool {
        self.timer.phase() == Phase::RequestHead && !self.registered.is_idle()
    }

    fn park(&mut self) {
        if let ConnectionState::Serving(http) = std::mem::replace(&mut self.state, ConnectionState::Ended) {
            let http1::Parts { io, read_buf, service, .. } = http.into_parts();
            let mut io = io.into_inner();
            // hyper may have read the beginning of the next request together with the last one.
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
            // After an upgrade request that was not granted, hyper does not close the connection.
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

    /// Ends the connection because hyper rejected a head. `has_head`: hyper still has its bytes.
    fn refuse(&mut self, fault: HeadFault, has_head: bool) -> Ended {
        match std::mem::replace(&mut self.state, ConnectionState::Ended) {
            ConnectionState::Serving(http) => {
                let http1::Parts { io, read_buf, .. } = http.into_parts();
                let io = io.into_inner();
                let head = if has_head { read_buf } else { Bytes::new() };
                // hyper responds to every head that it can't parse, except one of HTTP/2.
                let is_answered = matches!(fault, HeadFault::Unparsed(_)) && io.withheld().is_none();
                let fault = io.withheld().map_or(fault, HeadFault::Unparsed);
                Ended::Refused(Box::new(RefusedHead { stream: io.into_stream(), fault, head, is_answered }))
            }
            _ => Ended::Closed,
        }
    }

    /// Hands the socket to the tunnel, after hyper has ended with a response that switches protocols.
    fn begin_tunnel(&mut self) -> Ended {
        // hyper does not wait until the whole response is written. A client that has not read earlier responses gets no
        // tunnel.
        let tunnel = self.timer.take_tunnel().filter(|_| !self.timer.is_write_blocked());
        match (tunnel, std::mem::replace(&mut self.state, ConnectionState::Ended)) {
            (Some(tunnel), ConnectionState::Serving(http)) => {
                let http1::Parts { io, read_buf, .. } = http.into_parts();
                let mut io = io.into_inner();
                // Bytes that the client sent right after its request.
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
    /// Resets the connection in the middle of a response. After an orderly close, the kernel would keep the written
    /// bytes for as long as the client does not read them: megabytes for each such client.
    fn reset(&mut self) {
        if let ConnectionState::Serving(http) = std::mem::replace(&mut self.state, ConnectionState::Ended) {
            http.into_parts().io.into_inner().into_stream().into_socket().reset();
        }
    }
}

/// Whether hyper had read the whole head when it failed, so that the remaining bytes follow the head. hyper shows this
/// only in its error message.
fn is_head_read(error: &hyper::Error) -> bool {
    let words = error.to_string();
    ["content-length", "transfer-encoding"].iter().any(|field| words.contains(field))
}

impl RefusedHead {
    /// Sends `response`, unless hyper has sent one, and closes the connection.
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
        // A tunnel that never started keeps the timer alive, and the timer keeps the tunnel.
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

/// Time and bytes that a lingering close reads at most. After that the connection is reset.
#[derive(Clone, Copy)]
pub(super) struct Linger {
    time: Duration,
    pub(super) bytes: usize,
}

impl Linger {
    /// For a client that has nothing more to send than the bytes on their way.
    pub(super) const SHORT: Self = Self { time: Duration::from_secs(2), bytes: 1 << 20 };
    /// For a client whose request was refused before its body had arrived. Many clients send the whole body before they
    /// read the response. nginx waits as long.
    pub(super) const UPLOAD: Self = Self { time: Duration::from_secs(30), bytes: 64 << 20 };
}

/// How long a client may send nothing during a lingering close.
const LINGER_IDLE: Duration = Duration::from_secs(2);

/// Reads and drops bytes from the client until it has seen that the connection is closing (nginx' lingering close).
///
/// A socket that is closed with unread bytes is reset, and the reset may overtake the response on its way to the client
/// (RFC 9112, 9.6). A client whose upload was refused would see a broken connection instead of the refusal.
pub(super) async fn lingering_close(mut stream: Stream, linger: Linger) {
    let mut scratch = [0; 4096];
    let drain = async {
        // Sends the close_notify of TLS. Later bytes from the client need not be decrypted.
        let _broken = stream.shutdown().await;
        let mut socket = stream.into_socket();
        let mut left = linger.bytes;
        while let Ok(Ok(read @ 1..)) = timeout(LINGER_IDLE, socket.read(&mut scratch)).await {
            left = left.saturating_sub(read);
            // A reset drops bytes that the kernel has not delivered to the client yet.
            if left == 0 && socket.is_acknowledged() {
                break;
            }
        }
    };
    // The connection is closed in either case.
    let _ = timeout(linger.time, drain).await;
}
