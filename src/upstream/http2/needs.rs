//! The demands of a request on a shared connection.

use http::Request;

use crate::upstream::OutgoingBody;

/// The demands of a request on a shared connection.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct StreamNeeds {
    /// It must not share a connection: if the endpoint closes or resets it, all requests on it are affected.
    pub is_alone: bool,
    /// Bytes of its body that the endpoint has to accept at once. Otherwise they would wait behind bodies that the
    /// endpoint does not read.
    pub window: u32,
}

/// The longest target and the longest list of fields (RFC 9113, 6.5.2) of a request on a shared connection. Some
/// servers close the connection for longer ones: they keep the fields of all its requests in one table, and can't skip
/// the ones that do not fit. gunicorn takes a target of 4,094 bytes, Tomcat and Jetty fields of 8 KiB in all, nginx of 8
/// KiB each, HAProxy and Node of 16 KiB in all.
const MAX_TARGET: usize = 4_000;
const MAX_FIELDS: usize = 8_000;

/// The overhead of a field besides its name and its value (RFC 9113, 6.5.2).
const FIELD: usize = 32;

/// The most bytes of a body that need room at once, and the bytes for a body of unknown length.
const MAX_WINDOW: u32 = 64 << 10;
const UNKNOWN_WINDOW: u32 = 48 << 10;

impl StreamNeeds {
    /// The demands of `request`.
    pub fn of<B: OutgoingBody>(request: &Request<B>) -> Self {
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD);
        let is_alone = target > MAX_TARGET || target + fields.sum::<usize>() > MAX_FIELDS;
        let body = request.body();
        let window = match body.size_hint().exact() {
            _ if body.is_end_stream() => 0,
            Some(length) => u32::try_from(length).unwrap_or(u32::MAX).min(MAX_WINDOW),
            None => UNKNOWN_WINDOW,
        };
        Self { is_alone, window }
    }
}
