//! A client's HTTP/1.1 connection: hyper's, driven until it ends or times out.

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
use tokio::{io::AsyncWriteExt, time::timeout};

use super::{
    alarm::Alarm,
    io::ClientIo,
    lingering_close::{Linger, lingering_close},
    stream::{ClientStream, Socket},
    worker_connections::RegisteredConnection,
};
use crate::{
    proxy::{ConnectionState, HeadFault, NextProtocol, Phase, ResponseBody},
    telemetry::metrics::{CutOff, CutOffBody},
};

/// A connection without a request for this long is parked, which frees its buffers.
const PARK_AFTER: Duration = Duration::from_millis(250);

/// A connection being served. Its output is how it ended.
pub(super) struct ClientHttp1Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>,
{
    http: Http1State<S>,
    builder: Rc<http1::Builder>,
    state: Rc<ConnectionState>,
    registered: Rc<RegisteredConnection>,
    alarm: Alarm,
    /// Whether hyper was asked to end after the request in flight.
    is_draining: bool,
    /// Whether the client may still start HTTP/2 by its preface.
    may_be_http2: bool,
    /// Whether the end of the connection has to be told (close_notify of TLS).
    is_encrypted: bool,
}

/// How a connection ended.
pub(super) enum Http1End {
    Closed,
    /// The client may still be sending.
    Lingering(ClientStream),
    /// A response broke off that ends with the connection.
    BrokenOff(Socket),
    /// hyper could not parse a request.
    Refused(Box<RefusedHead>),
    /// The client speaks HTTP/2. No request was served yet.
    Http2(Box<ClientIo>),
    /// Both sides have agreed to another protocol.
    Tunnel(Box<dyn NextProtocol>, Box<ClientIo>),
}

/// A request head that hyper rejected.
pub(super) struct RefusedHead {
    pub(super) stream: ClientStream,
    pub(super) fault: HeadFault,
    /// The bytes of the head, as far as they were received. Empty if hyper had read the whole head.
    pub(super) head: Bytes,
    /// hyper has already sent a response.
    pub(super) has_response: bool,
}

/// hyper's connection needs some 20 KiB of buffers, which is too much for an idle client. So it is created when the
/// first byte of a request can be read, and dropped when no other request follows soon.
enum Http1State<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>,
{
    Parked { io: ClientIo, service: S },
    Serving(Box<http1::Connection<TokioIo<ClientIo>, S>>),
    Ended,
}

impl<S> ClientHttp1Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible> + Unpin,
{
    pub(super) fn new(
        io: ClientIo,
        service: S,
        builder: Rc<http1::Builder>,
        state: Rc<ConnectionState>,
        registered: Rc<RegisteredConnection>,
        may_be_http2: bool,
    ) -> Self {
        let alarm = Alarm::new(state.timer().deadline());
        let is_encrypted = io.chose_http2().is_some();
        let http = Http1State::Parked { io, service };
        Self { http, builder, state, registered, alarm, is_draining: false, may_be_http2, is_encrypted }
    }

    /// Serves requests until the connection has to wait.
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Http1End> {
        loop {
            if let Poll::Ready(end) = self.poll_http(cx) {
                return Poll::Ready(end);
            }
            let is_evicted = self.state.hand_off().is_evicted();
            if !is_evicted {
                ready!(self.poll_deadline(cx));
            }
            if let Some(end) = self.end_phase(is_evicted, cx) {
                return Poll::Ready(end);
            }
        }
    }

