//! How many connections one client may have, what a ban does to them, and who makes room when there are too many.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::Https;
use crate::harness::{
    Client, Config, Deployment, Latch, Origin, Tollgate, becomes, command, eventually,
    frames::{self, END_HEADERS, END_STREAM, FrameClient, HEADERS, Outcome, frame},
    get_from, on_each_store, request,
};

on_each_store!(a_ban_closes_the_idle_connections_of_its_address_on_every_instance);

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// One client that wants all connections, and others.
const GREEDY: &str = "127.0.0.2";
const OTHERS: [&str; 5] = ["127.0.0.11", "127.0.0.12", "127.0.0.13", "127.0.0.14", "127.0.0.15"];

fn start(origin: &Origin, limits: &str, rest: &str) -> Tollgate {
    let rest = format!("client_limits: {{ {limits} }}\n{rest}");
    Tollgate::start(Config::new(&[origin.address], &rest))
}

fn connect(source: &str, address: SocketAddr) -> Client {
    Client::connect_from(source.parse::<IpAddr>().unwrap(), address)
}

/// So many connections of `source`, each kept after a response.
fn hold(source: &str, address: SocketAddr, count: usize) -> Vec<Client> {
    let connect = |_| {
        let mut client = connect(source, address);
        assert_eq!(client.request("GET", "/", &[], b"").status, 200);
        client
    };
    (0..count).map(connect).collect()
}

/// A connection of `source` on which a request was answered. `None`: it was refused, before or after the request was sent.
fn try_hold(source: &str, address: SocketAddr) -> Option<Client> {
    let mut client = connect(source, address);
    client.stream.write_all(GET.as_bytes()).ok()?;
    (client.try_reply().ok()?.status == 200).then_some(client)
}

fn refused(tollgate: &Tollgate, reason: &str) -> f64 {
    tollgate.metric(&format!("tollgate_connections_refused_total{{reason=\"{reason}\"}}"))
}

fn idle_closed(tollgate: &Tollgate, reason: &str) -> f64 {
    tollgate.metric(&format!("tollgate_idle_connections_closed_total{{reason=\"{reason}\"}}"))
}

#[track_caller]
fn ban(tollgate: &Tollgate, key: &str) {
    let body = json!({"key": key, "for": "1h", "force": true}).to_string();
    let fields = [("content-type", "application/json")];
    let reply = request(tollgate.admin, "POST", "/v1/bans", &fields, body.as_bytes());
    assert_eq!(reply.status, 201, "{}", reply.text());
}

#[test]
fn an_address_has_as_many_connections_as_configured() {
    let origin = Origin::ok();
    let limits = |most: usize| format!("client_limits: {{ connections_per_address: {most} }}\n");
    let tollgate = Tollgate::start(Config::new(&[origin.address], &limits(8)));
    let mut held = hold(GREEDY, tollgate.address, 8);
    assert!(connect(GREEDY, tollgate.address).closed());
    assert_eq!(refused(&tollgate, "connections_per_address"), 1.0);
    let logged = "connections_per_address open client=127.0.0.2";
    eventually("it is in the log", || tollgate.has_logged(&[logged]));
    let _others = OTHERS.map(|other| hold(other, tollgate.address, 8));

    held.pop();
    eventually("there is room for one", || {
        held.extend(try_hold(GREEDY, tollgate.address));
        held.len() == 8
    });
    let change = |from: usize, to: usize| {
        let file = tollgate.directory().join("proxy.yaml");
        let yaml = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, yaml.replace(&limits(from), &limits(to))).unwrap();
        let reloaded = tollgate.command(&["reload"]);
        let told = format!("client_limits.connections_per_address: {from} → {to}");
        assert!(reloaded.stdout.contains(&told), "{}{}", reloaded.stdout, reloaded.stderr);
    };
    change(8, 9);
    assert_eq!(get_from(GREEDY, tollgate.address, "/", &[]).status, 200);
    change(9, 2);
    assert!(connect(GREEDY, tollgate.address).closed());
    assert_eq!(held[0].request("GET", "/", &[], b"").status, 200, "it is open already");
    change(2, 0);
    hold(GREEDY, tollgate.address, 20);
}

