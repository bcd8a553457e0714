//! Bans by key, and by their ends.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    ops::Bound,
    sync::Arc,
};

use ipnet::IpNet;

use super::{Ban, BanClass, BannedKey, prefix_lengths::PrefixLengths};

/// The position of a ban among all, in ascending order: its end, its key, and whether it is a shadow ban, because a
/// key may have one ban of each mode.
pub type BanPosition = (i64, BannedKey, bool);

/// Bans by key and by end. A key has at most one ban of each mode.
#[derive(Debug, Default)]
pub(super) struct BanIndex {
    by_key: HashMap<BannedKey, [Option<Arc<Ban>>; 2]>,
    /// By class.
    by_end: [BTreeSet<BanPosition>; BanClass::ALL.len()],
    v4: PrefixLengths,
    v6: PrefixLengths,
    users: usize,
    /// Bans of each mode.
    modes: [u64; 2],
    /// Number of enforced bans of addresses ever inserted.
    pub(super) addresses_banned: u64,
    /// Number of enforced bans ever inserted.
    pub(super) enforced: u64,
}

impl BanIndex {
    pub(super) fn len(&self) -> usize {
        self.by_end.iter().map(BTreeSet::len).sum()
    }

    /// The number of bans of this class.
    pub(super) fn len_of(&self, class: BanClass) -> usize {
        self.by_end[class as usize].len()
    }

    /// The number of bans in force: enforced ones, then shadow bans. Examines only bans that have ended.
    pub(super) fn totals(&self, now: i64) -> [u64; 2] {
        let mut totals = self.modes;
        for by_end in &self.by_end {
            for (.., is_shadow) in by_end.iter().take_while(|(until, ..)| *until <= now) {
                totals[usize::from(*is_shadow)] -= 1;
            }
        }
        totals
    }

    /// Inserts a ban, and returns the one of its key and mode that it replaces.
    pub(super) fn insert(&mut self, ban: Arc<Ban>) -> Option<Arc<Ban>> {
        let replaced = self.remove(&ban.key, ban.is_shadow);
        self.by_end[ban.class() as usize].insert(position(&ban));
        let modes = self.by_key.entry(ban.key.clone()).or_insert_with(|| {
            match &ban.key {
                BannedKey::Address(IpNet::V4(net)) => self.v4.add(net.prefix_len()),
                BannedKey::Address(IpNet::V6(net)) => self.v6.add(net.prefix_len()),
                BannedKey::User(_) => self.users += 1,
            }
            [None, None]
        });
        let mode = usize::from(ban.is_shadow);
        self.enforced += u64::from(!ban.is_shadow);
        self.addresses_banned += u64::from(!ban.is_shadow && matches!(ban.key, BannedKey::Address(_)));
        modes[mode] = Some(ban);
        self.modes[mode] += 1;
        replaced
    }

    pub(super) fn remove(&mut self, key: &BannedKey, is_shadow: bool) -> Option<Arc<Ban>> {
        let modes = self.by_key.get_mut(key)?;
        let ban = modes[usize::from(is_shadow)].take()?;
        self.by_end[ban.class() as usize].remove(&position(&ban));
        self.modes[usize::from(is_shadow)] -= 1;
        if modes.iter().all(Option::is_none) {
            self.by_key.remove(key);
            match key {
                BannedKey::Address(IpNet::V4(net)) => self.v4.remove(net.prefix_len()),
                BannedKey::Address(IpNet::V6(net)) => self.v6.remove(net.prefix_len()),
                BannedKey::User(_) => self.users -= 1,
            }
        }
        Some(ban)
    }

    /// Removes the bans of a key in either mode, and returns how many there were.
    pub(super) fn remove_all(&mut self, key: &BannedKey) -> u64 {
        [false, true].into_iter().filter_map(|is_shadow| self.remove(key, is_shadow)).count() as u64
    }

    /// Removes up to `max` bans that have ended. Returns whether there may be more.
    pub(super) fn expire(&mut self, now: i64, max: usize) -> bool {
        for _ in 0..max {
            let firsts = self.by_end.iter().filter_map(BTreeSet::first);
            match firsts.min_by_key(|(until, ..)| *until).cloned() {
                Some((until, key, is_shadow)) if until <= now => drop(self.remove(&key, is_shadow)),
                _ => return false,
            }
        }
        true
    }

    pub(super) fn get(&self, key: &BannedKey, is_shadow: bool) -> Option<&Arc<Ban>> {
        self.by_key.get(key)?[usize::from(is_shadow)].as_ref()
    }

    /// The ban of this class that ends first.
    pub(super) fn earliest(&self, class: BanClass) -> Option<&Arc<Ban>> {
        let (_, key, is_shadow) = self.by_end[class as usize].first()?;
        self.get(key, *is_shadow)
    }

    /// Calls `found` for each ban of this address or user, the longest prefix first. `user` is called only if any
    /// user is banned.
    pub(super) fn for_each_match(
        &self,
        address: IpAddr,
        user: impl FnOnce() -> Option<BannedKey>,
        mut found: impl FnMut(&Arc<Ban>),
    ) {
        let mut visit = |key: &BannedKey| {
            self.by_key.get(key).into_iter().flatten().flatten().for_each(&mut found);
        };
        let address = address.to_canonical();
        let lengths = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        for length in lengths.iter() {
            if let Ok(net) = IpNet::new(address, length) {
                visit(&BannedKey::Address(net.trunc()));
            }
        }
        if self.users > 0
            && let Some(user) = user()
        {
            visit(&user);
        }
    }

