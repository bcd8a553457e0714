//! The limited clients and the accounts of how many there are, how much memory they take, and which of
//! them are still to be published.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use ipnet::IpNet;

use super::{
    super::{
        address,
        recording::{
            denial::Tally,
            prepare::{Filled, Who},
        },
    },
    active::Ends,
    entry::Held,
    history::Account,
    policies::Policies,
    sort_index::{Numbers, Orders, Place, numbers},
};

/// Addresses held; the one that was denied longest ago goes first.
pub const ADDRESSES: usize = 1_000_000;
/// Bytes that they may take, about. Of the one that was denied longest ago the evidence goes first, and then itself.
const BYTES: usize = 512 << 20;
/// Addresses looked at a sweep.
pub(super) const SWEEP: usize = 512;
/// How long a worker may sit on a denial before it hands it over, amply.
const IN_FLIGHT: i64 = 2_000_000;
/// Bytes of an address in the maps and orders, without its accounts: nodes of trees are full to two thirds or so.
const BASE: usize = 240;

#[derive(Debug)]
pub(super) struct Clients {
    by_address: BTreeMap<IpNet, Held>,
    orders: Orders,
    ends: Ends,
    /// Those that are to be published, by the time at which they are.
    by_due: BTreeSet<(i64, IpNet)>,
    bytes: usize,
    /// When an address was forgotten on demand: what workers noted before does not bring it back.
    forgotten: BTreeMap<IpNet, i64>,
    /// Where the next sweep begins.
    swept: Option<IpNet>,
    /// Of those that were denied before this one the evidence is gone.
    condensed: Option<Place>,
    /// Whether they are published.
    pub(super) is_shared: bool,
    /// Addresses, and bytes.
    pub(super) room: (usize, usize),
}

/// What the accounts say of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Accounted {
    bytes: usize,
    numbers: Numbers,
    until: i64,
    due: Option<i64>,
}

impl Accounted {
    fn of(held: &Held) -> Self {
        Self { bytes: BASE + held.bytes(), numbers: numbers(held), until: held.until(), due: held.due() }
    }
}

impl Clients {
    pub(super) fn new() -> Self {
        Self {
            by_address: BTreeMap::new(),
            orders: Orders::default(),
            ends: Ends::default(),
            by_due: BTreeSet::new(),
            bytes: 0,
            forgotten: BTreeMap::new(),
            swept: None,
            condensed: None,
            is_shared: true,
            room: (ADDRESSES, BYTES),
        }
    }

    /// False where it is void: the client was forgotten since.
    pub(super) fn add(
        &mut self,
        address: IpNet,
        tally: Tally,
        users: &[Who],
        policies: &Policies,
        now: i64,
    ) -> bool {
        if self.forgotten.get(&address).is_some_and(|&since| tally.last <= since) {
            return false;
        }
        self.admit(address, |held| held.add(tally, users, &address::shown(address), policies, now));
        true
    }

    pub(super) fn add_evidence(&mut self, filled: &Filled, policies: &Policies, now: i64) {
        self.change(filled.address, |held| held.add_evidence(filled, policies, now));
    }

    /// Puts what the others know of a client in the place of what they knew, up to the change `read` of the
    /// archive. What was denied until `forgotten` is void.
    pub(super) fn replace_others(
        &mut self,
        address: IpNet,
        others: Option<Account>,
        forgotten: Option<i64>,
        read: Option<i64>,
        now: i64,
    ) {
        if let Some(since) = forgotten.filter(|since| since.saturating_add(IN_FLIGHT) > now) {
            let known = self.forgotten.entry(address).or_insert(since.min(now));
            *known = (*known).max(since.min(now));
        }
        let change = |held: &mut Held| {
            held.replace_others(others, forgotten);
            if let (Some(publication), Some(read)) = (&mut held.publication, read) {
                publication.read = Some(read);
            }
        };
        if self.by_address.contains_key(&address) {
            self.change(address, change);
        } else {
            self.admit(address, change);
        }
        if self.by_address.get(&address).is_some_and(Held::is_empty) {
            self.remove(address);
        }
    }

    /// Changes one client and keeps the accounts right.
    pub(super) fn change<T>(&mut self, address: IpNet, change: impl FnOnce(&mut Held) -> T) -> Option<T> {
        let held = self.by_address.get_mut(&address)?;
        let before = Accounted::of(held);
        let result = change(held);
        let after = Accounted::of(held);
        self.bytes = self.bytes - before.bytes + after.bytes;
        self.orders.replace(address, before.numbers, after.numbers);
        if before.until != after.until {
            self.ends.remove(before.until);
            self.ends.add(after.until);
        }
        if before.due != after.due {
            before.due.map(|due| self.by_due.remove(&(due, address)));
            self.by_due.extend(after.due.map(|due| (due, address)));
        }
        Some(result)
    }

