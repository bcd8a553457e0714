//! Bounds the requests that wait for a fetch, and the requests whose tokens it would decide about: by client, and in
//! total.

use std::{collections::HashMap, net::IpAddr};

use parking_lot::Mutex;

/// The most requests of one client address that wait at a time.
const MAX_OF_ADDRESS: usize = 256;
/// The most requests that wait at a time.
const MAX_IN_TOTAL: usize = 4_096;

/// Counts the waiting requests.
#[derive(Default)]
pub(super) struct WaitingRequests(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    by_address: HashMap<IpAddr, usize>,
    total: usize,
    /// The unjudged tokens of each client since the last fetch.
    excused: HashMap<IpAddr, usize>,
}

/// A request that waits, until this is dropped.
pub(super) struct WaitingRequest<'a> {
    requests: &'a WaitingRequests,
    address: IpAddr,
}

impl WaitingRequests {
    /// Counts a request of `address`. `None`: too many wait already.
    pub(super) fn enter(&self, address: IpAddr) -> Option<WaitingRequest<'_>> {
        let mut counts = self.0.lock();
        let of_address = counts.by_address.get(&address).copied().unwrap_or(0);
        if counts.total >= MAX_IN_TOTAL || of_address >= MAX_OF_ADDRESS {
            return None;
        }
        counts.total += 1;
        counts.by_address.insert(address, of_address + 1);
        Some(WaitingRequest { requests: self, address })
    }

    /// Counts a token of `address` that nobody could judge. Returns whether it is one of the first, which count for
    /// nothing else.
    pub(super) fn excuse(&self, address: IpAddr) -> bool {
        let excused = &mut self.0.lock().excused;
        if excused.len() >= MAX_IN_TOTAL && !excused.contains_key(&address) {
            return false;
        }
        let count = excused.entry(address).or_default();
        *count += 1;
        *count <= MAX_OF_ADDRESS
    }

    /// A fetch has ended: it decides about the tokens that arrived before it began.
    pub(super) fn forget_excused(&self) {
        self.0.lock().excused.clear();
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        let mut counts = self.requests.0.lock();
        counts.total -= 1;
        if let Some(of_address) = counts.by_address.get_mut(&self.address) {
            *of_address -= 1;
            if *of_address == 0 {
                counts.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn so_many_tokens_of_a_client_are_excused_until_a_fetch_ends() {
        let requests = WaitingRequests::default();
        let address = |number: u32| IpAddr::V4(Ipv4Addr::from(number));
        let excused = |number| (0..2 * MAX_OF_ADDRESS).filter(|_| requests.excuse(address(number))).count();
        assert_eq!([excused(1), excused(1), excused(2)], [MAX_OF_ADDRESS, 0, MAX_OF_ADDRESS]);
        let others = (3..2 * MAX_IN_TOTAL as u32).filter(|number| requests.excuse(address(*number))).count();
        assert_eq!(others, MAX_IN_TOTAL - 2, "so many addresses");
        requests.forget_excused();
        assert_eq!(excused(1), MAX_OF_ADDRESS);
    }

    #[test]
    fn no_client_waits_with_more_requests_than_it_may_and_all_together_neither() {
        let requests = WaitingRequests::default();
        let address = |number: u32| IpAddr::V4(Ipv4Addr::from(number));
        let mut waiting: Vec<_> = (0..MAX_OF_ADDRESS).map_while(|_| requests.enter(address(1))).collect();
        assert_eq!(waiting.len(), MAX_OF_ADDRESS);
        assert!(requests.enter(address(1)).is_none());
        waiting.pop();
        assert!(requests.enter(address(1)).is_some(), "one has ended");
        waiting.extend((2..).map_while(|number| requests.enter(address(number))));
        assert_eq!(waiting.len(), MAX_IN_TOTAL);
        assert!(requests.enter(address(1)).is_none());
        waiting.clear();
        let counts = requests.0.lock();
        assert_eq!((counts.total, counts.by_address.len()), (0, 0), "nothing is remembered");
    }
}
