//! Responses of endpoints, in any version of HTTP.

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

use super::{
    http1::{Http1Body, ResponseFault},
    http2::Http2Body,
};

/// The body of a response.
#[derive(Debug)]
pub enum IncomingBody {
    /// The body of an HTTP/1.1 response.
    #[expect(private_interfaces, reason = "only its methods count")]
    Http1(Http1Body),
    /// The body of an HTTP/2 stream.
    #[expect(private_interfaces, reason = "only its methods count")]
    Http2(Http2Body),
}

/// Why there is no response, or why it breaks off.
///
/// Its cause is not its `source`: hyper would reset the client's stream with the endpoint's code, and NO_ERROR within a
/// body looks like its end.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// An error of an HTTP/1.1 connection.
    #[error("{}", with_cause(.0))]
    Http1(ResponseFault),
    /// An error of an HTTP/2 stream, or of its connection.
    #[error("{0}")]
    Http2(h2::Error),
}

impl ExchangeError {
    /// Whether a shared connection has ended, not only the stream. Errors of the protocol that we detect do not count.
    pub(super) fn is_end_of_connection(&self) -> bool {
        matches!(self, Self::Http2(error) if error.is_io() || error.is_go_away() && error.is_remote())
    }

    /// Whether a shared connection has died, and was not closed in order. Some endpoints reject a single request this
    /// way.
    pub fn is_death_of_connection(&self) -> bool {
        match self {
            Self::Http2(error) => {
                error.is_io()
                    || error.is_go_away() && error.is_remote() && error.reason() != Some(Reason::NO_ERROR)
            }
            Self::Http1(_) => false,
        }
    }

    /// The underlying error.
    pub fn cause(&self) -> &(dyn Error + 'static) {
        match self {
            Self::Http1(error) => error,
            Self::Http2(error) => error,
        }
    }
}

/// Why a request got no response.
pub struct SendError<B> {
    pub error: ExchangeError,
    /// Whether the upstream has not processed the request: not one byte of it was sent, or the upstream says so.
    pub is_unprocessed: bool,
    /// The request, if it may be sent again: the upstream has not processed it, or the method is idempotent and the
    /// whole body is available. Boxed, so that responses are not larger for it.
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
            Self::Http1(body) => {
                body.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(ExchangeError::Http1)))
            }
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

/// An extension of requests: a callback for informational responses (1xx).
#[derive(Clone)]
pub struct OnInformational(Arc<Callback>);

type Callback = dyn Fn(&Response<()>) + Send + Sync;

impl OnInformational {
    /// Calls `callback` with each informational response.
    pub fn new(callback: impl Fn(&Response<()>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }

    pub(super) fn call(&self, response: &Response<()>) {
        (self.0)(response);
    }
}

impl fmt::Debug for OnInformational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnInformational")
    }
}

/// An error with its cause, which its own message leaves out.
pub(super) fn with_cause(error: &(dyn Error + 'static)) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