    /// [`Clients::change`], of a client that may be new.
    fn admit(&mut self, address: IpNet, change: impl FnOnce(&mut Held)) {
        if !self.by_address.contains_key(&address) {
            let mut held = Held::new(self.is_shared);
            change(&mut held);
            let Accounted { bytes, numbers, until, due } = Accounted::of(&held);
            self.bytes += bytes;
            self.orders.insert(address, numbers);
            self.ends.add(until);
            self.by_due.extend(due.map(|due| (due, address)));
            self.by_address.insert(address, held);
        } else {
            self.change(address, change);
        }
    }

    pub(super) fn remove(&mut self, address: IpNet) -> Option<Held> {
        let held = self.by_address.remove(&address)?;
        let Accounted { bytes, numbers, until, due } = Accounted::of(&held);
        self.bytes -= bytes;
        self.orders.remove(address, numbers);
        self.ends.remove(until);
        due.map(|due| self.by_due.remove(&(due, address)));
        Some(held)
    }

    /// [`Clients::remove`] on demand: what was noted until `since` does not bring it back.
    pub(super) fn forget(&mut self, address: IpNet, since: i64) -> Option<Held> {
        self.forgotten.insert(address, since);
        self.remove(address)
    }

    pub(super) fn get(&self, address: IpNet) -> Option<&Held> {
        self.by_address.get(&address)
    }

    pub(super) fn len(&self) -> usize {
        self.by_address.len()
    }

    /// How many of them are limited at `now`, to the second.
    pub(super) fn limited(&self, now: i64) -> usize {
        self.ends.after(now)
    }

    /// About how much memory they take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn orders(&self) -> &Orders {
        &self.orders
    }

    /// In order of their addresses.
    pub(super) fn range(&self, bounds: (Bound<IpNet>, Bound<IpNet>)) -> impl Iterator<Item = (IpNet, &Held)> {
        self.by_address.range(bounds).map(|(&address, held)| (address, held))
    }

    /// Those that are to be published by now, the one that waits longest first.
    pub(super) fn due(&self, now: i64) -> impl Iterator<Item = (IpNet, &Held)> {
        let due = self.by_due.iter().take_while(move |(due, _)| *due <= now);
        due.filter_map(|&(_, address)| Some((address, self.by_address.get(&address)?)))
    }

    /// How many of this instance's own had to go.
    pub(super) fn make_room(&mut self) -> u64 {
        let mut evicted = 0;
        let (addresses, bytes) = self.room;
        while self.by_address.len() > addresses || self.bytes > bytes {
            if self.by_address.len() <= addresses && self.condense() {
                continue;
            }
            let Some(oldest) = self.orders.oldest(None) else { break };
            let held = self.remove(oldest.address());
            evicted += u64::from(held.is_some_and(|held| held.own().is_some()));
        }
        evicted
    }

    /// Drops the evidence of the address that was denied longest ago and has any. False where none has.
    fn condense(&mut self) -> bool {
        while let Some(place) = self.orders.oldest(self.condensed) {
            self.condensed = Some(place);
            if self.change(place.address(), Held::condense) == Some(true) {
                return true;
            }
        }
        // What was brought in late, from other instances, is found the next time.
        self.condensed = None;
        false
    }

    pub(super) fn sweep(&mut self, policies: &Policies, retain: i64, now: i64) {
        for _ in 0..SWEEP {
            let oldest = self.orders.oldest(None).map(Place::address);
            let is_over = |held: &Held| held.last().saturating_add(retain) <= now;
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
            self.change(address, |held| held.expire(policies, now));
        }
        // Short of the end goes on there; at the end it begins anew.
        self.swept = next.last().copied().filter(|_| next.len() == SWEEP);
        self.forgotten.retain(|_, since| since.saturating_add(IN_FLIGHT) > now);
    }

    /// Whether the accounts are those of the clients.
    #[cfg(test)]
    pub(super) fn add_up(&self) -> bool {
        let due = self.by_address.values().filter(|held| held.due().is_some());
        self.bytes == self.by_address.values().map(|held| BASE + held.bytes()).sum::<usize>()
            && self.orders.len() == [self.by_address.len(); 4]
            && self.by_due.len() == due.count()
            && self.ends.after(i64::MIN) == self.by_address.len()
    }
}
