//! The data that an endpoint sends on a stream: a response body, or the bytes of a tunnel.
//!
//! h2 keeps each unread DATA frame as it was received, and closes a connection whose small frames take much more memory
//! than their payload. A gRPC service sends each message in a frame of its own, so a few slow readers would end the
//! streams of all others. Therefore the connection's task regularly moves unread data out of h2
//! ([`OpenBodies::buffer_unread`]) and joins small frames. The reader still gives their window back.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt,
    rc::{Rc, Weak},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::{Context, Poll, Waker, ready},
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use http::{HeaderMap, header};
use http_body::{Frame, SizeHint};
use slab::Slab;

use crate::upstream::UpstreamClient;

/// The most bytes that all responses in the process may buffer for clients that do not read. Beyond that, a response is
/// broken off: of the address with the most buffered bytes, the one that has waited for its client longest.
const MAX_BUFFERED: usize = 128 << 20;

/// From this many buffered bytes on, new connections get a smaller window for each response.
const MUCH_BUFFERED: usize = MAX_BUFFERED / 2;

/// The buffered bytes.
static BUFFERED: AtomicUsize = AtomicUsize::new(0);

/// Shorter frames are joined: h2's own cost of a frame is as high.
const SMALL: usize = 256;

/// A response body, which ends with its stream. A stream that was reset, with any code, ends it with an error (RFC
/// 9113, 8.1).
pub(in crate::upstream) struct Http2Body(Rc<ListedBody>);

/// A body, and its key in the connection's list.
struct ListedBody {
    body: RefCell<BufferedStream>,
    bodies: Rc<OpenBodies>,
    place: usize,
    client: Option<Rc<UpstreamClient>>,
}

struct BufferedStream {
    stream: RecvStream,
    buffered: BufferedData,
    /// The error that follows the buffered data.
    error: Option<h2::Error>,
    /// Wakes the reader.
    waker: Option<Waker>,
    /// Bytes still to come, if the length was announced. h2 rejects a body of a different length.
    left: Option<u64>,
    has_data: bool,
}

/// Buffered data, in order.
#[derive(Default)]
struct BufferedData {
    frames: VecDeque<Bytes>,
    /// The small frames after `frames`.
    joined: BytesMut,
    bytes: usize,
}

impl Http2Body {
    /// Adds a body with these response `headers` to the connection's `bodies`.
    pub(super) fn new(
        stream: RecvStream,
        headers: &HeaderMap,
        bodies: &Rc<OpenBodies>,
        client: Option<Rc<UpstreamClient>>,
    ) -> Self {
        let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let left = length.and_then(|length| length.parse().ok());
        let body = BufferedStream {
            stream,
            buffered: BufferedData::default(),
            error: None,
            waker: None,
            left,
            has_data: true,
        };
        let mut all = bodies.0.borrow_mut();
        let entry = all.vacant_entry();
        let (bodies, place) = (Rc::clone(bodies), entry.key());
        let listed = ListedBody { body: RefCell::new(body), bodies, place, client };
        let listed = Rc::new(listed);
        entry.insert(Rc::downgrade(&listed));
        Self(listed)
    }

    /// The next frame. Its window is given back at once: the caller has room for it.
    pub(in crate::upstream) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if let Some(data) = ready!(self.poll_data(cx)) {
            let data = data?;
            self.release(data.len());
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let trailers = ready!(self.0.body.borrow_mut().stream.poll_trailers(cx))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    /// The next data. `None`: there is no more.
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let body = &mut *self.0.body.borrow_mut();
        let next = if let Some(data) = body.buffered.next() {
            self.0.remove_buffered(data.len());
            Some(Ok(data))
        } else if let Some(error) = body.error.take() {
            Some(Err(error))
        } else if !body.has_data {
            None
        } else if let Poll::Ready(next) = body.stream.poll_data(cx) {
            next
        } else {
            if !body.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                body.waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        };
        match &next {
            Some(Ok(data)) => body.left = body.left.map(|left| left.saturating_sub(data.len() as u64)),
            Some(Err(_)) => {}
            None => body.has_data = false,
        }
        Poll::Ready(next)
    }

    /// Lets the endpoint send this many more bytes.
    pub(super) fn release(&mut self, bytes: usize) {
        // An error means that the stream has ended: the next frame reports it.
        let _ended = self.0.body.borrow_mut().stream.flow_control().release_capacity(bytes);
    }

    pub(in crate::upstream) fn is_end_stream(&self) -> bool {
        let body = self.0.body.borrow();
        body.buffered.is_empty() && body.error.is_none() && body.stream.is_end_stream()
    }

    pub(in crate::upstream) fn size_hint(&self) -> SizeHint {
        self.0.body.borrow().left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl fmt::Debug for Http2Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Http2Body").finish_non_exhaustive()
    }
}

impl BufferedStream {
    /// Moves unread data out of h2. Returns the number of bytes.
    fn buffer_unread(&mut self) -> usize {
        let before = self.buffered.bytes;
        // h2 wakes only one task for the next frame: this has to remain the reader.
        let waker = self.waker.as_ref().unwrap_or(Waker::noop());
        let mut cx = Context::from_waker(waker);
        while self.has_data && self.error.is_none() {
            match self.stream.poll_data(&mut cx) {
                Poll::Ready(Some(Ok(data))) => self.buffered.push(data),
                Poll::Ready(Some(Err(error))) => self.error = Some(error),
                Poll::Ready(None) => self.has_data = false,
                Poll::Pending => break,
            }
        }
        self.buffered.bytes - before
    }
}

impl ListedBody {
    fn remove_buffered(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        BUFFERED.fetch_sub(bytes, Relaxed);
        if let Some(client) = &self.client {
            client.remove_buffered(bytes);
        }
    }
}

impl BufferedData {
    fn push(&mut self, data: Bytes) {
        self.bytes += data.len();
        if data.len() < SMALL {
            self.joined.extend_from_slice(&data);
            return;
        }
        if !self.joined.is_empty() {
            self.frames.push_back(self.joined.split().freeze());
        }
        self.frames.push_back(data);
    }

    fn next(&mut self) -> Option<Bytes> {
        let joined = &mut self.joined;
        let next = self.frames.pop_front().or_else(|| (!joined.is_empty()).then(|| joined.split().freeze()));
        self.bytes -= next.as_ref().map_or(0, Bytes::len);
        next
    }

    fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.joined.is_empty()
    }
}

impl Drop for ListedBody {
    fn drop(&mut self) {
        self.bodies.0.borrow_mut().remove(self.place);
        self.remove_buffered(self.body.borrow().buffered.bytes);
    }
}

/// The unfinished bodies of a connection.
#[derive(Default)]
pub(super) struct OpenBodies(RefCell<Slab<Weak<ListedBody>>>);

impl OpenBodies {
    /// Moves unread data of all bodies out of h2.
    pub(super) fn buffer_unread(&self) {
        let mut last = None;
        for listed in self.0.borrow().iter().filter_map(|(_, listed)| listed.upgrade()) {
            let bytes = listed.body.borrow_mut().buffer_unread();
            BUFFERED.fetch_add(bytes, Relaxed);
            if let Some(client) = &listed.client {
                client.add_buffered(bytes);
                last = Some(Rc::clone(client));
            }
        }
        if BUFFERED.load(Relaxed) > MAX_BUFFERED
            && let Some(client) = last
        {
            client.evict_heaviest(Instant::now());
        }
    }
}

/// Whether much is buffered for clients that do not read.
pub(super) fn is_much_buffered() -> bool {
    BUFFERED.load(Relaxed) > MUCH_BUFFERED
}