#[test]
fn trusted_proxies_have_as_many_connections_as_they_like() {
    let origin = Origin::ok();
    let rest = format!("trusted_proxies: [{GREEDY}]\n");
    let tollgate = start(&origin, "connections_per_address: 2, connections: 12", &rest);
    let mut held = hold(GREEDY, tollgate.address, 10);
    hold(OTHERS[0], tollgate.address, 2);
    ban(&tollgate, &format!("ip:{GREEDY}"));
    ban(&tollgate, "ip:203.0.113.7");
    // Others' requests come on the same connections.
    for client in &mut held {
        let banned = client.request("GET", "/", &[("x-forwarded-for", "203.0.113.7")], b"");
        assert_eq!((banned.status, banned.header("connection")), (403, None));
        assert_eq!(client.request("GET", "/", &[("x-forwarded-for", "203.0.113.8")], b"").status, 200);
    }
    // Under pressure neither: what is idle there may serve anybody next.
    let direct = hold(OTHERS[0], tollgate.address, 2);
    eventually("a newcomer replaces another", || try_hold(OTHERS[1], tollgate.address).is_some());
    eventually("it is closed", || direct.iter().any(Client::has_something_to_read));
    assert!(held.iter_mut().all(|client| client.request("GET", "/", &[], b"").status == 403));
}

#[test]
fn behind_a_balancer_the_client_of_the_proxy_header_counts() {
    let origin = Origin::ok();
    let listener = "listeners: [{ address: \"127.0.0.1:0\", proxy_protocol: true }]
trusted_proxies: [127.0.0.1]
";
    let tollgate = start(&origin, "connections_per_address: 3", listener);
    let connect = |client: &str| {
        let family = if client.contains(':') { "TCP6" } else { "TCP4" };
        let own = if client.contains(':') { "::1" } else { "10.0.0.1" };
        Client::sending(tollgate.address, format!("PROXY {family} {client} {own} 1 2\r\n"))
    };
    for clients in [["192.0.2.7"; 4], ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8::4"]] {
        let mut held = clients[..3].iter().map(|client| connect(client)).collect::<Vec<_>>();
        for client in &mut held {
            assert_eq!(client.request("GET", "/", &[], b"").status, 200);
        }
        let before = refused(&tollgate, "connections_per_address");
        assert!(connect(clients[3]).closed());
        becomes(before + 1.0, || refused(&tollgate, "connections_per_address"));
        assert_eq!(connect("192.0.2.8").request("GET", "/", &[], b"").status, 200);
        assert_eq!(connect("2001:db8:0:1::1").request("GET", "/", &[], b"").status, 200);
    }
    ban(&tollgate, "ip:192.0.2.9");
    let mut banned: Vec<_> = (0..10).map(|_| connect("192.0.2.9")).collect();
    banned.retain_mut(|client| !client.has_something_to_read());
    assert!(banned.len() >= 3);
    assert!((0..8).any(|_| connect("192.0.2.9").closed()));
    eventually("it is refused", || refused(&tollgate, "banned") >= 1.0);
}

#[test]
fn the_response_to_a_banned_client_closes_its_connection() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "connections: 100", "user: [{ header: x-user-id, from: anyone }]\n");
    let mut client = connect(GREEDY, tollgate.address);
    ban(&tollgate, "user:mallory");
    let banned = client.request("GET", "/", &[("x-user-id", "mallory")], b"");
    assert_eq!((banned.status, banned.header("connection")), (403, Some("close")));
    assert!(client.closed_in_order());
    ban(&tollgate, "ip:127.0.0.0/30");
    let mut client = connect(GREEDY, tollgate.address);
    let banned = client.request("POST", "/", &[], b"a body");
    assert_eq!((banned.status, banned.header("connection")), (403, Some("close")));
    assert!(banned.text().contains("banned until"), "{}", banned.text());
    assert!(client.closed_in_order(), "and the client has read why");
    assert_eq!(get_from(OTHERS[0], tollgate.address, "/", &[]).status, 200);
}

/// Opens silent connections of a banned address until one is refused. Returns those that are not.
fn silent_connections_of_a_banned_address(tollgate: &Tollgate) -> Vec<Client> {
    ban(tollgate, &format!("ip:{GREEDY}"));
    let silent: Vec<_> = (0..10).map(|_| connect(GREEDY, tollgate.address)).collect();
    eventually("they are accepted", || tollgate.metric("tollgate_connections ") >= 10.0);
    for _ in 0..5 {
        assert!(connect(GREEDY, tollgate.address).closed());
    }
    assert_eq!(refused(tollgate, "banned"), 5.0);
    silent
}

