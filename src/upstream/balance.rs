//! Which host serves the next request.

use std::{
    cell::Cell,
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    affinity::{Affinity, AffinityHash},
    health::Eligible,
    hosts::UpstreamHost,
    rendezvous,
};
use crate::config::model::{Balance, Upstream};

/// The share of its requests that a host gets right after it has come back.
const FIRST_SHARE: f64 = 0.1;

/// The criteria for the host of a request, besides the health of all hosts.
#[derive(Debug, Clone, Copy)]
pub struct HostChoice<'a> {
    pub affinity: &'a Affinity,
    /// Hosts on which the request has failed, the last one last.
    pub tried: &'a [Arc<UpstreamHost>],
    /// How long the connection to the host may take to open.
    pub within: Duration,
}

/// The host that a key belongs to, and the one that serves it now.
#[derive(Debug, Clone)]
pub struct KeyOwner {
    pub of_key: Arc<UpstreamHost>,
    pub serving: Arc<UpstreamHost>,
    /// Why they differ: the end of a sentence that begins with `of_key`. `None`: they are the same.
    pub why_not_itself: Option<String>,
}

/// Chooses among the hosts of one upstream. Each worker has its own.
#[derive(Debug, Clone)]
pub(super) struct Balancer {
    balance: Balance,
    slow_start: Duration,
    hosts: Arc<[Arc<UpstreamHost>]>,
    /// By host: the weight gained over the turns so far.
    gained: Vec<Cell<f64>>,
    /// By host: the number of addresses of its endpoint. Empty unless requests are balanced by hash.
    addresses: Vec<usize>,
}

impl Balancer {
    /// Workers start at different `offset`s, so that they don't all begin with the first host.
    pub(super) fn new(hosts: Arc<[Arc<UpstreamHost>]>, upstream: &Upstream, offset: usize) -> Self {
        let gained = hosts.iter().map(|_| Cell::new(0.0)).collect();
        let addresses = match upstream.balance {
            Balance::Hash(_) => {
                let mut counts = HashMap::new();
                hosts.iter().for_each(|host| *counts.entry(host.endpoint_hash).or_insert(0) += 1);
                hosts.iter().map(|host| counts[&host.endpoint_hash]).collect()
            }
            Balance::LeastRequest | Balance::RoundRobin => Vec::new(),
        };
        let (balance, slow_start) = (upstream.balance.clone(), upstream.slow_start);
        let balancer = Self { balance, slow_start, hosts, gained, addresses };
        let now = Instant::now();
        for _ in 0..offset {
            balancer.turn(|_| true, now);
        }
        balancer
    }

    /// Picks the host for the next request, and returns its index: the host in the cookie, or else one according to
    /// `balance`. Always one of the [`Eligible`] hosts.
    pub(super) fn pick(&self, choice: &HostChoice<'_>, now: Instant) -> usize {
        let affinity = choice.affinity;
        let hosts = &*self.hosts;
        if hosts.len() == 1 {
            return 0;
        }
        let eligible = Eligible::new(hosts, choice.tried, now);
        let may = |host: &Arc<UpstreamHost>| eligible.admits(host);
        if affinity.host.is_some()
            && let Some(named) = hosts.iter().position(|host| Some(host.id) == affinity.host && may(host))
        {
            return named;
        }
        match &self.balance {
            Balance::RoundRobin => self.turn(may, now),
            Balance::LeastRequest => self.least_loaded(may, now),
            Balance::Hash(_) => self.owner(affinity.key, may, now),
        }
    }

    /// Smooth weighted round robin, as in nginx: in each turn every host for which `may` is true gains its weight, and
    /// the host with the most is picked and pays the total. `[2, 1]` gives 0 1 0, not 0 0 1.
    fn turn(&self, may: impl Fn(&Arc<UpstreamHost>) -> bool, now: Instant) -> usize {
        let (mut total, mut richest) = (0.0, None);
        for (at, host) in self.hosts.iter().enumerate().filter(|(_, host)| may(host)) {
            let weight = host.weight() * self.share(host, now);
            let gained = self.gained[at].get() + weight;
            self.gained[at].set(gained);
            total += weight;
            if richest.is_none_or(|richest: usize| gained > self.gained[richest].get()) {
                richest = Some(at);
            }
        }
        let Some(richest) = richest else { return 0 };
        self.gained[richest].set(self.gained[richest].get() - total);
        richest
    }

