//! A page of a list, gathered step by step: a million addresses may lie between two that are wanted, and nobody is to
//! wait so long.

use std::{collections::BinaryHeap, ops::Bound, sync::Arc};

use ipnet::IpNet;

use super::{
    Client,
    client::Held,
    clients::Clients,
    order::{Place, Sort},
};

/// Addresses looked at a step.
const STEP: usize = 512;

/// Which addresses are wanted.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub sort: Sort,
    /// Those behind this place.
    pub after: Option<Place>,
    /// Held back by this policy.
    pub policy: Option<Arc<str>>,
    /// Within this prefix.
    pub prefix: Option<IpNet>,
    /// Limited still, or no longer.
    pub is_active: Option<bool>,
    /// With at least and at most so many users.
    pub users: Option<(u64, u64)>,
}

/// A walk through the addresses in search of a page. Addresses that change meanwhile may be told where they were.
#[derive(Debug)]
pub struct Walk {
    wanted: Wanted,
    limit: usize,
    /// Where it is, in the order or among the addresses.
    at: Option<Place>,
    address: Option<IpNet>,
    /// The first of a prefix in the order so far.
    found: BinaryHeap<Place>,
    clients: Vec<(Place, Client)>,
}

impl Walk {
    /// One that has found nothing yet, of at most `limit` addresses and the one behind them.
    pub fn new(wanted: Wanted, limit: usize) -> Self {
        let address = wanted.after.filter(|_| wanted.sort == Sort::Address).map(Place::address);
        Self { at: wanted.after, address, wanted, limit, found: BinaryHeap::new(), clients: Vec::new() }
    }

    /// The addresses of the page in their order, and where the next one begins.
    pub fn page(mut self) -> (Vec<Client>, Option<Place>) {
        self.clients.sort_unstable_by_key(|&(place, _)| place);
        let more = self.clients.len() > self.limit;
        self.clients.truncate(self.limit);
        let next = self.clients.last().map(|&(place, _)| place).filter(|_| more);
        (self.clients.into_iter().map(|(_, client)| client).collect(), next)
    }

    /// Goes a step on. True while there is more to look at. `is_over`: whether a client is listed no longer.
    pub(super) fn step(&mut self, clients: &Clients, is_over: impl Fn(&Held) -> bool, now: i64) -> bool {
        let by_address = self.wanted.sort == Sort::Address || self.wanted.prefix.is_some();
        let count = match by_address {
            true => self.step_by_address(clients, is_over, now),
            false => self.step_in_order(clients, is_over, now),
        };
        let goes_on = count == STEP && self.clients.len() <= self.limit;
        if !goes_on {
            self.settle(clients);
        }
        goes_on
    }

    fn step_in_order(&mut self, clients: &Clients, is_over: impl Fn(&Held) -> bool, now: i64) -> usize {
        let mut count = 0;
        for place in clients.orders().after(self.wanted.sort, self.at).take(STEP) {
            (self.at, count) = (Some(place), count + 1);
            let Some(held) = clients.get(place.address()) else { continue };
            if !is_over(held) && self.wanted.matches(held, now) {
                self.clients.push((place, held.told(place.address())));
                if self.clients.len() > self.limit {
                    break;
                }
            }
        }
        count
    }

    /// Through a prefix, whatever the order: what is wanted of it is kept, and sorted in the end.
    fn step_by_address(&mut self, clients: &Clients, is_over: impl Fn(&Held) -> bool, now: i64) -> usize {
        let sort = self.wanted.sort;
        let Some(bounds) = self.bounds() else { return 0 };
        let mut count = 0;
        for (address, held) in clients.range(bounds).take(STEP) {
            (self.address, count) = (Some(address), count + 1);
            let place = Place::new(sort.number(held), address);
            let is_behind = self.wanted.after.is_none_or(|after| place > after);
            if !is_behind || is_over(held) || !self.wanted.matches(held, now) {
                continue;
            }
            if sort == Sort::Address {
                self.clients.push((place, held.told(address)));
                if self.clients.len() > self.limit {
                    break;
                }
            } else {
                self.found.push(place);
                if self.found.len() > self.limit.saturating_add(1) {
                    self.found.pop();
                }
            }
        }
        count
    }

    /// Where to go on among the addresses.
    fn bounds(&self) -> Option<(Bound<IpNet>, Bound<IpNet>)> {
        let prefix = self.wanted.prefix.map(|prefix| (first(prefix), last(prefix)));
        let end = prefix.map_or(Bound::Unbounded, |(_, last)| Bound::Included(last));
        let begin = match (self.address, prefix) {
            // A cursor may have been given for another prefix.
            (Some(at), Some((_, last))) if at >= last => return None,
            (Some(at), Some((first, _))) if at < first => Bound::Included(first),
            (Some(at), _) => Bound::Excluded(at),
            (None, Some((first, _))) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        Some((begin, end))
    }

    fn settle(&mut self, clients: &Clients) {
        for place in std::mem::take(&mut self.found) {
            // It may have gone meanwhile.
            if let Some(held) = clients.get(place.address()) {
                self.clients.push((place, held.told(place.address())));
            }
        }
    }
}

impl Wanted {
    fn matches(&self, held: &Held, now: i64) -> bool {
        self.policy.as_deref().is_none_or(|policy| held.was_held_by(policy))
            && self.is_active.is_none_or(|is_active| (held.until() > now) == is_active)
            && self.users.is_none_or(|(least, most)| (least..=most).contains(&held.users()))
    }
}

/// Nothing in a prefix comes before this.
fn first(prefix: IpNet) -> IpNet {
    // Of one address the shorter prefixes come first.
    IpNet::new(prefix.network(), 0).unwrap_or(prefix)
}

/// Nothing in a prefix comes after this.
fn last(prefix: IpNet) -> IpNet {
    IpNet::from(prefix.broadcast())
}
