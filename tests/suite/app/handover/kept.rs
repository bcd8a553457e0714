//! What the new process has of the old one, and what not.

use std::{
    net::TcpStream,
    os::{
        fd::OwnedFd,
        unix::{net::UnixListener, process::CommandExt},
    },
    path::Path,
    process::{Command, Stdio},
};

use super::{Installation, Service, TOOK_OVER, children, is_there, launch, origin, signal, start};
use crate::harness::{Client, Config, Redis, Tollgate, eventually, get, nobody};

/// A policy that admits three requests.
const LIMIT: &str = "policies:\n  three: { algorithm: sliding_log, key: ip, limit: 3/1h }\n";

fn statuses(tollgate: &Tollgate, requests: usize) -> Vec<u16> {
    (0..requests).map(|_| get(tollgate.address, "/", &[]).status).collect()
}

#[test]
fn limits_in_memory_begin_anew() {
    let origin = origin();
    let mut service = start(Config::new(&[origin.address], LIMIT).with_policy("three"));
    assert_eq!(statuses(&service.0, 4), [200, 200, 200, 429]);
    service.hand_over();
    // Until then it may answer clients that it has accepted.
    assert_eq!(service.0.wait().code(), Some(0));
    assert_eq!(statuses(&service.0, 4), [200, 200, 200, 429]);
}

#[test]
fn limits_in_redis_go_on() {
    let (origin, redis) = (origin(), Redis::start());
    let store = format!("{LIMIT}store: {{ redis: {{ url: \"{}\", timeout: 5s }} }}\n", redis.url());
    let service = start(Config::new(&[origin.address], &store).with_policy("three"));
    assert_eq!(statuses(&service.0, 2), [200, 200]);
    service.hand_over();
    assert_eq!(statuses(&service.0, 2), [200, 429]);
}

