//! Listeners on Unix sockets.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::harness::{Config, Origin, Tollgate, eventually, file_name, printed, program};

struct Unix {
    directory: TempDir,
    origin: Origin,
}

impl Unix {
    fn new() -> Self {
        Self { directory: TempDir::new().unwrap(), origin: Origin::ok() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("tollgate.sock")
    }

    /// `listener` is more of the listener, `rest` of the file.
    fn config(&self, listener: &str, rest: &str) -> Config {
        let unix = format!("{{ address: \"unix:{}\"{listener} }}", file_name(&self.path()));
        let listeners = format!("listeners: [{{ address: \"127.0.0.1:0\" }}, {unix}]\n{rest}");
        Config::new(&[self.origin.address], &listeners)
    }

    fn start(&self, listener: &str, rest: &str) -> Tollgate {
        let tollgate = Tollgate::start(self.config(listener, rest));
        eventually("the socket is there", || self.path().exists());
        tollgate
    }
}

/// Everything that comes in answer to these bytes.
fn ask(path: &Path, bytes: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(path: &Path, header: &str) -> String {
    ask(path, &format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{header}\r\n"))
}

/// What the origin was told of the last client.
fn forwarded_for(origin: &Origin) -> String {
    let head = origin.heads().pop().unwrap().to_lowercase();
    head.split("x-forwarded-for: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned()
}

#[test]
fn curl_is_served_and_the_file_is_as_it_was_asked_for() {
    let unix = Unix::new();
    let mut tollgate = unix.start(", mode: \"0620\", owner: \"0\", group: root", "");
    assert_eq!(unix.path().metadata().unwrap().mode() & 0o777, 0o620);
    let body =
        printed(program("curl", "curl").args(["-sS", "--unix-socket", file_name(&unix.path()), "http://a/"]));
    assert_eq!(body, "ok");
    let status = tollgate.admin("GET", "/v1/status").json();
    assert_eq!(status["listeners"][1], format!("unix:{}", file_name(&unix.path())));
    tollgate.signal("TERM");
    assert!(tollgate.wait().success());
    assert!(!unix.path().exists(), "the file is removed at the end");
}

#[test]
fn clients_of_a_unix_socket_are_trusted_only_with_the_word_unix() {
    let unix = Unix::new();
    let tollgate = unix.start("", "trusted_proxies: [127.0.0.1]\n");
    assert!(get(&unix.path(), "x-forwarded-for: 203.0.113.5\r\n").starts_with("HTTP/1.1 200 "));
    assert_eq!(forwarded_for(&unix.origin), "127.0.0.1");
    drop(tollgate);
    // What was killed has left its file behind.
    assert!(unix.path().exists());
    let _tollgate = unix.start("", "trusted_proxies: [unix]\n");
    eventually("the file is replaced", || UnixStream::connect(unix.path()).is_ok());
    assert!(get(&unix.path(), "x-forwarded-for: 203.0.113.5\r\n").starts_with("HTTP/1.1 200 "));
    assert_eq!(forwarded_for(&unix.origin), "203.0.113.5, 127.0.0.1");
}

#[test]
fn a_proxy_header_names_the_client() {
    let unix = Unix::new();
    let _tollgate = unix.start(", proxy_protocol: true", "trusted_proxies: [unix]\n");
    let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let answer = ask(&unix.path(), &format!("PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r\n{request}"));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(forwarded_for(&unix.origin), "192.0.2.7");
}

#[test]
fn a_socket_in_use_or_another_file_is_left_alone() {
    let unix = Unix::new();
    let tollgate = unix.start("", "");
    let (code, said) = Tollgate::refuses(unix.config("", ""));
    assert_eq!(code, Some(1));
    assert!(said.contains("another Tollgate, is using it"), "{said}");
    assert!(get(&unix.path(), "").starts_with("HTTP/1.1 200 "), "the first goes on");
    drop(tollgate);
    std::fs::remove_file(unix.path()).unwrap();
    std::fs::write(unix.path(), "precious").unwrap();
    let (_, said) = Tollgate::refuses(unix.config("", ""));
    assert!(said.contains("it is not a socket"), "{said}");
    assert_eq!(std::fs::read(unix.path()).unwrap(), b"precious");
}

#[test]
fn an_idle_connection_is_parked_and_goes_on() {
    let unix = Unix::new();
    let tollgate = unix.start("", "client_limits: { idle_timeout: 20s }\n");
    let mut stream = UnixStream::connect(unix.path()).unwrap();
    let mut ask = || {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        let mut answer = [0; 4096];
        let read = stream.read(&mut answer).unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 200 "));
    };
    ask();
    // Longer than it takes to be parked.
    std::thread::sleep(std::time::Duration::from_millis(400));
    ask();
    let address: SocketAddr = tollgate.address;
    assert_eq!(crate::harness::get(address, "/", &[]).status, 200);
}
