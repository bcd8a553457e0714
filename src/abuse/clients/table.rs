//! The limited clients, with the totals of their number and memory, and an index of those still to be published.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use ipnet::IpNet;

use super::{
    super::{
        address,
        recording::{
            denial::DenialTally,
            masking::{DeniedUser, LimitEvidence},
            response::ResponseTally,
        },
    },
    active::ActiveCounts,
    entry::ClientEntry,
    history::DenialHistory,
    policies::RecordPolicies,
    publication::{PublishState, PublishedCounts},
    records::RecordBuffer,
    sort_index::{ClientPosition, SortIndex, SortKeys, sort_keys},
    unblock::Unblock,
};
use crate::memory_budget::{FreedBytes, heap};

/// Maximum number of addresses; the one that was denied longest ago is evicted first.
pub const ADDRESSES: usize = 1_000_000;
/// Addresses examined per sweep.
pub(super) const SWEEP: usize = 512;
/// An ample upper bound of the time until a worker hands a denial over.
const IN_FLIGHT: i64 = 2_000_000;
/// Bytes of an address in the maps and indexes, without its histories.
const BASE: usize = heap::tree_entry(size_of::<(IpNet, ClientEntry)>()) + SortIndex::ENTRY_BYTES;
/// Approximate bytes of a client without records.
const CLIENT: usize = BASE + heap::array::<DenialHistory>(1) + heap::array::<(Arc<str>, RecordBuffer)>(1);
/// Additional bytes of a published client: its state, and the users that are not published yet.
const PUBLISHED: usize = heap::array::<PublishState>(1) + heap::array::<PublishedCounts>(1) + DUE + 160;
/// Clients that are evicted or lose their evidence under one lock.
const EVICTED_PER_LOCK: usize = 4_096;
/// Bytes of an entry in the index of due clients.
const DUE: usize = heap::tree_entry(size_of::<(i64, IpNet)>());

#[derive(Debug)]
pub(super) struct ClientTable {
    by_address: BTreeMap<IpNet, ClientEntry>,
    orders: SortIndex,
    active_counts: ActiveCounts,
    /// Clients to be published, by the time at which they are due.
    by_due: BTreeSet<(i64, IpNet)>,
    bytes: usize,
    /// Addresses that were unblocked a moment ago: earlier denials that are handed over late are only evidence.
    unblocked: BTreeMap<IpNet, Unblock>,
    /// Where the next sweep begins.
    swept: Option<IpNet>,
    /// Clients that were denied before this one have lost their evidence.
    evidence_dropped: Option<ClientPosition>,
    /// Whether clients are published.
    pub(super) is_shared: bool,
    /// The maximum number of addresses, and of their bytes. The client denied longest ago first loses its evidence,
    /// and is then removed.
    pub(super) capacity: (usize, usize),
    /// Clients that have lost their evidence to make room.
    pub(super) dropped_evidence: u64,
    pub(super) freed: FreedBytes,
}

/// A client's share of the totals and indexes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct IndexedValues {
    bytes: usize,
    sort_keys: SortKeys,
    until: i64,
    due: Option<i64>,
}

impl IndexedValues {
    fn from_entry(entry: &ClientEntry) -> Self {
        Self {
            bytes: BASE + entry.bytes() + if entry.due().is_some() { DUE } else { 0 },
            sort_keys: sort_keys(entry),
            until: entry.until(),
            due: entry.due(),
        }
    }
}

impl ClientTable {
    pub(super) fn new() -> Self {
        Self {
            by_address: BTreeMap::new(),
            orders: SortIndex::default(),
            active_counts: ActiveCounts::default(),
            by_due: BTreeSet::new(),
            bytes: 0,
            unblocked: BTreeMap::new(),
            swept: None,
            evidence_dropped: None,
            is_shared: true,
            capacity: (ADDRESSES, usize::MAX),
            dropped_evidence: 0,
            freed: FreedBytes::default(),
        }
    }

    /// False if the client was unblocked since: then the tally is only evidence.
    pub(super) fn add(
        &mut self,
        address: IpNet,
        mut tally: DenialTally,
        users: &[DeniedUser],
        policies: &RecordPolicies,
        now: i64,
    ) -> bool {
        let unblocked =
            self.unblocked.get(&address).filter(|unblocked| tally.last <= unblocked.time).cloned();
        let is_limited = unblocked.is_none();
        if let Some(unblocked) = &unblocked {
            tally.until = tally.until.min(unblocked.time);
        }
        self.admit(address, |entry| {
            entry.add(tally, users, &address::shown(address), policies, now);
            if let Some(unblocked) = unblocked {
                entry.unblock(unblocked);
            }
        });
        is_limited
    }

