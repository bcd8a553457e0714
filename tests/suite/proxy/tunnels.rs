//! WebSockets and other upgraded connections, from the handshake to the end of the tunnel.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{client::Builder, ext::Protocol};
use http::Request;

use super::one_worker;
use crate::harness::{
    Authority, Client, Config, Conn, Deployment, Http2Origin, Origin, PATIENCE, TlsConnector, Tollgate,
    Topology, becomes, eventually, file_name, get, in_runtime, on_each_store, send_body, server_config,
};

/// The example of RFC 6455, 1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

fn handshake(path: &str, fields: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{fields}\r\n"
    )
}

fn switching() -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Accept: {ACCEPT}\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
    )
}

/// A frame of a WebSocket with a short payload.
pub(super) fn frame(opcode: u8, is_masked: bool, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    let mask = if is_masked { 0x80 } else { 0 };
    match payload.len() {
        length @ 0..126 => frame.push(mask | length as u8),
        length => {
            frame.push(mask | 126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
    }
    if is_masked {
        frame.extend_from_slice(&[0; 4]);
    }
    frame.extend_from_slice(payload);
    frame
}

/// The code and the reason of a Close.
pub(super) fn close_of(frame: &[u8]) -> (u16, String) {
    assert_eq!(frame[0], 0x88, "{frame:?}");
    let (mask, payload) = match frame[1] & 0x80 {
        0 => ([0; 4], &frame[2..]),
        _ => ([frame[2], frame[3], frame[4], frame[5]], &frame[6..]),
    };
    assert_eq!(usize::from(frame[1] & 0x7f), payload.len(), "{frame:?}");
    let plain: Vec<u8> = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
    (u16::from_be_bytes([plain[0], plain[1]]), String::from_utf8(plain[2..].to_vec()).unwrap())
}

/// Switches each request to a WebSocket, and then does what `then` says.
pub(super) fn switches(then: impl Fn(&mut Conn) -> io::Result<()> + Send + Sync + 'static) -> Origin {
    Origin::start(move |conn| {
        conn.head()?;
        conn.send(switching().as_bytes())?;
        then(conn)
    })
}

/// Sends back whatever comes, until its end.
pub(super) fn echo(conn: &mut Conn) -> io::Result<()> {
    while let Ok(bytes) = conn.take(1) {
        conn.send(&bytes)?;
    }
    Ok(())
}

fn open(address: SocketAddr) -> Client {
    open_with(address, "/", "")
}

#[track_caller]
pub(super) fn open_with(address: SocketAddr, path: &str, fields: &str) -> Client {
    let mut client = Client::connect(address);
    let head = client.send(handshake(path, fields)).head();
    assert_eq!(head.status, 101, "{head:?}");
    client
}

fn logged(origin: &Origin, rest: &str) -> Tollgate {
    Tollgate::start(Config::new(
        &[origin.address],
        &format!("access_log: {{ format: json, to: stdout }}\n{rest}"),
    ))
}

/// The lines of the access log so far.
fn lines(tollgate: &Tollgate) -> Vec<serde_json::Value> {
    tollgate.stdout().iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn bytes_pass_both_ways_from_the_handshake_on_and_are_logged_at_the_end() {
    let origin = Origin::start(|conn| {
        conn.head()?;
        // What the upstream sends right behind its answer. The client has sent something before that.
        conn.send(&[switching().as_bytes(), b"first:"].concat())?;
        echo(conn)
    });
    let tollgate = logged(&origin, "");
    let mut client = Client::connect(tollgate.address);
    let head = client.send([handshake("/chat?room=1", "").as_bytes(), b"early"].concat()).head();
    assert_eq!(
        (head.status, head.header("upgrade"), head.header("connection")),
        (101, Some("websocket"), Some("Upgrade"))
    );
    assert_eq!(
        (head.header("sec-websocket-accept"), head.header("sec-websocket-protocol")),
        (Some(ACCEPT), Some("chat"))
    );
    assert_eq!(client.take(11).unwrap(), b"first:early");
    client.send([b'x'; 3_000]);
    assert_eq!(client.take(3_000).unwrap(), [b'x'; 3_000]);
    let open = |tollgate: &Tollgate| tollgate.metric("tollgate_tunnels{route=\"/*\"}");
    assert_eq!(open(&tollgate), 1.0);
    assert_eq!(tollgate.admin("GET", "/v1/routes").json()["routes"][0]["tunnels"], 1);
    assert!(tollgate.admin("GET", "/").text().contains("Open tunnels"));
    let top = tollgate.command(&["top"]).stdout;
    let route = top.lines().find(|line| line.starts_with("/* ")).unwrap_or_default();
    assert!(route.ends_with(" 1"), "{top}");
    assert!(lines(&tollgate).is_empty(), "it is logged at its end");
    drop(client);
    eventually("the tunnel is gone", || open(&tollgate) == 0.0 && origin.open_connections() == 0);
    eventually("it is logged", || lines(&tollgate).len() == 1);
    let line = &lines(&tollgate)[0];
    assert_eq!(
        (&line["status"], &line["path"], &line["route"]),
        (&101.into(), &"/chat?room=1".into(), &"/*".into())
    );
    assert_eq!((&line["bytes"], &line["bytes_received"]), (&3_011.into(), &3_005.into()), "{line}");
    becomes(1.0, || tollgate.metric("tollgate_requests_total{route=\"/*\",status=\"1xx\"}"));
    let head = &origin.heads()[0];
    assert!(head.contains("upgrade: websocket") && head.contains("connection: Upgrade"), "{head}");
    assert!(
        head.contains(&format!("sec-websocket-key: {KEY}")) && head.contains("x-forwarded-for: 127.0.0.1"),
        "{head}"
    );
}

/// The well-known ways to smuggle requests: a refused upgrade must not open a tunnel.
#[test]
fn a_request_behind_a_refused_upgrade_is_served() {
    for refusal in [
        "HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Version: 13\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nno",
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno",
        "HTTP/1.1 200 OK\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nno",
    ] {
        let origin = Origin::start(move |conn| {
            while conn.head()?.is_some() {
                conn.send(refusal.as_bytes())?;
            }
            Ok(())
        });
        let policies = "policies:\n  one: { algorithm: fixed_window, key: ip, limit: 2/1h }\n";
        let tollgate = Tollgate::start(Config::new(&[origin.address], policies).with_policy("one"));
        let mut client = Client::connect(tollgate.address);
        // They come before the answer, as bytes of a tunnel would.
        let hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
        let wrong_version = handshake("/", "").replace("Version: 13", "Version: 777");
        client.send(wrong_version + hidden + hidden);
        let expected: u16 = refusal[9..12].parse().unwrap();
        let refused = client.reply();
        assert_eq!((refused.status, refused.text().as_str()), (expected, "no"));
        assert_eq!(refused.header("upgrade"), None);
        assert_eq!([client.reply().status, client.reply().status], [expected, 429], "each is counted");
        assert_eq!(origin.heads().len(), 2);
    }
}

#[test]
fn only_an_answer_that_switches_to_what_was_asked_for_opens_a_tunnel() {
    let right = switching();
    for (answer, why) in [
        (right.replace(ACCEPT, "c29tZXRoaW5nIGVsc2Ugb25l"), "another key"),
        (right.replace("Upgrade: websocket\r\n", "Upgrade: h2c\r\n"), "another protocol"),
        (right.replace("Upgrade: websocket\r\n", ""), "no protocol"),
        (right.replace("Connection: Upgrade\r\n", ""), "no connection option"),
    ] {
        let origin = Origin::start(move |conn| {
            conn.head()?;
            conn.send(answer.as_bytes())?;
            conn.closed();
            Ok(())
        });
        let tollgate = super::before(&origin);
        let mut client = Client::connect(tollgate.address);
        let hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        client.send(handshake("/", "") + hidden);
        assert_eq!(client.reply().status, 502, "{why}");
        client.rest();
        assert!(!origin.received().concat().contains("/hidden HTTP/1.1\r\nHost: a"), "{why}");
        assert_eq!(tollgate.metric("tollgate_tunnels"), 0.0);
        let words = "switched to a protocol that the request did not ask for";
        eventually("it is logged", || tollgate.has_logged(&[words]));
    }
}

#[test]
fn an_upgrade_that_may_hide_requests_is_not_passed_on() {
    let origin = Origin::echo();
    let tollgate = super::before(&origin);
    for (request, why) in [
        (handshake("/", "").replace("Upgrade: websocket", "Upgrade: h2c"), "HTTP/2"),
        (handshake("/", "").replace("Upgrade: websocket", "Upgrade: websocket, h2c"), "two"),
        (handshake("/", "").replace("Upgrade: websocket", "Upgrade: TLS/1.2"), "TLS"),
        (handshake("/", "Upgrade: websocket\r\n"), "twice"),
        (handshake("/", "").replace("GET", "POST"), "no GET"),
        (handshake("/", "Content-Length: 1\r\n") + "x", "a body"),
        (handshake("/", "").replace("HTTP/1.1", "HTTP/1.0"), "HTTP/1.0"),
    ] {
        let reply = Client::connect(tollgate.address).send(request).reply();
        assert_eq!(reply.status, 200, "{why}");
        let head = origin.heads().pop().unwrap().to_lowercase();
        assert!(!head.contains("\r\nupgrade:") && !head.contains("connection: upgrade"), "{why}: {head}");
    }
}

/// Also where the connection had been kept: who has seen the handshake may have begun with it.
#[test]
fn a_handshake_that_an_endpoint_has_seen_is_not_repeated() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            if head.starts_with("GET /chat") {
                break;
            }
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    let tollgate = one_worker(&[origin.address], "");
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    assert_eq!(Client::connect(tollgate.address).send(handshake("/chat", "")).reply().status, 502);
    let heads = origin.heads();
    assert_eq!(heads.iter().filter(|head| head.starts_with("GET /chat")).count(), 1, "{heads:?}");
    assert_eq!(origin.connections(), 1, "it came over the connection that was kept");
}

fn a_lease_lasts_as_long_as_its_tunnel(redis: Option<&Deployment>) {
    let sockets = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let theirs = std::sync::Arc::clone(&sockets);
    let origin = switches(move |conn| {
        theirs.lock().unwrap().push(conn.stream.try_clone()?);
        echo(conn)
    });
    let policies = "policies:\n  one: { algorithm: concurrency, key: ip, limit: 1, lease: 6s }\n";
    let store = |redis: &Deployment| format!("store: {{ redis: {{ {}, timeout: 5s }} }}\n", redis.settings());
    let store = redis.map(store).unwrap_or_default();
    let config = Config::new(&[origin.address], &format!("{policies}{store}"));
    let tollgate = Tollgate::start(config.with_policy("one"));
    let refused = || Client::connect(tollgate.address).send(handshake("/", "")).reply();
    for side in ["client", "upstream"] {
        let mut client = open(tollgate.address);
        let reply = refused();
        assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")), "{side}");
        // Longer than the lease, which is renewed.
        std::thread::sleep(Duration::from_secs(7));
        assert_eq!(refused().status, 429, "{side}");
        client.send("x");
        assert_eq!(client.take(1).unwrap(), b"x");
        let gone = Instant::now();
        match side {
            "client" => drop(client),
            _ => sockets.lock().unwrap().pop().unwrap().shutdown(std::net::Shutdown::Both).unwrap(),
        }
        eventually("its lease is free", || {
            let mut client = Client::connect(tollgate.address);
            client.send(handshake("/", "")).head().status == 101
        });
        let elapsed = gone.elapsed();
        eprintln!("the lease was free {elapsed:?} after the {side} had gone");
        // A second, and what a busy machine takes; it would expire after four to six.
        assert!(elapsed < Duration::from_secs(4), "{elapsed:?}");
        eventually("the last one is gone", || tollgate.metric("tollgate_leases") == 0.0);
    }
}

on_each_store!(a_lease_lasts_as_long_as_its_tunnel);

#[test]
fn a_tunnel_without_bytes_ends_after_the_idle_timeout_and_others_go_on() {
    let (tell, received) = mpsc::channel();
    let origin = switches(move |conn| {
        for _ in 0..8 {
            let frame = conn.take(7)?;
            conn.send(&frame)?;
        }
        tell.send(conn.rest()).map_err(io::Error::other)
    });
    let tollgate = one_worker(&[origin.address], "timeouts: { idle: 4s, response: 4s }");
    let mut client = open(tollgate.address);
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(600));
        client.send(frame(1, true, b"x"));
        client.take(7).unwrap();
    }
    let idle_since = Instant::now();
    assert_eq!(close_of(&client.rest()), (1001, "idle timeout".to_owned()));
    assert!(idle_since.elapsed() >= Duration::from_millis(3_500), "{:?}", idle_since.elapsed());
    let close = received.recv_timeout(PATIENCE).unwrap();
    assert_eq!((close[1] & 0x80, close_of(&close)), (0x80, (1001, "idle timeout".to_owned())), "masked");
}

