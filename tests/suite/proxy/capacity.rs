//! `max_connections`: the process never has more connections to an upstream, and a request that waits for one
//! is served in turn.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{assert_problem, one_worker};
use crate::harness::{Client, Config, Latch, Origin, Tollgate, eventually, get};

/// A request waits for a connection until its turn comes, also on a machine that does much else.
const PATIENT: &str = "timeouts: { connect: 20s }";

/// Answers `/held` when the latch is open, and everything else at once.
fn holding() -> (Origin, Latch) {
    let release = Latch::new();
    let released = release.clone();
    let origin = Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            if head.starts_with("GET /held") {
                released.wait();
            }
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    (origin, release)
}

fn send(tollgate: &Tollgate, path: &str) -> Client {
    Client::sending(tollgate.address, format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n"))
}

#[test]
fn two_workers_together_keep_to_the_cap_and_serve_everyone() {
    const CAP: usize = 4;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (open, peak) = (Arc::clone(&now), Arc::clone(&most));
    let origin = Origin::start(move |conn| {
        while conn.head()?.is_some() {
            peak.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(2)); // so that requests meet
            open.fetch_sub(1, Ordering::SeqCst);
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    let tollgate = Tollgate::start(Config::upstream(
        &[origin.address],
        &format!("max_connections: {CAP}, {PATIENT}"),
        "",
    ));
    thread::scope(|scope| {
        // More than there are connections; the queue has room to spare.
        for _ in 0..CAP + 2 {
            scope.spawn(|| {
                let mut client = Client::connect(tollgate.address);
                for _ in 0..25 {
                    assert_eq!(client.request("GET", "/", &[], b"").status, 200);
                }
            });
        }
    });
    assert_eq!(most.load(Ordering::SeqCst), CAP);
}

#[test]
fn a_busy_worker_does_not_keep_all_connections_from_another_one() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            thread::sleep(Duration::from_millis(if head.starts_with("GET /slow") { 4 } else { 0 }));
            conn.answer("200 OK", &[], conn.number.to_string().as_bytes())?;
        }
        Ok(())
    });
    let settings = format!("max_connections: 4, {PATIENT}");
    let tollgate = Tollgate::start(Config::upstream(&[origin.address], &settings, ""));
    // One after the other, each worker needs one connection to the origin, which tells them apart.
    let clients: Vec<_> = (0..40).map(|_| Client::connect(tollgate.address)).collect();
    let (mut busy, mut quiet): (Vec<_>, Vec<_>) = clients
        .into_iter()
        .map(|mut client| (client.request("GET", "/", &[], b"").text(), client))
        .partition(|(connection, _)| connection == "0");
    busy.truncate(7);
    quiet.truncate(1);
    assert_eq!((busy.len(), quiet.len()), (7, 1));
    fn ask(client: &mut Client) {
        let sent = Instant::now();
        // 503 at once: no place in the queue. Later: passed over again and again.
        let status = client.request("GET", "/slow", &[], b"").status;
        assert!(status == 200 || sent.elapsed() < Duration::from_secs(15), "passed over");
    }
    let is_over = AtomicBool::new(false);
    let is_over = &is_over;
    thread::scope(|scope| {
        for (_, mut client) in busy {
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    ask(&mut client);
                }
            });
        }
        // The busy ones go on until the quiet one has been served as often as this.
        let (_, mut client) = quiet.pop().unwrap();
        let served = scope.spawn(move || (0..50).for_each(|_| ask(&mut client))).join();
        is_over.store(true, Ordering::SeqCst);
        served.unwrap();
    });
}

#[test]
fn one_worker_opens_no_more_connections_than_the_cap() {
    let origin = Origin::ok();
    let tollgate = one_worker(&[origin.address], &format!("max_connections: 3, {PATIENT}"));
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut client = Client::connect(tollgate.address);
                for _ in 0..20 {
                    assert_eq!(client.request("GET", "/", &[], b"").status, 200);
                }
            });
        }
    });
    assert!(origin.connections() <= 3, "{} connections", origin.connections());
}

#[test]
fn beyond_a_short_queue_clients_get_a_503_with_retry_after() {
    let (origin, release) = holding();
    let tollgate = one_worker(&[origin.address], "max_connections: 1, timeouts: { connect: 10s }");
    let mut held = send(&tollgate, "/held");
    eventually("it is held", || origin.heads().len() == 1);
    let mut waiting = [send(&tollgate, "/waiting"), send(&tollgate, "/waiting")];
    // One of the two waits, the other one is one too many; which one is the scheduler's to say.
    let mut told = None;
    eventually("one is refused", || {
        told = waiting.iter().position(|client| client.has_something_to_read());
        told.is_some()
    });
    let told = told.unwrap();
    let reply = waiting[told].reply();
    assert_problem(&reply, 503, &[origin.address]);
    assert_eq!(reply.header("retry-after"), Some("1"));
    release.open();
    assert_eq!(held.reply().text(), "ok");
    assert_eq!(waiting[1 - told].reply().text(), "ok");
}

#[test]
fn the_longest_waiting_request_comes_first() {
    let (origin, release) = holding();
    let tollgate = one_worker(&[origin.address], "max_connections: 4, timeouts: { connect: 10s }");
    let _held: Vec<_> = (0..4).map(|_| send(&tollgate, "/held")).collect();
    eventually("all are held", || origin.heads().len() == 4);
    let waiting: Vec<_> = (0..4)
        .map(|number| {
            let client = send(&tollgate, &format!("/{number}"));
            client.wait_until_read();
            client
        })
        .collect();
    release.open();
    for mut client in waiting {
        assert_eq!(client.reply().status, 200);
    }
    let paths: Vec<_> = origin.heads()[4..].iter().map(|head| head.as_bytes()[5] - b'0').collect();
    // Four connections become free at once, so that neighbours may overtake each other on the way.
    assert!(paths.iter().zip(0u8..).all(|(&path, place)| path.abs_diff(place) < 4), "{paths:?}");
    assert_eq!(paths.len(), 4);
}

#[test]
fn a_request_without_a_connection_gets_503_after_the_connect_timeout() {
    let (origin, release) = holding();
    let tollgate = one_worker(&[origin.address], "max_connections: 1, timeouts: { connect: 200ms }");
    let mut held = send(&tollgate, "/held");
    eventually("it is held", || origin.heads().len() == 1);
    assert_problem(&send(&tollgate, "/").reply(), 503, &[origin.address]);
    release.open();
    assert_eq!(held.reply().status, 200);
}

#[test]
fn an_idle_connection_of_one_worker_does_not_starve_the_other() {
    let origin = Origin::ok();
    let tollgate =
        Tollgate::start(Config::upstream(&[origin.address], &format!("max_connections: 1, {PATIENT}"), ""));
    // The kernel spreads these over both workers.
    for _ in 0..60 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    assert!(origin.connections() > 1, "all went to one worker, which proves nothing");
}

#[test]
fn idle_connections_to_one_endpoint_do_not_starve_the_other() {
    let origins = [Origin::ok(), Origin::ok()];
    let addresses = [origins[0].address, origins[1].address];
    let tollgate = one_worker(&addresses, &format!("max_connections: 1, balance: round_robin, {PATIENT}"));
    for _ in 0..10 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    assert_eq!(origins.map(|origin| origin.heads().len()), [5, 5]);
}
