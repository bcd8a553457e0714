//! Why Redis could not be asked, and what follows from it.

use bb8_redis::redis::{ErrorKind, RedisError, ServerErrorKind};

use super::error_hint;
use crate::{limit::Unavailable, telemetry::metrics::StoreFailure};

/// What is the matter.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: StoreFailure,
    pub(crate) why: String,
}

impl Failure {
    pub(crate) fn timeout() -> Self {
        Self { kind: StoreFailure::Timeout, why: "it took longer than store.redis.timeout".to_owned() }
    }

    /// It was not even sent: that says nothing of Redis.
    pub(super) fn overdue() -> Self {
        let why = "it waited longer than store.redis.timeout to be sent".to_owned();
        Self { kind: StoreFailure::Overdue, why }
    }

    pub(crate) fn silent() -> Self {
        Self { kind: StoreFailure::Timeout, why: "it does not tell in time what it is".to_owned() }
    }

    pub(super) fn open() -> Self {
        Self { kind: StoreFailure::BreakerOpen, why: "the breaker is open".to_owned() }
    }

    /// As the script says it of one request.
    pub(super) fn out_of_memory() -> Self {
        Self { kind: StoreFailure::OutOfMemory, why: "OOM: Redis has no memory left to count in".to_owned() }
    }

    /// What it answered is nothing that the script says.
    pub(super) fn nonsense(why: &str) -> Self {
        Self { kind: StoreFailure::Protocol, why: why.to_owned() }
    }

    /// Of the first question on a connection without TLS.
    pub(crate) fn at_first(error: RedisError) -> Self {
        Self { why: error_hint::describe_first(&error), ..error.into() }
    }

    /// Whether it says that Redis is not there for us, so that asking again soon is in vain. One without
    /// memory answers, and denials, which write nothing, still work.
    pub(crate) fn trips_the_breaker(&self) -> bool {
        !matches!(self.kind, StoreFailure::OutOfMemory | StoreFailure::BreakerOpen | StoreFailure::Overdue)
    }
}

/// Whether nothing is to be asked any more on the connection that failed so: it is no longer one, or the server may
/// have changed places with another. One that has no memory, or a script too few, is as good as any.
pub(super) fn spoils_the_connection(error: &RedisError) -> bool {
    use StoreFailure::{Connection, Loading, ReadOnly, Rights, Timeout};
    let kind = Failure::from(error.clone()).kind;
    error.is_unrecoverable_error() || matches!(kind, Connection | Loading | ReadOnly | Rights | Timeout)
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        let kind = match error.kind() {
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
            _ => said(&error),
        };
        Self { kind, why: error_hint::describe(&error) }
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
fn said(error: &RedisError) -> StoreFailure {
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
        Self(failure.why)
    }
}
