//! What was changed, by whom.

use std::{cmp::Reverse, collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::limit::Clock;

/// Entries kept; the oldest go first.
pub const MAX_AUDIT_ENTRIES: usize = 1_000;
/// Bytes of a text in an entry.
const LONGEST: usize = 1_024;

/// Something that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// What tells entries apart that are alike.
    pub id: u64,
    /// Microseconds since the Unix epoch, by the clock of the instance.
    pub time: i64,
    /// Who: `operator at 127.0.0.1`, `bans.hammering`.
    pub by: String,
    /// `unblock`, `ban`, `lift`, `reset`, `reload`
    pub action: String,
    /// What was changed: an address, a key, a policy with a key, a configuration.
    pub target: String,
    pub detail: String,
    /// The instance that did it.
    pub instance: String,
}

/// The last changes, newest first: this instance's, and those of the others where they share a list.
pub struct AuditLog {
    clock: Arc<dyn Clock>,
    instance: String,
    /// Whether pending entries are written to that list.
    is_shared: bool,
    held: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    entries: Vec<AuditEntry>,
    /// Of this instance, and not in the shared list yet; oldest first.
    untold: VecDeque<AuditEntry>,
}

impl AuditLog {
    /// An empty log of this instance. `is_shared`: whether there is a list that others write to as well.
    pub fn new(clock: Arc<dyn Clock>, instance: impl Into<String>, is_shared: bool) -> Self {
        Self { clock, instance: instance.into(), is_shared, held: Mutex::default() }
    }

    /// Writes down that `by` has done this, here and in the messages of the process.
    pub fn write(&self, by: &str, action: &str, target: &str, detail: &str) {
        let [by, action, target, detail] = [by, action, target, detail].map(cut);
        tracing::info!(by, action, target, "{detail}");
        let [by, action, target, detail] = [by, action, target, detail].map(str::to_owned);
        let (time, instance) = (self.clock.now(), self.instance.clone());
        let entry = AuditEntry { id: fastrand::u64(..), time, by, action, target, detail, instance };
        let mut held = self.held.lock();
        if self.is_shared {
            held.untold.push_back(entry.clone());
            if held.untold.len() > MAX_AUDIT_ENTRIES {
                held.untold.pop_front();
            }
        }
        held.add([entry]);
    }

    /// The newest first, behind `after` where that is given: time and id of an entry.
    pub fn entries(&self, after: Option<(i64, u64)>, most: usize) -> Vec<AuditEntry> {
        let held = self.held.lock();
        let behind = |entry: &&AuditEntry| after.is_none_or(|after| (entry.time, entry.id) < after);
        held.entries.iter().filter(behind).take(most).cloned().collect()
    }

    /// What is still to be written to the shared list, oldest first: some of it.
    pub fn pending(&self, most: usize) -> Vec<AuditEntry> {
        self.held.lock().untold.iter().take(most).cloned().collect()
    }

    /// These are in the shared list.
    pub fn ack(&self, told: &[AuditEntry]) {
        self.held.lock().untold.retain(|entry| !told.iter().any(|told| told.id == entry.id));
    }

    /// The shared list was lost: what this instance has done is to be written again.
    pub fn resend_all(&self) {
        let mut held = self.held.lock();
        let own = held.entries.iter().rev().filter(|entry| entry.instance == self.instance);
        held.untold = own.cloned().collect();
    }

    /// This is what the shared list holds, in any order.
    pub fn merge(&self, found: impl IntoIterator<Item = AuditEntry>) {
        let is_short = |entry: &AuditEntry| {
            [&entry.by, &entry.action, &entry.target, &entry.detail, &entry.instance]
                .into_iter()
                .all(|text| text.len() <= LONGEST)
        };
        self.held.lock().add(found.into_iter().filter(is_short));
    }
}

impl Entries {
    fn add(&mut self, entries: impl IntoIterator<Item = AuditEntry>) {
        self.entries.extend(entries);
        self.entries.sort_by_key(|entry| Reverse((entry.time, entry.id)));
        self.entries.dedup_by_key(|entry| (entry.time, entry.id));
        self.entries.truncate(MAX_AUDIT_ENTRIES);
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
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
    fn the_newest_come_first_and_the_oldest_go() {
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
    fn what_the_others_did_is_told_once() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(5));
        let (one, other) =
            (AuditLog::new(Arc::clone(&clock), "one", true), AuditLog::new(clock, "other", true));
        one.write("operator at 127.0.0.1", "lift", "ip:203.0.113.7", "");
        let told = one.pending(9);
        one.ack(&told);
        assert_eq!(one.pending(9), []);
        other.merge(told.clone());
        other.merge(told);
        assert_eq!(targets(&other), ["ip:203.0.113.7"]);
        one.resend_all();
        other.resend_all();
        assert_eq!((one.pending(9).len(), other.pending(9).len()), (1, 0), "each tells its own");
    }
}
