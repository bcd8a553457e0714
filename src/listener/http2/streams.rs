//! The streams of an HTTP/2 connection: a task each, with its own time limits, and their shared counters.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::VecDeque,
    pin::Pin,
    rc::{Rc, Weak},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use http::Request;
use hyper::rt::Executor;
use pin_project_lite::pin_project;

use super::{connection::STREAM_WINDOW, delivery::SentBytes, io::WeakIo};
use crate::{
    config::model::ClientLimits,
    http2_frames::{CONTINUATION, DATA, END_HEADERS, FramePart, HEADERS, RST_STREAM},
    listener::{alarm::Alarm, worker_connections::RegisteredConnection},
    proxy::{
        ClientWait, ConnectionState, EarlyEnds, JUDGED_FROM, MessageMeter, Phase, PhaseTimer, RateBudget,
        WatchedRequest,
    },
    telemetry::metrics::{CutOff, Http2Abuse},
};

/// Envoy's rule against rapid resets: once a connection has had [`JUDGED_FROM`] streams, fewer than half of them may
/// have been reset within this time and before their response.
const PREMATURE: Duration = Duration::from_secs(1);

/// nginx' rule against floods of frames without content (PING, SETTINGS, PRIORITY, padding, windows of a byte): at
/// least an eighth of a client's bytes are fields and bodies, with a tolerance of a mebibyte. Bytes sent to the client
/// count as well, since it has to open the window for them.
const OVERHEAD_FACTOR: u64 = 8;
const OVERHEAD_SPARE: u64 = 1 << 20;

/// The streams of a connection, as the connection sees them.
pub(in crate::listener) struct Streams {
    open: Cell<usize>,
    /// Open streams that have become tunnels.
    tunnels: Cell<usize>,
    opened: Cell<u64>,
    /// Streams that were reset early, before their response.
    premature: Cell<u64>,
    /// When the last stream ended, or when the client was last seen with part of a response still to receive.
    idle_since: Cell<Instant>,
    /// Whether the last stream was cut off for a slow client, which was counted.
    last_was_cut_off: Cell<bool>,
    /// Streams that wait for the client to read.
    readers: Cell<usize>,
    /// The connection's bytes.
    io: OnceCell<WeakIo>,
    /// Bytes read from the connection.
    pub(super) bytes_read: Cell<u64>,
    /// Bytes of fields and bodies of all streams, in both directions. A request's body is read by the connection to the
    /// upstream, which does not wake the stream's task.
    payload: Rc<Cell<u64>>,
    /// The stream for the task being polled, which has polled the response for the first time just now.
    begun: Cell<Option<BegunStream>>,
    /// Set if the client is a trusted proxy, with many clients behind it.
    pub(super) early_ends: Option<Rc<EarlyEnds>>,
    /// Streams whose request heads have arrived and are not served yet.
    requested: RefCell<VecDeque<u32>>,
    last_requested: Cell<u32>,
    /// Bytes of request heads as received, reset when a request is served.
    head_bytes: Cell<u64>,
    /// The responses whose head was written but not their end: the one that began last, and the others. Most end before
    /// another begins.
    last_begun: Cell<Option<UnfinishedResponse>>,
    unfinished: RefCell<Vec<UnfinishedResponse>>,
    /// Bytes of bodies passed to hyper, and how many of them it has written.
    handed: Cell<u64>,
    passed: Cell<u64>,
    pub(super) limits: ClientLimits,
    pub(super) registered: Rc<RegisteredConnection>,
}

#[derive(Clone, Copy)]
struct UnfinishedResponse {
    stream: u32,
    /// Bytes of the body that were written.
    data: u64,
}

impl Streams {
    /// `early_ends`: set if the client is a trusted proxy, with many clients behind it.
    pub(in crate::listener) fn new(
        limits: &ClientLimits,
        registered: Rc<RegisteredConnection>,
        early_ends: Option<Rc<EarlyEnds>>,
    ) -> Rc<Self> {
        Rc::new(Self {
            open: Cell::new(0),
            tunnels: Cell::new(0),
            opened: Cell::new(0),
            premature: Cell::new(0),
            idle_since: Cell::new(Instant::now()),
            last_was_cut_off: Cell::new(false),
            readers: Cell::new(0),
            io: OnceCell::new(),
            bytes_read: Cell::new(0),
            payload: Rc::default(),
            begun: Cell::new(None),
            early_ends,
            requested: RefCell::default(),
            last_requested: Cell::new(0),
            head_bytes: Cell::new(0),
            last_begun: Cell::new(None),
            unfinished: RefCell::default(),
            handed: Cell::new(0),
            passed: Cell::new(0),
            limits: limits.clone(),
            registered,
        })
    }

