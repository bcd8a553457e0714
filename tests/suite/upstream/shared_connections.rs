//! What one client does on a connection to an endpoint that it shares with others is not felt by these.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use bytes::Bytes;
use h2::server::Builder;
use tempfile::TempDir;
use tokio::sync::watch;

use super::http2::until;
use crate::harness::{
    Client, Config, Http2Client, Http2Origin, Origin, Running, Tollgate, by_http2, get, haproxy, in_runtime,
    nginx, nobody, read, request, send_body,
};

/// The address of a client that does nothing wrong.
const OTHER: [u8; 4] = [127, 0, 0, 3];

/// In front of this endpoint, and of one that is there so that the other may be ejected.
fn before(endpoint: SocketAddr, settings: &str, rest: &str) -> Tollgate {
    let settings = format!("protocol: h2, {settings}");
    Tollgate::start(Config::upstream(&[endpoint], &settings, &format!("workers: 1\n{rest}")))
}

/// A response that takes its time, asked for by another client, once it has begun.
fn long_response(tollgate: &Tollgate, path: &str) -> Client {
    let mut other = Client::connect_from(IpAddr::from(OTHER), tollgate.address);
    other.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(other.head().status, 200);
    other
}

/// The length of a response that takes its time.
const LONG: usize = 600_000;

/// A server that speaks HTTP/2, and sends `/long` within some seconds.
type Endpoint = fn() -> (TempDir, Vec<Running>, SocketAddr);

fn before_nginx() -> (TempDir, Vec<Running>, SocketAddr) {
    let (directory, http2) = (tempfile::tempdir().unwrap(), nobody());
    fs::write(directory.path().join("long"), vec![b'x'; LONG]).unwrap();
    fs::write(directory.path().join("index.html"), "ok").unwrap();
    let server = format!("listen {http2} http2; location /long {{ limit_rate 200k; }}");
    let (nginx, _) = nginx(directory.path(), "", &server);
    (directory, vec![nginx], http2)
}

fn before_haproxy() -> (TempDir, Vec<Running>, SocketAddr) {
    let (directory, mut running, _) = before_nginx();
    let plain = fs::read_to_string(directory.path().join("nginx.conf")).unwrap();
    let plain = plain.split("server { listen ").nth(1).unwrap().split(';').next().unwrap().to_owned();
    let address = nobody();
    let configuration = format!(
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\nfrontend f\n  bind {address} proto h2\n  default_backend b\nbackend b\n  server s {plain}\n"
    );
    running.push(haproxy(directory.path(), &configuration, address));
    (directory, running, address)
}

#[test]
fn a_head_for_which_an_endpoint_closes_its_connection_breaks_no_other_response() {
    for endpoint in [before_nginx as Endpoint, before_haproxy] {
        let (_directory, _running, address) = endpoint();
        let settings = "outlier: { failures: 1 }";
        let tollgate = before(address, settings, "client_limits: { header_size: 64KiB }\n");
        let mut long = long_response(&tollgate, "/long");
        let (field, url) = ("x".repeat(20_000), format!("/{}", "u".repeat(20_000)));
        let cookies = (0..10).map(|n| format!("c{n}={}", "y".repeat(3_000))).collect::<Vec<_>>().join("; ");
        for (path, fields) in
            [("/", vec![("x-long", &*field)]), ("/", vec![("cookie", &*cookies)]), (&*url, Vec::new())]
        {
            let reply = get(tollgate.address, path, &fields);
            assert!(reply.status >= 400, "{}", reply.status);
            assert_eq!(get(tollgate.address, "/", &[]).status, 200);
        }
        assert_eq!(long.take(LONG).unwrap().len(), LONG);
        assert!(!tollgate.log().iter().any(|line| line.contains("eject") || line.contains("unreachable")));
    }
}

