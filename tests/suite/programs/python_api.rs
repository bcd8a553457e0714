//! An API in Python, served by gunicorn.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Command, Stdio},
    thread,
};

use tempfile::TempDir;

use super::{
    before,
    load::{Load, h2load},
    noise,
};
use crate::harness::{Client, Config, Running, Tollgate, eventually, get, program, request};

/// Answers `hello`, the size of what it is sent, or (`/stats`) who it is and what it saw so far.
const API: &str = r#"
import json, os, threading
lock, ports, hellos = threading.Lock(), set(), 0

def application(environ, start_response):
    global hellos
    if environ["PATH_INFO"] == "/stats":
        body = json.dumps({"pid": os.getpid(), "hellos": hellos, "connections": len(ports)}).encode()
    elif environ["PATH_INFO"] == "/stream":
        start_response("200 OK", [("content-type", "application/octet-stream")])
        return (bytes([number]) * 65536 for number in range(64))
    elif environ["REQUEST_METHOD"] == "POST":
        size, read = 0, environ["wsgi.input"].read
        while chunk := read(1 << 16):
            size += len(chunk)
        body = str(size).encode()
    else:
        with lock:
            hellos += 1
            ports.add(environ["REMOTE_PORT"])
        body = b"hello"
    start_response("200 OK", [("content-type", "text/plain"), ("content-length", str(len(body)))])
    return [body]
"#;

struct Api {
    address: SocketAddr,
    master: Running,
    _directory: TempDir,
}

impl Api {
    /// One process with 16 threads, which keeps connections.
    fn start() -> Self {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("api.py"), API).unwrap();
        let mut child = program("gunicorn", "gunicorn")
            .args([
                "--bind",
                "127.0.0.1:0",
                "--worker-class",
                "gthread",
                "--threads",
                "16",
                "--keep-alive",
                "5",
            ])
            .args(["--graceful-timeout", "5", "--worker-tmp-dir", ".", "api:application"])
            .current_dir(directory.path())
            .stderr(Stdio::piped())
            .spawn()
            .map(Running)
            .unwrap();
        let mut said = BufReader::new(child.0.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address =
            said.find_map(|line| line.split_once("Listening at: http://")?.1.split(' ').next()?.parse().ok());
        // Whatever else it says is read, so that it never waits for a reader.
        thread::spawn(move || said.for_each(drop));
        Self {
            address: address.expect("gunicorn says where it listens"),
            master: child,
            _directory: directory,
        }
    }

    fn stats(&self, name: &str) -> u64 {
        get(self.address, "/stats", &[]).json()[name].as_u64().unwrap()
    }
}

#[test]
fn gunicorn_answers_every_request_over_few_connections() {
    let api = Api::start();
    let tollgate = before(api.address);
    assert_eq!(h2load(tollgate.address, 1000, &[]), [1000, 0, 0, 0]);
    assert_eq!(api.stats("hellos"), 1000);
    // A connection may wait for one thread of gunicorn's while another is free, so that more than 16 are made.
    let connections = api.stats("connections");
    assert!(connections <= 64, "{connections} connections for 1000 requests of 16 clients");
}

#[test]
fn gunicorn_sees_exactly_what_the_limit_admits() {
    let api = Api::start();
    let policy = "policies:\n  exact: { algorithm: sliding_log, key: ip, limit: 300/1h }\n";
    let tollgate = Tollgate::start(Config::new(&[api.address], policy).with_policy("exact"));
    assert_eq!(h2load(tollgate.address, 1000, &[]), [300, 0, 700, 0]);
    assert_eq!(api.stats("hellos"), 300);
}

#[test]
fn gunicorn_takes_and_gives_bodies_of_either_framing() {
    let api = Api::start();
    let tollgate = before(api.address);
    let body = noise(4 << 20);
    assert_eq!(request(tollgate.address, "POST", "/", &[], &body).text(), body.len().to_string());
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    for chunk in body.chunks(100_000) {
        client.send(format!("{:x}\r\n", chunk.len())).send(chunk).send("\r\n");
    }
    assert_eq!(client.send("0\r\n\r\n").reply().text(), body.len().to_string());
    let streamed = client.request("GET", "/stream", &[], b"");
    assert_eq!(streamed.header("transfer-encoding"), Some("chunked"));
    assert_eq!(streamed.body.len(), 64 << 16);
    assert_eq!(streamed.body.iter().collect::<BTreeSet<_>>().len(), 64);
}

#[test]
fn gunicorn_is_reloaded_under_load() {
    let api = Api::start();
    let tollgate = before(api.address);
    let load = Load::begin(tollgate.address, 8, || {});
    load.goes_on(100);
    let before = api.stats("pid");
    let master = api.master.0.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &master]).status().unwrap().success());
    eventually("the old worker ends", || !fs::exists(format!("/proc/{before}")).unwrap());
    load.goes_on(100);
    let (answered, failed) = load.end();
    // At most what was under way: the old worker may leave connections that it has taken unanswered.
    assert!(failed <= 8, "{failed} of {answered} failed");
    assert_ne!(api.stats("pid"), before);
}