    /// Opens the stream of a `request` that has just arrived.
    pub(in crate::listener) fn begin<B>(self: &Rc<Self>, request: &Request<B>) -> BegunStream {
        let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        // At most the bytes that were received: a field that was sent before is repeated by one byte (RFC 7541, 6.1).
        let fields = ((fields.sum::<usize>() + target) as u64).min(self.head_bytes.take());
        self.payload.set(self.payload.get() + fields);
        let watched = self.early_ends.as_ref().map(WatchedRequest::new);
        let open = OpenStream::new(self, watched.clone());
        let state = ConnectionState::of_stream(self.limits.idle_timeout, Rc::clone(&self.payload), watched);
        BegunStream { state: Rc::new(state), id: self.requested.borrow_mut().pop_front(), open }
    }

    /// Tracks a part of a frame that was received.
    pub(super) fn received(&self, part: FramePart) {
        match part.kind {
            HEADERS | CONTINUATION => {
                self.head_bytes.set(self.head_bytes.get() + part.bytes as u64);
                // Trailers arrive on a stream that has already begun.
                if part.is_last && part.flags & END_HEADERS != 0 && part.stream > self.last_requested.get() {
                    self.last_requested.set(part.stream);
                    self.requested.borrow_mut().push_back(part.stream);
                }
            }
            RST_STREAM if part.is_last => self.finished(part.stream),
            _ => {}
        }
    }

    /// Tracks a part of a frame that was written.
    pub(super) fn wrote(&self, part: FramePart) {
        if part.kind == DATA {
            self.passed.set(self.passed.get() + part.bytes as u64);
        }
        match part.kind {
            _ if part.ends_stream() => self.finished(part.stream),
            // An informational response may have preceded it.
            HEADERS if part.is_last && self.written_of(part.stream).is_none() => {
                let last = UnfinishedResponse { stream: part.stream, data: 0 };
                self.unfinished.borrow_mut().extend(self.last_begun.replace(Some(last)));
            }
            DATA => self.add_written(part.stream, part.bytes as u64),
            _ => {}
        }
    }

    fn add_written(&self, stream: u32, bytes: u64) {
        match self.last_begun.get() {
            Some(last) if last.stream == stream => {
                self.last_begun.set(Some(UnfinishedResponse { data: last.data + bytes, ..last }));
            }
            _ => {
                let mut unfinished = self.unfinished.borrow_mut();
                if let Some(response) = unfinished.iter_mut().find(|response| response.stream == stream) {
                    response.data += bytes;
                }
            }
        }
    }

    fn finished(&self, stream: u32) {
        if self.last_begun.get().is_some_and(|last| last.stream == stream) {
            return self.last_begun.set(None);
        }
        let mut unfinished = self.unfinished.borrow_mut();
        if let Some(at) = unfinished.iter().position(|response| response.stream == stream) {
            unfinished.swap_remove(at);
        }
    }

    /// Responses whose end hyper has not written yet.
    pub(super) fn unfinished(&self) -> usize {
        self.unfinished.borrow().len() + usize::from(self.last_begun.get().is_some())
    }

    /// Bytes of a response's body that were written. `None`: it has not begun, or has ended.
    fn written_of(&self, stream: u32) -> Option<u64> {
        let unfinished = self.unfinished.borrow();
        let mut all = self.last_begun.get().into_iter().chain(unfinished.iter().copied());
        all.find(|response| response.stream == stream).map(|response| response.data)
    }

    /// Bytes of bodies that hyper buffers because the client does not read. Small amounts count as zero.
    pub(super) fn buffered(&self) -> u64 {
        if self.handed.get().saturating_sub(self.passed.get()) < MIN_BUFFERED {
            return 0;
        }
        if self.open.get() == 0 && self.unfinished() == 0 {
            // The bytes of reset streams have been dropped.
            self.passed.set(self.handed.get());
        }
        self.handed.get().saturating_sub(self.passed.get())
    }

