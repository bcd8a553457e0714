//! The stream of bytes below HTTP/2.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::upstream::io::UpstreamIo;

/// A stream on which a failed write does not keep answers from being read that were already sent.
///
/// h2 reads nothing while it can't write. So what is written after the other side has hung up is thrown away, and the read
/// side, which learns of the end as surely, tells it.
///
/// After so many bytes ([`PAUSE`]) it lets other tasks have their turn.
pub(super) struct Http2Io {
    stream: UpstreamIo,
    /// Bytes that were read.
    received: Rc<Cell<u64>>,
    /// At how many bytes it lets others have their turn.
    pause_at: u64,
}

/// What is read without a pause, at least: at one byte a frame, h2 counts 3.3 MB for that, a quarter of what it lets an
/// endpoint send.
pub(super) const PAUSE: u64 = 128 << 10;

impl Http2Io {
    pub(super) fn new(stream: UpstreamIo, received: Rc<Cell<u64>>) -> Self {
        Self { stream, received, pause_at: PAUSE }
    }

    fn unless_hung_up<T>(&self, result: Poll<io::Result<T>>, value: T) -> Poll<io::Result<T>> {
        if result.is_pending() && self.stream.has_hung_up() { Poll::Ready(Ok(value)) } else { result }
    }
}

impl AsyncRead for Http2Io {
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
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.received.set(self.received.get() + (buf.filled().len() - before) as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Http2Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.unless_hung_up(result, buf.len())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.unless_hung_up(result, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
