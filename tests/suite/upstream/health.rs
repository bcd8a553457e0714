//! Health checks: which endpoints get requests by what probes say, and by whether they can be reached.

use std::{
    collections::BTreeSet,
    net::{SocketAddr, TcpListener},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{http2::until, upstream};
use crate::harness::{
    Authority, Client, Config, Http2Client, Http2Origin, Latch, Load, Origin, Running, Tollgate, eventually,
    file_name, get, in_runtime, nobody, program, read, server_config,
};

/// An origin that responds to `/healthz` with one status, and to everything else with another.
pub(super) struct Service {
    pub(super) origin: Origin,
    pub(super) health: Arc<AtomicU16>,
    pub(super) others: Arc<AtomicU16>,
}

impl Service {
    pub(super) fn start(health: u16, others: u16) -> Self {
        let [health, others] = [health, others].map(|status| Arc::new(AtomicU16::new(status)));
        let (healthy, other) = (Arc::clone(&health), Arc::clone(&others));
        let origin = Origin::start(move |conn| {
            while let Some(head) = conn.head()? {
                conn.body(&head)?;
                let status = if head.starts_with("GET /healthz ") { &healthy } else { &other };
                let status = status.load(Ordering::SeqCst);
                conn.answer(&format!("{status} Whatever"), &[], b"ok")?;
            }
            Ok(())
        });
        Self { origin, health, others }
    }

    pub(super) fn ok() -> Self {
        Self::start(200, 200)
    }

    /// Requests of clients.
    pub(super) fn requests(&self) -> usize {
        self.origin.heads().iter().filter(|head| !head.contains("tollgate-health/")).count()
    }

    pub(super) fn probes(&self) -> Vec<String> {
        self.origin.heads().into_iter().filter(|head| head.contains("tollgate-health/")).collect()
    }
}

pub(super) fn urls(addresses: &[SocketAddr]) -> Vec<String> {
    addresses.iter().map(|address| format!("http://{address}")).collect()
}

/// One worker before these services.
pub(super) fn before(services: &[Service], settings: &str) -> Tollgate {
    let addresses: Vec<_> = services.iter().map(|service| service.origin.address).collect();
    Tollgate::start(upstream(&urls(&addresses), settings))
}

pub(super) fn logged(tollgate: &Tollgate, address: SocketAddr, words: &str) -> usize {
    let name = format!("http://{address} ");
    tollgate.log().iter().filter(|line| line.contains(&name) && line.contains(words)).count()
}

/// Sends requests until `condition` holds.
#[track_caller]
pub(super) fn asking_until(what: &str, tollgate: &Tollgate, mut condition: impl FnMut() -> bool) {
    eventually(what, || {
        get(tollgate.address, "/", &[]);
        condition()
    });
}

pub(super) const FAST: &str =
    "health: { path: /healthz, interval: 100ms, timeout: 5s, healthy: 2, unhealthy: 2 }";

#[test]
fn an_endpoint_is_not_blamed_for_files_that_tollgate_cannot_open() {
    let service = Service::ok();
    let address = service.origin.address;
    let mut limited = program("bash", "bash");
    limited.args(["-c", "ulimit -n 100; exec \"$0\" run --config proxy.yaml"]);
    limited.arg(env!("CARGO_BIN_EXE_tollgate"));
    let held = Origin::sink();
    let config = Config::yaml(format!(
        "workers: 1\nupstreams:\n  origin: {{ endpoints: [\"http://{address}\"], {FAST} }}\n  held: {{ endpoints: [\"http://{}\"], timeouts: {{ response: 120s }} }}\nroutes:\n  - {{ path: /held, upstream: held }}\n  - {{ path: /*, upstream: origin }}\n",
        held.address
    ));
    let tollgate = Tollgate::launch(limited, config);
    eventually("it is probed", || !service.probes().is_empty());

    let mut client = Client::connect(tollgate.address);
    let why =
        format!("a connection to endpoint http://{} can't be opened: Too many open files", held.address);
    in_runtime(async {
        let mut others = Http2Client::connect(tollgate.address).await;
        let mut answers = Vec::new();
        for _ in 0..100 {
            answers.push(others.send("GET", "/held", &[], true).await.unwrap());
        }
        until("no file is left", || tollgate.has_logged(&[&why])).await;
        // For several intervals of the check.
        tokio::time::sleep(Duration::from_millis(800)).await;
        let (last, _) = answers.pop().unwrap();
        let reply = read(last).await.unwrap();
        assert_eq!((reply.status(), reply.head.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    });
    eventually("files are left", || client.request("GET", "/", &[], b"").status == 200);
    for words in ["unhealthy", "cannot be reached", "could not be reached"] {
        assert_eq!(logged(&tollgate, address, words), 0, "{words}: {:?}", tollgate.log());
    }
}

#[test]
fn an_endpoint_that_fails_its_checks_gets_no_requests_until_it_passes_them() {
    let services = [Service::ok(), Service::ok()];
    let [good, bad] = &services;
    let tollgate = before(&services, FAST);
    eventually("both are probed", || !good.probes().is_empty() && !bad.probes().is_empty());
    for _ in 0..4 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    assert_eq!((good.requests(), bad.requests()), (2, 2));

    bad.health.store(500, Ordering::SeqCst);
    let address = bad.origin.address;
    let why = "is unhealthy: 2 probes in a row failed, the last: it responded 500 Internal Server Error to GET /healthz";
    eventually("it is unhealthy", || logged(&tollgate, address, why) == 1);
    let probes = bad.probes().len();
    for _ in 0..6 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    assert_eq!((good.requests(), bad.requests()), (8, 2));
    eventually("probes go on", || bad.probes().len() > probes + 3);
    assert_eq!(logged(&tollgate, address, "is unhealthy"), 1, "a change is logged once");
    let shown = tollgate.admin("GET", "/v1/upstreams").json();
    let endpoints = &shown["upstreams"][0]["endpoints"];
    assert_eq!(
        (&endpoints[0]["healthy"], &endpoints[1]["healthy"]),
        (&true.into(), &false.into()),
        "{shown}"
    );

    bad.health.store(204, Ordering::SeqCst);
    eventually("it is healthy again", || {
        logged(&tollgate, address, "is healthy again: 2 probes in a row succeeded") == 1
    });
    asking_until("it gets requests again", &tollgate, || bad.requests() > 2);
    assert_eq!(logged(&tollgate, good.origin.address, "healthy"), 0);
}

#[test]
fn a_probe_says_who_it_is_and_has_a_connection_of_its_own() {
    let services = [Service::ok()];
    let settings = "health: { path: \"/healthz?full=1\", interval: 100ms, host: \"service.internal:81\" }";
    let tollgate = before(&services, settings);
    let [service] = &services;
    eventually("it is probed", || service.probes().len() > 1);
    let head = service.probes().remove(0);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        head.split("\r\n").collect::<Vec<_>>(),
        [
            "GET /healthz?full=1 HTTP/1.1",
            "host: service.internal:81",
            &format!("user-agent: tollgate-health/{version}"),
            "accept: */*",
            "connection: close",
        ]
    );
    eventually("connections are closed", || service.origin.ended() > 1);
    drop(tollgate);
}

#[test]
fn the_first_probe_is_sent_at_once_and_decides_alone() {
    let services = [Service::start(500, 200), Service::ok()];
    let settings = "health: { path: /healthz, interval: 1h, unhealthy: 10 }";
    let tollgate = before(&services, settings);
    let address = services[0].origin.address;
    eventually("it is unhealthy", || logged(&tollgate, address, "is unhealthy: a probe failed:") == 1);
    for _ in 0..4 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    assert_eq!((services[0].requests(), services[1].requests()), (0, 4));
}

#[test]
fn statuses_say_what_is_healthy() {
    let services = [Service::start(302, 200), Service::start(404, 200)];
    let tollgate = before(&services, "health: { path: /healthz, interval: 1h, statuses: [4xx] }");
    let [redirects, misses] = &services;
    eventually("a redirect is none of them", || {
        logged(&tollgate, redirects.origin.address, "it responded 302 Found") == 1
    });
    eventually("the other is probed", || misses.probes().len() == 1);
    assert_eq!(logged(&tollgate, misses.origin.address, "unhealthy"), 0);
}

#[test]
fn a_probe_that_hangs_fails_in_time_and_never_piles_up() {
    let silent = Origin::sink();
    let tollgate = Tollgate::start(upstream(
        &urls(&[silent.address]),
        "health: { path: /healthz, interval: 100ms, timeout: 300ms, unhealthy: 2 }",
    ));
    let mut most = 0;
    eventually("it is unhealthy", || {
        most = most.max(silent.open_connections());
        logged(&tollgate, silent.address, "it did not respond within 300ms") == 1
    });
    eventually("it is probed again and again", || {
        most = most.max(silent.open_connections());
        silent.connections() > 6
    });
    // One that was given up may not have ended yet.
    assert!(most <= 2, "{most} at a time");
}

#[test]
fn a_response_that_is_not_http_or_never_ends_fails_a_probe() {
    for (says, why) in [
        (&b"SSH-2.0-OpenSSH_9\r\n\r\n"[..], "its response is not HTTP/1.1"),
        (b"", "it closed the connection without a response"),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "it responded 503 Service Unavailable"),
    ] {
        let origin = Origin::saying(says);
        let tollgate = Tollgate::start(upstream(&urls(&[origin.address]), "health: { path: / }"));
        eventually(why, || logged(&tollgate, origin.address, why) == 1);
    }
    let endless = Origin::start(|conn| {
        conn.head()?;
        conn.send(b"HTTP/1.1 200 OK\r\n")?;
        loop {
            conn.send(b"x-more: and more\r\n")?;
        }
    });
    let tollgate = Tollgate::start(upstream(&urls(&[endless.address]), "health: { path: / }"));
    eventually("an endless head is not read", || {
        logged(&tollgate, endless.address, "its response")
            + logged(&tollgate, endless.address, "the head of its response")
            > 0
    });
}

#[test]
fn an_informational_response_is_not_the_response() {
    let origin = Origin::saying("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 500 No\r\n\r\n");
    let tollgate = Tollgate::start(upstream(&urls(&[origin.address]), "health: { path: / }"));
    eventually("it is unhealthy", || logged(&tollgate, origin.address, "it responded 500") == 1);
}

#[test]
fn a_tcp_check_connects_and_sends_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let other = Origin::ok();
    let settings = "health: { type: tcp, interval: 100ms, healthy: 1, unhealthy: 1 }";
    let tollgate = Tollgate::start(upstream(&urls(&[address, other.address]), settings));
    eventually("it connects", || other.connections() > 2);
    assert!(other.received().iter().all(String::is_empty));
    assert_eq!(logged(&tollgate, address, "unhealthy"), 0);
    drop(listener);
    eventually("nobody listens", || {
        logged(&tollgate, address, "is unhealthy: a probe failed: Connection refused") == 1
    });
    let _listener = TcpListener::bind(address).unwrap();
    eventually("somebody listens", || logged(&tollgate, address, "is healthy again") == 1);
}

