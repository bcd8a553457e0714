//! The addresses from which each user was denied.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use ipnet::IpNet;

use super::{
    super::{
        outbox::{Outbox, Pending},
        recording::masking::DeniedUser,
    },
    UserDenials,
};
use crate::memory_budget::heap;

/// Maximum number of pairs of a user and an address; the one that expires first is dropped first.
pub const USER_ADDRESSES: usize = 200_000;
/// Maximum number of addresses of one user; the one with the oldest denial is evicted first.
pub const ADDRESSES_PER_USER: usize = 2_048;

/// An address that a user was denied from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedAddress {
    pub address: IpNet,
    /// Number of the user's denied requests.
    pub denied: u64,
    /// How many of them had a verified user. The others only claimed to be the user, as any client can.
    pub verified: u64,
    /// The last denial, in microseconds since the Unix epoch.
    pub last: i64,
}

/// A user at an address, to be written to the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingUpdate {
    /// Its number in the outbox, for the acknowledgement.
    sequence: i64,
    /// The user's name as stored.
    pub user: Arc<str>,
    pub user_address: DeniedAddress,
    /// When it has to be removed.
    pub ends: i64,
    /// The counts that the archive may have already, and in which incarnation of the user.
    pub published: Option<(UserDenials, u32)>,
}

/// The denials of this instance by user, then by address.
#[derive(Debug)]
pub(super) struct UserAddressIndex {
    by_user: HashMap<Arc<str>, UserEntry, foldhash::fast::RandomState>,
    /// By expiry.
    by_end: BTreeSet<(i64, Arc<str>, IpNet)>,
    by_address: BTreeSet<(IpNet, Arc<str>)>,
    /// Pairs to be written to the archive. Their values are read from here when they are sent.
    outbox: Outbox<(Arc<str>, IpNet)>,
    /// Whether there is an archive.
    pub(super) is_shared: bool,
    /// Bytes of users and their addresses.
    bytes: usize,
    /// Maximum number of bytes.
    pub(super) max_bytes: usize,
}

#[derive(Debug)]
struct UserEntry {
    /// Bytes of the name, which the indexes share.
    name_bytes: usize,
    /// In order of the addresses. Most users have one, for which a tree would take a node for eleven.
    addresses: Vec<(IpNet, AddressStats)>,
}

#[derive(Debug, Clone, Copy)]
struct AddressStats {
    denied: u64,
    verified: u64,
    last: i64,
    ends: i64,
    /// Its number in the outbox, where it waits at most once.
    queued: Option<i64>,
    /// The counts of the last acknowledgement, and in which incarnation of the user.
    published: Option<(UserDenials, u32)>,
}

impl AddressStats {
    fn at(self, address: IpNet) -> DeniedAddress {
        let Self { denied, verified, last, .. } = self;
        DeniedAddress { address, denied, verified, last }
    }
}

impl UserEntry {
    fn get_mut(&mut self, address: IpNet) -> Option<&mut AddressStats> {
        let index = self.position(address).ok()?;
        Some(&mut self.addresses[index].1)
    }

    /// The statistics of this address, which may be new.
    fn entry(&mut self, address: IpNet, last: i64) -> &mut AddressStats {
        let index = self.position(address).unwrap_or_else(|index| {
            if self.addresses.is_empty() {
                self.addresses.reserve_exact(1);
            }
            let new =
                AddressStats { denied: 0, verified: 0, last, ends: i64::MIN, queued: None, published: None };
            self.addresses.insert(index, (address, new));
            index
        });
        &mut self.addresses[index].1
    }

    fn remove(&mut self, address: IpNet) -> Option<AddressStats> {
        let index = self.position(address).ok()?;
        Some(self.addresses.remove(index).1)
    }

    /// The index of an address, or the index at which to insert it.
    fn position(&self, address: IpNet) -> Result<usize, usize> {
        self.addresses.binary_search_by_key(&address, |(known, _)| *known)
    }

