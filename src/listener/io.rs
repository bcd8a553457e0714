//! A client's stream, which tells the connection's [`PhaseTimer`] of reads and writes.

use std::{
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::Stream;
use crate::proxy::{Phase, PhaseTimer};

/// A client's stream.
#[derive(Debug)]
pub(super) struct ClientIo {
    stream: Stream,
    timer: Rc<PhaseTimer>,
    /// From the first byte of a request's head to its last.
    head_timeout: Duration,
    /// Between two writes that get through.
    write_timeout: Duration,
    /// Bytes that were read before and are to be read again.
    unread: Bytes,
}

impl ClientIo {
    pub(super) fn new(
        stream: Stream,
        timer: Rc<PhaseTimer>,
        head_timeout: Duration,
        write_timeout: Duration,
    ) -> Self {
        Self { stream, timer, head_timeout, write_timeout, unread: Bytes::new() }
    }

    pub(super) fn into_stream(self) -> Stream {
        self.stream
    }

    /// Has `bytes` read again before anything else.
    pub(super) fn unread(&mut self, bytes: Bytes) {
        self.unread = bytes;
    }

    /// Ready with true once there is something to read, and with false at the end.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<bool> {
        if !self.unread.is_empty() {
            return Poll::Ready(true);
        }
        self.stream.poll_readable(cx)
    }

    /// Says, over TLS, that nothing more is written: a client could not tell otherwise whether something was cut off
    /// (RFC 8446, 6.1).
    pub(super) fn close(&mut self, cx: &mut Context<'_>) {
        if let Stream::Tls(stream) = &mut self.stream {
            // An idle socket has room for it. If not, the client finds out when it writes.
            let _sent = Pin::new(stream).poll_shutdown(cx);
        }
    }

    /// What TLS has buffered is written by a flush.
    fn after_write<T>(&self, result: Poll<T>) -> Poll<T> {
        self.timer.set_write_blocked(result.is_pending());
        if result.is_ready() && self.timer.phase() == Phase::Client {
            self.timer.enter(Phase::Client, self.write_timeout);
        }
        result
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = if self.unread.is_empty() {
            ready!(Pin::new(&mut self.stream).poll_read(cx, buf))
        } else {
            let length = self.unread.len().min(buf.remaining());
            buf.put_slice(&self.unread.split_to(length));
            Ok(())
        };
        let phase = self.timer.phase();
        if buf.filled().len() > before && matches!(phase, Phase::FirstRequest | Phase::Request) {
            self.timer.enter(Phase::RequestHead, self.head_timeout);
        }
        Poll::Ready(result)
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.after_write(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.after_write(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
