//! Denied requests that rules count, as a worker notes them. On the path of a request, so everything here has to be
//! cheap.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    sync::Arc,
};

use compact_str::CompactString;

use super::{BanTable, BannedKey, LadderRule};

/// Maximum number of addresses, and of users, noted per tick; denials of more are dropped.
const MAX_KEYS: usize = 1_024;

/// Denied requests of one key that one rule counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Offense {
    pub rule: Arc<LadderRule>,
    pub key: BannedKey,
    pub count: u64,
    /// The times of the first and the last of them, in microseconds since the Unix epoch.
    pub first: i64,
    pub last: i64,
    /// The policy that denied the last of them.
    pub policy: CompactString,
}

impl Offense {
    /// Adds others of the same key and rule: all count as of the first.
    pub(super) fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.first = self.first.min(other.first);
        if other.last > self.last {
            (self.last, self.policy) = (other.last, other.policy.clone());
        }
    }

    /// Whether the last of them still counts at `now`.
    pub(super) fn is_within_window(&self, now: i64) -> bool {
        self.last.saturating_add(self.rule.terms.window) > now
    }
}

/// Notes denied requests. Belongs to one thread.
#[derive(Debug)]
pub struct OffenseRecorder {
    bans: Arc<BanTable>,
    /// Of addresses, and of users.
    pending: [RefCell<PendingOffenses>; 2],
    dropped: Cell<u64>,
}

/// By the rule's address in memory, which does not change while the rule is referenced here, and the identifier.
type PendingOffenses = HashMap<(usize, CompactString), PendingOffense, foldhash::fast::RandomState>;

#[derive(Debug)]
struct PendingOffense {
    rule: Arc<LadderRule>,
    count: u64,
    first: i64,
    last: i64,
    policy: CompactString,
}

impl OffenseRecorder {
    /// An empty recorder that hands over to `bans`.
    pub fn new(bans: Arc<BanTable>) -> Self {
        Self { bans, pending: <[_; 2]>::default(), dropped: Cell::new(0) }
    }

    /// Notes a request that `policy` denied, at `now` in microseconds since the Unix epoch. `identifier`: the key
    /// that the rule counts by, such as `ip:203.0.113.7`.
    pub fn note(&self, rule: &Arc<LadderRule>, identifier: CompactString, policy: &str, now: i64) {
        let mut pending = self.pending[usize::from(identifier.starts_with("user:"))].borrow_mut();
        let key = (Arc::as_ptr(rule).addr(), identifier);
        if let Some(noted) = pending.get_mut(&key) {
            noted.count += 1;
            noted.last = noted.last.max(now);
            if noted.policy != policy {
                noted.policy = policy.into();
            }
        } else if pending.len() < MAX_KEYS {
            let (rule, policy) = (Arc::clone(rule), policy.into());
            pending.insert(key, PendingOffense { rule, count: 1, first: now, last: now, policy });
        } else {
            self.dropped.set(self.dropped.get() + 1);
        }
    }

    /// Hands over the notes. To be called with each tick of the worker.
    pub fn flush(&self) {
        let [mut addresses, mut users] = self.pending.each_ref().map(RefCell::borrow_mut);
        let dropped = self.dropped.take();
        if addresses.is_empty() && users.is_empty() && dropped == 0 {
            return;
        }
        let offenses = addresses.drain().chain(users.drain()).filter_map(|((_, identifier), noted)| {
            let PendingOffense { rule, count, first, last, policy } = noted;
            Some(Offense { rule, key: BannedKey::from_canonical(&identifier)?, count, first, last, policy })
        });
        self.bans.add_offenses(offenses, dropped);
    }
}

impl Drop for OffenseRecorder {
    fn drop(&mut self) {
        self.flush();
    }
}
