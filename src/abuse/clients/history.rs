//! What one side knows of a limited client: this instance, or all others together.

use std::sync::Arc;

use compact_str::CompactString;

use super::{
    super::{
        address,
        recording::{
            denial::{TalliedLimit, Tally},
            prepare::{DeniedUser, LimitEvidence},
        },
    },
    distinct_users::DistinctUsers,
    policies::RecordPolicies,
    records::RecordBuffer,
};
use crate::limit::algorithm::metadata_list::Entry;

/// Limits noted of an address, its own and those of users and others behind it.
pub(super) const LIMITS: usize = 32;
/// Policies noted of an address. Names come from other instances, too.
const POLICIES: usize = 256;

/// What was held back of a client. There may be a million of them.
#[derive(Debug, Clone)]
pub(super) struct DenialHistory {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) until: i64,
    pub(super) denied: u64,
    pub(super) limits: Vec<HistoryLimit>,
    /// Of each policy that held it back, what is kept of its records.
    pub(super) policies: Vec<(Arc<str>, RecordBuffer)>,
    pub(super) users: DistinctUsers,
}

#[derive(Debug, Clone)]
pub(super) struct HistoryLimit {
    pub(super) policy: Arc<str>,
    pub(super) identifier: CompactString,
    pub(super) until: i64,
    /// Evidence is sent again and again while the limit holds: what is older than this is known.
    known: i64,
}

impl HistoryLimit {
    pub(super) fn new(policy: Arc<str>, identifier: CompactString, until: i64) -> Self {
        Self { policy, identifier, until, known: i64::MIN }
    }
}

impl DenialHistory {
    pub(super) fn new(first: i64) -> Self {
        Self {
            first,
            last: first,
            until: first,
            denied: 0,
            limits: Vec::new(),
            policies: Vec::new(),
            users: DistinctUsers::default(),
        }
    }

    /// Adds what a worker counted. `shown`: the client's address. `fresh` is given the hashes of users who may be new.
    pub(super) fn add(
        &mut self,
        tally: Tally,
        users: &[DeniedUser],
        shown: &str,
        policies: &RecordPolicies,
        now: i64,
        mut fresh: impl FnMut(u64, u32),
    ) {
        self.span(tally.first, tally.last, tally.until, tally.denied);
        for TalliedLimit { policy, identifier, until } in tally.limits {
            let Some(policy) = policies.name(policy) else { continue };
            self.add_policy(policy);
            let policy = Arc::clone(policy);
            self.add_limit(HistoryLimit::new(policy, identifier, until), shown);
        }
        for (policy, entry) in &tally.records {
            self.add_record(*policy, entry, policies, now);
        }
        self.settle(policies);
        for DeniedUser { named, last, .. } in users {
            let slice = policies.slice(*last);
            if self.users.add(named.hash, slice) {
                fresh(named.hash, slice);
            }
        }
    }

    /// Adds who filled a limit. What was sent before is skipped. Says whether there was anything new.
    pub(super) fn add_evidence(
        &mut self,
        filled: &LimitEvidence,
        policies: &RecordPolicies,
        now: i64,
        mut fresh: impl FnMut(u64, u32),
    ) -> bool {
        let name = policies.name(filled.policy);
        let known = self
            .limits
            .iter_mut()
            .find(|held| Some(&held.policy) == name && held.identifier == filled.identifier);
        let mut since = i64::MIN;
        if let (Some(held), Some((newest, _))) = (known, filled.entries.last()) {
            since = held.known;
            held.known = since.max(newest.time);
        }
        let from = filled.entries.partition_point(|(entry, _)| entry.time <= since);
        for (entry, named) in &filled.entries[from..] {
            self.add_record(filled.policy, entry, policies, now);
            let slice = policies.slice(entry.time.min(now));
            if let Some(named) = named
                && self.users.add(named.hash, slice)
            {
                fresh(named.hash, slice);
            }
        }
        self.settle(policies);
        from < filled.entries.len()
    }

