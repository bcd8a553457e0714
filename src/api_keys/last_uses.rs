//! When each key was last used, to the minute.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use compact_str::CompactString;
use foldhash::{HashMap, HashSet};
use parking_lot::{Mutex, RwLock};

use super::{MAX_FILE_KEYS, MAX_STORED_KEYS};

const MINUTE: i64 = 60_000_000;
/// Most keys whose last uses are known.
const MAX_USES: usize = MAX_FILE_KEYS + MAX_STORED_KEYS;

/// The minute of the last use of each key that was used, in minutes since the Unix epoch.
#[derive(Debug, Default)]
pub struct LastUses {
    minutes: RwLock<HashMap<CompactString, AtomicI64>>,
    /// The keys that were used at this instance in a minute that the store does not know.
    unsent: Mutex<HashSet<CompactString>>,
}

impl LastUses {
    /// Notes a use at this instance at the time `now`, in microseconds.
    pub(super) fn note(&self, id: &str, now: i64) {
        if self.raise(id, now / MINUTE) {
            self.unsent.lock().insert(id.into());
        }
    }

    /// In microseconds.
    pub(super) fn last(&self, id: &str) -> Option<i64> {
        self.minutes.read().get(id).map(|minute| minute.load(Relaxed) * MINUTE)
    }

    /// Takes a use at another instance or before a restart, in minutes.
    pub(super) fn merge(&self, id: &str, minute: i64) {
        self.raise(id, minute);
    }

    /// Whether keys were used in a minute that the store does not know.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.lock().is_empty()
    }

    /// Takes up to `max` keys that were used in a new minute, with the minute.
    pub fn take_unsent(&self, max: usize) -> Vec<(CompactString, i64)> {
        let mut unsent = self.unsent.lock();
        let some: Vec<CompactString> = unsent.iter().take(max).cloned().collect();
        some.iter().for_each(|id| drop(unsent.take(id)));
        drop(unsent);
        let minutes = self.minutes.read();
        some.into_iter()
            .filter_map(|id| {
                let minute = minutes.get(&id)?.load(Relaxed);
                Some((id, minute))
            })
            .collect()
    }

    /// These could not be sent.
    pub fn put_back(&self, uses: Vec<(CompactString, i64)>) {
        self.unsent.lock().extend(uses.into_iter().map(|(id, _)| id));
    }

    /// All of them, in minutes.
    pub fn all(&self) -> Vec<(CompactString, i64)> {
        self.minutes.read().iter().map(|(id, minute)| (id.clone(), minute.load(Relaxed))).collect()
    }

    /// Keeps the uses of these keys alone.
    pub(super) fn retain(&self, is_known: impl Fn(&str) -> bool) {
        let ids: Vec<CompactString> = self.minutes.read().keys().cloned().collect();
        for id in ids.iter().filter(|id| !is_known(id)) {
            self.minutes.write().remove(id);
            self.unsent.lock().remove(id);
        }
    }

    /// Returns whether this minute is later than the one that was known.
    fn raise(&self, id: &str, minute: i64) -> bool {
        if let Some(known) = self.minutes.read().get(id) {
            // Most uses are in a minute that is known: no other thread's cache is disturbed.
            return known.load(Relaxed) < minute && known.fetch_max(minute, Relaxed) < minute;
        }
        let mut minutes = self.minutes.write();
        if minutes.len() >= MAX_USES {
            return false;
        }
        let known = minutes.entry(id.into()).or_insert_with(|| AtomicI64::new(i64::MIN));
        known.fetch_max(minute, Relaxed) < minute
    }
}
