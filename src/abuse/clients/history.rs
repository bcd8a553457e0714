//! The denials of a limited client, from one side: this instance, or all others together.

use std::{borrow::Cow, sync::Arc};

use compact_str::CompactString;

use super::{
    super::{
        UserNaming, address,
        recording::{
            denial::{DenialTally, TalliedLimit},
            masking::{DeniedUser, LimitEvidence},
        },
        traffic::{Traffic, TrafficHistory},
    },
    distinct_users::DistinctUsers,
    policies::RecordPolicies,
    records::RecordBuffer,
};
use crate::{limit::algorithm::metadata_list::Entry, memory_budget::heap};

/// Limits recorded per address: its own, and those of users behind it.
pub(super) const LIMITS: usize = 32;
/// Policies recorded per address. Names arrive from other instances, too.
const POLICIES: usize = 256;

/// The denials of a client. There may be a million of these.
#[derive(Debug, Clone)]
pub(super) struct DenialHistory {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) until: i64,
    pub(super) denied: u64,
    pub(super) limits: Vec<HistoryLimit>,
    /// Each policy that denied the client, with its last records.
    pub(super) policies: Vec<(Arc<str>, RecordBuffer)>,
    pub(super) users: DistinctUsers,
    pub(super) traffic: TrafficHistory,
}

#[derive(Debug, Clone)]
pub(super) struct HistoryLimit {
    pub(super) policy: Arc<str>,
    pub(super) identifier: CompactString,
    pub(super) until: i64,
    /// When it last denied.
    pub(super) last: i64,
    /// Evidence is sent repeatedly while the limit lasts. Entries up to this time were received before.
    known: i64,
}

impl HistoryLimit {
    pub(super) fn new(policy: Arc<str>, identifier: CompactString, until: i64, last: i64) -> Self {
        Self { policy, identifier, until, last, known: i64::MIN }
    }

