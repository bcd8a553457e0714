//! Exactly the limit passes of many streams at once: 64 of a connection that one worker serves, and 64 of another
//! connection at the other worker.

use std::collections::HashMap;

use futures_util::{
    future::join_all,
    stream::{FuturesUnordered, StreamExt},
};
use h2::client::ResponseFuture;

use crate::harness::{
    Config, Deployment, Http2Client, Origin, Tollgate, eventually, in_runtime, on_each_store, read,
};

on_each_store!(
    of_all_requests_exactly_as_many_pass,
    of_all_values_exactly_as_many_pass_and_each_as_often_as_it_comes,
    exactly_as_many_are_under_way_at_a_time,
    exactly_as_many_pass_at_once_and_the_next_one_waits,
    a_shadow_policy_counts_as_exactly_and_denies_nothing,
);

/// Of each connection.
const STREAMS: usize = 64;
const LIMIT: usize = 50;
const ROUNDS: usize = 4;

/// Both workers, each with a connection, and how many requests of each kind the origin got.
struct Site {
    tollgate: Tollgate,
    origin: Origin,
    clients: [Http2Client; 2],
}

impl Site {
    /// `policies` are lines of YAML, each a policy `NAME: { … }` that holds for `/NAME`. What is asked for under `/held` has
    /// to be let go.
    async fn start(redis: Option<&Deployment>, policies: &[String]) -> Self {
        let origin = Origin::start(|conn| {
            while let Some(head) = conn.head()? {
                if head.starts_with("GET /held") {
                    conn.pause()?;
                }
                conn.answer("200 OK", &[], conn.number.to_string().as_bytes())?;
            }
            Ok(())
        });
        let names = policies.iter().filter_map(|policy| policy.split(':').next());
        let routes: String = names
            .map(|name| format!("  - {{ path: /{name}, upstream: origin, policies: [{name}] }}\n"))
            .collect();
        let store = redis.map_or_else(String::new, |redis| {
            format!("store: {{ redis: {{ {}, timeout: 10s }} }}", redis.settings())
        });
        let tollgate = Tollgate::start(Config::yaml(format!(
            "
upstreams: {{ origin: {{ endpoints: [\"http://{}\"] }} }}
policies:
  {}
routes:
{routes}
  - {{ path: /worker, upstream: origin }}
{store}
",
            origin.address,
            policies.join("\n  "),
        )));
        // One after the other, each worker needs one connection to the origin, which tells them apart.
        let mut by_worker = HashMap::new();
        while by_worker.len() < 2 {
            let mut client = Http2Client::connect(tollgate.address).await;
            let worker = client.get("/worker", &[]).await.unwrap().text();
            by_worker.entry(worker).or_insert(client);
        }
        let clients: Vec<_> = by_worker.into_values().collect();
        Self { tollgate, origin, clients: clients.try_into().ok().unwrap() }
    }

    /// Sends all requests at once, in turn on each connection. Each has a number of its own among those of its connection.
    async fn send(&mut self, path: &str, round: usize) -> Vec<(usize, ResponseFuture)> {
        let mut answers = Vec::new();
        for number in 0..STREAMS {
            for client in &mut self.clients {
                let (round, value) = (round.to_string(), number.to_string());
                let fields = [("x-round", round.as_str()), ("x-value", value.as_str())];
                // Nothing is written before all are there.
                let (answer, _) = client.send("GET", path, &fields, true).await.unwrap();
                answers.push((number, answer));
            }
        }
        answers
    }

    /// The numbers of the requests that passed. The others were denied, and the origin has seen nothing of them.
    async fn race(&mut self, path: &str, round: usize) -> Vec<usize> {
        let before = self.asked(path);
        let (numbers, answers): (Vec<_>, Vec<_>) = self.send(path, round).await.into_iter().unzip();
        let replies = join_all(answers.into_iter().map(read)).await;
        let passed = numbers.into_iter().zip(replies).filter(|(_, reply)| {
            let status = reply.as_ref().unwrap().status();
            assert!(matches!(status, 200 | 429), "{path}: {reply:?}");
            status == 200
        });
        let passed: Vec<_> = passed.map(|(number, _)| number).collect();
        assert_eq!(self.asked(path) - before, passed.len(), "{path}: what was denied reached the origin");
        passed
    }

    /// How many requests for `path` reached the origin.
    fn asked(&self, path: &str) -> usize {
        let line = format!("GET {path} ");
        self.origin.heads().iter().filter(|head| head.starts_with(&line)).count()
    }

    fn decisions(&self, policy: &str, verdict: &str) -> f64 {
        let of = |source: &str| {
            self.tollgate.metric(&format!(
                "tollgate_decisions_total{{policy=\"{policy}\",verdict=\"{verdict}\",source=\"{source}\"}}"
            ))
        };
        assert!(of("fallback") == 0.0, "the store was there all the time");
        of("store") + of("local_denial")
    }
}

/// A window of a day: a calendar boundary within the test is out of the question but at midnight, and of a steady rate
/// comes back one in half an hour.
fn of_all_requests_exactly_as_many_pass(redis: Option<&Deployment>) {
    let algorithms = [
        "single_counter",
        "fixed_window",
        "metadata_list",
        "sliding_window",
        "sliding_log",
        "sliding_counter",
        "gcra",
    ];
    let policies = algorithms
        .map(|name| format!("{name}: {{ algorithm: {name}, key: 'header:x-round', limit: {LIMIT}/1d }}"));
    in_runtime(async {
        let mut site = Site::start(redis, &policies).await;
        for algorithm in algorithms {
            for round in 0..ROUNDS {
                let passed = site.race(&format!("/{algorithm}"), round).await;
                assert_eq!(passed.len(), LIMIT, "{algorithm}");
            }
            let counted = ["allowed", "denied"].map(|verdict| site.decisions(algorithm, verdict));
            let expected = [LIMIT, 2 * STREAMS - LIMIT].map(|each| (ROUNDS * each) as f64);
            assert_eq!(counted, expected, "{algorithm}");
        }
    });
}

/// Each value comes twice, once by each connection.
fn of_all_values_exactly_as_many_pass_and_each_as_often_as_it_comes(redis: Option<&Deployment>) {
    let policy = format!(
        "distinct: {{ algorithm: distinct, key: 'header:x-round', value: 'header:x-value', limit: {LIMIT}/1d }}"
    );
    in_runtime(async {
        let mut site = Site::start(redis, &[policy]).await;
        for round in 0..ROUNDS {
            let mut first = site.race("/distinct", round).await;
            first.sort_unstable();
            assert_eq!(first.len(), 2 * LIMIT);
            assert!(first.chunks(2).all(|both| both[0] == both[1]), "{first:?}");
            let mut again = site.race("/distinct", round).await;
            again.sort_unstable();
            assert_eq!(again, first, "the same values pass again");
        }
    });
}

fn exactly_as_many_are_under_way_at_a_time(redis: Option<&Deployment>) {
    let policy =
        format!("held: {{ algorithm: concurrency, key: 'header:x-round', limit: {LIMIT}, lease: 60s }}");
    in_runtime(async {
        let mut site = Site::start(redis, &[policy]).await;
        for held in 1..=ROUNDS {
            let answers = site.send("/held", 0).await;
            let mut replies: FuturesUnordered<_> =
                answers.into_iter().map(|(_, answer)| read(answer)).collect();
            for _ in LIMIT..2 * STREAMS {
                let denied = replies.next().await.unwrap().unwrap();
                assert_eq!(denied.status(), 429, "{}", denied.text());
            }
            eventually("all others are under way", || site.asked("/held") == held * LIMIT);
            assert_eq!(site.tollgate.metric("tollgate_leases"), LIMIT as f64);
            (0..LIMIT).for_each(|_| site.origin.resume());
            while let Some(reply) = replies.next().await {
                assert_eq!(reply.unwrap().status(), 200);
            }
            // In the next round, all places are free again.
            eventually("none is held", || site.tollgate.metric("tollgate_leases") == 0.0);
        }
    });
}

/// One in four seconds: behind those that pass at once, the next one waits for its turn, and another would have to wait for
/// longer than it may.
fn exactly_as_many_pass_at_once_and_the_next_one_waits(redis: Option<&Deployment>) {
    let policy =
        format!("delay: {{ algorithm: gcra, key: global, limit: 15/1m, burst: {LIMIT}, delay: 4s }}");
    in_runtime(async {
        let mut site = Site::start(redis, &[policy]).await;
        assert_eq!(site.race("/delay", 0).await.len(), LIMIT + 1);
    });
}

fn a_shadow_policy_counts_as_exactly_and_denies_nothing(redis: Option<&Deployment>) {
    let policy = format!(
        "shadow: {{ algorithm: sliding_log, key: 'header:x-round', limit: {LIMIT}/1d, mode: shadow }}"
    );
    in_runtime(async {
        let mut site = Site::start(redis, &[policy]).await;
        for round in 0..ROUNDS {
            assert_eq!(site.race("/shadow", round).await.len(), 2 * STREAMS);
        }
        let counted = ["allowed", "shadow_denied"].map(|verdict| site.decisions("shadow", verdict));
        assert_eq!(counted, [LIMIT, 2 * STREAMS - LIMIT].map(|each| (ROUNDS * each) as f64));
    });
}
