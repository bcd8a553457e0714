//! `concurrency`: as many at a time, and a place comes back however its request ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use super::{on_each_store, start, start_before};
use crate::harness::{
    Client, Config, Deployment, Origin, Redis, Relay, Tollgate, eventually, get, on_each_topology,
    on_own_servers,
};

on_each_store!(
    a_place_comes_back_however_its_request_ends,
    a_request_that_takes_longer_than_a_lease_keeps_it,
    as_many_at_a_time_as_the_limit_and_not_one_more,
);

on_each_topology!(
    an_instance_that_drains_gives_its_places_back_when_its_requests_end,
    requests_that_the_end_of_the_drain_breaks_off_give_their_places_back,
);
on_own_servers!(
    a_client_that_leaves_while_the_store_is_asked_keeps_nothing,
    a_process_that_can_t_give_back_still_ends,
    while_redis_is_away_places_are_had_and_given_back_in_memory,
);

const ONE: &str = "one: { algorithm: concurrency, key: ip, limit: 1, lease: 60s }";

/// Holds what is asked for under `/held` until the test says so, and answers in two parts.
fn slow() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            match path.as_str() {
                "/held" => conn.pause()?,
                "/reset" => return conn.reset(),
                "/broken" => {
                    conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")?;
                    return conn.reset();
                }
                "/half" => {
                    conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf-")?;
                    conn.pause()?;
                    conn.send(b"whole")?;
                    continue;
                }
                "/never" => {
                    conn.closed();
                    return Ok(());
                }
                _ => {}
            }
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    })
}

/// The place is taken now, and comes back. `comes_back` makes it do so.
#[track_caller]
fn comes_back(tollgate: &Tollgate, what: &str, comes_back: impl FnOnce()) {
    let denied = get(tollgate.address, "/", &[]);
    assert_eq!((denied.status, denied.header("retry-after")), (429, Some("1")), "{what}: it is held");
    comes_back();
    let begun = Instant::now();
    eventually(what, || get(tollgate.address, "/", &[]).status == 200);
    assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
    eventually("none is held", || tollgate.metric("tollgate_leases") == 0.0);
}

