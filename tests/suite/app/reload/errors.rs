//! A wrong configuration never replaces a good one.

use std::{fs, sync::Mutex, thread};

use super::{file, limited, plain, reload, start, words, write_and_reload};
use crate::harness::{Origin, eventually, get};

#[test]
fn every_error_is_reported_with_its_location_and_the_old_configuration_stays() {
    let origin = Origin::ok();
    let good = limited(origin.address, "algorithm: single_counter, key: ip, limit: 2/1h", "");
    let tollgate = start(&good);
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let before = tollgate.admin("GET", "/v1/status").json()["configuration"].clone();
    assert_eq!(before["last_reload"], serde_json::Value::Null);

    let bad = good.replace("limit: 2/1h", "limit: lots").replace("upstream: origin }", "upstream: nowhere }");
    let refused = write_and_reload(&tollgate, &bad);
    assert_eq!(refused.status, 422);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    let errors = refused.json()["errors"].as_array().unwrap().clone();
    assert_eq!(errors.len(), 2, "{errors:?}");
    let line = |wanted: &str| bad.lines().position(|line| line.contains(wanted)).unwrap() as u64 + 1;
    assert_eq!(errors[0]["line"], line("lots"));
    assert_eq!(errors[1]["line"], line("nowhere"));
    assert!(errors.iter().all(|error| error["column"].as_u64().unwrap() > 1));

    // As `tollgate check` prints them.
    let checked = crate::harness::tollgate(&["check", file(&tollgate).to_str().unwrap()]);
    assert_eq!(checked.code, Some(78));
    let texts: Vec<_> = errors.iter().map(|error| error["text"].as_str().unwrap()).collect();
    assert_eq!(texts.join("\n"), checked.stderr);

    let status = tollgate.admin("GET", "/v1/status").json()["configuration"].clone();
    assert_eq!((&status["hash"], &status["loaded"]), (&before["hash"], &before["loaded"]));
    assert_eq!(status["last_reload"]["error"], texts[0].lines().next().unwrap());
    let statuses: Vec<_> = (0..2).map(|_| get(tollgate.address, "/", &[]).status).collect();
    assert_eq!(statuses, [200, 429], "the old limit, and its counts");

    reload(&tollgate, &good);
    let status = tollgate.admin("GET", "/v1/status").json()["configuration"].clone();
    assert_eq!(status["last_reload"]["error"], serde_json::Value::Null, "it goes away");
    assert_eq!(status["hash"], before["hash"]);
}

#[test]
fn a_file_that_is_gone_or_no_text_changes_nothing() {
    let origin = Origin::ok();
    let tollgate = start(&plain(origin.address, ""));
    fs::remove_file(file(&tollgate)).unwrap();
    let refused = tollgate.admin("POST", "/v1/reload");
    assert_eq!(refused.status, 422);
    assert_eq!(refused.json()["errors"][0]["line"], serde_json::Value::Null);
    assert!(refused.text().contains("cannot be read"), "{}", refused.text());
    fs::write(file(&tollgate), b"\xff\xfe").unwrap();
    assert_eq!(tollgate.admin("POST", "/v1/reload").status, 422);
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
}