#[test]
fn checks_verify_certificates_as_requests_do() {
    let (authority, other) = (Authority::new("own"), Authority::new("other"));
    let origin = Origin::ok_tls(server_config(&authority.issue("orders", &["orders.internal"])));
    let stranger = Origin::ok_tls(server_config(&other.issue("stranger", &["orders.internal"])));
    let urls = [origin.address, stranger.address].map(|address| format!("https://{address}"));
    let settings = format!(
        "tls: {{ ca: {}, server_name: orders.internal }}, health: {{ path: /, interval: 100ms, timeout: 20s }}",
        file_name(&authority.file())
    );
    let tollgate = Tollgate::start(upstream(&urls, &settings));
    eventually("it is probed", || origin.heads().len() > 1);
    eventually("the other is not trusted", || {
        let lines = tollgate.log();
        let mut lines = lines.iter().filter(|line| line.contains(&urls[1]));
        lines.any(|line| line.contains("is unhealthy") && line.contains("is not from a trusted authority"))
    });
    assert!(!tollgate.log().iter().any(|line| line.contains(&urls[0]) && line.contains("unhealthy")));
}

#[test]
fn checks_speak_http2_where_requests_do() {
    let origin = Http2Origin::ok();
    let settings = "protocol: h2, health: { path: /healthz, interval: 100ms }";
    let tollgate = Tollgate::start(upstream(&urls(&[origin.address]), settings));
    eventually("it is probed", || origin.heads().len() > 1);
    let head = origin.heads().remove(0);
    assert_eq!(head.uri().to_string(), format!("http://{}/healthz", origin.address));
    assert!(head.headers()["user-agent"].to_str().unwrap().starts_with("tollgate-health/"));
    eventually("connections are closed", || origin.connections() > 3 && origin.open_connections() <= 1);
    assert_eq!(logged(&tollgate, origin.address, "unhealthy"), 0);
    let old = Origin::ok();
    let tollgate = Tollgate::start(upstream(&urls(&[old.address]), settings));
    eventually("another does not", || logged(&tollgate, old.address, "does not speak HTTP/2") == 1);
}