/// A request that has reached the origin. Another worker may not have given back yet what the last one held: then it is
/// sent again.
#[track_caller]
fn begin(tollgate: &Tollgate, origin: &Origin, path: &str) -> Client {
    let before = origin.heads().len();
    let send = || Client::sending(tollgate.address, format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n"));
    let mut client = send();
    eventually("it is under way", || {
        let is_answered = client.has_something_to_read();
        let is_there = origin.heads().len() > before;
        if is_answered && !is_there {
            assert_eq!(client.reply().status, 429);
            client = send();
        }
        is_there
    });
    client
}

fn a_place_comes_back_however_its_request_ends(redis: Option<&Deployment>) {
    let origin = slow();
    let tollgate = start(&origin, redis, &[ONE], "");

    let mut client = begin(&tollgate, &origin, "/held");
    assert_eq!(tollgate.metric("tollgate_leases"), 1.0);
    comes_back(&tollgate, "an answer in order", || {
        origin.resume();
        assert_eq!(client.reply().status, 200);
    });

    let mut client = begin(&tollgate, &origin, "/half");
    client.head();
    comes_back(&tollgate, "an answer in two parts", || {
        origin.resume();
        assert_eq!(client.take(10).unwrap(), b"half-whole");
    });

    let client = begin(&tollgate, &origin, "/never");
    comes_back(&tollgate, "a client that leaves before the answer", || drop(client));

    let mut client = begin(&tollgate, &origin, "/half");
    client.head();
    comes_back(&tollgate, "a client that leaves during the answer", || client.reset());
    origin.resume();

    let mut client = begin(&tollgate, &origin, "/never");
    comes_back(&tollgate, "an upstream that is late", || assert_eq!(client.reply().status, 504));

    // These end by themselves, which is what lets the next one in.
    for (path, status) in [("/reset", 502), ("/broken", 200), ("/", 200)] {
        let mut last = 429;
        eventually(path, || {
            let mut client = Client::connect(tollgate.address);
            client.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n"));
            last = client.head().status;
            last != 429
        });
        assert_eq!(last, status, "{path}");
    }
    eventually("none is held", || tollgate.metric("tollgate_leases") == 0.0);
    if let Some(redis) = redis {
        eventually("nothing is left", || !redis.keys().iter().any(|key| key.contains(":one:")));
    }
}

fn a_client_that_leaves_while_the_store_is_asked_keeps_nothing(redis: &Deployment) {
    let origin = slow();
    let tollgate = start(&origin, Some(redis), &[ONE], "");
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    redis.pause();
    let mut client = Client::connect(tollgate.address);
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").wait_until_read();
    drop(client);
    eventually("it has gone", || tollgate.metric("tollgate_connections ") == 0.0);
    redis.resume();
    eventually("its place is free", || get(tollgate.address, "/", &[]).status == 200);
    assert_eq!(origin.heads().len(), 2, "nobody asked for it any more");
}

fn a_request_that_takes_longer_than_a_lease_keeps_it(redis: Option<&Deployment>) {
    let origin = slow();
    let policy = "one: { algorithm: concurrency, key: ip, limit: 1, lease: 3s }";
    let tollgate = start(&origin, redis, &[policy], "");
    let mut client = begin(&tollgate, &origin, "/half");
    client.head();
    let end = Instant::now() + Duration::from_secs(7);
    while Instant::now() < end {
        assert_eq!(get(tollgate.address, "/", &[]).status, 429);
        thread::sleep(Duration::from_millis(50));
    }
    comes_back(&tollgate, "the end of a long request", || origin.resume());
}

fn as_many_at_a_time_as_the_limit_and_not_one_more(redis: Option<&Deployment>) {
    let (now, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (under_way, seen) = (Arc::clone(&now), Arc::clone(&most));
    let origin = Origin::start(move |conn| {
        while conn.head()?.is_some() {
            seen.fetch_max(under_way.fetch_add(1, SeqCst) + 1, SeqCst);
            // The first ones wait for each other, so that as many meet as may.
            eventually("as many are under way as the limit allows", || seen.load(SeqCst) >= 8);
            thread::sleep(Duration::from_millis(20));
            // Before the answer: it lets another one in.
            under_way.fetch_sub(1, SeqCst);
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    let policy = "eight: { algorithm: concurrency, key: ip, limit: 8 }";
    // Where they share a Redis, at two instances together.
    let instances = if redis.is_some() { 2 } else { 1 };
    let start = || start_before(&origin, "response: 2m", redis, &[policy], "");
    let tollgates: Vec<_> = (0..instances).map(|_| start()).collect();
    thread::scope(|scope| {
        for nth in 0..24 {
            let address = tollgates[nth % instances].address;
            scope.spawn(move || {
                let mut client = Client::connect(address);
                for _ in 0..20 {
                    let status = client.request("GET", "/", &[], b"").status;
                    assert!(matches!(status, 200 | 429), "{status}");
                }
            });
        }
    });
    assert_eq!((most.load(SeqCst), now.load(SeqCst)), (8, 0));
    eventually("none is held", || tollgates.iter().all(|tollgate| tollgate.metric("tollgate_leases") == 0.0));
}

fn with_breaker(origin: &Origin, redis: &str, breaker: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "
upstreams: {{ origin: {{ endpoints: [\"http://{}\"], policies: [one] }} }}
policies:
  {ONE}
routes: [{{ path: /*, upstream: origin }}]
store: {{ redis: {{ {redis}, timeout: 5s, breaker: {{ {breaker} }} }} }}
",
        origin.address,
    )))
}

/// Asks for the leases of one policy and address.
const HELD: [&str; 2] = ["zcard", "ratelimit:{ip:127.0.0.1}:one:cc.1m"];

/// The leases of one policy and address in Redis.
fn held(redis: &Deployment) -> String {
    redis.cli(&HELD)
}

fn an_instance_that_drains_gives_its_places_back_when_its_requests_end(redis: &Deployment) {
    let origin = slow();
    let mut tollgate = start(&origin, Some(redis), &[ONE], "");
    let other = start(&origin, Some(redis), &[ONE], "");
    let mut client = begin(&tollgate, &origin, "/held");
    tollgate.signal("TERM");
    eventually("it drains", || tollgate.admin("GET", "/readyz").status == 503);
    assert_eq!((held(redis).as_str(), get(other.address, "/", &[]).status), ("1", 429));
    origin.resume();
    assert_eq!(client.reply().status, 200);
    assert_eq!(tollgate.wait().code(), Some(0));
    assert_eq!(held(redis), "0");
    assert_eq!(get(other.address, "/", &[]).status, 200);
}

fn requests_that_the_end_of_the_drain_breaks_off_give_their_places_back(redis: &Deployment) {
    let origin = slow();
    for (drain, signals, code) in [("300ms", 1, 0), ("1h", 2, 1)] {
        let mut tollgate = start(&origin, Some(redis), &[ONE], &format!("shutdown: {{ drain: {drain} }}\n"));
        let client = begin(&tollgate, &origin, "/never");
        assert_eq!(held(redis), "1");
        let begun = Instant::now();
        tollgate.signal("TERM");
        if signals > 1 {
            eventually("it drains", || tollgate.admin("GET", "/readyz").status == 503);
            tollgate.signal("TERM");
        }
        assert_eq!(tollgate.wait().code(), Some(code));
        assert!(begun.elapsed() < Duration::from_secs(15));
        assert_eq!(held(redis), "0", "drain: {drain}");
        drop(client);
    }
}

#[test]
fn a_lease_that_cannot_be_given_back_is_tried_again_before_the_process_ends() {
    let (origin, redis) = (slow(), Redis::start());
    let relay = Relay::to(redis.port);
    let mut tollgate = with_breaker(&origin, &format!("url: \"{}\"", relay.url()), "failures: 1000");
    let mut client = begin(&tollgate, &origin, "/held");
    assert_eq!(redis.cli(&HELD), "1");
    tollgate.signal("TERM");
    eventually("it drains", || tollgate.admin("GET", "/readyz").status == 503);
    relay.refuse(true);
    origin.resume();
    assert_eq!(client.reply().status, 200);
    assert!(client.closed(), "its connection has ended");
    relay.refuse(false);
    assert_eq!(tollgate.wait().code(), Some(0));
    assert_eq!(redis.cli(&HELD), "0");
}

fn a_process_that_can_t_give_back_still_ends(redis: &mut Deployment) {
    let origin = slow();
    let mut tollgate = start(&origin, Some(redis), &[ONE], "");
    let mut client = begin(&tollgate, &origin, "/held");
    redis.kill();
    tollgate.signal("TERM");
    eventually("it drains", || tollgate.admin("GET", "/readyz").status == 503);
    origin.resume();
    assert_eq!(client.reply().status, 200, "whatever becomes of its lease");
    assert_eq!(tollgate.wait().code(), Some(0));
}

fn while_redis_is_away_places_are_had_and_given_back_in_memory(redis: &mut Deployment) {
    let origin = slow();
    let tollgate = with_breaker(&origin, &redis.settings(), "failures: 1, retry_after: 100ms");
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    redis.kill();
    eventually("it is known to be away", || {
        get(tollgate.address, "/", &[]);
        tollgate.metric("tollgate_store_breaker_open") == 1.0
    });
    let mut client = begin(&tollgate, &origin, "/held");
    comes_back(&tollgate, "a lease in memory", || {
        origin.resume();
        assert_eq!(client.reply().status, 200);
    });
    // One that begins meanwhile, and ends when it is back.
    let mut client = begin(&tollgate, &origin, "/held");
    redis.restart();
    eventually("it is asked again", || tollgate.metric("tollgate_store_breaker_open") == 0.0);
    origin.resume();
    assert_eq!(client.reply().status, 200);
    eventually("none is held", || tollgate.metric("tollgate_leases") == 0.0);
    assert_eq!(held(redis), "0");
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
}
