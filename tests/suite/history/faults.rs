//! PostgreSQL away, reset in the middle of commits, slow; a full disk; two instances; a handover. Nothing is lost, nothing counts
//! twice, and no request waits.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

use tempfile::TempDir;

use super::{config, has_requests, keys_file, rows, send, start};
use crate::{
    app::handover,
    harness::{Client, Origin, Postgres, Relay, becomes, eventually, postgres::url},
};

fn keys(directory: &TempDir) -> String {
    let keys = keys_file(directory.path(), &[("acme", None), ("globex", None)]);
    format!("api_keys: {{ file: {keys} }}\nroutes: [{{ path: /*, upstream: api }}]")
}

/// The setting with PostgreSQL behind `port`, and the spool in `directory`.
fn in_postgres(port: u16, directory: &TempDir) -> String {
    let spool = directory.path().join("spool");
    format!("{{ store: {{ postgres: \"{}\" }}, spool_directory: {} }}", url(port), spool.display())
}

#[test]
fn two_instances_with_one_database_give_one_answer() {
    let (origin, mut postgres) = (Origin::echo(), Postgres::start());
    let (directory, spools) = (TempDir::new().unwrap(), [TempDir::new().unwrap(), TempDir::new().unwrap()]);
    let rest = keys(&directory);
    let instances =
        spools.each_ref().map(|spool| start(origin.address, &in_postgres(postgres.port, spool), &rest));
    thread::scope(|scope| {
        for (tollgate, customer) in instances.iter().zip(["acme", "globex"]) {
            scope.spawn(move || {
                send(tollgate.address, customer, "/", 200);
                send(tollgate.address, "acme", "/a", 100);
            });
        }
    });
    for tollgate in &instances {
        has_requests(tollgate, 600);
        let by_customer = rows(tollgate, "customer", "by=customer");
        assert_eq!([by_customer["acme"].0, by_customer["globex"].0], [400, 200]);
    }
    assert_eq!(postgres.query("SELECT SUM(requests) FROM tollgate.usage_days"), "600");
    assert_eq!(postgres.query("SELECT COUNT(*) FROM tollgate.processes WHERE last > 0"), "2");
    postgres.stop();
    postgres.restart();
    for tollgate in &instances {
        let reply = tollgate.admin("GET", "/v1/usage");
        assert_eq!(reply.status, 200, "the first question after it is back: {}", reply.text());
    }
}

