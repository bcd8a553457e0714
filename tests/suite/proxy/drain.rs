//! SIGTERM: no new connections, what runs is finished, and then the end.

use std::{
    io::{ErrorKind, Write},
    net::TcpStream,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::before;
use crate::harness::{Client, Config, Latch, Origin, Tollgate, eventually};

/// Sends `first`, and the rest when the latch is open.
fn in_two_parts(first: &'static [u8], rest: &'static [u8]) -> (Origin, Latch) {
    let release = Latch::new();
    let released = release.clone();
    let origin = Origin::start(move |conn| {
        conn.head()?;
        conn.send(first)?;
        released.wait();
        conn.send(rest)
    });
    (origin, release)
}

fn begin_drain(tollgate: &Tollgate) {
    begin_drain_by("TERM", tollgate);
}

fn begin_drain_by(signal: &str, tollgate: &Tollgate) {
    assert_eq!(tollgate.admin("GET", "/readyz").status, 200);
    tollgate.signal(signal);
    eventually("it is not ready", || tollgate.admin("GET", "/readyz").status == 503);
    eventually("it accepts nobody", || {
        TcpStream::connect(tollgate.address).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
}

/// A client whose request has reached the origin.
fn waiting(tollgate: &Tollgate, origin: &Origin) -> Client {
    let client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("it has arrived", || origin.heads().len() == 1);
    client
}

#[test]
fn a_download_under_way_is_finished() {
    let (origin, release) = in_two_parts(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst", b"-last");
    let mut tollgate = before(&origin);
    let mut client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    client.head();
    assert_eq!(client.take(5).unwrap(), b"first");
    begin_drain(&tollgate);
    release.open();
    assert_eq!(client.take(5).unwrap(), b"-last");
    assert!(client.closed());
    assert_eq!(tollgate.wait().code(), Some(0));
}

#[test]
fn a_request_that_waits_for_its_answer_gets_it_and_must_close_after_sigterm_and_sigint() {
    for signal in ["TERM", "INT"] {
        let (origin, release) = in_two_parts(b"", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        let mut tollgate = before(&origin);
        let mut client = waiting(&tollgate, &origin);
        begin_drain_by(signal, &tollgate);
        release.open();
        let reply = client.reply();
        assert_eq!((reply.text().as_str(), reply.header("connection")), ("ok", Some("close")), "{signal}");
        assert!(client.closed(), "{signal}");
        assert_eq!(tollgate.wait().code(), Some(0), "{signal}");
    }
}

#[test]
fn an_upload_under_way_is_finished() {
    let origin = Origin::echo();
    // Passed on as it comes, and received before it is passed on.
    for buffering in ["0", "16KiB"] {
        let settings = format!("request_buffering: {buffering}");
        let mut tollgate = Tollgate::start(Config::upstream(&[origin.address], &settings, ""));
        let mut client = Client::connect(tollgate.address);
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nfirst");
        client.wait_until_read();
        begin_drain(&tollgate);
        assert_eq!(client.send("-last").reply().json()["body"], "first-last");
        assert_eq!(tollgate.wait().code(), Some(0));
    }
}

#[test]
fn a_request_of_which_a_part_has_come_is_served() {
    let origin = Origin::ok();
    let mut tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    client.send("GET / HTTP/1.1\r\nho").wait_until_read();
    begin_drain(&tollgate);
    assert_eq!(client.send("st: a\r\n\r\n").reply().text(), "ok");
    assert_eq!(tollgate.wait().code(), Some(0));
}

#[test]
fn idle_connections_are_closed_and_nobody_waits_for_them() {
    let origin = Origin::ok();
    let mut tollgate = before(&origin);
    let mut silent = Client::connect(tollgate.address);
    let mut used = Client::connect(tollgate.address);
    assert_eq!(used.request("GET", "/", &[], b"").status, 200);
    tollgate.signal("TERM");
    assert!(silent.closed() && used.closed());
    assert_eq!(tollgate.wait().code(), Some(0));
    eventually("the origin is let go", || origin.open_connections() == 0);
}

#[test]
fn a_request_that_outlasts_the_drain_is_broken_off() {
    let (origin, _release) = in_two_parts(b"", b"");
    let mut tollgate = Tollgate::start(Config::new(&[origin.address], "shutdown: { drain: 300ms }\n"));
    let mut client = waiting(&tollgate, &origin);
    let begun = Instant::now();
    tollgate.signal("TERM");
    assert_eq!(tollgate.wait().code(), Some(0));
    assert!(begun.elapsed() >= Duration::from_millis(300), "it was not given its time");
    assert!(client.try_reply().is_err());
    eventually("it is logged", || tollgate.has_logged(&["shutdown.drain is over"]));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let (origin, _release) = in_two_parts(b"", b"");
    let mut tollgate = Tollgate::start(Config::new(&[origin.address], "shutdown: { drain: 1h }\n"));
    let mut client = waiting(&tollgate, &origin);
    tollgate.signal("TERM");
    eventually("it is not ready", || tollgate.admin("GET", "/readyz").status == 503);
    tollgate.signal("TERM");
    assert_eq!(tollgate.wait().code(), Some(1), "not a graceful end");
    assert!(client.try_reply().is_err());
}

/// As clients see a rolling restart: a connection that was accepted is answered. The exception is the instant
/// between the last look at the kernel's queue and its end, which no program can close.
#[test]
fn requests_on_new_connections_are_not_lost() {
    const ROUNDS: usize = 10;
    let origin = Origin::ok();
    let lost = AtomicUsize::new(0);
    for _ in 0..ROUNDS {
        let mut tollgate = before(&origin);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    // Until nobody listens any more.
                    while let Some(mut client) = Client::try_connect(tollgate.address) {
                        let sent = client.stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
                        let reply = sent.and_then(|()| client.try_reply());
                        lost.fetch_add(usize::from(reply.is_err()), Ordering::SeqCst);
                    }
                });
            }
            eventually("they are served", || origin.heads().len() > 20);
            tollgate.signal("TERM");
        });
        assert_eq!(tollgate.wait().code(), Some(0));
    }
    let lost = lost.into_inner();
    assert!(lost < ROUNDS / 3, "{lost} lost");
}

#[test]
fn a_signal_right_after_the_start_is_no_surprise() {
    for _ in 0..10 {
        let mut tollgate = Tollgate::start(Config::new(&[super::nobody()], ""));
        tollgate.signal("TERM");
        assert_eq!(tollgate.wait().code(), Some(0));
    }
}

#[test]
fn the_last_lines_of_the_access_log_are_written() {
    let origin = Origin::ok();
    let mut tollgate =
        Tollgate::start(Config::new(&[origin.address], "access_log: { format: combined, to: stdout }\n"));
    let mut client = Client::connect(tollgate.address);
    for number in 0..50 {
        assert_eq!(client.request("GET", &format!("/{number}"), &[], b"").status, 200);
    }
    tollgate.signal("TERM");
    assert_eq!(tollgate.wait().code(), Some(0));
    eventually("all lines are there", || tollgate.stdout().len() == 50);
}
