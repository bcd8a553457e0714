//! HTTP/1.1 to endpoints: one connection for each request in flight.
//!
//! A connection has no task. The request that it carries polls it: its `Http1Exchange` writes the request, and reads the
//! head and the body of the response. Requests that are ready in the same turn of the worker are written together by
//! its [`Flusher`], so that the kernel does not wake the endpoint for each.

#[cfg(test)]
mod against_hyper;
mod body;
mod exchange;
mod flusher;
mod head;
mod request;

use std::{error::Error, io};

pub(super) use exchange::{Http1Body, Http1Connection};
pub(super) use flusher::Flusher;
pub(super) use head::{MAX_FIELDS, MAX_HEAD};

/// Why there is no response, or why it breaks off.
#[derive(Debug, thiserror::Error)]
pub enum ResponseFault {
    #[error("it closed the connection without a response")]
    NoResponse,
    #[error("it sent bytes before it was asked")]
    Unasked,
    #[error("it closed the connection before the response was complete")]
    EarlyEnd,
    #[error("its response is not HTTP/1.1: {0}")]
    MalformedHead(httparse::Error),
    #[error("its response has more than {MAX_FIELDS} header lines, or more than {} KiB of them", MAX_HEAD >> 10)]
    LargeHead,
    #[error(
        "its response has an ambiguous length: two, one that is no number, or one beside a transfer coding"
    )]
    AmbiguousLength,
    #[error("it sent too many informational responses")]
    ManyInformational,
    #[error("its response has a malformed chunk")]
    MalformedChunk,
    #[error("its response has malformed trailers")]
    MalformedTrailers,
    #[error("the connection broke")]
    Io(#[from] io::Error),
    #[error("the request broke off")]
    Upload(#[source] Box<dyn Error + Send + Sync>),
}

impl ResponseFault {
    /// Whether the bytes are not HTTP/1.1.
    pub(super) fn is_nonsense(&self) -> bool {
        matches!(self, Self::MalformedHead(_))
    }
}
