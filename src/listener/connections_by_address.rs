//! The open client connections by client address, and the order in which they are closed when there are too many. Pure:
//! times are given by the caller.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    mem,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use slab::Slab;

/// How long an idle connection is not evicted for newcomers of its own address. Otherwise newcomers could replace each
/// other before any of them has sent a request.
const SAFE_FROM_OWN: Duration = Duration::from_secs(1);

/// A change leaves the rank of its address, which only a choice needs, to be brought up to date by the next choice or
/// after [`MAX_UNRANKED`] others. That takes logarithmic time: in a flood, each newcomer needs a choice.
#[derive(Debug, Default)]
pub(super) struct ConnectionsByAddress {
    connections: Slab<TrackedConnection>,
    addresses: Slab<AddressConnections>,
    by_network: HashMap<IpNet, usize, foldhash::fast::RandomState>,
    ranking: BTreeSet<Rank>,
    /// Addresses that have changed since they were ranked.
    unranked: Vec<usize>,
    /// How often any connection has become idle.
    idle_count: u64,
    /// The number of connections that [`ConnectionsByAddress::evict`] has chosen.
    closing: usize,
}

/// The rank of an address: the one with the highest rank gives up a connection first. Addresses with idle connections
/// rank above the others; among them, addresses with more connections; then the address whose connection has been idle
/// longest.
type Rank = (bool, usize, Reverse<u64>, usize);

/// Addresses whose ranks may be out of date.
const MAX_UNRANKED: usize = 256;

/// The worker that serves a connection, and the connection's key there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub(super) worker: usize,
    /// Index among the worker's connections. It is reused after the connection has closed.
    pub(super) key: usize,
    /// Unique among all connections that the worker ever had.
    pub(super) number: u64,
}

#[derive(Debug)]
struct TrackedConnection {
    owner: Owner,
    /// Index in `addresses`. `None`: the client is not known yet, or its connections are not limited.
    address: Option<usize>,
    /// `idle_count` and time when the connection became idle. `None`: a request is in flight.
    idle: Option<(u64, Instant)>,
    /// Of the address' idle connections, the one that became idle before this one, and the one after it.
    before: Option<usize>,
    after: Option<usize>,
    is_closing: bool,
}

#[derive(Debug)]
struct AddressConnections {
    network: IpNet,
    connections: usize,
    /// The connections that have been idle longest and shortest.
    longest_idle: Option<usize>,
    shortest_idle: Option<usize>,
    /// The rank in `ranking`. `None`: it was not ranked yet.
    rank: Option<Rank>,
    /// Whether it is in `unranked`.
    is_unranked: bool,
}

impl ConnectionsByAddress {
    /// The number of all connections.
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    /// The number of connections being closed to make room.
    pub(super) fn closing(&self) -> usize {
        self.closing
    }

    /// The number of connections of `network`.
    pub(super) fn count(&self, network: IpNet) -> usize {
        self.by_network.get(&network).map_or(0, |&address| self.addresses[address].connections)
    }

    /// The address with most connections, and their number.
    pub(super) fn heaviest(&mut self) -> Option<(IpNet, usize)> {
        self.rank();
        let with_idle = self.ranking.last();
        let without = self.ranking.range(..(true, 0, Reverse(u64::MAX), 0)).next_back();
        let (_, connections, _, address) = with_idle.into_iter().chain(without).max_by_key(|rank| rank.1)?;
        Some((self.addresses[*address].network, *connections))
    }

    /// Adds a connection, which is idle until its first request. Returns its key.
    pub(super) fn insert(&mut self, owner: Owner, now: Instant) -> usize {
        let idle = Some((self.next_idle(), now));
        self.connections.insert(TrackedConnection {
            owner,
            address: None,
            idle,
            before: None,
            after: None,
            is_closing: false,
        })
    }

