//! What the admin port is given.

use std::{net::SocketAddr, sync::Arc};

use super::{ActiveConfig, Readiness, Reloads};
use crate::{
    abuse::{AuditLog, ClientRegistry, bans::BanTable},
    config::model::Secret,
    limit::Clock,
    telemetry::{
        Events,
        diagnostics::Warnings,
        metrics::{MemoryFacts, Metrics, StoreFacts},
    },
};

/// Everything that the admin port shows or changes, but the store.
pub struct AdminState {
    /// `None`: only loopback may ask.
    pub token: Option<Secret>,
    pub registry: Arc<ClientRegistry>,
    pub bans: Arc<BanTable>,
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
    pub store_facts: StoreFactsSources,
}

/// What is fixed once the process has started.
#[derive(Debug, Clone, Default)]
pub struct ProcessFacts {
    /// Where clients are served: the addresses as they were bound.
    pub listeners: Vec<SocketAddr>,
    pub workers: usize,
    /// In microseconds since the Unix epoch.
    pub started: i64,
}

type FactsSource<T> = Box<dyn Fn() -> T + Send + Sync>;

/// Whom to ask how the stores stand.
pub struct StoreFactsSources {
    /// The store in memory, which stands in where a shared one is away.
    pub memory: FactsSource<MemoryFacts>,
    /// The store that instances share, if they do.
    pub shared: Option<FactsSource<StoreFacts>>,
}
