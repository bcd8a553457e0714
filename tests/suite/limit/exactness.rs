//! Exactly the limit passes, however many ask at once: 64 clients on two workers, or on two instances that share
//! a Redis.

use std::sync::{
    Barrier,
    atomic::{AtomicUsize, Ordering},
};

use crate::harness::{Client, Config, Deployment, Origin, Reply, Tollgate, Topology, on_each_topology};

on_each_topology!(
    slices_admit_the_limit_at_most_and_a_slice_an_instance_less,
    as_many_different_users_as_the_limit_pass_at_all_instances_together,
);

const CLIENTS: usize = 64;
/// Requests of each client a round.
const EACH: usize = 2;

/// The instances that clients are spread over.
struct Site {
    tollgates: Vec<Tollgate>,
    /// Whether limits lie at different nodes.
    refunds_later: bool,
}

impl Site {
    /// Starts it with routes `/both`, held back by the policies `a` and `b`, and `/b`, by `b` alone.
    /// Windows of a day: a calendar boundary within the test is out of the question but at midnight.
    /// One instance with its limits in memory, or two that share a Redis.
    fn start(redis: Option<&Deployment>, origin: &Origin, a: &str, b: &str) -> Self {
        let instances = if redis.is_some() { 2 } else { 1 };
        // Many threads on few cores: it is not the time that is tested.
        let store = redis.map_or(String::new(), |redis| {
            format!("store: {{ redis: {{ {}, timeout: 10s }} }}", redis.settings())
        });
        let config = || {
            Config::yaml(format!(
                "
upstreams:
  origin: {{ endpoints: [\"http://{}\"] }}
policies:
  a: {{ {a} }}
  b: {{ {b} }}
routes:
  - {{ path: /both, upstream: origin, policies: [a, b] }}
  - {{ path: /b, upstream: origin, policies: [b] }}
{store}
",
                origin.address
            ))
        };
        let tollgates = (0..instances).map(|_| Tollgate::start(config())).collect();
        let refunds_later = redis.is_some_and(|redis| redis.topology() == Topology::Cluster);
        Self { tollgates, refunds_later }
    }

    /// A client's connection.
    fn connect(&self, client: usize) -> Client {
        Client::connect(self.tollgates[client % self.tollgates.len()].address)
    }

    /// All clients at once, each on one connection, `rounds` times. Says how many each round admitted.
    fn race(
        &self,
        rounds: usize,
        headers: impl Fn(usize, usize) -> [(&'static str, String); 2] + Sync,
    ) -> Vec<usize> {
        let admitted: Vec<_> = (0..rounds).map(|_| AtomicUsize::new(0)).collect();
        let barrier = Barrier::new(CLIENTS);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (admitted, barrier, headers) = (&admitted, &barrier, &headers);
                scope.spawn(move || {
                    let mut connection = self.connect(client);
                    for (round, admitted) in admitted.iter().enumerate() {
                        let [(a, x), (b, y)] = &headers(round, client);
                        barrier.wait();
                        for _ in 0..EACH {
                            let reply = connection.request("GET", "/both", &[(a, x), (b, y)], b"");
                            admitted.fetch_add(usize::from(passed(&reply)), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        admitted.into_iter().map(AtomicUsize::into_inner).collect()
    }

    /// How many of `count` requests pass, one after the other, in turn at each instance.
    fn pass(&self, count: usize, path: &str, headers: &[(&str, &str)]) -> usize {
        let mut clients: Vec<_> = (0..self.tollgates.len()).map(|instance| self.connect(instance)).collect();
        let instances = clients.len();
        let mut ask = |nth: usize| clients[nth % instances].request("GET", path, headers, b"");
        (0..count).filter(|&nth| passed(&ask(nth))).count()
    }

    /// The sum of a metric.
    fn metric(&self, name: &str) -> usize {
        self.tollgates.iter().map(|tollgate| tollgate.metric(name) as usize).sum()
    }
}

#[track_caller]
fn passed(reply: &Reply) -> bool {
    assert!(matches!(reply.status, 200 | 429), "{reply:?}");
    reply.status == 200
}

/// A slice of five an instance: of each round's fifty, what an instance has taken and not spent may be missing.
fn slices_admit_the_limit_at_most_and_a_slice_an_instance_less(redis: &Deployment) {
    const ROUNDS: usize = 8;
    let origin = Origin::ok();
    let a = "algorithm: fixed_window, key: 'header:x-round', limit: 50/1d, slice: 10%";
    let site = Site::start(
        Some(redis),
        &origin,
        a,
        "algorithm: single_counter, key: global, limit: 1000000/1d, mode: shadow",
    );
    let admitted =
        site.race(ROUNDS, |round, client| [("x-round", round.to_string()), ("x-client", client.to_string())]);
    for admitted in &admitted {
        assert!((50 - 2 * 5..=50).contains(admitted), "{admitted}");
    }
    // What is left in a slice is still there for the clients of its instance once the worker that was denied no longer
    // remembers, and nobody gets more than that.
    std::thread::sleep(std::time::Duration::from_millis(1_010));
    for (round, admitted) in admitted.iter().enumerate() {
        let later = site.pass(20, "/both", &[("x-round", &round.to_string())]);
        assert_eq!(admitted + later, 50);
    }
}

#[track_caller]
pub fn exactly_the_limit_passes(redis: Option<&Deployment>, algorithm: &str) {
    const ROUNDS: usize = 16;
    let origin = Origin::ok();
    let a = format!("algorithm: {algorithm}, key: 'header:x-round', limit: 50/1d");
    let site = Site::start(redis, &origin, &a, "algorithm: single_counter, key: global, limit: 1000000/1d");
    let admitted =
        site.race(ROUNDS, |round, client| [("x-round", round.to_string()), ("x-client", client.to_string())]);
    assert_eq!(admitted, [50; ROUNDS]);
    assert_eq!(origin.heads().len(), 50 * ROUNDS, "what was denied never reached the origin");
    let denied = "tollgate_decisions_total{policy=\"a\",verdict=\"denied\",source=";
    let by = |source: &str| site.metric(&format!("{denied}\"{source}\""));
    assert_eq!(by("store") + by("local_denial"), (CLIENTS * EACH - 50) * ROUNDS);
    assert_eq!(by("fallback"), 0);
}

/// A test for each of the algorithms that count units.
macro_rules! each_algorithm {
    ($redis:expr, $($algorithm:ident)*) => {
        $(
            #[test]
            fn $algorithm() {
                $crate::limit::exactness::exactly_the_limit_passes($redis, stringify!($algorithm));
            }
        )*
    };
    ($redis:expr) => {
        $crate::limit::exactness::each_algorithm!($redis, single_counter fixed_window metadata_list sliding_window sliding_log sliding_counter gcra);
    };
}
pub(crate) use each_algorithm;

mod exactly_the_limit_passes {
    super::each_algorithm!(None);
}

/// Of 64 users who come at once, at two instances, as many pass as the limit says, each as often as it comes.
fn as_many_different_users_as_the_limit_pass_at_all_instances_together(redis: &Deployment) {
    const ROUNDS: usize = 8;
    let origin = Origin::ok();
    let site = Site::start(
        Some(redis),
        &origin,
        "algorithm: distinct, key: 'header:x-round', value: 'header:x-client', limit: 50/1d",
        "algorithm: single_counter, key: global, limit: 1000000/1d",
    );
    let admitted =
        site.race(ROUNDS, |round, client| [("x-round", round.to_string()), ("x-client", client.to_string())]);
    assert_eq!(admitted, [50 * EACH; ROUNDS]);
}

#[test]
fn a_denial_by_one_policy_takes_nothing_of_the_other() {
    one_policy_takes_nothing_of_the_other(None);
}

pub fn one_policy_takes_nothing_of_the_other(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let site = Site::start(
        redis,
        &origin,
        "algorithm: sliding_log, key: 'header:x-a', limit: 100/1d",
        "algorithm: fixed_window, key: 'header:x-b', limit: 20/1d",
    );
    // Two groups a round want 64 each; the second policy lets each have 20.
    let admitted = site.race(4, |round, client| {
        [("x-a", round.to_string()), ("x-b", format!("{round}-{}", client % 4 / 2))]
    });
    if site.refunds_later {
        // What a denied request took of the first comes back a round trip later: meanwhile others may be denied, which
        // a worker remembers for a second.
        std::thread::sleep(std::time::Duration::from_millis(1_010));
    }
    for (round, admitted) in admitted.into_iter().enumerate() {
        let missed = |group| {
            let group = format!("{round}-{group}");
            site.pass(21, "/both", &[("x-a", &round.to_string()), ("x-b", &group)])
        };
        let missed = if site.refunds_later { missed(0) + missed(1) } else { 0 };
        assert_eq!(admitted + missed, 40);
        // So the first has 60 left: three more groups of 20, and not one request of a fourth.
        let round = round.to_string();
        let of =
            |group: &str, path| site.pass(21, path, &[("x-a", &round), ("x-b", &format!("{round}-{group}"))]);
        assert_eq!(["2", "3", "4", "5"].map(|group| of(group, "/both")), [20, 20, 20, 0]);
        // And the first policy's denials took nothing of the fourth group's own.
        assert_eq!(of("5", "/b"), 20);
    }
}

#[test]
fn a_denial_of_one_identifier_takes_nothing_of_the_other() {
    one_identifier_takes_nothing_of_the_other(None);
}

pub fn one_identifier_takes_nothing_of_the_other(redis: Option<&Deployment>) {
    const LIMIT: usize = 10;
    let origin = Origin::ok();
    let site = Site::start(
        redis,
        &origin,
        "algorithm: fixed_window, key: ['header:x-a', 'header:x-b'], limit: 10/1d",
        "algorithm: single_counter, key: global, limit: 1000000/1d",
    );
    // All share one `x-a` and have an `x-b` of their own: the shared one denies.
    let admitted =
        site.race(3, |round, client| [("x-a", format!("all-{round}")), ("x-b", format!("{client}"))]);
    assert_eq!(admitted, [LIMIT; 3]);
    // Over all clients, what their own identifiers were charged is what was admitted.
    let left = |client: usize| {
        site.pass(LIMIT + 1, "/both", &[("x-a", &format!("one-{client}")), ("x-b", &client.to_string())])
    };
    let left: usize = (0..CLIENTS).map(left).sum();
    assert_eq!(left, CLIENTS * LIMIT - 3 * LIMIT);
}
