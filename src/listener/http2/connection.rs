//! One client's HTTP/2 connection, driven until it ends or has been without a stream for too long.

use std::{
    convert::Infallible,
    error::Error,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use h2::Reason;
use http::{Request, Response};
use hyper::{
    body::Incoming,
    server::conn::http2::{self, Builder},
    service::Service,
};
use hyper_util::rt::TokioIo;

use super::{
    delivery::{DeliveryMonitor, DeliveryState},
    io::{BATCH, ClientHttp2Io},
    streams::{StreamExecutor, Streams},
};
use crate::{
    listener::alarm::Alarm,
    proxy::{ConnectionState, Phase, ResponseBody},
    telemetry::metrics::{CutOff, CutOffBody, CutOffReason, Http2Abuse},
};

/// A connection without a stream for this long counts as idle and may make room for another.
const IDLE_AFTER: Duration = Duration::from_millis(250);

/// How long a client has to acknowledge the shutdown of a connection, once no stream is open and it has received
/// everything.
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(5);

/// Flow-control windows of a stream and of a connection (RFC 9113, 6.9.2). An upload over a round trip of 100 ms is not
/// slowed down below 20 Mbit/s, and a client can't make the proxy buffer more.
pub(super) const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Bytes of a response that are buffered for a stream whose client does not read.
const SEND_BUFFER: usize = 64 << 10;

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::listener) enum Http2End {
    /// The connection was shut down, or the client has closed it.
    InOrder,
    /// It had to make room for another connection.
    Evicted,
    /// The client has abused HTTP/2.
    Abuse(Http2Abuse),
    /// The client reads its responses too slowly.
    TooSlow(CutOff),
}

/// As many streams as a client may have open, those that were reset before they were looked at, may wait on the connection of
/// a trusted proxy: each of its clients may end a request, and streams that have ended do not count as open.
const RESETS_OF_CLIENTS: usize = 100;

/// A connection being served. Its output is why it ended. The caller closes the stream after that.
pub(in crate::listener) struct ClientHttp2Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>,
{
    http: http2::Connection<TokioIo<ClientHttp2Io>, S, StreamExecutor>,
    io: ClientHttp2Io,
    streams: Rc<Streams>,
    state: Rc<ConnectionState>,
    alarm: Alarm,
    /// The deadline for the client's first stream.
    first_request: Instant,
    /// When GOAWAY was sent: no further stream is served.
    closing_since: Option<Instant>,
    /// How the client reads its responses, and the number of streams opened when this measurement began.
    delivery: (DeliveryMonitor, u64),
    /// The streams opened and the bytes written when the client had last received everything.
    all_taken: Option<(u64, u64)>,
}

