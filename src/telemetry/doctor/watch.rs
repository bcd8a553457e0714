//! A worker's end: a few instructions a request.

use std::{
    cell::{Cell, RefCell},
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::tally::Tally;

/// Votes after which a new vote begins.
const VOTES: u32 = 64;

/// Counts the requests of one worker. Belongs to its thread.
#[derive(Debug)]
pub struct Watch {
    /// How much of an IPv6 address identifies a client, as it is configured, and the mask of it since the last hand-over.
    ipv6_prefix: Arc<AtomicU8>,
    mask: Cell<u128>,
    tally: RefCell<Tally>,
    vote: Cell<Vote>,
    /// Whom the last vote was for, and how many requests were his since.
    suspect: Cell<(Option<IpAddr>, u64)>,
    handed_over: Arc<Mutex<Tally>>,
}

/// Boyer and Moore's majority vote: if one has more than half of the votes, he leads at the end.
#[derive(Debug, Clone, Copy, Default)]
struct Vote {
    leader: Option<IpAddr>,
    lead: u32,
    votes: u32,
}

impl Watch {
    pub(super) fn new(ipv6_prefix: Arc<AtomicU8>, handed_over: Arc<Mutex<Tally>>) -> Self {
        Self {
            mask: Cell::new(mask(ipv6_prefix.load(Relaxed))),
            ipv6_prefix,
            tally: RefCell::default(),
            vote: Cell::default(),
            suspect: Cell::default(),
            handed_over,
        }
    }

    /// A request from `client` has come. `claimant`: the peer, where it is not trusted and says all the same on whose
    /// behalf it asks.
    pub fn request(&self, client: IpAddr, claimant: Option<IpAddr>) {
        let client = match client {
            IpAddr::V4(_) => client,
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & self.mask.get())),
        };
        let mut tally = self.tally.borrow_mut();
        tally.requests += 1;
        tally.private += u64::from(is_private(client));
        if claimant.is_some() {
            tally.claims += 1;
            tally.claimant = claimant;
        }
        let mut vote = self.vote.get();
        vote.votes += 1;
        if vote.leader == Some(client) {
            vote.lead += 1;
        } else if vote.lead == 0 {
            (vote.leader, vote.lead) = (Some(client), 1);
        } else {
            vote.lead -= 1;
        }
        self.vote.set(vote);
        let (suspect, requests) = self.suspect.get();
        if suspect == Some(client) {
            self.suspect.set((suspect, requests + 1));
        }
    }

    /// Hands over what was counted. Called a few times a second.
    pub fn flush(&self) {
        let (suspect, requests) = self.suspect.get();
        let mut tally = self.tally.borrow_mut();
        if let Some(address) = suspect.filter(|_| requests > 0) {
            tally.suspect(address, requests);
        }
        let vote = self.vote.get();
        let suspect = vote.leader.or(suspect);
        self.suspect.set((suspect, 0));
        if vote.votes >= VOTES {
            self.vote.set(Vote::default());
        }
        if tally.requests > 0 {
            self.handed_over.lock().add(&tally);
            *tally = Tally::default();
        }
        self.mask.set(mask(self.ipv6_prefix.load(Relaxed)));
    }
}

fn mask(ipv6_prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(ipv6_prefix.min(128))).unwrap_or(0)
}

/// Of one's own network, or machine (RFC 1918, RFC 4193, RFC 3927, RFC 4291).
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private() || address.is_loopback() || address.is_link_local(),
        IpAddr::V6(address) => {
            // A loopback address may have lost its last bit to the mask.
            let is_own = address.is_loopback() || address.is_unspecified();
            is_own || address.is_unique_local() || address.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> (Watch, Arc<Mutex<Tally>>) {
        let tally = Arc::<Mutex<Tally>>::default();
        (Watch::new(Arc::new(64.into()), Arc::clone(&tally)), tally)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn whoever_has_most_requests_is_found_and_counted() {
        let (watch, tally) = watch();
        for tick in 0..100_u8 {
            for n in 0..10_u8 {
                let other = IpAddr::from([198, 51, tick, n]);
                watch.request(if n % 5 < 4 { address("203.0.113.7") } else { other }, None);
            }
            watch.flush();
        }
        let tally = tally.lock();
        assert_eq!((tally.requests, tally.private, tally.claims), (1_000, 0, 0));
        let (busiest, requests) = tally.busiest().unwrap();
        // The first tick only finds him.
        assert_eq!((busiest, requests), (address("203.0.113.7"), 792));
    }

    #[test]
    fn where_nobody_has_most_nobody_seems_to() {
        let (watch, tally) = watch();
        for n in 0..10_000_u32 {
            watch.request(IpAddr::from((n % 100).to_be_bytes()), None);
            if n % 50 == 0 {
                watch.flush();
            }
        }
        let most = tally.lock().busiest().map_or(0, |(_, requests)| requests);
        assert!(most < 1_000, "{most}");
    }

    #[test]
    fn addresses_of_one_prefix_are_one_client() {
        let (watch, tally) = watch();
        for n in 0..100_u16 {
            watch.request(IpAddr::from([0x2001, 0xdb8, 1, 2, n, 0, 0, 1]), Some(address("10.0.0.1")));
            watch.flush();
        }
        let tally = tally.lock();
        assert_eq!(tally.busiest(), Some((address("2001:db8:1:2::"), 99)));
        assert_eq!((tally.claims, tally.claimant), (100, Some(address("10.0.0.1"))));
    }

    #[test]
    fn another_prefix_holds_from_the_next_hand_over_on() {
        let (watch, tally) = watch();
        watch.ipv6_prefix.store(48, Relaxed);
        watch.flush();
        for n in 0..100_u16 {
            watch.request(IpAddr::from([0x2001, 0xdb8, 1, n, 0, 0, 0, 1]), None);
            watch.flush();
        }
        assert_eq!(tally.lock().busiest(), Some((address("2001:db8:1::"), 99)));
    }

    #[test]
    fn what_no_one_has_on_the_internet_is_private() {
        let (watch, tally) = watch();
        let private = [
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "127.0.0.1",
            "169.254.1.1",
            "::1",
            "fd00::1",
            "fe80::1",
        ];
        for text in private {
            watch.request(address(text), None);
        }
        for text in ["203.0.113.7", "172.32.0.1", "2001:db8::1", "100.64.0.1"] {
            watch.request(address(text), None);
        }
        watch.flush();
        let tally = tally.lock();
        assert_eq!((tally.requests, tally.private), (12, private.len() as u64));
    }
}