#[test]
fn a_ban_closes_the_tunnels_of_whom_it_shuts_out() {
    let origin = switches(echo);
    let user = "user: [{ header: x-user, from: anyone }]\n";
    let kept =
        Tollgate::start(Config::new(&[origin.address], &format!("{user}bans: {{ close_tunnels: false }}\n")));
    let mut stays = open_with(kept.address, "/", "x-user: mallory\r\n");
    assert_eq!(kept.command(&["ban", "user:mallory", "--for=1h"]).code, Some(0));

    let tollgate = Tollgate::start(Config::new(&[origin.address], user));
    let mut mallory = open_with(tollgate.address, "/", "x-user: mallory\r\n");
    let mut alice = open_with(tollgate.address, "/", "x-user: alice\r\n");
    assert_eq!(tollgate.command(&["ban", "user:mallory", "--for=1h"]).code, Some(0));
    assert_eq!(close_of(&mallory.rest()), (1008, "banned".to_owned()));
    alice.send(frame(1, true, b"x"));
    assert_eq!(alice.take(7).unwrap(), frame(1, true, b"x"), "she is not banned");
    assert_eq!(tollgate.command(&["ban", "127.0.0.1", "--for=1h", "--force"]).code, Some(0));
    assert_eq!(close_of(&alice.rest()), (1008, "banned".to_owned()));
    let refused = Client::connect(tollgate.address).send(handshake("/", "")).reply();
    assert_eq!(refused.status, 403);
    stays.send("x");
    assert_eq!(stays.take(1).unwrap(), b"x", "that was not asked for");
}

