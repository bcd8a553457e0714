//! `tollgate demo`: what it shows, and how it ends.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::harness::{PATIENCE, command, get, tollgate_in};

const FREE_PORTS: [(&str, &str); 2] = [("LISTEN", "127.0.0.1:0"), ("ADMIN", "127.0.0.1:0")];

/// The lines that `tollgate blocked 127.0.0.N` told of.
fn section<'a>(told: &'a str, address: &str) -> &'a str {
    let (_, section) = told.split_once(&format!("$ tollgate blocked {address} ")).unwrap();
    section.split("\n$ ").next().unwrap()
}

#[test]
fn the_tour_shows_who_was_limited_and_who_was_behind_it() {
    let ended = tollgate_in(Path::new("."), &FREE_PORTS, &["demo", "--once"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    let told = &ended.stdout;
    let limited = |name: &str| -> u64 {
        let line = told.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().last().unwrap().parse().unwrap()
    };
    assert_eq!((limited("a mobile app"), limited("a shop's backend")), (0, 0), "{told}");
    for (name, address, policy, users) in [
        ("a scraper", "127.0.0.66", "inspect", ["trial-1", "trial-2", "trial-3"].as_slice()),
        ("a password guesser", "127.0.0.67", "login", &["carol", "dave"]),
    ] {
        let section = section(told, address);
        let count = limited(name);
        assert!(count > 0, "{told}");
        // All of them are recorded by the time it is shown.
        assert!(section.contains(&format!("denied     {count} times")), "{name}: {told}");
        for word in users.iter().chain([&policy]) {
            assert!(section.contains(word), "no {word} in {section}");
        }
        assert!(section.lines().count() < 30, "requests that are alike are one line: {section}");
    }
}

#[test]
fn one_customer_has_used_up_its_plan_and_another_one_goes_on() {
    let of_process = TempDir::new().unwrap();
    let directory = ("TMPDIR", of_process.path().to_str().unwrap());
    let ended = tollgate_in(Path::new("."), &[FREE_PORTS[0], FREE_PORTS[1], directory], &["demo", "--once"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    let told = &ended.stdout;
    let row = |beginning: &str| {
        let row = told.lines().find(|line| line.starts_with(beginning));
        let row = row.unwrap_or_else(|| panic!("no {beginning}: {told}"));
        row.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("acme, plan free"), "acme, plan free 127.0.0.21 30 10 20");
    assert_eq!(row("globex, plan pro"), "globex, plan pro 127.0.0.22 30 30 0");
    assert_eq!(row("acme   "), "acme free 0 of 10 990 of 1000");
    assert_eq!(row("globex   "), "globex pro 570 of 600 999970 of 1000000");
    assert!(row("127.0.0.21 ").contains("per-minute"), "{told}");
    // What the history has of them: also their question to `/usage`.
    let (_, history) = told.split_once("$ tollgate usage --by customer,plan").unwrap();
    let of_history = |beginning: &str| {
        let row = history.lines().find(|line| line.starts_with(beginning));
        row.unwrap_or_else(|| panic!("no {beginning}: {told}"))
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(of_history("acme  "), "acme free 31 20 11 0 20 0 10 0 10 10 10");
    assert_eq!(of_history("globex  "), "globex pro 31 0 31 0 0 0 30 0 30 30 30");
    let why = history.lines().find(|line| line.contains("20 requests of acme, such as GET /reports/"));
    assert!(
        why.is_some_and(
            |why| why.contains(", were denied by per-minute (10/1m, plan free); from 127.0.0.21.")
        ),
        "{told}"
    );
    assert_eq!(fs::read_dir(of_process.path()).unwrap().count(), 0, "the keys and the history are removed");
}

#[test]
fn each_client_is_named_for_what_it_is() {
    let ended = tollgate_in(Path::new("."), &FREE_PORTS, &["demo", "--once"]);
    let listed = |address: &str| {
        let row = ended.stdout.lines().find(|line| line.starts_with(&format!("{address} ")));
        row.unwrap_or_else(|| panic!("{address} is not listed: {}", ended.stdout))
    };
    for (address, hint) in [
        ("127.0.0.13", "shared address"),
        ("127.0.0.66", "scraping"),
        ("127.0.0.67", "password guessing"),
        ("127.0.0.68", "credential stuffing"),
        ("127.0.0.69", "flood"),
    ] {
        assert!(listed(address).contains(&format!("  {hint}  ")), "{}", ended.stdout);
    }
    let page = section(&ended.stdout, "127.0.0.67");
    assert!(page.contains("2 users, 100 % of answers 401 or 403, all to /api/login"), "{page}");
}

#[test]
fn it_serves_on_until_it_is_interrupted() {
    let mut child = command(Path::new("."))
        .arg("demo")
        .envs(FREE_PORTS)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines: Vec<_> = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .take_while(|line| !line.contains("Ctrl-C to end the demo"))
        .collect();
    let proxy = lines.iter().find_map(|line| line.split_once("in front of it at http://"));
    let proxy = proxy.and_then(|(_, rest)| rest.split(',').next()?.parse().ok());
    let status = proxy.map(|proxy| get(proxy, "/api/orders", &[]).status);
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let end = Instant::now() + PATIENCE;
    let ended = loop {
        match child.try_wait().unwrap() {
            Some(ended) => break ended,
            None if Instant::now() > end => drop(child.kill()),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    assert_eq!((status, ended.code()), (Some(200), Some(0)), "{lines:#?}");
}

#[test]
fn a_taken_port_is_reported_with_the_way_out() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = tollgate_in(Path::new("."), &[("LISTEN", &address), FREE_PORTS[1]], &["demo", "--once"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains(&address) && ended.stderr.contains("To use other ports: "),
        "{}",
        ended.stderr
    );
}
