//! `count: { statuses }`: requests are charged by their answers.

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
};

use super::{on_each_store, start, start_at};
use crate::harness::{Client, Deployment, Origin, Reply, nobody};

on_each_store!(
    of_a_thousand_parallel_guesses_as_many_reach_the_origin_as_may_fail,
    answers_of_other_statuses_cost_nothing,
    without_an_answer_it_costs_what_the_upstream_may_have_done,
);

const FAILURES: &str =
    "failures: { algorithm: sliding_log, key: ip, limit: 5/1h, count: { statuses: [401, 403] } }";

/// What a worker gives back it gives back before it asks for anything else; of another, nobody would wait for it.
const ONE_WORKER: &str = "workers: 1\n";

/// Answers with the status that the path names.
fn as_asked() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            let status = head.split(['/', ' ']).nth(2).unwrap_or("500").to_owned();
            conn.answer(&format!("{status} Said"), &[], b"")?;
        }
        Ok(())
    })
}

fn remaining(reply: &Reply) -> u64 {
    let field = reply.header("ratelimit").unwrap_or_else(|| panic!("no RateLimit: {reply:?}"));
    field.split([';', '=']).nth(2).unwrap().parse().unwrap()
}

/// What the fields say of a request that Tollgate answers itself holds for the next one.
fn without_an_answer_it_costs_what_the_upstream_may_have_done(redis: Option<&Deployment>) {
    let policy = "f: { algorithm: sliding_log, key: ip, limit: 2/1d, count: { statuses: [401] } }";
    let breaks_off = Origin::start(|conn| conn.head().map(|_| ()));
    for (address, left) in [(nobody(), [2, 2, 2]), (breaks_off.address, [1, 0, 0])] {
        let tollgate = start_at(address, "response: 2s", redis, &[policy], ONE_WORKER);
        let mut client = Client::connect(tollgate.address);
        let replies = left.map(|_| client.request("POST", "/401", &[], b""));
        assert_eq!(replies.each_ref().map(remaining), left, "{replies:?}");
        assert_eq!(replies[1].status, 502);
        if let Some(redis) = redis {
            redis.clear();
        }
    }
}

fn of_a_thousand_parallel_guesses_as_many_reach_the_origin_as_may_fail(redis: Option<&Deployment>) {
    let origin = as_asked();
    let tollgate = start(&origin, redis, &[FAILURES], "");
    let denied = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                let mut client = Client::connect(tollgate.address);
                for _ in 0..20 {
                    let status = client.request("POST", "/401", &[], b"").status;
                    assert!(matches!(status, 401 | 429), "{status}");
                    denied.fetch_add(usize::from(status == 429), SeqCst);
                }
            });
        }
    });
    assert_eq!((origin.heads().len(), denied.into_inner()), (5, 995));
}

fn answers_of_other_statuses_cost_nothing(redis: Option<&Deployment>) {
    for algorithm in ["sliding_log", "fixed_window", "single_counter", "metadata_list", "gcra"] {
        let origin = as_asked();
        let policy = format!(
            "f: {{ algorithm: {algorithm}, key: ip, limit: 2/1d, count: {{ statuses: [401, 403] }} }}"
        );
        let tollgate = start(&origin, redis, &[&policy], ONE_WORKER);
        let mut client = Client::connect(tollgate.address);
        for _ in 0..6 {
            let success = client.request("POST", "/200", &[], b"");
            assert_eq!((success.status, remaining(&success)), (200, 2), "{algorithm}");
        }
        let failure = client.request("POST", "/403", &[], b"");
        assert_eq!((failure.status, remaining(&failure)), (403, 1), "{algorithm}");
        assert_eq!(client.request("POST", "/500", &[], b"").status, 500, "{algorithm}");
        assert_eq!(client.request("POST", "/401", &[], b"").status, 401, "{algorithm}");
        assert_eq!(client.request("POST", "/200", &[], b"").status, 429, "{algorithm}");
        if let Some(redis) = redis {
            redis.clear();
        }
    }
}