#[test]
fn a_banned_address_has_few_connections_for_a_short_time() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "header_timeout: 30s", "");
    let began = Instant::now();
    let mut silent = silent_connections_of_a_banned_address(&tollgate);
    assert_eq!(get_from(OTHERS[0], tollgate.address, "/", &[]).status, 200);
    // Each may still read why it is denied.
    assert_eq!(silent[0].request("GET", "/", &[], b"").status, 403);
    assert!(silent[0].closed_in_order());
    assert!(silent.iter_mut().all(Client::closed));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(get_from(GREEDY, tollgate.address, "/", &[]).status, 403);
}

#[test]
fn a_banned_address_is_refused_before_tls() {
    let origin = Origin::ok();
    let https = Https::with(&origin, "", "client_limits: { header_timeout: 30s }\n");
    let began = Instant::now();
    let mut silent = silent_connections_of_a_banned_address(&https.tollgate);
    assert_eq!(https.connect().request("GET", "/", &[], b"").status, 200);
    assert!(silent.iter_mut().all(Client::closed));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_client_that_a_request_may_exempt_from_a_ban_is_not_kept_out() {
    for (exempt, is_kept_out) in [("header:x-plan=gold", false), ("198.51.100.0/24", true)] {
        let origin = Origin::ok();
        let rest = format!(
            "trusted_proxies: [198.51.100.9]
policies: {{ three: {{ algorithm: sliding_log, key: ip, limit: 3/1h }} }}
bans: {{ hammering: {{ key: ip, after: 5/10s, for: 1h, exempt: [\"{exempt}\"] }} }}
"
        );
        let tollgate = Tollgate::start(Config::new(&[origin.address], &rest).with_policy("three"));
        // Over one connection, so that none that is over takes the place of another.
        let mut client = connect(GREEDY, tollgate.address);
        // The ban may close the connection before the next request is sent.
        eventually("it is banned", || {
            let sent = client.stream.write_all(GET.as_bytes());
            sent.and_then(|()| client.try_reply()).map_or(true, |reply| reply.status == 403)
        });
        assert!(client.closed());
        // Only a request tells whether it is exempt. Silent ones are closed after two seconds, which on a busy machine may be
        // before it is sent: then there have to be others.
        let mut status = None;
        eventually("it is told", || {
            let silent: Vec<_> = (0..10).map(|_| connect(GREEDY, tollgate.address)).collect();
            eventually("they are accepted, if they are not over", || {
                tollgate.metric("tollgate_connections ") >= 10.0
                    || silent.iter().any(Client::has_something_to_read)
            });
            let mut client = connect(GREEDY, tollgate.address);
            let sent = client.stream.write_all(GET.as_bytes());
            status = sent.and_then(|()| client.try_reply()).map(|reply| reply.status).ok();
            !is_kept_out || status.is_none()
        });
        assert_eq!(status, (!is_kept_out).then_some(403), "{exempt}");
        assert_eq!(refused(&tollgate, "banned") > 0.0, is_kept_out, "{exempt}");
    }
}

fn a_ban_closes_the_idle_connections_of_its_address_on_every_instance(redis: Option<&Deployment>) {
    let release = Latch::new();
    let released = release.clone();
    let origin = Origin::start(move |conn| {
        let head = conn.head()?;
        if head.is_some_and(|head| head.contains("/slow")) {
            released.wait();
        }
        conn.answer("200 OK", &[], b"ok")
    });
    let store = redis.map(|redis| format!("store: {{ redis: {{ {}, timeout: 5s }} }}\n", redis.settings()));
    let tollgate = start(&origin, "connections: 1000", &store.clone().unwrap_or_default());
    let other = store.map(|store| start(&origin, "connections: 1000", &store));
    let mut idle = hold(GREEDY, tollgate.address, 50);
    let mut others: Vec<_> = OTHERS.iter().flat_map(|other| hold(other, tollgate.address, 2)).collect();
    let mut busy = connect(GREEDY, tollgate.address);
    busy.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("it is in flight", || origin.heads().iter().any(|head| head.contains("/slow")));
    ban(other.as_ref().unwrap_or(&tollgate), &format!("ip:{GREEDY}"));
    let began = Instant::now();
    assert!(idle.iter_mut().all(Client::closed_in_order));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(idle_closed(&tollgate, "banned"), 50.0);
    release.open();
    let reply = busy.reply();
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert!(busy.closed());
    assert!(others.iter_mut().all(|client| client.request("GET", "/", &[], b"").status == 200));
}

/// Clients whose connections have no request in flight, in every way there is.
fn idle_in_each_way(https: Option<&Https>, address: SocketAddr) -> Vec<TcpStream> {
    let mut idle = Vec::new();
    for nth in 0..20 {
        let mut client = connect(GREEDY, address);
        let sent: &[u8] = match (https, nth % 4) {
            // Silent from the beginning.
            (_, 0) => b"",
            // A head that never ends.
            (None, 1) => b"GET / HTTP/1.1\r\nhost: a\r\nx: ",
            (None, 2) => {
                assert_eq!(client.request("GET", "/", &[], b"").status, 200);
                b""
            }
            // The same after a response.
            (None, _) => {
                assert_eq!(client.request("GET", "/", &[], b"").status, 200);
                b"GET / HTTP/1.1\r\nhost: a\r\nx: "
            }
            // The beginning of a handshake.
            (Some(_), 1) => b"\x16\x03\x01",
            (Some(https), _) => {
                let tls = https.connector().over(client.stream.try_clone().unwrap(), "localhost").unwrap();
                let mut tls = tls.into_http();
                assert_eq!(tls.request("GET", "/", &[], b"").status, 200);
                if nth % 4 == 3 {
                    tls.send("GET / HTTP/1.1\r\n");
                }
                b""
            }
        };
        client.send(sent);
        idle.push(client.stream);
    }
    idle
}

#[test]
fn under_pressure_idle_connections_of_the_address_that_has_most_make_room() {
    for is_https in [false, true] {
        let origin = Origin::ok();
        let limits = "client_limits: { connections: 20, header_timeout: 60s }\n";
        let https = is_https.then(|| Https::with(&origin, "", limits));
        let plain = (!is_https).then(|| Tollgate::start(Config::new(&[origin.address], limits)));
        let tollgate = https.as_ref().map_or_else(|| plain.as_ref().unwrap(), |https| &https.tollgate);
        let idle = idle_in_each_way(https.as_ref(), tollgate.address);
        eventually("all slots are taken", || tollgate.metric("tollgate_connections ") == 20.0);
        // The last responses are a quarter of a second old.
        thread::sleep(Duration::from_millis(300));
        let mut others = Vec::new();
        for n in 0..16 {
            if let Some(https) = &https {
                let stream = connect(OTHERS[n % 5], tollgate.address).stream;
                let mut client = https.connector().over(stream, "localhost").unwrap().into_http();
                assert_eq!(client.request("GET", "/", &[], b"").status, 200, "the {n}th");
                others.push(client.stream.sock);
            } else {
                let mut client = try_hold(OTHERS[n % 5], tollgate.address).expect("it is let in");
                assert_eq!(client.request("GET", "/", &[], b"").status, 200, "the {n}th");
                others.push(client.stream);
            }
        }
        let closed = |stream: &TcpStream| {
            stream.set_nonblocking(true).unwrap();
            let mut rest = Vec::new();
            let ended = (&*stream).read_to_end(&mut rest);
            ended.map_or_else(|error| error.kind() != std::io::ErrorKind::WouldBlock, |_| true)
        };
        eventually("sixteen have made room", || idle.iter().filter(|stream| closed(stream)).count() == 16);
        assert_eq!(idle_closed(tollgate, "replaced"), 16.0);
        assert_eq!(refused(tollgate, "connections"), 0.0);
        assert!(!others.iter().any(closed), "of five addresses that have three and four");
        eventually("the others are left", || tollgate.metric("tollgate_connections ") == 20.0);
    }
}

#[test]
fn requests_in_flight_are_left_alone_and_the_newcomer_is_refused() {
    let release = Latch::new();
    let released = release.clone();
    let origin = Origin::start(move |conn| {
        conn.head()?;
        released.wait();
        conn.answer("200 OK", &[], b"ok")
    });
    let tollgate = start(&origin, "connections: 6", "");
    let mut busy: Vec<_> = (0..6).map(|_| connect(GREEDY, tollgate.address)).collect();
    for client in &mut busy {
        client.send(GET);
    }
    eventually("they are in flight", || origin.heads().len() == 6);
    assert!(connect(OTHERS[0], tollgate.address).closed());
    assert_eq!(refused(&tollgate, "connections"), 1.0);
    let logged = "none of them can make room client=127.0.0.11";
    eventually("it is in the log", || tollgate.has_logged(&[logged]));
    release.open();
    for client in &mut busy {
        let reply = client.reply();
        assert_eq!((reply.status, reply.header("connection")), (200, None));
    }
    // Now they are idle.
    eventually("one makes room", || try_hold(OTHERS[0], tollgate.address).is_some());
}

#[test]
fn an_address_that_has_most_replaces_its_own() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "connections: 6", "");
    let mut others = hold(OTHERS[0], tollgate.address, 2);
    let mut greedy = hold(GREEDY, tollgate.address, 4);
    assert!(try_hold(GREEDY, tollgate.address).is_none(), "its connections are too young");
    let mut newcomer = None;
    eventually("it is let in", || {
        newcomer = try_hold(GREEDY, tollgate.address);
        newcomer.is_some()
    });
    eventually("one is closed", || greedy.iter().any(Client::has_something_to_read));
    greedy.retain(|client| !client.has_something_to_read());
    assert_eq!(greedy.len(), 3);
    assert!(greedy.iter_mut().all(|client| client.request("GET", "/", &[], b"").status == 200));
    assert!(others.iter_mut().all(|client| client.request("GET", "/", &[], b"").status == 200));
}

#[test]
fn a_flood_of_connections_keeps_nobody_out() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "connections: 300, connections_per_address: 0", "");
    let _greedy = hold(GREEDY, tollgate.address, 300);
    let is_over = Latch::new();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut held = std::collections::VecDeque::new();
                while !is_over.opens_within(Duration::ZERO) {
                    held.push_back(connect(GREEDY, tollgate.address));
                    if held.len() > 300 {
                        held.pop_front();
                    }
                }
            });
        }
        eventually("it takes all", || idle_closed(&tollgate, "replaced") >= 100.0);
        let served = (0..300).filter(|n| try_hold(OTHERS[n % 5], tollgate.address).is_some()).count();
        is_over.open();
        assert_eq!(served, 300);
    });
    eventually("there are as many as configured", || tollgate.metric("tollgate_connections ") <= 300.0);
}

