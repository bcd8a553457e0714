//! The stream of bytes below HTTP/2.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    http2_frames::{DATA, FrameFollower, WINDOW_UPDATE},
    upstream::io::UpstreamIo,
};

/// A stream on which a failed write does not hide responses that were already sent.
///
/// h2 reads nothing while it can't write. So data written after the other side has hung up is thrown away. The read
/// side reports the hangup just as surely.
///
/// After each [`PAUSE`] bytes it lets other tasks have their turn.
pub(super) struct WindowTrackingIo {
    stream: UpstreamIo,
    /// Bytes read.
    received: Rc<Cell<u64>>,
    /// The number of bytes at which it next lets other tasks have their turn.
    pause_at: u64,
    window: Rc<SendWindow>,
    sent_frames: FrameFollower,
    received_frames: FrameFollower,
}

/// Bytes of all request bodies on a connection that the endpoint accepts before it has read the earlier ones (RFC 9113,
/// 6.9). h2 does not expose this.
#[derive(Debug)]
pub(super) struct SendWindow {
    left: Cell<i64>,
    /// The highest value so far.
    most: Cell<i64>,
}

/// RFC 9113, 6.9.2
const FIRST_WINDOW: i64 = 65_535;

impl SendWindow {
    /// The window of a new connection.
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self { left: Cell::new(FIRST_WINDOW), most: Cell::new(FIRST_WINDOW) })
    }

    /// Whether the endpoint accepts this many bytes at once, or at least as many as it ever did. On an `is_idle`
    /// connection nothing is unread, but endpoints reopen the window only once half of it is used.
    pub(super) fn takes(&self, bytes: u32, is_idle: bool) -> bool {
        let most = if is_idle { self.most.get() / 2 } else { self.most.get() };
        self.left.get() >= most.min(bytes.into())
    }

    fn add(&self, bytes: i64) {
        self.left.set(self.left.get() + bytes);
        self.most.set(self.most.get().max(self.left.get()));
    }
}

/// Bytes read without a pause, at least. In frames of one byte, h2 counts 3.3 MB for that: a quarter of the most that
/// it lets an endpoint send.
pub(super) const PAUSE: u64 = 128 << 10;

impl WindowTrackingIo {
    pub(super) fn new(stream: UpstreamIo, received: Rc<Cell<u64>>, window: Rc<SendWindow>) -> Self {
        let (sent_frames, received_frames) = (FrameFollower::of_client(), FrameFollower::of_server());
        Self { stream, received, pause_at: PAUSE, window, sent_frames, received_frames }
    }

    fn unless_hung_up<T>(&self, result: Poll<io::Result<T>>, value: T) -> Poll<io::Result<T>> {
        if result.is_pending() && self.stream.has_hung_up() { Poll::Ready(Ok(value)) } else { result }
    }
}

impl AsyncRead for WindowTrackingIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.received.get() >= self.pause_at {
            self.pause_at = self.received.get() + PAUSE;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let Self { stream, received, window, received_frames, .. } = &mut *self;
        ready!(Pin::new(stream).poll_read(cx, buf))?;
        let read = &buf.filled()[before..];
        received.set(received.get() + read.len() as u64);
        received_frames.follow(read, |part| {
            if part.kind == WINDOW_UPDATE && part.stream == 0 && part.is_last {
                window.add(part.increment.into());
            }
        });
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WindowTrackingIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        let result = self.unless_hung_up(result, buf.len());
        if let Poll::Ready(Ok(written)) = result {
            let Self { window, sent_frames, .. } = &mut *self;
            sent_frames.follow(&buf[..written], |part| {
                if part.kind == DATA {
                    window.add(-(part.bytes as i64));
                }
            });
        }
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.unless_hung_up(result, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
