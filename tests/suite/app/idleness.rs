//! A process without requests sleeps, and wakes for clients and operators at once.

use std::{fs, net::IpAddr, thread, time::Duration};

use crate::harness::{Client, Config, Origin, Tollgate, eventually};

/// How long wakeups are counted.
const WINDOW: Duration = Duration::from_secs(3);

/// How often the threads of the process have gone to sleep so far.
fn sleeps(tollgate: &Tollgate) -> u64 {
    let threads = fs::read_dir(format!("/proc/{}/task", tollgate.pid())).unwrap();
    let sleeps = |status: String| -> Option<u64> {
        status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
    };
    threads.filter_map(|thread| sleeps(fs::read_to_string(thread.ok()?.path().join("status")).ok()?)).sum()
}

/// Waits until the process wakes less than 20 times a second. A busy one does so some 100 times.
#[track_caller]
fn rests(tollgate: &Tollgate) {
    eventually("it rests", || {
        let before = sleeps(tollgate);
        thread::sleep(WINDOW);
        // A thread that has ended takes its count with it.
        sleeps(tollgate).saturating_sub(before) < 20 * WINDOW.as_secs()
    });
}

#[test]
fn a_process_without_requests_sleeps() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    rests(&tollgate);
    // Likewise afterwards, with idle connections to both sides.
    let mut client = Client::connect(tollgate.address);
    assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    rests(&tollgate);
    assert_eq!(client.request("GET", "/", &[], b"").status, 200);
}

/// Records of denials, bans by rules, and connections that bans close take all threads of a resting process. Later than
/// at once, the idle timeout would close the connection.
#[test]
fn a_process_that_rests_records_and_bans_at_once() {
    let origin = Origin::ok();
    let rest = "client_limits: { idle_timeout: 8s }\n\
                policies:\n  once: { algorithm: fixed_window, key: ip, limit: 1/1h }\n\
                bans:\n  greedy: { key: ip, after: 3/1m, for: 1h }\n";
    let tollgate = Tollgate::start(Config::new(&[origin.address], rest).with_policy("once"));
    rests(&tollgate);
    let greedy: IpAddr = "127.0.0.2".parse().unwrap();
    let mut silent = Client::connect_from(greedy, tollgate.address);
    assert_eq!(silent.request("GET", "/", &[], b"").status, 200);
    let mut client = Client::connect_from(greedy, tollgate.address);
    for _ in 0..3 {
        assert_eq!(client.request("GET", "/", &[], b"").status, 429);
    }
    assert!(silent.closed_in_order() && client.closed_in_order());
    let closed = "tollgate_idle_connections_closed_total{reason=\"banned\"}";
    eventually("the bans have closed both", || tollgate.metric(closed) == 2.0);
    let record = || tollgate.admin("GET", "/v1/blocked/127.0.0.2").json();
    eventually("the denials are recorded", || record()["denied"] == 3);
}

#[test]
fn a_ban_closes_connections_of_a_process_that_rests() {
    let origin = Origin::ok();
    let rest = "client_limits: { idle_timeout: 8s }\n";
    let tollgate = Tollgate::start(Config::new(&[origin.address], rest));
    rests(&tollgate);
    let mut client = Client::connect_from("127.0.0.2".parse().unwrap(), tollgate.address);
    assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    // Its worker rests again.
    thread::sleep(Duration::from_secs(1));
    let banned = tollgate.command(&["ban", "ip:127.0.0.2", "--for", "1h", "--force"]);
    assert_eq!(banned.code, Some(0), "{}", banned.stderr);
    assert!(client.closed_in_order());
    let closed = "tollgate_idle_connections_closed_total{reason=\"banned\"}";
    eventually("the ban has closed it", || tollgate.metric(closed) == 1.0);
}
