//! A connection that requests share.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    pin::{Pin, pin},
    rc::{Rc, Weak},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use tokio::{sync::oneshot, time::timeout};

use super::{
    body::{OpenBodies, is_much_buffered},
    io::{PAUSE, SendWindow, WindowTrackingIo},
    needs::StreamNeeds,
    resets::{EVERY, ResetBudget},
};
use crate::{config::model::Endpoint, upstream::io::UpstreamIo};

/// The most streams of one connection, however many the endpoint allows.
const MAX_STREAMS: usize = 100;

/// Bytes of a response that an endpoint may send before they are read: 20 Mbit/s over a round trip of 100 ms. This is
/// also the most that the proxy buffers for a client that does not read its response. The connection's window has room
/// for all streams, so such clients never block the others.
const STREAM_WINDOW: u32 = 256 << 10;
/// The same for a connection that is opened while much is buffered for clients that do not read. An open connection
/// keeps its window: with h2 0.4.20 at both ends, some streams stall after a change.
const SMALL_WINDOW: u32 = 32 << 10;
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * MAX_STREAMS as u32;

/// Bytes of a request body that are buffered for an endpoint that does not accept them yet.
const SEND_BUFFER: usize = 64 << 10;

/// The longest head of a response.
const MAX_HEAD: u32 = 64 << 10;

/// How long a connection without streams may take to send GOAWAY and close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a silent connection may still get requests where no other one may be opened. A live connection responds to
/// one of them within this time; a dead one is closed when they have timed out.
const PROBATION: Duration = Duration::from_secs(5);

/// One connection to an endpoint. Dropping it closes it: its last stream does so once the pool has retired it.
pub(in crate::upstream) struct UpstreamHttp2Connection {
    pub(super) endpoint: Endpoint,
    /// The version of the TLS settings that it was opened under. 0: it has no TLS.
    pub(in crate::upstream) tls_version: u64,
    /// Never used to send: each stream takes a clone.
    requests: RefCell<SendRequest<Bytes>>,
    /// Streams that the endpoint allows at a time.
    limit: Rc<Cell<usize>>,
    /// Open streams.
    streams: Cell<usize>,
    /// When the last stream ended.
    idle_since: Cell<Instant>,
    /// Bytes received.
    received: Rc<Cell<u64>>,
    /// When a request was given up without a byte from the endpoint, and the bytes received by then.
    silent_at: Cell<Option<(Instant, u64)>>,
    /// Whether it has only one stream at a time, because its request must not share a connection.
    is_alone: bool,
    /// Streams opened so far.
    opened: Cell<u64>,
    window: Rc<SendWindow>,
    resets: ResetBudget,
    /// Whether its streams have small windows.
    is_narrow: bool,
    /// Whether it takes no more streams, to spare its current ones.
    is_worn: Cell<bool>,
    /// Handles of streams that wait to be reset; dropping a handle resets the stream. Until then the endpoint sends at
    /// most as much of a response as the stream's window allows.
    abandoned: RefCell<Vec<Box<dyn Any>>>,
    bodies: Rc<OpenBodies>,
    /// Dropping it tells the connection's task to close.
    _dropped: oneshot::Sender<()>,
}