    /// Whether its identifier contains more than an address: a user, or part of the request.
    pub(super) fn names_more_than_an_address(&self) -> bool {
        address::names_more_than_an_address(&self.identifier)
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
            traffic: TrafficHistory::default(),
        }
    }

    /// Adds the tally of a worker. `address_text`: the client's address. `on_new_user` is called with the hash and
    /// the slice of each user who may be new.
    pub(super) fn add(
        &mut self,
        tally: DenialTally,
        users: &[DeniedUser],
        address_text: &str,
        policies: &RecordPolicies,
        now: i64,
        mut on_new_user: impl FnMut(u64, u32),
    ) {
        self.span(tally.first, tally.last, tally.until, tally.denied);
        let mut traffic = tally.traffic;
        traffic.denied = u32::try_from(tally.denied).unwrap_or(u32::MAX);
        self.add_traffic(&traffic, tally.last, policies);
        for TalliedLimit { policy, identifier, until } in tally.limits {
            let Some(policy) = policies.name(policy) else { continue };
            self.add_policy(policy);
            let policy = Arc::clone(policy);
            self.add_limit(HistoryLimit::new(policy, identifier, until, tally.last), address_text);
        }
        for (policy, entry) in &tally.records {
            self.add_record(*policy, entry, policies, now);
        }
        self.trim_records(policies);
        for DeniedUser { named, last, .. } in users {
            let slice = policies.slice(*last);
            if self.users.add(named.hash, slice) {
                on_new_user(named.hash, slice);
            }
        }
    }

    /// Adds the traffic of a tick, whose last request was received at `time`.
    pub(super) fn add_traffic(&mut self, traffic: &Traffic, time: i64, policies: &RecordPolicies) {
        self.traffic.add_tick(traffic, time, policies.period(time));
    }

    /// Adds the requests that filled a limit, without the ones received before. True if any was new.
    pub(super) fn add_evidence(
        &mut self,
        evidence: &LimitEvidence,
        policies: &RecordPolicies,
        now: i64,
        mut on_new_user: impl FnMut(u64, u32),
    ) -> bool {
        let name = policies.name(evidence.policy);
        let known = self
            .limits
            .iter_mut()
            .find(|limit| Some(&limit.policy) == name && limit.identifier == evidence.identifier);
        let mut since = i64::MIN;
        if let (Some(limit), Some((newest, _))) = (known, evidence.entries.last()) {
            since = limit.known;
            limit.known = since.max(newest.time);
        }
        let from = evidence.entries.partition_point(|(entry, _)| entry.time <= since);
        let new = &evidence.entries[from..];
        if let Some(policy) = name
            && let Some(buffer) = self.records_mut(policy)
        {
            buffer.merge(new.iter().map(|(entry, _)| entry), policies.bounds(policy), now);
        }
        for (entry, named) in new {
            let slice = policies.slice(entry.time.min(now));
            if let Some(named) = named
                && self.users.add(named.hash, slice)
            {
                on_new_user(named.hash, slice);
            }
        }
        !new.is_empty()
    }

    /// Adds another history of the same client, except for the identities of its users.
    pub(super) fn merge(&mut self, other: &Self, address_text: &str, policies: &RecordPolicies, now: i64) {
        self.span(other.first, other.last, other.until, other.denied);
        other.limits.iter().for_each(|limit| self.add_limit(limit.clone(), address_text));
        self.users.remember_count(other.users.len(), policies.slice(now));
        self.traffic.merge(&other.traffic);
        for (policy, records) in &other.policies {
            if let Some(buffer) = self.records_mut(policy) {
                buffer.merge(records.iter(), policies.bounds(policy), now);
            }
        }
    }

    /// When [`DenialHistory::expire`] next has something to remove, apart from users.
    pub(super) fn ends(&self, policies: &RecordPolicies) -> Option<i64> {
        let records =
            self.policies.iter().filter_map(|(policy, buffer)| buffer.ends(policies.bounds(policy)));
        let limits = self.limits.iter().filter(|limit| limit.names_more_than_an_address());
        let limits = limits.map(|limit| limit.last.saturating_add(policies.bounds(&limit.policy).retain));
        records.chain(limits).min()
    }

    /// Removes the records that `other` has as well.
    pub(super) fn remove_known(&mut self, other: &Self) {
        for (policy, buffer) in &mut self.policies {
            if let Some((_, known)) = other.policies.iter().find(|(name, _)| name == policy) {
                buffer.remove_known(known);
            }
        }
    }

    /// Removes expired records, expired names of users and paths in limits, and users seen too long ago.
    pub(super) fn expire(&mut self, policies: &RecordPolicies, now: i64) {
        self.limits.retain(|limit| {
            !limit.names_more_than_an_address()
                || limit.last.saturating_add(policies.bounds(&limit.policy).retain) > now
        });
        for (policy, buffer) in &mut self.policies {
            buffer.expire(policies.bounds(policy), now);
        }
        self.users.expire(policies.slice(now));
        self.traffic.advance(policies.period(now));
    }

    /// Drops records, limits and users' identities, but keeps the counts. True if there was anything to drop.
    pub(super) fn drop_evidence(&mut self) -> bool {
        let before = self.bytes();
        self.limits = Vec::new();
        self.policies.iter_mut().for_each(|(_, buffer)| *buffer = RecordBuffer::default());
        self.users.reduce_to_count();
        self.traffic.set_people(None);
        self.bytes() < before
    }

    /// Bytes on the heap, including itself.
    pub(super) fn bytes(&self) -> usize {
        let limits = self.limits.iter().map(|limit| heap::text(&limit.identifier)).sum::<usize>();
        let limits = limits + heap::array::<HistoryLimit>(self.limits.capacity());
        let records = self.policies.iter().map(|(_, buffer)| buffer.bytes()).sum::<usize>();
        let records = records + heap::array::<(Arc<str>, RecordBuffer)>(self.policies.capacity());
        heap::array::<Self>(1) + limits + records + self.users.bytes() + self.traffic.bytes()
    }

    /// Masks users' names, after the settings may have changed.
    pub(super) fn mask(&mut self, names: &UserNaming) {
        for limit in &mut self.limits {
            if let Cow::Owned(masked) = names.mask_key(&limit.identifier) {
                limit.identifier = masked.into();
            }
        }
        self.policies.iter_mut().for_each(|(_, buffer)| buffer.mask(names));
    }

    /// Extends the times, and adds to the number of denials.
    pub(super) fn span(&mut self, first: i64, last: i64, until: i64, denied: u64) {
        self.first = self.first.min(first);
        self.last = self.last.max(last);
        self.until = self.until.max(until);
        self.denied = self.denied.saturating_add(denied);
    }

    /// Ends the limits of denials before the unblock at `time`.
    pub(super) fn end_limits(&mut self, time: i64) {
        if self.last <= time {
            self.until = self.until.min(time);
        }
    }

    pub(super) fn add_policy(&mut self, policy: &Arc<str>) {
        let _records = self.records_mut(policy);
    }

    pub(super) fn add_limit(&mut self, limit: HistoryLimit, address_text: &str) {
        let same =
            |known: &&mut HistoryLimit| known.policy == limit.policy && known.identifier == limit.identifier;
        if let Some(known) = self.limits.iter_mut().find(same) {
            (known.until, known.last) = (known.until.max(limit.until), known.last.max(limit.last));
            return;
        }
        if self.limits.len() >= LIMITS {
            // Limits of the address itself are kept: they are few, and an unblock resets them.
            let order = |known: &HistoryLimit| {
                (address::is_identifier_of(&known.identifier, address_text), known.until)
            };
            let least = (0..self.limits.len()).min_by_key(|&index| order(&self.limits[index]));
            if let Some(least) = least {
                self.limits.swap_remove(least);
            }
        }
        reserve(&mut self.limits);
        self.limits.push(limit);
    }

    /// Drops excess records, after some were added.
    pub(super) fn trim_records(&mut self, policies: &RecordPolicies) {
        for (policy, buffer) in &mut self.policies {
            buffer.trim(policies.bounds(policy));
        }
    }

    fn add_record(&mut self, policy: usize, entry: &Arc<Entry>, policies: &RecordPolicies, now: i64) {
        let Some(policy) = policies.name(policy) else { return };
        if let Some(buffer) = self.records_mut(policy) {
            buffer.insert(entry, policies.bounds(policy), now);
        }
    }

    /// The records of a policy, unless there are too many policies already.
    pub(super) fn records_mut(&mut self, policy: &Arc<str>) -> Option<&mut RecordBuffer> {
        let index = match self.policies.iter().position(|(name, _)| name == policy) {
            Some(index) => index,
            None if self.policies.len() < POLICIES => {
                reserve(&mut self.policies);
                self.policies.push((Arc::clone(policy), RecordBuffer::default()));
                self.policies.len() - 1
            }
            None => return None,
        };
        self.policies.get_mut(index).map(|(_, buffer)| buffer)
    }
}

/// Reserves room for one: most have only one, and a vector would allocate four.
fn reserve<T>(vec: &mut Vec<T>) {
    if vec.is_empty() {
        vec.reserve_exact(1);
    }
}
