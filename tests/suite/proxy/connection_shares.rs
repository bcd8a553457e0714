//! `max_connections_per_address`: while requests of other addresses wait for a connection, one address keeps no more than
//! its share of them waiting for slow clients.

use std::{
    io::Write,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use socket2::{Domain, Socket, Type};

use crate::harness::{Client, Config, Latch, Origin, Reply, Tollgate, becomes, eventually};

/// Far below the time for which a request waits for a connection, see [`start`].
const PROMPTLY: Duration = Duration::from_secs(10);

/// Eight connections, of which an address may hold two while others wait.
fn start(origin: &Origin, rest: &str) -> Tollgate {
    let settings = "max_connections: 8, timeouts: { connect: 30s }";
    Tollgate::start(Config::upstream(&[origin.address], settings, rest))
}

/// The same, where a request waits in vain, and so not for long.
fn start_where_some_wait_in_vain(origin: &Origin, rest: &str) -> Tollgate {
    let settings = "max_connections: 8, timeouts: { connect: 3s }";
    Tollgate::start(Config::upstream(&[origin.address], settings, rest))
}

/// A client of an address of its own.
fn client(tollgate: &Tollgate, last: u8) -> Client {
    Client::connect_from([127, 0, 0, last].into(), tollgate.address)
}

/// Starts an upload that holds a connection and does not go on.
fn hold(tollgate: &Tollgate, origin: &Origin, last: u8, header: &str) -> Client {
    let before = origin.connections();
    let mut client = client(tollgate, last);
    client
        .send(format!("POST / HTTP/1.1\r\nhost: a\r\n{header}transfer-encoding: chunked\r\n\r\n1\r\nx\r\n"));
    eventually("the upload reaches the origin", || origin.connections() > before);
    client
}

/// A GET of another address, and how long it took.
fn get(tollgate: &Tollgate, last: u8, header: &str) -> (Reply, Duration) {
    let mut client = client(tollgate, last);
    let begun = Instant::now();
    client.send(format!("GET / HTTP/1.1\r\nhost: a\r\n{header}\r\n"));
    (client.reply(), begun.elapsed())
}

#[track_caller]
fn served_promptly((reply, took): (Reply, Duration)) {
    assert_eq!(reply.status, 200, "{reply:?} after {took:?}");
    assert!(took < PROMPTLY, "after {took:?}");
}

fn broken_off(tollgate: &Tollgate) -> f64 {
    ["request", "response"]
        .map(|body| {
            let labels = format!("{{body=\"{body}\",reason=\"max_connections_per_address\"}}");
            tollgate.metric(&format!("tollgate_requests_cut_off_total{labels}"))
        })
        .iter()
        .sum()
}

#[test]
fn slow_uploads_of_one_address_make_room_for_others_the_slowest_first() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    let mut uploads: Vec<_> = (0..8).map(|_| hold(&tollgate, &origin, 1, "")).collect();
    for upload in 0..6 {
        served_promptly(get(&tollgate, 2 + upload, ""));
        if upload == 0 {
            let reply = uploads[0].reply();
            assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{reply:?}");
            assert!(reply.text().contains("at capacity"), "{}", reply.text());
            assert!(uploads[0].closed());
        }
    }
    // One connection sufficed for all of them.
    assert_eq!(broken_off(&tollgate), 1.0);
    let last = uploads.pop().unwrap();
    assert!(!last.has_something_to_read(), "the last upload goes on");
}

#[test]
fn trickled_uploads_are_slow_as_well() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    let uploads: Vec<_> = (0..8).map(|_| hold(&tollgate, &origin, 1, "")).collect();
    let stop = Latch::new();
    let stopped = stop.clone();
    let mut streams: Vec<_> = uploads.iter().map(|upload| upload.stream.try_clone().unwrap()).collect();
    // Each waits for its client for 20 ms at a time.
    let trickling = thread::spawn(move || {
        while !stopped.opens_within(Duration::from_millis(20)) {
            for stream in &mut streams {
                let _broken_off = stream.write_all(b"1\r\nx\r\n");
            }
        }
    });
    thread::sleep(Duration::from_millis(500));
    served_promptly(get(&tollgate, 2, ""));
    stop.open();
    trickling.join().unwrap();
}

#[test]
fn slow_readers_of_one_address_make_room_for_others() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            if head.starts_with("GET /big") {
                conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")?;
                loop {
                    conn.send(&[b'x'; 1 << 16])?;
                }
            }
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    let tollgate = start(&origin, "");
    let reader = || {
        let before = origin.connections();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(8 << 10).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.connect(&tollgate.address.into()).unwrap();
        let mut stream = std::net::TcpStream::from(socket);
        stream.write_all(b"GET /big HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        eventually("the origin answers", || origin.connections() > before);
        stream
    };
    let readers: Vec<_> = (0..8).map(|_| reader()).collect();
    served_promptly(get(&tollgate, 2, ""));
    assert_eq!(broken_off(&tollgate), 1.0);
    drop(readers);
}

#[test]
fn several_newcomers_at_once_are_all_served() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    let _uploads: Vec<_> = (0..8).map(|_| hold(&tollgate, &origin, 1, "")).collect();
    thread::scope(|scope| {
        for last in 2..8 {
            let tollgate = &tollgate;
            scope.spawn(move || served_promptly(get(tollgate, last, "")));
        }
    });
    assert!(broken_off(&tollgate) <= 6.0, "the share is left to it");
}

