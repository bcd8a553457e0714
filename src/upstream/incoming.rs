//! What comes from an endpoint, by whatever version of HTTP.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::Reason;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::http2::Http2Body;

/// The body of an answer.
#[derive(Debug)]
pub enum IncomingBody {
    /// hyper's.
    Http1(Incoming),
    /// A stream's.
    #[expect(private_interfaces, reason = "only its methods count")]
    Http2(Http2Body),
}

/// Why there is no answer, or no more of it.
///
/// Its cause is not its `source`: hyper would reset the client's stream with the code that the endpoint's was reset with,
/// and NO_ERROR amid a body looks like its end.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// hyper's.
    #[error("{}", with_cause(.0))]
    Http1(hyper::Error),
    /// Of the stream, or of its connection.
    #[error("{0}")]
    Http2(h2::Error),
}

impl ExchangeError {
    /// Whether a connection that requests share has ended, and not the stream alone, nor by what we found wrong with it.
    pub(super) fn is_end_of_connection(&self) -> bool {
        matches!(self, Self::Http2(error) if error.is_io() || error.is_go_away() && error.is_remote())
    }

    /// Whether a connection that requests share has died, as it does where the endpoint refuses one of its requests so, rather than
    /// that the endpoint goes away in order.
    pub fn is_death_of_connection(&self) -> bool {
        match self {
            Self::Http2(error) => {
                error.is_io()
                    || error.is_go_away() && error.is_remote() && error.reason() != Some(Reason::NO_ERROR)
            }
            Self::Http1(_) => false,
        }
    }

    /// The error itself.
    pub fn cause(&self) -> &(dyn Error + 'static) {
        match self {
            Self::Http1(error) => error,
            Self::Http2(error) => error,
        }
    }
}

/// Why a request got no answer.
pub struct SendError<B> {
    /// What went wrong.
    pub error: ExchangeError,
    /// Whether the upstream has done nothing of the request: not one byte of it was sent, or the upstream says so.
    pub is_unprocessed: bool,
    /// The request itself, where it may be sent again: the upstream has done nothing of it, or the method is idempotent and
    /// all of the body is at hand. Boxed: answers would pay for its room.
    pub request: Option<Box<Request<B>>>,
}

impl Body for IncomingBody {
    type Data = Bytes;
    type Error = ExchangeError;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        match self.get_mut() {
            Self::Http1(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(ExchangeError::Http1))),
            Self::Http2(body) => {
                body.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(ExchangeError::Http2)))
            }
        }
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
        }
    }
}

/// An extension of requests: what to do when the endpoint sends an informational answer (1xx).
#[derive(Clone)]
pub struct OnInformational(Arc<Callback>);

type Callback = dyn Fn(&Response<()>) + Send + Sync;

impl OnInformational {
    /// Calls `callback` with each.
    pub fn new(callback: impl Fn(&Response<()>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }

    pub(super) fn call(&self, answer: &Response<()>) {
        (self.0)(answer);
    }
}

impl fmt::Debug for OnInformational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnInformational")
    }
}

/// An error with its cause, which hyper leaves to the caller.
pub(super) fn with_cause(error: &(dyn Error + 'static)) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
