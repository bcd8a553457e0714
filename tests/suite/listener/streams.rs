//! Bytes over TLS: how connections rest, stall, break off and end.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustls::{ClientConnection, pki_types::ServerName};

use super::Https;
use crate::{
    harness::{Origin, TLS_VERSIONS, TlsConnector, eventually},
    proxy::parking::{
        SILENCE, keeps_what_came_before_a_silence, kib_of_an_idle_connection, serves_on_after_a_silence,
    },
};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// `size` bytes that do not repeat.
fn noise(size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    fastrand::Rng::with_seed(size as u64).fill(&mut bytes);
    bytes
}

/// Answers each request with its own body.
fn mirror() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            let (body, _) = conn.body(&head)?;
            conn.answer("200 OK", &[], &body)?;
        }
        Ok(())
    })
}

#[test]
fn bodies_arrive_byte_by_byte_as_they_were_sent() {
    let origin = mirror();
    let https = Https::before(&origin);
    for (_, version) in TLS_VERSIONS {
        let connector = TlsConnector::speaking(&https.authority, version);
        let mut client = connector.connect(https.address(), "localhost").unwrap().into_http();
        // Around the largest record, and many of them.
        for size in [1, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 12 << 20] {
            let sent = noise(size);
            let mut writer = Vec::new();
            write!(writer, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {size}\r\n\r\n").unwrap();
            writer.extend_from_slice(&sent);
            client.send(writer);
            assert!(client.reply().body == sent, "{size} bytes over {version:?}");
        }
    }
}

#[test]
fn a_slow_reader_gets_everything_and_keeps_nobody_waiting() {
    const SIZE: usize = 24 << 20;
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            let size = if head.starts_with("GET /large") { SIZE } else { 2 };
            conn.answer("200 OK", &[], &noise(size))?;
        }
        Ok(())
    });
    let https = Https::with(&origin, "", "workers: 1\n");
    let mut slow = https.connect();
    slow.send("GET /large HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("the answer begins", || origin.heads().len() == 1);
    let before = https.tollgate.resident_kib();
    // While it reads nothing, the others go on, and the answer stays with the origin.
    let end = Instant::now() + Duration::from_millis(800);
    let mut others = https.connect();
    while Instant::now() < end {
        assert_eq!(others.request("GET", "/", &[], b"").status, 200);
    }
    let grown = https.tollgate.resident_kib().saturating_sub(before);
    assert!(grown < 8 << 10, "{grown} KiB for an answer that nobody reads");
    assert!(slow.reply().body == noise(SIZE));
}

#[test]
fn a_connection_serves_on_after_a_silence() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    for (_, version) in TLS_VERSIONS {
        let connector = TlsConnector::speaking(&https.authority, version);
        serves_on_after_a_silence(&mut connector.connect(https.address(), "localhost").unwrap().into_http());
    }
}

#[test]
fn bytes_that_came_in_the_record_before_a_silence_are_not_lost() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    // One record: TLS has decrypted the second request's beginning with the first request.
    keeps_what_came_before_a_silence(&mut https.connect(), &origin);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let origin = Origin::echo();
    let https = Https::before(&origin);
    let mut client = https.connect();
    let requests = (0..20).map(|number| format!("GET /{number} HTTP/1.1\r\nhost: a\r\n\r\n"));
    client.send(requests.collect::<String>());
    for number in 0..20 {
        assert_eq!(client.reply().json()["target"], format!("/{number}"));
    }
}

#[test]
fn a_refused_upload_gets_the_refusal_every_time() {
    let origin = Origin::start(|conn| {
        conn.head()?;
        // Closed with most of the body unread, which resets the connection.
        conn.answer("413 Content Too Large", &[("connection", "close")], b"too large")
    });
    let https = Https::before(&origin);
    let connector = https.connector();
    for round in 0..20 {
        let mut client = connector.connect(https.address(), "localhost").unwrap().into_http();
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 524288\r\n\r\n");
        // It reads only after it has sent everything, or could not.
        let sent = client.stream.write_all(&[b'x'; 512 << 10]);
        let reply = client.try_reply().unwrap_or_else(|error| panic!("round {round}: {error}, {sent:?}"));
        assert_eq!((reply.status, reply.text().as_str()), (413, "too large"), "round {round}, {sent:?}");
    }
}

#[test]
fn the_end_of_a_connection_is_said_within_tls() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    let mut client = https.connect();
    client.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert_eq!(client.reply().text(), "ok");
    // rustls reports an end without close_notify as an error (RFC 8446, 6.1).
    assert!(client.closed_in_order());
}

#[test]
fn a_client_that_says_its_end_between_requests_is_told_the_same() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    for (requests, silence) in [(0, false), (1, false), (1, true)] {
        let mut client = https.connect();
        for _ in 0..requests {
            assert_eq!(client.request("GET", "/", &[], b"").status, 200);
        }
        if silence {
            thread::sleep(SILENCE);
        }
        client.stream.conn.send_close_notify();
        client.stream.flush().unwrap();
        assert!(client.closed_in_order(), "after {requests} requests");
    }
}

