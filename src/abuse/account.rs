//! What one side knows of a limited client: this instance, or all others together.

use std::sync::Arc;

use compact_str::CompactString;

use super::{
    address,
    denial::{Evidence, Limit, Tally},
    evidence::Kept,
    policies::Policies,
    users::Users,
};
use crate::limit::algorithm::metadata_list::Entry;

/// Limits noted of an address, its own and those of users and others behind it.
pub(super) const LIMITS: usize = 32;
/// Policies noted of an address. Names come from other instances, too.
const POLICIES: usize = 256;

/// What was held back of a client.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) until: i64,
    pub(super) denied: u64,
    pub(super) policies: Vec<Arc<str>>,
    pub(super) limits: Vec<HeldLimit>,
    pub(super) users: Users,
    pub(super) kept: Vec<(Arc<str>, Kept)>,
}

#[derive(Debug, Clone)]
pub(super) struct HeldLimit {
    pub(super) policy: Arc<str>,
    pub(super) identifier: CompactString,
    pub(super) until: i64,
    /// Evidence is sent again and again while the limit holds: what is older than this is known.
    known: i64,
}

impl HeldLimit {
    pub(super) fn new(policy: Arc<str>, identifier: CompactString, until: i64) -> Self {
        Self { policy, identifier, until, known: i64::MIN }
    }
}

impl Account {
    pub(super) fn new(first: i64) -> Self {
        Self {
            first,
            last: first,
            until: first,
            denied: 0,
            policies: Vec::new(),
            limits: Vec::new(),
            users: Users::default(),
            kept: Vec::new(),
        }
    }

    /// Adds what a worker counted. `shown`: the client's address.
    pub(super) fn add(&mut self, tally: Tally, shown: &str, policies: &Policies, now: i64) {
        self.span(tally.first, tally.last, tally.until, tally.denied);
        for Limit { policy, identifier, until } in tally.limits {
            let Some(policy) = policies.name(policy) else { continue };
            self.add_policy(policy);
            let policy = Arc::clone(policy);
            self.add_limit(HeldLimit::new(policy, identifier, until), shown);
        }
        for (policy, entry) in &tally.records {
            self.add_record(*policy, entry, policies, now);
        }
    }

    /// Adds who filled a limit. What was sent before is skipped. Says whether there was anything new.
    pub(super) fn add_evidence(&mut self, evidence: &Evidence, policies: &Policies, now: i64) -> bool {
        let name = policies.name(evidence.policy);
        let known = self
            .limits
            .iter_mut()
            .find(|held| Some(&held.policy) == name && held.identifier == evidence.identifier);
        let mut since = i64::MIN;
        if let (Some(held), Some(newest)) = (known, evidence.entries.last()) {
            since = held.known;
            held.known = since.max(newest.time);
        }
        let from = evidence.entries.partition_point(|entry| entry.time <= since);
        for entry in &evidence.entries[from..] {
            self.add_record(evidence.policy, entry, policies, now);
        }
        from < evidence.entries.len()
    }

    /// Adds what another account knows of the same client.
    pub(super) fn merge(&mut self, other: &Self, shown: &str, policies: &Policies, now: i64) {
        self.span(other.first, other.last, other.until, other.denied);
        other.policies.iter().for_each(|policy| self.add_policy(policy));
        other.limits.iter().for_each(|limit| self.add_limit(limit.clone(), shown));
        self.users.extend(other.users.hashes());
        for (policy, records) in &other.kept {
            if let Some(kept) = self.kept(policy) {
                kept.merge(records, policies.bounds(policy), now);
            }
        }
    }

    /// Forgets the records that have expired.
    pub(super) fn expire(&mut self, policies: &Policies, now: i64) {
        for (policy, kept) in &mut self.kept {
            kept.expire(policies.bounds(policy), now);
        }
    }

    /// About how much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        let entry = |entry: &Arc<Entry>| {
            size_of::<Entry>() + entry.path.len() + entry.user.as_ref().map_or(0, CompactString::len)
        };
        let kept = self.kept.iter().flat_map(|(_, kept)| kept.iter()).map(entry).sum::<usize>();
        let limits = self.limits.iter().map(|held| size_of::<HeldLimit>() + held.identifier.len());
        let policies = (self.policies.len() + self.kept.len()) * size_of::<(Arc<str>, Kept)>();
        size_of::<Self>() + kept + limits.sum::<usize>() + policies + 2 * size_of::<u64>() * self.users.len()
    }

    /// Widens what it spans.
    pub(super) fn span(&mut self, first: i64, last: i64, until: i64, denied: u64) {
        self.first = self.first.min(first);
        self.last = self.last.max(last);
        self.until = self.until.max(until);
        self.denied = self.denied.saturating_add(denied);
    }

    pub(super) fn add_policy(&mut self, policy: &Arc<str>) {
        if self.policies.len() < POLICIES && !self.policies.contains(policy) {
            self.policies.push(Arc::clone(policy));
        }
    }

    pub(super) fn add_limit(&mut self, limit: HeldLimit, shown: &str) {
        let same = |held: &&mut HeldLimit| held.policy == limit.policy && held.identifier == limit.identifier;
        if let Some(held) = self.limits.iter_mut().find(same) {
            held.until = held.until.max(limit.until);
            return;
        }
        if self.limits.len() == LIMITS {
            // Those of the address itself stay: there are few, and an unblock is about them.
            let order = |held: &HeldLimit| (address::is_of(&held.identifier, shown), held.until);
            let least = (0..LIMITS).min_by_key(|&index| order(&self.limits[index]));
            if let Some(least) = least {
                self.limits.swap_remove(least);
            }
        }
        self.limits.push(limit);
    }

    fn add_record(&mut self, policy: usize, entry: &Arc<Entry>, policies: &Policies, now: i64) {
        let Some(policy) = policies.name(policy) else { return };
        if let Some(user) = entry.user.as_deref() {
            self.users.add(user);
        }
        if let Some(kept) = self.kept(policy) {
            kept.insert(entry, policies.bounds(policy), now);
        }
    }

    /// The records of a policy, unless there are too many policies already.
    pub(super) fn kept(&mut self, policy: &Arc<str>) -> Option<&mut Kept> {
        let index = match self.kept.iter().position(|(of, _)| of == policy) {
            Some(index) => index,
            None if self.kept.len() < POLICIES => {
                self.kept.push((Arc::clone(policy), Kept::default()));
                self.kept.len() - 1
            }
            None => return None,
        };
        self.kept.get_mut(index).map(|(_, kept)| kept)
    }
}
