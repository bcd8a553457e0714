//! Recent lifts of bans: if a server has lost them, the instances send them again. Pure.

use std::collections::{BTreeSet, HashMap};

use super::{BannedKey, MAX_BANS};

/// How long a lift is remembered: a day, in microseconds, as in Redis.
const KNOWN_FOR: i64 = 86_400_000_000;

/// When the bans of each key were last lifted, in microseconds since the Unix epoch. Of too many, the first are
/// removed.
#[derive(Debug, Default)]
pub(super) struct Lifts {
    times: HashMap<BannedKey, i64>,
    in_order: BTreeSet<(i64, BannedKey)>,
}

impl Lifts {
    pub(super) fn note(&mut self, key: BannedKey, at: i64) {
        self.forget(&key);
        self.in_order.insert((at, key.clone()));
        self.times.insert(key, at);
        while let Some((first, _)) = self.in_order.first()
            && (self.in_order.len() > MAX_BANS || *first <= at.saturating_sub(KNOWN_FOR))
        {
            if let Some((_, key)) = self.in_order.pop_first() {
                self.times.remove(&key);
            }
        }
    }

    /// Notes that a ban of the key, begun at `since`, is in force: so the lift, even if this instance received it
    /// later, was earlier.
    pub(super) fn note_ban(&mut self, key: &BannedKey, since: i64) {
        if self.times.get(key).is_some_and(|at| *at >= since) {
            self.note(key.clone(), since - 1);
        }
    }

    fn forget(&mut self, key: &BannedKey) {
        if let Some(at) = self.times.remove(key) {
            self.in_order.remove(&(at, key.clone()));
        }
    }

    /// Lifts of the last day, the first one first.
    pub(super) fn recent(&self, now: i64) -> Vec<(BannedKey, i64)> {
        let since = now.saturating_sub(KNOWN_FOR);
        self.in_order.iter().filter(|(at, _)| *at > since).map(|(at, key)| (key.clone(), *at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(n: usize) -> BannedKey {
        BannedKey::User(n.to_string().into())
    }

    #[test]
    fn a_lift_is_known_for_a_day_and_is_before_the_bans_that_stand() {
        let mut lifts = Lifts::default();
        lifts.note(user(1), 1);
        lifts.note(user(2), 5);
        lifts.note(user(1), 7);
        assert_eq!(lifts.recent(9), [(user(2), 5), (user(1), 7)]);
        lifts.note_ban(&user(2), 6);
        lifts.note_ban(&user(3), 6);
        lifts.note_ban(&user(1), 7);
        assert_eq!(lifts.recent(9), [(user(2), 5), (user(1), 6)]);
        assert_eq!(lifts.recent(6 + KNOWN_FOR), []);
        lifts.note(user(3), 6 + KNOWN_FOR);
        assert_eq!((lifts.times.len(), lifts.in_order.len()), (1, 1));
    }

    #[test]
    fn of_too_many_the_first_are_forgotten() {
        let mut lifts = Lifts::default();
        (0..MAX_BANS + 3).for_each(|n| lifts.note(user(n), n as i64));
        assert_eq!((lifts.times.len(), lifts.recent(0).first()), (MAX_BANS, Some(&(user(3), 3))));
    }
}