#[test]
fn the_log_says_which_side_broke_a_tunnel_off() {
    // `r`: it resets the connection.
    let origin = switches(|conn| {
        while let Ok(bytes) = conn.take(1) {
            if bytes == b"r" {
                return conn.reset();
            }
            conn.send(&bytes)?;
        }
        Ok(())
    });
    let tollgate = logged(&origin, "user: [{ header: x-user, from: anyone }]\n");
    let open = || open_with(tollgate.address, "/", "x-user: mallory\r\n");
    let aborted_by = |nth: usize| {
        eventually("it is logged", || lines(&tollgate).len() > nth);
        lines(&tollgate)[nth]["aborted_by"].clone()
    };
    assert!(open().finish().closed());
    assert_eq!(aborted_by(0), serde_json::Value::Null, "both have ended");
    open().reset();
    assert_eq!(aborted_by(1), "client");
    open().send("r").rest();
    assert_eq!(aborted_by(2), "upstream");
    let mut banned = open();
    assert_eq!(tollgate.command(&["ban", "user:mallory", "--for=1h"]).code, Some(0));
    banned.rest();
    assert_eq!(aborted_by(3), "client");
}

#[test]
fn a_ban_closes_tunnels_on_all_instances() {
    let redis = Topology::Server.start();
    let origin = switches(echo);
    let rest = format!(
        "user: [{{ header: x-user, from: anyone }}]\nstore: {{ redis: {{ {}, timeout: 5s }} }}\n",
        redis.settings()
    );
    let [here, there] = [(); 2].map(|()| Tollgate::start(Config::new(&[origin.address], &rest)));
    let mut clients = [&here, &there].map(|tollgate| open_with(tollgate.address, "/", "x-user: mallory\r\n"));
    assert_eq!(here.command(&["ban", "user:mallory", "--for=1h"]).code, Some(0));
    for client in &mut clients {
        assert_eq!(close_of(&client.rest()), (1008, "banned".to_owned()));
    }
}

