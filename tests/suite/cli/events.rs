//! `tollgate events`, against a real instance that goes and comes back.

use std::{
    io::{BufRead, BufReader, Read},
    net::IpAddr,
    os::unix::process::ExitStatusExt,
    process::{Child, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use serde_json::Value;

use crate::harness::{
    Config, Deployment, Dns, DnsAnswer, Origin, PATIENCE, Running, Tollgate, command, eventually, free_port,
    get_from, on_each_store, tollgate,
};

/// `tollgate events`, while it runs.
struct Following {
    running: Running,
    lines: Receiver<String>,
    messages: Receiver<String>,
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let _nobody_asks = sender.send(line);
        }
    });
    lines
}

fn spawn(admin: impl std::fmt::Display, arguments: &[&str]) -> Child {
    command(std::path::Path::new("."))
        .arg("events")
        .arg(format!("--admin={admin}"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

impl Following {
    /// It has begun to receive events: a tick has come.
    fn start(admin: impl std::fmt::Display, arguments: &[&str]) -> Self {
        let mut child = spawn(
            admin,
            &[arguments, &["--type", "tick,limited,unblocked,banned,lifted,endpoints"]].concat(),
        );
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let following = Self { running: Running(child), lines: lines(stdout), messages: lines(stderr) };
        following.next("tick");
        following
    }

    /// The next line with these words.
    #[track_caller]
    fn next(&self, words: &str) -> String {
        next(&self.lines, words)
    }
}

#[track_caller]
fn next(lines: &Receiver<String>, words: &str) -> String {
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) if line.contains(words) => return line,
            Ok(_) => {}
            Err(error) => panic!("no line with {words}: {error}"),
        }
    }
}

fn config(origin: &Origin, redis: Option<&Deployment>, admin: &str) -> Config {
    let store = redis.map(|redis| format!("store: {{ redis: {{ {}, timeout: 5s }} }}\n", redis.settings()));
    let rest = format!(
        "{}admin: {{ address: \"{admin}\" }}
policies: {{ once: {{ algorithm: single_counter, key: ip, limit: 1/1d }} }}\n",
        store.unwrap_or_default()
    );
    Config::new(&[origin.address], &rest).with_policy("once")
}

fn events_are_followed_line_by_line(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(config(&origin, redis, "127.0.0.1:0"));
    let text = Following::start(tollgate.admin, &[]);
    let json = Following::start(tollgate.admin, &["--json"]);
    for _ in 0..2 {
        get_from("127.0.0.5", tollgate.address, "/", &[]);
    }
    let line = text.next("limited ");
    assert!(
        line.contains("  limited       127.0.0.5 is limited for ")
            && line.contains(" by once: 1 request denied"),
        "{line}"
    );
    assert!(line.as_bytes()[19] == b'Z', "its time has a zone: {line}");
    let event: Value = serde_json::from_str(&json.next("\"limited\"")).unwrap();
    assert_eq!((&event["event"], &event["address"]), (&"limited".into(), &"127.0.0.5".into()));
    assert!(event["time"].as_str().unwrap().ends_with('Z'), "{event}");

    assert_eq!(tollgate.command(&["ban", "user:ann", "--for", "1h", "--reason", "abuse"]).code, Some(0));
    let line = text.next("banned ");
    assert!(
        line.contains("user:ann was banned until ") && line.ends_with(" by operator at 127.0.0.1: abuse"),
        "{line}"
    );
    assert_eq!(tollgate.command(&["unblock", "127.0.0.5"]).code, Some(0));
    assert!(text.next("unblocked").ends_with("  unblocked     127.0.0.5 was unblocked"));
}