#[test]
fn a_drained_endpoint_is_checked_so_that_its_state_is_known_once_it_is_undrained() {
    let services = [Service::ok(), Service::ok()];
    let tollgate = before(&services, FAST);
    let address = services[0].origin.address;
    let url = format!("http://{address}");
    let ended = tollgate.command(&["drain", "origin", &url, "--reason", "a test"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let before = services[0].requests();
    services[0].health.store(500, Ordering::SeqCst);
    eventually("it is unhealthy", || logged(&tollgate, address, "is unhealthy") == 1);
    assert_eq!(tollgate.command(&["undrain", "origin", &url]).code, Some(0));
    for _ in 0..6 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    assert_eq!(services[0].requests(), before);
}

#[test]
fn a_check_of_grpc_fails_where_tls_chooses_http_1() {
    let authority = Authority::new("own");
    let origin = Origin::ok_tls(server_config(&authority.issue("orders", &["127.0.0.1"])));
    let url = format!("https://{}", origin.address);
    let settings =
        format!("protocol: auto, tls: {{ ca: {} }}, health: {{ type: grpc }}", file_name(&authority.file()));
    let tollgate = Tollgate::start(upstream(&[url], &settings));
    let why = "it has chosen HTTP/1.1 in the TLS handshake, and gRPC needs HTTP/2";
    eventually(why, || tollgate.has_logged(&["is unhealthy", why]));
}

/// A server with grpc.health.v1 that gives this answer for a service `shop.Cart`, and knows no other.
fn grpc_health(status: Arc<AtomicU16>) -> Http2Origin {
    Http2Origin::start(move |mut exchange| {
        let status = status.load(Ordering::SeqCst);
        async move {
            let (message, _) = exchange.read().await?;
            assert_eq!(exchange.head.uri().path(), "/grpc.health.v1.Health/Check");
            let mut stream = exchange.head(200, &[("content-type", "application/grpc")])?;
            let code = if message == b"\0\0\0\0\x0b\x0a\x09shop.Cart" {
                let status = u8::try_from(status).unwrap();
                stream.send_data(Bytes::from(vec![0, 0, 0, 0, 2, 8, status]), false)?;
                "0"
            } else {
                "5"
            };
            stream.send_trailers(
                [("grpc-status".parse().unwrap(), code.parse().unwrap())].into_iter().collect(),
            )
        }
    })
}

#[test]
fn grpc_services_are_asked_for_their_health() {
    let status = Arc::new(AtomicU16::new(1));
    let origin = grpc_health(Arc::clone(&status));
    let settings = "protocol: h2, health: { type: grpc, service: shop.Cart, interval: 100ms, unhealthy: 1 }";
    let tollgate = Tollgate::start(upstream(&urls(&[origin.address]), settings));
    eventually("it is probed", || origin.heads().len() > 2);
    let head = origin.heads().remove(0);
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", "1000m")]
    {
        assert_eq!(head.headers()[name], value);
    }
    assert_eq!(logged(&tollgate, origin.address, "unhealthy"), 0);
    status.store(2, Ordering::SeqCst);
    eventually("it does not serve", || {
        logged(&tollgate, origin.address, "it says that service shop.Cart is NOT_SERVING") == 1
    });
    status.store(1, Ordering::SeqCst);
    eventually("it serves again", || logged(&tollgate, origin.address, "is healthy again") == 1);

    let settings = "protocol: h2, health: { type: grpc, service: shop.Basket }";
    let tollgate = Tollgate::start(upstream(&urls(&[origin.address]), settings));
    let why = "it knows no health of service shop.Basket (NOT_FOUND)";
    eventually(why, || logged(&tollgate, origin.address, why) == 1);

    let without = Http2Origin::start(|mut exchange| async move {
        exchange.respond(200, &[("content-type", "application/grpc"), ("grpc-status", "12")], b"")
    });
    let tollgate =
        Tollgate::start(upstream(&urls(&[without.address]), "protocol: h2, health: { type: grpc }"));
    let why = "it has no grpc.health.v1.Health service (UNIMPLEMENTED)";
    eventually(why, || logged(&tollgate, without.address, why) == 1);
}

#[test]
fn a_server_of_grpcio_is_asked_for_its_health() {
    let Ok(packages) = std::env::var("PYTHON_CLIENTS") else {
        eprintln!("left out: `scripts/test` installs grpcio and says where in PYTHON_CLIENTS");
        return;
    };
    // As grpcio-health-checking has it, without its generated code: any change of the line on stdin changes the status.
    let script = r"
import sys, grpc
from concurrent import futures
state = [1]
def check(request, context):
    if request not in (b'', b'\x0a\x09shop.Cart'):
        context.abort(grpc.StatusCode.NOT_FOUND, 'unknown service')
    return bytes([8, state[0]])
server = grpc.server(futures.ThreadPoolExecutor(4))
handler = grpc.unary_unary_rpc_method_handler(check)
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler('grpc.health.v1.Health', {'Check': handler}),))
server.add_insecure_port(sys.argv[1])
server.start()
for line in sys.stdin:
    state[0] = int(line)
";
    let address = nobody();
    let mut python = program("python3", "python3");
    python.env("PYTHONPATH", packages).args(["-c", script, &address.to_string()]).stdin(Stdio::piped());
    let mut child = python.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let _running = Running(child);
    eventually("it listens", || std::net::TcpStream::connect(address).is_ok());
    let settings = "protocol: h2, health: { type: grpc, service: shop.Cart, interval: 100ms, timeout: 10s, healthy: 1, unhealthy: 1 }";
    let tollgate = Tollgate::start(upstream(&urls(&[address]), settings));
    std::io::Write::write_all(&mut stdin, b"2\n").unwrap();
    let why = "is unhealthy: a probe failed: it says that service shop.Cart is NOT_SERVING";
    eventually("it does not serve", || logged(&tollgate, address, why) == 1);
    std::io::Write::write_all(&mut stdin, b"1\n").unwrap();
    eventually("it serves again", || logged(&tollgate, address, "is healthy again") == 1);
}

