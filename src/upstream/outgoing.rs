//! The body of a request to an endpoint.

use std::error::Error;

use bytes::Bytes;

/// A body that can be sent to an upstream.
pub trait OutgoingBody:
    http_body::Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin + 'static
{
    /// A copy to send again, if all of it is at hand.
    fn repeatable(&self) -> Option<Self>
    where
        Self: Sized;

    /// All of it, if it is at hand.
    ///
    /// # Errors
    /// Itself: it is still to come.
    fn into_whole(self) -> Result<Bytes, Self>
    where
        Self: Sized;
}
