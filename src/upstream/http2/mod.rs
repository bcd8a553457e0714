//! HTTP/2 to endpoints: connections that requests share, and one stream for each request.
//!
//! Uses the `h2` crate, not hyper's client. hyper queues without bound if a connection accepts no more data yet,
//! continues to send a request whose response was given up, and reports a stream that was reset without an error as one
//! that has ended.

mod body;
mod connection;
mod io;
mod needs;
mod request;
mod resets;
mod slot;
mod tunnel;
mod upload;

pub(super) use body::Http2Body;
pub(super) use connection::UpstreamHttp2Connection;
pub use needs::StreamNeeds;
pub(super) use slot::StreamSlot;
pub(super) use tunnel::Http2Tunnel;
