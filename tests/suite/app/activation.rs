//! What a service manager and Tollgate say to each other: sockets that were bound before it starts
//! (sd_listen_fds(3)), and how things stand (sd_notify(3)).

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::harness::{Client, Config, Origin, PATIENCE, Tollgate, command, eventually, get};

/// Hands the socket that is its stdin on as the first inherited one, and a file that is no socket as
/// the second; the process stays the same.
const HAND_ON: &str = "exec 3<&0 4</dev/null 0</dev/null
export LISTEN_FDS=2 LISTEN_PID=$$
eval \"$1\"
exec \"$0\" run --config proxy.yaml";

/// A service manager, as far as sockets go: holds one, whatever becomes of Tollgate.
struct Holder {
    socket: TcpListener,
    address: SocketAddr,
}

impl Holder {
    fn new() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        Self { address: socket.local_addr().unwrap(), socket }
    }

    fn start(&self, config: Config) -> Tollgate {
        self.start_as("", config)
    }

    /// After these shell commands.
    fn start_as(&self, before: &str, config: Config) -> Tollgate {
        hand_on(self.socket.try_clone().unwrap(), before, config)
    }
}

/// Starts Tollgate with `socket` as its first inherited one, after some shell commands.
fn hand_on(socket: impl Into<OwnedFd>, before: &str, config: Config) -> Tollgate {
    let mut command = Command::new("sh");
    command.args(["-c", HAND_ON, env!("CARGO_BIN_EXE_tollgate"), before]);
    command.stdin(Stdio::from(socket.into()));
    Tollgate::launch(command, config)
}

/// Clients are served at `address`.
fn listening(origin: &Origin, address: SocketAddr) -> Config {
    Config::new(&[origin.address], &format!("listeners: [{{ address: \"{address}\" }}]\n"))
}

#[test]
fn many_clients_at_once_share_an_inherited_socket() {
    let origin = Origin::ok();
    let holder = Holder::new();
    let tollgate = holder.start(listening(&origin, holder.address));
    assert_eq!(tollgate.address, holder.address);
    assert!(tollgate.has_logged(&["inherited socket"]), "{:#?}", tollgate.log());
    // Many at once: every worker is woken by each, and one of them gets it.
    let mut clients: Vec<_> = (0..64).map(|_| Client::connect(holder.address)).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    assert!(clients.iter_mut().all(|client| client.reply().status == 200));
    assert!(!tollgate.has_logged(&["can't accept"]), "{:#?}", tollgate.log());
    assert!(
        tollgate.has_logged(&["an inherited descriptor is ignored"]),
        "the second descriptor is no socket: {:#?}",
        tollgate.log()
    );
}

#[test]
fn a_client_that_comes_while_nothing_runs_waits_and_gets_its_answer() {
    let origin = Origin::ok();
    let holder = Holder::new();
    let mut first = holder.start(listening(&origin, holder.address));
    assert_eq!(get(holder.address, "/", &[]).status, 200);
    first.signal("TERM");
    assert_eq!(first.wait().code(), Some(0));

    let mut waiting = Client::sending(holder.address, "GET /waiting HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(!waiting.has_something_to_read(), "nobody is there to answer");
    let _second = holder.start(listening(&origin, holder.address));
    assert_eq!(waiting.reply().status, 200);
}

#[test]
fn no_client_is_turned_away_while_the_old_process_finishes_what_runs() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            if head.starts_with("GET /slow ") {
                conn.pause()?;
            }
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    let holder = Holder::new();
    let mut first = holder.start(listening(&origin, holder.address));
    let mut slow = Client::sending(holder.address, "GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("the slow request is on its way", || !origin.heads().is_empty());
    first.signal("TERM");
    eventually("it drains", || first.admin("GET", "/readyz").status == 503);

    // Taken from the queue by the old process still, or left there for the new one: either answers.
    let mut between = Client::sending(holder.address, "GET /between HTTP/1.1\r\nhost: a\r\n\r\n");
    origin.resume();
    assert_eq!(slow.reply().status, 200);
    assert_eq!(first.wait().code(), Some(0));
    let _second = holder.start(listening(&origin, holder.address));
    assert_eq!(between.reply().status, 200);
}

#[test]
fn the_admin_port_may_be_inherited() {
    let origin = Origin::ok();
    let holder = Holder::new();
    let admin = format!("admin: {{ address: \"{}\" }}\n", holder.address);
    let tollgate = holder.start(Config::new(&[origin.address], &admin));
    assert_eq!(tollgate.admin, holder.address);
    assert_eq!(get(holder.address, "/readyz", &[]).status, 200);
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
}

#[test]
fn a_socket_that_no_listener_uses_is_closed_and_reported() {
    let origin = Origin::ok();
    let holder = Holder::new();
    let tollgate = holder.start(Config::new(&[origin.address], ""));
    assert_ne!(tollgate.address, holder.address);
    assert!(tollgate.has_logged(&[&format!("address={}", holder.address)]), "{:#?}", tollgate.log());
    let address = holder.address;
    drop(holder);
    assert!(TcpStream::connect(address).is_err(), "somebody holds it still");
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
}

#[test]
fn a_socket_for_another_process_is_left_alone() {
    let origin = Origin::ok();
    let holder = Holder::new();
    let tollgate = holder.start_as("export LISTEN_PID=1", Config::new(&[origin.address], ""));
    assert!(!tollgate.has_logged(&["inherited"]), "{:#?}", tollgate.log());
}

#[test]
fn a_connection_is_no_listener() {
    let origin = Origin::ok();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    // What `Accept=yes` would hand on: a connection, which has the listener's address.
    let (connection, _) = listener.accept().unwrap();
    drop(listener);
    let tollgate = hand_on(connection, "", Config::new(&[origin.address], ""));
    assert!(tollgate.has_logged(&["it is a connection, not a listening socket"]), "{:#?}", tollgate.log());
}

/// What Tollgate tells the service manager, with the socket on which it does.
struct Manager {
    socket: UnixDatagram,
    directory: TempDir,
}

impl Manager {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, directory }
    }

    fn start(&self, variables: &[(&str, &str)], config: Config) -> Tollgate {
        let mut command = command(self.directory.path());
        command.args(["run", "--config", "proxy.yaml"]).stdin(Stdio::null());
        command.env("NOTIFY_SOCKET", self.directory.path().join("notify"));
        command.envs(variables.iter().copied());
        Tollgate::launch(command, config)
    }

    /// The lines of the next message.
    #[track_caller]
    fn next(&self) -> Vec<String> {
        let mut message = [0; 4096];
        let length = self.socket.recv(&mut message).expect("a message");
        String::from_utf8_lossy(&message[..length]).lines().map(str::to_owned).collect()
    }

    fn has_more(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        self.socket.recv(&mut [0; 4096]).is_ok()
    }
}