/// Opens WebSockets on its streams (RFC 8441) and sends back whatever comes; what is no such handshake, and what asks for
/// `/refused`, gets 403.
fn offers_websockets() -> Http2Origin {
    let mut settings = h2::server::Builder::new();
    settings.enable_connect_protocol();
    Http2Origin::with(settings, |mut exchange| async move {
        let protocol = exchange.head.extensions().get::<Protocol>().map(Protocol::as_str);
        if protocol != Some("websocket") || exchange.head.uri().path() == "/refused" {
            return exchange.respond(403, &[], b"not you");
        }
        let mut stream = exchange.head(200, &[("sec-websocket-protocol", "chat")])?;
        if exchange.head.uri().path() == "/short" {
            return stream.send_data(Bytes::from_static(b"bye"), true);
        }
        loop {
            let data = exchange.data().await?;
            if data.is_empty() {
                return stream.send_data(data, true);
            }
            send_body(&mut stream, data).await?;
        }
    })
}

#[test]
fn a_websocket_passes_to_an_upstream_of_http2_that_offers_it() {
    let origin = offers_websockets();
    // Each worker has connections of its own.
    let policies = "workers: 1\npolicies:\n  one: { algorithm: concurrency, key: ip, limit: 1 }\n";
    let config = Config::upstream(&[origin.address], "protocol: h2, policies: [one]", policies);
    let tollgate = Tollgate::start(config);
    let free = || eventually("the lease is back", || tollgate.metric("tollgate_leases") == 0.0);

    // From a client of HTTP/1.1, which gets the proof that its key was understood.
    let mut client = Client::connect(tollgate.address);
    let head = client.send(handshake("/chat?a=b", "Sec-WebSocket-Protocol: chat\r\n")).head();
    assert_eq!(head.status, 101, "{head:?}");
    assert_eq!(head.header("sec-websocket-accept"), Some(ACCEPT));
    assert_eq!(head.header("sec-websocket-protocol"), Some("chat"));
    // More than any window.
    let payload = frame(2, true, &[7; 60_000]);
    for _ in 0..20 {
        client.send(&payload);
        assert!(client.take(payload.len()).unwrap() == payload);
    }
    assert_eq!(get(tollgate.address, "/", &[]).status, 429, "the lease lasts as long as the tunnel");
    becomes(1.0, || tollgate.metric("tollgate_tunnels{route=\"/*\"}"));
    drop(client);
    eventually("the stream ends", || origin.open_streams() == 0);
    free();
    let seen = origin.heads()[0].clone();
    assert_eq!(
        (seen.method().as_str(), seen.uri().path_and_query().unwrap().as_str()),
        ("CONNECT", "/chat?a=b")
    );
    assert_eq!(seen.headers()["sec-websocket-protocol"], "chat");
    for gone in ["connection", "upgrade", "sec-websocket-key", "te"] {
        assert!(!seen.headers().contains_key(gone), "{seen:?}");
    }

    // What the upstream ends, ends for the client.
    let mut short = open_with(tollgate.address, "/short", "");
    assert_eq!(short.rest(), b"bye");
    free();
    // A refusal is an ordinary answer, and the connections serve on.
    let mut refused = Client::connect(tollgate.address);
    let reply = refused.send(handshake("/refused", "")).reply();
    assert_eq!((reply.status, reply.text().as_str()), (403, "not you"));
    free();
    assert_eq!(refused.request("GET", "/", &[], b"").status, 403);
    free();

    // From a client of HTTP/2.
    in_runtime(async {
        let stream = tokio::net::TcpStream::connect(tollgate.address).await.unwrap();
        let (requests, connection) = Builder::new().handshake::<_, Bytes>(stream).await.unwrap();
        let driver = tokio::spawn(connection);
        let mut requests = requests.ready().await.unwrap();
        while !requests.is_extended_connect_protocol_enabled() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let request = Request::builder().method("CONNECT").uri(format!("http://{}/chat", tollgate.address));
        let request = request.extension(Protocol::from_static("websocket")).body(()).unwrap();
        let (answer, mut sending) = requests.send_request(request, false).unwrap();
        let (head, mut receiving) = answer.await.unwrap().into_parts();
        assert_eq!(head.status, http::StatusCode::OK);
        assert!(!head.headers.contains_key("sec-websocket-accept"));
        sending.send_data(Bytes::from_static(b"hello"), true).unwrap();
        let mut echoed = Vec::new();
        while let Some(data) = receiving.data().await {
            echoed.extend_from_slice(&data.unwrap());
        }
        assert_eq!(echoed, b"hello");
        driver.abort();
    });
    free();
    assert_eq!(origin.connections(), 1, "all of them share it");
}