#[test]
fn heads_of_a_usual_size_share_a_connection_and_long_ones_have_one_at_a_time() {
    let origin = Http2Origin::ok();
    let tollgate = before(origin.address, "", "");
    let (usual, long) = ("x".repeat(3_000), "x".repeat(9_000));
    for fields in [[("a", "b")], [("a", &*usual)], [("a", &*long)], [("a", &*long)]] {
        assert_eq!(get(tollgate.address, "/", &fields).status, 200);
    }
    assert_eq!(origin.connections(), 2, "they are kept");
}

/// Answers `/held` once told to, and closes the connection of each request for `/fatal`.
fn fatal() -> (Http2Origin, watch::Sender<bool>) {
    let (release, released) = watch::channel(false);
    let origin = Http2Origin::start(move |mut exchange| {
        let mut released = released.clone();
        async move {
            match exchange.head.uri().path() {
                "/fatal" => {
                    exchange.close_connection();
                    return exchange.reset_unanswered().await;
                }
                "/held" => drop(released.wait_for(|released| *released).await),
                _ => {}
            }
            let connection = exchange.connection.to_string();
            exchange.respond(200, &[("x-connection", &connection)], b"ok")
        }
    });
    (origin, release)
}

#[test]
fn a_request_that_kills_its_connection_is_never_repeated_on_a_shared_one() {
    let (origin, release) = fatal();
    let tollgate = before(origin.address, "outlier: { failures: 1 }", "");
    by_http2(tollgate.address, async |mut client| {
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(client.send("GET", "/held", &[], true).await.unwrap().0);
        }
        until("they are there", || origin.open_streams() == 3).await;
        assert_eq!(client.get("/fatal", &[]).await.unwrap().status(), 502);
        // What was not answered is sent once more, each on a connection of its own.
        until("they are there again", || origin.open_streams() >= 3).await;
        assert_eq!(client.get("/other", &[]).await.unwrap().status(), 200);
        assert_eq!(client.get("/fatal", &[]).await.unwrap().status(), 502);
        release.send_replace(true);
        let mut connections = Vec::new();
        for held in held {
            let reply = read(held).await.unwrap();
            assert_eq!(reply.status(), 200);
            connections.push(reply.head.headers()["x-connection"].clone());
        }
        connections.dedup();
        assert_eq!(connections.len(), 3, "{connections:?}");
    });
    assert!(!tollgate.has_logged(&["ejected"]));
}

/// An endpoint that closes connections with too many resets, as Tollgate itself does: its origin answers `/long` bit by bit, and
/// nothing else within the time of this test.
fn guarded() -> (Origin, Tollgate) {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            if head.contains(" /long ") {
                conn.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {LONG}\r\n\r\n").as_bytes())?;
                for _ in 0..60 {
                    conn.send(&[b'x'; LONG / 60])?;
                    std::thread::sleep(Duration::from_millis(50));
                }
            } else {
                conn.closed();
            }
        }
        Ok(())
    });
    let endpoint = Tollgate::start(Config::upstream(
        &[origin.address],
        "max_connections: 4000, max_connections_per_address: 100%",
        "workers: 1\n",
    ));
    (origin, endpoint)
}

const CANCELLING: &str = "timeouts: { connect: 10s, response: 60s }, max_connections: 4000";

#[test]
fn requests_that_clients_cancel_leave_the_others_of_their_connection_alone() {
    let (_origin, endpoint) = guarded();
    let tollgate = before(endpoint.address, CANCELLING, "");
    let mut long = long_response(&tollgate, "/long");
    in_runtime(async {
        for _ in 0..3 {
            let mut client = Http2Client::connect(tollgate.address).await;
            for _ in 0..40 {
                let mut answers = Vec::new();
                for _ in 0..10 {
                    answers.push(client.send("GET", "/never", &[], true).await.unwrap());
                }
                client.ping().await.unwrap();
                drop(answers);
                client.ping().await.unwrap();
            }
        }
    });
    assert_eq!(long.take(LONG).unwrap().len(), LONG);
    assert_eq!(endpoint.metric_total("tollgate_http2_abuse_total"), 0.0);
}

