//! The services behind the proxy: which endpoint serves a request, and the connections to it.
//!
//! What all workers share of an upstream (how many connections it has, how many requests each
//! endpoint has in flight, what each client address holds) is in [`SharedUpstream`]; each worker has an [`UpstreamPool`] of its own, so
//! that a request never changes threads.

mod addresses;
mod balance;
mod connect;
mod connection;
mod http2;
mod incoming;
mod io;
mod pool;
mod queue;
mod server_verifier;
mod shared;
mod tls;
mod upgraded;

use std::error::Error;

use bytes::Bytes;

pub use addresses::{ClientWait, UpstreamClient};
pub use connection::{Connection, SendError};
pub use incoming::{ExchangeError, IncomingBody, OnInformational};
pub use pool::{ConnectError, UpstreamPool};
pub use shared::SharedUpstream;
pub use tls::{UpstreamTlsContext, UpstreamTlsError};
pub use upgraded::UpgradedConnection;

/// An error with its cause, which hyper leaves to the caller.
pub fn with_cause(error: &(dyn Error + 'static)) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// A body that can be sent to an upstream.
pub trait RequestBody:
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
