//! Denied requests that rules count: those that wait to be counted, and how this instance counts them by itself.

use std::{collections::HashMap, sync::Arc};

use super::{Key, Ladder, LadderStep, Offense, ladders::Ladders, window};

/// Keys whose denials wait to be counted. Each worker hands over a bounded number a tick.
pub(super) const MAX_PENDING: usize = 16_384;

#[derive(Debug, Default)]
pub(super) struct OffenseCounter {
    /// Offenses that nobody has counted yet, by the rule's name and the key.
    pending: HashMap<(Arc<str>, Key), Offense>,
    /// Offenses that this instance has counted by itself while it could not reach the others, also by the window's bucket.
    /// They are counted once more together with those of the others when that works again.
    backlog: HashMap<(Arc<str>, Key, i64), Offense>,
    ladders: Ladders,
}

impl OffenseCounter {
    /// Adds what a worker noted. Returns how many denials there was no room for.
    pub(super) fn add(&mut self, offenses: impl Iterator<Item = Offense>) -> u64 {
        let mut dropped = 0;
        for offense in offenses {
            let key = (Arc::clone(&offense.rule.name), offense.key.clone());
            if let Some(known) = self.pending.get_mut(&key) {
                known.merge(&offense);
            } else if self.pending.len() < MAX_PENDING {
                self.pending.insert(key, offense);
            } else {
                dropped += offense.count;
            }
        }
        dropped
    }

    /// Takes up to `max` of the offenses that are not counted yet. All of them cost no copy.
    pub(super) fn take_pending(&mut self, max: usize) -> HashMap<(Arc<str>, Key), Offense> {
        if max >= self.pending.len() {
            return std::mem::take(&mut self.pending);
        }
        self.pending.extract_if(|_, _| true).take(max).collect()
    }

    /// Keeps an offense to be counted with those of the others later. Of too many keys the latest are left out.
    pub(super) fn add_to_backlog(&mut self, offense: &Offense) {
        let bucket = window::bucket(offense.first, offense.rule.terms.window);
        let key = (Arc::clone(&offense.rule.name), offense.key.clone(), bucket);
        if let Some(known) = self.backlog.get_mut(&key) {
            known.merge(offense);
            return;
        }
        if self.backlog.len() >= MAX_PENDING {
            self.backlog.retain(|_, known| known.is_within_window(offense.last));
        }
        if self.backlog.len() < MAX_PENDING {
            self.backlog.insert(key, offense.clone());
        }
    }

    /// Takes up to `max` offenses of the backlog that are still within their windows.
    pub(super) fn take_backlog(&mut self, max: usize, now: i64) -> Vec<Offense> {
        let taken = self.backlog.extract_if(|_, _| true).map(|(_, offense)| offense);
        taken.filter(|offense| offense.is_within_window(now)).take(max).collect()
    }

    #[cfg(test)]
    pub(super) fn backlog_len(&self) -> usize {
        self.backlog.len()
    }

    /// Counts an offense on the ladder of its key. `known`: where the key stands if there is no ladder yet.
    pub(super) fn count(
        &mut self,
        offense: &Offense,
        jitter: u32,
        now: i64,
        known: Ladder,
    ) -> Option<LadderStep> {
        self.ladders.count(offense, jitter, now, known)
    }

    /// Forgets all that was counted, or is to be counted, of a key.
    pub(super) fn forget(&mut self, key: &Key) {
        self.ladders.forget(key);
        self.pending.retain(|(_, of), _| of != key);
        self.backlog.retain(|(_, of, _), _| of != key);
    }

    /// Forgets all ladders: the instances have common ones now.
    pub(super) fn clear_ladders(&mut self) {
        self.ladders.clear();
    }

    /// Forgets some of the ladders that have expired.
    pub(super) fn expire(&mut self, now: i64) {
        self.ladders.expire(now);
    }
}