/// A service in a process of its own, which can be killed and stopped. It says where it is.
struct Process(Running);

impl Process {
    fn start(address: SocketAddr) -> Self {
        let script = "
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        body = sys.argv[1].encode()
        self.send_response(200)
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
Server(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
";
        let port = address.port().to_string();
        let mut python = program("python3", "python3");
        let process = python.args(["-c", script, &port]).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = Self(Running(process.unwrap()));
        eventually("it listens", || std::net::TcpStream::connect(address).is_ok());
        process
    }

    fn signal(&self, name: &str) {
        let pid = self.0.0.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }
}

#[test]
fn endpoints_that_are_killed_or_hang_get_no_requests_until_they_are_back() {
    let addresses = [nobody(), nobody()];
    let mut processes = addresses.map(|address| Some(Process::start(address)));
    let settings = "health: { path: /, interval: 100ms, timeout: 1s, healthy: 1, unhealthy: 1 }, timeouts: { response: 20s }";
    let tollgate = Tollgate::start(upstream(&urls(&addresses), settings));
    let who = || get(tollgate.address, "/", &[]).text();
    let both = |what| {
        let mut seen = BTreeSet::new();
        eventually(what, || {
            seen.insert(who());
            seen.len() == 2
        });
        let ports = addresses.iter().map(|address| address.port().to_string());
        assert_eq!(seen, ports.collect());
    };
    both("both serve");

    drop(processes[0].take());
    for _ in 0..20 {
        assert_eq!(who(), addresses[1].port().to_string());
    }
    eventually("it is dead", || logged(&tollgate, addresses[0], "is unhealthy: a probe failed") == 1);
    processes[0] = Some(Process::start(addresses[0]));
    both("it is back");

    processes[0].as_ref().unwrap().signal("STOP");
    eventually("it hangs", || logged(&tollgate, addresses[0], "it did not respond within 1s") == 1);
    for _ in 0..20 {
        assert_eq!(who(), addresses[1].port().to_string());
    }
    processes[0].as_ref().unwrap().signal("CONT");
    both("it goes on");
}

#[test]
fn endpoints_that_restart_under_load_fail_no_request_and_are_back_at_once() {
    let addresses = [nobody(), nobody()];
    let mut processes = addresses.map(|address| Some(Process::start(address)));
    let tollgate = Tollgate::start(Config::new(&addresses, "workers: 2\n"));
    let load = Load::start(&[tollgate.address], &["/"], 8, Duration::ZERO);
    for (process, address) in processes.iter_mut().zip(addresses) {
        drop(process.take());
        eventually("it is missed", || logged(&tollgate, address, "cannot be reached") == 1);
        *process = Some(Process::start(address));
        let back = Instant::now();
        eventually("it is back", || logged(&tollgate, address, "can be reached again") == 1);
        // It is tried once a second.
        assert!(back.elapsed() < Duration::from_secs(5), "{:?}", back.elapsed());
    }
    let samples = load.stop();
    let failed = samples.iter().filter(|sample| sample.status != 200).count();
    // A request on a new connection that breaks may have been processed, and is not sent again.
    assert!(failed <= 4, "{failed} of {}", samples.len());
    assert!(addresses.iter().all(|&address| logged(&tollgate, address, "is ejected") == 0));
}

#[test]
fn everything_is_back_soon_after_everything_was_down() {
    for settings in ["balance: least_request", FAST] {
        let addresses = [nobody(), nobody(), nobody(), nobody()];
        let tollgate = Tollgate::start(upstream(&urls(&addresses), settings));
        let processes = addresses.map(|address| Some(Process::start(address)));
        asking_until("it serves", &tollgate, || get(tollgate.address, "/", &[]).status == 200);
        drop(processes);
        // Long enough for every worker and every probe to know.
        let down = Instant::now();
        let mut slowest = Duration::ZERO;
        while down.elapsed() < Duration::from_secs(3) {
            let begun = Instant::now();
            assert_eq!(get(tollgate.address, "/", &[]).status, 502);
            slowest = slowest.max(begun.elapsed());
        }
        assert!(slowest < Duration::from_secs(5), "a quick answer: {slowest:?}");
        let _processes = addresses.map(|address| Some(Process::start(address)));
        let back = Instant::now();
        let mut seen = BTreeSet::new();
        eventually("all serve", || {
            seen.insert(get(tollgate.address, "/", &[]).text());
            addresses.iter().all(|address| seen.contains(&address.port().to_string()))
        });
        assert!(back.elapsed() < Duration::from_secs(5), "{settings}: {:?}", back.elapsed());
        for _ in 0..20 {
            assert_eq!(get(tollgate.address, "/", &[]).status, 200);
        }
    }
}

#[test]
fn a_reload_keeps_what_is_known_of_an_upstream_that_stays() {
    let services = [Service::start(500, 200), Service::ok()];
    let addresses = [services[0].origin.address, services[1].origin.address];
    let settings = "health: { path: /healthz, interval: 1h }";
    let config = |status: u16| {
        format!(
            "{}policies: {{ a: {{ algorithm: gcra, key: ip, limit: {status}/1s }} }}\n",
            yaml(&addresses, settings)
        )
    };
    let tollgate = Tollgate::start(Config::yaml(config(1000)));
    let unhealthy = || logged(&tollgate, addresses[0], "is unhealthy");
    eventually("it is unhealthy", || unhealthy() == 1);
    let file = tollgate.directory().join("proxy.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("limit: 1000/1s", "limit: 2000/1s")).unwrap();
    let reloaded = tollgate.command(&["reload"]);
    assert!(reloaded.stdout.contains("2000/1s"), "{reloaded:?}");
    for _ in 0..4 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    assert_eq!((services[0].requests(), services[1].requests(), unhealthy()), (0, 4, 1));
    assert_eq!(services[0].probes().len(), 1);

    // Another interval is another upstream.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("interval: 1h", "interval: 2h")).unwrap();
    tollgate.command(&["reload"]);
    eventually("it is probed anew", || services[0].probes().len() == 2);
}

#[test]
fn a_reload_that_changes_an_upstream_keeps_what_is_known_of_its_endpoints() {
    let services = [Service::start(200, 500), Service::ok(), Service::ok()];
    let addresses = services.each_ref().map(|service| service.origin.address);
    let bad = &services[0];
    let settings = "balance: round_robin, outlier: { failures: 2, eject: 1h }, retry: { max: 1 }";
    let tollgate = Tollgate::start(Config::yaml(yaml(&addresses[..2], settings)));
    asking_until("it is ejected", &tollgate, || logged(&tollgate, addresses[0], "is ejected") == 1);
    let file = tollgate.directory().join("proxy.yaml");
    let change = |from: &str, to: &str| {
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace(from, to)).unwrap();
        let reloaded = tollgate.command(&["reload"]);
        assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    };
    let spared = || {
        let before = bad.requests();
        for _ in 0..6 {
            assert_eq!(get(tollgate.address, "/", &[]).status, 200);
        }
        bad.requests() == before
    };
    change("max: 1", "max: 2");
    assert!(spared(), "after another retry");
    change("eject: 1h", "eject: 2h");
    assert!(spared(), "after another outlier detection");
    let listed = urls(&addresses);
    change(&format!("{:?}", &listed[..2]), &format!("{listed:?}"));
    assert!(spared(), "after another endpoint was added");
    assert!(services[2].requests() > 0);
    assert_eq!(tollgate.metric_total("tollgate_upstream_ejections_total"), 1.0);
    change("outlier: { failures: 2, eject: 2h }", "outlier: off");
    asking_until("it is asked again", &tollgate, || !spared_by(bad, &tollgate));
    assert_eq!(logged(&tollgate, addresses[0], "is no longer ejected: outlier detection is off"), 1);
}

#[test]
fn a_reload_with_other_weights_or_retries_keeps_connections() {
    let services = [Service::ok(), Service::ok()];
    let addresses = services.each_ref().map(|service| service.origin.address);
    let settings = "balance: round_robin, retry: { max: 1 }, timeouts: { response: 5s }";
    let tollgate = Tollgate::start(Config::yaml(yaml(&addresses, settings)));
    let ask = || (0..6).for_each(|_| assert_eq!(get(tollgate.address, "/", &[]).status, 200));
    ask();
    let file = tollgate.directory().join("proxy.yaml");
    let change = |from: &str, to: &str| {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(&file, text.replace(from, to)).unwrap();
        assert_eq!(tollgate.command(&["reload"]).code, Some(0));
    };
    let first = format!("{:?}", urls(&addresses)[0]);
    change("max: 1", "max: 2");
    change("response: 5s", "response: 6s");
    change(&format!("[{first}"), &format!("[{{ url: {first}, weight: 5 }}"));
    let before = services[0].requests();
    ask();
    assert_eq!(services[0].requests() - before, 5, "the new weight");
    assert_eq!(services.each_ref().map(|service| service.origin.connections()), [1, 1]);
    // One that is no longer listed loses its own.
    change(&format!("[{{ url: {first}, weight: 5 }}, "), "[");
    ask();
    eventually("its connection is closed", || services[0].origin.open_connections() == 0);
    assert_eq!(services[1].origin.connections(), 1);
}

fn spared_by(service: &Service, tollgate: &Tollgate) -> bool {
    let before = service.requests();
    (0..6).for_each(|_| drop(get(tollgate.address, "/", &[])));
    service.requests() == before
}

#[test]
fn a_reload_with_other_checks_keeps_the_state_until_the_first_of_them() {
    let services = [Service::start(500, 200), Service::ok()];
    let addresses = services.each_ref().map(|service| service.origin.address);
    let health = "health: { path: /healthz, interval: 1h }";
    let tollgate = Tollgate::start(Config::yaml(yaml(&addresses, health)));
    eventually("it is unhealthy", || logged(&tollgate, addresses[0], "is unhealthy") == 1);
    let file = tollgate.directory().join("proxy.yaml");
    let change = |from: &str, to: &str| {
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace(from, to)).unwrap();
        assert_eq!(tollgate.command(&["reload"]).code, Some(0));
    };
    change("path: /healthz", "path: /other");
    eventually("the first check decides", || logged(&tollgate, addresses[0], "is healthy again") == 1);
    change("path: /other", "path: /healthz");
    eventually("again", || logged(&tollgate, addresses[0], "is unhealthy") == 2);
    change(health, "max_connections: 10");
    let is_over = || logged(&tollgate, addresses[0], "is no longer unhealthy: it is not checked any more");
    eventually("without checks it is not unhealthy", || is_over() == 1);
    asking_until("it is asked", &tollgate, || services[0].requests() > 0);
}