#[test]
fn an_upstream_of_http2_that_does_not_offer_it_is_not_asked_for_a_websocket() {
    let origin = Http2Origin::echo();
    let tollgate = one_worker(&[origin.address], "protocol: h2");
    let mut client = Client::connect(tollgate.address);
    let reply = client.send(handshake("/", "")).reply();
    assert_eq!(reply.status, 502);
    assert!(reply.text().contains("does not support WebSockets"), "{}", reply.text());
    eventually("the log says what to write", || tollgate.has_logged(&["set `protocol: h1`"]));
    assert_eq!(client.request("GET", "/", &[], b"").status, 200, "the connection serves the next request");
    assert_eq!(origin.heads().len(), 1);
}

#[test]
fn a_tunnel_passes_tls_on_either_side() {
    let authority = Authority::new("ca");
    let certificate = authority.issue("both", &["127.0.0.1", "localhost"]);
    let origin = Origin::start_tls(server_config(&certificate), |conn| {
        conn.head()?;
        conn.send(switching().as_bytes())?;
        echo(conn)
    });
    let (cert, key, ca) = (file_name(&certificate.cert), file_name(&certificate.key), authority.file());
    let tollgate = Tollgate::start(Config::yaml(format!(
        "listeners: [{{ address: \"127.0.0.1:0\", tls: {{ certificates: [{{ cert: {cert}, key: {key} }}] }} }}]\n\
        upstreams:\n  origin: {{ endpoints: [\"https://{}\"], tls: {{ ca: {} }} }}\nroutes:\n  - {{ path: /*, upstream: origin }}\n",
        origin.address,
        ca.display()
    )));
    let mut client =
        TlsConnector::new(&authority).connect(tollgate.address, "localhost").unwrap().into_http();
    assert_eq!(client.send(handshake("/", "")).head().status, 101);
    let message = frame(2, true, &[7; 50_000]);
    for _ in 0..20 {
        client.send(&message);
        assert_eq!(client.take(message.len()).unwrap(), message);
    }
    tollgate.signal("TERM");
    assert_eq!(close_of(&client.take(4).unwrap()).0, 1001);
    assert!(client.closed_in_order(), "with the end of TLS");
}

