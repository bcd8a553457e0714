//! What a client may ask of the proxy itself: the size of a head, connections, and time.

use std::{
    io::{ErrorKind, Write},
    time::{Duration, Instant},
};

use crate::harness::{Client, Config, Origin, Tollgate, eventually, get, program};

fn start(limits: &str) -> (Origin, Tollgate) {
    let origin = Origin::ok();
    let tollgate =
        Tollgate::start(Config::new(&[origin.address], &format!("client_limits: {{ {limits} }}\n")));
    (origin, tollgate)
}

/// The status that a head gets, and whether the connection is closed then.
fn refused(tollgate: &Tollgate, head: &str) -> (u16, bool) {
    let mut client = Client::sending(tollgate.address, head);
    (client.reply().status, client.closed())
}

#[test]
fn a_head_is_as_large_as_configured_and_no_larger() {
    let (origin, tollgate) = start("header_size: 4KiB");
    let head = |size: usize| {
        let frame = "GET / HTTP/1.1\r\nhost: a\r\nx: \r\n\r\n".len();
        format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(size - frame))
    };
    let mut client = Client::connect(tollgate.address);
    assert_eq!(client.send(head(4096)).reply().status, 200);
    assert_eq!(refused(&tollgate, &head(4097)), (431, true));
    assert_eq!(origin.heads().len(), 1);
}

#[test]
fn a_head_of_a_megabyte_is_refused() {
    let (origin, tollgate) = start("header_size: 4KiB");
    let head = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    assert_eq!(refused(&tollgate, &head), (431, true));
    assert_eq!(origin.received().concat(), "");
}

#[test]
fn a_head_has_as_many_fields_as_configured_and_no_more() {
    for (limits, most) in [("headers: 5", 5), ("headers: 100", 100), ("headers: 300", 300)] {
        let (origin, tollgate) = start(limits);
        let head =
            |fields: usize| format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(fields - 1));
        let mut client = Client::connect(tollgate.address);
        assert_eq!(client.send(head(most)).reply().status, 200, "{limits}");
        assert_eq!(refused(&tollgate, &head(most + 1)), (431, true), "{limits}");
        assert_eq!(origin.heads().len(), 1, "{limits}");
    }
}