#[test]
fn connections_that_clients_close_leave_the_others_of_their_connection_alone() {
    let (_origin, endpoint) = guarded();
    let tollgate = before(endpoint.address, CANCELLING, "");
    let mut long = long_response(&tollgate, "/long");
    for _ in 0..30 {
        let clients: Vec<_> = (0..25)
            .map(|_| {
                Client::sending(
                    tollgate.address,
                    "POST /never HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nbegun",
                )
            })
            .collect();
        clients.iter().for_each(Client::wait_until_read);
        drop(clients);
    }
    assert_eq!(long.take(LONG).unwrap().len(), LONG);
}

#[test]
fn deadlines_of_calls_leave_the_others_of_their_connection_alone() {
    let (_origin, endpoint) = guarded();
    let tollgate = before(endpoint.address, CANCELLING, "");
    let mut long = long_response(&tollgate, "/long");
    by_http2(tollgate.address, async |mut client| {
        let fields = [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", "30m")];
        for _ in 0..12 {
            let mut answers = Vec::new();
            for _ in 0..60 {
                answers.push(client.send("POST", "/never", &fields, true).await.unwrap().0);
            }
            for answer in answers {
                assert_eq!(read(answer).await.unwrap().head.headers()["grpc-status"], "4");
            }
        }
    });
    assert_eq!(long.take(LONG).unwrap().len(), LONG);
}

#[test]
fn resets_beyond_what_a_connection_may_have_wait_on_it_while_others_go_on_elsewhere() {
    let (release, released) = watch::channel(false);
    let origin = Http2Origin::start(move |mut exchange| {
        let mut released = released.clone();
        async move {
            if exchange.head.uri().path() == "/held" {
                tokio::select! {
                    _ = released.wait_for(|released| *released) => {}
                    reset = exchange.reset_unanswered() => return reset,
                }
            }
            let connection = exchange.connection.to_string();
            exchange.respond(200, &[("x-connection", &connection)], b"ok")
        }
    });
    let tollgate = before(origin.address, "", "trusted_proxies: [127.0.0.1]\n");
    by_http2(tollgate.address, async |mut client| {
        let held = client.send("GET", "/held", &[], true).await.unwrap().0;
        // Of many addresses, so that none of them is to blame alone.
        for number in 0..240 {
            let address = format!("192.0.2.{number}");
            let (answer, body) =
                client.send("GET", "/held", &[("x-forwarded-for", &address)], true).await.unwrap();
            until("it is there", || origin.heads().len() == number + 2).await;
            drop((answer, body));
            client.ping().await.unwrap();
        }
        until("the others wait", || origin.resets().len() >= 200).await;
        assert!(origin.connections() > 1);
        let reply = client.get("/", &[]).await.unwrap();
        assert_ne!(reply.head.headers()["x-connection"], "0");
        release.send_replace(true);
        assert_eq!(read(held).await.unwrap().head.headers()["x-connection"], "0");
    });
}

#[test]
fn uploads_that_an_endpoint_does_not_read_hold_no_other_up() {
    let origin = Http2Origin::with(Builder::new(), |mut exchange| async move {
        if exchange.head.uri().path() == "/unread" {
            return exchange.reset_unanswered().await;
        }
        let (body, _) = exchange.read().await?;
        exchange.respond(200, &[], body.len().to_string().as_bytes())
    });
    let tollgate = before(origin.address, "timeouts: { response: 120s }", "");
    by_http2(tollgate.address, async |mut client| {
        let mut uploads = Vec::new();
        for _ in 0..10 {
            let (answer, mut body) = client.send("POST", "/unread", &[], false).await.unwrap();
            let _blocked = tokio::time::timeout(
                Duration::from_millis(300),
                send_body(&mut body, Bytes::from(vec![b'x'; 200_000])),
            )
            .await;
            uploads.push((answer, body));
        }
        until("they are there", || origin.open_streams() == 10).await;
        for length in [50_000, 5_000_000] {
            let reply = request(tollgate.address, "POST", "/", &[], &vec![b'x'; length]);
            assert_eq!((reply.status, reply.text()), (200, length.to_string()));
        }
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    });
}
