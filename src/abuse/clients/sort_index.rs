//! The orders in which limited clients are listed.

use std::{collections::BTreeSet, ops::Bound};

use ipnet::IpNet;
use serde::Deserialize;
use utoipa::ToSchema;

use super::entry::ClientEntry;
use crate::memory_budget::heap;

/// The value by which addresses are sorted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sort {
    /// Most recently denied first.
    #[default]
    Last,
    /// Most recently listed first.
    First,
    /// Most denied first.
    Denied,
    /// Most users first.
    Users,
    Address,
}

impl Sort {
    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::First => "first",
            Self::Denied => "denied",
            Self::Users => "users",
            Self::Address => "address",
        }
    }

    /// The value to compare, the greatest first.
    pub(super) fn sort_key(self, entry: &ClientEntry) -> u64 {
        match self {
            Self::Last => u64::try_from(entry.last()).unwrap_or(0),
            Self::First => u64::try_from(entry.first()).unwrap_or(0),
            Self::Denied => entry.denied(),
            Self::Users => entry.users(),
            Self::Address => 0,
        }
    }
}

/// The position of an address in a list, in ascending order. In bytes, because there are four million of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientPosition([u8; 8], IpNet);

impl ClientPosition {
    /// The position of an address with this sort key.
    pub fn new(number: u64, address: IpNet) -> Self {
        Self((!number).to_be_bytes(), address)
    }

    /// The address's sort key.
    pub fn sort_key(self) -> u64 {
        !u64::from_be_bytes(self.0)
    }

    /// The address at this position.
    pub fn address(self) -> IpNet {
        self.1
    }
}

/// All addresses in each of the orders, except by address.
#[derive(Debug, Default)]
pub(super) struct SortIndex([BTreeSet<ClientPosition>; 4]);

/// The sort keys of an address, in the order of [`SortIndex`].
pub(super) type SortKeys = [u64; 4];

const SORTS: [Sort; 4] = [Sort::Last, Sort::First, Sort::Denied, Sort::Users];

pub(super) fn sort_keys(entry: &ClientEntry) -> SortKeys {
    SORTS.map(|sort| sort.sort_key(entry))
}

impl SortIndex {
    /// Bytes of an address in all orders.
    pub(super) const ENTRY_BYTES: usize = SORTS.len() * heap::tree_entry(size_of::<ClientPosition>());

    pub(super) fn insert(&mut self, address: IpNet, sort_keys: SortKeys) {
        for (order, number) in self.0.iter_mut().zip(sort_keys) {
            order.insert(ClientPosition::new(number, address));
        }
    }

    pub(super) fn remove(&mut self, address: IpNet, sort_keys: SortKeys) {
        for (order, number) in self.0.iter_mut().zip(sort_keys) {
            order.remove(&ClientPosition::new(number, address));
        }
    }

    pub(super) fn replace(&mut self, address: IpNet, before: SortKeys, after: SortKeys) {
        for ((order, before), after) in self.0.iter_mut().zip(before).zip(after) {
            if before != after {
                order.remove(&ClientPosition::new(before, address));
                order.insert(ClientPosition::new(after, address));
            }
        }
    }

    /// The positions after one. Empty for [`Sort::Address`], which the table itself provides.
    pub(super) fn after(
        &self,
        sort: Sort,
        after: Option<ClientPosition>,
    ) -> impl Iterator<Item = ClientPosition> {
        let bounds = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let order = SORTS.iter().position(|&of| of == sort).and_then(|order| self.0.get(order));
        order.into_iter().flat_map(move |order| order.range(bounds).copied())
    }

    /// The address that was denied longest ago, among those sorted before `before`.
    pub(super) fn oldest(&self, before: Option<ClientPosition>) -> Option<ClientPosition> {
        let bounds = (Bound::Unbounded, before.map_or(Bound::Unbounded, Bound::Excluded));
        self.0[0].range(bounds).next_back().copied()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> [usize; 4] {
        [0, 1, 2, 3].map(|order: usize| self.0[order].len())
    }
}