    /// hyper has begun to serve all complete requests. Requests left in the queue were refused by hyper, and must not be
    /// assigned to later requests.
    pub(super) fn all_begun(&self) {
        self.requested.borrow_mut().clear();
    }

    pub(super) fn are_open(&self) -> bool {
        self.open.get() > 0
    }

    /// The number of streams so far.
    pub(super) fn opened(&self) -> u64 {
        self.opened.get()
    }

    pub(super) fn have_begun(&self) -> bool {
        self.opened() > 0
    }

    /// When the last stream ended, or when the client was last seen with part of a response still to receive.
    pub(super) fn idle_since(&self) -> Instant {
        self.idle_since.get()
    }

    /// Notes that the client still has part of a response to receive.
    pub(super) fn set_idle_since(&self, now: Instant) {
        self.idle_since.set(now);
    }

    /// Sets the connection's bytes.
    pub(super) fn set_io(&self, io: WeakIo) {
        // It is set once.
        let _twice = self.io.set(io);
    }

    /// Bytes written to the socket.
    fn written(&self) -> u64 {
        let io = self.io.get().and_then(Weak::upgrade);
        io.and_then(|io| Some(io.try_borrow().ok()?.written())).unwrap_or(0)
    }

    /// Asks the kernel how much the client has acknowledged.
    fn sent(&self) -> Option<SentBytes> {
        let io = self.io.get()?.upgrade()?;
        let io = io.try_borrow().ok()?;
        Some(io.sent())
    }

    /// Counts a client that was too slow after its stream has ended.
    pub(super) fn count_slow_reader(&self, cut_off: CutOff) {
        if self.have_begun() && !self.last_was_cut_off.get() {
            self.registered.count_cut_off(cut_off);
        }
    }

    fn count_tunnels(&self) {
        let (tunnels, open) = (self.tunnels.get(), self.open.get());
        self.registered.set_has_only_tunnels(tunnels > 0 && tunnels == open);
    }

    /// The client's abuse of HTTP/2, once it is certain.
    pub(super) fn abuse(&self) -> Option<Http2Abuse> {
        if self.early_ends.is_none()
            && self.opened.get() >= JUDGED_FROM
            && self.premature.get() * 2 >= self.opened.get()
        {
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
    fn execute(&self, task: F) {
        tokio::task::spawn_local(StreamTask { task, stage: Stage::Begins(Rc::clone(&self.0)) });
    }
}

/// A stream whose request has arrived, until a task serves it.
pub(in crate::listener) struct BegunStream {
    state: Rc<ConnectionState>,
    /// `None`: uncertain.
    id: Option<u32>,
    open: OpenStream,
}

impl BegunStream {
    /// The response that `serve` makes for the stream with this state. Boxed here: hyper and the start of the task
    /// would each copy it otherwise.
    pub(in crate::listener) fn serve<F>(
        self,
        serve: impl FnOnce(Rc<ConnectionState>) -> F,
    ) -> Pin<Box<StreamResponse<F>>> {
        let response = serve(Rc::clone(&self.state));
        Box::pin(StreamResponse { response, begun: Some(self) })
    }
}

pin_project! {
    /// The response of a stream. The task that polls it first gets the stream.
    pub(in crate::listener) struct StreamResponse<F> {
        #[pin]
        response: F,
        begun: Option<BegunStream>,
    }
}

impl<F: Future> Future for StreamResponse<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let Some(begun) = this.begun else { return this.response.poll(cx) };
        begun.state.timer().begin_poll(cx);
        let polled = this.response.poll(cx);
        if let Some(begun) = this.begun.take() {
            let streams = Rc::clone(&begun.open.streams);
            streams.begun.set(Some(begun));
        }
        polled
    }
}

/// Bytes that any connection may buffer for a moment.
const MIN_BUFFERED: u64 = 16 << 10;

/// Counts a stream while it is open. It keeps the connection registered, and a drain waits for that.
struct OpenStream {
    streams: Rc<Streams>,
    begun: Instant,
    /// Bytes of the response's body that were counted.
    sent: u64,
    has_response: bool,
    is_tunnel: bool,
    is_cut_off: bool,
    watched: Option<Rc<WatchedRequest>>,
}

