//! `tollgate top`, at a real terminal, against a real instance.

use std::{
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus},
};

use super::commands::limited;
use crate::harness::{Running, Terminal, command, eventually, free_port, get_from, tollgate};

/// `tollgate top` that asks an admin port there.
fn top(admin: impl std::fmt::Display) -> Command {
    let mut command = command(std::path::Path::new("."));
    command.arg("top").arg(format!("--admin=http://{admin}")).env_remove("NO_COLOR");
    command
}

#[track_caller]
fn shows(terminal: &Terminal, text: &str) {
    let end = std::time::Instant::now() + crate::harness::PATIENCE;
    while !terminal.text().contains(text) {
        assert!(std::time::Instant::now() < end, "never shows {text}:\n{}", terminal.text());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[track_caller]
fn ended(running: &mut Running) -> ExitStatus {
    let mut status = None;
    eventually("it ends", || {
        status = running.0.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

fn signal(running: &Running, name: &str) {
    let pid = running.0.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
}

#[test]
fn it_shows_who_is_limited_unblocks_by_keys_and_leaves_the_terminal_as_it_was() {
    let (_origin, instance) = limited("");
    let terminal = Terminal::open(24, 80);
    let mut top = terminal.run(&top(instance.admin));
    shows(&terminal, "127.0.0.5");
    shows(&terminal, "unknown");
    assert!(terminal.is_taken() && terminal.has_colours(), "{}", terminal.text());

    terminal.resize(15, 50);
    eventually("it fits into less", || {
        let text = terminal.text();
        text.contains("127.0.0.5") && !text.contains("POLICIES") && text.contains("q quit")
    });
    terminal.resize(24, 120);
    shows(&terminal, "POLICIES");
    terminal.resize(24, 80);

    terminal.press("\r");
    shows(&terminal, "LAST REQUESTS");
    shows(&terminal, "bob");
    terminal.press("\x1b");
    shows(&terminal, "sort: denied");

    terminal.press("u");
    shows(&terminal, "Unblock 127.0.0.5 on every instance?");
    terminal.press("n");
    assert_eq!(get_from("127.0.0.5", instance.address, "/", &[]).status, 429);
    terminal.press("uy");
    shows(&terminal, "127.0.0.5 is unblocked");
    assert_eq!(get_from("127.0.0.5", instance.address, "/", &[]).status, 200);

    terminal.press("q");
    assert_eq!(ended(&mut top).code(), Some(0));
    eventually("the terminal is as it was", || terminal.is_as_found());
}

#[test]
fn a_ban_by_keys_holds() {
    let (_origin, instance) = limited("");
    let terminal = Terminal::open(24, 80);
    let _top = terminal.run(&top(instance.admin));
    shows(&terminal, "127.0.0.5");
    terminal.press("b");
    shows(&terminal, "Ban 127.0.0.5 on every instance for 1 h?");
    terminal.press("y");
    shows(&terminal, "is banned for 1h");
    let bans = instance.admin("GET", "/v1/bans").json();
    assert_eq!(bans["bans"][0]["key"], "ip:127.0.0.5");
}

#[test]
fn whatever_ends_it_leaves_the_terminal_as_it_was() {
    let (_origin, instance) = limited("");
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        let terminal = Terminal::open(24, 80);
        let mut top = terminal.run(&top(instance.admin));
        shows(&terminal, "127.0.0.5");
        signal(&top, name);
        let status = ended(&mut top);
        assert_eq!((status.code(), status.signal()), (Some(128 + number), None), "{name}");
        eventually("the terminal is as it was", || terminal.is_as_found());
    }
    let terminal = Terminal::open(24, 80);
    let mut top = terminal.run(&top(instance.admin));
    shows(&terminal, "127.0.0.5");
    terminal.press("\x03");
    assert_eq!(ended(&mut top).code(), Some(0));
    eventually("the terminal is as it was", || terminal.is_as_found());
}

#[test]
fn a_wrong_token_ends_it_with_a_word() {
    let (_origin, instance) = limited("admin: { address: \"127.0.0.1:0\", token: s3cret }\n");
    for (arguments, said) in
        [(["--token", "wrong"].as_slice(), "rejects the token"), (&[], "requires a token")]
    {
        let terminal = Terminal::open(24, 200);
        let mut top = terminal.run(top(instance.admin).args(arguments));
        assert_eq!(ended(&mut top).code(), Some(1));
        shows(&terminal, said);
        eventually("the terminal is as it was", || terminal.is_as_found());
    }
}

#[test]
fn an_admin_port_that_is_away_is_tried_again() {
    let admin = format!("127.0.0.1:{}", free_port());
    let terminal = Terminal::open(24, 80);
    let _top = terminal.run(top(&admin).env("NO_COLOR", "1"));
    shows(&terminal, "no answer, retrying");
    shows(&terminal, "cannot connect to the admin port");
    {
        let (_origin, _instance) = limited(&format!("admin: {{ address: \"{admin}\" }}\n"));
        shows(&terminal, "127.0.0.5");
        assert!(!terminal.text().contains("no answer"), "{}", terminal.text());
        assert!(!terminal.has_colours());
    }
    shows(&terminal, "no answer, retrying");
    assert!(terminal.text().contains("127.0.0.5"), "the last figures stay: {}", terminal.text());
}

#[test]
fn where_there_is_no_terminal_it_tells_how_things_stand_once() {
    let (_origin, instance) = limited("");
    let mut text = String::new();
    eventually("the denials are told", || {
        let ended = instance.command(&["top"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        text = ended.stdout;
        text.contains("127.0.0.5  limited  3 ")
    });
    assert!(text.starts_with("tollgate ") && text.contains("ready\nstore      memory"), "{text}");
    assert!(text.contains("\nROUTE  REQ/S") && !text.contains('\u{1b}'), "{text}");
    let json = instance.command(&["top", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(told["blocked"][0]["address"], "127.0.0.5");
    assert_eq!(told["routes"], instance.admin("GET", "/v1/routes").json()["routes"]);

    let nobody = format!("--admin=http://127.0.0.1:{}", free_port());
    let away = tollgate(&["top", &nobody]);
    assert_eq!((away.code, away.stdout.as_str()), (Some(1), ""));
    assert!(away.stderr.contains("cannot connect to the admin port"), "{}", away.stderr);
}
