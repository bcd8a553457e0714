//! What keeping in touch with Redis takes.

use std::{sync::Arc, time::Duration};

use super::records::Scope;
use crate::{
    abuse::{AuditLog, Registry, bans::Bans},
    config::model,
    limit::{Breaker, Fleet, SystemClock},
    store::redis::Server,
};

/// Takes a policy's name and an identifier.
type OfOne = Box<dyn Fn(&str, &str) + Send>;

/// What the monitor works with.
pub struct Duties {
    pub server: Server,
    pub config: model::Redis,
    /// How this instance is told from others, and whose records it publishes.
    pub instance: String,
    /// How often the server is looked at again: what an operator has mended there is not to be complained of.
    pub audit_every: Duration,
    pub scope: Scope,
    pub registry: Arc<Registry>,
    pub bans: Arc<Bans>,
    pub audit: Arc<AuditLog>,
    pub clock: SystemClock,
    pub breaker: Arc<Breaker>,
    pub fleet: Arc<Fleet>,
    /// The hash of the configuration, which may change.
    pub configuration: Box<dyn Fn() -> String + Send>,
    /// Told the identifier whose limits were taken back, by whatever instance.
    pub unblocked: Box<dyn Fn(&str) + Send>,
    /// Told the policy and the identifier of which alone the limit was taken back.
    pub cleared: OfOne,
}
