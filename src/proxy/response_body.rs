//! The body of an answer on its way to the client.

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{
    exchange::Exchange,
    headers::clean_trailers,
    patience::{Patience, Waiting},
    request_body::{Progress, RequestBody},
};
use crate::upstream;

/// An answer's body. Its exchange ends with it: when the last byte was handed on, or when it is
/// dropped before.
#[derive(Debug)]
pub struct ResponseBody {
    source: Source,
    exchange: Exchange,
}

/// Where an answer's body comes from.
#[derive(Debug)]
pub enum Source {
    /// The proxy itself.
    Whole(Bytes),
    /// The upstream.
    Upstream(Streaming),
}

/// A body that is streamed from the upstream.
#[derive(Debug)]
pub struct Streaming {
    incoming: Incoming,
    lease: Lease,
    patience: Rc<Patience>,
    /// For the upstream's next bytes.
    upstream_timeout: Duration,
    /// For the client to take them.
    client_timeout: Duration,
    /// Whether the upstream's bytes are waited for.
    starved: bool,
}

/// An upstream's connection for the time of one exchange, and how far the request on it has come.
pub struct Lease {
    connection: Option<upstream::Connection<RequestBody>>,
    progress: Option<Rc<Progress>>,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("progress", &self.progress).finish_non_exhaustive()
    }
}

impl Lease {
    /// Holds `connection`, on which a request with this `progress` of its body (if it has one) is sent.
    pub fn new(connection: upstream::Connection<RequestBody>, progress: Option<Rc<Progress>>) -> Self {
        Self { connection: Some(connection), progress }
    }

    /// Whether the whole request was sent.
    pub fn is_request_sent(&self) -> bool {
        self.progress.as_ref().is_none_or(|progress| progress.is_sent())
    }

    /// The answer was read to its end: the connection goes back, unless the request was answered before
    /// it was whole. Then nobody needs the rest of it, and the connection is closed.
    pub fn end(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        match &self.progress {
            Some(progress) if !progress.is_sent() => progress.abandon(),
            _ => connection.release(),
        }
    }
}

/// Why an answer's body broke off. The client sees that it did: its connection ends without the last
/// byte or chunk.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The upstream broke it off or sent what is not a body.
    #[error("the upstream's answer broke off: {0}")]
    Upstream(#[from] hyper::Error),
    /// The upstream's next bytes did not come in time.
    #[error("the upstream's answer stalled")]
    Stalled,
}

impl Streaming {
    /// Streams `incoming`, which came over `lease`.
    pub fn new(
        incoming: Incoming,
        lease: Lease,
        patience: Rc<Patience>,
        upstream_timeout: Duration,
        client_timeout: Duration,
    ) -> Self {
        Self { incoming, lease, patience, upstream_timeout, client_timeout, starved: false }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            if !self.starved {
                self.starved = true;
                self.patience.wait(Waiting::Upstream, self.upstream_timeout);
            } else if self.patience.take_elapsed() {
                return Poll::Ready(Some(Err(BodyError::Stalled)));
            }
            return Poll::Pending;
        };
        self.starved = false;
        self.patience.wait(Waiting::Client, self.client_timeout);
        let mut frame = frame.transpose()?;
        if let Some(trailers) = frame.as_mut().and_then(Frame::trailers_mut) {
            clean_trailers(trailers);
        }
        if frame.as_ref().is_none_or(Frame::is_trailers) || self.incoming.is_end_stream() {
            self.lease.end();
        }
        Poll::Ready(frame.map(Ok))
    }
}

impl ResponseBody {
    /// The body of `exchange`'s answer.
    pub fn new(source: Source, exchange: Exchange) -> Self {
        Self { source, exchange }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = match &mut this.source {
            Source::Whole(bytes) if bytes.is_empty() => None,
            Source::Whole(bytes) => Some(Ok(Frame::data(std::mem::take(bytes)))),
            Source::Upstream(streaming) => std::task::ready!(streaming.poll_frame(cx)),
        };
        match &frame {
            Some(Ok(frame)) => this.exchange.sent(frame.data_ref().map_or(0, Bytes::len)),
            Some(Err(error)) => this.exchange.broke_off(error),
            None => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Whole(bytes) => bytes.is_empty(),
            Source::Upstream(streaming) => streaming.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Upstream(streaming) => streaming.incoming.size_hint(),
        }
    }
}