#[test]
fn a_reload_leaves_tunnels_alone_and_a_drain_closes_them_between_two_frames() {
    let (go_on, amid_frame) = mpsc::channel::<()>();
    let amid_frame = Mutex::new(amid_frame);
    let (tell, received) = mpsc::channel();
    let origin = Origin::start(move |conn| {
        let head = conn.head()?.unwrap_or_default();
        if head.starts_with("GET /slow") {
            conn.pause()?;
            return conn.answer("200 OK", &[], b"late");
        }
        conn.send(switching().as_bytes())?;
        if head.starts_with("GET /amid-frame") {
            let whole = frame(2, false, &[7; 1_000]);
            conn.send(&whole[..500])?;
            amid_frame.lock().unwrap().recv().map_err(io::Error::other)?;
            conn.send(&[&whole[500..], &frame(1, false, b"too late")].concat())?;
        }
        tell.send(conn.rest()).map_err(io::Error::other)
    });
    let mut tollgate = logged(&origin, "workers: 1\nshutdown: { drain: 15s }\n");
    let mut idle = open(tollgate.address);
    let mut amid = open_with(tollgate.address, "/amid-frame", "");
    assert_eq!(amid.take(500).unwrap().len(), 500);

    let file = tollgate.directory().join("proxy.yaml");
    let without = std::fs::read_to_string(&file).unwrap().replace("path: /*", "path: /slow/*");
    std::fs::write(&file, without).unwrap();
    assert_eq!(tollgate.command(&["reload"]).code, Some(0));
    assert_eq!(get(tollgate.address, "/", &[]).status, 404, "the route is gone");
    assert_eq!(tollgate.metric("tollgate_tunnels{route=\"/*\"}"), 2.0, "its tunnels are not");

    let mut slow = Client::sending(tollgate.address, "GET /slow/one HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it waits for the upstream", || origin.heads().len() == 3);
    tollgate.signal("TERM");
    eventually("it drains", || Client::try_connect(tollgate.address).is_none());
    // Longer than a drain without requests takes.
    std::thread::sleep(Duration::from_millis(500));
    assert!(!idle.has_something_to_read(), "requests come first");
    origin.resume();
    assert_eq!(slow.reply().text(), "late");
    assert_eq!(close_of(&idle.take(4).unwrap()).0, 1001);
    go_on.send(()).unwrap();
    let rest = amid.rest();
    assert_eq!(rest[..504], [7; 504]);
    assert_eq!(close_of(&rest[504..]).0, 1001, "behind the whole frame, and nothing else behind it");
    assert!(tollgate.wait().success());
    for _ in 0..2 {
        let close = received.recv_timeout(PATIENCE).unwrap();
        assert_eq!((close[1] & 0x80, close_of(&close).0), (0x80, 1001), "the upstream has one, masked");
    }
    assert_eq!(lines(&tollgate).iter().filter(|line| line["status"] == 101).count(), 2);
}

