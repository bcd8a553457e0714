//! The client's stream of bytes below HTTP/2.

use std::{
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::streams::Streams;
use crate::listener::{connection::LINGER_BYTES, io::ClientIo, stream::Stream};

/// The client's stream below HTTP/2: the time limits of reads and writes are those of the streams above.
pub(super) struct Http2Io {
    stream: Stream,
    /// Bytes that were read before and are to be read again.
    unread: Bytes,
    streams: Rc<Streams>,
    /// Bytes that a lingering close may still read.
    linger_bytes: usize,
}

impl Http2Io {
    pub(super) fn new(io: ClientIo, streams: Rc<Streams>) -> Self {
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
