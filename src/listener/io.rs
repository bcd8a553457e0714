//! A client's stream, which reports reads and writes to the connection's [`ConnectionState`].

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{slow_reader::SlowReader, stream::ClientStream};
use crate::{
    config::model::{ClientLimits, MinRate},
    proxy::{ClientWait, ConnectionState, Phase, RateBudget},
};

/// The client preface of HTTP/2. No HTTP/1 request begins like this (RFC 9113, 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a request that are read before hyper's connection is created.
const READ_AHEAD: usize = 2 << 10;

/// A client's stream, with the time limits of its phases.
#[derive(Debug)]
pub(super) struct ClientIo {
    stream: ClientStream,
    state: Rc<ConnectionState>,
    /// The limit from the first byte of a request's head to its last.
    head_timeout: Duration,
    /// The limit between two successful writes.
    write_timeout: Duration,
    min_rate: MinRate,
    /// Created when a write blocks for the first time.
    reader: Option<Box<SlowReader>>,
    /// Bytes that were already read from the socket, to be read again first.
    unread: Bytes,
    /// The status of hyper's own error response, which was not written because it has no body.
    withheld: Option<StatusCode>,
    /// The rest of early hints that were written in part: nothing else can be written before it.
    hints: Bytes,
}

impl ClientIo {
    pub(super) fn new(stream: ClientStream, state: Rc<ConnectionState>, limits: &ClientLimits) -> Self {
        Self {
            stream,
            state,
            head_timeout: limits.header_timeout,
            write_timeout: limits.idle_timeout,
            min_rate: limits.min_rate,
            reader: None,
            unread: Bytes::new(),
            withheld: None,
            hints: Bytes::new(),
        }
    }

    /// See [`ClientStream::chose_http2`].
    pub(super) fn chose_http2(&self) -> Option<bool> {
        self.stream.chose_http2()
    }

    /// The status of hyper's own error response, if it was withheld. The caller has to send a response.
    pub(super) fn withheld(&self) -> Option<StatusCode> {
        self.withheld
    }

    pub(super) fn into_stream(self) -> ClientStream {
        self.stream
    }

    /// The stream, and the bytes that were already read from it.
    pub(super) fn into_parts(self) -> (ClientStream, Bytes) {
        (self.stream, self.unread)
    }

    /// Makes the next reads return `bytes` first.
    pub(super) fn unread(&mut self, bytes: Bytes) {
        // Without bytes, the buffer that they came from is freed.
        self.unread = if bytes.is_empty() { Bytes::new() } else { bytes };
    }