#[test]
fn a_database_that_is_reset_and_away_loses_nothing_and_counts_nothing_twice() {
    let (origin, mut postgres) = (Origin::echo(), Postgres::start());
    let relay = Relay::to(postgres.port);
    let (directory, spool) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let tollgate = start(origin.address, &in_postgres(relay.address.port(), &spool), &keys(&directory));
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let (is_over, sent, tollgate) = (&is_over, &sent, &tollgate);
        for customer in ["acme", "globex"] {
            scope.spawn(move || {
                while !is_over.load(SeqCst) {
                    let statuses = send(tollgate.address, customer, "/", 20);
                    assert_eq!(statuses.get(&200), Some(&20), "{statuses:?}");
                    sent.fetch_add(20, SeqCst);
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
        let _end = Flag(is_over);
        // Connections end at random moments, some of them while a commit is under way.
        for nth in 0..60 {
            thread::sleep(Duration::from_millis(40 + nth * 7 % 130));
            relay.refuse(true);
            relay.refuse(false);
        }
        // Answers that come late, and then not at all.
        let last = || postgres.query("SELECT MAX(last) FROM tollgate.processes").parse::<u64>().unwrap_or(0);
        relay.delay(Duration::from_millis(300));
        let before = last();
        eventually("a batch is written slowly", || last() > before);
        relay.delay(Duration::ZERO);
        postgres.stop();
        // Requests do not wait for it.
        let before = sent.load(SeqCst);
        eventually("requests are served", || sent.load(SeqCst) > before + 200);
        eventually("batches wait in the spool", || tollgate.metric("tollgate_history_spooled_bytes") > 0.0);
        eventually("it says so", || {
            let status = tollgate.admin("GET", "/v1/status");
            status.text().contains("the history can't be written")
        });
        assert_eq!(tollgate.admin("GET", "/readyz").status, 200);
        postgres.restart();
    });
    has_requests(&tollgate, sent.load(SeqCst));
    becomes(0, || tollgate.metric("tollgate_history_dropped_total") as u64);
    // Batches are in order: what would count twice comes before one more request.
    send(tollgate.address, "acme", "/", 1);
    has_requests(&tollgate, sent.load(SeqCst) + 1);
}

#[test]
fn an_ordinary_role_is_enough_and_no_name_is_too_long() {
    let (origin, postgres) = (Origin::echo(), Postgres::start());
    postgres.query("CREATE ROLE app LOGIN; CREATE SCHEMA tollgate AUTHORIZATION app");
    let spool = TempDir::new().unwrap();
    let history = in_postgres(postgres.port, &spool).replace("tollgate@127", "app@127");
    let rest = "user: [{ header: x-user, from: anyone }]
policies: { few: { algorithm: fixed_window, key: user, limit: 1/1h } }
routes: [{ path: /*, upstream: api, policies: [few] }]";
    let tollgate = start(origin.address, &history, rest);
    let user = "n".repeat(6_000);
    let mut client = Client::connect(tollgate.address);
    let mut ask = || client.request("GET", "/", &[("x-user", &user)], b"").status;
    assert_eq!([ask(), ask(), ask()], [200, 429, 429]);
    has_requests(&tollgate, 3);
    eventually("the denials are there", || postgres.query("SELECT SUM(count) FROM tollgate.denials") == "2");
    assert_eq!(tollgate.metric("tollgate_history_dropped_total"), 0.0);
}

#[test]
fn a_process_starts_and_ends_without_its_database_and_the_next_one_writes_for_it() {
    let (origin, mut postgres) = (Origin::echo(), Postgres::start());
    let (directory, spool) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (history, rest) = (in_postgres(postgres.port, &spool), keys(&directory));
    postgres.stop();
    let mut first = start(origin.address, &history, &rest);
    send(first.address, "acme", "/", 70);
    assert_eq!(first.admin("GET", "/v1/usage").status, 503);
    first.signal("TERM");
    assert!(first.wait().success());
    // One that is killed has spooled what is five seconds old.
    let killed = start(origin.address, &history, &rest);
    send(killed.address, "acme", "/", 30);
    eventually("it is in the spool", || killed.metric("tollgate_history_spooled_bytes") > 0.0);
    killed.signal("KILL");
    drop(killed);
    postgres.restart();
    let last = start(origin.address, &history, &rest);
    has_requests(&last, 100);
    assert_eq!(postgres.query("SELECT COUNT(*) FROM tollgate.processes WHERE ended = 1"), "1");
    assert_eq!(
        postgres.query("SELECT COUNT(*) FROM tollgate.processes WHERE ended = 2"),
        "1",
        "it was killed"
    );
}

#[test]
fn a_handover_loses_nothing() {
    let origin = Origin::echo();
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("history.db");
    let history = format!("{{ store: {{ file: {} }} }}", file.display());
    let service = handover::start(config(origin.address, &history, &keys(&directory)));
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let (is_over, sent, address) = (&is_over, &sent, service.0.address);
        scope.spawn(move || {
            while !is_over.load(SeqCst) {
                // The old process closes connections after their next response.
                assert_eq!(send(address, "acme", "/", 1).get(&200), Some(&1));
                sent.fetch_add(1, SeqCst);
            }
        });
        let _end = Flag(is_over);
        let more = || {
            let before = sent.load(SeqCst);
            eventually("requests are served", || sent.load(SeqCst) > before + 50);
        };
        more();
        service.hand_over();
        more();
    });
    has_requests(&service.0, sent.load(SeqCst));
}

#[test]
fn a_full_disk_keeps_usage_in_the_spool_until_there_is_room() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("left out: only root can mount a small file system");
        return;
    }
    let origin = Origin::echo();
    let (directory, disk, spool) =
        (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
        .arg(disk.path())
        .status()
        .unwrap();
    if !mounted.success() {
        eprintln!("left out: this machine mounts no tmpfs");
        return;
    }
    let unmount = Unmount(disk.path().to_owned());
    let history = format!(
        "{{ store: {{ file: {} }}, spool_directory: {} }}",
        disk.path().join("history.db").display(),
        spool.path().display()
    );
    let tollgate = start(origin.address, &history, &keys(&directory));
    send(tollgate.address, "acme", "/", 10);
    has_requests(&tollgate, 10);
    let filler = disk.path().join("filler");
    let _full = std::fs::write(&filler, vec![0; 4 << 20]);
    send(tollgate.address, "acme", "/", 20);
    eventually("it says that the disk is full", || {
        tollgate.admin("GET", "/v1/status").text().contains("the disk is full")
    });
    send(tollgate.address, "globex", "/", 5);
    std::fs::remove_file(&filler).unwrap();
    has_requests(&tollgate, 35);
    drop(tollgate);
    drop(unmount);
}

/// Unmounts a file system when the test ends.
struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _status = Command::new("umount").args(["-l"]).arg(&self.0).status();
    }
}

/// Is set at the end of its scope, also where a test fails.
struct Flag<'a>(&'a AtomicBool);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