    /// Adds the responses to a client. False if this instance has not denied it anything.
    pub(super) fn add_responses(
        &mut self,
        address: IpNet,
        tally: &ResponseTally,
        policies: &RecordPolicies,
        now: i64,
    ) -> bool {
        self.change(address, |entry| entry.add_responses(tally, policies, now)) == Some(true)
    }

    pub(super) fn add_evidence(&mut self, evidence: &LimitEvidence, policies: &RecordPolicies, now: i64) {
        self.change(evidence.address, |entry| entry.add_evidence(evidence, policies, now));
    }

    /// Replaces the other instances' records of a client, read at the archive's change `read`.
    pub(super) fn replace_peer_view(
        &mut self,
        address: IpNet,
        others: Option<DenialHistory>,
        unblocked: Option<Unblock>,
        read: Option<i64>,
        now: i64,
    ) {
        if let Some(unblocked) = &unblocked {
            self.note_unblock(address, unblocked, now);
        }
        let change = |entry: &mut ClientEntry| {
            entry.replace_peer_view(others, unblocked);
            if let (Some(publication), Some(read)) = (&mut entry.publication, read) {
                publication.read = Some(read);
            }
        };
        if self.by_address.contains_key(&address) {
            self.change(address, change);
        } else {
            self.admit(address, change);
        }
        if self.by_address.get(&address).is_some_and(ClientEntry::is_empty) {
            self.remove(address);
        }
    }

    /// Changes one client and updates the totals and indexes.
    pub(super) fn change<T>(
        &mut self,
        address: IpNet,
        change: impl FnOnce(&mut ClientEntry) -> T,
    ) -> Option<T> {
        let entry = self.by_address.get_mut(&address)?;
        let before = IndexedValues::from_entry(entry);
        let result = change(entry);
        let after = IndexedValues::from_entry(entry);
        self.bytes = self.bytes - before.bytes + after.bytes;
        self.freed.add(before.bytes.saturating_sub(after.bytes));
        self.orders.replace(address, before.sort_keys, after.sort_keys);
        if before.until != after.until {
            self.active_counts.remove(before.until);
            self.active_counts.add(after.until);
        }
        if before.due != after.due {
            before.due.map(|due| self.by_due.remove(&(due, address)));
            self.by_due.extend(after.due.map(|due| (due, address)));
        }
        Some(result)
    }

    /// [`ClientTable::change`] for a client that may be new.
    fn admit(&mut self, address: IpNet, change: impl FnOnce(&mut ClientEntry)) {
        if !self.by_address.contains_key(&address) {
            let mut entry = ClientEntry::new(self.is_shared);
            change(&mut entry);
            let IndexedValues { bytes, sort_keys, until, due } = IndexedValues::from_entry(&entry);
            self.bytes += bytes;
            self.orders.insert(address, sort_keys);
            self.active_counts.add(until);
            self.by_due.extend(due.map(|due| (due, address)));
            self.by_address.insert(address, entry);
        } else {
            self.change(address, change);
        }
    }

    pub(super) fn remove(&mut self, address: IpNet) -> Option<ClientEntry> {
        let entry = self.by_address.remove(&address)?;
        let IndexedValues { bytes, sort_keys, until, due } = IndexedValues::from_entry(&entry);
        self.bytes -= bytes;
        self.freed.add(bytes);
        self.orders.remove(address, sort_keys);
        self.active_counts.remove(until);
        due.map(|due| self.by_due.remove(&(due, address)));
        Some(entry)
    }

    /// Ends the limits of denials before `unblock`, even if they are handed over late.
    pub(super) fn unblock(&mut self, address: IpNet, unblock: Unblock, now: i64) {
        self.note_unblock(address, &unblock, now);
        self.change(address, |entry| entry.unblock(unblock));
    }

    /// Remembers an unblock for as long as earlier denials may be handed over.
    fn note_unblock(&mut self, address: IpNet, unblock: &Unblock, now: i64) {
        if unblock.time.saturating_add(IN_FLIGHT) <= now {
            return;
        }
        let known = self.unblocked.get(&address);
        if known.is_none_or(|known| known.by.is_empty() || known.time < unblock.time) {
            self.unblocked.insert(address, unblock.clone());
        }
    }