impl OpenStream {
    fn new(streams: &Rc<Streams>, watched: Option<Rc<WatchedRequest>>) -> Self {
        streams.open.set(streams.open.get() + 1);
        streams.opened.set(streams.opened.get() + 1);
        streams.count_tunnels();
        Self {
            streams: Rc::clone(streams),
            begun: Instant::now(),
            sent: 0,
            has_response: false,
            is_tunnel: false,
            is_cut_off: false,
            watched,
        }
    }

    /// The same stream, after its response was sent and it has become a tunnel.
    fn become_tunnel(&self) -> Self {
        let streams = &self.streams;
        streams.open.set(streams.open.get() + 1);
        streams.tunnels.set(streams.tunnels.get() + 1);
        Self {
            streams: Rc::clone(streams),
            begun: self.begun,
            sent: self.sent,
            has_response: true,
            is_tunnel: true,
            is_cut_off: false,
            watched: None,
        }
    }

    /// Updates the counters with the progress of the response.
    fn update(&mut self, meter: &MessageMeter) {
        let payload = &self.streams.payload;
        let handed = meter.sent() - self.sent;
        payload.set(payload.get() + handed);
        self.streams.handed.set(self.streams.handed.get() + handed);
        self.sent = meter.sent();
        self.has_response |= meter.take_new_response();
    }

    /// Notes that the stream has ended. If its body was refused, the client may have sent a whole window before it
    /// knew: that is not a flood.
    fn ended(&self, meter: &MessageMeter) {
        if meter.is_body_unread() {
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
        if !self.has_response && self.begun.elapsed() < PREMATURE {
            streams.premature.set(streams.premature.get() + 1);
            if let Some(watched) = &self.watched {
                watched.ended_early();
            }
        }
        if streams.open.get() == 0 {
            streams.idle_since.set(Instant::now());
            streams.last_was_cut_off.set(self.is_cut_off);
        }
    }
}

pin_project! {
    /// A task of hyper's. The task of a stream is driven until the stream ends or times out. Dropping it resets the
    /// stream, and the others go on.
    ///
    /// A struct, since an `async fn` would store the task twice: as its argument, and where it is pinned.
    struct StreamTask<F> {
        #[pin]
        task: F,
        stage: Stage,
    }
}

#[expect(clippy::large_enum_variant, reason = "boxed, it would cost each stream an allocation")]
enum Stage {
    /// No response was polled yet. It stays so for a task that writes the bytes of a tunnel, and ends with it.
    Begins(Rc<Streams>),
    Serves(ServedStream),
}

impl Stage {
    /// The stream, once its response was polled.
    fn stream(&mut self) -> Option<&mut ServedStream> {
        if let Self::Begins(streams) = self {
            *self = Self::Serves(ServedStream::new(streams.begun.take()?));
        }
        match self {
            Self::Begins(_) => None,
            Self::Serves(stream) => Some(stream),
        }
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        if let Stage::Serves(stream) = this.stage {
            stream.state.timer().begin_poll(cx);
        }
        loop {
            let polled = this.task.as_mut().poll(cx);
            let Some(stream) = this.stage.stream() else { return polled };
            if let Some(polled) = stream.check(polled, cx) {
                return polled;
            }
        }
    }
}

/// A stream that its task serves, with the time limits of its phases.
struct ServedStream {
    state: Rc<ConnectionState>,
    alarm: Alarm,
    reader: StreamReader,
    open: OpenStream,
}

impl ServedStream {
    fn new(begun: BegunStream) -> Self {
        let BegunStream { state, id, open } = begun;
        let (alarm, reader) = (Alarm::new(state.timer().deadline()), StreamReader::new(&open.streams, id));
        Self { state, alarm, reader, open }
    }