#[test]
fn a_client_that_leaves_without_a_word_frees_its_slot() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    let clients = (0..8).map(|_| {
        let mut client = https.connect();
        assert_eq!(client.request("GET", "/", &[], b"").status, 200);
        client
    });
    let clients: Vec<_> = clients.collect();
    eventually("all are counted", || https.tollgate.metric("tollgate_connections") == 8.0);
    for (number, client) in clients.into_iter().enumerate() {
        // No close_notify: the socket alone is closed, or reset.
        let socket = client.stream.sock.try_clone().unwrap();
        if number % 2 == 0 {
            socket.shutdown(Shutdown::Both).unwrap();
        } else {
            socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop((client, socket));
    }
    eventually("all slots are free", || https.tollgate.metric("tollgate_connections") == 0.0);
    let complaints: Vec<_> = https
        .tollgate
        .log()
        .into_iter()
        .filter(|line| line.contains("WARN") || line.contains("ERROR"))
        .collect();
    assert!(!complaints.iter().any(|line| line.contains("connection")), "{complaints:#?}");
}

#[test]
fn an_upload_that_breaks_off_is_no_whole_upload() {
    for framing in ["content-length: 100000\r\n\r\nhalf", "transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"] {
        for is_said in [false, true] {
            let origin = Origin::start(|conn| {
                let head = conn.head()?.unwrap();
                let body = conn.body(&head);
                assert!(body.is_err(), "taken for a whole one: {body:?}");
                Ok(())
            });
            let https = Https::before(&origin);
            let mut client = https.connect();
            client.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}"));
            eventually("the origin has the head", || origin.heads().len() == 1);
            if is_said {
                client.stream.conn.send_close_notify();
                client.stream.flush().unwrap();
            } else {
                client.stream.sock.shutdown(Shutdown::Write).unwrap();
            }
            eventually("the origin sees the end", || origin.ended() == 1);
        }
    }
}

#[test]
fn a_client_that_says_its_end_amid_a_request_is_gone() {
    for is_said in [false, true] {
        let origin = Origin::sink();
        let https = Https::before(&origin);
        let mut client = https.connect();
        client.send(GET);
        // Not only connected to: a connection over which nothing was sent is kept.
        eventually("the origin is asked", || origin.received().concat().starts_with("GET "));
        if is_said {
            client.stream.conn.send_close_notify();
            client.stream.flush().unwrap();
        } else {
            client.stream.sock.shutdown(Shutdown::Write).unwrap();
        }
        // As over plain HTTP: the request is given up.
        eventually("the origin sees the end", || origin.ended() == 1);
        eventually("the slot is free", || https.tollgate.metric("tollgate_connections") == 0.0);
    }
}

/// The first bytes of a handshake.
fn client_hello(https: &Https) -> Vec<u8> {
    let mut hello = Vec::new();
    let config = Arc::clone(https.connector().config());
    let mut session = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
    session.write_tls(&mut hello).unwrap();
    hello
}

#[test]
fn a_client_that_stops_amid_the_handshake_is_closed_in_time() {
    let origin = Origin::ok();
    let limits = "client_limits: { header_timeout: 3s, connections: 4 }\n";
    let https = Https::with(&origin, "", limits);
    let hello = client_hello(&https);
    let began = Instant::now();
    // Before, amid and behind the ClientHello.
    let stopped = [0, 1, hello.len() / 2, hello.len()].map(|length| {
        let mut stream = TcpStream::connect(https.address()).unwrap();
        stream.write_all(&hello[..length]).unwrap();
        stream
    });
    eventually("they hold all slots", || https.tollgate.metric("tollgate_connections") == 4.0);
    for mut stream in stopped {
        stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
        let mut rest = Vec::new();
        if let Err(error) = stream.read_to_end(&mut rest) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    }
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(2_950) && took < Duration::from_secs(15), "{took:?}");
    eventually("their slots are free", || https.tollgate.metric("tollgate_connections") == 0.0);
    https.has_failed("timeout", 4.0);
    let mut client = https.connect();
    assert_eq!(client.request("GET", "/", &[], b"").status, 200);
}

#[test]
fn bytes_that_trickle_do_not_prolong_a_handshake() {
    let origin = Origin::ok();
    let https = Https::with(&origin, "", "client_limits: { header_timeout: 1s }\n");
    let hello = client_hello(&https);
    let mut stream = TcpStream::connect(https.address()).unwrap();
    let began = Instant::now();
    for byte in hello.chunks(1) {
        if stream.write_all(byte).is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(30));
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(6), "{took:?}: {} bytes at 30 ms each were taken", hello.len());
    https.has_failed("timeout", 1.0);
}

#[test]
fn idle_connections_cost_little() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    let connector = https.connector();
    let connect = || connector.connect(https.address(), "localhost").unwrap().into_http();
    let each = kib_of_an_idle_connection(&https.tollgate, connect);
    eprintln!("{each} KiB an idle connection");
    assert!(each <= 14, "{each} KiB a connection");
}
