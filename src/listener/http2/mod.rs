//! HTTP/2 to clients: hyper's connection, driven until it ends, and its streams, each in a task with its own time
//! limits.

mod connection;
mod data_frames;
mod delivery;
mod io;
mod streams;

pub(super) use connection::{ClientHttp2Connection, Http2End};
pub(super) use io::ClientHttp2Io;
pub(super) use streams::Streams;