    /// The bans whose prefix contains all of `client`.
    pub(super) fn covering(&self, client: IpNet) -> Vec<Arc<Ban>> {
        let mut found = Vec::new();
        let contains = |ban: &Arc<Ban>| matches!(&ban.key, BannedKey::Address(net) if net.contains(&client));
        self.for_each_match(
            client.addr(),
            || None,
            |ban| found.extend(contains(ban).then(|| Arc::clone(ban))),
        );
        found
    }

    /// All bans from the one that ends last, or from the one after `after`.
    pub(super) fn latest_first(&self, after: Option<BanPosition>) -> impl Iterator<Item = &Arc<Ban>> {
        let end = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = (Bound::Unbounded, end);
        let mut classes = self.by_end.each_ref().map(|by_end| by_end.range(range.clone()).rev().peekable());
        let positions = std::iter::from_fn(move || {
            let latest = classes.iter_mut().filter_map(|by_end| Some((*by_end.peek()?, by_end)));
            latest.max_by_key(|(position, _)| *position)?.1.next()
        });
        positions.filter_map(|(_, key, is_shadow)| self.get(key, *is_shadow))
    }
}

pub(super) fn position(ban: &Ban) -> BanPosition {
    (ban.until, ban.key.clone(), ban.is_shadow)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ban(key: &str, until: i64, is_shadow: bool) -> Arc<Ban> {
        Arc::new(Ban {
            key: BannedKey::from_canonical(key).unwrap(),
            since: 0,
            until,
            reason: String::new(),
            by: "bans.hammering".into(),
            level: 1,
            is_shadow,
        })
    }

    fn found(index: &BanIndex, address: &str, user: &str) -> Vec<String> {
        let mut found = Vec::new();
        let user = || Some(BannedKey::User(user.into()));
        index.for_each_match(address.parse().unwrap(), user, |ban| found.push(ban.key.to_string()));
        found
    }

    #[test]
    fn addresses_prefixes_and_users_are_found() {
        let mut index = BanIndex::default();
        for key in ["ip:203.0.113.7", "ip:203.0.0.0/16", "ip:2001:db8::/32", "ip:2001:db8::/64", "user:acme"]
        {
            index.insert(ban(key, 9, false));
        }
        assert_eq!(found(&index, "203.0.113.7", "bob"), ["ip:203.0.113.7", "ip:203.0.0.0/16"]);
        assert_eq!(found(&index, "::ffff:203.0.9.9", "acme"), ["ip:203.0.0.0/16", "user:acme"]);
        assert_eq!(found(&index, "2001:db8::9", ""), ["ip:2001:db8::/64", "ip:2001:db8::/32"]);
        assert_eq!(found(&index, "203.1.0.1", ""), [""; 0]);
        let covering = |client: &str| index.covering(client.parse().unwrap()).len();
        assert_eq!(
            [covering("203.0.113.7/32"), covering("203.0.113.0/24"), covering("2001:db8::/64")],
            [2, 1, 2]
        );
        for key in ["ip:203.0.113.7", "user:acme"] {
            assert_eq!(index.remove_all(&BannedKey::from_canonical(key).unwrap()), 1);
        }
        assert_eq!(found(&index, "203.0.113.7", "acme"), ["ip:203.0.0.0/16"]);
    }

    #[test]
    fn a_key_has_one_ban_of_each_mode() {
        let mut index = BanIndex::default();
        assert_eq!(index.insert(ban("user:acme", 5, false)), None);
        assert_eq!(index.insert(ban("user:acme", 7, true)), None);
        assert_eq!(index.insert(ban("user:acme", 9, false)).map(|ban| ban.until), Some(5));
        assert_eq!((index.len(), index.users), (2, 1));
        assert_eq!([6, 7, 9].map(|now| index.totals(now)), [[1, 1], [1, 0], [0, 0]]);
        assert_eq!(index.earliest(BanClass::User).map(|ban| ban.until), Some(7));
        index.expire(8, 9);
        assert_eq!((index.len(), index.users), (1, 1));
        index.expire(9, 9);
        assert_eq!((index.len(), index.users, index.by_key.len()), (0, 0, 0));
        assert_eq!(index.modes, [0, 0]);
    }

    #[test]
    fn bans_of_all_classes_are_listed_by_their_ends() {
        let mut index = BanIndex::default();
        for (n, key) in ["user:a", "ip:203.0.113.7", "user:b", "ip:10.0.0.0/8"].into_iter().enumerate() {
            index.insert(ban(key, n as i64, false));
        }
        index.insert(Arc::new(Ban { level: 0, ..(*ban("user:c", 2, false)).clone() }));
        assert_eq!(BanClass::ALL.map(|class| index.len_of(class)), [1, 2, 2]);
        let keys = |after: Option<BanPosition>| -> Vec<String> {
            index.latest_first(after).map(|ban| ban.key.to_string()).collect()
        };
        assert_eq!(keys(None), ["ip:10.0.0.0/8", "user:c", "user:b", "ip:203.0.113.7", "user:a"]);
        let third = index.latest_first(None).nth(2).map(|ban| position(ban));
        assert_eq!(keys(third), ["ip:203.0.113.7", "user:a"]);
        // A ban by an operator replaces one by a rule: the class changes.
        index.insert(Arc::new(Ban { level: 0, ..(*ban("user:a", 9, false)).clone() }));
        assert_eq!(BanClass::ALL.map(|class| index.len_of(class)), [2, 2, 1]);
    }
}
