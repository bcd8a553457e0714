//! Why Redis could not be asked, and what follows from it.

use bb8_redis::redis::{ErrorKind, RedisError, ServerErrorKind};
use compact_str::CompactString;

use super::error_hint;
use crate::{limit::Unavailable, telemetry::metrics::StoreFailure};

/// What failed, as metrics count it and as callers are told.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: StoreFailure,
    cause: Unavailable,
}

impl Failure {
    pub(crate) fn timeout() -> Self {
        Self { kind: StoreFailure::Timeout, cause: Unavailable::Timeout }
    }

    /// It was not even sent: that says nothing of Redis.
    pub(super) fn overdue() -> Self {
        Self { kind: StoreFailure::Overdue, cause: Unavailable::Overdue }
    }

    /// The server did not say in time what it is.
    pub(crate) fn silent() -> Self {
        let reason = CompactString::const_new("it does not tell in time what it is");
        Self { kind: StoreFailure::Timeout, cause: Unavailable::Connection(reason) }
    }

    pub(super) fn breaker_open() -> Self {
        Self { kind: StoreFailure::BreakerOpen, cause: Unavailable::BreakerOpen }
    }

    /// As the script says it of one request.
    pub(super) fn out_of_memory() -> Self {
        let reason = CompactString::const_new("OOM: Redis has no memory left to count in");
        Self { kind: StoreFailure::OutOfMemory, cause: Unavailable::Refused(reason) }
    }

    /// The reply is none that the script gives.
    pub(super) fn protocol(reason: impl Into<CompactString>) -> Self {
        Self { kind: StoreFailure::Protocol, cause: Unavailable::Protocol(reason.into()) }
    }

    /// The task that was to answer has ended.
    pub(super) fn abandoned() -> Self {
        Self { kind: StoreFailure::Protocol, cause: Unavailable::Abandoned("the link has ended") }
    }

    /// Of the first question on a connection without TLS.
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

    /// Whether it says that Redis is not there for us, so that asking again soon is in vain. One without
    /// memory answers, and denials, which write nothing, still work.
    pub(crate) fn trips_the_breaker(&self) -> bool {
        !matches!(self.kind, StoreFailure::OutOfMemory | StoreFailure::BreakerOpen | StoreFailure::Overdue)
    }
}

/// Whether nothing is to be asked any more on the connection that failed so: it is no longer one, or the server may
/// have changed places with another. One that has no memory, or a script too few, is as good as any.
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

/// By what an error says that the user may not do it, alone or as one of a command in a script (Redis 7 and Valkey,
/// Redis 6).
const RIGHTS: [&str; 6] = [
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "ACL failure in script",
    "executing the script can't run this command",
    "executing the script can't access",
];

/// What the server said in words: servers before version 7 put the error of a command in a script behind one
/// of the script's own.
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
