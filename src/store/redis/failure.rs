//! Why a call to Redis failed: the kind for metrics, the cause for callers, and whether it trips the breaker.

use bb8_redis::redis::{ErrorKind, RedisError, ServerErrorKind};
use compact_str::CompactString;

use super::{error_hint, server_address::ServerAddress};
use crate::{limit::Unavailable, telemetry::metrics::StoreFailure};

/// A failure: its kind for metrics, and its cause for callers.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: StoreFailure,
    cause: Unavailable,
    /// Where to send the request, if a cluster node has refused its keys. Then the node has run nothing.
    pub(super) reroute: Option<Reroute>,
}

/// Why a cluster node has run nothing of a request, and where to send it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reroute {
    /// The slot has moved to this node: use it from now on.
    Moved(ServerAddress),
    /// The slot is being moved, and this key is already on the other node: use it this once.
    Ask(ServerAddress),
    /// The slot is being moved, and its keys are on both nodes: send each check alone.
    TryAgain,
    /// Of keys in several slots, one is not on this node: send each slot alone.
    OtherSlot,
}

impl Failure {
    pub(crate) fn timeout() -> Self {
        Self::with(StoreFailure::Timeout, Unavailable::Timeout)
    }

    /// There was no connection in time: nothing was sent.
    pub(super) fn no_connection() -> Self {
        let reason = CompactString::const_new("no connection within store.redis.timeout");
        Self::with(StoreFailure::Timeout, Unavailable::Unreachable(reason))
    }

    /// The batch was not sent in time, which says nothing about Redis.
    pub(super) fn overdue() -> Self {
        Self::with(StoreFailure::Overdue, Unavailable::Overdue)
    }

    /// The server did not report its version and role in time.
    pub(crate) fn silent() -> Self {
        let reason = CompactString::const_new("the server did not answer INFO in time");
        Self::with(StoreFailure::Timeout, Unavailable::Connection(reason))
    }

    pub(super) fn breaker_open() -> Self {
        Self::with(StoreFailure::BreakerOpen, Unavailable::BreakerOpen)
    }

    /// The script could write nothing for lack of memory.
    pub(super) fn out_of_memory() -> Self {
        let reason = CompactString::const_new("OOM: Redis has no memory left to count requests");
        Self::with(StoreFailure::OutOfMemory, Unavailable::Refused(reason))
    }

    /// The value of a limit can't be one of ours, and its policy has `on_store_error: deny`.
    pub(super) fn spoilt() -> Self {
        let reason = CompactString::const_new("another program has overwritten the limit in Redis");
        Self::with(StoreFailure::Protocol, Unavailable::Refused(reason))
    }

    /// The server's clock was set between two calls.
    pub(super) fn no_window() -> Self {
        let reason = CompactString::const_new("the clock of Redis has changed by more than a window");
        Self::with(StoreFailure::Protocol, Unavailable::Refused(reason))
    }

    /// The reply is not one of the script's.
    pub(super) fn protocol(reason: impl Into<CompactString>) -> Self {
        Self::with(StoreFailure::Protocol, Unavailable::Protocol(reason.into()))
    }

    /// The task that was to reply has ended.
    pub(super) fn abandoned() -> Self {
        Self::with(StoreFailure::Protocol, Unavailable::Abandoned("the connection task has ended"))
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
        Self::with(kind, cause)
    }

    fn with(kind: StoreFailure, cause: Unavailable) -> Self {
        Self { kind, cause, reroute: None }
    }

    /// No known server decides over the key.
    pub(super) fn no_node() -> Self {
        Self::unreachable(CompactString::const_new("no Redis server is known to serve this key"))
    }

    pub(super) fn unreachable(reason: impl Into<CompactString>) -> Self {
        Self::with(StoreFailure::Connection, Unavailable::Unreachable(reason.into()))
    }

    /// A connection could not be opened: nothing was sent.
    pub(super) fn of_opening(error: RedisError) -> Self {
        let failure = Self::from(error);
        match failure.cause {
            Unavailable::Connection(reason) | Unavailable::Protocol(reason) => {
                Self { cause: Unavailable::Unreachable(reason), ..failure }
            }
            _ => failure,
        }
    }

    /// The keys of one request are on several nodes.
    pub(super) fn moving() -> Self {
        Self { reroute: Some(Reroute::TryAgain), ..Self::with(StoreFailure::Loading, Unavailable::Moving) }
    }

    /// The error reply of the node at `asked`. `has_any_slots`: to a script with keys of several slots.
    pub(super) fn of_node(error: RedisError, asked: &ServerAddress, has_any_slots: bool) -> Self {
        let reroute = reroute(&error, asked, has_any_slots);
        Self { reroute, ..error.into() }
    }

    /// The reason, as text.
    pub(crate) fn reason(&self) -> &str {
        self.cause.reason()
    }