#[test]
fn the_command_tells_what_changed_or_every_error() {
    let origin = Origin::ok();
    let yaml = |limit: &str| {
        limited(origin.address, &format!("algorithm: single_counter, key: ip, limit: {limit}"), "")
    };
    let tollgate = start(&yaml("2/1h"));
    let command = |arguments: &[&str]| tollgate.command(&[&["reload"], arguments].concat());

    let ended = command(&[]);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "The configuration was reloaded; nothing has changed.\n")
    );
    fs::write(file(&tollgate), yaml("3/1h")).unwrap();
    let ended = command(&[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "Changed:\n  policy p: limits 2/1h → 3/1h\n"));
    fs::write(file(&tollgate), yaml("4/1h").replace("workers: 2", "workers: 3")).unwrap();
    let ended = command(&["--json"]);
    let answer: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(words(&answer, "changed"), ["policy p: limits 3/1h → 4/1h"]);
    assert_eq!(words(&answer, "needs_restart"), ["workers: 2 → 3"]);

    fs::write(file(&tollgate), yaml("many")).unwrap();
    let ended = command(&[]);
    assert_eq!(ended.code, Some(78));
    let name = file(&tollgate).display().to_string();
    assert!(ended.stderr.contains(&format!("{name}:")) && ended.stderr.contains("many"), "{}", ended.stderr);
    assert!(ended.stderr.ends_with("\n\nThe running configuration was not changed.\n"), "{}", ended.stderr);
    let ended = command(&["--json"]);
    assert_eq!(ended.code, Some(78));
    let problem: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(problem["errors"][0]["line"].as_u64().is_some());
}

#[test]
fn a_signal_does_the_same() {
    let origin = Origin::ok();
    let yaml = |limit: &str| {
        limited(origin.address, &format!("algorithm: single_counter, key: ip, limit: {limit}"), "")
    };
    let tollgate = start(&yaml("1/1h"));
    fs::write(file(&tollgate), yaml("2/1h")).unwrap();
    tollgate.signal("HUP");
    let logged = |what: &str| tollgate.has_logged(&[what]);
    eventually("it was read again", || logged("configuration reloaded"));
    let statuses: Vec<_> = (0..3).map(|_| get(tollgate.address, "/", &[]).status).collect();
    assert_eq!(statuses, [200, 200, 429]);
    reload(&tollgate, &yaml("3/1h"));
    let audited = tollgate.admin("GET", "/v1/audit").json();
    let entry = |n: usize, field: &str| audited["entries"][n][field].as_str().unwrap().to_owned();
    assert_eq!((entry(0, "by"), entry(0, "action")), ("operator at 127.0.0.1".into(), "reload".into()));
    assert_eq!(
        (entry(1, "by"), entry(1, "detail")),
        ("SIGHUP".into(), "configuration reloaded: policy p: limits 1/1h → 2/1h".into())
    );
    fs::write(file(&tollgate), "routes: 7").unwrap();
    tollgate.signal("HUP");
    eventually("it was refused", || logged("the configuration was not reloaded"));
    let status = tollgate.admin("GET", "/v1/status").json();
    assert!(status["configuration"]["last_reload"]["error"].is_string());
}

#[test]
fn reloads_at_once_run_one_after_the_other() {
    let origin = Origin::ok();
    let yaml = |limit: u64| {
        limited(origin.address, &format!("algorithm: single_counter, key: ip, limit: {limit}/1h"), "")
    };
    let tollgate = start(&yaml(1));
    let answers = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for n in 0..8 {
            let (tollgate, answers) = (&tollgate, &answers);
            let text = yaml(10 + n % 2);
            scope.spawn(move || {
                // Written whole: a reader finds one or the other.
                let own = file(tollgate).with_extension(n.to_string());
                fs::write(&own, text).unwrap();
                fs::rename(&own, file(tollgate)).unwrap();
                answers.lock().unwrap().push(tollgate.admin("POST", "/v1/reload"));
            });
        }
    });
    let answers = answers.into_inner().unwrap();
    assert!(answers.iter().all(|reply| reply.status == 200));
    let changes = answers.iter().flat_map(|reply| words(&reply.json(), "changed"));
    // Each goes from where another has left: 1 → a, a → b, b → a …
    let mut limits: Vec<(String, String)> = changes
        .map(|line| {
            let (from, to) = line.trim_start_matches("policy p: limits ").split_once(" → ").unwrap();
            (from.to_owned(), to.to_owned())
        })
        .collect();
    let mut at = "1/1h".to_owned();
    while let Some(next) = limits.iter().position(|(from, _)| *from == at) {
        at = limits.swap_remove(next).1;
    }
    assert!(limits.is_empty(), "a change from what was never in force: {limits:?}");
}

