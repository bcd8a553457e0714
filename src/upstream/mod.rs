//! The services behind the proxy: which endpoint serves a request, and the connections to it.
//!
//! What all workers share of an upstream (how many connections it has, how many requests each
//! endpoint has in flight, what each client address holds) is in [`SharedUpstream`]; each worker has an [`UpstreamPool`] of its own, so
//! that a request never changes threads.

mod addresses;
mod balance;
mod connection;
mod io;
mod pool;
mod queue;
mod shared;

pub use addresses::{ClientWait, UpstreamClient};
pub use connection::{Connection, SendError};
pub use pool::{ConnectError, UpstreamPool};
pub use shared::SharedUpstream;

/// A body that can be sent to an upstream. Any that hyper takes is one.
pub trait RequestBody:
    http_body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + 'static
{
}

impl<B> RequestBody for B where
    B: http_body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + 'static
{
}