    /// Whether it shows that Redis is not available, so that an early retry is useless. Redis without memory still
    /// replies, and denials, which write nothing, still work. A cluster that is down replies at once, and is up as soon
    /// as another node has the slots.
    pub(crate) fn trips_the_breaker(&self) -> bool {
        use StoreFailure::{BreakerOpen, ClusterDown, OutOfMemory, Overdue};
        self.reroute.is_none() && !matches!(self.kind, OutOfMemory | ClusterDown | BreakerOpen | Overdue)
    }
}

fn reroute(error: &RedisError, asked: &ServerAddress, has_any_slots: bool) -> Option<Reroute> {
    let target = || ServerAddress::parse(error.redirect_node()?.0, &asked.host);
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved) => target().map(Reroute::Moved),
        ErrorKind::Server(ServerErrorKind::Ask) => target().map(Reroute::Ask),
        ErrorKind::Server(ServerErrorKind::TryAgain) => Some(Reroute::TryAgain),
        _ if !has_any_slots || error.code() == Some("PARTIAL") => None,
        ErrorKind::Server(ServerErrorKind::CrossSlot) => Some(Reroute::OtherSlot),
        _ => {
            let says = |words: &str| error.detail().is_some_and(|detail| detail.contains(words));
            REFUSED_SLOTS.into_iter().any(says).then_some(Reroute::OtherSlot)
        }
    }
}

/// Error texts of servers for a key of another slot in a script. The first: the key is on another node.
const REFUSED_SLOTS: [&str; 6] = [
    NOT_HERE,
    NOT_SERVED,
    "do not hash to the same slot",
    "undeclared key",
    "must be passed as keys",
    "without any input keys",
];
const NOT_HERE: &str = "non local key";
/// Since Redis 8 and Valkey 8: no node has the slot.
const NOT_SERVED: &str = "slot not served";

/// Whether a node refuses a key that it does not have.
pub(super) fn refuses_foreign_key(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains(NOT_HERE))
}

/// Whether the server refuses every script with keys of several slots, not only keys that it does not have.
pub(super) fn refuses_any_slots(error: &RedisError) -> bool {
    reroute(error, &ServerAddress { host: String::new(), port: 0 }, true) == Some(Reroute::OtherSlot)
        && !error.detail().is_some_and(|detail| detail.contains(NOT_HERE) || detail.contains(NOT_SERVED))
}

/// Whether the server does not know the script, as after a flush or a restart.
pub(crate) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Whether the connection must not be used again after this error: it is broken, or the server may have been replaced.
/// A connection to a server without memory, or without the script, is still valid.
pub(super) fn breaks_the_connection(error: &RedisError) -> bool {
    use StoreFailure::{Connection, Loading, ReadOnly, Rights, Timeout};
    let is_busy_slot = error.kind() == ErrorKind::Server(ServerErrorKind::TryAgain);
    error.is_unrecoverable_error()
        || !is_busy_slot && matches!(kind(error), Connection | Loading | ReadOnly | Rights | Timeout)
}

fn kind(error: &RedisError) -> StoreFailure {
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => StoreFailure::Timeout,
        ErrorKind::Io => StoreFailure::Connection,
        ErrorKind::AuthenticationFailed => StoreFailure::Rights,
        ErrorKind::Server(ServerErrorKind::ReadOnly) => StoreFailure::ReadOnly,
        ErrorKind::Server(ServerErrorKind::NoPerm) => StoreFailure::Rights,
        ErrorKind::Server(
            ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown | ServerErrorKind::TryAgain,
        ) => StoreFailure::Loading,
        ErrorKind::Server(ServerErrorKind::ClusterDown) => StoreFailure::ClusterDown,
        _ => kind_by_text(error),
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self::new(kind(&error), error_hint::describe(&error))
    }
}

/// Error texts of missing rights, for a command itself or one in a script (Redis 7 and Valkey, Redis 6).
const RIGHTS: [&str; 6] = [
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "ACL failure in script",
    "executing the script can't run this command",
    "executing the script can't access",
];

/// The kind of an error by its text: servers before version 7 put the error of a command in a script behind an error of
/// the script.
fn kind_by_text(error: &RedisError) -> StoreFailure {
    let code = error.code().unwrap_or_default();
    let says = |word: &str| code == word || error.detail().is_some_and(|detail| detail.contains(word));
    match () {
        // The script has written something before the cause.
        () if code == "PARTIAL" => StoreFailure::Protocol,
        () if says("OOM") => StoreFailure::OutOfMemory,
        () if says("READONLY") => StoreFailure::ReadOnly,
        () if RIGHTS.into_iter().any(says) => StoreFailure::Rights,
        () if says("cluster is down") => StoreFailure::ClusterDown,
        () if says("BUSY") || says("LOADING") => StoreFailure::Loading,
        () => StoreFailure::Protocol,
    }
}

impl From<Failure> for Unavailable {
    fn from(failure: Failure) -> Self {
        failure.cause
    }
}
