//! Whose records, and the keys they are kept under.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use ipnet::IpNet;
use sha2::{Digest, Sha256};

use super::{
    budget::Budget,
    table::{Table, TableKeys},
};
use crate::abuse::{self, SHARED_CLIENTS, USER_ADDRESSES};

/// The layout of what is stored. Instances of another layout use other keys; what they leave behind expires.
const LAYOUT: &str = "v3";

/// The records of one set of instances, as one of them sees them.
#[derive(Debug, Clone)]
pub struct Scope {
    prefix: String,
    /// This instance's number in records: nearly certainly no other instance's, and not 0.
    pub(super) instance: u32,
    /// Milliseconds; all clones have the same.
    retain: Arc<AtomicU64>,
    budget: Arc<Budget>,
}

impl Scope {
    /// `prefix`: that of all keys of this set of instances. `instance`: this one's ID, which no other has,
    /// nor this one after a restart. `retain`: how long a client stays after its last denial.
    pub fn new(prefix: &str, instance: &str, retain: Duration) -> Self {
        let hash = Sha256::digest(instance);
        Self {
            prefix: prefix.to_owned(),
            instance: u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]).max(1),
            retain: Arc::new(AtomicU64::new(to_millis(retain))),
            budget: Arc::new(Budget::new()),
        }
    }

    /// Retains clients for so long from now on: those that are published after it.
    pub fn set_retain(&self, retain: Duration) {
        self.retain.store(to_millis(retain), Relaxed);
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// How much memory of Redis the records may take.
    pub(in crate::peers) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The key of the index of clients.
    pub(in crate::peers) fn changed_key(&self) -> String {
        self.key("clients")
    }

    /// The table of clients.
    pub(super) fn clients(&self) -> Table {
        let keys = TableKeys {
            index: self.changed_key(),
            dues: self.key("clients:dues"),
            total: self.key("clients:bytes"),
        };
        Table {
            keys,
            width: 2,
            retain: self.retain_millis(),
            budget: self.budget.now().clients,
            most: SHARED_CLIENTS,
        }
    }

    /// The keys of a client: its counts, and its evidence.
    pub(super) fn client_keys(&self, address: IpNet) -> [String; 2] {
        let address = abuse::shown(address);
        [self.key(&format!("client:{address}")), self.key(&format!("records:{address}"))]
    }

    /// The table of users.
    pub(super) fn users(&self) -> Table {
        let keys = TableKeys {
            index: self.key("users"),
            dues: self.key("users:dues"),
            total: self.key("users:bytes"),
        };
        Table {
            keys,
            width: 1,
            retain: self.retain_millis(),
            budget: self.budget.now().users,
            most: USER_ADDRESSES,
        }
    }

    /// The key of a user, by what stands for the name in the table.
    pub(super) fn user_key(&self, hash: &str) -> String {
        self.key(&format!("user:{hash}"))
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{{abuse}}:{LAYOUT}:{name}", self.prefix)
    }

    /// Milliseconds.
    pub(super) fn retain_millis(&self) -> u64 {
        self.retain.load(Relaxed)
    }
}

/// What stands for a user, by the name under which users are kept: the name itself is not stored, since an index outlives
/// its entries.
pub(super) fn user_hash(name: &str) -> String {
    Sha256::digest(name)[..8].iter().fold(String::with_capacity(16), |mut text, byte| {
        use std::fmt::Write;
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Rounded up; an expiry of 0 would be a removal.
fn to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1)
}
