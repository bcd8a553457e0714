//! Access logs of any proxy: the requests of several files, in the order of arrival.
//!
//! [`LogReader`] reads them; `combined.rs` and `json.rs` read one line.

mod combined;
mod json;
mod log_line;
mod log_reader;

use std::net::IpAddr;

use compact_str::CompactString;
use http::request;

pub use log_reader::{InputLog, LogReader, ReadError, ReadingNotes, UnreadableLines};

use crate::limit::ResponseStatus;

/// A request from an access log.
#[derive(Debug, Clone)]
pub struct LoggedRequest {
    /// When it was received, in microseconds since the Unix epoch.
    pub time: i64,
    /// How long its response took, in microseconds. `None`: the log does not say.
    pub duration: Option<i64>,
    pub client: IpAddr,
    pub user: LoggedUser,
    /// Its valid API key. `None`: it had none, or the log does not say.
    pub key: Option<LoggedKey>,
    /// With the header fields that the log has.
    pub request: request::Parts,
    /// The status of its response.
    pub status: ResponseStatus,
    /// Bytes of its response. `None`: the log does not say.
    pub bytes: Option<u64>,
    /// Its cost, as Tollgate logs it if the response tells the cost.
    pub charged: Option<u64>,
    pub progress: LoggedProgress,
}

/// How far a request got, according to its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedProgress {
    /// Tollgate refused it before it looked for its route.
    Unrouted,
    /// Tollgate refused it before it asked the policies.
    Unchecked,
    /// Tollgate sent its own reply.
    Unforwarded,
    /// The service received it, but did not respond.
    NoResponse,
    /// The service responded, or the log does not say who did.
    Responded,
}

/// The user of a request, according to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggedUser {
    Named(CompactString),
    /// The request had no user.
    Absent,
    Unknown,
}

/// The API key of a request, according to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedKey {
    pub id: CompactString,
    pub customer: CompactString,
    pub plan: Option<CompactString>,
}
