//! Relays the bytes of a tunnel both ways.
//!
//! tokio's `copy_bidirectional` has two buffers per tunnel for as long as it is open: 10,000 idle WebSockets would
//! hold 320 MiB. Here, bytes pass through a buffer of the thread, and a tunnel keeps only the bytes that the other
//! side does not accept yet.

use std::{
    cell::RefCell,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::websocket_frames::WebSocketFrames;

/// Bytes read at a time, and so the bytes that a tunnel holds for a side that does not read.
const BUFFER: usize = 16 << 10;

/// Reads from one direction before other tasks get their turn.
const MAX_READS: usize = 16;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into());
}

/// One direction of a tunnel.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// Read, but not written yet.
    pending: Bytes,
    /// `None`: it is not a WebSocket.
    frames: Option<Box<WebSocketFrames>>,
    is_unflushed: bool,
    is_read_to_end: bool,
    is_source_broken: bool,
    is_shut_down: bool,
    /// Whether only a Close is still relayed.
    is_finished: bool,
    may_close: bool,
    /// Bytes that were written.
    relayed: u64,
}

impl Direction {
    /// `received`: bytes that were read already.
    pub(super) fn new(received: Bytes, is_websocket: bool) -> Self {
        Self { pending: received, frames: is_websocket.then(Box::default), ..Self::default() }
    }

    /// Bytes that were written.
    pub(super) fn relayed(&self) -> u64 {
        self.relayed
    }

    /// Whether an error came from reading rather than writing.
    pub(super) fn is_source_broken(&self) -> bool {
        self.is_source_broken
    }

    /// Whether a Close may follow the relayed bytes of a WebSocket.
    pub(super) fn may_close(&self) -> bool {
        self.may_close
    }

    /// Relays bytes until the end, and passes the end on.
    pub(super) fn poll_relay(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        for _ in 0..MAX_READS {
            ready!(self.poll_write_pending(cx, to, usize::MAX))?;
            if self.is_read_to_end {
                return self.poll_shutdown(cx, to);
            }
            if self.poll_read_and_write(cx, from, to)?.is_pending() {
                // Nothing was received: bytes written before have to be delivered meanwhile.
                let _flushed = self.poll_flush(cx, to)?;
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Relays the rest of the frame in transit, and nothing after it.
    pub(super) fn poll_finish_frame(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        for _ in 0..MAX_READS {
            let Some(frames) = self.frames.as_ref().filter(|_| !self.is_finished) else {
                return self.poll_flush(cx, to);
            };
            let rest = frames.rest_of_frame(&self.pending);
            ready!(self.poll_write_pending(cx, to, rest))?;
            let Some(frames) = &mut self.frames else { continue };
            if frames.is_between() {
                self.is_finished = true;
                self.may_close = !frames.has_close();
                frames.follow(&std::mem::take(&mut self.pending));
            } else if self.is_read_to_end {
                self.is_finished = true;
            } else {
                ready!(self.poll_read(cx, from))?;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads and drops bytes until the end or, for a WebSocket, until its Close.
    pub(super) fn poll_discard(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
    ) -> Poll<io::Result<()>> {
        for _ in 0..MAX_READS {
            let is_closed =
                self.frames.as_ref().is_some_and(|frames| frames.has_close() && frames.is_between());
            if is_closed || self.is_read_to_end {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_read(cx, from))?;
            if let Some(frames) = &mut self.frames {
                frames.follow(&self.pending);
            }
            self.pending = Bytes::new();
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads bytes to be written later.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
    ) -> Poll<io::Result<()>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut read = ReadBuf::new(scratch);
            let come = ready!(Pin::new(from).poll_read(cx, &mut read));
            come.inspect_err(|_| self.is_source_broken = true)?;
            self.is_read_to_end = read.filled().is_empty();
            self.pending = Bytes::copy_from_slice(read.filled());
            Poll::Ready(Ok(()))
        })
    }

    /// Reads bytes, and writes the ones that are accepted at once. Ready once some were read.
    fn poll_read_and_write(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<Poll<()>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut read = ReadBuf::new(scratch);
            let Poll::Ready(come) = Pin::new(from).poll_read(cx, &mut read) else {
                return Ok(Poll::Pending);
            };
            come.inspect_err(|_| self.is_source_broken = true)?;
            let mut rest = read.filled();
            self.is_read_to_end = rest.is_empty();
            while !rest.is_empty() {
                let Poll::Ready(written) = Pin::new(&mut *to).poll_write(cx, rest)? else {
                    self.pending = Bytes::copy_from_slice(rest);
                    break;
                };
                self.written(&rest[..written])?;
                rest = &rest[written..];
            }
            Ok(Poll::Ready(()))
        })
    }

    /// Writes pending bytes, at most `limit`.
    fn poll_write_pending(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut (impl AsyncWrite + Unpin),
        limit: usize,
    ) -> Poll<io::Result<()>> {
        let mut left = limit.min(self.pending.len());
        while left > 0 {
            let written = ready!(Pin::new(&mut *to).poll_write(cx, &self.pending[..left]))?;
            let piece = self.pending.split_to(written);
            self.written(&piece)?;
            left -= written;
        }
        if !self.pending.has_remaining() {
            // An empty slice would keep the whole buffer that it is a part of.
            self.pending = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }

    fn written(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.is_unflushed = true;
        self.relayed += bytes.len() as u64;
        if let Some(frames) = &mut self.frames {
            frames.follow(bytes);
        }
        Ok(())
    }

    /// Flushes the bytes that TLS has buffered.
    fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        if self.is_unflushed {
            ready!(Pin::new(to).poll_flush(cx))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        if !self.is_shut_down {
            ready!(Pin::new(to).poll_shutdown(cx))?;
            self.is_shut_down = true;
        }
        Poll::Ready(Ok(()))
    }
}