/// Who looks later, or at something else than the log, learns of it as well.
#[test]
fn a_failed_reload_is_seen_everywhere_until_one_succeeds() {
    const SECRET: &str = "hunter2-in-the-clear";
    let origin = Origin::ok();
    let good = plain(origin.address, "");
    let tollgate = start(&good);
    let metric = |name: &str| tollgate.metric(&format!("tollgate_config_{name}"));
    let is_successful = || metric("last_reload_successful");
    let counts =
        || ["success", "failure"].map(|result| metric(&format!("reloads_total{{result=\"{result}\"}}")));
    assert_eq!((is_successful(), counts()), (1.0, [0.0, 0.0]));
    let audited = |n: usize| {
        let entry = tollgate.admin("GET", "/v1/audit").json()["entries"][n].clone();
        ["by", "action", "detail"].map(|field| entry[field].as_str().unwrap_or_default().to_owned())
    };
    let page = || tollgate.admin("GET", "/").text();
    assert!(!page().contains("The last reload failed"));

    let secret = format!("store: {{ redis: {{ url: \"redis://:{SECRET}@127.0.0.1:99999\" }} }}\n");
    let bad = format!("{good}{secret}more: 1\n");
    assert_eq!(write_and_reload(&tollgate, &bad).status, 422);
    tollgate.signal("HUP");
    eventually("both were refused", || counts() == [0.0, 2.0]);
    assert_eq!(is_successful(), 0.0);
    let error = tollgate.admin("GET", "/v1/status").json()["configuration"]["last_reload"]["error"].clone();
    let error = error.as_str().unwrap();
    assert!(error.contains("proxy.yaml:"), "{error}");
    let detail = format!("{error} (and 1 more error)");
    assert_eq!(audited(0), ["SIGHUP", "not_reloaded", detail.as_str()]);
    assert_eq!(audited(1), ["operator at 127.0.0.1", "not_reloaded", detail.as_str()]);
    let warnings = || {
        let status = tollgate.admin("GET", "/v1/status").json();
        status["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|text| text.as_str().unwrap().ends_with(error))
            .count()
    };
    assert_eq!(warnings(), 1);
    let text = page();
    assert!(text.contains("The last reload failed") && text.contains("proxy.yaml:"), "{text}");
    assert!(!text.contains("id=\"warnings\""), "it is told once: {text}");
    let status = tollgate.command(&["status"]).stdout;
    assert_eq!(status.matches(error).count(), 1, "{status}");
    let shown = [
        text,
        status,
        tollgate.admin("GET", "/v1/status").text(),
        tollgate.admin("GET", "/v1/audit").text(),
        tollgate.admin("GET", "/audit").text(),
        tollgate.admin("GET", "/metrics").text(),
        tollgate.log().join("\n"),
    ];
    assert!(!shown.concat().contains(SECRET), "{shown:#?}");

    reload(&tollgate, &good);
    assert_eq!((is_successful(), counts()), (1.0, [1.0, 2.0]));
    assert_eq!(audited(0)[..2], ["operator at 127.0.0.1", "reload"]);
    assert_eq!(warnings(), 0, "it ends at once");
    assert!(!page().contains("The last reload failed") && !page().contains("id=\"warnings\""));

    // Another error replaces it at once.
    for key in ["more", "other"] {
        assert_eq!(write_and_reload(&tollgate, &format!("{good}{key}: 1\n")).status, 422);
        let status = tollgate.admin("GET", "/v1/status").json();
        let told = status["warnings"].to_string();
        assert_eq!(told.matches("the last reload failed").count(), 1, "{told}");
        assert!(told.contains(&format!("`{key}`")), "{told}");
        assert!(!page().contains("id=\"warnings\""), "it is told once");
    }
}
