//! A request's body that breaks off is never completed towards the origin.

use std::{io, net::Shutdown};

use crate::harness::{Client, Config, Conn, Origin, Tollgate, eventually};

/// The beginnings of uploads that are passed on as they come: by length, and in chunks.
const UPLOADS: [&str; 2] = [
    "POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\nhello",
    "POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
];

/// Waits until every connection to the origin has ended, and holds that no body came to its end.
#[track_caller]
fn torn_down(origin: &Origin, what: &str) {
    eventually("the origin's connections end", || origin.ended() == origin.connections());
    for received in origin.received() {
        assert!(received.ends_with("hello") || received.ends_with("hello\r\n"), "{what}: {received:?}");
    }
    assert!(!origin.received().is_empty());
}

/// Starts an upload and waits until the origin has what was sent of it.
fn begin(tollgate: &Tollgate, origin: &Origin, upload: &str) -> Client {
    let before = origin.connections();
    let client = Client::sending(tollgate.address, upload);
    eventually("the origin has the upload's beginning", || {
        origin.connections() > before && origin.received()[before].contains("hello")
    });
    client
}

/// Breaks an upload off by `break_off`, in every framing. `settings` are those of the upstream, `rest` is for the top level.
fn broken_off_with(
    [settings, rest]: [&str; 2],
    origin: fn() -> Origin,
    break_off: impl Fn(Client, &mut Tollgate),
) {
    for upload in UPLOADS {
        let origin = origin();
        let mut tollgate = Tollgate::start(Config::upstream(&[origin.address], settings, rest));
        break_off(begin(&tollgate, &origin, upload), &mut tollgate);
        torn_down(&origin, upload);
    }
}

fn broken_off(origin: fn() -> Origin, break_off: fn(Client)) {
    broken_off_with([""; 2], origin, |client, _| break_off(client));
}

/// An origin that answers as soon as it has the head, by `answer`, and then reads on.
fn hasty(answer: &'static str) -> Origin {
    Origin::start(move |conn| {
        conn.head()?;
        conn.send(answer.as_bytes())?;
        conn.closed();
        Ok(())
    })
}

/// One whose answer goes on for as long as the upload.
fn conversing() -> Origin {
    hasty("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n")
}

/// One whose answer is complete before the upload is.
fn early() -> Origin {
    hasty("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
}

#[test]
fn an_upload_that_ends_early_is_never_completed() {
    broken_off(Origin::sink, |mut client| {
        assert_eq!(client.finish().reply().status, 400);
        assert!(client.closed());
    });
}

#[test]
fn an_upload_that_is_reset_is_never_completed() {
    broken_off(Origin::sink, Client::reset);
}

#[test]
fn an_upload_that_ends_early_during_its_answer_breaks_the_answer_off_too() {
    broken_off(conversing, |mut client| {
        client.finish().broken_off();
    });
}

#[test]
fn an_upload_that_is_reset_during_its_answer_is_never_completed() {
    broken_off(conversing, |mut client| {
        assert_eq!(client.head().status, 200);
        client.reset();
    });
}

#[test]
fn an_upload_that_ends_after_its_answer_is_never_completed() {
    for break_off in [|mut client: Client| assert!(client.finish().closed()), Client::reset] {
        for upload in UPLOADS {
            let origin = early();
            let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
            let mut client = Client::sending(tollgate.address, upload);
            assert_eq!(client.reply().text(), "ok");
            break_off(client);
            eventually("the origin's connection ends", || origin.ended() == 1);
            assert!(!origin.received().concat().contains("\r\n0\r\n"), "{:?}", origin.received());
        }
    }
}

#[test]
fn the_rest_of_an_upload_that_was_answered_is_no_request() {
    let origin = early();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut client = Client::connect(tollgate.address);
    client.send("POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n");
    assert_eq!(client.reply().text(), "ok");
    // The proxy may close at any time.
    let _ = io::Write::write_all(&mut client.stream, b"GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n");
    client.finish();
    assert!(client.closed());
    assert_eq!(origin.heads().len(), 1);
}

#[test]
fn a_malformed_chunk_gets_a_400_or_breaks_off_the_answer_and_tears_the_upload_down() {
    for (origin, is_answered) in [(Origin::sink(), false), (conversing(), true)] {
        let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
        let mut client = begin(&tollgate, &origin, UPLOADS[1]);
        client.send("nonsense\r\n0\r\n\r\n");
        if is_answered {
            client.broken_off();
        } else {
            assert_eq!(client.reply().status, 400);
            assert!(client.closed());
        }
        torn_down(&origin, if is_answered { "during the answer" } else { "before the answer" });
    }
}

#[test]
fn an_upload_that_stalls_is_answered_408_and_torn_down() {
    broken_off_with(["", "client_limits: { idle_timeout: 200ms }"], Origin::sink, |mut client, _| {
        let reply = client.reply();
        assert_eq!((reply.status, reply.header("connection")), (408, Some("close")), "{reply:?}");
        assert!(client.closed());
    });
}

#[test]
fn an_upload_that_stalls_together_with_its_answer_breaks_both_off() {
    broken_off_with(["timeouts: { idle: 200ms }", ""], conversing, |mut client, _| client.broken_off());
}

#[test]
fn an_upload_that_the_origin_does_not_take_is_a_504() {
    let origin = Origin::start(|conn| {
        conn.head()?;
        conn.pause()
    });
    let tollgate = Tollgate::start(Config::upstream(&[origin.address], "timeouts: { response: 300ms }", ""));
    let mut client = Client::connect(tollgate.address);
    client.send("POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000000\r\n\r\n");
    let mut sending = client.stream.try_clone().unwrap();
    let upload =
        std::thread::spawn(move || while io::Write::write_all(&mut sending, &[0; 1 << 16]).is_ok() {});
    assert_eq!(client.reply().status, 504);
    assert!(client.closed());
    upload.join().unwrap();
    origin.resume();
}

#[test]
fn an_upload_that_outlasts_the_drain_is_never_completed() {
    broken_off_with(["", "shutdown: { drain: 300ms }"], Origin::sink, |mut client, tollgate| {
        tollgate.signal("TERM");
        tollgate.wait();
        client.broken_off();
    });
}

#[test]
fn an_upload_during_the_drain_is_finished() {
    let origin = Origin::echo();
    let mut tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut client = begin(&tollgate, &origin, UPLOADS[1]);
    tollgate.signal("TERM");
    eventually("it drains", || tollgate.admin("GET", "/readyz").status == 503);
    client.send("6\r\n world\r\n0\r\n\r\n");
    assert_eq!(client.reply().json()["body"], "hello world");
    assert!(client.closed());
    assert!(tollgate.wait().success());
}

#[test]
fn an_origin_that_goes_away_during_an_upload_is_a_502_and_the_upload_is_not_repeated() {
    for upload in UPLOADS {
        let origin = Origin::start(|conn: &mut Conn| {
            conn.head()?;
            conn.take(5)?;
            conn.stream.shutdown(Shutdown::Both)
        });
        let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
        let mut client = Client::sending(tollgate.address, upload);
        assert_eq!(client.reply().status, 502, "{upload:?}");
        assert_eq!(origin.connections(), 1);
    }
}
