//! The streams of an HTTP/2 connection: a task each, with time limits of its own, and what all of them tell their
//! connection.

use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use http::Request;
use hyper::{body::Incoming, rt::Executor};
use pin_project_lite::pin_project;

use super::connection::STREAM_WINDOW;
use crate::{
    config::model::ClientLimits,
    listener::{alarm::Alarm, connections::RegisteredConnection},
    proxy::{ClientWait, Phase, PhaseTimer, RateBudget},
    telemetry::metrics::Http2Abuse,
};

/// Envoy's rule against rapid resets: once a connection has had so many streams, at least half of them must not have been
/// reset within this time, before they were answered.
const RESETS_JUDGED_FROM: u64 = 500;
const PREMATURE: Duration = Duration::from_secs(1);

/// nginx' rule against floods of frames that ask for nothing (PING, SETTINGS, PRIORITY, padding, windows of a byte): at
/// least an eighth of what a client sends is fields and bodies, give or take a mebibyte. What it is sent counts as well, as
/// it has to open the window for that.
const OVERHEAD_FACTOR: u64 = 8;
const OVERHEAD_SPARE: u64 = 1 << 20;

/// What the streams of a connection tell it.
pub(in crate::listener) struct Streams {
    open: Cell<usize>,
    /// Of the open ones, those that have become tunnels.
    tunnels: Cell<usize>,
    opened: Cell<u64>,
    /// Streams that were reset early, before they were answered.
    premature: Cell<u64>,
    /// When the last stream ended.
    idle_since: Cell<Instant>,
    /// Bytes that were read from the connection.
    pub(super) bytes_read: Cell<u64>,
    /// Bytes of fields and bodies that streams have handed on, in either direction. A request's body is read by the
    /// connection to the upstream, which does not wake the stream's task.
    payload: Rc<Cell<u64>>,
    /// The timer of the stream that is about to be spawned.
    next: Cell<Option<Rc<PhaseTimer>>>,
    pub(super) limits: ClientLimits,
    pub(super) registered: Rc<RegisteredConnection>,
}

impl Streams {
    pub(in crate::listener) fn new(limits: &ClientLimits, registered: Rc<RegisteredConnection>) -> Rc<Self> {
        Rc::new(Self {
            open: Cell::new(0),
            tunnels: Cell::new(0),
            opened: Cell::new(0),
            premature: Cell::new(0),
            idle_since: Cell::new(Instant::now()),
            bytes_read: Cell::new(0),
            payload: Rc::default(),
            next: Cell::new(None),
            limits: limits.clone(),
            registered,
        })
    }

    /// The timer for a `request` that has just come. The task that is spawned next serves it: hyper calls the service, and
    /// hands its future to the executor at once.
    pub(in crate::listener) fn begin(&self, request: &Request<Incoming>) -> Rc<PhaseTimer> {
        let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        self.payload.set(self.payload.get() + (fields.sum::<usize>() + target) as u64);
        let timer = Rc::new(PhaseTimer::for_stream(self.limits.idle_timeout, Rc::clone(&self.payload)));
        self.next.set(Some(Rc::clone(&timer)));
        timer
    }

    /// Whether a stream is open.
    pub(super) fn are_open(&self) -> bool {
        self.open.get() > 0
    }

    /// Whether there has been a stream.
    pub(super) fn have_begun(&self) -> bool {
        self.opened.get() > 0
    }

    /// When the last stream ended.
    pub(super) fn idle_since(&self) -> Instant {
        self.idle_since.get()
    }

    fn count_tunnels(&self) {
        let (tunnels, open) = (self.tunnels.get(), self.open.get());
        self.registered.set_has_only_tunnels(tunnels > 0 && tunnels == open);
    }

    /// What a client does that only wears the server out, once it is certain.
    pub(super) fn abuse(&self) -> Option<Http2Abuse> {
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
pub(super) struct StreamExecutor(pub(super) Rc<Streams>);

impl<F: Future<Output = ()> + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        match self.0.next.take() {
            Some(timer) => {
                tokio::task::spawn_local(ServedStream::new(stream, timer, OpenStream::new(&self.0)));
            }
            // hyper's own, which writes what a tunnel sends, and ends with it.
            None => {
                tokio::task::spawn_local(stream);
            }
        }
    }
}