/// Whether they were served before or not, and whatever they leave unanswered.
#[test]
fn silent_connections_of_http2_make_room_at_once() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "connections: 600, connections_per_address: 0", "");
    let connect = |nth: usize| {
        let mut client = FrameClient::connect(tollgate.address);
        if nth.is_multiple_of(2) {
            client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &frames::request("GET", "/")));
            assert_eq!(client.outcome(1), Outcome::Status(200));
        }
        client
    };
    let _silent: Vec<_> = (0..600).map(connect).collect();
    eventually("all slots are taken", || tollgate.metric("tollgate_connections ") == 600.0);
    // The last responses are a quarter of a second old.
    thread::sleep(Duration::from_millis(300));
    // Until each of the six addresses has as many.
    let held: Vec<_> = (0..500).map(|n| try_hold(OTHERS[n % 5], tollgate.address)).collect();
    assert_eq!(held.iter().flatten().count(), 500);
    assert_eq!(refused(&tollgate, "connections"), 0.0);
}

#[test]
fn after_a_body_that_nobody_wanted_a_connection_is_idle() {
    let origin = Origin::ok();
    let rest = "client_limits: { connections: 1 }
policies:
  one: { algorithm: sliding_log, key: ip, limit: 1/1h }
";
    let tollgate = Tollgate::start(Config::new(&[origin.address], rest).with_policy("one"));
    let mut client = connect(GREEDY, tollgate.address);
    let statuses = [(); 3].map(|()| client.request("POST", "/", &[], b"body").status);
    assert_eq!(statuses, [200, 429, 429]);
    eventually("it makes room", || try_hold(OTHERS[0], tollgate.address).is_some());
}

#[test]
fn an_address_that_has_most_connections_is_named_in_a_warning() {
    let origin = Origin::ok();
    let mut command = command(std::path::Path::new("."));
    command.args(["run", "--config", "proxy.yaml"]).env("TOLLGATE_DOCTOR_MINUTE_MS", "600");
    let config = Config::new(&[origin.address], "client_limits: { connections: 400 }\n");
    let tollgate = Tollgate::launch(command, config);
    let held = hold(GREEDY, tollgate.address, 120);
    let named = "127.0.0.2 has 120 of 120 client connections open, and there may be 400";
    let warnings = || {
        let status = tollgate.admin("GET", "/v1/status").json();
        let all = status["warnings"].as_array().unwrap().iter();
        all.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    eventually("it is in the status", || warnings().iter().any(|warning| warning.contains(named)));
    let named = "client connections open, and there may be 400: it is either one client with very many,";
    eventually("it is logged", || tollgate.has_logged(&["WARN 127.0.0.2 has", named]));
    drop(held);
    eventually("it is over", || warnings().is_empty());
}