/// An address that answers no attempt to connect: its queue is full, and stays so.
fn black_hole() -> (SocketAddr, Vec<socket2::Socket>) {
    use socket2::{Domain, Socket, Type};
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut held = vec![listener];
    for _ in 0..4 {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _under_way = socket.connect(&address);
        held.push(socket);
    }
    (address.as_socket().unwrap(), held)
}

#[test]
fn an_endpoint_that_answers_no_connection_delays_one_request_at_a_time() {
    const CONNECT: Duration = Duration::from_millis(500);
    const CLIENTS: usize = 6;
    let (silent, _held) = black_hole();
    let others = [Service::ok(), Service::ok()];
    let addresses = [silent, others[0].origin.address, others[1].origin.address];
    for balance in ["round_robin", "least_request"] {
        let settings = format!(
            "balance: {balance}, outlier: off, timeouts: {{ connect: 500ms }}, retry: {{ budget: 100% }}"
        );
        let tollgate = Tollgate::start(Config::yaml(yaml(&addresses, &settings)));
        let begun = std::time::Instant::now();
        let load =
            crate::harness::Load::start(&[tollgate.address], &["/"], CLIENTS, Duration::from_millis(2));
        let errors = || tollgate.metric_total("tollgate_upstream_endpoint_errors_total");
        // The first ones find out; from then on it is one at a time.
        eventually("it was tried again twice", || {
            errors() >= CLIENTS as f64 + 2.0 || begun.elapsed() > CONNECT * 12
        });
        let samples = load.stop();
        assert!(samples.iter().all(|sample| sample.status == 200));
        let slow = samples.iter().filter(|sample| sample.took >= CONNECT).count();
        // Each takes half a second, and a second passes before the next.
        let trials = begun.elapsed().as_millis() as usize / 1_500 + 1;
        assert!(slow <= CLIENTS + trials, "{balance}: {slow} of {} in {:?}", samples.len(), begun.elapsed());
        assert!(errors() >= 1.0, "{balance}: it was tried");
    }
}