    /// Drives hyper, or waits for bytes that hyper is needed for. Ready if the connection ends.
    fn poll_http(&mut self, cx: &mut Context<'_>) -> Poll<Http1End> {
        loop {
            match &mut self.http {
                Http1State::Ended => return Poll::Ready(Http1End::Closed),
                Http1State::Parked { io, .. } if self.may_be_http2 => match io.poll_is_http2(cx) {
                    Poll::Ready(Some(false)) => self.may_be_http2 = false,
                    Poll::Ready(Some(true)) => return Poll::Ready(self.begin_http2()),
                    Poll::Ready(None) => return Poll::Ready(Http1End::Closed),
                    Poll::Pending if self.state.is_draining() => return Poll::Ready(Http1End::Closed),
                    Poll::Pending => return Poll::Pending,
                },
                Http1State::Parked { io, .. } => match io.poll_begun(cx) {
                    Poll::Ready(true) => self.unpark(),
                    Poll::Pending if !self.state.is_draining() => return Poll::Pending,
                    Poll::Ready(false) | Poll::Pending => {
                        io.close(cx);
                        return Poll::Ready(Http1End::Closed);
                    }
                },
                Http1State::Serving(http) => {
                    if let Poll::Ready(result) = Pin::new(&mut **http).poll(cx) {
                        return Poll::Ready(self.ended(result, cx));
                    }
                    // Only after the socket was polled: a request that was already received is still served.
                    if self.state.is_draining() && !self.is_draining {
                        self.is_draining = true;
                        Pin::new(&mut **http).graceful_shutdown();
                        continue;
                    }
                    if self.state.timer().take_timed_out() {
                        // The phase timed out, and no code of the request was left to send a response.
                        return Poll::Ready(Http1End::Closed);
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Ends the phase: it has timed out, the request in flight `is_evicted`, or the connection has become idle. `None`:
    /// the connection is polled again.
    fn end_phase(&mut self, is_evicted: bool, cx: &mut Context<'_>) -> Option<Http1End> {
        let (timer, meter) = (self.state.timer(), self.state.meter());
        match timer.phase() {
            // The waiting code sends the response.
            phase @ (Phase::Upstream | Phase::RequestBody) => {
                if is_evicted || phase == Phase::RequestBody {
                    self.state.cut_off_client();
                }
                timer.set_timed_out();
                None
            }
            phase if !is_evicted && timer.deadline() > Instant::now() => {
                self.registered.set_idle();
                if phase != Phase::RequestHead {
                    self.park();
                }
                None
            }
            Phase::Client => {
                self.state.cut_off_client();
                self.reset();
                Some(Http1End::Closed)
            }
            // hyper has the whole response, but the client does not read it.
            Phase::Request if meter.is_response_pending() && meter.is_write_blocked() => {
                let (body, reason) = (CutOffBody::Response, timer.cut_off_reason());
                self.registered.count_cut_off(CutOff { body, reason });
                self.reset();
                Some(Http1End::Closed)
            }
            Phase::RequestHead if !meter.is_response_pending() && self.is_serving() => {
                Some(self.refuse(HeadFault::Timeout, true))
            }
            phase => {
                tracing::debug!(waiting = ?phase, "connection timed out");
                if let Http1State::Parked { io, .. } = &mut self.http {
                    io.close(cx);
                }
                Some(Http1End::Closed)
            }
        }
    }

    /// Ready once the phase has timed out, or the connection has had no request for long enough to be idle.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.state.timer();
        let mut deadline = timer.deadline();
        if self.may_park() || self.waits_for_head() {
            deadline = deadline.min(timer.since() + PARK_AFTER);
        }
        self.alarm.poll(cx, deadline, timer.now())
    }

    /// Whether the connection is idle: no request is in flight, and neither a response nor a request body is
    /// incomplete.
    fn may_park(&self) -> bool {
        matches!(self.http, Http1State::Serving(_))
            && matches!(self.state.timer().phase(), Phase::FirstRequest | Phase::Request)
            && !self.state.meter().is_body_unread()
            && !self.state.meter().is_write_blocked()
    }

    /// Whether a request head has begun to arrive and the connection does not count as idle yet. A connection whose
    /// head never ends becomes idle.
    fn waits_for_head(&self) -> bool {
        self.state.timer().phase() == Phase::RequestHead && !self.registered.is_idle()
    }

    fn park(&mut self) {
        if let Http1State::Serving(http) = std::mem::replace(&mut self.http, Http1State::Ended) {
            let http1::Parts { io, read_buf, service, .. } = http.into_parts();
            let mut io = io.into_inner();
            // hyper may have read the beginning of the next request together with the last one.
            io.unread(read_buf);
            self.http = Http1State::Parked { io, service };
        }
    }

    fn unpark(&mut self) {
        if let Http1State::Parked { io, service } = std::mem::replace(&mut self.http, Http1State::Ended) {
            self.http =
                Http1State::Serving(Box::new(self.builder.serve_connection(TokioIo::new(io), service)));
        }
    }

    fn begin_http2(&mut self) -> Http1End {
        match std::mem::replace(&mut self.http, Http1State::Ended) {
            Http1State::Parked { io, .. } => Http1End::Http2(Box::new(io)),
            _ => Http1End::Closed,
        }
    }

    fn ended(&mut self, result: hyper::Result<()>, cx: &mut Context<'_>) -> Http1End {
        if self.state.timer().phase() == Phase::Tunnel && result.is_ok() {
            return self.begin_tunnel();
        }
        let still_sending = match result {
            Ok(()) => self.state.meter().is_body_unread(),
            Err(error) => {
                tracing::debug!("connection closed: {error}");
                if error.is_parse() {
                    let fault = match (error.is_parse_version_h2(), error.is_parse_too_large()) {
                        (true, _) => HeadFault::Http2,
                        (false, true) => HeadFault::Unparsed(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
                        (false, false) if error.to_string().contains(INVALID_URI) => HeadFault::Target,
                        (false, false) => HeadFault::Unparsed(StatusCode::BAD_REQUEST),
                    };
                    return self.refuse(fault, !is_head_read(&error));
                }
                if self.state.meter().is_end_of_response()
                    && let Http1State::Serving(http) = std::mem::replace(&mut self.http, Http1State::Ended)
                {
                    return Http1End::BrokenOff(
                        http.into_parts().io.into_inner().into_stream().into_socket(),
                    );
                }
                false
            }
        };
        match std::mem::replace(&mut self.http, Http1State::Ended) {
            Http1State::Serving(http) if still_sending => {
                Http1End::Lingering(http.into_parts().io.into_inner().into_stream())
            }
            // After an upgrade request that was not granted, hyper does not close the connection.
            Http1State::Serving(http) if self.is_encrypted => {
                http.into_parts().io.into_inner().close(cx);
                Http1End::Closed
            }
            _ => Http1End::Closed,
        }
    }

    fn is_serving(&self) -> bool {
        matches!(self.http, Http1State::Serving(_))
    }

    /// Ends the connection because hyper rejected a head. `has_head`: hyper still has its bytes.
    fn refuse(&mut self, fault: HeadFault, has_head: bool) -> Http1End {
        match std::mem::replace(&mut self.http, Http1State::Ended) {
            Http1State::Serving(http) => {
                let http1::Parts { io, read_buf, .. } = http.into_parts();
                let io = io.into_inner();
                let has_head = has_head && (fault != HeadFault::Target || begins_with_controls(&read_buf));
                let head = if has_head { read_buf } else { Bytes::new() };
                // hyper responds to every head that it can't parse, except one of HTTP/2.
                let has_response =
                    matches!(fault, HeadFault::Unparsed(_) | HeadFault::Target) && io.withheld().is_none();
                let fault = match io.withheld() {
                    Some(status) if fault != HeadFault::Target => HeadFault::Unparsed(status),
                    _ => fault,
                };
                Http1End::Refused(Box::new(RefusedHead {
                    stream: io.into_stream(),
                    fault,
                    head,
                    has_response,
                }))
            }
            _ => Http1End::Closed,
        }
    }

    /// Hands the socket to the tunnel, after hyper has ended with a response that switches protocols.
    fn begin_tunnel(&mut self) -> Http1End {
        // hyper does not wait until the whole response is written. A client that has not read earlier responses gets no
        // tunnel.
        let tunnel = self.state.hand_off().take_tunnel().filter(|_| !self.state.meter().is_write_blocked());
        match (tunnel, std::mem::replace(&mut self.http, Http1State::Ended)) {
            (Some(tunnel), Http1State::Serving(http)) => {
                let http1::Parts { io, read_buf, .. } = http.into_parts();
                let mut io = io.into_inner();
                // Bytes that the client sent right after its request.
                io.unread(read_buf);
                Http1End::Tunnel(tunnel, Box::new(io))
            }
            _ => Http1End::Closed,
        }
    }
}

impl<S> ClientHttp1Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>,
{
    /// Resets the connection in the middle of a response. After an orderly close, the kernel would keep the written
    /// bytes for as long as the client does not read them: megabytes for each such client.
    fn reset(&mut self) {
        if let Http1State::Serving(http) = std::mem::replace(&mut self.http, Http1State::Ended) {
            http.into_parts().io.into_inner().into_stream().into_socket().reset();
        }
    }
}

/// hyper's error message for a request target that is not a URI; nothing else of the error shows it.
const INVALID_URI: &str = "invalid URI";

/// Whether the first line has control characters. hyper refuses a target with one before it takes the head from the buffer; a
/// target with other bytes that a URI can't have, after that.
fn begins_with_controls(buffered: &[u8]) -> bool {
    let line = buffered.trim_ascii_start().split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.trim_ascii_end().iter().any(u8::is_ascii_control)
}

/// Whether hyper had read the whole head when it failed, so that the remaining bytes follow the head. hyper shows this
/// only in its error message.
fn is_head_read(error: &hyper::Error) -> bool {
    let words = error.to_string();
    ["content-length", "transfer-encoding"].iter().any(|field| words.contains(field))
}

impl RefusedHead {
    /// Sends `response`, unless hyper has sent one, and closes the connection.
    pub(super) async fn close(mut self, response: &[u8]) {
        let sent = async {
            self.has_response
                || (self.stream.write_all(response).await.is_ok() && self.stream.flush().await.is_ok())
        };
        if timeout(Linger::SHORT.time, sent).await == Ok(true) {
            lingering_close(self.stream, Linger::SHORT).await;
        }
    }
}

impl<S> Drop for ClientHttp1Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>,
{
    fn drop(&mut self) {
        // A tunnel that never started keeps the state alive, and the state keeps the tunnel.
        drop(self.state.hand_off().take_tunnel());
        if self.state.meter().is_end_of_response() {
            self.reset();
        }
    }
}

impl<S> Future for ClientHttp1Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible> + Unpin,
{
    type Output = Http1End;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.state.timer().begin_poll(cx);
        let output = self.advance(cx);
        self.state.timer().end_poll(self.alarm.time());
        output
    }
}
