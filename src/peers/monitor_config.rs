//! The parts of the process that the monitor works with.

use std::{sync::Arc, time::Duration};

use super::records::RecordScope;
use crate::{
    abuse::{AuditLog, ClientRegistry, bans::BanTable},
    api_keys::ApiKeys,
    config::model,
    limit::{Instances, WallClock},
    store::redis::Topology,
    upstream::DrainTable,
};

/// Called with a policy's name and an identifier.
type OnLimit = Box<dyn Fn(&str, &str) + Send>;

/// The monitor's settings, and the state that it replicates.
pub struct MonitorConfig {
    pub topology: Arc<Topology>,
    pub redis: model::Redis,
    /// The ID of this instance, and of its records.
    pub instance: String,
    /// How often the server is checked again, so that a warning ends once its cause is fixed.
    pub check_every: Duration,
    pub scope: RecordScope,
    pub registry: Arc<ClientRegistry>,
    pub bans: Arc<BanTable>,
    pub drains: Arc<DrainTable>,
    pub api_keys: Arc<ApiKeys>,
    pub audit: Arc<AuditLog>,
    pub clock: WallClock,
    pub instances: Arc<Instances>,
    /// The hash of the configuration, which may change.
    pub configuration: Box<dyn Fn() -> String + Send>,
    /// Called with an identifier whose limits were all reset, by any instance.
    pub on_unblocked: Box<dyn Fn(&str) + Send>,
    /// Called with a policy and an identifier whose limit alone was reset.
    pub on_cleared: OnLimit,
}