fn yaml(addresses: &[SocketAddr], settings: &str) -> String {
    format!(
        "workers: 1\nupstreams:\n  origin: {{ endpoints: {:?}, {settings} }}\nroutes:\n  - {{ path: /*, upstream: origin }}\n",
        urls(addresses)
    )
}

#[test]
fn changes_are_events() {
    let services = [Service::start(500, 200), Service::ok()];
    let released = Latch::new();
    let tollgate = before(&services, FAST);
    let name = format!("upstream origin http://{}", services[0].origin.address);
    let mut child = crate::harness::command(std::path::Path::new("."))
        .args(["events", &format!("--admin=http://{}", tollgate.admin), "--type", "tick,health"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = child.stdout.take().unwrap();
    let _running = Running(child);
    let lines = Arc::new(Mutex::new(Vec::<String>::new()));
    let (seen, opened) = (Arc::clone(&lines), released.clone());
    std::thread::spawn(move || {
        for line in std::io::BufRead::lines(std::io::BufReader::new(stdout)).map_while(Result::ok) {
            if line.contains("tick") {
                opened.open();
            }
            seen.lock().unwrap().push(line);
        }
    });
    assert!(released.opens_within(crate::harness::PATIENCE));
    services[0].health.store(200, Ordering::SeqCst);
    let has =
        |words: &str| lines.lock().unwrap().iter().any(|line| line.contains(&name) && line.contains(words));
    eventually("it is healthy", || has("is healthy"));
    services[0].health.store(500, Ordering::SeqCst);
    eventually("it is unhealthy", || has("is not healthy: it is unhealthy: "));
}
