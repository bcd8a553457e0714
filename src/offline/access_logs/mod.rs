//! Access logs of any proxy: the requests of several files, in the order of arrival.
//!
//! [`LogReader`] merges the logs. Of each, `log_file.rs` reads the lines, in a format of `line_format.rs`: a `Template`, which
//! `notation.rs` makes from how a server is told its format, or JSON. `field.rs` makes a request from the fields of a line.

mod arrival_order;
mod field;
mod json;
mod line_format;
mod log_file;
mod log_reader;
mod nginx_conf;
mod notation;
mod template;
mod value;

use std::{collections::BTreeMap, net::IpAddr};

use compact_str::CompactString;
use http::request;

pub use line_format::LogFormat;
pub use log_file::{InputLog, ReadError};
pub use log_reader::{LogProgress, LogReader, ReadOptions, ReadingNotes, UnreadableLines};
pub use template::FormatError;

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
    /// The units that it had reserved and its cost after all, as Tollgate logs them if the response tells the cost. Of
    /// several policies, those of the first.
    pub reserved: Option<u64>,
    pub charged: Option<u64>,
    pub progress: LoggedProgress,
    /// Its values, by name; `None`: it lacks the value. One that is not here is not known.
    pub values: BTreeMap<String, Option<CompactString>>,
}

/// How far a request got, according to its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedProgress {
    /// The proxy refused it before it looked for its route.
    Unrouted,
    /// The proxy refused it before it asked the policies.
    Unchecked,
    /// The proxy sent its own reply.
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
