//! The audit log: what was changed, and by whom.

use std::{cmp::Reverse, sync::Arc};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::outbox::{Outbox, Pending};
use crate::limit::Clock;

/// Entries at most, and entries that wait to be sent at most; the oldest are dropped first.
pub const MAX_AUDIT_ENTRIES: usize = 1_000;
/// Longest text in an entry, in bytes.
const MAX_TEXT_BYTES: usize = 1_024;

/// A change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Distinguishes entries that are alike.
    pub id: u64,
    /// Microseconds since the Unix epoch, by the clock of the instance.
    pub time: i64,
    /// Who changed it: `operator at 127.0.0.1`, `bans.hammering`.
    pub by: String,
    /// `unblock`, `ban`, `lift`, `reset`, `reload`
    pub action: String,
    /// What was changed: an address, a key, a policy with a key, a configuration.
    pub target: String,
    pub detail: String,
    /// The instance that changed it.
    pub instance: String,
}

/// The last changes: those of this instance, and those of others that append to the same shared list.
pub struct AuditLog {
    clock: Arc<dyn Clock>,
    instance: String,
    /// Whether there is a shared list, to which [pending](AuditLog::pending) entries are appended.
    is_shared: bool,
    entries: Mutex<Entries>,
}

#[derive(Debug)]
struct Entries {
    /// Newest first.
    all: Vec<AuditEntry>,
    /// Those of this instance that are not in the shared list yet.
    outbox: Outbox<AuditEntry>,
}

impl AuditLog {
    /// An empty log of this instance. `is_shared`: whether instances share a list.
    pub fn new(clock: Arc<dyn Clock>, instance: impl Into<String>, is_shared: bool) -> Self {
        let entries = Entries { all: Vec::new(), outbox: Outbox::new(MAX_AUDIT_ENTRIES) };
        Self { clock, instance: instance.into(), is_shared, entries: Mutex::new(entries) }
    }

    /// Adds an entry, and logs it.
    pub fn write(&self, by: &str, action: &str, target: &str, detail: &str) {
        let [by, action, target, detail] = [by, action, target, detail].map(truncate);
        tracing::info!(by, action, target, "{detail}");
        let [by, action, target, detail] = [by, action, target, detail].map(str::to_owned);
        let (time, instance) = (self.clock.now(), self.instance.clone());
        let entry = AuditEntry { id: fastrand::u64(..), time, by, action, target, detail, instance };
        let mut entries = self.entries.lock();
        if self.is_shared {
            entries.outbox.push(entry.clone());
        }
        entries.add([entry]);
    }

    /// Up to `max` entries, newest first. `after`: the time and id of the entry behind which they begin.
    pub fn entries(&self, after: Option<(i64, u64)>, max: usize) -> Vec<AuditEntry> {
        let is_behind = |entry: &&AuditEntry| after.is_none_or(|after| (entry.time, entry.id) < after);
        self.entries.lock().all.iter().filter(is_behind).take(max).cloned().collect()
    }

    /// Up to `max` entries that are not in the shared list yet, oldest first.
    pub fn pending(&self, max: usize) -> Vec<Pending<AuditEntry>> {
        self.entries.lock().outbox.pending(max)
    }

    /// These entries were appended to the shared list.
    pub fn ack(&self, sent: &[Pending<AuditEntry>]) {
        self.entries.lock().outbox.ack(sent);
    }

    /// The shared list was lost: the entries of this instance are appended again.
    pub fn resend_all(&self) {
        let mut entries = self.entries.lock();
        let Entries { all, outbox } = &mut *entries;
        outbox.clear();
        for entry in all.iter().rev().filter(|entry| entry.instance == self.instance) {
            outbox.push(entry.clone());
        }
    }

    /// Adds the entries of the shared list, in any order.
    pub fn merge(&self, found: impl IntoIterator<Item = AuditEntry>) {
        let is_short = |entry: &AuditEntry| {
            [&entry.by, &entry.action, &entry.target, &entry.detail, &entry.instance]
                .into_iter()
                .all(|text| text.len() <= MAX_TEXT_BYTES)
        };
        self.entries.lock().add(found.into_iter().filter(is_short));
    }
}

impl Entries {
    fn add(&mut self, entries: impl IntoIterator<Item = AuditEntry>) {
        self.all.extend(entries);
        self.all.sort_by_key(|entry| Reverse((entry.time, entry.id)));
        self.all.dedup_by_key(|entry| (entry.time, entry.id));
        self.all.truncate(MAX_AUDIT_ENTRIES);
    }
}

fn truncate(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}

impl std::fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditLog").field("instance", &self.instance).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::ManualClock;

    fn targets(log: &AuditLog) -> Vec<String> {
        log.entries(None, MAX_AUDIT_ENTRIES).into_iter().map(|entry| entry.target).collect()
    }

    #[test]
    fn entries_are_listed_newest_first_and_the_oldest_are_dropped() {
        let clock = Arc::new(ManualClock::new(0));
        let log = AuditLog::new(Arc::clone(&clock) as Arc<dyn Clock>, "one", true);
        for n in 0..MAX_AUDIT_ENTRIES + 2 {
            clock.set(n as i64);
            log.write("operator at 127.0.0.1", "lift", &n.to_string(), "");
        }
        let newest = log.entries(None, 2);
        assert_eq!([&newest[0].target, &newest[1].target], ["1001", "1000"]);
        let behind = log.entries(Some((newest[1].time, newest[1].id)), 1);
        assert_eq!(behind[0].target, "999");
        assert_eq!(
            (log.entries(None, 9_999).len(), log.pending(9_999).len()),
            (MAX_AUDIT_ENTRIES, MAX_AUDIT_ENTRIES)
        );
    }

    #[test]
    fn entries_of_others_are_merged_once() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(5));
        let (one, other) =
            (AuditLog::new(Arc::clone(&clock), "one", true), AuditLog::new(clock, "other", true));
        one.write("operator at 127.0.0.1", "lift", "ip:203.0.113.7", "");
        let sent = one.pending(9);
        one.ack(&sent);
        assert_eq!(one.pending(9), []);
        for _ in 0..2 {
            other.merge(sent.iter().map(|sent| sent.item.clone()));
        }
        assert_eq!(targets(&other), ["ip:203.0.113.7"]);
        one.resend_all();
        other.resend_all();
        assert_eq!((one.pending(9).len(), other.pending(9).len()), (1, 0), "each sends its own");
    }
}
