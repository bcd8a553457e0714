//! The messages between the old and the new process, one per line.

/// The first message from the old process to the new one, followed by the keys of TLS sessions as JSON.
pub(super) const SESSIONS: &str = "sessions: ";
/// From the new process to the old one: clients are served.
pub(super) const READY: &str = "ready";
/// From the new process to the old one: it can't serve. Followed by the reason.
pub(super) const FAILED: &str = "failed: ";
/// From the old process to the new one: the old one accepts no more connections and is no longer the service's main
/// process.
pub(super) const TAKE_OVER: &str = "take over";