#[test]
fn a_tunnel_holds_its_connection_to_the_upstream() {
    let origin = switches(echo);
    let tollgate = one_worker(&[origin.address], "max_connections: 1, timeouts: { connect: 100ms }");
    let client = open(tollgate.address);
    assert_eq!(Client::connect(tollgate.address).send(handshake("/", "")).reply().status, 503);
    drop(client);
    eventually("the connection is free", || origin.open_connections() == 0);
    let mut next = open(tollgate.address);
    next.send("x");
    assert_eq!(next.take(1).unwrap(), b"x");
    assert_eq!(origin.connections(), 2, "that of a tunnel is not used again");
}

#[test]
fn either_side_of_another_protocol_may_be_closed_alone() {
    let origin = Origin::start(|conn| {
        conn.head()?;
        conn.send(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")?;
        conn.closed();
        // The client has sent all that it has, and waits.
        std::thread::sleep(Duration::from_millis(1_500));
        conn.send(b"the answer to it")
    });
    let tollgate = super::before(&origin);
    let mut client = Client::connect(tollgate.address);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
    assert_eq!(client.head().status, 101);
    client.send("all of it").finish();
    assert_eq!(client.rest(), b"the answer to it");
    assert!(origin.received()[0].ends_with("all of it"));
}

#[test]
fn a_client_that_does_not_read_stops_the_upstream() {
    static SENT: AtomicUsize = AtomicUsize::new(0);
    const PIECES: usize = 800;
    let origin = switches(|conn| {
        let piece = frame(2, false, &[7; 60_000]);
        for _ in 0..PIECES {
            conn.send(&piece)?;
            SENT.fetch_add(piece.len(), Ordering::SeqCst);
        }
        Ok(())
    });
    let tollgate = super::before(&origin);
    // Pages of the program that a tunnel is the first to need are no memory that it holds.
    assert_eq!(open(tollgate.address).rest().len(), PIECES * (60_000 + 4));
    let before = tollgate.resident_kib();
    SENT.store(0, Ordering::SeqCst);
    let mut client = open(tollgate.address);
    let mut last = 0;
    eventually("the upstream is stopped", || {
        std::thread::sleep(Duration::from_millis(300));
        let sent = SENT.load(Ordering::SeqCst);
        sent > 0 && std::mem::replace(&mut last, sent) == sent
    });
    assert!(last < PIECES * 60_000, "{last}");
    let grown = tollgate.resident_kib().saturating_sub(before);
    assert!(grown < 4_096, "{grown} KiB are held");
    assert_eq!(client.rest().len(), PIECES * (60_000 + 4));
}

/// RFC 8441, as Firefox and Chromium open WebSockets over HTTP/2.
#[test]
fn a_websocket_over_http2_is_one_of_http1_to_the_upstream() {
    // It answers any key.
    let origin = Origin::start(|conn| {
        let head = conn.head()?.unwrap_or_default();
        let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap_or_default();
        let accept = if head.starts_with("GET /wrong") { ACCEPT.to_owned() } else { accept(key) };
        if head.starts_with("GET /refused") {
            return conn.answer("403 Forbidden", &[], b"not you");
        }
        if head.starts_with("GET /ignored") {
            return conn.answer("200 OK", &[], b"");
        }
        conn.send(switching().replace(ACCEPT, &accept).as_bytes())?;
        echo(conn)
    });
    let policies = "policies:\n  one: { algorithm: concurrency, key: ip, limit: 1 }\n";
    let config =
        Config::new(&[origin.address], &format!("{policies}access_log: {{ format: json, to: stdout }}\n"));
    let tollgate = Tollgate::start(config.with_policy("one"));
    in_runtime(async {
        let stream = tokio::net::TcpStream::connect(tollgate.address).await.unwrap();
        let (requests, connection) = Builder::new().handshake::<_, Bytes>(stream).await.unwrap();
        let driver = tokio::spawn(connection);
        let mut requests = requests.ready().await.unwrap();
        let address = tollgate.address;
        let ask = |path: &str, protocol: &'static str| {
            let request = Request::builder().method("CONNECT").uri(format!("http://{address}{path}"));
            let request = request.header("sec-websocket-version", "13").header("origin", "http://a");
            request.extension(Protocol::from_static(protocol)).body(()).unwrap()
        };
        // The server's settings come first.
        while !requests.is_extended_connect_protocol_enabled() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (answer, mut sending) = requests.send_request(ask("/chat", "websocket"), false).unwrap();
        let (head, mut receiving) = answer.await.unwrap().into_parts();
        assert_eq!(
            (head.status, head.headers["sec-websocket-protocol"].to_str().unwrap()),
            (http::StatusCode::OK, "chat")
        );
        assert!(!head.headers.contains_key("sec-websocket-accept") && !head.headers.contains_key("upgrade"));
        sending.send_data(Bytes::from_static(b"hello"), false).unwrap();
        let mut echoed = Vec::new();
        while echoed.len() < 5 {
            echoed.extend_from_slice(&receiving.data().await.unwrap().unwrap());
        }
        assert_eq!(echoed, b"hello");

        // It counts like one by HTTP/1.1; other protocols are none.
        let status = async |requests: &mut h2::client::SendRequest<Bytes>, path: &str, protocol| {
            let (answer, _sending) = requests.send_request(ask(path, protocol), false).unwrap();
            answer.await.unwrap().status().as_u16()
        };
        assert_eq!(status(&mut requests, "/chat", "websocket").await, 429);
        assert_eq!(status(&mut requests, "/chat", "connect-udp").await, 501);
        sending.send_data(Bytes::new(), true).unwrap();
        while let Some(data) = receiving.data().await {
            assert_eq!(data.unwrap(), "", "the end comes back");
        }
        while tollgate.metric("tollgate_leases") > 0.0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(status(&mut requests, "/refused", "websocket").await, 403);
        assert_eq!(status(&mut requests, "/wrong", "websocket").await, 502);
        while tollgate.metric("tollgate_leases") > 0.0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // A 200 would be the WebSocket itself.
        assert_eq!(status(&mut requests, "/ignored", "websocket").await, 502);

        // A stream that is reset ends its tunnel, and the others go on.
        while tollgate.metric("tollgate_leases") > 0.0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (answer, mut sending) = requests.send_request(ask("/chat", "websocket"), false).unwrap();
        assert_eq!(answer.await.unwrap().status(), 200);
        sending.send_reset(h2::Reason::CANCEL);
        let end = Instant::now() + PATIENCE;
        while tollgate.metric("tollgate_tunnels{route=\"/*\"}") > 0.0 {
            assert!(Instant::now() < end, "the tunnel stays");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        driver.abort();
    });
    let line = lines(&tollgate).into_iter().find(|line| line["status"] == 101).expect("a line");
    assert_eq!((&line["method"], &line["protocol"]), (&"GET".into(), &"HTTP/2.0".into()));
    assert_eq!((&line["bytes"], &line["bytes_received"]), (&5.into(), &5.into()), "{line}");
    let head = origin.heads()[0].clone();
    assert!(head.starts_with("GET /chat HTTP/1.1\r\n") && head.contains("upgrade: websocket"), "{head}");
    assert!(head.contains("sec-websocket-version: 13") && head.contains("origin: http://a"), "{head}");
}

fn accept(key: &str) -> String {
    use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
    use base64::{Engine, prelude::BASE64_STANDARD};
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}
