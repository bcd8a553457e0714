//! `tollgate limits`, `policies` and `audit`: how limits stand, what policies decided, and who changed what.

use serde_json::Value;

use crate::harness::{
    Config, Deployment, Ended, Origin, Terminal, Tollgate, command, eventually, get_from, on_each_store,
};

/// Three requests a day of each address, of which 127.0.0.5 has sent two; a policy that no route uses; and one in shadow.
fn limited(redis: Option<&Deployment>) -> (Origin, Tollgate) {
    let origin = Origin::ok();
    let store = redis.map(|redis| format!("store: {{ redis: {{ {}, timeout: 5s }} }}\n", redis.settings()));
    let rest = format!(
        "{}policies:
  few: {{ algorithm: fixed_window, key: ip, limit: 3/1d, mode: shadow }}
  other: {{ algorithm: concurrency, key: \"header:x-key\", limit: 2, lease: 60s }}
",
        store.unwrap_or_default()
    );
    let tollgate = Tollgate::start(Config::new(&[origin.address], &rest).with_policy("few"));
    for _ in 0..2 {
        get_from("127.0.0.5", tollgate.address, "/", &[]);
    }
    (origin, tollgate)
}

#[track_caller]
fn rows(ended: &Ended) -> Vec<Vec<String>> {
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    let cells = |line: &str| {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    ended.stdout.lines().filter(|line| !line.is_empty()).map(cells).collect()
}

fn a_limit_is_shown_and_reset(redis: Option<&Deployment>) {
    let (_origin, tollgate) = limited(redis);
    for key in ["127.0.0.5", "ip:127.0.0.5"] {
        let shown = rows(&tollgate.command(&["limits", key]));
        assert_eq!(shown[0], ["POLICY", "KEY", "USED", "LIMIT", "REMAINING", "RESET"]);
        assert_eq!(shown[1][..5], ["few", "ip:127.0.0.5", "2", "3", "1"]);
        assert_eq!(shown.len(), 2);
    }
    // Seconds until the reset: a second may begin between the two.
    eventually("the command shows the response itself", || {
        let shown = tollgate.command(&["limits", "127.0.0.5", "--json"]).stdout;
        let json: Value = serde_json::from_str(&shown).unwrap();
        json == tollgate.admin("GET", "/v1/limits?key=127.0.0.5").json()
    });

    let reset = tollgate.command(&["limits", "127.0.0.5", "--policy", "few", "--reset"]);
    assert_eq!(
        reset.stdout,
        "These limits were reset, on every instance:\n\nPOLICY  KEY\nfew     ip:127.0.0.5\n"
    );
    let shown = rows(&tollgate.command(&["limits", "127.0.0.5", "--policy", "few"]));
    assert_eq!(shown[1][2], "0", "{shown:?}");
    let again = tollgate.command(&["limits", "127.0.0.5", "--reset"]);
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (Some(0), "Nothing of the limits of 127.0.0.5 is used.\n")
    );

    let audit = rows(&tollgate.command(&["audit", "--by", "operator", "--limit", "2"]));
    assert_eq!(audit[0], ["TIME (UTC)", "BY", "ACTION", "TARGET", "DETAIL", "INSTANCE"]);
    assert_eq!(audit[2][1..5], ["operator at 127.0.0.1", "reset", "ip:127.0.0.5", "few"], "{audit:?}");
    assert_eq!(tollgate.command(&["audit", "--by", "rule"]).stdout, "Nothing was changed.\n");
}

fn policies_are_listed_with_what_they_decided(redis: Option<&Deployment>) {
    let (_origin, tollgate) = limited(redis);
    for _ in 0..2 {
        get_from("127.0.0.5", tollgate.address, "/", &[]);
    }
    eventually("one request is denied in shadow", || {
        let shown = rows(&tollgate.command(&["policies"]));
        shown[1] == ["few", "fixed_window", "ip", "3/1d", "shadow", "/*", "3", "0", "1", "0"]
    });
    let shown = rows(&tollgate.command(&["policies"]));
    assert_eq!(shown[0].len(), 10, "{shown:?}");
    assert_eq!(shown[2][..3], ["other", "concurrency", "header:x-key"], "{shown:?}");
    assert_eq!(shown[2][5..], ["none", "0", "0", "0", "0"], "{shown:?}");
    let json: Value = serde_json::from_str(&tollgate.command(&["policies", "--json"]).stdout).unwrap();
    assert_eq!(json["policies"][1]["name"], "other");
}

/// One request a day of each user, named by a header.
fn a_user_is_shown_with_bans_limits_addresses_and_requests(redis: Option<&Deployment>) {
    let origin = Origin::ok();
    let store = redis.map(|redis| format!("store: {{ redis: {{ {}, timeout: 5s }} }}\n", redis.settings()));
    let rest = format!(
        "{}user: [{{ header: x-user-id, from: anyone }}]
policies: {{ each: {{ algorithm: fixed_window, key: user, limit: 1/1d }} }}
",
        store.unwrap_or_default()
    );
    let tollgate = Tollgate::start(Config::new(&[origin.address], &rest).with_policy("each"));
    for address in ["127.0.0.5", "127.0.0.5", "127.0.0.5", "127.0.0.6"] {
        get_from(address, tollgate.address, "/a", &[("x-user-id", "o/brien")]);
    }
    let mut shown = Vec::new();
    eventually("three denials are recorded", || {
        shown = rows(&tollgate.command(&["user", "o/brien"]));
        shown.contains(&vec!["denied".to_owned(), "3 times".to_owned()])
    });
    let has = |cells: &[&str]| shown.iter().any(|row| row.windows(cells.len()).any(|part| part == cells));
    assert_eq!(shown[0], ["o/brien: not banned"]);
    for cells in [
        ["each", "user:o/brien", "1", "1", "0"].as_slice(),
        &["127.0.0.5", "2"],
        &["127.0.0.6", "1"],
        &["2", "127.0.0.5", "GET", "/a", "each"],
    ] {
        assert!(has(cells), "{cells:?}: {shown:#?}");
    }

    assert_eq!(tollgate.command(&["ban", "user:o/brien", "--for", "7d", "--reason", "abuse"]).code, Some(0));
    let shown = rows(&tollgate.command(&["user", "o/brien"]));
    assert_eq!(shown[0], ["o/brien: banned for 7d 0h"]);
    assert!(shown.iter().any(|row| row.starts_with(&["user:o/brien".to_owned(), "enforce".to_owned()])
        && row.last().unwrap() == "abuse"));
    let json: Value = serde_json::from_str(&tollgate.command(&["user", "o/brien", "--json"]).stdout).unwrap();
    assert_eq!((&json["user"], &json["bans"][0]["key"]), (&"o/brien".into(), &"user:o/brien".into()));
}

on_each_store!(
    a_limit_is_shown_and_reset,
    policies_are_listed_with_what_they_decided,
    a_user_is_shown_with_bans_limits_addresses_and_requests,
);

#[test]
fn tables_fit_a_terminal() {
    let (_origin, tollgate) = limited(None);
    let reason = "a".repeat(70);
    let ban = tollgate.command(&["ban", "127.0.0.9", "--for", "1h", "--reason", &reason]);
    assert_eq!(ban.code, Some(0), "{ban:?}");
    let terminal = Terminal::open(24, 110);
    let mut bans = command(std::path::Path::new("."));
    bans.arg("bans").arg(format!("--admin={}", tollgate.admin));
    let _running = terminal.run(&bans);
    eventually("the ban is listed", || terminal.text().contains("aaa…"));
    let shown = terminal.text();
    assert_eq!(shown.lines().filter(|line| !line.trim().is_empty()).count(), 2, "{shown}");
    assert!(tollgate.command(&["bans"]).stdout.contains(&reason), "what is piped is whole");
}
