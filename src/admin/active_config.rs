//! What the admin port shows and asks by depends on the configuration, and that may change at any time.

use std::sync::Arc;

use parking_lot::RwLock;

use super::dto::LastReload;
use crate::{limit::Policy, proxy::Rules, upstream};

/// What of the configuration the admin port goes by. Immutable: a reload brings another.
pub struct ConfigSnapshot {
    /// What requests are held against.
    pub rules: Arc<Rules>,
    /// In the configuration's order.
    pub upstreams: Vec<Arc<upstream::SharedUpstream>>,
    /// Tells two configurations apart.
    pub hash: String,
    /// Tells apart what they decide over requests: what instances that share a store compare.
    pub decides: String,
    /// When it was loaded, in microseconds since the Unix epoch.
    pub loaded: i64,
    /// What an operator should know, in words.
    pub warnings: Vec<String>,
}

impl ConfigSnapshot {
    /// In the configuration's order.
    pub fn policies(&self) -> &Arc<[Policy]> {
        self.rules.policies()
    }

    /// How much of an IPv6 address identifies a client.
    pub(super) fn ipv6_prefix(&self) -> u8 {
        self.rules.config().client_address.ipv6_prefix
    }

    /// The index of a policy by its name.
    pub(super) fn policy_named(&self, name: &str) -> Option<usize> {
        self.policies().iter().position(|policy| policy.name == name)
    }
}

/// What is in force, and what became of the last reload.
pub struct ActiveConfig {
    configured: RwLock<Arc<ConfigSnapshot>>,
    last_reload: RwLock<Option<LastReload>>,
}

impl ActiveConfig {
    /// As it was configured at the start.
    pub fn new(configured: ConfigSnapshot) -> Self {
        Self { configured: RwLock::new(Arc::new(configured)), last_reload: RwLock::default() }
    }

    /// What is in force now. Whoever looks at more than one thing of it looks at one such.
    pub fn snapshot(&self) -> Arc<ConfigSnapshot> {
        Arc::clone(&self.configured.read())
    }

    /// Goes by this one from now on.
    pub fn replace(&self, configured: ConfigSnapshot) {
        *self.configured.write() = Arc::new(configured);
    }

    /// Notes that there was a reload at this time, RFC 3339, and what was wrong with it, if anything.
    pub fn reloaded(&self, time: String, error: Option<String>) {
        *self.last_reload.write() = Some(LastReload { time, error });
    }

    pub(super) fn last_reload(&self) -> Option<LastReload> {
        self.last_reload.read().clone()
    }
}
