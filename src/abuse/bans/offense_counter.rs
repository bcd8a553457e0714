//! Denied requests that rules count: the ones that wait to be counted, and this instance's own count.

use std::{collections::HashMap, sync::Arc};

use super::{BannedKey, Ladder, LadderStep, Offense, ladders::Ladders, window};

/// Maximum number of addresses, and of users, whose denials wait to be counted. Each worker hands over a bounded
/// number per tick.
pub(super) const MAX_PENDING: usize = 16_384;

/// The rule's name, and the key.
type OffenseKey = (Arc<str>, BannedKey);

#[derive(Debug, Default)]
pub(super) struct OffenseCounter {
    /// Uncounted offenses, of addresses and of users. Users that a client makes up take no room from addresses.
    pending: [HashMap<OffenseKey, Offense>; 2],
    /// Offenses that this instance counted by itself while it could not reach the others, also by the window's
    /// bucket; of addresses, and of users. They are counted again together with the others' when that is possible.
    backlog: [HashMap<(OffenseKey, i64), Offense>; 2],
    ladders: Ladders,
}

impl OffenseCounter {
    /// Adds a worker's offenses. Returns the number of denials without room.
    pub(super) fn add(&mut self, offenses: impl Iterator<Item = Offense>) -> u64 {
        let mut dropped = 0;
        for offense in offenses {
            let key = (Arc::clone(&offense.rule.name), offense.key.clone());
            let pending = &mut self.pending[usize::from(offense.key.is_user())];
            if let Some(known) = pending.get_mut(&key) {
                known.merge(&offense);
            } else if pending.len() < MAX_PENDING {
                pending.insert(key, offense);
            } else {
                dropped += offense.count;
            }
        }
        dropped
    }

    /// Takes up to `max` of the uncounted offenses: half of addresses and half of users, if there are enough of both.
    pub(super) fn take_pending(&mut self, max: usize) -> Vec<Offense> {
        let [addresses, users] = &mut self.pending;
        let of_addresses = addresses.len().min(max - users.len().min(max / 2));
        let of_users = max - of_addresses;
        let addresses = addresses.extract_if(|_, _| true).take(of_addresses);
        addresses.chain(users.extract_if(|_, _| true).take(of_users)).map(|(_, offense)| offense).collect()
    }

    /// Keeps an offense to be counted with the others' later. Of too many keys, the latest are left out.
    pub(super) fn add_to_backlog(&mut self, offense: &Offense) {
        let bucket = window::bucket(offense.first, offense.rule.terms.window);
        let key = ((Arc::clone(&offense.rule.name), offense.key.clone()), bucket);
        let backlog = &mut self.backlog[usize::from(offense.key.is_user())];
        if let Some(known) = backlog.get_mut(&key) {
            known.merge(offense);
            return;
        }
        if backlog.len() >= MAX_PENDING {
            backlog.retain(|_, known| known.is_within_window(offense.last));
        }
        if backlog.len() < MAX_PENDING {
            backlog.insert(key, offense.clone());
        }
    }

    /// Takes up to `max` offenses of the backlog that are still within their windows, of addresses first.
    pub(super) fn take_backlog(&mut self, max: usize, now: i64) -> Vec<Offense> {
        let taken = self.backlog.iter_mut().flat_map(|backlog| backlog.extract_if(|_, _| true));
        taken.map(|(_, offense)| offense).filter(|offense| offense.is_within_window(now)).take(max).collect()
    }

    #[cfg(test)]
    pub(super) fn backlog_len(&self) -> usize {
        self.backlog.iter().map(HashMap::len).sum()
    }

    /// Counts an offense on the ladder of its key. `known`: the ladder of the key if it has none yet.
    pub(super) fn count(
        &mut self,
        offense: &Offense,
        jitter: u32,
        now: i64,
        known: Ladder,
    ) -> Option<LadderStep> {
        self.ladders.count(offense, jitter, now, known)
    }

    /// Removes all counts of a key, and its offenses that wait.
    pub(super) fn forget(&mut self, key: &BannedKey) {
        self.ladders.forget(key);
        self.pending[usize::from(key.is_user())].retain(|(_, of), _| of != key);
        self.backlog[usize::from(key.is_user())].retain(|((_, of), _), _| of != key);
    }

    /// Removes all ladders, because the instances share them now.
    pub(super) fn clear_ladders(&mut self) {
        self.ladders.clear();
    }

    /// Removes some of the expired ladders.
    pub(super) fn expire(&mut self, now: i64) {
        self.ladders.expire(now);
    }
}
