//! Connections on which nothing happens give their buffers back, and nobody notices.

use std::{
    io::{Read, Write},
    thread,
    time::Duration,
};

use crate::harness::{Client, Config, Origin, Tollgate};

/// Longer than a connection keeps its buffers.
pub(crate) const SILENCE: Duration = Duration::from_millis(600);

/// A connection serves on after a silence, whatever it is on.
pub(crate) fn serves_on_after_a_silence<S: Read + Write>(client: &mut Client<S>) {
    thread::sleep(SILENCE);
    for _ in 0..2 {
        assert_eq!(client.request("GET", "/", &[], b"").status, 200);
        thread::sleep(SILENCE);
    }
    assert_eq!(client.request("POST", "/", &[], b"body").status, 200);
}

/// What came with the request before a silence is not lost: over TLS, what was in the same record.
pub(crate) fn keeps_what_came_before_a_silence<S: Read + Write>(client: &mut Client<S>, origin: &Origin) {
    client.send("GET /first HTTP/1.1\r\nhost: a\r\n\r\nGET /second HTT");
    assert_eq!(client.reply().status, 200);
    thread::sleep(SILENCE);
    client.send("P/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.reply().status, 200);
    assert!(origin.heads()[1].starts_with("GET /second HTTP/1.1\r\n"));
}

/// How much memory an idle connection takes, in KiB.
pub(crate) fn kib_of_an_idle_connection<S: Read + Write>(
    tollgate: &Tollgate,
    connect: impl Fn() -> Client<S>,
) -> u64 {
    let idle = |count: usize| -> Vec<Client<S>> {
        let clients = (0..count).map(|_| {
            let mut client = connect();
            assert_eq!(client.request("GET", "/", &[], b"").status, 200);
            client
        });
        let clients = clients.collect();
        thread::sleep(SILENCE);
        clients
    };
    // What the first take is the process's: code that runs for the first time, and threads that begin.
    let _first = idle(100);
    let before = tollgate.resident_kib();
    let clients = idle(400);
    (tollgate.resident_kib() - before) / clients.len() as u64
}

#[test]
fn a_connection_serves_on_after_a_silence() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    serves_on_after_a_silence(&mut Client::connect(tollgate.address));
    assert_eq!(origin.heads().len(), 3);
}

#[test]
fn the_beginning_of_a_request_that_came_with_the_last_one_is_not_lost() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    keeps_what_came_before_a_silence(&mut Client::connect(tollgate.address), &origin);
}

#[test]
fn a_body_that_comes_after_its_answer_is_no_request() {
    let origin = Origin::start(|conn| {
        while conn.head()?.is_some() {
            conn.answer("200 OK", &[], b"early")?;
        }
        Ok(())
    });
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n");
    assert_eq!(client.reply().status, 200);
    thread::sleep(SILENCE);
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    // The connection may have ended by now; what matters is what the origin sees.
    let _ = client.stream.write_all(smuggled.as_bytes());
    assert!(client.closed());
    assert!(!origin.heads().iter().any(|head| head.contains("smuggled")));
}

#[test]
fn idle_connections_cost_little() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let each = kib_of_an_idle_connection(&tollgate, || Client::connect(tollgate.address));
    eprintln!("{each} KiB a connection");
    assert!(each <= 6, "{each} KiB a connection");
}
