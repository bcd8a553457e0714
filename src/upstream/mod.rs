//! The services behind the proxy: which endpoint serves a request, and the connections to it.
//!
//! What all workers share of an upstream (how many connections it has, how many requests each
//! endpoint has under way) is in [`Shared`]; each worker has an [`Upstream`] of its own with its own
//! pool of connections, so that a request never changes threads.

mod balance;
mod connect;
mod connection;
mod io;
mod pool;
mod shared;

pub use connection::{Connection, SendError};
pub use pool::{ConnectError, Upstream};
pub use shared::Shared;

/// A body that can be sent to an upstream. Any that hyper takes is one.
pub trait RequestBody:
    http_body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + 'static
{
}

impl<B> RequestBody for B where
    B: http_body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + 'static
{
}