#[test]
fn the_service_manager_is_notified_of_start_and_stop() {
    let origin = Origin::ok();
    let manager = Manager::new();
    let mut tollgate = manager.start(&[], Config::new(&[origin.address], "shutdown: { drain: 20s }\n"));
    let ready = manager.next();
    assert_eq!(ready[0], "READY=1", "{ready:?}");
    assert_eq!(
        ready[1],
        format!("STATUS=serving {}, admin port {}", tollgate.address, tollgate.admin),
        "{ready:?}"
    );
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    tollgate.signal("TERM");
    let stopping = manager.next();
    assert_eq!(stopping[..2], ["STOPPING=1", "EXTEND_TIMEOUT_USEC=30000000"], "{stopping:?}");
    assert!(stopping[2].starts_with("STATUS=finishing"), "{stopping:?}");
    assert_eq!(tollgate.wait().code(), Some(0));
    assert!(!manager.has_more(), "no watchdog was asked for");
}

#[test]
fn the_service_manager_is_notified_of_a_reload_and_its_end() {
    let origin = Origin::ok();
    let manager = Manager::new();
    let tollgate = manager.start(&[], Config::new(&[origin.address], ""));
    let serving = manager.next();
    let file = tollgate.directory().join("proxy.yaml");
    for (what, yaml) in
        [("good", std::fs::read_to_string(&file).unwrap()), ("bad", "routes: none".to_owned())]
    {
        std::fs::write(&file, yaml).unwrap();
        tollgate.signal("HUP");
        let reloading = manager.next();
        assert_eq!(reloading[0], "RELOADING=1", "{what}: {reloading:?}");
        let since: u64 = reloading[1].strip_prefix("MONOTONIC_USEC=").unwrap().parse().unwrap();
        assert!(since > 0);
        assert_eq!(manager.next(), serving, "{what}");
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
}

#[test]
fn the_watchdog_is_fed_while_workers_go_on() {
    let origin = Origin::ok();
    let manager = Manager::new();
    let tollgate = manager.start(&[("WATCHDOG_USEC", "1000000")], Config::new(&[origin.address], ""));
    assert_eq!(manager.next()[0], "READY=1");
    for _ in 0..3 {
        assert_eq!(manager.next(), ["WATCHDOG=1"]);
    }
    assert!(!tollgate.has_logged(&["a worker hangs"]), "{:#?}", tollgate.log());
}

#[test]
fn a_service_manager_that_is_gone_stops_nothing() {
    let origin = Origin::ok();
    let manager = Manager::new();
    std::fs::remove_file(manager.directory.path().join("notify")).unwrap();
    let tollgate = manager.start(&[], Config::new(&[origin.address], ""));
    eventually("it says so", || tollgate.has_logged(&["the service manager can't be notified (READY=1)"]));
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
}
