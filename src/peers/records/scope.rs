//! The set of instances that share records, and the keys of these.

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
    budget::RecordBudget,
    table::{RecordTable, TableKeys},
};
use crate::abuse::{self, SHARED_CLIENTS, USER_ADDRESSES};

/// The version of the storage layout. Instances with another layout use other keys; theirs expire.
const LAYOUT: &str = "v3";

/// The records of one set of instances, from the view of one of them.
#[derive(Debug, Clone)]
pub struct RecordScope {
    prefix: String,
    /// This instance's number in records: not 0, and almost certainly unique.
    pub(super) instance: u32,
    /// Milliseconds; shared by all clones.
    retain: Arc<AtomicU64>,
    budget: Arc<RecordBudget>,
}

impl RecordScope {
    /// `prefix`: of all keys of this set of instances. `instance`: an ID that is unique and new with each start.
    /// `retain`: how long a client is kept after its last denial.
    pub fn new(prefix: &str, instance: &str, retain: Duration) -> Self {
        let hash = Sha256::digest(instance);
        Self {
            prefix: prefix.to_owned(),
            instance: u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]).max(1),
            retain: Arc::new(AtomicU64::new(to_millis(retain))),
            budget: Arc::new(RecordBudget::new()),
        }
    }

    /// Sets the retention of clients that are published from now on.
    pub fn set_retain(&self, retain: Duration) {
        self.retain.store(to_millis(retain), Relaxed);
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The memory budget of the records.
    pub(in crate::peers) fn budget(&self) -> &RecordBudget {
        &self.budget
    }

    /// The key of the index of clients.
    pub(in crate::peers) fn changed_key(&self) -> String {
        self.key("clients")
    }

    /// The table of clients.
    pub(super) fn clients(&self) -> RecordTable {
        let keys = TableKeys {
            index: self.changed_key(),
            dues: self.key("clients:dues"),
            total: self.key("clients:bytes"),
        };
        RecordTable {
            keys,
            width: 2,
            retain: self.retain_millis(),
            budget: self.budget.now().clients,
            most: SHARED_CLIENTS,
        }
    }

    /// The keys of a client's counts and evidence.
    pub(super) fn client_keys(&self, address: IpNet) -> [String; 2] {
        let address = abuse::shown(address);
        [self.key(&format!("client:{address}")), self.key(&format!("records:{address}"))]
    }

    /// The table of users.
    pub(super) fn users(&self) -> RecordTable {
        let keys = TableKeys {
            index: self.key("users"),
            dues: self.key("users:dues"),
            total: self.key("users:bytes"),
        };
        RecordTable {
            keys,
            width: 1,
            retain: self.retain_millis(),
            budget: self.budget.now().users,
            most: USER_ADDRESSES,
        }
    }

    /// The key of a user, by [`user_hash`].
    pub(super) fn user_key(&self, hash: &str) -> String {
        self.key(&format!("user:{hash}"))
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{{abuse}}:{LAYOUT}:{name}", self.prefix)
    }

    /// The retention in milliseconds.
    pub(in crate::peers) fn retain_millis(&self) -> u64 {
        self.retain.load(Relaxed)
    }
}

/// The hash that stands for a user's name. The name itself is not stored, since an index outlives its entries.
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
