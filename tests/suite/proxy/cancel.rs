//! A client that goes away: the origin learns of it at once, and works for nobody no longer.

use std::{net::Shutdown, time::Duration};

use super::before;
use crate::harness::{Client, Latch, Origin, eventually};

/// Far below the timeouts that would end things anyway.
const PROMPTLY: Duration = Duration::from_secs(5);

/// An origin whose connection is opened by `work` and then only waited on; the latches tell that the
/// work was done, and that the connection ended.
fn watched(work: &'static [u8]) -> (Origin, Latch, Latch) {
    let (reached, ended) = (Latch::new(), Latch::new());
    let (reach, end) = (reached.clone(), ended.clone());
    let origin = Origin::start(move |conn| {
        conn.head()?;
        conn.send(work)?;
        reach.open();
        if conn.closed() {
            end.open();
        }
        Ok(())
    });
    (origin, reached, ended)
}

/// The beginnings of uploads, by length and in chunks.
const UPLOADS: [&str; 2] = [
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\nhalf",
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
];

#[test]
fn a_client_that_leaves_before_or_during_the_answer_or_its_upload_cancels_the_work() {
    let get = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".as_slice();
    for (request, work) in [(get, &b""[..]), (get, half), (UPLOADS[0], b""), (UPLOADS[1], b"")] {
        let (origin, reached, ended) = watched(work);
        let tollgate = before(&origin);
        let mut client = Client::sending(tollgate.address, request);
        reached.wait();
        if !work.is_empty() {
            assert_eq!(client.head().status, 200);
        }
        drop(client);
        assert!(ended.opens_within(PROMPTLY), "{request:?}");
        if request == get && work.is_empty() {
            eventually("it is counted", || {
                tollgate.metric("tollgate_requests_total{route=\"/*\",status=\"4xx\"}") > 0.0
            });
        }
    }
}

#[test]
fn a_client_that_leaves_while_it_is_sent_a_stream_cancels_the_work() {
    let ended = Latch::new();
    let end = ended.clone();
    let origin = Origin::start(move |conn| {
        conn.head()?;
        conn.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
        while conn.send(&[b"8000\r\n".as_slice(), &[b'x'; 0x8000], b"\r\n"].concat()).is_ok() {}
        end.open();
        Ok(())
    });
    let tollgate = before(&origin);
    let mut client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    drop(client);
    assert!(ended.opens_within(PROMPTLY));
}

#[test]
fn an_upload_that_broke_off_is_never_completed() {
    for upload in UPLOADS {
        let broken = Latch::new();
        let broke = broken.clone();
        let origin = Origin::start(move |conn| {
            let head = conn.head()?.unwrap();
            assert!(conn.body(&head).is_err(), "a whole body");
            broke.open();
            Ok(())
        });
        let tollgate = before(&origin);
        let client = Client::sending(tollgate.address, upload);
        client.stream.shutdown(Shutdown::Write).unwrap();
        assert!(broken.opens_within(PROMPTLY), "{upload:?}");
    }
}

#[test]
fn a_client_that_leaves_while_it_waits_for_its_turn_leaves_no_gap() {
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
    let tollgate = super::one_worker(&[origin.address], "max_connections: 1");
    let mut first = Client::sending(tollgate.address, "GET /held HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("it is held", || origin.heads().len() == 1);
    let waits = Client::sending(tollgate.address, "GET /left HTTP/1.1\r\nhost: a\r\n\r\n");
    drop(waits);
    release.open();
    assert_eq!(first.reply().status, 200);
    assert_eq!(crate::harness::get(tollgate.address, "/after", &[]).status, 200);
}
