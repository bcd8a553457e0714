//! `delay`: a request that comes too soon waits for its place.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use super::{on_each_store, start};
use crate::harness::{Client, Deployment, Origin, eventually, get, on_each_topology};

on_each_store!(requests_come_out_as_far_apart_as_the_rate_says, no_more_wait_than_come_out_in_time);

on_each_topology!(those_who_wait_at_two_instances_come_out_one_after_the_other);

/// Beside the origin, when each request came.
fn watched() -> (Origin, Arc<Mutex<Vec<Instant>>>) {
    let times = Arc::<Mutex<Vec<Instant>>>::default();
    let noted = Arc::clone(&times);
    let origin = Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            noted.lock().unwrap().push(Instant::now());
            conn.body(&head)?;
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    (origin, times)
}

fn requests_come_out_as_far_apart_as_the_rate_says(redis: Option<&Deployment>) {
    let (origin, times) = watched();
    // One in 100 ms, two at once, and as many may wait as come out in a second.
    let policy = "p: { algorithm: gcra, key: ip, limit: 10/1s, burst: 2, delay: 1s }";
    let tollgate = start(&origin, redis, &[policy], "");
    let begun = Instant::now();
    let statuses = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                let mut client = Client::connect(tollgate.address);
                let status = client.request("POST", "/", &[], b"body").status;
                statuses.lock().unwrap().push(status);
            });
        }
    });
    assert_eq!(statuses.into_inner().unwrap(), [200; 10]);
    let mut times = times.lock().unwrap().clone();
    times.sort_unstable();
    // Two go at once, then one after the other: none before its time.
    for (place, time) in times.iter().enumerate().skip(2) {
        let due = Duration::from_millis(100 * (place as u64 - 1));
        let at = time.duration_since(begun);
        assert!(at + Duration::from_millis(5) >= due, "{place} came at {at:?}");
    }
    let last = times[9].duration_since(begun);
    assert!(last < Duration::from_secs(5), "{last:?}");
}

/// Who waits at one instance waits for those at the other: the order is that in Redis.
fn those_who_wait_at_two_instances_come_out_one_after_the_other(redis: &Deployment) {
    let (origin, times) = watched();
    let policy = "p: { algorithm: gcra, key: ip, limit: 10/1s, burst: 1, delay: 1s }";
    let tollgates = [(); 2].map(|()| start(&origin, Some(redis), &[policy], ""));
    let begun = Instant::now();
    thread::scope(|scope| {
        for nth in 0..8 {
            let address = tollgates[nth % 2].address;
            scope.spawn(move || assert_eq!(get(address, "/", &[]).status, 200));
        }
    });
    let mut times = times.lock().unwrap().clone();
    times.sort_unstable();
    for (place, time) in times.iter().enumerate() {
        let (due, at) = (Duration::from_millis(100 * place as u64), time.duration_since(begun));
        assert!(at + Duration::from_millis(5) >= due, "{place} came at {at:?}");
    }
}

fn no_more_wait_than_come_out_in_time(redis: Option<&Deployment>) {
    let (origin, _) = watched();
    // One in 10 s: the first goes at once, the next would have to wait for longer than it may.
    let policy = "p: { algorithm: gcra, key: ip, limit: 6/1m, burst: 1, delay: 5s }";
    let tollgate = start(&origin, redis, &[policy], "");
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let denied = get(tollgate.address, "/", &[]);
    assert_eq!(denied.status, 429);
    let retry_after: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=10).contains(&retry_after), "{retry_after}");
}

/// Neither what a client may take nor what an upstream may take is about this time; nor does a drain cut it off.
#[test]
fn a_delayed_request_is_cut_off_by_no_timeout_and_no_drain() {
    let (origin, _) = watched();
    let policy = "p: { algorithm: gcra, key: ip, limit: 60/1m, burst: 1, delay: 5s }";
    let rest = "client_limits: { header_timeout: 300ms, idle_timeout: 300ms }\n";
    let mut tollgate = start(&origin, None, &[policy], rest);
    let begun = Instant::now();
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let mut waits = Client::connect(tollgate.address);
    waits.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody");
    waits.wait_until_read();
    tollgate.signal("TERM");
    assert_eq!(waits.reply().status, 200);
    assert!(begun.elapsed() > Duration::from_millis(900), "{:?}", begun.elapsed());
    assert_eq!(tollgate.wait().code(), Some(0));
}

#[test]
fn the_access_log_says_how_long_a_request_waited() {
    let (origin, _) = watched();
    let policy = "p: { algorithm: gcra, key: ip, limit: 30/1m, burst: 1, delay: 5s }";
    let log = "access_log: { format: json, to: access.log }\nworkers: 1\n";
    let tollgate = start(&origin, None, &[policy], log);
    for _ in 0..2 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    let read = || std::fs::read_to_string(tollgate.directory().join("access.log")).unwrap_or_default();
    eventually("both are logged", || read().lines().count() == 2);
    let lines: Vec<serde_json::Value> =
        read().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["delay_ms"].is_null(), "{lines:?}");
    let waited = lines[1]["delay_ms"].as_u64().unwrap();
    assert!((1..=2_000).contains(&waited) && lines[1]["duration_ms"].as_f64().unwrap() >= waited as f64);
}

#[test]
fn a_client_that_leaves_while_it_waits_is_not_served() {
    let (origin, _) = watched();
    let policy = "p: { algorithm: gcra, key: ip, limit: 30/1m, burst: 1, delay: 5s }";
    let tollgate = start(&origin, None, &[policy], "");
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let mut leaves = Client::connect(tollgate.address);
    leaves.send("GET /gone HTTP/1.1\r\nhost: a\r\n\r\n").wait_until_read();
    drop(leaves);
    eventually("it is given up", || tollgate.metric("tollgate_connections ") == 0.0);
    // The one behind it has the next place.
    assert_eq!(get(tollgate.address, "/next", &[]).status, 200);
    assert_eq!(origin.heads().iter().filter(|head| head.contains("/gone")).count(), 0);
}
