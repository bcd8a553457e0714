//! The commands that speak to a running Tollgate: `blocked` and `unblock`.

use serde_json::Value;

use crate::harness::{Config, Origin, Tollgate, eventually, get_from, tollgate, tollgate_in};

/// One request a day of each address; 127.0.0.5 has been denied one as `ann` and two as `bob`.
pub fn limited(rest: &str) -> (Origin, Tollgate) {
    let origin = Origin::ok();
    let rest = format!(
        "user: [{{ header: x-user-id, from: anyone }}]
policies: {{ once: {{ algorithm: single_counter, key: ip, limit: 1/1d }} }}
{rest}"
    );
    let tollgate = Tollgate::start(Config::new(&[origin.address], &rest).with_policy("once"));
    for user in ["ann", "ann", "bob", "bob"] {
        get_from("127.0.0.5", tollgate.address, "/a", &[("x-user-id", user)]);
    }
    (origin, tollgate)
}

/// The command's output once it tells of `denied` denials.
fn blocked(tollgate: &Tollgate, arguments: &[&str]) -> String {
    let mut told = String::new();
    eventually("three denials are told", || {
        let json = tollgate.command(&["blocked", "127.0.0.5", "--json"]).stdout;
        let denied = serde_json::from_str::<Value>(&json).map(|told| told["denied"].clone());
        let ended = tollgate.command(arguments);
        told = ended.stdout;
        denied.is_ok_and(|denied| denied == 3) && ended.code == Some(0)
    });
    told
}

#[test]
fn blocked_lists_addresses_with_their_users() {
    let (_origin, tollgate) = limited("");
    let told = blocked(&tollgate, &["blocked"]);
    let row = told.lines().find(|line| line.starts_with("127.0.0.5 ")).unwrap();
    let cells: Vec<_> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells[..6], ["127.0.0.5", "limited", "3", "2", "unknown", "once"]);
}

#[test]
fn blocked_tells_who_was_behind_an_address_and_equal_requests_once() {
    let (_origin, tollgate) = limited("");
    let told = blocked(&tollgate, &["blocked", "127.0.0.5"]);
    let rows: Vec<Vec<_>> = told.lines().map(|line| line.split_whitespace().collect()).collect();
    for [user, count] in [["ann", "1"], ["bob", "2"]] {
        assert!(rows.iter().any(|row| *row == [user, count]), "{told}");
        let alike = rows.iter().filter(|row| row.get(2..) == Some(&[count, user, "GET", "/a", "once"]));
        assert_eq!(alike.count(), 1, "{told}");
    }
}

#[test]
fn json_is_what_the_admin_port_answers() {
    let (_origin, tollgate) = limited("");
    let told: Value = serde_json::from_str(&blocked(&tollgate, &["blocked", "--json"])).unwrap();
    assert_eq!(told, tollgate.admin("GET", "/v1/blocked").json());
}

#[test]
fn unblock_says_what_it_cleared_and_the_address_is_served() {
    let (_origin, tollgate) = limited("");
    blocked(&tollgate, &["blocked"]);
    let ended = tollgate.command(&["unblock", "127.0.0.5"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stdout.starts_with("127.0.0.5 is unblocked.") && ended.stdout.contains("once    ip:127.0.0.5")
    );
    let listed = tollgate.command(&["blocked"]).stdout;
    assert!(listed.contains("127.0.0.5  unblocked  3 "), "{listed}");
    assert_eq!(get_from("127.0.0.5", tollgate.address, "/", &[]).status, 200);
}

#[test]
fn an_address_that_is_not_listed_is_an_error_on_stderr() {
    let (_origin, tollgate) = limited("");
    for (command, why) in
        [("blocked", "was not limited recently"), ("unblock", "has no limits and no bans to clear")]
    {
        let ended = tollgate.command(&[command, "127.0.0.99"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
        assert_eq!(ended.stderr, format!("tollgate: 127.0.0.99 {why}\n"));
    }
}

#[test]
fn a_token_is_given_by_option_or_by_variable() {
    let (_origin, running) = limited("admin: { address: \"127.0.0.1:0\", token: s3cret }\n");
    let admin = format!("http://{}", running.admin);
    let without = tollgate(&["blocked", "--admin", &admin]);
    assert_eq!(without.code, Some(1));
    assert!(without.stderr.contains("TOLLGATE_ADMIN_TOKEN"), "{}", without.stderr);
    assert_eq!(tollgate(&["blocked", "--admin", &admin, "--token", "wrong"]).code, Some(1));
    assert_eq!(tollgate(&["blocked", "--admin", &admin, "--token", "s3cret"]).code, Some(0));
    let variables = [("TOLLGATE_ADMIN", admin.as_str()), ("TOLLGATE_ADMIN_TOKEN", "s3cret")];
    assert_eq!(tollgate_in(running.directory(), &variables, &["blocked"]).code, Some(0));
}

#[test]
fn a_variable_that_is_empty_is_as_good_as_none() {
    let (_origin, running) = limited("");
    let admin = format!("http://{}", running.admin);
    let empty = [("TOLLGATE_ADMIN", ""), ("TOLLGATE_ADMIN_TOKEN", "")];
    let with = |arguments: &[&str]| tollgate_in(running.directory(), &empty, arguments);
    assert_eq!(with(&["blocked", "--admin", &admin]).code, Some(0));
    let help = with(&["blocked", "--help"]);
    assert!(help.code == Some(0) && help.stdout.contains("[default: 127.0.0.1:9900]"), "{}", help.stdout);
    // Whether somebody listens at the default or not.
    assert_ne!(with(&["blocked"]).code, Some(2));
    assert_eq!(with(&["blocked", "--admin", ""]).code, Some(2));
}

#[test]
fn a_wrong_admin_port_is_reported_in_words() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ended = tollgate(&["blocked", "--admin", &format!("http://{nobody}")]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("cannot connect to the admin port"), "{}", ended.stderr);
    let (_origin, running) = limited("");
    let proxy = tollgate(&["blocked", "--admin", &format!("http://{}", running.address)]);
    assert_eq!(proxy.code, Some(1));
    assert!(proxy.stderr.starts_with("tollgate: "), "{}", proxy.stderr);
}
