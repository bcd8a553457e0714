//! The parts of the process that the admin port shows or changes.

use std::sync::Arc;

use super::{ActiveConfig, Readiness, ReloadSender};
use crate::{
    abuse::{AuditLog, ClientRegistry, bans::BanTable},
    alerts::Alerts,
    api_keys::ApiKeys,
    config::model::{ListenAddress, Secret},
    history::History,
    limit::Clock,
    telemetry::{
        Events,
        diagnostics::SharedWarnings,
        metrics::{MemoryFacts, Metrics, StoreFacts},
    },
    upstream::DrainTable,
};

/// Everything that the admin port shows or changes, except the stores.
pub struct AdminState {
    /// `None`: only clients on loopback are allowed.
    pub token: Option<Secret>,
    pub registry: Arc<ClientRegistry>,
    pub bans: Arc<BanTable>,
    pub api_keys: Arc<ApiKeys>,
    pub drains: Arc<DrainTable>,
    pub audit: Arc<AuditLog>,
    /// `None`: none is kept.
    pub history: Option<Arc<History>>,
    /// `None` without a history.
    pub alerts: Option<Arc<Alerts>>,
    /// The configuration in force.
    pub active_config: Arc<ActiveConfig>,
    /// Requests reloads.
    pub reloads: ReloadSender,
    pub metrics: Arc<Metrics>,
    pub readiness: Arc<Readiness>,
    /// Events for subscribers of `/v1/events`.
    pub events: Events,
    /// Warnings raised since the start.
    pub warnings: SharedWarnings,
    /// The clock that stamps denials.
    pub clock: Arc<dyn Clock>,
    pub facts: ProcessFacts,
    pub store_facts: StoreFactsSources,
}

/// Facts that do not change after the start.
#[derive(Debug, Clone, Default)]
pub struct ProcessFacts {
    /// The addresses of the proxy's listeners, as bound.
    pub listeners: Vec<ListenAddress>,
    pub workers: usize,
    /// In microseconds since the Unix epoch.
    pub started: i64,
    /// Memory that the process may use, in bytes; `None` if it is not known.
    pub available_memory: Option<u64>,
}

pub(super) type FactsSource<T> = Box<dyn Fn() -> T + Send + Sync>;

/// Functions that read the state of the stores.
pub struct StoreFactsSources {
    /// The store in memory, which is the fallback of a shared one.
    pub memory: FactsSource<MemoryFacts>,
    /// The store that instances share, if any.
    pub shared: Option<FactsSource<StoreFacts>>,
}
