//! The configuration in force, as the admin port needs it. A reload may replace it at any time.

use std::sync::Arc;

use parking_lot::RwLock;

use super::dto::LastReload;
use crate::{changes, history::HistoryPlan, limit::Policy, peaks::PeakPlan, proxy::Rules, upstream};

/// The part of a configuration that the admin port uses. Immutable: a reload makes a new one.
pub struct ConfigSnapshot {
    /// The rules that decide over requests.
    pub rules: Arc<Rules>,
    /// How close clients come to the limits of its policies.
    pub peaks: Arc<PeakPlan>,
    /// What its history is told apart by; `None`: none is kept.
    pub history: Option<Arc<HistoryPlan>>,
    /// In the configuration's order.
    pub upstreams: Vec<Arc<upstream::SharedUpstream>>,
    /// Hash of the whole configuration.
    pub hash: String,
    /// Hash of all settings that affect decisions. Instances that share a store compare it.
    pub decides: String,
    /// When it was loaded, in microseconds since the Unix epoch.
    pub loaded: i64,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
}

impl ConfigSnapshot {
    /// In the configuration's order.
    pub fn policies(&self) -> &Arc<[Policy]> {
        self.rules.policies()
    }

    /// Number of leading bits of an IPv6 address that identify a client.
    pub(super) fn ipv6_prefix(&self) -> u8 {
        self.rules.config().client_address.ipv6_prefix
    }

    /// The index of a policy by its name.
    pub(super) fn policy_named(&self, name: &str) -> Option<usize> {
        self.policies().iter().position(|policy| policy.name == name)
    }
}

/// The configuration in force, and the outcome of the last reload.
pub struct ActiveConfig {
    configured: RwLock<Arc<ConfigSnapshot>>,
    last_reload: RwLock<Option<LastReload>>,
}

impl ActiveConfig {
    pub fn new(configured: ConfigSnapshot) -> Self {
        Self { configured: RwLock::new(Arc::new(configured)), last_reload: RwLock::default() }
    }

    /// The configuration in force now. Values from one snapshot are consistent.
    pub fn snapshot(&self) -> Arc<ConfigSnapshot> {
        Arc::clone(&self.configured.read())
    }

    pub fn replace(&self, configured: ConfigSnapshot) {
        *self.configured.write() = Arc::new(configured);
        changes::announce();
    }

    /// Records the time of a reload, in RFC 3339, and its first error, if it failed.
    pub fn reloaded(&self, time: String, error: Option<String>) {
        *self.last_reload.write() = Some(LastReload { time, error });
    }

    pub(super) fn last_reload(&self) -> Option<LastReload> {
        self.last_reload.read().clone()
    }
}
