//! The client's stream of bytes below HTTP/2.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::streams::Streams;
use crate::listener::{connection::LINGER_BYTES, io::ClientIo, stream::Stream};

/// Frames are gathered up to this size before they are sent: one full record of TLS (RFC 8446, 5.1).
const BATCH: usize = 16 << 10;

/// The client's stream below HTTP/2: the time limits of reads and writes are those of the streams above.
///
/// hyper flushes after each DATA frame, which would be a system call and a record of TLS for each response. So a flush of
/// hyper sends nothing: what was written is sent once a batch is full, and when the connection was polled.
#[derive(Clone)]
pub(super) struct Http2Io(Rc<RefCell<Transport>>);

struct Transport {
    stream: Stream,
    /// Bytes that were read before and are to be read again.
    unread: Bytes,
    /// Frames that were written, and are to be sent.
    batch: BytesMut,
    /// Whether something was written since the last flush.
    is_unflushed: bool,
    streams: Rc<Streams>,
    /// Bytes that a lingering close may still read.
    linger_bytes: usize,
}

impl Http2Io {
    pub(super) fn new(io: ClientIo, streams: Rc<Streams>) -> Self {
        let (stream, unread) = io.into_parts();
        let batch = BytesMut::new();
        let transport =
            Transport { stream, unread, batch, is_unflushed: false, streams, linger_bytes: LINGER_BYTES };
        Self(Rc::new(RefCell::new(transport)))
    }

    /// Sends what was written.
    pub(super) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let transport = &mut *self.0.borrow_mut();
        if !transport.is_unflushed {
            return Poll::Ready(Ok(()));
        }
        ready!(transport.poll_send_batch(cx))?;
        if !transport.streams.are_open() {
            // An idle connection holds no buffer.
            transport.batch = BytesMut::new();
        }
        ready!(Pin::new(&mut transport.stream).poll_flush(cx))?;
        transport.is_unflushed = false;
        Poll::Ready(Ok(()))
    }
}

impl Transport {
    fn poll_send_batch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.batch.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.batch))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.batch.advance(sent);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Http2Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let transport = &mut *self.0.borrow_mut();
        let before = buf.filled().len();
        if transport.unread.is_empty() {
            ready!(Pin::new(&mut transport.stream).poll_read(cx, buf))?;
        } else {
            let length = transport.unread.len().min(buf.remaining());
            buf.put_slice(&transport.unread.split_to(length));
        }
        let bytes_read = &transport.streams.bytes_read;
        bytes_read.set(bytes_read.get() + (buf.filled().len() - before) as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Http2Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let transport = &mut *self.0.borrow_mut();
        let length = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if transport.batch.len() + length > BATCH {
            ready!(transport.poll_send_batch(cx))?;
        }
        transport.is_unflushed = true;
        if length > BATCH {
            // Not copied.
            return Pin::new(&mut transport.stream).poll_write_vectored(cx, slices);
        }
        if transport.batch.is_empty() {
            transport.batch.reserve(BATCH);
        }
        for slice in slices {
            transport.batch.extend_from_slice(slice);
        }
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Waits until the client has closed its side as well, and reads what it still sends until then: closed with bytes
    /// unread, the socket would be reset, and a reset may overtake the last answer.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        let transport = &mut *self.0.borrow_mut();
        ready!(Pin::new(&mut transport.stream).poll_shutdown(cx))?;
        let mut scratch = [0; 4096];
        while transport.linger_bytes > 0 {
            let mut read = ReadBuf::new(&mut scratch);
            let result = ready!(Pin::new(&mut transport.stream).poll_read(cx, &mut read));
            let length = read.filled().len();
            let is_over = result.is_err() || length == 0;
            transport.linger_bytes = if is_over { 0 } else { transport.linger_bytes.saturating_sub(length) };
        }
        Poll::Ready(Ok(()))
    }
}
