//! What the admin port is given.

use std::{net::SocketAddr, sync::Arc};

use super::{ActiveConfig, Readiness, Reloads};
use crate::{
    abuse::{AuditLog, Registry, bans::Bans},
    config::model::Secret,
    limit::Clock,
    telemetry::{Events, diagnostics::Warnings, metrics::Metrics},
};

/// Everything that the admin port shows or changes, but the store.
pub struct AdminState {
    /// `None`: only loopback may ask.
    pub token: Option<Secret>,
    pub registry: Arc<Registry>,
    pub bans: Arc<Bans>,
    pub audit: Arc<AuditLog>,
    /// What goes by the configuration.
    pub in_force: Arc<ActiveConfig>,
    /// Where a reload is asked for.
    pub reloads: Reloads,
    pub metrics: Arc<Metrics>,
    pub readiness: Arc<Readiness>,
    /// What happens, for whoever watches.
    pub events: Events,
    /// What was found out since the start, in words.
    pub warnings: Warnings,
    /// The same that stamps denials.
    pub clock: Arc<dyn Clock>,
    pub facts: ProcessFacts,
}

/// What is fixed once the process has started.
#[derive(Debug, Clone, Default)]
pub struct ProcessFacts {
    /// Where clients are served: the addresses as they were bound.
    pub listeners: Vec<SocketAddr>,
}
