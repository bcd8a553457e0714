//! The limited clients and the accounts of how many there are, how much memory they take, and which of
//! them are still to be published.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use ipnet::IpNet;

use super::{
    account::Account,
    address,
    client::Held,
    denial::{Evidence, Tally},
    policies::Policies,
};

/// Addresses held; the one that was denied longest ago goes first.
pub const ADDRESSES: usize = 10_000;
/// About as much memory; likewise.
const BYTES: usize = 64 << 20;
/// Addresses looked at a sweep.
pub(super) const SWEEP: usize = 256;
/// How long a worker may sit on a denial before it hands it over, amply.
const IN_FLIGHT: i64 = 2_000_000;

#[derive(Debug, Default)]
pub(super) struct Clients {
    by_address: BTreeMap<IpNet, Held>,
    /// By the last denial.
    by_last: BTreeSet<(i64, IpNet)>,
    /// Those that are to be published, by the time at which they are.
    by_due: BTreeSet<(i64, IpNet)>,
    bytes: usize,
    /// When an address was forgotten on demand: what workers noted before does not bring it back.
    forgotten: BTreeMap<IpNet, i64>,
    /// Where the next sweep begins.
    swept: Option<IpNet>,
}

/// What the accounts say of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Accounted {
    bytes: usize,
    last: i64,
    due: Option<i64>,
}

impl Accounted {
    fn of(held: &Held) -> Self {
        Self { bytes: held.bytes(), last: held.last(), due: held.publication.due }
    }
}

impl Clients {
    pub(super) fn add(&mut self, address: IpNet, tally: Tally, policies: &Policies, now: i64) {
        if self.forgotten.get(&address).is_some_and(|&since| tally.last <= since) {
            return;
        }
        self.admit(address, |held| held.add(tally, policies, now));
    }

    pub(super) fn add_evidence(&mut self, evidence: &Evidence, policies: &Policies, now: i64) {
        if let Some(address) = address::parse(&evidence.address) {
            self.change(address, |held| held.add_evidence(evidence, policies, now));
        }
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
            held.read = read.or(held.read);
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
        if after != before {
            self.close(address, before);
            self.open(address, after);
        }
        Some(result)
    }

    /// [`Clients::change`], of a client that may be new.
    fn admit(&mut self, address: IpNet, change: impl FnOnce(&mut Held)) {
        if !self.by_address.contains_key(&address) {
            let held = Held::new(address);
            self.open(address, Accounted::of(&held));
            self.by_address.insert(address, held);
        }
        self.change(address, change);
    }

    pub(super) fn remove(&mut self, address: IpNet) -> Option<Held> {
        let held = self.by_address.remove(&address)?;
        self.close(address, Accounted::of(&held));
        Some(held)
    }

    /// [`Clients::remove`] on demand: what was noted until `since` does not bring it back.
    pub(super) fn forget(&mut self, address: IpNet, since: i64) -> Option<Held> {
        self.forgotten.insert(address, since);
        self.remove(address)
    }

    fn open(&mut self, address: IpNet, accounted: Accounted) {
        self.bytes += accounted.bytes;
        self.by_last.insert((accounted.last, address));
        self.by_due.extend(accounted.due.map(|due| (due, address)));
    }

    fn close(&mut self, address: IpNet, accounted: Accounted) {
        self.bytes -= accounted.bytes;
        self.by_last.remove(&(accounted.last, address));
        if let Some(due) = accounted.due {
            self.by_due.remove(&(due, address));
        }
    }

    pub(super) fn get(&self, address: IpNet) -> Option<&Held> {
        self.by_address.get(&address)
    }

    /// In order of their addresses.
    pub(super) fn iter(&self) -> impl Iterator<Item = (IpNet, &Held)> {
        self.by_address.iter().map(|(&address, held)| (address, held))
    }

    /// Those that are to be published by now, the one that waits longest first.
    pub(super) fn due(&self, now: i64) -> impl Iterator<Item = (IpNet, &Held)> {
        let due = self.by_due.iter().take_while(move |(due, _)| *due <= now);
        due.filter_map(|&(_, address)| Some((address, self.by_address.get(&address)?)))
    }

    /// How many of this instance's own had to go.
    pub(super) fn make_room(&mut self) -> u64 {
        let mut evicted = 0;
        while self.by_address.len() > ADDRESSES || self.bytes > BYTES {
            let Some(&(_, address)) = self.by_last.first() else { break };
            let held = self.remove(address);
            evicted += u64::from(held.is_some_and(|held| held.own().is_some()));
        }
        evicted
    }

    pub(super) fn sweep(&mut self, policies: &Policies, retain: i64, now: i64) {
        for _ in 0..SWEEP {
            match self.by_last.first() {
                Some(&(last, address)) if last.saturating_add(retain) <= now => self.remove(address),
                _ => break,
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
        let due = self.by_address.values().filter(|held| held.publication.due.is_some());
        self.bytes == self.by_address.values().map(Held::bytes).sum::<usize>()
            && self.by_last.len() == self.by_address.len()
            && self.by_due.len() == due.count()
    }
}