#[test]
fn the_admin_port_is_the_new_process() {
    let origin = origin();
    let service = start(Config::new(&[origin.address], ""));
    let started = || service.0.admin("GET", "/v1/status").json()["started"].as_str().unwrap().to_owned();
    let before = started();
    // Holds the old process, whose port would answer still.
    let mut slow = Client::sending(service.0.address, "GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("it is on its way", || !origin.heads().is_empty());
    service.hand_over();
    for _ in 0..20 {
        assert_ne!(started(), before);
    }
    assert_eq!(service.0.command(&["status"]).code, Some(0));
    origin.resume();
    assert_eq!(slow.reply().status, 200);
}

#[test]
fn an_idle_connection_serves_one_more_request_and_closes() {
    let origin = origin();
    let mut service = start(Config::new(&[origin.address], ""));
    let mut silent = Client::connect(service.0.address);
    let mut used = Client::connect(service.0.address);
    let reply = used.request("GET", "/", &[], b"");
    assert_eq!((reply.status, reply.header("connection")), (200, None));
    service.hand_over();
    for client in [&mut used, &mut silent] {
        let reply = client.request("GET", "/", &[], b"");
        assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
        assert!(client.closed());
    }
    assert_eq!(service.0.wait().code(), Some(0));
}

#[test]
fn an_idle_connection_that_nobody_uses_is_closed() {
    let origin = origin();
    let mut service = start(Config::new(&[origin.address], "shutdown: { drain: 1h }\n"));
    let mut idle = Client::connect(service.0.address);
    assert_eq!(idle.request("GET", "/", &[], b"").status, 200);
    service.hand_over();
    assert!(idle.closed_in_order());
    assert_eq!(service.0.wait().code(), Some(0));
}

#[test]
fn the_configuration_is_read_anew() {
    let origin = origin();
    let (kept, gone) = (nobody(), nobody());
    let listeners = format!("listeners: [{{ address: \"{kept}\" }}, {{ address: \"{gone}\" }}]\n");
    let mut service = start(Config::new(&[origin.address], &listeners));
    let added = nobody();
    service.configure(|yaml| yaml.replace(&gone.to_string(), &added.to_string()));
    assert_eq!(get(gone, "/", &[]).status, 200);
    let new = service.hand_over();
    assert_eq!(service.0.wait().code(), Some(0));
    assert!(TcpStream::connect(gone).is_err(), "nobody is configured to serve there");
    for address in [kept, added] {
        assert_eq!(get(address, "/", &[]).status, 200);
    }
    assert!(is_there(new));
}

#[test]
fn a_reload_meanwhile_is_not_lost() {
    let (origin, installation) = (origin(), Installation::new());
    let service = installation.start(Config::new(&[origin.address], ""));
    let go = service.0.directory().join("go");
    let binary = env!("CARGO_BIN_EXE_tollgate");
    installation
        .replace(&format!("until [ -e '{}' ]; do sleep 0.01; done\nexec {binary} \"$@\"", go.display()));
    service.0.signal("USR2");
    eventually("it starts", || !children(service.0.pid()).is_empty());
    service.0.signal("HUP");
    std::fs::write(go, "").unwrap();
    service.says("reloading the configuration");
    let log = service.0.log();
    let at = |message: &str| log.iter().position(|line| line.contains(message)).unwrap();
    assert!(at(TOOK_OVER) < at("reloading the configuration"), "the old process did: {log:#?}");
}

/// As a package manager does it: the file of the running process is gone.
#[test]
fn a_binary_that_was_replaced_is_found() {
    let origin = origin();
    let directory = tempfile::TempDir::new().unwrap();
    let binary = directory.path().join("tollgate");
    let copy = |to: &Path| super::copy(Path::new(env!("CARGO_BIN_EXE_tollgate")), to);
    copy(&binary);
    let service = launch(Command::new(&binary), Config::new(&[origin.address], ""));
    let new = directory.path().join("new");
    copy(&new);
    std::fs::rename(new, &binary).unwrap();
    let exe = |pid| std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert!(exe(service.0.pid()).to_str().unwrap().ends_with(" (deleted)"));
    let new = service.hand_over();
    assert_eq!(exe(new), binary);
}

/// It is found in PATH, in which a shell has looked for it.
#[test]
fn a_binary_that_was_called_by_its_name_is_found() {
    let (origin, installation) = (origin(), Installation::new());
    let mut command = Command::new("tollgate");
    command.env("PATH", installation.directory.path());
    let service = launch(command, Config::new(&[origin.address], ""));
    let new = service.hand_over();
    let line = std::fs::read(format!("/proc/{new}/cmdline")).unwrap();
    assert!(String::from_utf8_lossy(&line).starts_with(installation.binary().to_str().unwrap()));
}

#[test]
fn two_signals_end_the_old_process_at_once() {
    let origin = origin();
    let mut service = start(Config::new(&[origin.address], "shutdown: { drain: 1h }\n"));
    let _slow = Client::sending(service.0.address, "GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("it is on its way", || !origin.heads().is_empty());
    service.hand_over();
    service.0.signal("TERM");
    service.says("one more signal ends Tollgate immediately");
    service.0.signal("USR2");
    service.says("this process is ending, and can't hand over");
    signal("TERM", service.0.pid());
    assert_eq!(service.0.wait().code(), Some(1));
    assert_eq!(get(service.0.address, "/", &[]).status, 200);
}

#[test]
fn a_unix_socket_that_is_handed_over_gets_the_mode_that_is_configured() {
    let (origin, directory) = (origin(), tempfile::TempDir::new().unwrap());
    let path = directory.path().join("tollgate.sock");
    let listeners = format!(
        "listeners: [{{ address: \"127.0.0.1:0\" }}, {{ address: \"unix:{}\", mode: \"0666\" }}]\n",
        path.display()
    );
    let mut service = start(Config::new(&[origin.address], &listeners));
    let mode = || std::os::unix::fs::MetadataExt::mode(&path.metadata().unwrap()) & 0o777;
    assert_eq!(mode(), 0o666);
    service.configure(|yaml| yaml.replace("0666", "0600"));
    service.hand_over();
    assert_eq!(mode(), 0o600);
    assert_eq!(service.0.wait().code(), Some(0));
}

#[test]
fn the_file_of_a_unix_socket_that_is_no_longer_configured_is_removed() {
    let (origin, directory) = (origin(), tempfile::TempDir::new().unwrap());
    let path = directory.path().join("tollgate.sock");
    let unix = format!(", {{ address: \"unix:{}\" }}", path.display());
    let listeners = format!("listeners: [{{ address: \"127.0.0.1:0\" }}{unix}]\n");
    let mut service = start(Config::new(&[origin.address], &listeners));
    assert!(path.exists());
    service.configure(|yaml| yaml.replace(&unix, ""));
    service.hand_over();
    assert_eq!(service.0.wait().code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn a_unix_socket_is_handed_over_with_its_file() {
    use std::os::unix::net::UnixStream;

    let (origin, directory) = (origin(), tempfile::TempDir::new().unwrap());
    let path = directory.path().join("tollgate.sock");
    let listeners = format!(
        "listeners: [{{ address: \"127.0.0.1:0\" }}, {{ address: \"unix:{}\" }}]\nshutdown: {{ drain: 20s }}\n",
        path.display()
    );
    let mut service = start(Config::new(&[origin.address], &listeners));
    let inode = || std::os::unix::fs::MetadataExt::ino(&path.metadata().unwrap());
    let before = inode();
    let new = service.hand_over();
    assert_eq!(service.0.wait().code(), Some(0), "the old process has ended");
    assert_eq!(inode(), before, "clients find the same socket");
    assert!(UnixStream::connect(&path).is_ok());
    signal("TERM", new);
    eventually("the new process removes the file at its end", || !path.exists());
}

#[test]
fn a_unix_socket_of_the_service_manager_keeps_its_file() {
    let (origin, directory) = (origin(), tempfile::TempDir::new().unwrap());
    let [managed, own] = ["managed.sock", "own.sock"].map(|name| directory.path().join(name));
    let held = UnixListener::bind(&managed).unwrap();
    let [managed_address, own_address] =
        [&managed, &own].map(|path| format!(", {{ address: \"unix:{}\", mode: \"0600\" }}", path.display()));
    let listeners = format!("listeners: [{{ address: \"127.0.0.1:0\" }}{managed_address}{own_address}]\n");
    let mut command = Command::new("sh");
    let hand_on =
        "exec 3<&0 0</dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" run --config proxy.yaml";
    command.args(["-c", hand_on, env!("CARGO_BIN_EXE_tollgate")]).process_group(0);
    command.stdin(Stdio::from(OwnedFd::from(held.try_clone().unwrap())));
    let mut service = Service(Tollgate::launch(command, Config::new(&[origin.address], &listeners)));
    let mode = || std::os::unix::fs::MetadataExt::mode(&managed.metadata().unwrap()) & 0o777;
    let before = mode();
    let new = service.hand_over();
    assert_eq!(service.0.wait().code(), Some(0));
    assert_eq!(mode(), before, "it is the manager's to set");
    signal("TERM", new);
    // In the order of the configuration.
    eventually("the new process removes its own file", || !own.exists());
    assert!(managed.exists());
}