    /// The host with the fewest requests in flight per unit of weight. Equal hosts take turns, so that idle ones get
    /// requests by their weights.
    ///
    /// A host in slow start is picked at most in its turn: it has the fewest requests only because it gets few.
    fn least_loaded(&self, may: impl Fn(&Arc<UpstreamHost>) -> bool, now: Instant) -> usize {
        let hosts = &*self.hosts;
        let turn = self.turn(&may, now);
        let whole = match self.slow_start {
            Duration::ZERO => 0.0,
            _ => {
                hosts.iter().filter(|host| may(host)).fold(0.0, |most, host| self.share(host, now).max(most))
            }
        };
        let load = |at: usize| {
            hosts[at].state.in_flight() as f64 / (hosts[at].weight() * self.share(&hosts[at], now))
        };
        (0..hosts.len())
            .map(|step| (turn + step) % hosts.len())
            .filter(|&at| {
                may(&hosts[at]) && (at == turn || whole == 0.0 || self.share(&hosts[at], now) >= whole)
            })
            .min_by(|&one, &other| load(one).total_cmp(&load(other)))
            .unwrap_or(turn)
    }

    /// The host of a key: of the endpoints with a host for which `may` is true, the one with the highest score, and of
    /// its addresses the one with the highest. So a name that gets new addresses moves no key from another endpoint.
    fn owner(&self, key: AffinityHash, may: impl Fn(&Arc<UpstreamHost>) -> bool, now: Instant) -> usize {
        let mut highest = (0.0, 0.0);
        let mut owner = None;
        for (at, host) in self.hosts.iter().enumerate().filter(|(_, host)| may(host)) {
            let (weight, share) = (host.weight(), self.share(host, now));
            let scores = match self.addresses[at] {
                1 => (rendezvous::score(key.0, host.endpoint_hash, weight * share), 0.0),
                // The addresses share the weight of the endpoint.
                addresses => (
                    rendezvous::score(key.0, host.endpoint_hash, weight * addresses as f64),
                    rendezvous::score(key.0, host.id.0, share),
                ),
            };
            if owner.is_none() || scores > highest {
                (highest, owner) = (scores, Some(at));
            }
        }
        owner.unwrap_or_default()
    }

    /// The host of a key while all hosts are healthy, and none starts slowly.
    pub(super) fn owner_of_all(&self, key: AffinityHash) -> Option<&Arc<UpstreamHost>> {
        let whole = Self { slow_start: Duration::ZERO, ..self.clone() };
        self.hosts.get(whole.owner(key, |_| true, Instant::now()))
    }

    /// The share of its weight that counts: after it has come back, a host gets its requests gradually.
    fn share(&self, host: &UpstreamHost, now: Instant) -> f64 {
        if self.slow_start.is_zero() {
            return 1.0;
        }
        host.state
            .in_use_since()
            .map_or(1.0, |since| grown_share(now.saturating_duration_since(since), self.slow_start))
    }
}

