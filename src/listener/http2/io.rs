//! The client's stream of bytes below HTTP/2.

use std::{
    cell::RefCell,
    future::poll_fn,
    io::{self, IoSlice},
    mem,
    pin::{Pin, pin},
    rc::{Rc, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::FutureExt;
use h2::Reason;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::{timeout, timeout_at},
};

use super::{
    connection::Http2End,
    data_frames::DataFrames,
    delivery::{DeliveryMonitor, DeliveryState, SentBytes},
    streams::Streams,
};
use crate::{
    http2_frames::FrameFollower,
    listener::{
        io::ClientIo,
        lingering_close::{Linger, lingering_close},
        stream::ClientStream,
    },
    telemetry::metrics::CutOff,
};

/// Frames are batched up to this size before they are sent: one full TLS record (RFC 8446, 5.1).
pub(super) const BATCH: usize = 16 << 10;

/// How long the last frames may take to be sent.
const LAST_SEND: Duration = Duration::from_secs(1);

/// The client's stream below HTTP/2. hyper reads and writes it; it is closed after hyper has ended. The HTTP/2 streams
/// have the time limits.
///
/// hyper flushes after each DATA frame, which would cost a system call and a TLS record per response. So hyper's flush
/// sends nothing: frames are sent once a batch is full, and after the connection was polled.
#[derive(Clone)]
pub(in crate::listener) struct ClientHttp2Io(Rc<RefCell<Http2Transport>>);

/// A stream's reference to its connection's bytes, which may be closed first.
pub(super) type WeakIo = Weak<RefCell<Http2Transport>>;

pub(super) struct Http2Transport {
    stream: ClientStream,
    /// Bytes that were already read from the socket, to be read again first.
    unread: Bytes,
    /// Frames that hyper has written and that are not sent yet.
    batch: BytesMut,
    /// Whether bytes were written since the last flush.
    is_unflushed: bool,
    /// Whether hyper has written only part of a frame.
    is_frame_cut: bool,
    streams: Rc<Streams>,
    received: DataFrames,
    received_frames: FrameFollower,
    written_frames: FrameFollower,
    /// Nothing is read or written any more, without an error to hyper.
    is_given_up: bool,
}

impl ClientHttp2Io {
    pub(in crate::listener) fn new(io: ClientIo, streams: Rc<Streams>) -> Self {
        let (stream, unread) = io.into_parts();
        let transport = Rc::new(RefCell::new(Http2Transport {
            stream,
            unread,
            batch: BytesMut::new(),
            is_unflushed: false,
            is_frame_cut: false,
            streams,
            received: DataFrames::new(),
            received_frames: FrameFollower::of_client(),
            written_frames: FrameFollower::of_server(),
            is_given_up: false,
        }));
        transport.borrow().streams.set_io(Rc::downgrade(&transport));
        Self(transport)
    }

    /// Bytes written to the socket.
    pub(super) fn written(&self) -> u64 {
        self.0.borrow().written()
    }

    /// Asks the kernel how much the client has acknowledged.
    pub(super) fn sent(&self) -> SentBytes {
        self.0.borrow().sent()
    }

    /// Discards hyper's writes from now on: a client that does not read would keep hyper from ending. Returns whether
    /// that is new.
    pub(super) fn give_up(&self) -> bool {
        !mem::replace(&mut self.0.borrow_mut().is_given_up, true)
    }

    /// Sends GOAWAY with `reason`. hyper must not write after that.
    pub(super) fn go_away(&self, reason: Reason) {
        let transport = &mut *self.0.borrow_mut();
        if !transport.is_frame_cut {
            transport.batch.extend_from_slice(&go_away(reason));
            transport.is_unflushed = true;
        }
    }

    /// Closes the connection according to `end`, after hyper has ended.
    pub(in crate::listener) async fn close(self, mut end: Http2End) {
        match end {
            Http2End::InOrder => {
                if let Err(cut_off) = self.deliver().await {
                    end = Http2End::TooSlow(cut_off);
                }
            }
            Http2End::Abuse(_) | Http2End::Evicted => {
                let limit = if end == Http2End::Evicted { Duration::ZERO } else { LAST_SEND };
                // A client that does not read misses the last frames.
                let _ = timeout(limit, poll_fn(|cx| self.poll_send(cx))).await;
            }
            Http2End::TooSlow(_) => {}
        }
        let Some(transport) = Rc::into_inner(self.0) else { return };
        let Http2Transport { mut stream, streams, .. } = transport.into_inner();
        match end {
            // The client may still be sending.
            Http2End::InOrder | Http2End::Abuse(_) => lingering_close(stream, Linger::SHORT).await,
            // Sends TLS' close_notify.
            Http2End::Evicted => drop(stream.shutdown().now_or_never()),
            // As with HTTP/1: the kernel buffers nothing for this client any more.
            Http2End::TooSlow(cut_off) => {
                streams.count_slow_reader(cut_off);
                stream.into_socket().reset();
            }
        }
    }

    /// Shuts down the write side, and waits until the client has received everything. Bytes from the client are dropped
    /// meanwhile: with unread bytes the socket would be reset, and undelivered bytes would be lost.
    ///
    /// # Errors
    /// The client is too slow.
    async fn deliver(&self) -> Result<(), CutOff> {
        let mut to_end = pin!(async {
            poll_fn(|cx| self.poll_send(cx)).await?;
            poll_fn(|cx| Pin::new(&mut self.0.borrow_mut().stream).poll_shutdown(cx)).await?;
            let mut left = Linger::SHORT.bytes;
            while let read @ 1.. = poll_fn(|cx| self.poll_discard(cx)).await? {
                left = left.saturating_sub(read);
                if left == 0 {
                    break;
                }
            }
            io::Result::Ok(())
        });
        if timeout(Duration::ZERO, to_end.as_mut()).await.is_ok() {
            return Ok(());
        }
        let mut delivery = DeliveryMonitor::new(&self.0.borrow().streams.limits);
        loop {
            let next_check = match delivery.check(self.sent()) {
                DeliveryState::All => return Ok(()),
                DeliveryState::Partly(next_check) => next_check,
                DeliveryState::TooSlowly(cut_off) => return Err(cut_off),
            };
            if timeout_at(next_check.into(), to_end.as_mut()).await.is_ok() {
                // The client has closed the connection, or it is broken.
                return Ok(());
            }
        }
    }

    /// Reads and drops bytes from the client. Returns how many.
    fn poll_discard(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut scratch = [0; 4096];
        let mut read = ReadBuf::new(&mut scratch);
        ready!(Pin::new(&mut self.0.borrow_mut().stream).poll_read(cx, &mut read))?;
        Poll::Ready(Ok(read.filled().len()))
    }

    /// Sends the batch and flushes.
    pub(super) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let transport = &mut *self.0.borrow_mut();
        if !transport.is_unflushed || transport.is_given_up {
            return Poll::Ready(Ok(()));
        }
        ready!(transport.poll_send_batch(cx))?;
        if !transport.streams.are_open() {
            // An idle connection keeps no buffer.
            transport.batch = BytesMut::new();
        }
        ready!(Pin::new(&mut transport.stream).poll_flush(cx))?;
        transport.is_unflushed = false;
        Poll::Ready(Ok(()))
    }
}

