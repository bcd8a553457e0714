//! Connections to upstreams.

mod http2;
