//! Samples of the traffic: taken by each worker with a few instructions per request, kept for a minute.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::{
    active_warnings::SAMPLES,
    floods::{FloodingClient, Floods},
};
use crate::telemetry::metrics::Http2Abuse;

/// Requests after which a new majority vote begins.
const VOTES: u32 = 64;

/// Maximum number of addresses whose requests are counted because they may have sent most of them.
const MAX_HEAVY_HITTERS: usize = 32;

/// A peer whose forwarding fields are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UntrustedPeer {
    /// It is not in `trusted_proxies`.
    Address(IpAddr),
    /// A load balancer whose PROXY header names no client.
    Balancer(IpAddr),
}

/// Counts of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TrafficSample {
    pub(super) requests: u64,
    /// Requests from private addresses.
    pub(super) private_clients: u64,
    /// Requests with a forwarding field from an untrusted peer.
    pub(super) untrusted_forwarding: u64,
    /// One such peer.
    pub(super) untrusted_peer: Option<UntrustedPeer>,
    /// Addresses that may have sent most requests, each with a lower bound of their number.
    pub(super) heavy_hitters: HashMap<IpAddr, u64>,
    /// Connections closed because of floods.
    pub(super) floods: Floods,
}

impl TrafficSample {
    pub(super) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.private_clients += other.private_clients;
        self.untrusted_forwarding += other.untrusted_forwarding;
        self.untrusted_peer = other.untrusted_peer.or(self.untrusted_peer);
        for (address, requests) in &other.heavy_hitters {
            self.add_heavy_hitter(*address, *requests);
        }
        self.floods.add(&other.floods);
    }

    pub(super) fn add_heavy_hitter(&mut self, address: IpAddr, requests: u64) {
        if self.heavy_hitters.len() < MAX_HEAVY_HITTERS || self.heavy_hitters.contains_key(&address) {
            *self.heavy_hitters.entry(address).or_default() += requests;
        }
    }

    /// The address with most requests, and their number.
    pub(super) fn heaviest_client(&self) -> Option<(IpAddr, u64)> {
        let most = self.heavy_hitters.iter().max_by_key(|(address, requests)| (**requests, **address));
        most.map(|(address, requests)| (*address, *requests))
    }
}

/// The samples of the last minute.
#[derive(Debug, Default)]
pub(super) struct TrafficWindow(VecDeque<TrafficSample>);

impl TrafficWindow {
    /// Adds the newest sample and drops samples older than a minute.
    pub(super) fn push(&mut self, sample: TrafficSample) {
        self.0.push_back(sample);
        while self.0.len() > SAMPLES as usize {
            self.0.pop_front();
        }
    }

    pub(super) fn total(&self) -> TrafficSample {
        let mut total = TrafficSample::default();
        for sample in &self.0 {
            total.add(sample);
        }
        total
    }
}

/// Counts the requests of one worker, on its thread.
#[derive(Debug)]
pub struct TrafficSampler {
    /// Number of bits of an IPv6 address that identify a client, as configured; each flush updates `mask`.
    ipv6_prefix: Arc<AtomicU8>,
    mask: Cell<u128>,
    sample: RefCell<TrafficSample>,
    vote: Cell<MajorityVote>,
    /// The winner of the last vote, and the number of its requests since the last flush.
    heavy_hitter: Cell<(Option<IpAddr>, u64)>,
    flushed: Arc<Mutex<TrafficSample>>,
}

/// Boyer and Moore's majority vote: an address with more than half of the votes leads at the end.
#[derive(Debug, Clone, Copy, Default)]
struct MajorityVote {
    leader: Option<IpAddr>,
    lead: u32,
    votes: u32,
}

impl TrafficSampler {
    pub(super) fn new(ipv6_prefix: Arc<AtomicU8>, flushed: Arc<Mutex<TrafficSample>>) -> Self {
        Self {
            mask: Cell::new(mask(ipv6_prefix.load(Relaxed))),
            ipv6_prefix,
            sample: RefCell::default(),
            vote: Cell::default(),
            heavy_hitter: Cell::default(),
            flushed,
        }
    }