    pub(super) fn get(&self, address: IpNet) -> Option<&ClientEntry> {
        self.by_address.get(&address)
    }

    pub(super) fn len(&self) -> usize {
        self.by_address.len()
    }

    /// The number of clients that are limited at `now`, to the second.
    pub(super) fn active_count(&self, now: i64) -> usize {
        self.active_counts.active_at(now)
    }

    /// Bytes of the clients.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn orders(&self) -> &SortIndex {
        &self.orders
    }

    /// Clients in order of their addresses.
    pub(super) fn range(
        &self,
        bounds: (Bound<IpNet>, Bound<IpNet>),
    ) -> impl Iterator<Item = (IpNet, &ClientEntry)> {
        self.by_address.range(bounds).map(|(&address, entry)| (address, entry))
    }

    /// Clients that are due to be published, the longest waiting first.
    pub(super) fn due(&self, now: i64) -> impl Iterator<Item = (IpNet, &ClientEntry)> {
        let due = self.by_due.iter().take_while(move |(due, _)| *due <= now);
        due.filter_map(|&(_, address)| Some((address, self.by_address.get(&address)?)))
    }

    /// Evicts clients and evidence beyond the capacity; if there are many, the next call continues. Returns the
    /// number of this instance's own clients that were evicted.
    ///
    /// Records are dropped before clients, but clients without records leave a quarter of the memory to the records
    /// of recently denied ones: otherwise a flood of addresses would leave no records.
    pub(super) fn evict_excess(&mut self) -> u64 {
        let mut evicted = 0;
        let (addresses, bytes) = self.capacity;
        let client = if self.is_shared { CLIENT + PUBLISHED } else { CLIENT };
        for _ in 0..EVICTED_PER_LOCK {
            if self.by_address.len() <= addresses && self.bytes <= bytes {
                break;
            }
            let is_crowded = self.by_address.len() > addresses.min((bytes - bytes / 4) / client);
            if !is_crowded && self.drop_oldest_evidence() {
                continue;
            }
            let Some(oldest) = self.orders.oldest(None) else { break };
            let entry = self.remove(oldest.address());
            evicted += u64::from(entry.is_some_and(|entry| entry.own().is_some()));
        }
        evicted
    }

    /// Drops the evidence of the address with evidence that was denied longest ago. False if there is none, apart
    /// from clients that arrived late from other instances, which are the first to be evicted.
    fn drop_oldest_evidence(&mut self) -> bool {
        while let Some(position) = self.orders.oldest(self.evidence_dropped) {
            self.evidence_dropped = Some(position);
            if self.change(position.address(), ClientEntry::drop_evidence) == Some(true) {
                self.dropped_evidence += 1;
                return true;
            }
        }
        false
    }

    pub(super) fn sweep(&mut self, policies: &RecordPolicies, retain: i64, now: i64) {
        for _ in 0..SWEEP {
            let oldest = self.orders.oldest(None).map(ClientPosition::address);
            let is_over = |entry: &ClientEntry| entry.last().saturating_add(retain) <= now;
            match oldest.filter(|address| self.by_address.get(address).is_some_and(is_over)) {
                Some(address) => self.remove(address),
                None => break,
            };
        }
        let after = match self.swept {
            Some(address) => (Bound::Excluded(address), Bound::Unbounded),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        let next: Vec<_> = self.by_address.range(after).take(SWEEP).map(|(&address, _)| address).collect();
        for &address in &next {
            self.change(address, |entry| entry.expire(policies, now));
        }
        // Continue after the last one; start over at the end.
        self.swept = next.last().copied().filter(|_| next.len() == SWEEP);
        self.unblocked.retain(|_, unblock| unblock.time.saturating_add(IN_FLIGHT) > now);
    }

    /// Whether totals and indexes match the clients.
    #[cfg(test)]
    pub(super) fn add_up(&self) -> bool {
        let due = self.by_address.values().filter(|entry| entry.due().is_some());
        let bytes = |entry: &ClientEntry| IndexedValues::from_entry(entry).bytes;
        self.bytes == self.by_address.values().map(bytes).sum::<usize>()
            && self.orders.len() == [self.by_address.len(); 4]
            && self.by_due.len() == due.count()
            && self.active_counts.active_at(i64::MIN) == self.by_address.len()
    }
}
