//! HTTP/2 to endpoints: connections that requests share, and one stream for each request.
//!
//! By the `h2` crate, and not by hyper's client: that one queues without bound what a connection does not take yet, keeps
//! sending a request whose answer was given up, and tells a stream that was reset without an error like one that has ended.

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
