//! The body of an answer that comes by HTTP/2.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, header};
use http_body::{Frame, SizeHint};

/// A body that ends where its stream does. One that was reset, with whatever code, has not ended (RFC 9113, 8.1).
#[derive(Debug)]
pub(in crate::upstream) struct Http2Body {
    stream: RecvStream,
    /// Bytes still to come, where the length was announced. h2 refuses a body of another one.
    left: Option<u64>,
    has_data: bool,
}

impl Http2Body {
    /// The body behind a head with these `headers`.
    pub(super) fn new(stream: RecvStream, headers: &HeaderMap) -> Self {
        let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        Self { left: length.and_then(|length| length.parse().ok()), stream, has_data: true }
    }

    pub(super) fn into_stream(self) -> RecvStream {
        self.stream
    }

    /// The next frame. Its window is given back: the caller has room for it.
    pub(in crate::upstream) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if self.has_data {
            if let Some(data) = ready!(self.stream.poll_data(cx)) {
                let data = data?;
                // An error means that the stream has ended, which the next frame tells.
                let _ended = self.stream.flow_control().release_capacity(data.len());
                self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            self.has_data = false;
        }
        let trailers = ready!(self.stream.poll_trailers(cx))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    pub(in crate::upstream) fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    pub(in crate::upstream) fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