    /// Adds what another account knows of the same client, but for who its users are.
    pub(super) fn merge(&mut self, other: &Self, shown: &str, policies: &RecordPolicies, now: i64) {
        self.span(other.first, other.last, other.until, other.denied);
        other.limits.iter().for_each(|limit| self.add_limit(limit.clone(), shown));
        self.users.count(other.users.len(), policies.slice(now));
        for (policy, records) in &other.policies {
            if let Some(kept) = self.kept(policy) {
                kept.merge(records, policies.bounds(policy), now);
            }
        }
    }

    /// Forgets records that have expired, and users who were seen too long ago.
    pub(super) fn expire(&mut self, policies: &RecordPolicies, now: i64) {
        for (policy, kept) in &mut self.policies {
            kept.expire(policies.bounds(policy), now);
        }
        self.users.expire(policies.slice(now));
    }

    /// Forgets what can be done without: records, limits, and who the users are. Says whether there was anything.
    pub(super) fn condense(&mut self) -> bool {
        let before = self.bytes();
        self.limits = Vec::new();
        self.policies.iter_mut().for_each(|(_, kept)| *kept = RecordBuffer::default());
        self.users.condense();
        self.bytes() < before
    }

    /// About how much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        let heap = |text: &CompactString| if text.is_heap_allocated() { text.capacity() } else { 0 };
        let limits = self.limits.iter().map(|held| heap(&held.identifier)).sum::<usize>();
        let limits = limits + self.limits.capacity() * size_of::<HistoryLimit>();
        let kept = self.policies.iter().map(|(_, kept)| kept.bytes()).sum::<usize>();
        let kept = kept + self.policies.capacity() * size_of::<(Arc<str>, RecordBuffer)>();
        size_of::<Self>() + limits + kept + self.users.bytes()
    }

    /// Widens what it spans.
    pub(super) fn span(&mut self, first: i64, last: i64, until: i64, denied: u64) {
        self.first = self.first.min(first);
        self.last = self.last.max(last);
        self.until = self.until.max(until);
        self.denied = self.denied.saturating_add(denied);
    }

    pub(super) fn add_policy(&mut self, policy: &Arc<str>) {
        let _records = self.kept(policy);
    }

    pub(super) fn add_limit(&mut self, limit: HistoryLimit, shown: &str) {
        let same =
            |held: &&mut HistoryLimit| held.policy == limit.policy && held.identifier == limit.identifier;
        if let Some(held) = self.limits.iter_mut().find(same) {
            held.until = held.until.max(limit.until);
            return;
        }
        if self.limits.len() >= LIMITS {
            // Those of the address itself stay: there are few, and an unblock is about them.
            let order =
                |held: &HistoryLimit| (address::is_identifier_of(&held.identifier, shown), held.until);
            let least = (0..self.limits.len()).min_by_key(|&index| order(&self.limits[index]));
            if let Some(least) = least {
                self.limits.swap_remove(least);
            }
        }
        reserve(&mut self.limits);
        self.limits.push(limit);
    }

    /// Drops records that are too many, after some were added.
    pub(super) fn settle(&mut self, policies: &RecordPolicies) {
        for (policy, kept) in &mut self.policies {
            kept.settle(policies.bounds(policy));
        }
    }

    fn add_record(&mut self, policy: usize, entry: &Arc<Entry>, policies: &RecordPolicies, now: i64) {
        let Some(policy) = policies.name(policy) else { return };
        if let Some(kept) = self.kept(policy) {
            kept.insert(entry, policies.bounds(policy), now);
        }
    }

    /// The records of a policy, unless there are too many policies already.
    pub(super) fn kept(&mut self, policy: &Arc<str>) -> Option<&mut RecordBuffer> {
        let index = match self.policies.iter().position(|(of, _)| of == policy) {
            Some(index) => index,
            None if self.policies.len() < POLICIES => {
                reserve(&mut self.policies);
                self.policies.push((Arc::clone(policy), RecordBuffer::default()));
                self.policies.len() - 1
            }
            None => return None,
        };
        self.policies.get_mut(index).map(|(_, kept)| kept)
    }
}

/// Most have one of each: a vector would make room for four.
fn reserve<T>(vec: &mut Vec<T>) {
    if vec.is_empty() {
        vec.reserve_exact(1);
    }
}
