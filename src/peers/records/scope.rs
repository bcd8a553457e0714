//! Whose records, and the keys they are kept under.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use ipnet::IpNet;

use crate::abuse;

/// Bytes of what one instance knows of a client. What is longer was written by no instance.
pub(super) const MAX_SNAPSHOT: usize = 256 << 10;
/// Instances that are remembered of a client, those that are gone among them.
pub(super) const MAX_INSTANCES: usize = 256;
/// The field of a client's hash that says when it was forgotten.
pub(super) const FORGOTTEN_FIELD: &str = "forgotten";

/// The records of one set of instances, as one of them sees them.
#[derive(Debug, Clone)]
pub struct Scope {
    prefix: String,
    pub(super) instance: String,
    /// Milliseconds; all clones have the same.
    retain: Arc<AtomicU64>,
}

impl Scope {
    /// `prefix`: that of all keys of this set of instances. `instance`: this one's ID, which no other has,
    /// nor this one after a restart. `retain`: how long a client stays after its last denial.
    pub fn new(prefix: &str, instance: &str, retain: Duration) -> Self {
        Self {
            prefix: prefix.to_owned(),
            instance: instance.to_owned(),
            retain: Arc::new(AtomicU64::new(to_millis(retain))),
        }
    }

    /// Retains clients for so long from now on: those that are published after it.
    pub fn set_retain(&self, retain: Duration) {
        self.retain.store(to_millis(retain), Relaxed);
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    fn retain(&self) -> Duration {
        Duration::from_millis(self.retain_millis())
    }

    /// The key of the index.
    pub(in crate::peers) fn changed_key(&self) -> String {
        format!("{}:{{abuse}}:changed", self.prefix)
    }

    /// The key of a client.
    pub(super) fn client_key(&self, address: IpNet) -> String {
        format!("{}:{{abuse}}:{}", self.prefix, abuse::shown(address))
    }

    /// The key of the users who were seen behind a client in a slice of time.
    pub(super) fn users_key(&self, address: IpNet, slice: u32) -> String {
        format!("{}:{{abuse}}:users:{}:{slice}", self.prefix, abuse::shown(address))
    }

    /// [`Scope::users_key`] for all slices that count now.
    pub(super) fn users_keys(&self, address: IpNet, now: i64) -> Vec<String> {
        abuse::slices(self.retain(), now).map(|slice| self.users_key(address, slice)).collect()
    }

    /// The key of the index of users at addresses.
    pub(super) fn user_index_key(&self) -> String {
        format!("{}:{{abuse}}:seen", self.prefix)
    }

    /// The key of a user, by the name under which users are kept.
    pub(super) fn user_key(&self, name: &str) -> String {
        format!("{}:{{abuse}}:user:{name}", self.prefix)
    }

    /// Milliseconds.
    pub(super) fn retain_millis(&self) -> u64 {
        self.retain.load(Relaxed)
    }
}

/// Rounded up; an expiry of 0 would be a removal.
pub(super) fn to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1)
}
