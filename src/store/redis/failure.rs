//! Why Redis could not answer: the kind for metrics, the cause for callers, and whether it trips the breaker.

use bb8_redis::redis::{ErrorKind, RedisError, ServerErrorKind};
use compact_str::CompactString;

use super::error_hint;
use crate::{limit::Unavailable, telemetry::metrics::StoreFailure};

/// A failure: its kind for metrics, and its cause for callers.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: StoreFailure,
    cause: Unavailable,
}

impl Failure {
    pub(crate) fn timeout() -> Self {
        Self { kind: StoreFailure::Timeout, cause: Unavailable::Timeout }
    }

    /// The batch was not sent in time, which says nothing about Redis.
    pub(super) fn overdue() -> Self {
        Self { kind: StoreFailure::Overdue, cause: Unavailable::Overdue }
    }

    /// The server did not report its version and role in time.
    pub(crate) fn silent() -> Self {
        let reason = CompactString::const_new("the server did not answer INFO in time");
        Self { kind: StoreFailure::Timeout, cause: Unavailable::Connection(reason) }
    }

    pub(super) fn breaker_open() -> Self {
        Self { kind: StoreFailure::BreakerOpen, cause: Unavailable::BreakerOpen }
    }

    /// The script's reply 2 to one request.
    pub(super) fn out_of_memory() -> Self {
        let reason = CompactString::const_new("OOM: Redis has no memory left to count requests");
        Self { kind: StoreFailure::OutOfMemory, cause: Unavailable::Refused(reason) }
    }

    /// The reply is not one that the script gives.
    pub(super) fn protocol(reason: impl Into<CompactString>) -> Self {
        Self { kind: StoreFailure::Protocol, cause: Unavailable::Protocol(reason.into()) }
    }

    /// The task that was to answer has ended.
    pub(super) fn abandoned() -> Self {
        Self { kind: StoreFailure::Protocol, cause: Unavailable::Abandoned("the connection task has ended") }
    }

    /// The failure of the first command on a connection without TLS.
    pub(crate) fn at_first(error: &RedisError) -> Self {
        Self::new(kind(error), error_hint::describe_first(error))
    }

    fn new(kind: StoreFailure, reason: String) -> Self {
        let reason = CompactString::from(reason);
        let cause = match kind {
            StoreFailure::Timeout | StoreFailure::Connection => Unavailable::Connection(reason),
            StoreFailure::Protocol => Unavailable::Protocol(reason),
            _ => Unavailable::Refused(reason),
        };
        Self { kind, cause }
    }

    /// What was the matter, in words.
    pub(crate) fn reason(&self) -> &str {
        self.cause.reason()
    }

    /// Whether it shows that Redis is not available, so that asking again soon is useless. Redis without memory still answers,
    /// and denials, which write nothing, still work.
    pub(crate) fn trips_the_breaker(&self) -> bool {
        !matches!(self.kind, StoreFailure::OutOfMemory | StoreFailure::BreakerOpen | StoreFailure::Overdue)
    }
}

/// Whether the connection must not be used again after this error: it is broken, or the server may have been replaced by
/// another. A connection to a server without memory, or without the script, is still good.
pub(super) fn breaks_the_connection(error: &RedisError) -> bool {
    use StoreFailure::{Connection, Loading, ReadOnly, Rights, Timeout};
    error.is_unrecoverable_error()
        || matches!(kind(error), Connection | Loading | ReadOnly | Rights | Timeout)
}

fn kind(error: &RedisError) -> StoreFailure {
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => StoreFailure::Timeout,
        ErrorKind::Io => StoreFailure::Connection,
        ErrorKind::AuthenticationFailed => StoreFailure::Rights,
        ErrorKind::Server(ServerErrorKind::ReadOnly) => StoreFailure::ReadOnly,
        ErrorKind::Server(ServerErrorKind::NoPerm) => StoreFailure::Rights,
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::TryAgain,
        ) => StoreFailure::Loading,
        _ => kind_by_text(error),
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self::new(kind(&error), error_hint::describe(&error))
    }
}

/// The texts of errors that mean missing rights, of a command itself or of one in a script (Redis 7 and Valkey, Redis 6).
const RIGHTS: [&str; 6] = [
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "ACL failure in script",
    "executing the script can't run this command",
    "executing the script can't access",
];

/// The kind of an error by its text: servers before version 7 put the error of a command in a script after one of the script's
/// own.
fn kind_by_text(error: &RedisError) -> StoreFailure {
    let code = error.code().unwrap_or_default();
    let says = |word: &str| code == word || error.detail().is_some_and(|detail| detail.contains(word));
    match () {
        () if says("OOM") => StoreFailure::OutOfMemory,
        () if says("READONLY") => StoreFailure::ReadOnly,
        () if RIGHTS.into_iter().any(says) => StoreFailure::Rights,
        () if says("BUSY") || says("LOADING") => StoreFailure::Loading,
        () => StoreFailure::Protocol,
    }
}

impl From<Failure> for Unavailable {
    fn from(failure: Failure) -> Self {
        failure.cause
    }
}