    /// Counts the connection `key`, whose client was not known, for `network`.
    pub(super) fn set_address(&mut self, key: usize, network: IpNet) {
        let address = *self.by_network.entry(network).or_insert_with(|| {
            self.addresses.insert(AddressConnections {
                network,
                connections: 0,
                longest_idle: None,
                shortest_idle: None,
                rank: None,
                is_unranked: false,
            })
        });
        self.addresses[address].connections += 1;
        let order = self.next_idle();
        let connection = &mut self.connections[key];
        connection.address = Some(address);
        if let Some((of_idle, _)) = &mut connection.idle {
            // Others of the address may have become idle before it was known: it is the last of its list.
            *of_idle = order;
            self.link(address, key);
        }
        self.changed(address);
    }

    /// Removes the connection `key`, which is closed.
    pub(super) fn remove(&mut self, key: usize) {
        self.set_busy(key);
        let Some(address) = self.connections.remove(key).address else { return };
        self.addresses[address].connections -= 1;
        self.changed(address);
    }

    /// Marks the connection `key` as idle: it has no request in flight any more.
    pub(super) fn set_idle(&mut self, key: usize, now: Instant) {
        let order = self.next_idle();
        let connection = &mut self.connections[key];
        if connection.is_closing || connection.idle.is_some() {
            return;
        }
        connection.idle = Some((order, now));
        if let Some(address) = connection.address {
            self.link(address, key);
        }
    }

    /// Marks the connection `key` as busy: it has a request in flight. If it was being closed, that happens after the
    /// request.
    pub(super) fn set_busy(&mut self, key: usize) {
        let connection = &mut self.connections[key];
        if mem::take(&mut connection.is_closing) {
            self.closing -= 1;
        }
        if let (Some(_), Some(address)) = (connection.idle.take(), connection.address) {
            self.unlink(address, key);
        }
    }

    /// Chooses the connection that makes room for one of `newcomer`, and counts it as being closed. It is the longest
    /// idle connection of the address with most connections. If the newcomer's own address has as many, its own longest
    /// idle one is chosen. `None`: the newcomer has to be closed. `newcomer` is `None` if many clients are behind it.
    pub(super) fn evict(&mut self, newcomer: Option<IpNet>, now: Instant) -> Option<Owner> {
        self.rank();
        let own = newcomer.and_then(|network| self.by_network.get(&network).copied());
        let own_connections = own.map_or(0, |own| self.addresses[own].connections);
        let &(_, connections, _, heaviest) = self.ranking.last()?;
        let is_other = own != Some(heaviest) && connections > own_connections;
        let from = if is_other { heaviest } else { own? };
        let key = self.addresses[from].longest_idle?;
        let connection = &mut self.connections[key];
        let (_, since) = connection.idle?;
        if !is_other && now.saturating_duration_since(since) < SAFE_FROM_OWN {
            return None;
        }
        connection.is_closing = true;
        connection.idle = None;
        let owner = connection.owner;
        self.closing += 1;
        self.unlink(from, key);
        Some(owner)
    }

    fn next_idle(&mut self) -> u64 {
        self.idle_count += 1;
        self.idle_count
    }

    /// Adds the connection `key`, which has become idle, to the list of its address.
    fn link(&mut self, address: usize, key: usize) {
        let before = self.addresses[address].shortest_idle.replace(key);
        self.connections[key].before = before;
        match before {
            Some(before) => self.connections[before].after = Some(key),
            None => self.addresses[address].longest_idle = Some(key),
        }
        self.changed(address);
    }

    /// Takes the connection `key` out of the list of its address.
    fn unlink(&mut self, address: usize, key: usize) {
        let connection = &mut self.connections[key];
        let (before, after) = (connection.before.take(), connection.after.take());
        match before {
            Some(before) => self.connections[before].after = after,
            None => self.addresses[address].longest_idle = after,
        }
        match after {
            Some(after) => self.connections[after].before = before,
            None => self.addresses[address].shortest_idle = before,
        }
        self.changed(address);
    }

    /// Leaves the rank of `address` to the next choice.
    fn changed(&mut self, address: usize) {
        if mem::replace(&mut self.addresses[address].is_unranked, true) {
            return;
        }
        self.unranked.push(address);
        if self.unranked.len() >= MAX_UNRANKED {
            self.rank();
        }
    }