#[test]
fn a_target_that_is_too_long_is_refused() {
    let (origin, tollgate) = start("header_size: 1MiB");
    let head = |path: String| format!("GET /{path} HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(refused(&tollgate, &head("a".repeat(70_000))), (414, true));
    assert_eq!(refused(&tollgate, &head("/a".repeat(2_000))), (414, true));
    assert_eq!(origin.received().concat(), "");
}

#[test]
fn a_silent_connection_is_closed_after_header_timeout() {
    let (_origin, tollgate) = start("header_timeout: 300ms");
    let started = Instant::now();
    assert!(Client::connect(tollgate.address).closed());
    assert!(started.elapsed() >= Duration::from_millis(250), "closed after {:?}", started.elapsed());
}

#[test]
fn a_first_or_second_head_or_empty_lines_that_drip_are_closed_after_header_timeout() {
    let begun = "GET / HTTP/1.1\r\nhost: a\r\nx: ";
    for (requests, begun, drip) in [(0, begun, "y"), (1, begun, "y"), (0, "", "\r\n")] {
        let (origin, tollgate) = start("header_timeout: 300ms");
        let mut client = Client::connect(tollgate.address);
        for _ in 0..requests {
            assert_eq!(client.request("GET", "/", &[], b"").status, 200);
        }
        client.send(begun);
        eventually(&format!("the connection is closed while {drip:?} keeps coming"), || {
            client.stream.write_all(drip.as_bytes()).is_err()
        });
        let seen = (origin.heads().len(), origin.connections());
        assert_eq!(seen, (requests, requests), "{requests} requests, then {begun:?}");
    }
}

#[test]
fn an_idle_connection_is_closed_after_idle_timeout() {
    let (_origin, tollgate) = start("idle_timeout: 300ms");
    let mut client = Client::connect(tollgate.address);
    let started = Instant::now();
    assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    assert!(client.closed());
    assert!(started.elapsed() >= Duration::from_millis(300), "closed after {:?}", started.elapsed());
}

#[test]
fn a_connection_in_use_is_not_idle() {
    let (_origin, tollgate) = start("idle_timeout: 3s, header_timeout: 3s");
    let mut client = Client::connect(tollgate.address);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(6) {
        assert_eq!(client.request("GET", "/", &[], b"").status, 200);
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_origin_may_take_longer_than_a_client_may_be_idle() {
    let origin = Origin::start(|conn| {
        conn.head()?;
        std::thread::sleep(Duration::from_millis(600));
        conn.answer("200 OK", &[], b"late")
    });
    let limits = "client_limits: { idle_timeout: 200ms, header_timeout: 200ms }\n";
    let tollgate = Tollgate::start(Config::new(&[origin.address], limits));
    assert_eq!(get(tollgate.address, "/", &[]).text(), "late");
}

#[test]
fn a_client_that_does_not_read_its_answer_is_closed_and_so_is_the_upstream() {
    let origin = Origin::start(|conn| {
        conn.head()?;
        conn.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
        let chunk = [b"10000\r\n".as_slice(), &[b'x'; 1 << 16], b"\r\n"].concat();
        // It ends with an error, once nobody takes the chunks any more.
        loop {
            conn.send(&chunk)?;
        }
    });
    let tollgate =
        Tollgate::start(Config::new(&[origin.address], "client_limits: { idle_timeout: 300ms }\n"));
    let mut client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("the origin's connection ends", || origin.ended() == 1);
    client.broken_off();
}

#[test]
fn a_client_that_reads_slowly_is_served_to_the_end() {
    let body = "x".repeat(24 << 20);
    let length = body.len();
    let origin = Origin::start(move |conn| {
        conn.head()?;
        conn.answer("200 OK", &[], body.as_bytes())
    });
    let tollgate = Tollgate::start(Config::new(&[origin.address], "client_limits: { idle_timeout: 3s }\n"));
    let mut client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    let reply = client.head();
    assert_eq!(reply.header("content-length"), Some(length.to_string().as_str()));
    // Longer than the timeout altogether, never for as long as it.
    for _ in 0..8 {
        client.take(length / 8).unwrap();
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn connections_beyond_the_cap_are_closed_until_one_is_free() {
    let (_origin, tollgate) = start("connections: 2");
    let mut held: Vec<_> = (0..2).map(|_| Client::connect(tollgate.address)).collect();
    for client in &mut held {
        assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    }
    assert!(Client::connect(tollgate.address).closed());
    assert_eq!(held[0].request("GET", "/", &[], b"").status, 200);
    held.pop();
    eventually("a place is free", || {
        let mut client = Client::connect(tollgate.address);
        // One that is refused is closed before or after it has sent this.
        let sent = client.stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        sent.is_ok() && client.try_reply().is_ok_and(|reply| reply.status == 200)
    });
}

#[test]
fn a_refused_connection_is_counted() {
    let (_origin, tollgate) = start("connections: 1");
    let mut held = Client::connect(tollgate.address);
    assert_eq!(held.request("GET", "/", &[], b"").status, 200);
    let mut refused = Client::connect(tollgate.address);
    let error = refused.try_reply().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{error}");
    eventually("it is counted", || tollgate.metric("tollgate_connections_refused") == 1.0);
}

#[test]
fn idle_connections_of_one_address_leave_files_for_others() {
    let origin = Origin::ok();
    for connections in [10_000, 100] {
        let mut limited = program("bash", "bash");
        limited.args(["-c", "ulimit -n 120; exec \"$0\" run --config proxy.yaml"]);
        limited.arg(env!("CARGO_BIN_EXE_tollgate"));
        let limits = format!("client_limits: {{ connections: {connections} }}\n");
        let tollgate = Tollgate::launch(limited, Config::new(&[origin.address], &limits));
        let mut idle = Vec::new();
        for _ in 0..150 {
            let mut client = Client::connect_from([127, 0, 0, 2].into(), tollgate.address);
            // Those beyond what one address may have are closed at once.
            let _closed = client.stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
            let _closed = client.try_reply();
            idle.push(client);
        }
        for last in 10..40 {
            let mut other = Client::connect_from([127, 0, 0, last].into(), tollgate.address);
            assert_eq!(other.request("GET", "/", &[], b"").status, 200, "{last}: {:?}", tollgate.log());
        }
        drop(idle);
        assert!(!tollgate.has_logged(&["can't be accepted"]), "{:?}", tollgate.log());
    }
}

#[test]
fn a_limit_of_open_files_that_does_not_suffice_is_told_at_the_start() {
    let origin = Origin::ok();
    let warns = |connections: u32| {
        let mut limited = program("bash", "bash");
        limited.args(["-c", "ulimit -n 300; exec \"$0\" run --config proxy.yaml"]);
        limited.arg(env!("CARGO_BIN_EXE_tollgate"));
        let limits = format!("client_limits: {{ connections: {connections} }}\n");
        let tollgate = Tollgate::launch(limited, Config::new(&[origin.address], &limits));
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
        tollgate.has_logged(&["the limit of open files is 300, too low for"])
    };
    assert!(warns(300) && !warns(100));
}