impl UpstreamHttp2Connection {
    /// Begins HTTP/2 on `stream`, and waits for the endpoint's settings: only then is it known that the endpoint speaks
    /// HTTP/2, and how many streams it allows.
    ///
    /// # Errors
    /// The endpoint has closed the connection, or does not speak HTTP/2.
    pub(in crate::upstream) async fn open(
        stream: UpstreamIo,
        endpoint: &Endpoint,
        tls_version: u64,
        needs: StreamNeeds,
        now: Instant,
    ) -> io::Result<Rc<Self>> {
        let received = Rc::<Cell<u64>>::default();
        let window = SendWindow::new();
        let is_narrow = is_much_buffered();
        let handshake = Builder::new()
            // 0 until the endpoint has sent its own limit.
            .initial_max_send_streams(0)
            .enable_push(false)
            .initial_window_size(if is_narrow { SMALL_WINDOW } else { STREAM_WINDOW })
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .max_header_list_size(MAX_HEAD)
            .handshake(WindowTrackingIo::new(stream, Rc::clone(&received), Rc::clone(&window)));
        let (requests, mut connection) = handshake.await.map_err(no_http2)?;
        poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(Err(io::Error::other(
                "the endpoint closed the connection without a word of HTTP/2",
            ))),
            Poll::Ready(Err(error)) => Poll::Ready(Err(no_http2(error))),
            Poll::Pending if connection.max_concurrent_send_streams() > 0 => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        let limit = Rc::new(Cell::new(connection.max_concurrent_send_streams()));
        let (sender, dropped) = oneshot::channel();
        let bodies = Rc::<OpenBodies>::default();
        let driver = ConnectionDriver {
            connection,
            limit: Rc::clone(&limit),
            received: Rc::clone(&received),
            bodies: Rc::clone(&bodies),
        };
        tokio::task::spawn_local(driver.drive(dropped));
        Ok(Rc::new(Self {
            endpoint: endpoint.clone(),
            tls_version,
            requests: RefCell::new(requests),
            limit,
            streams: Cell::new(0),
            idle_since: Cell::new(now),
            received,
            silent_at: Cell::new(None),
            is_alone: needs.is_alone,
            opened: Cell::new(0),
            window,
            resets: ResetBudget::new(),
            is_narrow,
            is_worn: Cell::new(false),
            abandoned: RefCell::default(),
            bodies,
            _dropped: sender,
        }))
    }

    /// Whether it takes streams at all: it is open, and the endpoint has sent no GOAWAY.
    pub(in crate::upstream) fn is_open(&self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        matches!(self.requests.borrow_mut().poll_ready(&mut nobody), Poll::Ready(Ok(())))
    }

    /// Whether it has room for another stream.
    pub(in crate::upstream) fn has_room(&self) -> bool {
        let most = if self.is_alone { 1 } else { MAX_STREAMS };
        self.streams.get() < self.limit.get().min(most)
    }

    /// Whether it has room for a request with these needs.
    pub(in crate::upstream) fn has_room_for(&self, needs: StreamNeeds) -> bool {
        self.is_alone == needs.is_alone
            && self.has_room()
            && (needs.window == 0 || self.window.takes(needs.window, self.streams.get() == 0))
    }

    /// Streams opened so far.
    pub(super) fn opened(&self) -> u64 {
        self.opened.get()
    }

    /// Whether it takes no more streams: to spare its current ones, or because new connections have larger windows
    /// again.
    pub(in crate::upstream) fn is_worn(&self) -> bool {
        self.is_worn.get() || self.is_narrow && !is_much_buffered()
    }

    /// Takes no more streams.
    pub(super) fn wear_out(&self) {
        self.is_worn.set(true);
    }

    /// Whether another stream of it may be reset now. If so, counts the reset; if not, the connection takes no more
    /// streams.
    pub(super) fn may_reset(&self, now: Instant) -> bool {
        let may = self.resets.take(self.opened.get(), now);
        // With one stream at a time, closing it costs nobody anything.
        if !may || self.is_alone {
            self.is_worn.set(true);
        }
        may
    }

    /// Resets a stream, by dropping its `handle`, once the budget allows it. A connection without other streams by then
    /// is closed instead.
    pub(super) fn abandon(self: &Rc<Self>, handle: impl Any) {
        let mut abandoned = self.abandoned.borrow_mut();
        abandoned.push(Box::new(handle));
        if abandoned.len() == 1 {
            tokio::task::spawn_local(reset_abandoned(Rc::downgrade(self)));
        }
    }

    /// Open streams.
    pub(in crate::upstream) fn streams(&self) -> usize {
        self.streams.get()
    }

