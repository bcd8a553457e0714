//! What systemd hears of a handover, and from whom: it listens to the main process alone (`NotifyAccess=main`).

use std::{io::IoSliceMut, mem::MaybeUninit, os::unix::net::UnixDatagram, process::Command};

use rustix::{
    io::retry_on_intr,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt::set_socket_passcred},
};
use tempfile::TempDir;

use super::{HANDED_OVER, Installation, NOT_HANDED_OVER, origin};
use crate::harness::{Config, PATIENCE, eventually, get};

/// The socket that systemd would listen on.
struct Manager {
    socket: UnixDatagram,
    directory: TempDir,
}

/// A message, and the process that sent it.
#[derive(Debug)]
struct Message {
    sender: u32,
    lines: Vec<String>,
}

impl Manager {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        set_socket_passcred(&socket, true).unwrap();
        Self { socket, directory }
    }

    fn path(&self) -> String {
        self.directory.path().join("notify").to_str().unwrap().to_owned()
    }

    #[track_caller]
    fn next(&self) -> Message {
        let mut text = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| {
            recvmsg(&self.socket, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::empty())
        });
        let received = received.expect("a message");
        let sender = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid.as_raw_pid().unsigned_abs()),
            _ => None,
        });
        let lines = String::from_utf8_lossy(&text[..received.bytes]).lines().map(str::to_owned).collect();
        Message { sender: sender.unwrap(), lines }
    }

    /// The next message that is not of the watchdog.
    #[track_caller]
    fn next_event(&self) -> Message {
        loop {
            let message = self.next();
            if message.lines != ["WATCHDOG=1"] {
                return message;
            }
        }
    }
}

#[test]
fn the_new_process_becomes_the_main_one() {
    let (origin, installation, manager) = (origin(), Installation::new(), Manager::new());
    let path = manager.path();
    let config = Config::new(&[origin.address], "");
    let mut service = installation.start_with(&[("NOTIFY_SOCKET", &path)], config);
    let old = service.0.pid();
    let ready = manager.next();
    assert_eq!((ready.sender, ready.lines[0].as_str()), (old, "READY=1"));

    let new = service.hand_over();
    // systemd does not wait for the end of a main process that is not its own child.
    assert_ne!(parent(new), old);
    let reloading = manager.next();
    assert_eq!((reloading.sender, reloading.lines[0].as_str()), (old, "RELOADING=1"));
    assert!(reloading.lines[1].starts_with("MONOTONIC_USEC="), "{reloading:?}");
    // While it is the main process still.
    let main = manager.next();
    assert_eq!((main.sender, main.lines), (old, vec![format!("MAINPID={new}")]));
    let again = manager.next();
    assert_eq!((again.sender, &again.lines), (new, &ready.lines));

    // The old one has nothing more to say, not even that it stops.
    assert_eq!(service.0.wait().code(), Some(0));
    super::signal("TERM", new);
    let stopping = manager.next();
    assert_eq!((stopping.sender, stopping.lines[0].as_str()), (new, "STOPPING=1"));
}

/// proc(5), `stat`: what follows the name in parentheses.
fn parent(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn failures_are_told_and_nothing_is_left_of_the_new_process() {
    let (origin, installation, manager) = (origin(), Installation::new(), Manager::new());
    let path = manager.path();
    let variables = [("NOTIFY_SOCKET", path.as_str()), ("TOLLGATE_HANDOVER_TIMEOUT_MS", "3000")];
    let service = installation.start_with(&variables, Config::new(&[origin.address], ""));
    service.configure(|yaml| format!("{yaml}shutdown: {{ drian: 1s }}\n"));
    super::failures::fails(&service, "its configuration is invalid: proxy.yaml:");
    installation.replace("exit 3");
    super::failures::fails(&service, "it ended before it was ready (exit status: 3)");
    let file = service.0.directory().join("pid");
    installation.replace(&format!("echo $$ > '{}'; exec sleep 1000", file.display()));
    super::failures::fails(&service, "it was not ready within 3s, and was killed");
    let pid = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    eventually("it is gone", || !super::is_there(pid));
}

#[test]
fn a_handover_that_fails_leaves_the_main_process() {
    let (origin, installation, manager) = (origin(), Installation::new(), Manager::new());
    let path = manager.path();
    let service = installation.start_with(&[("NOTIFY_SOCKET", &path)], Config::new(&[origin.address], ""));
    let ready = manager.next();
    installation.replace("exit 3");
    service.0.signal("USR2");
    service.says(NOT_HANDED_OVER);
    assert_eq!(manager.next().lines[0], "RELOADING=1");
    let again = manager.next();
    assert_eq!((again.sender, again.lines), (service.0.pid(), ready.lines));
}

/// WATCHDOG_PID names the old process: the new one must not take it for a watchdog of somebody else.
#[test]
fn the_watchdog_is_fed_by_the_new_process() {
    let (origin, manager) = (origin(), Manager::new());
    let mut command = Command::new("sh");
    command.args(["-c", "export WATCHDOG_PID=$$; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tollgate")]);
    command.env("NOTIFY_SOCKET", manager.path()).env("WATCHDOG_USEC", "1000000");
    let service = super::launch(command, Config::new(&[origin.address], ""));
    assert_eq!(manager.next_event().lines[0], "READY=1");
    assert_eq!(manager.next().lines, ["WATCHDOG=1"]);
    let new = service.hand_over();
    assert_eq!(manager.next_event().lines[0], "RELOADING=1");
    assert_eq!(manager.next_event().lines, [format!("MAINPID={new}")]);
    let ready = manager.next_event();
    assert_eq!((ready.sender, ready.lines[0].as_str()), (new, "READY=1"));
    for _ in 0..3 {
        let fed = manager.next();
        assert_eq!((fed.sender, fed.lines), (new, vec!["WATCHDOG=1".to_owned()]));
    }
}

/// systemd's sockets are handed on as well, and it keeps its own.
#[test]
fn sockets_of_systemd_are_handed_on() {
    let origin = origin();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut command = Command::new("sh");
    let script =
        "exec 3<&0 0</dev/null; export LISTEN_FDS=1 LISTEN_PID=$$ LISTEN_FDNAMES=a; exec \"$0\" \"$@\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_tollgate"), "run", "--config", "proxy.yaml"]);
    command.stdin(std::process::Stdio::from(std::os::fd::OwnedFd::from(socket)));
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let config = Config::new(&[origin.address], &format!("listeners: [{{ address: \"{address}\" }}]\n"));
    let service = super::Service(crate::harness::Tollgate::launch(command, config));
    service.hand_over();
    eventually("both have taken it", || service.count("serves on the inherited socket") >= 2);
    assert_eq!(service.count(HANDED_OVER), 1);
    assert_eq!(get(address, "/", &[]).status, 200);
}