/// The share of a host that came back this long ago.
fn grown_share(back: Duration, slow_start: Duration) -> f64 {
    let grown = back.as_secs_f64() / slow_start.as_secs_f64();
    (FIRST_SHARE + (1.0 - FIRST_SHARE) * grown).min(1.0)
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::{
        config::model::{KeyPart, KeyRecipe},
        upstream::{host_state::UNREACHABLE_TIME, hosts::tests::hosts},
    };

    const SLOW_START: Duration = Duration::from_secs(10);

    /// The balancer of a worker, for hosts with these weights.
    fn worker(weights: &[u32], balance: &Balance, slow_start: Duration, offset: usize) -> Balancer {
        let mut upstream = crate::telemetry::testing::config().upstreams.remove(0);
        (upstream.balance, upstream.slow_start) = (balance.clone(), slow_start);
        Balancer::new(hosts(weights), &upstream, offset)
    }

    fn balancer(weights: &[u32], balance: &Balance) -> Balancer {
        worker(weights, balance, Duration::ZERO, 0)
    }

    fn hash() -> Balance {
        Balance::Hash(KeyRecipe(vec![KeyPart::Ip]))
    }

    impl Balancer {
        /// Picks for a request without a tie.
        fn any(&self, tried: Option<&Arc<UpstreamHost>>, now: Instant) -> usize {
            self.tied(&Affinity::default(), tried, now)
        }

        /// Picks for a request with a tie that has failed on one host.
        fn tied(&self, affinity: &Affinity, tried: Option<&Arc<UpstreamHost>>, now: Instant) -> usize {
            let tried = tried.map(slice::from_ref).unwrap_or_default();
            self.pick(&HostChoice { affinity, tried, within: Duration::ZERO }, now)
        }

        fn of_key(&self, key: &str, now: Instant) -> usize {
            self.tied(&Affinity { key: AffinityHash::new(key), host: None }, None, now)
        }

        /// The number of 1000 requests that each host gets at this time.
        fn counts(&self, now: Instant) -> Vec<usize> {
            let mut counts = vec![0; self.hosts.len()];
            (0..1000).for_each(|_| counts[self.any(None, now)] += 1);
            counts
        }
    }

    fn eject(balancer: &Balancer, host: usize, now: Instant) {
        balancer.hosts[host].state.mark_unreachable("refused".into(), now);
    }

    fn now() -> Instant {
        Instant::now()
    }

    #[test]
    fn failed_hosts_are_ejected_while_there_are_others() {
        for balance in [Balance::RoundRobin, Balance::LeastRequest] {
            let balancer = balancer(&[1, 1, 1], &balance);
            let now = now();
            eject(&balancer, 0, now);
            eject(&balancer, 1, now);
            balancer.hosts[2].state.request_started();
            assert!((0..6).all(|_| balancer.any(None, now) == 2));
            eject(&balancer, 2, now);
            let failed = &balancer.hosts[2];
            assert_ne!(balancer.any(Some(failed), now), 2, "all are ejected: any other may be back");
            assert!((0..6).any(|_| balancer.any(None, now + UNREACHABLE_TIME) == 0));
            balancer.hosts[1].state.connected();
            assert_eq!(balancer.any(None, now), 1);
        }
    }

    #[test]
    fn the_host_to_avoid_serves_where_all_others_are_ejected() {
        for balance in [Balance::RoundRobin, Balance::LeastRequest] {
            let balancer = balancer(&[1, 1], &balance);
            let now = now();
            eject(&balancer, 1, now);
            let failed = &balancer.hosts[0];
            assert!((0..4).all(|_| balancer.any(Some(failed), now) == 0));
            assert_eq!(balancer.any(Some(failed), now + UNREACHABLE_TIME), 1);
        }
    }

    #[test]
    fn round_robin_follows_the_weights_smoothly() {
        let balancer = balancer(&[4, 2, 2], &Balance::RoundRobin);
        let picks: Vec<_> = (0..8).map(|_| balancer.any(None, now())).collect();
        assert_eq!(picks, [0, 1, 2, 0, 0, 1, 2, 0]);
    }

    #[test]
    fn workers_begin_with_different_hosts() {
        let first =
            |offset| worker(&[1, 1, 1], &Balance::LeastRequest, Duration::ZERO, offset).any(None, now());
        assert_eq!([0, 1, 2, 3].map(first), [0, 1, 2, 0]);
    }

    #[test]
    fn least_request_prefers_the_idle_and_takes_turns_among_equals() {
        let balancer = balancer(&[1, 1, 1], &Balance::LeastRequest);
        balancer.hosts[1].state.request_started();
        let mut picks: Vec<_> = (0..6).map(|_| balancer.any(None, now())).collect();
        assert!(!picks.contains(&1), "{picks:?}");
        picks.dedup();
        assert!(picks.len() > 2, "equals take turns: {picks:?}");
    }

    #[test]
    fn least_request_weighs() {
        let balancer = balancer(&[1, 3], &Balance::LeastRequest);
        let held: Vec<_> = (0..8)
            .map(|_| {
                let host = balancer.any(None, now());
                balancer.hosts[host].state.request_started();
                host
            })
            .collect();
        assert_eq!(held.iter().filter(|&&host| host == 1).count(), 6);
    }

    #[test]
    fn a_failed_host_is_avoided_unless_it_is_the_only_one() {
        for balance in [Balance::RoundRobin, Balance::LeastRequest] {
            let two = balancer(&[1, 1], &balance);
            assert!((0..4).all(|_| two.any(Some(&two.hosts[0]), now()) == 1));
            let one = balancer(&[1], &balance);
            assert_eq!(one.any(Some(&one.hosts[0]), now()), 0);
        }
    }

    #[test]
    fn idle_hosts_get_requests_by_their_weights() {
        for balance in [Balance::RoundRobin, Balance::LeastRequest] {
            assert_eq!(balancer(&[3, 1, 1], &balance).counts(now()), [600, 200, 200]);
        }
    }

    #[test]
    fn the_share_of_a_host_that_comes_back_grows_to_its_weight() {
        for balance in [Balance::RoundRobin, Balance::LeastRequest] {
            let balancer = worker(&[1, 1, 2], &balance, SLOW_START, 0);
            let back = now();
            assert_eq!(balancer.counts(back), [250, 250, 500], "those of the start are in use at once");
            balancer.hosts[2].state.came_back(back);
            // 0.1, 0.55 and all of its weight.
            for (after, share) in [(0, 0.2 / 2.2), (5, 1.1 / 3.1), (10, 0.5), (3600, 0.5)] {
                let counts = balancer.counts(back + Duration::from_secs(after));
                let expected = share * 1000.0;
                assert!(
                    (counts[2] as f64 - expected).abs() <= 5.0,
                    "{balance:?}: {counts:?} and not {expected}"
                );
                assert!(counts[0].abs_diff(counts[1]) <= 5, "{counts:?}");
            }
        }
    }

    #[test]
    fn hosts_that_come_back_together_share_evenly() {
        for balance in [Balance::RoundRobin, Balance::LeastRequest] {
            let balancer = worker(&[1, 1], &balance, SLOW_START, 0);
            let back = now();
            balancer.hosts.iter().for_each(|host| host.state.came_back(back));
            assert_eq!(balancer.counts(back), [500, 500]);
            eject(&balancer, 0, back);
            assert_eq!(balancer.counts(back), [0, 1000]);
        }
    }

    #[test]
    fn a_host_in_slow_start_gets_no_more_because_the_others_are_busy() {
        let balancer = worker(&[1, 1], &Balance::LeastRequest, SLOW_START, 0);
        let back = now();
        balancer.hosts[1].state.came_back(back);
        (0..5).for_each(|_| balancer.hosts[0].state.request_started());
        let counts = balancer.counts(back);
        assert!((85..=95).contains(&counts[1]), "{counts:?}");
        balancer.hosts[1].state.request_started();
        assert_eq!(balancer.counts(back)[1], 0, "one for a tenth is more than five");
    }

    #[test]
    fn a_key_goes_where_it_went_until_its_host_is_gone() {
        let balancer = balancer(&[1, 1, 2, 1], &hash());
        let now = now();
        let keys: Vec<String> = (0..400).map(|nth| format!("user:{nth}")).collect();
        let before: Vec<usize> = keys.iter().map(|key| balancer.of_key(key, now)).collect();
        assert_eq!(keys.iter().map(|key| balancer.of_key(key, now)).collect::<Vec<_>>(), before);
        eject(&balancer, 2, now);
        let after: Vec<usize> = keys.iter().map(|key| balancer.of_key(key, now)).collect();
        for (before, after) in before.iter().zip(&after) {
            assert!(*after != 2 && (before == after || *before == 2), "{before} to {after}");
        }
        let second = now + UNREACHABLE_TIME;
        assert_eq!(keys.iter().map(|key| balancer.of_key(key, second)).collect::<Vec<_>>(), before);
    }

    #[test]
    fn a_host_that_comes_back_takes_its_keys_little_by_little_and_no_others() {
        let balancer = worker(&[1, 1], &hash(), SLOW_START, 0);
        let back = now();
        let keys: Vec<String> = (0..1000).map(|nth| format!("user:{nth}")).collect();
        let owners = |now| keys.iter().map(|key| balancer.of_key(key, now)).collect::<Vec<usize>>();
        let whole = owners(back);
        balancer.hosts[1].state.came_back(back);
        let mut last = 0;
        for (after, share) in [(0, 0.1 / 1.1), (5, 0.55 / 1.55), (10, 0.5)] {
            let owners = owners(back + Duration::from_secs(after));
            let own = owners.iter().filter(|&&owner| owner == 1).count();
            assert!(
                (own as f64 - share * 1000.0).abs() <= 60.0 && own > last,
                "{own} of 1000 after {after}s"
            );
            assert!(owners.iter().zip(&whole).all(|(now, whole)| now == whole || *now == 0));
            last = own;
        }
    }

    #[test]
    fn the_host_that_a_cookie_names_is_picked_while_it_may_serve() {
        for balance in [Balance::RoundRobin, Balance::LeastRequest, hash()] {
            let balancer = balancer(&[1, 1, 1], &balance);
            let now = now();
            let named = Affinity { key: AffinityHash::default(), host: Some(balancer.hosts[1].id) };
            assert!((0..6).all(|_| balancer.tied(&named, None, now) == 1));
            let failed = &balancer.hosts[1];
            assert!((0..6).all(|_| balancer.tied(&named, Some(failed), now) != 1));
            eject(&balancer, 1, now);
            assert!((0..6).all(|_| balancer.tied(&named, None, now) != 1));
            assert_eq!(balancer.tied(&named, None, now + UNREACHABLE_TIME), 1);
            let unknown = Affinity { host: crate::upstream::HostId::read(b"0000000000000007"), ..named };
            assert!(balancer.tied(&unknown, None, now) < 3);
        }
    }
}