    /// Checks the deadline after hyper's task was `polled`. `None`: it has to be polled again.
    fn check(&mut self, polled: Poll<()>, cx: &mut Context<'_>) -> Option<Poll<()>> {
        let timer = self.state.timer();
        self.open.update(self.state.meter());
        // The phase has timed out, and no code of the request was left to send a response.
        if polled.is_ready() || timer.take_timed_out() {
            self.end();
            return Some(Poll::Ready(()));
        }
        self.reader.polled(&self.state, &self.open.streams);
        let is_evicted = self.state.hand_off().is_evicted();
        let deadline = self.reader.deadline(timer);
        if !is_evicted && self.alarm.poll(cx, deadline, timer.now()).is_pending() {
            timer.end_poll(self.alarm.time());
            return Some(Poll::Pending);
        }
        match timer.phase() {
            // The waiting code sends the response.
            phase @ (Phase::Upstream | Phase::RequestBody) => {
                if is_evicted || phase == Phase::RequestBody {
                    self.state.cut_off_client();
                }
                timer.set_timed_out();
                None
            }
            Phase::Client if !is_evicted && self.reader.keeps_waiting(timer) => None,
            phase => {
                if phase == Phase::Client {
                    self.state.cut_off_client();
                    self.open.is_cut_off = true;
                }
                self.end();
                Some(Poll::Ready(()))
            }
        }
    }

    /// Ends the stream, which becomes a tunnel if its response has switched protocols.
    fn end(&self) {
        self.open.ended(self.state.meter());
        self.state.timer().end_poll(self.alarm.time());
        if let Some(tunnel) = self.state.hand_off().take_tunnel() {
            let open = self.open.become_tunnel();
            tokio::task::spawn_local(async move {
                tunnel.relay_stream().await;
                drop(open);
            });
        }
    }
}

/// The wait before the kernel is asked how much the client has acknowledged: most clients have read by then.
const FIRST_CHECK: Duration = Duration::from_millis(250);

/// How fast a client reads the response of one stream. It opens the stream's window as it reads, but hyper and the
/// kernel may buffer megabytes, and accept no more until much of that is sent. So the kernel is asked how much the
/// client has acknowledged; rarely, because only a client that seems too slow needs to be measured.
struct StreamReader {
    /// `None`: uncertain.
    stream: Option<u32>,
    budget: RateBudget,
    wait: Option<ReaderWait>,
    /// Bytes of the response passed to hyper, and how many of them have been credited as read.
    sent: u64,
    earned: u64,
    /// The end of the credited bytes within the connection's bytes; at first, where the stream begins.
    acknowledged: u64,
    /// Bytes of the response that the client had certainly received at the last check.
    delivered: u64,
}

/// A wait for the client to read.
struct ReaderWait {
    streams: Rc<Streams>,
    /// The beginning of the time that the budget was not charged for yet.
    since: Instant,
    first_check: Instant,
    /// When the client will have been idle for too long.
    idle: Instant,
    /// The end of the connection's bytes when the kernel was first asked. Later bytes belong to other streams.
    end: Option<u64>,
}

impl ReaderWait {
    fn new(streams: &Rc<Streams>, since: Instant, idle: Instant, by_rate: Instant) -> Self {
        streams.readers.set(streams.readers.get() + 1);
        let half = idle.min(by_rate).saturating_duration_since(since) / 2;
        Self {
            streams: Rc::clone(streams),
            since,
            first_check: since + FIRST_CHECK.min(half),
            idle,
            end: None,
        }
    }
}

impl Drop for ReaderWait {
    fn drop(&mut self) {
        self.streams.readers.set(self.streams.readers.get() - 1);
    }
}

impl StreamReader {
    fn new(streams: &Streams, stream: Option<u32>) -> Self {
        let limits = &streams.limits;
        let budget = RateBudget::new(limits.min_rate, limits.idle_timeout);
        Self { stream, budget, wait: None, sent: 0, earned: 0, acknowledged: streams.written(), delivered: 0 }
    }

    /// Notes that the stream was polled and has to wait.
    fn polled(&mut self, state: &ConnectionState, streams: &Rc<Streams>) {
        let (timer, sent) = (state.timer(), state.meter().sent());
        let is_waiting = timer.phase() == Phase::Client;
        if (!is_waiting || sent > self.sent)
            && let Some(wait) = self.wait.take()
        {
            self.budget.spend(timer.now().saturating_duration_since(wait.since));
            state.client_wait_ends(ClientWait::Response);
        }
        self.sent = sent;
        if is_waiting && self.wait.is_none() {
            state.client_wait_begins(ClientWait::Response);
            let (idle, by_rate) = (timer.deadline(), timer.now() + self.budget.left());
            self.wait = Some(ReaderWait::new(streams, timer.now(), idle, by_rate));
            if by_rate < idle {
                timer.set_deadline(by_rate, true);
            }
        }
    }

