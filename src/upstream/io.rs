//! The stream of bytes to an endpoint: a socket, with or without TLS.

use std::{
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    net::TcpStream,
    task::{coop::has_budget_remaining, unconstrained},
};
use tokio_rustls::client::TlsStream;

use super::queue::ConnectionPermit;

/// Fewer bytes than a segment: the endpoint may delay the rest until they are acknowledged.
const NAGLE_SIZE: usize = 1_400;

/// A stream on which a failed write does not hide a response that was already sent.
///
/// An upstream may respond early, and close while the request is still being sent (RFC 9112, 9.3 and 9.5). The next
/// write then fails, although the response can still be read. So a failed write is not reported, but remains pending.
/// The read side notices the end just as surely, and reports the response, or that there is none.
#[derive(Debug)]
pub(super) struct UpstreamIo {
    stream: SocketStream,
    /// Whether anything was received since the last request was sent.
    has_received: bool,
    /// Bytes of the first read of the current response.
    first_read: usize,
    /// Whether the endpoint has sent a response in parts, of which the first was small.
    writes_in_parts: bool,
    write_failed: bool,
    /// Whether it carries another protocol than HTTP, so that a failed write hides nothing.
    is_upgraded: bool,
    /// Dropped with the connection.
    #[expect(dead_code, reason = "it is only held")]
    held: Option<(OpenGuard, ConnectionPermit)>,
}

/// Counts an open connection until dropped.
#[derive(Debug)]
pub(super) struct OpenGuard(Arc<AtomicUsize>);

impl OpenGuard {
    pub(super) fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// An enum, not a type parameter: a predicted branch beside a system call costs less than compiling clients twice. Boxed,
/// so that a connection without TLS does not pay for the state of TLS.
#[derive(Debug)]
enum SocketStream {
    Plain(TcpStream),
    Tls(Box<ClosingTls>),
}

impl UpstreamIo {
    pub(super) fn plain(stream: TcpStream) -> Self {
        Self::on(SocketStream::Plain(stream))
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self::on(SocketStream::Tls(Box::new(ClosingTls(stream))))
    }

    fn on(stream: SocketStream) -> Self {
        Self {
            stream,
            has_received: false,
            first_read: 0,
            writes_in_parts: false,
            write_failed: false,
            is_upgraded: false,
            held: None,
        }
    }

    /// Whether anything was received since [`UpstreamIo::request_sent`].
    pub(super) fn has_received(&self) -> bool {
        self.has_received
    }

    /// Another request is being sent.
    pub(super) fn request_sent(&mut self) {
        self.has_received = false;
    }

    /// Ready if anything was received, or the connection has ended. TLS takes tickets and new keys here. Mostly no system
    /// call: tokio knows that nothing has arrived.
    pub(super) fn poll_noise(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut byte = [0];
        match &mut self.stream {
            // A task that has had its share of turns must not take it for silence that it may not look.
            SocketStream::Plain(stream) => pin!(unconstrained(stream.read(&mut byte))).poll(cx),
            // An endpoint that sends tickets without end keeps nobody busy for longer than that share.
            SocketStream::Tls(stream) => match pin!(stream.0.read(&mut byte)).poll(cx) {
                Poll::Pending if !has_budget_remaining() => Poll::Ready(Ok(1)),
                polled => polled.map_err(in_words),
            },
        }
    }

    /// Keeps these guards until the connection is closed.
    pub(super) fn holding(self, held: (OpenGuard, ConnectionPermit)) -> Self {
        Self { held: Some(held), ..self }
    }

    /// Its protocol is no longer HTTP: from now on each failed write is reported.
    pub(super) fn set_upgraded(&mut self) {
        self.is_upgraded = true;
    }

    /// Whether a write has failed because the other side has hung up.
    pub(super) fn has_hung_up(&self) -> bool {
        self.write_failed
    }

    /// Notes that this many bytes were read.
    ///
    /// An endpoint that writes a small head and then the body, with Nagle's algorithm (RFC 896) on, sends the body only
    /// after the head was acknowledged, which the kernel delays by 40 ms (RFC 9293, 3.8.6.3). If an endpoint has done
    /// so before, the first part of each response is acknowledged at once.
    fn note_read(&mut self, bytes: usize) {
        if self.has_received {
            self.writes_in_parts |= self.first_read < NAGLE_SIZE;
            return;
        }
        self.has_received = true;
        self.first_read = bytes;
        if self.writes_in_parts && bytes < NAGLE_SIZE {
            let socket = match &self.stream {
                SocketStream::Plain(stream) => stream,
                SocketStream::Tls(stream) => stream.0.get_ref().0,
            };
            // Without it the rest arrives later.
            let _unsupported = SockRef::from(socket).set_tcp_quickack(true);
        }
    }

    fn report_unless_hangup<T>(&mut self, result: io::Result<T>) -> Poll<io::Result<T>> {
        match result {
            Err(error) if is_hangup(&error) && !self.is_upgraded => {
                self.write_failed = true;
                Poll::Pending
            }
            other => Poll::Ready(other),
        }
    }
}

fn is_hangup(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted
    )
}

/// The message of rustls refers to its documentation.
fn in_words(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "the connection ended without the end of TLS (close_notify)")
        }
        _ => error,
    }
}

impl AsyncRead for UpstreamIo {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buf.filled().len();
        let polled = match &mut self.stream {
            SocketStream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            // The end of the socket without close_notify is an error: an attacker may have cut the response off.
            SocketStream::Tls(stream) => Pin::new(&mut stream.0).poll_read(cx, buf).map_err(in_words),
        };
        let read = buf.filled().len() - filled;
        if read > 0 {
            self.note_read(read);
        }
        polled
    }
}

impl AsyncWrite for UpstreamIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.write_failed && !self.is_upgraded {
            return Poll::Pending;
        }
        let result = match &mut self.stream {
            // Mostly the socket has room, so that no waker is needed.
            SocketStream::Plain(stream) => match stream.try_write(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(Pin::new(stream).poll_write(cx, buf))
                }
                written => written,
            },
            SocketStream::Tls(stream) => ready!(Pin::new(&mut stream.0).poll_write(cx, buf)),
        };
        self.report_unless_hangup(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has nothing to flush. TLS may still have to write accepted data.
        let SocketStream::Tls(stream) = &mut self.stream else { return Poll::Ready(Ok(())) };
        let result = ready!(Pin::new(&mut stream.0).poll_flush(cx));
        self.report_unless_hangup(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            SocketStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            SocketStream::Tls(stream) => Pin::new(&mut stream.0).poll_shutdown(cx),
        }
    }
}

/// TLS that sends close_notify however it is dropped: without it the end looks like an attack, and servers log it.
#[derive(Debug)]
struct ClosingTls(TlsStream<TcpStream>);

impl Drop for ClosingTls {
    fn drop(&mut self) {
        let (socket, session) = self.0.get_mut();
        session.send_close_notify();
        // If the socket does not accept it at once, it is not worth waiting for.
        let _untold = session.write_tls(&mut NonBlocking(socket));
    }
}

/// Writes as much as a socket accepts at once.
struct NonBlocking<'a>(&'a TcpStream);

impl io::Write for NonBlocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
