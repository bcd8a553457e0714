//! One limited client: what was held back of it, and who was behind it.

use std::{collections::HashSet, hash::BuildHasher, sync::Arc};

use compact_str::CompactString;
use ipnet::IpNet;

use super::{
    address,
    denial::{Evidence, Limit, Tally},
    evidence::{Bounds, Kept},
};
use crate::limit::algorithm::metadata_list::Entry;

/// Users counted exactly; an address that shows this many has them at least.
pub const USERS: usize = 1_000;
/// Limits noted of an address, its own and those of users and others behind it.
const LIMITS: usize = 32;
/// What an address takes without its records: an estimate.
const BASE: usize = 512;

/// What the registry holds of an address.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) address: IpNet,
    pub(super) shown: CompactString,
    pub(super) first: i64,
    pub(super) last: i64,
    until: i64,
    denied: u64,
    policies: Vec<usize>,
    limits: Vec<HeldLimit>,
    /// Hashes: only their number is asked for.
    users: HashSet<u64, foldhash::fast::RandomState>,
    kept: Vec<(usize, Kept)>,
}

#[derive(Debug)]
struct HeldLimit {
    limit: Limit,
    /// Evidence is sent again and again while the limit holds: what is older than this is known.
    known: i64,
}

/// A limited client as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    pub address: IpNet,
    /// `203.0.113.7`, `2001:db8::/64`
    pub shown: CompactString,
    /// The first and the last denial, microseconds since the Unix epoch.
    pub first: i64,
    pub last: i64,
    /// When the last of its limits frees.
    pub until: i64,
    pub denied: u64,
    /// Indexes of the policies that held it back.
    pub policies: Vec<usize>,
    /// How many users were behind it; [`USERS`] stands for at least as many.
    pub users: usize,
}

/// A request of a limited client: one that filled a limit, or one that was held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub policy: usize,
    pub entry: Arc<Entry>,
}

/// One limit that held a client back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limited {
    pub policy: usize,
    pub identifier: CompactString,
}

impl Held {
    pub(super) fn new(address: IpNet, first: i64) -> Self {
        Self {
            address,
            shown: address::shown(address),
            first,
            last: first,
            until: first,
            denied: 0,
            policies: Vec::new(),
            limits: Vec::new(),
            users: HashSet::default(),
            kept: Vec::new(),
        }
    }

    /// Adds what a worker counted. `bounds`: of each policy.
    pub(super) fn add(&mut self, tally: Tally, bounds: &[Bounds], now: i64) {
        self.first = self.first.min(tally.first);
        self.last = self.last.max(tally.last);
        self.until = self.until.max(tally.until);
        self.denied = self.denied.saturating_add(tally.denied);
        for limit in tally.limits {
            if !self.policies.contains(&limit.policy) {
                self.policies.push(limit.policy);
            }
            self.add_limit(limit);
        }
        for (policy, entry) in &tally.records {
            self.add_record(*policy, entry, bounds, now);
        }
    }

    /// Adds who filled a limit. What was sent before is skipped.
    pub(super) fn add_evidence(&mut self, evidence: &Evidence, bounds: &[Bounds], now: i64) {
        let known = self.limits.iter_mut().find(|held| {
            held.limit.policy == evidence.policy && held.limit.identifier == evidence.identifier
        });
        let mut since = i64::MIN;
        if let (Some(held), Some(newest)) = (known, evidence.entries.last()) {
            since = held.known;
            held.known = since.max(newest.time);
        }
        let from = evidence.entries.partition_point(|entry| entry.time <= since);
        for entry in &evidence.entries[from..] {
            self.add_record(evidence.policy, entry, bounds, now);
        }
    }

    fn add_limit(&mut self, limit: Limit) {
        let same = |held: &&mut HeldLimit| {
            held.limit.policy == limit.policy && held.limit.identifier == limit.identifier
        };
        if let Some(held) = self.limits.iter_mut().find(same) {
            held.limit.until = held.limit.until.max(limit.until);
            return;
        }
        if self.limits.len() == LIMITS {
            // Those of the address itself stay: there are few, and an unblock is about them.
            let order =
                |held: &HeldLimit| (address::is_of(&held.limit.identifier, &self.shown), held.limit.until);
            let least = (0..LIMITS).min_by_key(|&index| order(&self.limits[index]));
            if let Some(least) = least {
                self.limits.swap_remove(least);
            }
        }
        self.limits.push(HeldLimit { limit, known: i64::MIN });
    }