    /// Ready with true once the next request has begun, and with false at the end.
    pub(super) fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if !self.unread.is_empty() {
            return Poll::Ready(true);
        }
        self.poll_read_ahead(cx)
    }

    /// Whether the client begins with the preface of HTTP/2, once enough bytes have arrived. `None`: the connection has
    /// ended.
    pub(super) fn poll_is_http2(&mut self, cx: &mut Context<'_>) -> Poll<Option<bool>> {
        loop {
            let begun = self.unread.len().min(HTTP2_PREFACE.len());
            if self.unread[..begun] != HTTP2_PREFACE[..begun] {
                return Poll::Ready(Some(false));
            }
            if begun == HTTP2_PREFACE.len() {
                return Poll::Ready(Some(true));
            }
            if !ready!(self.poll_read_ahead(cx)) {
                return Poll::Ready(None);
            }
        }
    }

    /// Reads bytes that the next reads return first. Ready with false at the end of the connection.
    ///
    /// Read rather than peeked: most heads fit in, and the socket is not asked twice for the same bytes.
    fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut bytes = [MaybeUninit::uninit(); READ_AHEAD];
        let mut next = ReadBuf::uninit(&mut bytes);
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut next));
        if read.is_err() || next.filled().is_empty() {
            return Poll::Ready(false);
        }
        self.unread = [&self.unread, next.filled()].concat().into();
        Poll::Ready(true)
    }

    /// Sends TLS' close_notify, without which a client could not tell whether a response was truncated (RFC 8446, 6.1).
    pub(super) fn close(&mut self, cx: &mut Context<'_>) {
        if let ClientStream::Tls(stream) = &mut self.stream {
            // An idle socket has room for it. Otherwise the client notices when it writes.
            let _sent = Pin::new(stream).poll_shutdown(cx);
        }
    }

    /// Writes early hints. They are dropped if the client would have to read first.
    #[cold]
    fn begin_hints(&mut self, cx: &mut Context<'_>, heads: Vec<u8>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_write(cx, &heads) {
            Poll::Ready(written) => {
                self.hints = heads.into();
                self.hints.advance(written?);
                self.finish_hints(cx)
            }
            Poll::Pending => Poll::Ready(Ok(())),
        }
    }

    /// Writes the rest of early hints.
    #[cold]
    fn finish_hints(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.hints.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(cx, &self.hints);
            match ready!(self.after_write(written))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.hints.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Notes the result of a write, or of a flush, which writes the bytes that TLS has buffered.
    fn after_write<T>(&mut self, result: Poll<T>) -> Poll<T> {
        let is_blocked = result.is_pending();
        if is_blocked {
            self.blocked();
        } else if self.state.meter().is_write_blocked() {
            self.unblocked();
        }
        self.state.meter().set_write_blocked(is_blocked);
        if !is_blocked && self.state.timer().phase() == Phase::Client {
            self.state.timer().enter(Phase::Client, self.write_timeout);
        }
        result
    }

    /// Whether the proxy waits for the client to read a response, whose end hyper may already have.
    fn waits_for_reader(&self) -> bool {
        match self.state.timer().phase() {
            Phase::Client => true,
            Phase::Request => self.state.meter().is_response_pending(),
            _ => false,
        }
    }

    /// Notes that no more can be written before the client reads.
    fn blocked(&mut self) {
        let now = self.state.timer().now();
        if self.state.meter().take_new_response() || self.reader.is_none() {
            let budget = RateBudget::new(self.min_rate, self.write_timeout);
            let acknowledged = self.stream.acknowledged().unwrap_or(0);
            self.reader = Some(Box::new(SlowReader::new(budget, acknowledged, now)));
        }
        let waits_for_reader = self.waits_for_reader();
        let Some(reader) = &mut self.reader else { return };
        if !self.state.meter().is_write_blocked() {
            self.state.client_wait_begins(ClientWait::Response);
            reader.wait(now);
        }
        if !waits_for_reader {
            // The proxy waits for the upstream as well.
            return;
        }
        if now >= reader.deadline(self.write_timeout).0 {
            reader.measure(self.stream.acknowledged().unwrap_or(0), now);
        }
        let (deadline, is_for_rate) = reader.deadline(self.write_timeout);
        self.state.timer().set_deadline(deadline, is_for_rate);
    }

    /// Notes that the client has read.
    fn unblocked(&mut self) {
        self.state.client_wait_ends(ClientWait::Response);
        if let Some(reader) = &mut self.reader {
            reader.waited(self.state.timer().now());
        }
        if self.state.meter().take_awaits_writes() {
            self.state.timer().wake();
        }
        if self.state.timer().phase() == Phase::Request {
            // The time for the next request begins when the last response was read.
            self.state.timer().enter(Phase::Request, self.write_timeout);
        }
    }
}

/// The status if `head` is hyper's own error response to a malformed request, which has no body and is the last one.
#[cold]
fn status_of_refusal(head: &[u8]) -> Option<StatusCode> {
    let status = StatusCode::from_bytes(head.strip_prefix(b"HTTP/1.")?.get(2..5)?).ok()?;
    (status.is_client_error() && head.ends_with(b"\r\n\r\n")).then_some(status)
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
        let phase = self.state.timer().phase();
        // While the client still reads a response, its time limits continue; and the rest of a refused body is not a
        // head.
        let is_between = phase == Phase::FirstRequest
            || phase == Phase::Request && !self.waits_for_reader() && !self.state.meter().is_body_unread();
        if buf.filled().len() > before && is_between {
            self.state.timer().enter(Phase::RequestHead, self.head_timeout);
        }
        Poll::Ready(result)
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if !self.hints.is_empty() {
            ready!(self.finish_hints(cx))?;
        }
        if !self.state.meter().is_response_pending()
            && let Some(status) = status_of_refusal(buf)
        {
            self.withheld = Some(status);
            return Poll::Ready(Ok(buf.len()));
        }
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let (Some(reader), Poll::Ready(Ok(written))) = (&mut self.reader, &result) {
            reader.wrote(*written as u64);
        }
        self.after_write(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.hints.is_empty() {
            ready!(self.finish_hints(cx))?;
        }
        if let Some(heads) = self.state.hand_off().take_early_hints() {
            ready!(self.begin_hints(cx, heads))?;
        }
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        if result.is_ready() {
            // hyper flushes once it has written everything.
            self.state.flushed();
        }
        self.after_write(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Without TLS, the socket's close tells the client as much.
        if self.withheld.is_some() || matches!(self.stream, ClientStream::Plain(_)) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
