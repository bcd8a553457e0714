//! Which endpoint serves the next request.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use super::SharedUpstream;
use crate::config::model::Balance;

/// How long an endpoint that could not be reached is ejected while there are others. An endpoint that
/// refuses connections has no requests in flight, and would otherwise look like the least loaded one.
const EJECTION_TIME: Duration = Duration::from_secs(1);

/// Chooses among the endpoints of one upstream. Each worker has its own.
#[derive(Debug)]
pub(super) struct Balancer {
    /// By endpoint: until when it is ejected.
    ejected_until: Vec<Cell<Option<Instant>>>,
    /// The position of round robin, and where the scan for the least loaded endpoint begins, so that
    /// equally loaded endpoints take turns.
    next: Cell<usize>,
    /// Endpoint indexes, each repeated by its weight and spread evenly.
    turns: Vec<usize>,
}

impl Balancer {
    /// Workers start at different `offset`s, so that they don't all begin with the first endpoint.
    pub(super) fn new(weights: &[u32], offset: usize) -> Self {
        let turns = smooth_turns(weights);
        let ejected_until = weights.iter().map(|_| Cell::new(None)).collect();
        Self { ejected_until, next: Cell::new(offset % turns.len().max(1)), turns }
    }

    /// Ejects an endpoint that could not be reached.
    pub(super) fn mark_unreachable(&self, endpoint: usize, now: Instant) {
        self.ejected_until[endpoint].set(Some(now + EJECTION_TIME));
    }

    /// Ends the ejection of an endpoint that was reached.
    pub(super) fn mark_reachable(&self, endpoint: usize) {
        self.ejected_until[endpoint].set(None);
    }

    /// The endpoint for the next request: neither `avoid` nor an ejected one, as long as there is another.
    pub(super) fn pick(&self, shared: &SharedUpstream, avoid: Option<usize>, now: Instant) -> usize {
        let endpoints = shared.config.endpoints.len();
        if endpoints == 1 {
            return 0;
        }
        let is_ejected =
            |endpoint: usize| self.ejected_until[endpoint].get().is_some_and(|until| now < until);
        let may_serve = |other: usize| Some(other) != avoid && !is_ejected(other);
        // An endpoint that accepted a connection and failed a request is better than ejected ones.
        let avoid = avoid.filter(|&endpoint| is_ejected(endpoint) || (0..endpoints).any(may_serve));
        let usable = |endpoint: &usize| Some(*endpoint) != avoid && !is_ejected(*endpoint);
        // Where all are ejected, any but the one that failed just now may be back.
        let any = !(0..endpoints).any(|endpoint| usable(&endpoint));
        let may = |endpoint: &usize| if any { Some(*endpoint) != avoid } else { usable(endpoint) };
        match shared.config.balance {
            Balance::RoundRobin => self.turn(may),
            Balance::LeastRequest => {
                let first = self.turn(may);
                (0..endpoints)
                    .map(|step| (first + step) % endpoints)
                    .filter(may)
                    .min_by(|&a, &b| load(shared, a).total_cmp(&load(shared, b)))
                    .unwrap_or(first)
            }
        }
    }

    /// The next endpoint in turn for which `may` is true.
    fn turn(&self, may: impl Fn(&usize) -> bool) -> usize {
        loop {
            let at = self.next.get();
            self.next.set((at + 1) % self.turns.len());
            if may(&self.turns[at]) {
                return self.turns[at];
            }
        }
    }
}

/// Requests in flight per unit of weight, this one included.
fn load(shared: &SharedUpstream, endpoint: usize) -> f64 {
    let weight = f64::from(shared.config.endpoints[endpoint].weight);
    (shared.in_flight(endpoint) as f64 + 1.0) / weight
}