#[test]
fn an_address_alone_and_addresses_within_their_share_lose_no_connection() {
    for (case, uploads_of_each, newcomer) in [("one address alone", 8, 1), ("four within their share", 2, 9)]
    {
        let origin = Origin::ok();
        let tollgate = start_where_some_wait_in_vain(&origin, "");
        let uploads: Vec<_> =
            (0..8).map(|upload| hold(&tollgate, &origin, 1 + upload / uploads_of_each, "")).collect();
        assert_eq!(get(&tollgate, newcomer, "").0.status, 503, "{case}");
        assert_eq!(broken_off(&tollgate), 0.0, "{case}");
        for mut upload in uploads {
            assert_eq!(upload.send("0\r\n\r\n").reply().status, 200, "{case}");
        }
    }
}

#[test]
fn a_share_of_all_connections_sets_no_bound() {
    let origin = Origin::ok();
    let settings = "max_connections: 8, max_connections_per_address: 100%";
    let tollgate = Tollgate::start(Config::upstream(&[origin.address], settings, ""));
    let _uploads: Vec<_> = (0..8).map(|_| hold(&tollgate, &origin, 1, "")).collect();
    assert_eq!(get(&tollgate, 2, "").0.status, 503);
    assert_eq!(broken_off(&tollgate), 0.0);
}

/// An origin that answers `/held` when the test resumes it, one request at a time.
fn holding() -> Origin {
    Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            if head.starts_with("GET /held") {
                conn.pause()?;
            }
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    })
}

fn ask(tollgate: &Tollgate, last: u8, path: &str) -> Client {
    let mut client = client(tollgate, last);
    client.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n"));
    client
}

#[test]
fn requests_that_wait_for_the_origin_are_not_broken_off() {
    let origin = holding();
    let tollgate = start_where_some_wait_in_vain(&origin, "");
    let held: Vec<_> = (0..8).map(|_| ask(&tollgate, 1, "/held")).collect();
    eventually("all are held", || origin.heads().len() == 8);
    assert_eq!(ask(&tollgate, 2, "/").reply().status, 503);
    assert_eq!(broken_off(&tollgate), 0.0);
    for _ in &held {
        origin.resume();
    }
    for mut client in held {
        assert_eq!(client.reply().status, 200);
    }
}

#[test]
fn a_connection_goes_to_the_address_that_holds_least_and_the_queue_has_room_for_it() {
    let origin = holding();
    let settings = "max_connections: 8, timeouts: { connect: 15s }";
    let tollgate = Tollgate::start(Config::upstream(&[origin.address], settings, ""));
    let _held: Vec<_> = (0..8).map(|_| ask(&tollgate, 1, "/held")).collect();
    eventually("all are held", || origin.heads().len() == 8);
    // As many as the queue has places.
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let client = ask(&tollgate, 1, "/waits");
            client.wait_until_read();
            client
        })
        .collect();
    let mut newcomer = ask(&tollgate, 2, "/newcomer");
    eventually("one of the many loses its place", || {
        waiting.iter().filter(|client| client.has_something_to_read()).count() == 1
    });
    origin.resume();
    assert_eq!(newcomer.reply().status, 200);
    assert!(origin.heads()[8].starts_with("GET /newcomer"), "{:?}", origin.heads());
}

#[test]
fn the_address_is_the_client_s_own_behind_a_trusted_proxy() {
    let origin = Origin::ok();
    let tollgate = start_where_some_wait_in_vain(&origin, "trusted_proxies: [127.0.0.1]\n");
    let _uploads: Vec<_> =
        (0..8).map(|_| hold(&tollgate, &origin, 1, "x-forwarded-for: 203.0.113.1\r\n")).collect();
    assert_eq!(get(&tollgate, 1, "x-forwarded-for: 203.0.113.1\r\n").0.status, 503);
    assert_eq!(broken_off(&tollgate), 0.0);
    served_promptly(get(&tollgate, 1, "x-forwarded-for: 203.0.113.2\r\n"));
}

#[test]
fn ipv6_addresses_count_by_their_prefix() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "trusted_proxies: [127.0.0.1]\n");
    let _uploads: Vec<_> = (0..8)
        .map(|upload| hold(&tollgate, &origin, 1, &format!("x-forwarded-for: 2001:db8::{upload}\r\n")))
        .collect();
    served_promptly(get(&tollgate, 1, "x-forwarded-for: 2001:db8:0:1::1\r\n"));
    assert_eq!(broken_off(&tollgate), 1.0);
}

#[test]
fn tunnels_of_one_address_make_room_for_others_the_longest_open_first() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            if head.contains("upgrade: websocket") {
                conn.send(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")?;
                conn.closed();
                return Ok(());
            }
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    let tollgate = start(&origin, "");
    let mut tunnels: Vec<_> = (0..8)
        .map(|_| {
            let mut tunnel = client(&tollgate, 1);
            tunnel.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
            assert_eq!(tunnel.head().status, 101);
            tunnel
        })
        .collect();
    served_promptly(get(&tollgate, 2, ""));
    // A Close with 1013: try again later.
    let close = tunnels[0].take(4).unwrap();
    assert_eq!((close[0], u16::from_be_bytes([close[2], close[3]])), (0x88, 1013));
    assert!(!tunnels[7].has_something_to_read());
    let labels = "{body=\"tunnel\",reason=\"max_connections_per_address\"}";
    becomes(1.0, || tollgate.metric(&format!("tollgate_requests_cut_off_total{labels}")));
    served_promptly(get(&tollgate, 3, ""));
}