    /// Bytes on the heap, including the indexes and the outbox.
    fn bytes(&self) -> usize {
        const ADDRESS: usize = heap::tree_entry(size_of::<(i64, Arc<str>, IpNet)>())
            + heap::tree_entry(size_of::<(IpNet, Arc<str>)>())
            + heap::tree_entry(size_of::<(u64, (Arc<str>, IpNet))>());
        let addresses = heap::array::<(IpNet, AddressStats)>(self.addresses.capacity());
        self.name_bytes + addresses + self.addresses.len() * ADDRESS
    }
}

impl UserAddressIndex {
    pub(super) fn new() -> Self {
        Self {
            by_user: HashMap::default(),
            by_end: BTreeSet::new(),
            by_address: BTreeSet::new(),
            // Each pair waits at most once and leaves with its entry, so a capacity of entries + 1 never drops one.
            outbox: Outbox::new(USER_ADDRESSES + 1),
            is_shared: true,
            bytes: 0,
            max_bytes: usize::MAX,
        }
    }

    /// Adds a denial of a user at an address, which is remembered until `ends`.
    pub(super) fn add(&mut self, address: IpNet, who: &DeniedUser, ends: i64) {
        let user = match self.by_user.get_key_value(who.named.written.as_str()) {
            Some((user, _)) => Arc::clone(user),
            None => self.insert_user(&who.named.written),
        };
        let Some(known) = self.by_user.get_mut(&user) else { return };
        self.bytes -= known.bytes();
        let seen = known.entry(address, who.last);
        seen.denied = seen.denied.saturating_add(who.denied);
        seen.verified = seen.verified.saturating_add(who.verified);
        seen.last = seen.last.max(who.last);
        if seen.ends < ends {
            self.by_end.remove(&(seen.ends, Arc::clone(&user), address));
            seen.ends = ends;
            self.by_end.insert((ends, Arc::clone(&user), address));
        }
        if seen.queued.is_none() && self.is_shared {
            seen.queued = Some(self.outbox.push((Arc::clone(&user), address)).0);
        }
        self.bytes += known.bytes();
        let is_crowded = known.addresses.len() > ADDRESSES_PER_USER;
        self.by_address.insert((address, Arc::clone(&user)));
        if is_crowded {
            self.drop_oldest_addresses(&user);
        }
        while self.by_address.len() > USER_ADDRESSES || self.bytes() > self.max_bytes {
            let Some((_, user, address)) = self.by_end.first().cloned() else { return };
            self.remove(&user, address);
        }
    }

    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + heap::hash_table(self.by_user.capacity(), size_of::<(Arc<str>, UserEntry)>())
    }

    /// The remembered addresses from which a user was denied.
    pub(super) fn addresses_of(&self, user: &str, now: i64) -> Vec<DeniedAddress> {
        let seen = self.by_user.get(user).into_iter().flat_map(|user| &user.addresses);
        let seen = seen.filter(|(_, seen)| seen.ends > now);
        seen.map(|&(address, seen)| seen.at(address)).collect()
    }

    /// Removes up to `max` expired pairs.
    pub(super) fn expire(&mut self, now: i64, max: usize) {
        for _ in 0..max {
            match self.by_end.first().filter(|(ends, ..)| *ends <= now).cloned() {
                Some((_, user, address)) => self.remove(&user, address),
                None => break,
            }
        }
        if self.by_user.len() < self.by_user.capacity() / 4 {
            self.by_user.shrink_to(self.by_user.len() * 2);
        }
    }

    /// Up to `max` updates for the archive, the longest waiting first. They are kept until [`UserAddressIndex::ack`].
    pub(super) fn pending(&self, max: usize) -> Vec<PendingUpdate> {
        let pending = self.outbox.pending(max).into_iter().filter_map(|Pending { sequence, item }| {
            let (user, address) = item;
            let known = self.by_user.get(&user)?;
            let seen = known.addresses[known.position(address).ok()?].1;
            let AddressStats { ends, published, .. } = seen;
            Some(PendingUpdate { sequence, user, user_address: seen.at(address), ends, published })
        });
        pending.collect()
    }

    /// The counts of a user at an address that were written to this incarnation of the user.
    pub(super) fn published(&self, user: &str, address: IpNet, incarnation: u32) -> Option<UserDenials> {
        let known = self.by_user.get(user)?;
        let (denials, of) = known.addresses[known.position(address).ok()?].1.published?;
        (of == incarnation).then_some(denials)
    }

    /// Acknowledges that these updates were written to this incarnation of the user. Pairs that have changed since
    /// wait behind the others.
    pub(super) fn ack(&mut self, written: &[PendingUpdate], incarnation: u32) {
        for PendingUpdate { sequence, user, user_address, .. } in written {
            let Some(key) = self.outbox.remove(*sequence) else { continue };
            let known = self.by_user.get_mut(user);
            let Some(seen) = known.and_then(|known| known.get_mut(user_address.address)) else {
                continue;
            };
            let DeniedAddress { denied, verified, .. } = *user_address;
            seen.published = Some((UserDenials { denied, verified }, incarnation));
            let is_changed = seen.denied != denied;
            seen.queued = is_changed.then(|| self.outbox.push(key).0);
        }
    }

    /// Writes everything again, because the archive has lost it.
    pub(super) fn resend_all(&mut self) {
        if !self.is_shared {
            return;
        }
        for (user, known) in &mut self.by_user {
            for (address, seen) in known.addresses.iter_mut().filter(|(_, seen)| seen.queued.is_none()) {
                seen.queued = Some(self.outbox.push((Arc::clone(user), *address)).0);
            }
        }
    }

    fn insert_user(&mut self, written: &str) -> Arc<str> {
        let user: Arc<str> = written.into();
        let entry = UserEntry { name_bytes: heap::block(16 + user.len()), addresses: Vec::new() };
        self.bytes += entry.bytes();
        self.by_user.insert(Arc::clone(&user), entry);
        user
    }

    /// Drops an eighth of a user's addresses at once, because searching for one at a time would take long. Addresses
    /// where others only claimed to be the user are dropped first.
    fn drop_oldest_addresses(&mut self, user: &Arc<str>) {
        let Some(known) = self.by_user.get(user) else { return };
        let mut oldest: Vec<_> =
            known.addresses.iter().map(|&(address, seen)| (seen.verified > 0, seen.last, address)).collect();
        oldest.sort_unstable();
        for (_, _, address) in oldest.into_iter().take(ADDRESSES_PER_USER / 8) {
            self.remove(user, address);
        }
    }

    fn remove(&mut self, user: &Arc<str>, address: IpNet) {
        let Some(known) = self.by_user.get_mut(user) else { return };
        self.bytes -= known.bytes();
        if let Some(seen) = known.remove(address) {
            self.by_end.remove(&(seen.ends, Arc::clone(user), address));
            seen.queued.and_then(|sequence| self.outbox.remove(sequence));
        }
        match known.addresses.is_empty() {
            true => {
                self.by_user.remove(user);
            }
            false => self.bytes += known.bytes(),
        }
        self.by_address.remove(&(address, Arc::clone(user)));
    }

    #[cfg(test)]
    fn add_up(&self) -> bool {
        let seen = || self.by_user.values().flat_map(|user| user.addresses.iter().map(|(_, seen)| seen));
        self.bytes == self.by_user.values().map(UserEntry::bytes).sum::<usize>()
            && self.by_address.len() == seen().count()
            && self.by_end.len() == seen().count()
            && self.outbox.len() == seen().filter(|seen| seen.queued.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{names::NamedUser, testing::client},
        *,
    };

    fn who(user: &str, last: i64) -> DeniedUser {
        DeniedUser { named: NamedUser { hash: 0, written: user.into() }, denied: 1, verified: 0, last }
    }

    fn user_addresses() -> UserAddressIndex {
        UserAddressIndex::new()
    }

    /// How long a pair is remembered.
    const KEPT: i64 = 60;

    fn add(user_addresses: &mut UserAddressIndex, address: IpNet, who: &DeniedUser) {
        user_addresses.add(address, who, who.last + KEPT);
    }

    #[test]
    fn a_user_is_listed_at_each_address() {
        let mut user_addresses = user_addresses();
        for time in 0..3 {
            (0..300).for_each(|n| add(&mut user_addresses, client(n), &who("acme", time)));
        }
        add(&mut user_addresses, client(1), &who("bob", 9));
        let seen = user_addresses.addresses_of("acme", 10);
        assert_eq!(seen.len(), 300);
        assert!(seen.iter().all(|seen| (seen.denied, seen.last) == (3, 2)));
        assert_eq!(user_addresses.addresses_of("acme", 62), [], "too long ago");
        assert_eq!(user_addresses.addresses_of("bob", 10).len(), 1);
        user_addresses.expire(2 + KEPT, 1_000);
        assert_eq!(user_addresses.addresses_of("acme", 10), []);
        user_addresses.expire(9 + KEPT, 1_000);
        assert!(user_addresses.add_up() && user_addresses.by_user.is_empty());
    }

    #[test]
    fn addresses_of_a_user_are_bounded() {
        let mut user_addresses = user_addresses();
        (0..5_000).for_each(|n| add(&mut user_addresses, client(n), &who("acme", n as i64)));
        let seen = user_addresses.addresses_of("acme", 0);
        assert!((1_000..=ADDRESSES_PER_USER).contains(&seen.len()), "{}", seen.len());
        assert!(seen.iter().any(|seen| seen.address == client(4_999)));
        assert!(!seen.iter().any(|seen| seen.address == client(0)));
        assert!(user_addresses.add_up());
    }

    #[test]
    fn addresses_at_which_others_claimed_to_be_the_user_go_first() {
        let mut user_addresses = user_addresses();
        add(&mut user_addresses, client(0), &DeniedUser { verified: 1, ..who("acme", 0) });
        (1..5_000).for_each(|n| add(&mut user_addresses, client(n), &who("acme", n as i64)));
        let seen = user_addresses.addresses_of("acme", 0);
        let kept = seen.iter().find(|seen| seen.address == client(0));
        assert_eq!(kept.map(|seen| seen.verified), Some(1));
    }

    #[test]
    fn users_are_bounded() {
        let mut user_addresses = user_addresses();
        (0..USER_ADDRESSES + 10)
            .for_each(|n| add(&mut user_addresses, client(1), &who(&n.to_string(), n as i64)));
        assert_eq!(user_addresses.by_user.len(), USER_ADDRESSES);
        assert_eq!(user_addresses.addresses_of("9", 0), []);
        assert_eq!(user_addresses.addresses_of("10", 0).len(), 1);
        assert!(user_addresses.add_up());
    }

    #[test]
    fn an_update_is_pending_until_it_is_acknowledged() {
        let mut user_addresses = user_addresses();
        (0..5).for_each(|n| add(&mut user_addresses, client(n), &who("acme", 1)));
        let sent = user_addresses.pending(3);
        assert_eq!((sent.len(), user_addresses.pending(3)), (3, sent.clone()));
        add(&mut user_addresses, client(0), &who("acme", 2));
        user_addresses.ack(&sent, 1);
        let rest: Vec<_> = user_addresses.pending(9).into_iter().map(|update| update.user_address).collect();
        assert_eq!(
            rest.iter().map(|seen| seen.address).collect::<Vec<_>>(),
            [client(3), client(4), client(0)]
        );
        assert_eq!(rest[2].denied, 2);
        user_addresses.ack(&user_addresses.pending(9), 1);
        assert_eq!(user_addresses.pending(9), []);
        user_addresses.resend_all();
        let sent = user_addresses.pending(9);
        assert_eq!(sent.len(), 5);
        user_addresses.remove(&"acme".into(), client(2));
        add(&mut user_addresses, client(2), &who("acme", 3));
        user_addresses.ack(&sent, 1);
        let rest: Vec<_> = user_addresses.pending(9).into_iter().map(|update| update.user_address).collect();
        assert_eq!(
            rest,
            [DeniedAddress { address: client(2), denied: 1, verified: 0, last: 3 }],
            "it is new since"
        );
        assert!(user_addresses.add_up());
    }
}
