//! One client's HTTP/2 connection: hyper's, driven until it ends, and its streams, each in a task with time limits of its
//! own.

use std::{
    cell::Cell,
    convert::Infallible,
    error::Error,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Response};
use hyper::{
    body::Incoming,
    rt::Executor,
    server::conn::http2::{self, Builder},
    service::Service,
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    alarm::Alarm, connection::LINGER_BYTES, connections::RegisteredConnection, io::ClientIo, stream::Stream,
};
use crate::{
    config::model::ClientLimits,
    proxy::{ClientWait, Phase, PhaseTimer, RateBudget, ResponseBody},
    telemetry::metrics::Http2Abuse,
};

/// A connection without a stream for this long may make room for another.
const IDLE_AFTER: Duration = Duration::from_millis(250);

/// How long a client has to confirm that it knows of the end of a connection, once no stream is open.
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(5);

/// What a stream may send before it was read, and a connection (RFC 9113, 6.9.2): an upload is not slowed down by a round
/// trip of 100 ms below 20 Mbit/s, and a client can't have more held for it.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Bytes of a response that are held for a stream whose client does not take them yet.
const SEND_BUFFER: usize = 64 << 10;

/// Envoy's rule against rapid resets: once a connection has had so many streams, at least half of them must not have been
/// reset within this time, before they were answered.
const RESETS_JUDGED_FROM: u64 = 500;
const PREMATURE: Duration = Duration::from_secs(1);

/// nginx' rule against floods of frames that ask for nothing (PING, SETTINGS, PRIORITY, padding): at least an eighth of
/// what a client sends is fields and bodies, give or take a mebibyte.
const OVERHEAD_FACTOR: u64 = 8;
const OVERHEAD_SPARE: u64 = 1 << 20;

/// What the streams of a connection tell it.
pub(super) struct Streams {
    open: Cell<usize>,
    opened: Cell<u64>,
    /// Streams that were reset early, before they were answered.
    premature: Cell<u64>,
    /// When the last stream ended.
    idle_since: Cell<Instant>,
    /// Bytes that were read from the connection.
    bytes_read: Cell<u64>,
    /// Of these, bytes of fields and bodies that streams have handed on.
    payload: Cell<u64>,
    /// The timer of the stream that is about to be spawned.
    next: Cell<Option<Rc<PhaseTimer>>>,
    idle_timeout: Duration,
    limits: ClientLimits,
    registered: Rc<RegisteredConnection>,
}

impl Streams {
    pub(super) fn new(limits: &ClientLimits, registered: Rc<RegisteredConnection>) -> Rc<Self> {
        Rc::new(Self {
            open: Cell::new(0),
            opened: Cell::new(0),
            premature: Cell::new(0),
            idle_since: Cell::new(Instant::now()),
            bytes_read: Cell::new(0),
            payload: Cell::new(0),
            next: Cell::new(None),
            idle_timeout: limits.idle_timeout,
            limits: limits.clone(),
            registered,
        })
    }

    /// The timer for a `request` that has just come. The task that is spawned next serves it: hyper calls the service, and
    /// hands its future to the executor at once.
    pub(super) fn begin(&self, request: &Request<Incoming>) -> Rc<PhaseTimer> {
        let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        self.add_payload((fields.sum::<usize>() + target) as u64);
        let timer = Rc::new(PhaseTimer::for_stream(self.idle_timeout));
        self.next.set(Some(Rc::clone(&timer)));
        timer
    }

    fn add_payload(&self, bytes: u64) {
        self.payload.set(self.payload.get() + bytes);
    }

    /// What a client does that only wears the server out, once it is certain.
    fn abuse(&self) -> Option<Http2Abuse> {
        if self.opened.get() >= RESETS_JUDGED_FROM && self.premature.get() * 2 >= self.opened.get() {
            Some(Http2Abuse::RapidResets)
        } else if self.bytes_read.get() / OVERHEAD_FACTOR > self.payload.get() + OVERHEAD_SPARE {
            Some(Http2Abuse::EmptyFrames)
        } else {
            None
        }
    }
}

/// Spawns the streams of a connection.
#[derive(Clone)]
pub(super) struct StreamExecutor(Rc<Streams>);

impl<F: Future<Output = ()> + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        if let Some(timer) = self.0.next.take() {
            tokio::task::spawn_local(serve_stream(stream, timer, OpenStream::new(&self.0)));
        }
    }
}

