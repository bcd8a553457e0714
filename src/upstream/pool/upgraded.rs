//! A connection to an upstream that carries another protocol than HTTP.

use std::{
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::upstream_pool::{InFlightGuard, PooledStream};
use crate::upstream::{OutgoingBody, addresses::HeldConnection, http2::Http2Tunnel, io::UpstreamIo};

/// A stream of bytes from and to an endpoint. Until dropped, it counts as a connection and a request in flight of its
/// client.
pub struct UpgradedConnection<B: OutgoingBody> {
    stream: UpgradedStream<B>,
    /// Bytes received together with the response.
    received: Bytes,
    _in_flight: InFlightGuard<B>,
    held: Rc<HeldConnection>,
}

pub(super) enum UpgradedStream<B: OutgoingBody> {
    /// A connection of its own.
    Socket(UpstreamIo),
    /// A stream of a shared connection, and its return to the pool, after the tunnel is dropped.
    Http2(Http2Tunnel<B>, #[expect(dead_code, reason = "it is only held")] Box<PooledStream<B>>),
}

impl<B: OutgoingBody> UpgradedConnection<B> {
    pub(super) fn new(
        stream: UpgradedStream<B>,
        received: Bytes,
        in_flight: InFlightGuard<B>,
        held: HeldConnection,
    ) -> Self {
        Self { stream, received, _in_flight: in_flight, held: Rc::new(held) }
    }

    /// Ready once requests of other clients need the connection.
    pub fn evicted(&self) -> impl Future<Output = ()> + use<B> {
        let held = Rc::clone(&self.held);
        async move { held.evicted(true).await }
    }

    /// Takes the bytes received together with the response: they come before all others.
    pub fn take_received(&mut self) -> Bytes {
        std::mem::take(&mut self.received)
    }
}

/// Delegates to the stream of the variant.
macro_rules! each {
    ($self:expr, $stream:ident => $do:expr) => {
        match &mut $self.get_mut().stream {
            UpgradedStream::Socket($stream) => {
                let $stream = Pin::new($stream);
                $do
            }
            UpgradedStream::Http2($stream, _) => {
                let $stream = Pin::new($stream);
                $do
            }
        }
    };
}

impl<B: OutgoingBody> AsyncRead for UpgradedConnection<B> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_read(cx, buf))
    }
}

impl<B: OutgoingBody> AsyncWrite for UpgradedConnection<B> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_shutdown(cx))
    }
}
