//! The body of a request to an endpoint.

use std::error::Error;

use bytes::Bytes;
use http_body_util::Empty;

/// A body that can be sent to an upstream.
pub trait OutgoingBody:
    http_body::Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin + 'static
{
    /// A copy for a retry, if the whole body is available.
    fn repeatable(&self) -> Option<Self>
    where
        Self: Sized;

    /// The whole body, if it is available.
    ///
    /// # Errors
    /// The body itself, if a part of it is still to come.
    fn into_whole(self) -> Result<Bytes, Self>
    where
        Self: Sized;
}

/// No body.
impl OutgoingBody for Empty<Bytes> {
    fn repeatable(&self) -> Option<Self> {
        Some(Self::new())
    }

    fn into_whole(self) -> Result<Bytes, Self> {
        Ok(Bytes::new())
    }
}