    /// Counts a request of `client`. `untrusted_peer`: the peer, if it is untrusted but sent a forwarding field.
    pub fn record(&self, client: IpAddr, untrusted_peer: Option<UntrustedPeer>) {
        let client = match client {
            IpAddr::V4(_) => client,
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & self.mask.get())),
        };
        let mut sample = self.sample.borrow_mut();
        sample.requests += 1;
        sample.private_clients += u64::from(is_private(client));
        if untrusted_peer.is_some() {
            sample.untrusted_forwarding += 1;
            sample.untrusted_peer = untrusted_peer;
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
        let (heavy_hitter, requests) = self.heavy_hitter.get();
        if heavy_hitter == Some(client) {
            self.heavy_hitter.set((heavy_hitter, requests + 1));
        }
    }

    /// Counts a connection of `client` that was closed because of a flood.
    pub fn record_flood(&self, client: FloodingClient, abuse: Http2Abuse) {
        self.sample.borrow_mut().floods.record(client, abuse);
    }

    /// Passes the counts to the thread. To be called a few times per second.
    pub fn flush(&self) {
        let (heavy_hitter, requests) = self.heavy_hitter.get();
        let mut sample = self.sample.borrow_mut();
        if let Some(address) = heavy_hitter.filter(|_| requests > 0) {
            sample.add_heavy_hitter(address, requests);
        }
        let vote = self.vote.get();
        let heavy_hitter = vote.leader.or(heavy_hitter);
        self.heavy_hitter.set((heavy_hitter, 0));
        if vote.votes >= VOTES {
            self.vote.set(MajorityVote::default());
        }
        if sample.requests > 0 || !sample.floods.is_empty() {
            self.flushed.lock().add(&sample);
            *sample = TrafficSample::default();
        }
        self.mask.set(mask(self.ipv6_prefix.load(Relaxed)));
    }
}

fn mask(ipv6_prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(ipv6_prefix.min(128))).unwrap_or(0)
}

/// Whether an address is private, link-local or loopback (RFC 1918, RFC 4193, RFC 3927, RFC 4291). Of 127.0.0.0/8 only
/// 127.0.0.1 counts, which local proxies have; the others serve to try out clients.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            address.is_private() || address == Ipv4Addr::LOCALHOST || address.is_link_local()
        }
        IpAddr::V6(address) => {
            // The mask may have cleared the last bit of a loopback address.
            let is_own = address.is_loopback() || address.is_unspecified();
            is_own || address.is_unique_local() || address.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_older_than_a_minute_are_dropped() {
        let mut window = TrafficWindow::default();
        for _ in 0..SAMPLES {
            window.push(TrafficSample { requests: 2, ..TrafficSample::default() });
        }
        assert_eq!(window.total().requests, 120);
        window.push(TrafficSample::default());
        assert_eq!(window.total().requests, 118);
    }

    fn sampler() -> (TrafficSampler, Arc<Mutex<TrafficSample>>) {
        let sample = Arc::<Mutex<TrafficSample>>::default();
        (TrafficSampler::new(Arc::new(64.into()), Arc::clone(&sample)), sample)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_client_with_most_requests_is_found_and_counted() {
        let (sampler, sample) = sampler();
        for tick in 0..100_u8 {
            for n in 0..10_u8 {
                let other = IpAddr::from([198, 51, tick, n]);
                sampler.record(if n % 5 < 4 { address("203.0.113.7") } else { other }, None);
            }
            sampler.flush();
        }
        let sample = sample.lock();
        assert_eq!((sample.requests, sample.private_clients, sample.untrusted_forwarding), (1_000, 0, 0));
        let (heaviest, requests) = sample.heaviest_client().unwrap();
        // The first tick only finds the address.
        assert_eq!((heaviest, requests), (address("203.0.113.7"), 792));
    }

    #[test]
    fn without_a_majority_no_client_is_found() {
        let (sampler, sample) = sampler();
        for n in 0..10_000_u32 {
            sampler.record(IpAddr::from((n % 100).to_be_bytes()), None);
            if n % 50 == 0 {
                sampler.flush();
            }
        }
        let most = sample.lock().heaviest_client().map_or(0, |(_, requests)| requests);
        assert!(most < 1_000, "{most}");
    }

    #[test]
    fn addresses_of_one_prefix_are_one_client() {
        let (sampler, sample) = sampler();
        let peer = Some(UntrustedPeer::Address(address("10.0.0.1")));
        for n in 0..100_u16 {
            sampler.record(IpAddr::from([0x2001, 0xdb8, 1, 2, n, 0, 0, 1]), peer);
            sampler.flush();
        }
        let sample = sample.lock();
        assert_eq!(sample.heaviest_client(), Some((address("2001:db8:1:2::"), 99)));
        assert_eq!((sample.untrusted_forwarding, sample.untrusted_peer), (100, peer));
    }

    #[test]
    fn another_prefix_takes_effect_at_the_next_flush() {
        let (sampler, sample) = sampler();
        sampler.ipv6_prefix.store(48, Relaxed);
        sampler.flush();
        for n in 0..100_u16 {
            sampler.record(IpAddr::from([0x2001, 0xdb8, 1, n, 0, 0, 0, 1]), None);
            sampler.flush();
        }
        assert_eq!(sample.lock().heaviest_client(), Some((address("2001:db8:1::"), 99)));
    }

    #[test]
    fn addresses_outside_the_internet_are_private() {
        let (sampler, sample) = sampler();
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
            sampler.record(address(text), None);
        }
        for text in ["203.0.113.7", "172.32.0.1", "2001:db8::1", "100.64.0.1", "127.0.0.13"] {
            sampler.record(address(text), None);
        }
        sampler.flush();
        let sample = sample.lock();
        assert_eq!((sample.requests, sample.private_clients), (13, private.len() as u64));
    }
}