/// A GOAWAY frame (RFC 9113, 6.8). Its last stream is the highest number, so that the client does not retry any request
/// by itself.
fn go_away(reason: Reason) -> [u8; 17] {
    const GOAWAY: u8 = 7;
    let mut frame = [0, 0, 8, GOAWAY, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    frame[13..].copy_from_slice(&u32::from(reason).to_be_bytes());
    frame
}

impl Http2Transport {
    /// Bytes written to the socket.
    pub(super) fn written(&self) -> u64 {
        self.stream.written()
    }

    /// Asks the kernel how much the client has acknowledged.
    pub(super) fn sent(&self) -> SentBytes {
        let written = self.stream.written();
        let unwritten = match self.is_given_up {
            true => 0,
            // TLS may have buffered some of it.
            false => {
                let unflushed = self.batch.len() as u64 + u64::from(self.is_unflushed);
                // hyper's buffers count as a byte per unfinished response: their size is not known.
                unflushed + self.streams.unfinished() as u64
            }
        };
        let acknowledged = self.stream.acknowledged().unwrap_or(written);
        SentBytes { written, acknowledged, unwritten }
    }

    /// Tracks the frames in the first `length` bytes of `slices`, which hyper has written.
    fn follow_written(&mut self, slices: &[IoSlice<'_>], mut length: usize) {
        let Self { streams, written_frames, .. } = self;
        for slice in slices {
            let taken = length.min(slice.len());
            written_frames.follow(&slice[..taken], |part| streams.wrote(part));
            length -= taken;
        }
    }

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

impl AsyncRead for ClientHttp2Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let transport = &mut *self.0.borrow_mut();
        if transport.is_given_up {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        if transport.unread.is_empty() {
            ready!(Pin::new(&mut transport.stream).poll_read(cx, buf))?;
        } else {
            let length = transport.unread.len().min(buf.remaining());
            buf.put_slice(&transport.unread.split_to(length));
        }
        let Http2Transport { streams, received, received_frames, .. } = transport;
        let bytes_read = &streams.bytes_read;
        bytes_read.set(bytes_read.get() + (buf.filled().len() - before) as u64);
        received_frames.follow(&buf.filled()[before..], |part| streams.received(part));
        let left = received.join(&mut buf.filled_mut()[before..]);
        buf.set_filled(before + left);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientHttp2Io {
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
        if transport.is_given_up {
            return Poll::Ready(Ok(length));
        }
        if transport.batch.len() + length > BATCH {
            ready!(transport.poll_send_batch(cx))?;
        }
        transport.is_unflushed = true;
        if length > BATCH {
            // Written directly, without a copy.
            let sent = ready!(Pin::new(&mut transport.stream).poll_write_vectored(cx, slices))?;
            // hyper's slices end at the end of a frame.
            transport.is_frame_cut = sent < length;
            transport.follow_written(slices, sent);
            return Poll::Ready(Ok(sent));
        }
        if transport.batch.is_empty() {
            transport.batch.reserve(BATCH);
        }
        for slice in slices {
            transport.batch.extend_from_slice(slice);
        }
        transport.is_frame_cut = false;
        transport.follow_written(slices, length);
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The rest is done by [`ClientHttp2Io::close`].
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(cx)
    }
}
