//! Leases of a process that died.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::start_before;
use crate::harness::{Client, Deployment, Origin, Tollgate, eventually, on_each_topology};

on_each_topology!(are_free_once_they_expire_and_not_before_and_no_others);

const CLIENTS: usize = 1_000;
const OTHERS: usize = 5;
const LEASE: Duration = Duration::from_secs(6);
const POLICY: &str = "many: { algorithm: concurrency, key: global, limit: 2000, lease: 6s }";
const KEY: &str = "ratelimit:{global}:many:cc.6s";

fn begin(tollgate: &Tollgate, clients: usize) -> Vec<Client> {
    let begun = (0..clients).map(|_| Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n"));
    begun.collect()
}

/// Leases that count, by Redis' own clock.
fn held(redis: &Deployment) -> usize {
    let script = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] \
                  return redis.call('ZCOUNT', KEYS[1], '(' .. string.format('%.0f', now), '+inf')";
    redis.cli(&["eval", script, "1", KEY]).parse().unwrap()
}

fn are_free_once_they_expire_and_not_before_and_no_others(redis: &Deployment) {
    // Takes whatever comes, and never answers.
    let origin = Origin::sink();
    let settings = "workers: 2\n";
    let (mut dies, lives) = (slow_before(&origin, redis, settings), slow_before(&origin, redis, settings));
    let mut victims = begin(&dies, CLIENTS);
    let mut others = begin(&lives, OTHERS);
    eventually("all are under way", || origin.connections() == CLIENTS + OTHERS);
    assert_eq!(held(redis), CLIENTS + OTHERS);
    eventually("all are counted", || {
        (dies.metric("tollgate_leases"), lives.metric("tollgate_leases")) == (CLIENTS as f64, OTHERS as f64)
    });
    // Longer than a lease: they are renewed.
    thread::sleep(LEASE + Duration::from_secs(1));
    assert_eq!(held(redis), CLIENTS + OTHERS);

    let killed = Instant::now();
    dies.signal("KILL");
    dies.wait();
    // Each was renewed a third of a lease ago at most, and a moment for a machine that does much else.
    let early = LEASE * 2 / 3 - Duration::from_millis(1_500);
    while killed.elapsed() < early {
        assert_eq!(held(redis), CLIENTS + OTHERS, "after {:?}", killed.elapsed());
        thread::sleep(Duration::from_millis(100));
    }
    eventually("they are free", || held(redis) == OTHERS);
    let free = killed.elapsed();
    assert!(free < LEASE + Duration::from_secs(5), "{free:?}");
    let end = Instant::now() + LEASE;
    while Instant::now() < end {
        assert_eq!(held(redis), OTHERS);
        thread::sleep(Duration::from_millis(100));
    }
    victims.clear();
    others.clear();
    eventually("none is left", || held(redis) == 0);
}

/// With all the time that a test takes.
fn slow_before(origin: &Origin, redis: &Deployment, rest: &str) -> Tollgate {
    start_before(origin, "response: 2m, connect: 1m", Some(redis), &[POLICY], rest)
}