    /// When to check the stream again.
    fn deadline(&self, timer: &PhaseTimer) -> Instant {
        match &self.wait {
            Some(wait) if wait.end.is_none() => wait.first_check.min(timer.deadline()),
            _ => timer.deadline(),
        }
    }

    /// Whether to wait longer for the client, which has not opened the window so far.
    fn keeps_waiting(&mut self, timer: &PhaseTimer) -> bool {
        let Some(wait) = &mut self.wait else { return false };
        let Some(sent) = wait.streams.sent() else { return false };
        let (now, is_first) = (Instant::now(), wait.end.is_none());
        let end = *wait.end.get_or_insert(sent.written + sent.unwritten);
        let taken = sent.acknowledged.min(end).saturating_sub(self.acknowledged);
        self.acknowledged += taken;
        self.budget.spend(now.saturating_duration_since(wait.since));
        wait.since = now;
        // The bytes can't be assigned to streams: each waiting stream gets an equal share.
        let share = taken.div_ceil(wait.streams.readers.get().max(1) as u64).min(self.sent - self.earned);
        self.earned += share;
        // A client that opens its window in small steps is sent as much of hyper's buffer, part of which the kernel may
        // still have.
        let in_kernel = sent.written.saturating_sub(sent.acknowledged);
        let written = self.stream.and_then(|stream| wait.streams.written_of(stream)).unwrap_or(0);
        let delivered = written.saturating_sub(in_kernel).max(self.delivered);
        let taken = share.max(delivered - self.delivered);
        self.delivered = delivered;
        self.budget.earn(taken);
        if taken > 0 && !is_first {
            wait.idle = now + wait.streams.limits.idle_timeout;
        }
        let by_rate = now + self.budget.left();
        timer.set_deadline(wait.idle.min(by_rate), by_rate < wait.idle);
        now < timer.deadline()
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Arc, task::Waker};

    use super::*;
    use crate::{
        listener::{
            connection_table::{Client, ConnectionTable},
            worker_connections::WorkerConnections,
        },
        telemetry::metrics::ThreadMetrics,
    };

    fn streams() -> Rc<Streams> {
        let limits = ClientLimits::default();
        let (table, _evictions) = ConnectionTable::new(&limits, 1, None);
        let connections = WorkerConnections::new(0, table, Arc::<ThreadMetrics>::default());
        let state = Rc::new(ConnectionState::new(limits.idle_timeout));
        let registered = connections.register(&state, Client::Unlimited).unwrap();
        Streams::new(&limits, registered, None)
    }

    fn task<F>(streams: &Rc<Streams>, task: F) -> Pin<Box<StreamTask<F>>> {
        Box::pin(StreamTask { task, stage: Stage::Begins(Rc::clone(streams)) })
    }

    fn state<F>(task: &StreamTask<F>) -> Option<&Rc<ConnectionState>> {
        match &task.stage {
            Stage::Begins(_) => None,
            Stage::Serves(stream) => Some(&stream.state),
        }
    }

    #[tokio::test]
    async fn each_task_gets_the_stream_of_its_own_response_in_whatever_order_they_run() {
        let streams = streams();
        let [first, second] = [(); 2].map(|()| streams.begin(&Request::new(())));
        let states = [&first, &second].map(|begun| Rc::clone(&begun.state));
        let mut first = task(&streams, first.serve(|_| pending()));
        let mut tunnel = task(&streams, pending());
        let mut second = task(&streams, second.serve(|_| pending()));
        assert_eq!(streams.open.get(), 2);

        let mut cx = Context::from_waker(Waker::noop());
        assert!(second.as_mut().poll(&mut cx).is_pending());
        assert!(tunnel.as_mut().poll(&mut cx).is_pending());
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(Rc::ptr_eq(state(&first).unwrap(), &states[0]));
        assert!(Rc::ptr_eq(state(&second).unwrap(), &states[1]));
        assert!(state(&tunnel).is_none(), "a task of hyper's own");
    }

    #[tokio::test]
    async fn a_stream_that_is_dropped_unpolled_has_ended_early() {
        let streams = streams();
        drop(task(&streams, streams.begin(&Request::new(())).serve(|_| pending::<()>())));
        assert_eq!((streams.open.get(), streams.opened(), streams.premature.get()), (0, 1, 1));
    }
}