/// Counts a stream for as long as it is open. It keeps the connection registered, which a drain waits for.
struct OpenStream {
    streams: Rc<Streams>,
    begun: Instant,
    /// Bytes of its response's body that were counted.
    sent: u64,
    is_answered: bool,
    is_tunnel: bool,
}

impl OpenStream {
    fn new(streams: &Rc<Streams>) -> Self {
        streams.open.set(streams.open.get() + 1);
        streams.opened.set(streams.opened.get() + 1);
        streams.count_tunnels();
        Self {
            streams: Rc::clone(streams),
            begun: Instant::now(),
            sent: 0,
            is_answered: false,
            is_tunnel: false,
        }
    }

    /// The same stream once its request is answered and it has become a tunnel.
    fn become_tunnel(&self) -> Self {
        let streams = &self.streams;
        streams.open.set(streams.open.get() + 1);
        streams.tunnels.set(streams.tunnels.get() + 1);
        Self {
            streams: Rc::clone(streams),
            begun: self.begun,
            sent: self.sent,
            is_answered: true,
            is_tunnel: true,
        }
    }

    /// Notes how far the stream is answered.
    fn update(&mut self, timer: &PhaseTimer) {
        let payload = &self.streams.payload;
        payload.set(payload.get() + timer.sent() - self.sent);
        self.sent = timer.sent();
        self.is_answered |= timer.take_new_response();
    }

    /// Notes that the stream has ended. Of a body that was refused, its client may have sent a window before it knew, and that
    /// is no flood.
    fn ended(&self, timer: &PhaseTimer) {
        if timer.is_body_unread() {
            let payload = &self.streams.payload;
            payload.set(payload.get() + u64::from(STREAM_WINDOW) / OVERHEAD_FACTOR);
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let streams = &self.streams;
        streams.open.set(streams.open.get() - 1);
        streams.tunnels.set(streams.tunnels.get() - usize::from(self.is_tunnel));
        streams.count_tunnels();
        if !self.is_answered && self.begun.elapsed() < PREMATURE {
            streams.premature.set(streams.premature.get() + 1);
        }
        if streams.open.get() == 0 {
            streams.idle_since.set(Instant::now());
        }
    }
}

pin_project! {
    /// Drives a stream until it ends or times out. One that is dropped is reset, and the others go on.
    ///
    /// A struct, since an `async fn` would hold the stream twice: as its argument, and where it is pinned.
    struct ServedStream<F> {
        #[pin]
        stream: F,
        timer: Rc<PhaseTimer>,
        alarm: Alarm,
        reader: StreamReader,
        open: OpenStream,
    }
}

impl<F> ServedStream<F> {
    fn new(stream: F, timer: Rc<PhaseTimer>, open: OpenStream) -> Self {
        let (alarm, reader) = (Alarm::new(timer.deadline()), StreamReader::new(&open.streams.limits));
        Self { stream, timer, alarm, reader, open }
    }
}

impl<F: Future<Output = ()>> Future for ServedStream<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let (mut stream, timer) = (this.stream, &**this.timer);
        timer.begin_poll(cx);
        let polled = loop {
            let ended = stream.as_mut().poll(cx).is_ready();
            this.open.update(timer);
            // The phase has timed out, and no code of the request was left to answer.
            if ended || timer.take_timed_out() {
                break Poll::Ready(());
            }
            this.reader.polled(timer);
            if timer.is_evicted() || this.alarm.poll(cx, timer.deadline(), timer.now()).is_ready() {
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
        if polled.is_ready() {
            this.open.ended(timer);
        }
        timer.end_poll(this.alarm.time());
        if polled.is_ready()
            && let Some(tunnel) = timer.take_tunnel()
        {
            let open = this.open.become_tunnel();
            tokio::task::spawn_local(async move {
                tunnel.relay_stream().await;
                drop(open);
            });
        }
        polled
    }
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
