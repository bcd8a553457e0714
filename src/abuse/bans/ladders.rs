//! The ladders of all keys that this instance counts by itself.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use smallvec::SmallVec;

use super::{Key, Ladder, LadderStep, MAX_BANS, Offense};

/// Ladders by key and rule. Of too many, those of the key that expires first are dropped.
#[derive(Debug, Default)]
pub(super) struct Ladders {
    by_key: HashMap<Key, KeyLadders>,
    by_expiry: BTreeSet<(i64, Key)>,
}

#[derive(Debug, Default)]
struct KeyLadders {
    expires: i64,
    /// By the rule's name.
    ladders: SmallVec<[(Arc<str>, Ladder); 1]>,
}

impl Ladders {
    /// See [`Ladder::count`]. `known`: where the key stands if it has no ladder of this rule yet.
    pub(super) fn count(
        &mut self,
        offense: &Offense,
        jitter: u32,
        now: i64,
        known: Ladder,
    ) -> Option<LadderStep> {
        let Offense { rule, key, count, first, last } = offense;
        let counted = self.by_key.entry(key.clone()).or_default();
        let found = counted.ladders.iter().position(|(name, _)| *name == rule.name);
        let at = found.unwrap_or_else(|| {
            counted.ladders.push((Arc::clone(&rule.name), known));
            counted.ladders.len() - 1
        });
        let (_, ladder) = counted.ladders.get_mut(at)?;
        let step = ladder.count((*first, *last, *count), &rule.terms, jitter, now);
        let expires = ladder.expires(rule.terms.window).max(counted.expires);
        self.by_expiry.remove(&(counted.expires, key.clone()));
        self.by_expiry.insert((expires, key.clone()));
        counted.expires = expires;
        self.expire(now);
        step
    }

    /// Forgets the ladders of a key.
    pub(super) fn forget(&mut self, key: &Key) {
        if let Some(counted) = self.by_key.remove(key) {
            self.by_expiry.remove(&(counted.expires, key.clone()));
        }
    }

    /// Forgets some of the keys that have expired, and of too many those that expire first.
    pub(super) fn expire(&mut self, now: i64) {
        for _ in 0..2 {
            match self.by_expiry.first() {
                Some((expires, _)) if *expires <= now || self.by_key.len() > MAX_BANS => {}
                _ => return,
            }
            if let Some((_, key)) = self.by_expiry.pop_first() {
                self.by_key.remove(&key);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.by_key.clear();
        self.by_expiry.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{super::rule::testing::rule, *};

    fn offense(user: usize, at: i64) -> Offense {
        let key = Key::User(user.to_string().into());
        Offense { rule: rule(), key, count: 1, first: at, last: at }
    }

    #[test]
    fn of_too_many_keys_the_one_that_expires_first_is_dropped() {
        let mut ladders = Ladders::default();
        for user in 0..MAX_BANS + 10 {
            ladders.count(&offense(user, user as i64), 1_000_000, 0, Ladder::default());
        }
        assert_eq!((ladders.by_key.len(), ladders.by_expiry.len()), (MAX_BANS, MAX_BANS));
        assert!(!ladders.by_key.contains_key(&Key::User("9".into())));
        assert!(ladders.by_key.contains_key(&Key::User("10".into())));
        ladders.forget(&Key::User("10".into()));
        for _ in 0..MAX_BANS {
            ladders.expire(i64::MAX);
        }
        assert_eq!((ladders.by_key.len(), ladders.by_expiry.len()), (0, 0));
    }
}