/// Counts a stream for as long as it is open. It keeps the connection registered, which a drain waits for.
struct OpenStream {
    streams: Rc<Streams>,
    begun: Instant,
    /// Bytes of its body that were counted.
    received: u64,
    is_answered: bool,
}

impl OpenStream {
    fn new(streams: &Rc<Streams>) -> Self {
        streams.open.set(streams.open.get() + 1);
        streams.opened.set(streams.opened.get() + 1);
        Self { streams: Rc::clone(streams), begun: Instant::now(), received: 0, is_answered: false }
    }

    /// Tells the connection how far the stream has come.
    fn update(&mut self, timer: &PhaseTimer) {
        self.streams.add_payload(timer.received() - self.received);
        self.received = timer.received();
        self.is_answered |= timer.take_new_response();
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let streams = &self.streams;
        streams.open.set(streams.open.get() - 1);
        if !self.is_answered && self.begun.elapsed() < PREMATURE {
            streams.premature.set(streams.premature.get() + 1);
        }
        if streams.open.get() == 0 {
            streams.idle_since.set(Instant::now());
        }
    }
}

/// Drives a stream until it ends or times out. One that is dropped is reset, and the others go on.
async fn serve_stream(stream: impl Future<Output = ()>, timer: Rc<PhaseTimer>, mut open: OpenStream) {
    let mut stream = pin!(stream);
    let mut alarm = Alarm::new(timer.deadline());
    let mut reader = StreamReader::new(&open.streams.limits);
    poll_fn(|cx| {
        timer.begin_poll(cx);
        let polled = loop {
            let ended = stream.as_mut().poll(cx).is_ready();
            open.update(&timer);
            // The phase has timed out, and no code of the request was left to answer.
            if ended || timer.take_timed_out() {
                break Poll::Ready(());
            }
            reader.polled(&timer);
            if timer.is_evicted() || alarm.poll(cx, timer.deadline(), timer.now()).is_ready() {
                match timer.phase() {
                    // The code that waits answers the client.
                    phase @ (Phase::Upstream | Phase::RequestBody) => {
                        if timer.is_evicted() || phase == Phase::RequestBody {
                            timer.cut_off_client();
                        }
                        timer.set_timed_out();
                    }
                    Phase::Client => {
                        timer.cut_off_client();
                        break Poll::Ready(());
                    }
                    _ => break Poll::Ready(()),
                }
            } else {
                break Poll::Pending;
            }
        };
        timer.end_poll(alarm.time());
        polled
    })
    .await;
}

/// How fast a client takes the response of one stream. It opens the stream's window as it reads.
struct StreamReader {
    budget: RateBudget,
    waits_since: Option<Instant>,
    sent: u64,
}

impl StreamReader {
    fn new(limits: &ClientLimits) -> Self {
        Self { budget: RateBudget::new(limits.min_rate, limits.idle_timeout), waits_since: None, sent: 0 }
    }

    /// The stream was polled, and has to wait.
    fn polled(&mut self, timer: &PhaseTimer) {
        let is_waiting = timer.phase() == Phase::Client;
        if let Some(since) = self.waits_since
            && (!is_waiting || timer.sent() > self.sent)
        {
            self.budget.spend(timer.now().saturating_duration_since(since));
            self.waits_since = None;
            timer.client_wait_ends(ClientWait::Response);
        }
        self.budget.earn(timer.sent() - self.sent);
        self.sent = timer.sent();
        if is_waiting && self.waits_since.is_none() {
            self.waits_since = Some(timer.now());
            timer.client_wait_begins(ClientWait::Response);
            let by_rate = timer.now() + self.budget.left();
            if by_rate < timer.deadline() {
                timer.set_deadline(by_rate, true);
            }
        }
    }
}

/// The client's stream below HTTP/2: the time limits of reads and writes are those of the streams above.
struct Http2Io {
    stream: Stream,
    /// Bytes that were read before and are to be read again.
    unread: Bytes,
    streams: Rc<Streams>,
    /// Bytes that a lingering close may still read.
    linger_bytes: usize,
}

impl Http2Io {
    fn new(io: ClientIo, streams: Rc<Streams>) -> Self {
        let (stream, unread) = io.into_parts();
        Self { stream, unread, streams, linger_bytes: LINGER_BYTES }
    }
}