fn a_lost_connection_is_made_again(redis: Option<&Deployment>) {
    let (origin, port) = (Origin::ok(), free_port());
    let admin = format!("127.0.0.1:{port}");
    let mut first = Tollgate::start(config(&origin, redis, &admin));
    let following = Following::start(&admin, &[]);
    first.signal("TERM");
    first.wait();
    let lost = next(&following.messages, "connecting again");
    assert!(
        lost.starts_with(&format!("tollgate: the connection to the admin port at http://{admin} failed: ")),
        "{lost}"
    );
    let second = Tollgate::start(config(&origin, redis, &admin));
    let again = next(&following.messages, "connected again");
    assert_eq!(again, "tollgate: connected again; events in between were not received");
    assert_eq!(second.command(&["ban", "user:bob", "--for", "1h"]).code, Some(0));
    assert!(following.next("banned ").contains("user:bob"));
}

on_each_store!(events_are_followed_line_by_line, a_lost_connection_is_made_again);

#[test]
fn ctrl_c_ends_it_as_it_ends_any_program() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(config(&origin, None, "127.0.0.1:0"));
    let mut following = Following::start(tollgate.admin, &[]);
    let pid = following.running.0.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(following.running.0.wait().unwrap().signal(), Some(2));
    assert!(following.messages.try_recv().is_err(), "nothing is said");
}

#[test]
fn a_closed_pipe_ends_it_silently_even_if_nothing_happens() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(config(&origin, None, "127.0.0.1:0"));
    let mut running = Running(spawn(tollgate.admin, &["--type", "reloaded"]));
    drop(running.0.stdout.take());
    let messages = lines(running.0.stderr.take().unwrap());
    let mut status = None;
    eventually("it ends", || {
        status = running.0.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
    assert_eq!(messages.iter().collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn a_wrong_token_ends_it() {
    let origin = Origin::ok();
    let rest = "admin: { address: \"127.0.0.1:0\", token: s3cret }\n";
    let running = Tollgate::start(Config::new(&[origin.address], rest));
    let admin = running.admin.to_string();
    let ended = tollgate(&["events", "--admin", &admin, "--token", "wrong"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    assert!(ended.stderr.contains("rejects the token"), "{}", ended.stderr);
}

#[test]
fn a_name_that_moves_and_a_file_that_changes_are_one_event_each_however_many_addresses_there_are() {
    let dns = Dns::start();
    let range =
        |from: u8, to: u8| (from..=to).map(|last| IpAddr::from([127, 0, 0, last])).collect::<Vec<_>>();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("list.yaml");
    let list = |ports: std::ops::Range<u16>| {
        ports.map(|port| format!("- http://127.0.0.1:{port}\n")).collect::<String>()
    };
    std::fs::write(&file, list(1..4)).unwrap();
    dns.set("api.test", DnsAnswer::Addresses(range(1, 50), 1));
    let tollgate = Tollgate::start(Config::yaml(format!(
        "resolver: {{ servers: [\"{}\"] }}\nupstreams:\n  api: {{ endpoints: [\"http://api.test:1\"] }}\n  web: {{ endpoints: {{ file: {} }} }}\nroutes: [{{ path: /web, upstream: web }}, {{ path: /*, upstream: api }}]\n",
        dns.address,
        file.display()
    )));
    let following = Following::start(tollgate.admin, &[]);
    // Two rounds of the diagnostics: what is there at first is no change.
    following.next("tick");
    following.next("tick");
    dns.set("api.test", DnsAnswer::Addresses(range(11, 60), 1));
    let moved = following.next("upstream api: http://api.test:1");
    assert!(
        moved.contains("now has 50 addresses, 10 gone, 10 new: 127.0.0.51:1, 127.0.0.52:1, 127.0.0.53:1, 127.0.0.54:1, 127.0.0.55:1 …"),
        "{moved}"
    );
    std::fs::write(directory.path().join("new"), list(3..10)).unwrap();
    std::fs::rename(directory.path().join("new"), &file).unwrap();
    let listed = following.next("upstream web: ");
    assert!(
        listed.contains("list.yaml now lists 7 endpoints, 2 gone, 6 new: http://127.0.0.1:4, "),
        "{listed}"
    );
    following.next("tick");
    let more: Vec<_> = following.lines.try_iter().filter(|line| line.contains("upstream ")).collect();
    assert!(more.is_empty(), "{more:?}");
}