    /// Whether it has had no stream since `before`.
    pub(in crate::upstream) fn is_idle_since(&self, before: Instant) -> bool {
        self.streams.get() == 0 && self.idle_since.get() <= before
    }

    /// Whether the endpoint offers WebSockets on its streams (RFC 8441, 3).
    pub(in crate::upstream) fn offers_websockets(&self) -> bool {
        self.requests.borrow().is_extended_connect_protocol_enabled()
    }

    pub(super) fn take_stream(&self) {
        self.streams.set(self.streams.get() + 1);
        self.opened.set(self.opened.get() + 1);
    }

    pub(in crate::upstream) fn give_stream_back(&self, now: Instant) {
        self.streams.set(self.streams.get() - 1);
        self.idle_since.set(now);
    }

    /// Opens streams. The pool counts them ([`UpstreamHttp2Connection::has_room`]).
    pub(in crate::upstream) fn requests(&self) -> SendRequest<Bytes> {
        self.requests.borrow().clone()
    }

    /// Bytes received so far.
    pub(super) fn received(&self) -> u64 {
        self.received.get()
    }

    /// A request was given up, and nothing was received while it waited.
    pub(super) fn note_silence(&self) {
        if !self.is_silent() {
            self.silent_at.set(Some((Instant::now(), self.received())));
        }
    }

    /// Whether nothing was received since a request was given up: the connection may be dead without a sign of it.
    pub(in crate::upstream) fn is_silent(&self) -> bool {
        self.silent_at.get().is_some_and(|(_, received)| received == self.received())
    }

    /// Whether it has been silent for so long that it counts as dead.
    pub(in crate::upstream) fn is_given_up(&self) -> bool {
        self.is_silent() && self.silent_at.get().is_some_and(|(since, _)| since.elapsed() >= PROBATION)
    }

    /// The bodies of its responses.
    pub(super) fn bodies(&self) -> &Rc<OpenBodies> {
        &self.bodies
    }
}

/// The connection as its own task drives it.
struct ConnectionDriver {
    connection: Connection<WindowTrackingIo, Bytes>,
    limit: Rc<Cell<usize>>,
    received: Rc<Cell<u64>>,
    bodies: Rc<OpenBodies>,
}

impl ConnectionDriver {
    /// Drives the connection until it ends, or until it was dropped and closed in order.
    async fn drive(mut self, dropped: oneshot::Receiver<()>) {
        let mut buffer_at = PAUSE;
        let mut ended = pin!(poll_fn(|cx| {
            // Readers had their turn since.
            if self.received.get() >= buffer_at {
                self.bodies.buffer_unread();
                buffer_at = self.received.get() + PAUSE;
            }
            let polled = Pin::new(&mut self.connection).poll(cx);
            self.limit.set(self.connection.max_concurrent_send_streams());
            polled
        }));
        let result = tokio::select! {
            biased;
            result = &mut ended => result,
            // It was dropped: it sends GOAWAY, and ends by itself.
            _ = dropped => timeout(CLOSE_TIMEOUT, ended).await.unwrap_or(Ok(())),
        };
        if let Err(error) = result {
            // Its requests get the error from their response futures.
            tracing::debug!("connection to an endpoint ended: {error}");
        }
    }
}

/// Resets the abandoned streams of a connection, one by one.
async fn reset_abandoned(connection: Weak<UpstreamHttp2Connection>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(connection) = connection.upgrade() else { return };
        let mut abandoned = connection.abandoned.borrow_mut();
        if connection.may_reset(Instant::now()) {
            abandoned.pop();
        }
        if abandoned.is_empty() {
            return;
        }
    }
}

fn no_http2(error: h2::Error) -> io::Error {
    if error.is_io() {
        return error.into_io().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into());
    }
    io::Error::other(format!("the endpoint does not speak HTTP/2 ({error}): set `protocol: h1`"))
}
