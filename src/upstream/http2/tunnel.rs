//! A stream that no longer carries HTTP (RFC 8441).

use std::{
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::SendStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{body::Http2Body, slot::StreamSlot};
use crate::upstream::{IncomingBody, OutgoingBody};

/// The bytes of a stream in both directions. If it is dropped before both sides have ended, the stream is reset.
pub(in crate::upstream) struct Http2Tunnel<B: OutgoingBody> {
    receiver: Http2Body,
    sender: SendStream<Bytes>,
    /// Bytes received, but not read yet.
    received: Bytes,
    is_shut_down: bool,
    slot: Rc<StreamSlot<B>>,
}

impl<B: OutgoingBody> Http2Tunnel<B> {
    /// Turns the stream of `slot` into a tunnel; `body` is the body of the response. `None`: the stream has not
    /// switched protocols.
    pub(in crate::upstream) fn new(body: IncomingBody, slot: &Rc<StreamSlot<B>>) -> Option<Self> {
        let sender = slot.take_tunnel()?;
        let IncomingBody::Http2(receiver) = body else { return None };
        let slot = Rc::clone(slot);
        Some(Self { receiver, sender, received: Bytes::new(), is_shut_down: false, slot })
    }
}

impl<B: OutgoingBody> Drop for Http2Tunnel<B> {
    fn drop(&mut self) {
        if !self.is_shut_down || !self.receiver.is_end_stream() {
            self.slot.tunnel_reset(&mut self.sender);
        }
    }
}

impl<B: OutgoingBody> AsyncRead for Http2Tunnel<B> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.received.is_empty() {
            match ready!(self.receiver.poll_data(cx)) {
                Some(data) => self.received = data.map_err(io::Error::other)?,
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.received.len().min(buf.remaining());
        buf.put_slice(&self.received.split_to(length));
        self.receiver.release(length);
        Poll::Ready(Ok(()))
    }
}

impl<B: OutgoingBody> AsyncWrite for Http2Tunnel<B> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.sender.reserve_capacity(buf.len());
        loop {
            let length = self.sender.capacity().min(buf.len());
            if length > 0 || buf.is_empty() {
                let data = Bytes::copy_from_slice(&buf[..length]);
                self.sender.send_data(data, false).map_err(io::Error::other)?;
                return Poll::Ready(Ok(length));
            }
            match ready!(self.sender.poll_capacity(cx)) {
                Some(granted) => {
                    granted.map_err(io::Error::other)?;
                }
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
    }

    /// The connection's task flushes.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.is_shut_down, true) {
            self.sender.send_data(Bytes::new(), true).map_err(io::Error::other)?;
        }
        Poll::Ready(Ok(()))
    }
}