impl AsyncRead for Http2Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if self.unread.is_empty() {
            ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        } else {
            let length = self.unread.len().min(buf.remaining());
            buf.put_slice(&self.unread.split_to(length));
        }
        let bytes_read = &self.streams.bytes_read;
        bytes_read.set(bytes_read.get() + (buf.filled().len() - before) as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Http2Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Waits until the client has closed its side as well, and reads what it still sends until then: closed with bytes
    /// unread, the socket would be reset, and a reset may overtake the last answer.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        let mut scratch = [0; 4096];
        while self.linger_bytes > 0 {
            let mut read = ReadBuf::new(&mut scratch);
            let result = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read));
            let length = read.filled().len();
            let is_over = result.is_err() || length == 0;
            self.linger_bytes = if is_over { 0 } else { self.linger_bytes.saturating_sub(length) };
        }
        Poll::Ready(Ok(()))
    }
}

/// A connection being served. Its output is what the client has done to have it closed, if anything.
pub(super) struct Http2Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>,
{
    http: http2::Connection<TokioIo<Http2Io>, S, StreamExecutor>,
    streams: Rc<Streams>,
    timer: Rc<PhaseTimer>,
    alarm: Alarm,
    /// When the client has to have begun its first stream.
    first_request: Instant,
    /// When the client was told that no other stream will be served.
    closing_since: Option<Instant>,
}

impl<S> Http2Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible> + Unpin,
    S::Future: 'static,
{
    pub(super) fn new(io: ClientIo, service: S, streams: Rc<Streams>, timer: Rc<PhaseTimer>) -> Self {
        let first_request = timer.deadline();
        // From now on the time limits are those of the streams, and of the connection while it has none: what the stream
        // of bytes does tells nothing of a request.
        timer.enter(Phase::Upstream, first_request.saturating_duration_since(Instant::now()));
        let limits = &streams.limits;
        let mut builder = Builder::new(StreamExecutor(Rc::clone(&streams)));
        builder
            .max_concurrent_streams(limits.h2_streams)
            .max_header_list_size(u32::try_from(limits.header_size).unwrap_or(u32::MAX))
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER);
        let http = builder.serve_connection(TokioIo::new(Http2Io::new(io, Rc::clone(&streams))), service);
        let alarm = Alarm::new(first_request);
        Self { http, streams, timer, alarm, first_request, closing_since: None }
    }

    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Option<Http2Abuse>> {
        loop {
            if let Poll::Ready(result) = Pin::new(&mut self.http).poll(cx) {
                let Err(error) = result else { return Poll::Ready(None) };
                tracing::debug!("connection closed: {error}");
                return Poll::Ready(is_excessive_load(&error).then_some(Http2Abuse::ExcessiveLoad));
            }
            if let Some(abuse) = self.streams.abuse() {
                return Poll::Ready(Some(abuse));
            }
            let is_over = self.timer.is_draining() || self.timer.is_last_response();
            if is_over && self.closing_since.is_none() {
                self.close();
                continue;
            }
            let deadline = self.deadline();
            ready!(self.alarm.poll(cx, deadline, self.timer.now()));
            if self.streams.open.get() > 0 {
                // It is looked at again when the last stream has ended.
                continue;
            }
            self.streams.registered.set_idle();
            if Instant::now() < self.idle_deadline() {
                continue;
            }
            if self.closing_since.is_some() {
                return Poll::Ready(None);
            }
            self.close();
        }
    }

    /// Tells the client that no other stream will be served.
    fn close(&mut self) {
        self.closing_since = Some(Instant::now());
        Pin::new(&mut self.http).graceful_shutdown();
    }

    /// When the connection has been without a stream for too long.
    fn idle_deadline(&self) -> Instant {
        let idle_since = self.streams.idle_since.get();
        match self.closing_since {
            Some(closing) => closing.max(idle_since) + GOAWAY_TIMEOUT,
            None if self.streams.opened.get() == 0 => self.first_request,
            None => idle_since + self.streams.idle_timeout,
        }
    }

    /// When to look at the connection again.
    fn deadline(&self) -> Instant {
        if self.streams.open.get() > 0 {
            return self.timer.now() + self.streams.idle_timeout;
        }
        let idle = self.idle_deadline();
        if self.streams.registered.is_idle() {
            idle
        } else {
            idle.min(self.streams.idle_since.get() + IDLE_AFTER)
        }
    }
}

impl<S> Future for Http2Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible> + Unpin,
    S::Future: 'static,
{
    type Output = Option<Http2Abuse>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.timer.begin_poll(cx);
        let polled = self.advance(cx);
        self.timer.end_poll(self.alarm.time());
        polled
    }
}

/// Whether hyper has closed the connection for what the client does, and not the client.
fn is_excessive_load(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        !cause.is_remote() && !cause.is_io() && cause.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM)
    })
}
