//! A client's stream of bytes: a socket, with or without TLS on it.

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use rustls::{HandshakeKind, ProtocolVersion};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::server::TlsStream;

use super::{tcp_info::bytes_acknowledged, tls::HTTP2_PROTOCOL};
use crate::telemetry::metrics::Handshake;

/// A client's socket.
#[derive(Debug)]
pub(super) struct Socket {
    kind: SocketKind,
    /// Bytes written to the socket.
    written: u64,
}

#[derive(Debug)]
enum SocketKind {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self { kind: SocketKind::Tcp(stream), written: 0 }
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Self { kind: SocketKind::Unix(stream), written: 0 }
    }
}

impl Socket {
    /// Closes the socket with a RST, if it is not local: the kernel keeps none of the written bytes.
    pub(super) fn reset(self) {
        if let SocketKind::Tcp(stream) = self.kind {
            // On failure it is closed in order.
            let _in_order = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// How many of the written bytes the other end has acknowledged, if the kernel tells.
    pub(super) fn acknowledged(&self) -> Option<u64> {
        match &self.kind {
            SocketKind::Tcp(stream) => bytes_acknowledged(stream),
            SocketKind::Unix(_) => None,
        }
    }

    /// Whether the other end has acknowledged all written bytes, as far as the kernel tells.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.acknowledged().is_none_or(|bytes| bytes >= self.written)
    }

    /// Ready with true once there is something to read, and with false at the end.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let peeked = match &self.kind {
            SocketKind::Tcp(stream) => {
                let mut byte = [0];
                ready!(stream.poll_peek(cx, &mut ReadBuf::new(&mut byte)))
            }
            SocketKind::Unix(stream) => loop {
                if ready!(stream.poll_read_ready(cx)).is_err() {
                    return Poll::Ready(false);
                }
                let mut byte = [MaybeUninit::uninit()];
                match stream.try_io(Interest::READABLE, || SockRef::from(stream).peek(&mut byte)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    peeked => break peeked,
                }
            },
        };
        Poll::Ready(peeked.is_ok_and(|length| length > 0))
    }

    fn count(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(written)) = written {
            self.written += *written as u64;
        }
    }
}

/// Delegates to the value of each variant.
macro_rules! each {
    ($of:expr, $stream:ident => $do:expr; $kind:ident: $($variant:ident),+) => {
        match $of {
            $($kind::$variant($stream) => { let $stream = Pin::new($stream); $do })+
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(&mut self.kind, stream => stream.poll_read(cx, buf); SocketKind: Tcp, Unix)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        // Usually there is room, and no waker has to be registered.
        let written = each!(&mut self.kind, stream => match stream.try_write(buf) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.poll_write(cx, buf),
            written => Poll::Ready(written),
        }; SocketKind: Tcp, Unix);
        self.count(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written =
            each!(&mut self.kind, stream => stream.poll_write_vectored(cx, slices); SocketKind: Tcp, Unix);
        self.count(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(&mut self.kind, stream => stream.poll_flush(cx); SocketKind: Tcp, Unix)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(&mut self.kind, stream => stream.poll_shutdown(cx); SocketKind: Tcp, Unix)
    }
}

/// A socket below TLS.
#[derive(Debug)]
pub(super) struct TlsSocket {
    socket: Socket,
    /// Bytes that were read before the handshake and belong to it.
    unread: Bytes,
}

impl TlsSocket {
    pub(super) fn new(socket: Socket, unread: Bytes) -> Self {
        Self { socket, unread }
    }
}

impl AsyncRead for TlsSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(&mut self.socket).poll_read(cx, buf);
        }
        let length = self.unread.len().min(buf.remaining());
        buf.put_slice(&self.unread.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// The stream that HTTP is read from and written to.
///
/// An enum rather than a type parameter: a predicted branch beside a system call costs less than hyper compiled twice.
/// TLS is boxed, so that a connection without it does not pay for its state.
#[derive(Debug)]
pub(super) enum ClientStream {
    Plain(Socket),
    Tls(Box<TlsStream<TlsSocket>>),
}

impl ClientStream {
    /// Ready with true once there may be something to read, and with false at the end.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<bool> {
        match self {
            Self::Plain(socket) => socket.poll_readable(cx),
            Self::Tls(stream) => {
                let (TlsSocket { socket, unread }, session) = stream.get_ref();
                // Bytes that were decrypted, or wait to be, are no longer in the socket.
                if !session.wants_read() || !unread.is_empty() {
                    return Poll::Ready(true);
                }
                socket.poll_readable(cx)
            }
        }
    }

    fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.get_ref().0.socket,
        }
    }

    /// Bytes written to the socket.
    pub(super) fn written(&self) -> u64 {
        self.socket().written
    }

    /// How many of them the other end has acknowledged, if the kernel tells.
    pub(super) fn acknowledged(&self) -> Option<u64> {
        self.socket().acknowledged()
    }

    /// The TLS handshake. `None`: no TLS.
    pub(super) fn handshake(&self) -> Option<Handshake> {
        let Self::Tls(stream) = self else { return None };
        let (_, session) = stream.get_ref();
        Some(Handshake {
            is_tls13: session.protocol_version() == Some(ProtocolVersion::TLSv1_3),
            is_resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
        })
    }

    /// Whether the client has chosen HTTP/2 in its handshake. `None`: no TLS, so the client's first bytes decide.
    pub(super) fn chose_http2(&self) -> Option<bool> {
        let Self::Tls(stream) = self else { return None };
        Some(stream.get_ref().1.alpn_protocol() == Some(HTTP2_PROTOCOL))
    }

    /// The socket, without its TLS session.
    pub(super) fn into_socket(self) -> Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.into_inner().0.socket,
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => stream.poll_read(cx, buf); Self: Plain, Tls)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), stream => stream.poll_write(cx, buf); Self: Plain, Tls)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), stream => stream.poll_write_vectored(cx, slices); Self: Plain, Tls)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => stream.poll_flush(cx); Self: Plain, Tls)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => stream.poll_shutdown(cx); Self: Plain, Tls)
    }
}
