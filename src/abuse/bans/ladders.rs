//! The ladders of all keys that this instance counts by itself.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use smallvec::SmallVec;

use super::{BannedKey, Ladder, LadderStep, MAX_BANS, Offense};

/// Ladders by key and rule. If there are too many for addresses, or for users, the ones of the key that expires first
/// are dropped: users that a client makes up push out no address.
#[derive(Debug, Default)]
pub(super) struct Ladders {
    by_key: HashMap<BannedKey, KeyLadders>,
    /// By kind: addresses, then users.
    by_expiry: [BTreeSet<(i64, BannedKey)>; 2],
}

#[derive(Debug, Default)]
struct KeyLadders {
    expires: i64,
    /// By the rule's name.
    ladders: SmallVec<[(Arc<str>, Ladder); 1]>,
}

impl Ladders {
    /// See [`Ladder::count`]. `known`: the ladder of the key if it has none under this rule yet.
    pub(super) fn count(
        &mut self,
        offense: &Offense,
        jitter: u32,
        now: i64,
        known: Ladder,
    ) -> Option<LadderStep> {
        let Offense { rule, key, count, first, last, .. } = offense;
        let counted = self.by_key.entry(key.clone()).or_default();
        let found = counted.ladders.iter().position(|(name, _)| *name == rule.name);
        let at = found.unwrap_or_else(|| {
            counted.ladders.push((Arc::clone(&rule.name), known));
            counted.ladders.len() - 1
        });
        let (_, ladder) = counted.ladders.get_mut(at)?;
        let step = ladder.count((*first, *last, *count), &rule.terms, jitter, now);
        let expires = ladder.expires(rule.terms.window).max(counted.expires);
        let by_expiry = &mut self.by_expiry[usize::from(key.is_user())];
        by_expiry.remove(&(counted.expires, key.clone()));
        by_expiry.insert((expires, key.clone()));
        counted.expires = expires;
        self.expire(now);
        step
    }

    /// Removes the ladders of a key.
    pub(super) fn forget(&mut self, key: &BannedKey) {
        if let Some(counted) = self.by_key.remove(key) {
            self.by_expiry[usize::from(key.is_user())].remove(&(counted.expires, key.clone()));
        }
    }

    /// Removes some of the expired keys, and of too many the ones that expire first.
    pub(super) fn expire(&mut self, now: i64) {
        for by_expiry in &mut self.by_expiry {
            for _ in 0..2 {
                let is_full = by_expiry.len() > MAX_BANS;
                let Some(first) = by_expiry.first().filter(|(expires, _)| *expires <= now || is_full) else {
                    break;
                };
                self.by_key.remove(&first.1);
                by_expiry.pop_first();
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.by_key.clear();
        self.by_expiry.iter_mut().for_each(BTreeSet::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::rule::testing::rule, *};

    fn offense(user: usize, at: i64) -> Offense {
        let key = BannedKey::User(user.to_string().into());
        Offense { rule: rule(), key, count: 1, first: at, last: at, policy: "per-ip".into() }
    }

    #[test]
    fn of_too_many_keys_the_one_that_expires_first_is_dropped() {
        let mut ladders = Ladders::default();
        let address = Offense { key: BannedKey::from_canonical("ip:203.0.113.7").unwrap(), ..offense(0, 0) };
        ladders.count(&address, 1_000_000, 0, Ladder::default());
        for user in 0..MAX_BANS + 10 {
            ladders.count(&offense(user, user as i64), 1_000_000, 0, Ladder::default());
        }
        let lengths =
            |ladders: &Ladders| (ladders.by_key.len(), ladders.by_expiry.each_ref().map(BTreeSet::len));
        assert_eq!(lengths(&ladders), (MAX_BANS + 1, [1, MAX_BANS]));
        assert!(!ladders.by_key.contains_key(&BannedKey::User("9".into())));
        assert!(ladders.by_key.contains_key(&BannedKey::User("10".into())));
        ladders.forget(&BannedKey::User("10".into()));
        for _ in 0..MAX_BANS {
            ladders.expire(i64::MAX);
        }
        assert_eq!(lengths(&ladders), (0, [0, 0]));
    }
}