/// Smooth weighted round robin, as nginx does it: each turn every endpoint gains its weight, the one
/// with the most is chosen and pays the total. `[2, 1]` gives 0 1 0, not 0 0 1.
fn smooth_turns(weights: &[u32]) -> Vec<usize> {
    let divisor = weights.iter().copied().map(i64::from).fold(0, gcd).max(1);
    let weights: Vec<i64> = weights.iter().map(|&weight| i64::from(weight) / divisor).collect();
    let total: i64 = weights.iter().sum();
    let mut gained = vec![0; weights.len()];
    (0..total)
        .map(|_| {
            let mut richest = 0;
            for endpoint in 0..weights.len() {
                gained[endpoint] += weights[endpoint];
                if gained[endpoint] > gained[richest] {
                    richest = endpoint;
                }
            }
            gained[richest] -= total;
            richest
        })
        .collect()
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::config::model::{Endpoint, HostHeader, Protocol, Timeouts, Upstream};

    fn shared(weights: &[u32], balance: Balance) -> Arc<SharedUpstream> {
        let endpoint = |&weight| Endpoint {
            url: "http://127.0.0.1:1".parse().unwrap(),
            authority: "127.0.0.1:1".parse().unwrap(),
            port: 1,
            weight,
        };
        let second = Duration::from_secs(1);
        let config = Upstream {
            name: "u".into(),
            endpoints: weights.iter().map(endpoint).collect(),
            balance,
            tls: None,
            protocol: Protocol::H1,
            timeouts: Timeouts { connect: second, response: second, idle: second },
            health: None,
            outlier: None,
            max_connections: 1,
            max_connections_per_address: 1.0,
            request_buffering: 0,
            idle_connections: 1,
            host: HostHeader::Preserve,
        };
        SharedUpstream::new(config, None)
    }

    fn now() -> Instant {
        Instant::now()
    }

    #[test]
    fn failed_endpoints_are_ejected_while_there_are_others() {
        for balance in [Balance::RoundRobin, Balance::LeastRequest] {
            let shared = shared(&[1, 1, 1], balance);
            let balancer = Balancer::new(&[1, 1, 1], 0);
            let now = now();
            balancer.mark_unreachable(0, now);
            balancer.mark_unreachable(1, now);
            shared.request_started(2);
            assert!((0..6).all(|_| balancer.pick(&shared, None, now) == 2));
            balancer.mark_unreachable(2, now);
            assert_ne!(balancer.pick(&shared, Some(2), now), 2, "all are ejected: any other may be back");
            assert!((0..6).any(|_| balancer.pick(&shared, None, now + EJECTION_TIME) == 0));
            balancer.mark_reachable(1);
            assert_eq!(balancer.pick(&shared, None, now), 1);
        }
    }

    #[test]
    fn the_endpoint_to_avoid_serves_where_all_others_are_ejected() {
        for balance in [Balance::RoundRobin, Balance::LeastRequest] {
            let shared = shared(&[1, 1], balance);
            let balancer = Balancer::new(&[1, 1], 0);
            let now = now();
            balancer.mark_unreachable(1, now);
            assert!((0..4).all(|_| balancer.pick(&shared, Some(0), now) == 0));
            assert_eq!(balancer.pick(&shared, Some(0), now + EJECTION_TIME), 1);
        }
    }

    #[test]
    fn round_robin_follows_the_weights_smoothly() {
        let shared = shared(&[4, 2, 2], Balance::RoundRobin);
        let balancer = Balancer::new(&[4, 2, 2], 0);
        let picks: Vec<_> = (0..8).map(|_| balancer.pick(&shared, None, now())).collect();
        assert_eq!(picks, [0, 1, 2, 0, 0, 1, 2, 0]);
    }

    #[test]
    fn least_request_prefers_the_idle_and_takes_turns_among_equals() {
        let shared = shared(&[1, 1, 1], Balance::LeastRequest);
        let balancer = Balancer::new(&[1, 1, 1], 0);
        shared.request_started(1);
        let mut picks: Vec<_> = (0..6).map(|_| balancer.pick(&shared, None, now())).collect();
        assert!(!picks.contains(&1), "{picks:?}");
        picks.dedup();
        assert!(picks.len() > 2, "equals take turns: {picks:?}");
    }

    #[test]
    fn least_request_weighs() {
        let shared = shared(&[1, 3], Balance::LeastRequest);
        let balancer = Balancer::new(&[1, 3], 0);
        let held: Vec<_> = (0..8)
            .map(|_| {
                let endpoint = balancer.pick(&shared, None, now());
                shared.request_started(endpoint);
                endpoint
            })
            .collect();
        assert_eq!(held.iter().filter(|&&endpoint| endpoint == 1).count(), 6);
    }

    #[test]
    fn a_failed_endpoint_is_avoided_unless_it_is_the_only_one() {
        for balance in [Balance::RoundRobin, Balance::LeastRequest] {
            let two = shared(&[1, 1], balance);
            let balancer = Balancer::new(&[1, 1], 0);
            assert!((0..4).all(|_| balancer.pick(&two, Some(0), now()) == 1));
            let one = shared(&[1], balance);
            assert_eq!(Balancer::new(&[1], 0).pick(&one, Some(0), now()), 0);
        }
    }
}
