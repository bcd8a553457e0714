//! A new process that fails: the old one goes on, and says why.

use std::{fs, net::TcpListener, process::Command};

use super::{
    HANDED_OVER, Installation, NOT_HANDED_OVER, Service, children, is_there, launch, origin, signal, start,
};
use crate::harness::{Client, Config, eventually, get};

/// Hands over in vain, and says `why`. Afterwards clients are served as before, and nothing is left of the new process.
#[track_caller]
pub(super) fn fails(service: &Service, why: &str) {
    let failed = service.count(NOT_HANDED_OVER);
    let mut kept = Client::connect(service.0.address);
    assert_eq!(kept.request("GET", "/", &[], b"").status, 200);
    service.0.signal("USR2");
    eventually("it failed", || service.count(NOT_HANDED_OVER) > failed);
    let log = service.0.log();
    let line = log.iter().rev().find(|line| line.contains(NOT_HANDED_OVER)).unwrap();
    assert!(line.contains(why), "{line}");
    let reply = kept.request("GET", "/", &[], b"");
    assert_eq!((reply.status, reply.header("connection")), (200, None));
    assert_eq!(get(service.0.address, "/", &[]).status, 200);
    assert_eq!(service.0.admin("GET", "/readyz").status, 200);
    assert_eq!(children(service.0.pid()), [0; 0]);
}

#[test]
fn a_configuration_that_is_invalid() {
    let origin = origin();
    let service = start(Config::new(&[origin.address], ""));
    service.configure(|yaml| format!("{yaml}shutdown: {{ drian: 1s }}\n"));
    fails(&service, "its configuration is invalid: proxy.yaml:");
    service.says("unknown key `drian`");
    // Seen wherever a failed reload is.
    let (admin, why) = (
        |path: &str| service.0.admin("GET", path),
        "no new process took over: its configuration is invalid: ",
    );
    let status = admin("/v1/status").json();
    let error = status["configuration"]["last_reload"]["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with(why) && error.contains("unknown key `drian`"), "{status}");
    assert!(status["warnings"].to_string().contains(why), "{status}");
    let entry = admin("/v1/audit").json()["entries"][0].clone();
    assert_eq!(
        [&entry["by"], &entry["action"], &entry["detail"]],
        [&"SIGUSR2".into(), &"not_reloaded".into(), &serde_json::Value::from(error)]
    );
    assert_eq!(service.0.metric("tollgate_config_last_reload_successful"), 0.0);
    assert!(admin("/").text().contains(why));
    service.configure(|yaml| yaml.replace("drian", "drain"));
    service.hand_over();
}

#[test]
fn an_address_that_is_taken() {
    let origin = origin();
    let service = start(Config::new(&[origin.address], ""));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    service.configure(|yaml| {
        yaml.replace("admin: { address: \"127.0.0.1:0\" }", &format!("admin: {{ address: \"{address}\" }}"))
    });
    fails(&service, &format!("can't listen on {address}"));
    drop(taken);
    service.hand_over();
}

#[test]
fn a_binary_that_ends_or_is_none_or_speaks_another_language() {
    let (origin, installation) = (origin(), Installation::new());
    let service = installation.start(Config::new(&[origin.address], ""));
    for (script, why) in [
        ("exit 3", "it ended before it was ready (exit status: 3)"),
        ("kill -SEGV $$", "it ended before it was ready (signal: 11 (SIGSEGV)"),
        ("echo hello >&3; exec sleep 1000", "is not a Tollgate that can take over: it said \"hello\""),
    ] {
        installation.replace(script);
        fails(&service, why);
    }
    fs::remove_file(installation.binary()).unwrap();
    fails(&service, "No such file or directory");
    fs::write(installation.binary(), "text").unwrap();
    fails(&service, "Permission denied");
    installation.restore();
    service.hand_over();
}

#[test]
fn a_binary_that_hangs() {
    let (origin, installation) = (origin(), Installation::new());
    let limit = [("TOLLGATE_HANDOVER_TIMEOUT_MS", "300")];
    let service = installation.start_with(&limit, Config::new(&[origin.address], ""));
    installation.replace("exec sleep 1000");
    fails(&service, "it was not ready within 300ms, and was killed");
    // Closed, as by a version that knows nothing of handovers.
    installation.replace("exec 3>&-; exec sleep 1000");
    fails(&service, "it was not ready within 300ms, and was killed");
}

#[test]
fn one_handover_at_a_time() {
    let (origin, installation) = (origin(), Installation::new());
    let mut service = installation.start(Config::new(&[origin.address], ""));
    installation.replace("exec sleep 1000");
    service.0.signal("USR2");
    eventually("it starts", || !children(service.0.pid()).is_empty());
    let new = children(service.0.pid());
    service.0.signal("USR2");
    service.says("a new process is starting already");
    assert_eq!(children(service.0.pid()), new);
    assert_eq!(get(service.0.address, "/", &[]).status, 200);
    // The end takes it along.
    service.0.signal("TERM");
    assert_eq!(service.0.wait().code(), Some(0));
    eventually("the new process is gone", || !is_there(new[0]));
    assert_eq!(service.count(HANDED_OVER), 0);
}

/// Runs Tollgate in a PID namespace of its own: the process outside of it that holds it.
fn in_container(script: &str, origin: &crate::harness::Origin) -> Service {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "sh", "-c", script, env!("CARGO_BIN_EXE_tollgate")]);
    launch(command, Config::new(&[origin.address], ""))
}

fn may_have_namespaces() -> bool {
    let may = Command::new("unshare")
        .args(["--pid", "--fork", "true"])
        .status()
        .is_ok_and(|status| status.success());
    if !may {
        eprintln!("skipped: no PID namespace may be made here");
    }
    may
}

#[test]
fn pid_1_can_not_hand_over() {
    if !may_have_namespaces() {
        return;
    }
    let origin = origin();
    // As PID 1 itself, and as the child of an init that ends with it.
    for (script, said) in [
        ("exec \"$0\" \"$@\"", "Tollgate is PID 1 of its container"),
        ("\"$0\" \"$@\"; exit $?", "PID 1 started Tollgate"),
    ] {
        let service = in_container(script, &origin);
        let mut pid = service.0.pid();
        while let [child] = children(pid)[..] {
            pid = child;
        }
        signal("USR2", pid);
        service.says("can't hand over to a new process");
        service.says(said);
        assert_eq!(get(service.0.address, "/", &[]).status, 200);
        assert_eq!(children(pid), [0; 0]);
    }
}