impl<S> ClientHttp2Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible> + Unpin,
    S::Future: 'static,
{
    pub(in crate::listener) fn new(
        io: ClientHttp2Io,
        service: S,
        streams: Rc<Streams>,
        state: Rc<ConnectionState>,
    ) -> Self {
        let first_request = state.timer().deadline();
        // From now on each stream has its own time limits, and the connection has one while no stream is open. Reads
        // and writes of the connection's bytes say nothing about a single request.
        let limit = first_request.saturating_duration_since(Instant::now());
        state.timer().enter(Phase::Upstream, limit);
        let limits = &streams.limits;
        let mut builder = Builder::new(StreamExecutor(Rc::clone(&streams)));
        builder
            .max_concurrent_streams(limits.h2_streams)
            .max_header_list_size(u32::try_from(limits.header_size).unwrap_or(u32::MAX))
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .enable_connect_protocol();
        // The clients behind a trusted proxy share its connection, so one client's abuse must not close it.
        if streams.early_ends.is_some() {
            builder
                .max_pending_accept_reset_streams(RESETS_OF_CLIENTS * limits.h2_streams as usize)
                .max_local_error_reset_streams(None);
        }
        let http = builder.serve_connection(TokioIo::new(io.clone()), service);
        let alarm = Alarm::new(first_request);
        let delivery = (DeliveryMonitor::new(&streams.limits), 0);
        Self {
            http,
            io,
            streams,
            state,
            alarm,
            first_request,
            closing_since: None,
            delivery,
            all_taken: None,
        }
    }

    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Http2End> {
        loop {
            if let Poll::Ready(result) = Pin::new(&mut self.http).poll(cx) {
                let Err(error) = result else { return Poll::Ready(Http2End::InOrder) };
                tracing::debug!("connection closed: {error}");
                return Poll::Ready(match is_excessive_load(&error) {
                    true => Http2End::Abuse(Http2Abuse::ExcessiveLoad),
                    false => Http2End::InOrder,
                });
            }
            self.streams.all_begun();
            if let Poll::Ready(Err(error)) = self.io.poll_send(cx) {
                tracing::debug!("connection closed: {error}");
                return Poll::Ready(Http2End::InOrder);
            }
            self.streams.registered.set_buffered(self.streams.buffered());
            if self.streams.registered.is_shed() {
                let reason = CutOffReason::Memory;
                return Poll::Ready(Http2End::TooSlow(CutOff { body: CutOffBody::Response, reason }));
            }
            if let Some(abuse) = self.streams.abuse() {
                // After a first GOAWAY, another one must not name more streams.
                if self.closing_since.is_none() {
                    self.io.go_away(Reason::ENHANCE_YOUR_CALM);
                }
                return Poll::Ready(Http2End::Abuse(abuse));
            }
            if self.state.makes_room()
                && !self.streams.are_open()
                && matches!(self.taken(), DeliveryState::All)
            {
                // Waiting for an acknowledgement would let a silent client keep its place.
                if self.closing_since.is_none() {
                    self.io.go_away(Reason::NO_ERROR);
                }
                return Poll::Ready(Http2End::Evicted);
            }
            if self.state.is_last_response() && self.closing_since.is_none() {
                self.close();
                continue;
            }
            let deadline = self.deadline();
            ready!(self.alarm.poll(cx, deadline, self.state.timer().now()));
            if self.streams.are_open() {
                // The deadline is checked again when the last stream has ended.
                continue;
            }
            match self.taken() {
                DeliveryState::All => {}
                DeliveryState::Partly(_) => {
                    self.streams.set_idle_since(Instant::now());
                    continue;
                }
                DeliveryState::TooSlowly(cut_off) => return Poll::Ready(Http2End::TooSlow(cut_off)),
            }
            self.streams.registered.set_idle();
            if Instant::now() < self.idle_deadline() {
                continue;
            }
            if self.closing_since.is_none() {
                self.close();
            } else if !self.io.give_up() {
                return Poll::Ready(Http2End::InOrder);
            }
            // Once output is discarded, hyper may end, and report why.
        }
    }

    /// How much of its responses the client has received, with no stream open. Once it has everything, the kernel is
    /// not asked again until more of a response was written: replies to PING keep no connection open.
    fn taken(&mut self) -> DeliveryState {
        let (opened, written) = (self.streams.opened(), self.io.written());
        let was_taken = |(then, taken)| then == opened && written - taken < BATCH as u64;
        if self.streams.unfinished() == 0 && self.all_taken.is_some_and(was_taken) {
            return DeliveryState::All;
        }
        if self.delivery.1 != opened {
            self.delivery = (DeliveryMonitor::new(&self.streams.limits), opened);
        }
        let taken = self.delivery.0.check(self.io.sent());
        if matches!(taken, DeliveryState::All) {
            self.all_taken = Some((opened, written));
        }
        taken
    }

    /// Starts a graceful shutdown: no further stream is served.
    fn close(&mut self) {
        self.closing_since = Some(Instant::now());
        Pin::new(&mut self.http).graceful_shutdown();
    }

    /// When the connection will have been without a stream for too long.
    fn idle_deadline(&self) -> Instant {
        let idle_since = self.streams.idle_since();
        match self.closing_since {
            Some(closing) => closing.max(idle_since) + GOAWAY_TIMEOUT,
            None if !self.streams.have_begun() => self.first_request,
            None => idle_since + self.streams.limits.idle_timeout,
        }
    }

    /// When to check the connection again.
    fn deadline(&self) -> Instant {
        if self.streams.are_open() {
            return self.state.timer().now() + self.streams.limits.idle_timeout;
        }
        if let Some(check) = self.delivery.0.next_check() {
            return check;
        }
        let idle = self.idle_deadline();
        if self.streams.registered.is_idle() {
            idle
        } else {
            idle.min(self.streams.idle_since() + IDLE_AFTER)
        }
    }
}

impl<S> Future for ClientHttp2Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible> + Unpin,
    S::Future: 'static,
{
    type Output = Http2End;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.state.timer().begin_poll(cx);
        let polled = self.advance(cx);
        self.state.timer().end_poll(self.alarm.time());
        polled
    }
}

/// Whether hyper has closed the connection for abuse, rather than the client.
fn is_excessive_load(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        !cause.is_remote() && !cause.is_io() && cause.reason() == Some(Reason::ENHANCE_YOUR_CALM)
    })
}
