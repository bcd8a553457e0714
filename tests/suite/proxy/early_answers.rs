//! An origin that answers before it has read the request: the client gets that answer.

use std::{io::Write, thread, time::Duration};

use super::before;
use crate::harness::{Client, Config, Latch, Origin, PATIENCE, Reply, Tollgate};

const ROUNDS: usize = 50;

fn refuses_uploads() -> Origin {
    Origin::start(|conn| {
        conn.head()?;
        // Closed with most of the body unread, which resets the connection.
        conn.answer("413 Content Too Large", &[("connection", "close")], b"too large")
    })
}

/// Uploads while it reads, as curl does.
fn upload(tollgate: &Tollgate, framing: &str, piece: &[u8], pieces: usize) -> Reply {
    let mut client = Client::connect(tollgate.address);
    client.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n"));
    let mut stream = client.stream.try_clone().unwrap();
    let piece = piece.to_vec();
    let writer = thread::spawn(move || (0..pieces).try_for_each(|_| stream.write_all(&piece)));
    let reply = client.reply();
    let _ = client.stream.shutdown(std::net::Shutdown::Both);
    let _ = writer.join().unwrap();
    reply
}

#[test]
fn a_refused_upload_gets_the_refusal_every_time() {
    let origin = refuses_uploads();
    let tollgate = before(&origin);
    let chunk = [b"10000\r\n".as_slice(), &[b'x'; 65536], b"\r\n"].concat();
    for (framing, piece) in
        [("content-length: 8388608", &[b'x'; 65536][..]), ("transfer-encoding: chunked", &chunk)]
    {
        for round in 0..ROUNDS {
            let reply = upload(&tollgate, framing, piece, 128);
            assert_eq!((reply.status, reply.text().as_str()), (413, "too large"), "{framing}, round {round}");
        }
    }
}

#[test]
fn a_client_that_reads_only_after_its_upload_gets_the_refusal() {
    let origin = refuses_uploads();
    let tollgate = before(&origin);
    for round in 0..ROUNDS {
        let mut client = Client::connect(tollgate.address);
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 524288\r\n\r\n");
        let sent = client.stream.write_all(&[b'x'; 512 << 10]);
        assert_eq!(client.reply().status, 413, "round {round}, after {sent:?}");
    }
}

#[test]
fn an_early_answer_is_streamed_whole_though_the_upload_is_not() {
    let origin = Origin::start(|conn| {
        conn.head()?;
        conn.send(b"HTTP/1.1 403 Forbidden\r\ntransfer-encoding: chunked\r\n\r\n")?;
        for _ in 0..32 {
            thread::sleep(Duration::from_millis(2));
            conn.send(format!("8000\r\n{}\r\n", "x".repeat(0x8000)).as_bytes())?;
        }
        conn.send(b"0\r\n\r\n")?;
        // Closed at once, with the upload unread, its end would be reset before a proxy that is slow has read it.
        conn.closed();
        Ok(())
    });
    let tollgate = before(&origin);
    let reply = upload(&tollgate, "content-length: 8388608", &[b'x'; 65536], 128);
    assert_eq!((reply.status, reply.body.len()), (403, 1 << 20));
}

#[test]
fn the_connection_of_a_request_answered_early_is_not_used_again() {
    let rest_seen = Latch::new();
    let seen = rest_seen.clone();
    let origin = Origin::start(move |conn| {
        conn.head()?;
        conn.answer("200 OK", &[], b"early")?;
        if conn.number == 0 {
            assert!(conn.closed());
            seen.open();
        }
        Ok(())
    });
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\nhalf");
    let reply = client.reply();
    assert_eq!((reply.text().as_str(), reply.header("connection")), ("early", Some("close")));
    assert!(rest_seen.opens_within(PATIENCE), "the origin still waits for the body");
    assert!(client.closed(), "what the client sends next could be taken for a request");
    assert_eq!(crate::harness::get(tollgate.address, "/", &[]).text(), "early");
    assert_eq!(origin.connections(), 2);
}

#[test]
fn an_early_answer_may_pause_when_its_upload_has_ended() {
    let (uploaded, answered) = (Latch::new(), Latch::new());
    let (seen, asked) = (uploaded.clone(), answered.clone());
    let origin = Origin::start(move |conn| {
        conn.head()?;
        conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nbegun")?;
        asked.open();
        conn.take(5)?;
        seen.open();
        // Longer than an answer may take to begin.
        thread::sleep(Duration::from_millis(2_500));
        conn.send(b"ended")
    });
    let settings = "timeouts: { response: 1s, idle: 60s }, request_buffering: 0";
    let tollgate = Tollgate::start(Config::upstream(&[origin.address], settings, ""));
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n");
    assert!(answered.opens_within(PATIENCE));
    assert_eq!(client.head().status, 200);
    assert_eq!(client.take(5).unwrap(), b"begun");
    client.send("piece");
    assert!(uploaded.opens_within(PATIENCE));
    assert_eq!(client.take(5).unwrap(), b"ended");
}