    /// Ranks the addresses that have changed, and forgets those without connections.
    fn rank(&mut self) {
        for address in mem::take(&mut self.unranked) {
            let entry = &mut self.addresses[address];
            if let Some(rank) = entry.rank.take() {
                self.ranking.remove(&rank);
            }
            if entry.connections == 0 {
                self.by_network.remove(&entry.network);
                self.addresses.remove(address);
                continue;
            }
            let oldest = entry.longest_idle.and_then(|key| self.connections[key].idle);
            let order = oldest.map_or(u64::MAX, |(order, _)| order);
            let rank = (oldest.is_some(), entry.connections, Reverse(order), address);
            entry.rank = Some(rank);
            entry.is_unranked = false;
            self.ranking.insert(rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network(last: u8) -> IpNet {
        IpNet::from(std::net::IpAddr::from([192, 0, 2, last]))
    }

    /// Opens a connection of this address. Its key is its number.
    fn open(connections: &mut ConnectionsByAddress, last: u8, now: Instant) -> usize {
        let owner = Owner { worker: 0, key: connections.connections.vacant_key(), number: 0 };
        let key = connections.insert(owner, now);
        connections.set_address(key, network(last));
        key
    }

    /// The number of connections in the lists of idle ones.
    fn idle(connections: &ConnectionsByAddress) -> usize {
        let after = |key: &usize| connections.connections[*key].after;
        let of = |address: &AddressConnections| std::iter::successors(address.longest_idle, after).count();
        connections.addresses.iter().map(|(_, address)| of(address)).sum()
    }

    fn evicted(connections: &mut ConnectionsByAddress, newcomer: u8, now: Instant) -> Option<usize> {
        Some(connections.evict(Some(network(newcomer)), now)?.key)
    }

    #[test]
    fn the_address_that_has_most_gives_up_the_one_that_is_idle_longest() {
        let (mut connections, now) = (ConnectionsByAddress::default(), Instant::now());
        let few = [1, 1].map(|last| open(&mut connections, last, now));
        let many = [2, 2, 2].map(|last| open(&mut connections, last, now));
        assert_eq!(connections.heaviest(), Some((network(2), 3)));
        connections.set_busy(many[0]);
        connections.set_busy(many[1]);
        connections.set_idle(many[1], now);
        assert_eq!(evicted(&mut connections, 3, now), Some(many[2]), "the first has a request in flight");
        assert_eq!(evicted(&mut connections, 3, now), Some(many[1]));
        assert_eq!((connections.closing(), connections.len()), (2, 5));
        // The remaining connections of the address have requests in flight.
        assert_eq!(evicted(&mut connections, 3, now), Some(few[0]));
        [many[2], many[1], few[0]].into_iter().for_each(|key| connections.remove(key));
        assert_eq!((connections.closing(), connections.len()), (0, 2));
        assert_eq!(connections.heaviest().map(|(_, count)| count), Some(1));
    }

    #[test]
    fn of_addresses_with_as_many_the_longest_idle_goes() {
        let (mut connections, now) = (ConnectionsByAddress::default(), Instant::now());
        let keys = [1, 2, 3].map(|last| open(&mut connections, last, now));
        connections.set_busy(keys[0]);
        connections.set_idle(keys[0], now);
        let order = [(); 3].map(|()| evicted(&mut connections, 4, now));
        assert_eq!(order, [Some(keys[1]), Some(keys[2]), Some(keys[0])]);
        assert_eq!(evicted(&mut connections, 4, now), None);
    }

    #[test]
    fn a_newcomer_of_the_address_that_has_most_replaces_one_of_its_own() {
        let (mut connections, now) = (ConnectionsByAddress::default(), Instant::now());
        let own = [1, 1].map(|last| open(&mut connections, last, now));
        for _ in 0..2 {
            open(&mut connections, 2, now);
        }
        assert_eq!(evicted(&mut connections, 1, now), None, "it may be shaking hands");
        let later = now + SAFE_FROM_OWN;
        assert_eq!(evicted(&mut connections, 1, later), Some(own[0]));
        connections.set_busy(own[1]);
        assert_eq!(evicted(&mut connections, 1, later), None);
        assert_eq!(connections.evict(None, now).map(|owner| owner.key), Some(2), "of the other");
    }

    #[test]
    fn one_that_sends_a_request_before_it_is_closed_is_not_counted_as_closing() {
        let (mut connections, now) = (ConnectionsByAddress::default(), Instant::now());
        let key = open(&mut connections, 1, now);
        assert_eq!(evicted(&mut connections, 2, now), Some(key));
        connections.set_idle(key, now);
        assert_eq!((connections.closing(), evicted(&mut connections, 2, now)), (1, None));
        connections.set_busy(key);
        assert_eq!((connections.closing(), connections.count(network(1))), (0, 1));
        connections.set_idle(key, now);
        assert_eq!(evicted(&mut connections, 2, now), Some(key));
    }

    #[test]
    fn addresses_without_connections_are_forgotten() {
        let (mut connections, now) = (ConnectionsByAddress::default(), Instant::now());
        for client in 0..10 * u32::try_from(MAX_UNRANKED).unwrap() {
            let owner = Owner { worker: 0, key: 0, number: 0 };
            let key = connections.insert(owner, now);
            connections.set_address(key, IpNet::from(std::net::IpAddr::from(client.to_be_bytes())));
            connections.remove(key);
            assert!(connections.addresses.len() <= MAX_UNRANKED);
        }
        assert_eq!(connections.heaviest(), None);
        assert_eq!((connections.addresses.len(), connections.by_network.len()), (0, 0));
    }

    proptest! {
        #[test]
        fn whatever_happens_it_agrees_with_a_plain_list(steps in prop::collection::vec((0..5_u8, 0..6_u8), 1..200)) {
            let (mut connections, start) = (ConnectionsByAddress::default(), Instant::now());
            // Key, address, step at which it became idle, whether it is being closed.
            let mut plain: Vec<(usize, u8, Option<usize>, bool)> = Vec::new();
            for (step, (what, which)) in steps.into_iter().enumerate() {
                let now = start + SAFE_FROM_OWN * (2 * u32::try_from(step).unwrap());
                let nth = usize::from(which) % plain.len().max(1);
                match (what, plain.get_mut(nth)) {
                    (0, _) | (_, None) => plain.push((open(&mut connections, which, now), which, Some(step), false)),
                    (1, _) => connections.remove(plain.swap_remove(nth).0),
                    (2, Some((key, _, idle, is_closing))) => {
                        connections.set_idle(*key, now);
                        if !*is_closing && idle.is_none() {
                            *idle = Some(step);
                        }
                    }
                    (3, Some((key, _, idle, is_closing))) => {
                        connections.set_busy(*key);
                        (*idle, *is_closing) = (None, false);
                    }
                    _ => {
                        let count = |of: u8| plain.iter().filter(|(_, address, ..)| *address == of).count();
                        let most = plain.iter().filter(|(_, _, idle, _)| idle.is_some());
                        let most = most.max_by_key(|(_, address, idle, _)| (count(*address), Reverse(*idle)));
                        let own = plain.iter().filter(|(_, address, idle, _)| *address == which && idle.is_some());
                        let own = own.min_by_key(|(_, _, idle, _)| *idle);
                        let expected = most.filter(|(_, address, ..)| count(*address) > count(which)).or(own);
                        let expected = expected.map(|(key, ..)| *key);
                        prop_assert_eq!(evicted(&mut connections, which, now), expected);
                        if let Some((.., idle, is_closing)) = plain.iter_mut().find(|(key, ..)| Some(*key) == expected) {
                            (*idle, *is_closing) = (None, true);
                        }
                    }
                }
                prop_assert_eq!(connections.len(), plain.len());
                prop_assert_eq!(connections.closing(), plain.iter().filter(|(.., is_closing)| *is_closing).count());
                prop_assert_eq!(idle(&connections), plain.iter().filter(|(_, _, idle, _)| idle.is_some()).count());
                let most = (0..6).map(|of| plain.iter().filter(|(_, address, ..)| *address == of).count()).max();
                prop_assert_eq!(connections.heaviest().map_or(0, |(_, count)| count), most.unwrap_or(0));
                prop_assert_eq!(connections.ranking.len(), connections.by_network.len());
                prop_assert_eq!(connections.addresses.len(), connections.by_network.len());
            }
        }
    }
}
