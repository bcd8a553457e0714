//! What was counted of requests in some time.

use std::{collections::HashMap, net::IpAddr};

/// Addresses that may have most of the requests, of which it is counted how many they have.
const SUSPECTS: usize = 32;

/// Counts of requests. Of nothing, nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) requests: u64,
    /// From addresses that no one has on the internet.
    pub(super) private: u64,
    /// With a field that says who the client is, from a peer that is not trusted.
    pub(super) claims: u64,
    /// One such peer.
    pub(super) claimant: Option<IpAddr>,
    /// Requests of those that may have most of them: at least so many.
    pub(super) suspects: HashMap<IpAddr, u64>,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.private += other.private;
        self.claims += other.claims;
        self.claimant = other.claimant.or(self.claimant);
        for (address, requests) in &other.suspects {
            self.suspect(*address, *requests);
        }
    }

    pub(super) fn suspect(&mut self, address: IpAddr, requests: u64) {
        if self.suspects.len() < SUSPECTS || self.suspects.contains_key(&address) {
            *self.suspects.entry(address).or_default() += requests;
        }
    }

    /// Whoever has most of those.
    pub(super) fn busiest(&self) -> Option<(IpAddr, u64)> {
        let most = self.suspects.iter().max_by_key(|(address, requests)| (**requests, **address));
        most.map(|(address, requests)| (*address, *requests))
    }
}
