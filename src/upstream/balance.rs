//! Which host serves the next request.

use std::{cell::Cell, sync::Arc, time::Instant};

use super::{Host, health::Eligible};
use crate::config::model::Balance;

/// Chooses among the hosts of one upstream. Each worker has its own.
#[derive(Debug)]
pub(super) struct Balancer {
    balance: Balance,
    hosts: Arc<[Arc<Host>]>,
    /// By host: what it has gained over the turns so far.
    gained: Vec<Cell<f64>>,
}

impl Balancer {
    /// Workers start at different `offset`s, so that they don't all begin with the first host.
    pub(super) fn new(hosts: Arc<[Arc<Host>]>, balance: Balance, offset: usize) -> Self {
        let gained = hosts.iter().map(|_| Cell::new(0.0)).collect();
        let balancer = Self { balance, hosts, gained };
        for _ in 0..offset {
            balancer.turn(|_| true);
        }
        balancer
    }

    /// The host for the next request, by its place: one of the [`Eligible`] ones.
    pub(super) fn pick(&self, avoid: Option<&Host>, now: Instant) -> usize {
        let hosts = &*self.hosts;
        if hosts.len() == 1 {
            return 0;
        }
        let eligible = Eligible::new(hosts, avoid, now);
        let may = |host: &Arc<Host>| eligible.admits(host);
        let first = self.turn(may);
        match self.balance {
            Balance::RoundRobin => first,
            Balance::LeastRequest => (0..hosts.len())
                .map(|step| (first + step) % hosts.len())
                .filter(|&host| may(&hosts[host]))
                .min_by(|&a, &b| load(&hosts[a]).total_cmp(&load(&hosts[b])))
                .unwrap_or(first),
        }
    }

    /// Smooth weighted round robin, as nginx does it: each turn every host for which `may` is true gains its weight, the
    /// one with the most is chosen and pays the total. `[2, 1]` gives 0 1 0, not 0 0 1.
    fn turn(&self, may: impl Fn(&Arc<Host>) -> bool) -> usize {
        let (mut total, mut richest) = (0.0, None);
        for (at, host) in self.hosts.iter().enumerate().filter(|(_, host)| may(host)) {
            let weight = host.weight();
            let gained = self.gained[at].get() + weight;
            self.gained[at].set(gained);
            total += weight;
            if richest.is_none_or(|richest: usize| gained > self.gained[richest].get()) {
                richest = Some(at);
            }
        }
        let richest = richest.unwrap_or_default();
        self.gained[richest].set(self.gained[richest].get() - total);
        richest
    }
}

/// Requests in flight per unit of weight, this one included.
fn load(host: &Host) -> f64 {
    (host.state.in_flight() as f64 + 1.0) / host.weight()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::{host_state::UNREACHABLE_TIME, hosts::tests::hosts};

    fn balancer(weights: &[u32], balance: Balance) -> Balancer {
        Balancer::new(hosts(weights), balance, 0)
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
            let balancer = balancer(&[1, 1, 1], balance);
            let now = now();
            eject(&balancer, 0, now);
            eject(&balancer, 1, now);
            balancer.hosts[2].state.request_started();
            assert!((0..6).all(|_| balancer.pick(None, now) == 2));
            eject(&balancer, 2, now);
            let failed = &*balancer.hosts[2];
            assert_ne!(balancer.pick(Some(failed), now), 2, "all are ejected: any other may be back");
            assert!((0..6).any(|_| balancer.pick(None, now + UNREACHABLE_TIME) == 0));
            balancer.hosts[1].state.connected();
            assert_eq!(balancer.pick(None, now), 1);
        }
    }

    #[test]
    fn the_host_to_avoid_serves_where_all_others_are_ejected() {
        for balance in [Balance::RoundRobin, Balance::LeastRequest] {
            let balancer = balancer(&[1, 1], balance);
            let now = now();
            eject(&balancer, 1, now);
            let failed = &*balancer.hosts[0];
            assert!((0..4).all(|_| balancer.pick(Some(failed), now) == 0));
            assert_eq!(balancer.pick(Some(failed), now + UNREACHABLE_TIME), 1);
        }
    }

    #[test]
    fn round_robin_follows_the_weights_smoothly() {
        let balancer = balancer(&[4, 2, 2], Balance::RoundRobin);
        let picks: Vec<_> = (0..8).map(|_| balancer.pick(None, now())).collect();
        assert_eq!(picks, [0, 1, 2, 0, 0, 1, 2, 0]);
    }

    #[test]
    fn workers_begin_with_different_hosts() {
        let first =
            |offset| Balancer::new(hosts(&[1, 1, 1]), Balance::LeastRequest, offset).pick(None, now());
        assert_eq!([0, 1, 2, 3].map(first), [0, 1, 2, 0]);
    }

    #[test]
    fn least_request_prefers_the_idle_and_takes_turns_among_equals() {
        let balancer = balancer(&[1, 1, 1], Balance::LeastRequest);
        balancer.hosts[1].state.request_started();
        let mut picks: Vec<_> = (0..6).map(|_| balancer.pick(None, now())).collect();
        assert!(!picks.contains(&1), "{picks:?}");
        picks.dedup();
        assert!(picks.len() > 2, "equals take turns: {picks:?}");
    }

    #[test]
    fn least_request_weighs() {
        let balancer = balancer(&[1, 3], Balance::LeastRequest);
        let held: Vec<_> = (0..8)
            .map(|_| {
                let host = balancer.pick(None, now());
                balancer.hosts[host].state.request_started();
                host
            })
            .collect();
        assert_eq!(held.iter().filter(|&&host| host == 1).count(), 6);
    }

    #[test]
    fn a_failed_host_is_avoided_unless_it_is_the_only_one() {
        for balance in [Balance::RoundRobin, Balance::LeastRequest] {
            let two = balancer(&[1, 1], balance);
            assert!((0..4).all(|_| two.pick(Some(&two.hosts[0]), now()) == 1));
            let one = balancer(&[1], balance);
            assert_eq!(one.pick(Some(&one.hosts[0]), now()), 0);
        }
    }
}
