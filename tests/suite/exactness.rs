//! Exactly the limit passes, however many ask at once: 64 clients on two workers.

use std::sync::{
    Barrier,
    atomic::{AtomicUsize, Ordering},
};

use crate::harness::{Client, Config, Origin, Reply, Tollgate};

const CLIENTS: usize = 64;
/// Requests of each client a round.
const EACH: usize = 2;

/// Starts Tollgate with routes `/both`, held back by the policies `a` and `b`, and `/b`, by `b` alone.
/// Windows of a day: a calendar boundary within the test is out of the question but at midnight.
fn start(origin: &Origin, a: &str, b: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "
upstreams:
  origin: {{ endpoints: [\"http://{}\"] }}
policies:
  a: {{ {a} }}
  b: {{ {b} }}
routes:
  - {{ path: /both, upstream: origin, policies: [a, b] }}
  - {{ path: /b, upstream: origin, policies: [b] }}
",
        origin.address
    )))
}

/// All clients at once, each on one connection, `rounds` times. Says how many each round admitted.
fn race(
    tollgate: &Tollgate,
    rounds: usize,
    headers: impl Fn(usize, usize) -> [(&'static str, String); 2] + Sync,
) -> Vec<usize> {
    let admitted: Vec<_> = (0..rounds).map(|_| AtomicUsize::new(0)).collect();
    let barrier = Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (admitted, barrier, headers) = (&admitted, &barrier, &headers);
            scope.spawn(move || {
                let mut connection = Client::connect(tollgate.address);
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

#[track_caller]
fn passed(reply: &Reply) -> bool {
    assert!(matches!(reply.status, 200 | 429), "{reply:?}");
    reply.status == 200
}

/// How many of `count` requests pass, one after the other.
fn pass(tollgate: &Tollgate, count: usize, path: &str, headers: &[(&str, &str)]) -> usize {
    let mut client = Client::connect(tollgate.address);
    (0..count).filter(|_| passed(&client.request("GET", path, headers, b""))).count()
}

#[track_caller]
fn exactly_the_limit_passes(algorithm: &str) {
    const ROUNDS: usize = 16;
    let origin = Origin::ok();
    let a = format!("algorithm: {algorithm}, key: 'header:x-round', limit: 50/1d");
    let tollgate = start(&origin, &a, "algorithm: single_counter, key: global, limit: 1000000/1d");
    let admitted = race(&tollgate, ROUNDS, |round, client| {
        [("x-round", round.to_string()), ("x-client", client.to_string())]
    });
    assert_eq!(admitted, [50; ROUNDS]);
    assert_eq!(origin.heads().len(), 50 * ROUNDS, "what was denied never reached the origin");
    let denied = "tollgate_decisions_total{policy=\"a\",verdict=\"denied\"";
    assert_eq!(tollgate.metric(denied) as usize, (CLIENTS * EACH - 50) * ROUNDS);
}

#[test]
fn exactly_the_limit_passes_a_single_counter() {
    exactly_the_limit_passes("single_counter");
}

#[test]
fn exactly_the_limit_passes_a_fixed_window() {
    exactly_the_limit_passes("fixed_window");
}

#[test]
fn exactly_the_limit_passes_a_sliding_log() {
    exactly_the_limit_passes("sliding_log");
}

#[test]
fn exactly_the_limit_passes_a_metadata_list() {
    exactly_the_limit_passes("metadata_list");
}

#[test]
fn a_denial_by_one_policy_takes_nothing_of_the_other() {
    let origin = Origin::ok();
    let tollgate = start(
        &origin,
        "algorithm: sliding_log, key: 'header:x-a', limit: 100/1d",
        "algorithm: fixed_window, key: 'header:x-b', limit: 20/1d",
    );
    // Two groups a round want 64 each; the second policy lets each have 20.
    let admitted = race(&tollgate, 4, |round, client| {
        [("x-a", round.to_string()), ("x-b", format!("{round}-{}", client % 2))]
    });
    assert_eq!(admitted, [40; 4]);
    for round in 0..4 {
        // So the first has 60 left: three more groups of 20, and not one request of a fourth.
        let round = round.to_string();
        let of = |group: &str, path| {
            pass(&tollgate, 21, path, &[("x-a", &round), ("x-b", &format!("{round}-{group}"))])
        };
        assert_eq!(["2", "3", "4", "5"].map(|group| of(group, "/both")), [20, 20, 20, 0]);
        // And the first policy's denials took nothing of the fourth group's own.
        assert_eq!(of("5", "/b"), 20);
    }
}

#[test]
fn a_denial_of_one_identifier_takes_nothing_of_the_other() {
    const LIMIT: usize = 10;
    let origin = Origin::ok();
    let tollgate = start(
        &origin,
        "algorithm: fixed_window, key: ['header:x-a', 'header:x-b'], limit: 10/1d",
        "algorithm: single_counter, key: global, limit: 1000000/1d",
    );
    // All share one `x-a` and have an `x-b` of their own: the shared one denies.
    let admitted =
        race(&tollgate, 3, |round, client| [("x-a", format!("all-{round}")), ("x-b", format!("{client}"))]);
    assert_eq!(admitted, [LIMIT; 3]);
    // Over all clients, what their own identifiers were charged is what was admitted.
    let left = |client: usize| {
        pass(
            &tollgate,
            LIMIT + 1,
            "/both",
            &[("x-a", &format!("one-{client}")), ("x-b", &client.to_string())],
        )
    };
    let left: usize = (0..CLIENTS).map(left).sum();
    assert_eq!(left, CLIENTS * LIMIT - 3 * LIMIT);
}
