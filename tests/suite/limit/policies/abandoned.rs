//! Requests whose clients go away: the origin works on, and what it does counts.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use super::{on_each_store, start, start_before};
use crate::harness::{
    Client, Config, Deployment, Latch, Origin, Tollgate, eventually, get, get_from, nobody,
};

on_each_store!(
    no_more_are_worked_on_than_the_limit_allows,
    no_more_are_done_than_are_counted,
    an_abandoned_request_whose_answer_does_not_count_is_refunded,
    a_request_without_an_answer_is_charged,
    a_request_that_never_reached_the_origin_costs_nothing,
    a_lease_is_held_for_a_moment_when_an_answer_is_broken_off,
);

/// Works on each request until it is told to be done, whether its client is there or not: what it has at work, the most at
/// once, and what it has done.
#[derive(Clone, Default)]
struct Work {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
    /// Closed while it is not to be done with what comes.
    end: Arc<Mutex<Latch>>,
}

impl Work {
    /// What comes from now on takes until [`Work::finish`].
    fn hold(&self) {
        *self.end.lock().unwrap() = Latch::new();
    }

    /// What is at work is done, and what comes takes no time.
    fn finish(&self) {
        self.end.lock().unwrap().open();
    }
}

fn working() -> (Origin, Work) {
    let work = Work::default();
    let works = work.clone();
    let origin = Origin::start(move |conn| {
        while conn.head()?.is_some() {
            let end = works.end.lock().unwrap().clone();
            works.most.fetch_max(works.now.fetch_add(1, SeqCst) + 1, SeqCst);
            end.wait();
            works.now.fetch_sub(1, SeqCst);
            works.done.fetch_add(1, SeqCst);
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    (origin, work)
}

/// Before `origin`, which may take as long as a test takes.
fn start_patient(origin: &Origin, redis: Option<&Deployment>, policy: &str) -> Tollgate {
    start_before(origin, "response: 2m", redis, &[policy], "")
}

/// Sixty clients that reset their connections as soon as their request is worked on, or denied.
fn sixty_abandon(tollgate: &Tollgate, origin: &Origin) {
    let before = origin.heads().len();
    thread::scope(|scope| {
        for thread in 0..6 {
            scope.spawn(move || {
                for nth in 0..10 {
                    let mut client = Client::connect(tollgate.address);
                    let request = format!("GET /{thread}/{nth} HTTP/1.1\r\n");
                    client.send(format!("{request}host: a\r\n\r\n"));
                    eventually("it is worked on, or denied", || {
                        let worked_on =
                            origin.heads()[before..].iter().any(|head| head.starts_with(&request));
                        worked_on || client.has_something_to_read()
                    });
                    client.reset();
                }
            });
        }
    });
}

fn no_more_are_worked_on_than_the_limit_allows(redis: Option<&Deployment>) {
    let (origin, work) = working();
    let tollgate = start_patient(&origin, redis, "two: { algorithm: concurrency, key: ip, limit: 2 }");
    // Each would be a second or more, were a place held for longer than the origin works.
    let mut free_after = Vec::new();
    for _ in 0..5 {
        work.hold();
        sixty_abandon(&tollgate, &origin);
        assert_eq!(work.now.load(SeqCst), 2, "the origin works on");
        work.finish();
        // The origin has done with them: then the places are free, and not much later.
        eventually("all is done", || work.now.load(SeqCst) == 0);
        let done = Instant::now();
        eventually("a place is free", || get(tollgate.address, "/", &[]).status == 200);
        free_after.push(done.elapsed());
    }
    assert!(free_after.iter().any(|after| *after < Duration::from_millis(900)), "{free_after:?}");
    assert_eq!(work.most.load(SeqCst), 2);
    eventually("none is held", || tollgate.metric("tollgate_leases") == 0.0);
}

fn no_more_are_done_than_are_counted(redis: Option<&Deployment>) {
    let (origin, work) = working();
    let policy = "three: { algorithm: sliding_log, key: ip, limit: 3/1h, count: { statuses: [200] } }";
    let tollgate = start_patient(&origin, redis, policy);
    sixty_abandon(&tollgate, &origin);
    assert_eq!(work.now.load(SeqCst), 3, "the origin works on");
    work.finish();
    eventually("all is done", || work.done.load(SeqCst) == 3);
    assert_eq!(get(tollgate.address, "/", &[]).status, 429);
    sixty_abandon(&tollgate, &origin);
    assert_eq!((work.done.load(SeqCst), work.now.load(SeqCst)), (3, 0));
}

fn an_abandoned_request_whose_answer_does_not_count_is_refunded(redis: Option<&Deployment>) {
    let (origin, work) = working();
    let policy = "failures: { algorithm: sliding_log, key: ip, limit: 1/1h, count: { statuses: [401] } }";
    let tollgate = start_patient(&origin, redis, policy);
    sixty_abandon(&tollgate, &origin);
    work.finish();
    eventually("all is done", || work.now.load(SeqCst) == 0);
    eventually("no guess has failed", || get(tollgate.address, "/", &[]).status == 200);
}

fn a_request_without_an_answer_is_charged(redis: Option<&Deployment>) {
    let origin = Origin::start(|conn| {
        match conn.head()?.unwrap_or_default().split(' ').nth(1) {
            Some("/never") => drop(conn.closed()),
            Some("/reset") => conn.reset()?,
            Some("/garbage") => conn.send(b"no HTTP\r\n\r\n")?,
            _ => conn.answer("200 OK", &[], b"ok")?,
        }
        Ok(())
    });
    let counted = |path: &str, status: Option<u16>| {
        let policy = "failures: { algorithm: sliding_log, key: ip, limit: 1/1h, count: { statuses: [401] } }";
        let tollgate = start(&origin, redis, &[policy], "workers: 1\n");
        let (begun, ended) = (origin.heads().len(), origin.ended());
        let mut client = Client::connect(tollgate.address);
        client.send(format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"));
        match status {
            Some(status) => assert_eq!(client.reply().status, status, "{path}"),
            None => eventually("it is under way", || origin.heads().len() > begun),
        }
        client.reset();
        eventually("its connection is closed", || origin.ended() > ended);
        assert_eq!(get(tollgate.address, "/", &[]).status, 429, "{path}");
        eventually("nothing is under way", || tollgate.metric("tollgate_connections ") == 0.0);
        assert_eq!(get(tollgate.address, "/", &[]).status, 429, "{path}");
        if let Some(redis) = redis {
            redis.clear();
        }
    };
    counted("/never", None);
    counted("/never", Some(504));
    counted("/reset", Some(502));
    counted("/garbage", Some(502));
}

fn a_request_that_never_reached_the_origin_costs_nothing(redis: Option<&Deployment>) {
    let store = redis.map_or_else(String::new, |redis| {
        format!("store: {{ redis: {{ {}, timeout: 5s }} }}", redis.settings())
    });
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
workers: 1
upstreams: {{ origin: {{ endpoints: [\"http://{}\"], policies: [one, any] }} }}
policies:
  one: {{ algorithm: concurrency, key: ip, limit: 1 }}
  any: {{ algorithm: sliding_log, key: ip, limit: 1/1h, count: {{ statuses: ['2xx', '5xx'] }} }}
routes: [{{ path: /*, upstream: origin }}]
{store}
",
        nobody(),
    )));
    // All but the first would be a second, were a place held for a moment.
    let free_after = [(); 5].map(|()| {
        let begun = Instant::now();
        eventually("its place is free", || get(tollgate.address, "/", &[]).status == 502);
        begun.elapsed()
    });
    let soon = free_after.iter().filter(|after| **after < Duration::from_millis(800));
    assert!(soon.count() >= 3, "{free_after:?}");
}

fn a_lease_is_held_for_a_moment_when_an_answer_is_broken_off(redis: Option<&Deployment>) {
    let closed = Latch::new();
    let closes = closed.clone();
    let origin = Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            if head.starts_with("GET /half") {
                conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf-")?;
                conn.closed();
                closes.open();
                return Ok(());
            }
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    let tollgate = start(&origin, redis, &["one: { algorithm: concurrency, key: ip, limit: 1 }"], "");
    let mut client = Client::sending(tollgate.address, "GET /half HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    client.reset();
    closed.wait();
    let begun = Instant::now();
    let denied = get(tollgate.address, "/", &[]);
    assert_eq!((denied.status, denied.header("retry-after")), (429, Some("1")));
    eventually("its place is free", || get(tollgate.address, "/", &[]).status == 200);
    let held = begun.elapsed();
    assert!((Duration::from_millis(500)..Duration::from_secs(5)).contains(&held), "{held:?}");
}

/// As nobody waits for the answer, the connection goes to those who need one.
#[test]
fn connections_of_abandoned_requests_are_given_up_when_others_need_them() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            if head.starts_with("GET /never") {
                conn.closed();
                return Ok(());
            }
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
upstreams:
  origin:
    endpoints: [\"http://{}\"]
    policies: [ten]
    max_connections: 4
    max_connections_per_address: 50%
policies:
  ten: {{ algorithm: concurrency, key: ip, limit: 10 }}
routes: [{{ path: /*, upstream: origin }}]
",
        origin.address,
    )));
    let clients: Vec<_> = (0..4)
        .map(|nth| {
            let client = Client::sending(tollgate.address, "GET /never HTTP/1.1\r\nhost: a\r\n\r\n");
            eventually("it is under way", || origin.heads().len() == nth + 1);
            client
        })
        .collect();
    clients.into_iter().for_each(Client::reset);
    let begun = Instant::now();
    assert_eq!(get_from("127.0.0.2", tollgate.address, "/", &[]).status, 200);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

/// The process does not wait for what nobody waits for.
#[test]
fn a_drain_does_not_wait_for_abandoned_requests() {
    let origin = Origin::sink();
    let mut tollgate = start(&origin, None, &["one: { algorithm: concurrency, key: ip, limit: 1 }"], "");
    let client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("it is under way", || tollgate.metric("tollgate_leases") == 1.0);
    client.reset();
    eventually("its client has gone", || tollgate.metric("tollgate_connections ") == 0.0);
    assert_eq!(tollgate.metric("tollgate_leases"), 1.0);
    let begun = Instant::now();
    tollgate.signal("TERM");
    assert_eq!(tollgate.wait().code(), Some(0));
    // A drain would last for 30 s.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}