    fn add_record(&mut self, policy: usize, entry: &Arc<Entry>, bounds: &[Bounds], now: i64) {
        let Some(&bounds) = bounds.get(policy) else { return };
        if let Some(user) = entry.user.as_deref().filter(|_| self.users.len() < USERS) {
            let hash = self.users.hasher().hash_one(user);
            self.users.insert(hash);
        }
        let index = self.kept.iter().position(|(of, _)| *of == policy).unwrap_or_else(|| {
            self.kept.push((policy, Kept::default()));
            self.kept.len() - 1
        });
        self.kept[index].1.insert(entry, bounds, now);
    }

    /// Forgets the records that have expired.
    pub(super) fn expire(&mut self, bounds: &[Bounds], now: i64) {
        for (policy, kept) in &mut self.kept {
            if let Some(&bounds) = bounds.get(*policy) {
                kept.expire(bounds, now);
            }
        }
    }

    /// About how much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        let entry = |entry: &Arc<Entry>| {
            size_of::<Entry>() + entry.path.len() + entry.user.as_ref().map_or(0, CompactString::len)
        };
        let kept = self.kept.iter().flat_map(|(_, kept)| kept.iter()).map(entry).sum::<usize>();
        let limits = self.limits.iter().map(|held| size_of::<HeldLimit>() + held.limit.identifier.len());
        BASE + kept + limits.sum::<usize>() + 2 * size_of::<u64>() * self.users.len()
    }

    pub(super) fn told(&self) -> Client {
        Client {
            address: self.address,
            shown: self.shown.clone(),
            first: self.first,
            last: self.last,
            until: self.until,
            denied: self.denied,
            policies: self.policies.clone(),
            users: self.users.len(),
        }
    }

    /// Newest first.
    pub(super) fn records(&self) -> Vec<Record> {
        let of = |(policy, kept): &(usize, Kept)| {
            let policy = *policy;
            kept.iter().map(|entry| Record { policy, entry: Arc::clone(entry) }).collect::<Vec<_>>()
        };
        let mut records: Vec<_> = self.kept.iter().flat_map(of).collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.entry.time));
        records
    }

    pub(super) fn limits(&self) -> Vec<Limited> {
        let limited = |Limit { policy, identifier, .. }: &Limit| Limited {
            policy: *policy,
            identifier: identifier.clone(),
        };
        self.limits.iter().map(|held| limited(&held.limit)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::entry, *};

    const BOUNDS: [Bounds; 1] = [Bounds { keep: 2, retain: 1_000 }];

    fn tally(identifier: &str, until: i64) -> Tally {
        let limits = vec![Limit { policy: 0, identifier: identifier.into(), until }];
        Tally { first: 1, last: 1, until, denied: 1, limits, records: Vec::new() }
    }

    fn held() -> Held {
        Held::new(address::parse("203.0.113.7").unwrap(), 1)
    }

    #[test]
    fn evidence_sent_twice_adds_nothing() {
        let mut held = held();
        held.add(tally("ip:203.0.113.7", 9), &BOUNDS, 10);
        let mut evidence = Evidence {
            address: "203.0.113.7".into(),
            policy: 0,
            identifier: "ip:203.0.113.7".into(),
            entries: vec![entry(1, "a"), entry(2, "b"), entry(3, "c"), entry(4, "c")],
        };
        held.add_evidence(&evidence, &BOUNDS, 10);
        let once = held.records();
        held.add_evidence(&evidence, &BOUNDS, 10);
        assert_eq!(held.records(), once);
        assert_eq!(held.told().users, 3, "those whose records are gone count too");
        evidence.entries.push(entry(5, "d"));
        held.add_evidence(&evidence, &BOUNDS, 10);
        let users: Vec<_> = held.records().iter().map(|record| record.entry.user.clone().unwrap()).collect();
        assert_eq!(users, ["d", "c"]);
    }

    #[test]
    fn many_users_behind_an_address_never_push_out_its_own_limits() {
        let mut held = held();
        held.add(tally("ip:203.0.113.7", 2), &BOUNDS, 10);
        for user in 0..100 {
            held.add(tally(&format!("user:{user}"), 100 + user), &BOUNDS, 10);
        }
        let limits = held.limits();
        assert_eq!(limits.len(), LIMITS);
        assert!(limits.iter().any(|limit| limit.identifier == "ip:203.0.113.7"));
        assert!(limits.iter().any(|limit| limit.identifier == "user:99"));
        assert_eq!(held.told().denied, 101);
    }

    #[test]
    fn users_are_counted_up_to_a_bound() {
        let mut held = held();
        let users = (0..USERS + 10).map(|user| (0, entry(1, &user.to_string())));
        let tally = Tally { records: users.collect(), ..tally("ip:203.0.113.7", 9) };
        held.add(tally, &BOUNDS, 10);
        assert_eq!(held.told().users, USERS);
    }
}
