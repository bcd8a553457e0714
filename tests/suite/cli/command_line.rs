//! The command line: what it says, and how it ends.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{
    Client, Config, Ended, Origin, PATIENCE, Tollgate, command, eventually, get, tollgate, tollgate_in,
};

const VALID: &str = "upstreams: { api: { endpoints: [http://127.0.0.1:3000] } }
routes: [{ path: /*, upstream: api }]
";
/// Wrong in three places.
const WRONG: &str = "upstreams: { api: { endpoints: [http://127.0.0.1:3000] } }
worker: 2
routes:
  - { path: /*, upstream: apo }
  - { path: a, upstream: api }
";

fn directory_with(name: &str, text: &str) -> TempDir {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join(name), text).unwrap();
    directory
}

#[track_caller]
fn tells_all_errors(ended: &Ended, name: &str) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(78), ""), "{ended:?}");
    for place in ["2:1", "4:27", "5:13"] {
        assert!(ended.stderr.contains(&format!("{name}:{place}")), "no {place}: {}", ended.stderr);
    }
}

#[test]
fn check_says_that_a_valid_file_is_valid() {
    let directory = directory_with("proxy.yaml", VALID);
    for arguments in [["check"].as_slice(), &["check", "proxy.yaml"]] {
        let ended = tollgate_in(directory.path(), &[], arguments);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        assert_eq!(ended.stdout, "proxy.yaml: valid (1 route, 1 upstream, 0 policies)\n");
    }
}

#[test]
fn a_route_that_has_a_number_for_a_name_is_pointed_out_once() {
    let yaml = "
upstreams: { api: { endpoints: [http://127.0.0.1:3000] } }
routes:
  - { path: /a, methods: [GET], upstream: api }
  - { path: /a, methods: [POST], upstream: api }
  - { path: /a, upstream: api }
  - { path: /*, methods: [GET], upstream: api, name: reads }
  - { path: /*, upstream: api }
";
    let directory = directory_with("proxy.yaml", yaml);
    let ended = tollgate_in(directory.path(), &[], &["check"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        ended.stdout,
        "proxy.yaml: valid (5 routes, 1 upstream, 0 policies)
hint: metrics, logs and the page call a route /a#2 (and 1 other route), since an earlier one has the same path: give it a \
         name, such as `name: uploads`
"
    );
    let tollgate = Tollgate::start(Config::yaml(yaml));
    let page = tollgate.admin("GET", "/").text();
    assert_eq!(page.matches("<h3 title=\"An earlier route has the same path.").count(), 2, "{page}");
    assert!(tollgate.log().iter().all(|line| !line.contains("WARN")), "{:#?}", tollgate.log());
}

#[test]
fn a_route_whose_path_comes_from_the_environment_is_pointed_out_without_its_value() {
    let yaml = "
upstreams: { api: { endpoints: [http://127.0.0.1:3000] } }
routes:
  - { path: \"/h/${TOLLGATE_TEST_PATH}\", methods: [GET], upstream: api }
  - { path: \"/h/${TOLLGATE_TEST_PATH}\", upstream: api }
  - { path: /b, name: /a#2, upstream: api }
";
    let directory = directory_with("proxy.yaml", yaml);
    let ended = tollgate_in(directory.path(), &[("TOLLGATE_TEST_PATH", "secret")], &["check"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains("call a route /h/${TOLLGATE_TEST_PATH}#2, since"), "{ended:?}");
}

/// Its clients choose what they are limited by.
const DOUBTFUL: &str = "
upstreams: { api: { endpoints: [http://127.0.0.1:3000], policies: [key] } }
policies: { key: { algorithm: gcra, key: \"header:x-api-key\", limit: 10/1s } }
routes:
  - { path: /*, upstream: api }
";

#[test]
fn check_and_run_warn_of_what_is_right_and_may_not_be_meant() {
    let directory = directory_with("doubtful.yaml", DOUBTFUL);
    let ended = tollgate_in(directory.path(), &[], &["check", "doubtful.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.starts_with("doubtful.yaml:5:5: warning: every limit of route `/*`"), "{ended:?}");
    assert_eq!(ended.stdout, "doubtful.yaml: valid (1 route, 1 upstream, 1 policy)\n");

    let tollgate = Tollgate::start(Config::yaml(DOUBTFUL));
    let log = tollgate.log();
    let warnings: Vec<_> = log.iter().filter(|line| line.contains("WARN")).collect();
    assert!(warnings.iter().any(|line| line.contains("every limit of route `/*`")), "{log:#?}");
    assert!(warnings.iter().any(|line| line.contains("; add `ip`")), "{log:#?}");
    let status = tollgate.admin("GET", "/v1/status").json();
    let told = status["warnings"][0].as_str().unwrap_or_default();
    assert!(told.contains("every limit of route `/*`"), "{status}");
}

#[test]
fn check_and_run_tell_all_errors_with_their_places_and_end_with_78() {
    let directory = directory_with("bad.yaml", WRONG);
    for arguments in
        [["check", "bad.yaml"].as_slice(), &["run", "--config", "bad.yaml"], &["--config", "bad.yaml"]]
    {
        tells_all_errors(&tollgate_in(directory.path(), &[], arguments), "bad.yaml");
    }
}

#[test]
fn a_file_that_is_not_there_ends_with_78() {
    let directory = TempDir::new().unwrap();
    for arguments in
        [["check", "none.yaml"].as_slice(), &["run", "--config", "none.yaml"], &["--config", "none.yaml"]]
    {
        let ended = tollgate_in(directory.path(), &[], arguments);
        assert_eq!(ended.code, Some(78));
        assert!(ended.stderr.contains("none.yaml"), "{}", ended.stderr);
    }
    assert!(tollgate_in(directory.path(), &[], &["run"]).stderr.contains("proxy.yaml"));
}

#[test]
fn closing_the_output_early_crashes_nothing() {
    let directory = directory_with("bad.yaml", WRONG);
    for arguments in [["check", "bad.yaml"].as_slice(), &["--config", "bad.yaml"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = command(directory.path()).args(arguments).stderr(writer).status().unwrap();
        assert_eq!(status.code(), Some(78), "{arguments:?}");
    }
}

#[test]
fn a_closed_stderr_ends_nothing() {
    let text = format!(
        "listeners: [{{ address: \"127.0.0.1:0\" }}]\nadmin: {{ address: \"127.0.0.1:0\" }}
access_log: off\nlog: {{ level: debug }}\n{}",
        // Nobody listens there: every request is worth a warning.
        VALID.replace("3000", "9")
    );
    let directory = directory_with("proxy.yaml", &text);
    let mut run = command(directory.path());
    let mut child = run.arg("run").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let serving = lines.find(|line| line.contains("serving clients")).unwrap();
    let address = serving.split("address=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(lines.any(|line| line.contains("admin port")));
    drop(lines);
    let answers = [(); 3].map(|()| Client::try_get(address).map(|reply| reply.status));
    terminate(&child);
    assert_eq!(ended(&mut child).code(), Some(0));
    assert_eq!(answers.map(Result::ok), [Some(502); 3]);
}

fn terminate(child: &Child) {
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
}

fn ended(child: &mut Child) -> ExitStatus {
    let end = Instant::now() + PATIENCE;
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return status,
            None if Instant::now() > end => drop(child.kill()),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

#[test]
fn it_runs_the_file_that_it_is_given_or_that_of_its_directory() {
    let origin = Origin::ok();
    for arguments in [["run"].as_slice(), &["run", "proxy.yaml"], &["--config", "proxy.yaml"]] {
        let tollgate = Tollgate::start_as(arguments, Config::new(&[origin.address], ""));
        assert_eq!(get(tollgate.address, "/", &[]).status, 200, "{arguments:?}");
    }
}

#[test]
fn without_arguments_it_shows_its_help_and_serves_nobody() {
    let directory = directory_with("proxy.yaml", VALID);
    let ended = tollgate_in(directory.path(), &[], &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    for word in ["Usage:", "run", "check", "--config"] {
        assert!(ended.stderr.contains(word), "no {word} in {}", ended.stderr);
    }
}

#[test]
fn the_shipped_file_is_valid_as_it_stands() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let ended = tollgate_in(root, &[], &["check"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
}

#[test]
fn version_and_help_say_what_there_is() {
    let version = tollgate(&["--version"]);
    assert_eq!(
        (version.code, version.stdout),
        (Some(0), format!("tollgate {}\n", env!("CARGO_PKG_VERSION")))
    );
    let help = tollgate(&["--help"]);
    assert_eq!(help.code, Some(0));
    for word in ["run", "check", "demo", "blocked", "policies", "limits", "audit", "events", "--config"] {
        assert!(help.stdout.contains(word), "no {word} in {}", help.stdout);
    }
    let unknown = tollgate(&["frobnicate"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(2), ""));
}

#[test]
fn a_port_that_is_taken_is_named_and_nothing_runs() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let text =
        format!("listeners: [{{ address: \"{address}\" }}]\nadmin: {{ address: \"127.0.0.1:0\" }}\n{VALID}");
    let directory = directory_with("proxy.yaml", &text);
    let ended = tollgate_in(directory.path(), &[], &["run"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains(&address), "{}", ended.stderr);
}

#[test]
fn a_second_instance_does_not_share_the_port_by_accident() {
    let origin = Origin::ok();
    let first = Tollgate::start(Config::new(&[origin.address], ""));
    let address = first.address.to_string();
    let text =
        format!("listeners: [{{ address: \"{address}\" }}]\nadmin: {{ address: \"127.0.0.1:0\" }}\n{VALID}");
    let directory = directory_with("proxy.yaml", &text);
    let ended = tollgate_in(directory.path(), &[], &["run"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains(&address), "{}", ended.stderr);
}

#[test]
fn an_access_log_that_cannot_be_opened_is_named() {
    let text = format!(
        "listeners: [{{ address: \"127.0.0.1:0\" }}]\nadmin: {{ address: \"127.0.0.1:0\" }}
access_log: {{ to: none/access.log }}\n{VALID}"
    );
    let ended = tollgate_in(directory_with("proxy.yaml", &text).path(), &[], &["run"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("none/access.log"), "{}", ended.stderr);
}

#[test]
fn an_access_log_in_the_place_of_a_directory_is_found_by_the_check() {
    let directory = directory_with("proxy.yaml", &format!("access_log: {{ to: ./logs }}\n{VALID}"));
    assert_eq!(tollgate_in(directory.path(), &[], &["check"]).code, Some(0));
    std::fs::create_dir(directory.path().join("logs")).unwrap();
    let ended = tollgate_in(directory.path(), &[], &["check"]);
    assert_eq!(ended.code, Some(78));
    assert!(ended.stderr.starts_with("proxy.yaml:1:19: `./logs` is a directory"), "{}", ended.stderr);
}

#[test]
fn messages_in_json_are_json_and_say_who_did_what() {
    let origin = Origin::ok();
    let mut tollgate =
        Tollgate::start(Config::new(&[origin.address], "log: { level: debug, format: json }\n"));
    // A client's mistake is told of, too.
    Client::connect(tollgate.address).send("not HTTP\r\n\r\n").closed();
    tollgate.signal("TERM");
    assert_eq!(tollgate.wait().code(), Some(0));
    eventually("the end is told", || tollgate.has_logged(&["\"Tollgate has ended\""]));
    for line in tollgate.log() {
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in ["timestamp", "level", "message"] {
            assert!(message[field].is_string(), "no {field}: {line}");
        }
    }
}

#[test]
fn levels_hold_messages_back() {
    let origin = Origin::ok();
    let mut tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    tollgate.signal("TERM");
    tollgate.wait();
    eventually("it is logged", || tollgate.has_logged(&["INFO"]));
    let directory = directory_with(
        "proxy.yaml",
        &format!(
            "log: {{ level: error }}\naccess_log: off\nlisteners: [{{ address: \"127.0.0.1:0\" }}]
admin: {{ address: \"127.0.0.1:0\" }}\n{VALID}"
        ),
    );
    let mut run = command(directory.path());
    let mut child = run.arg("run").stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // It says nothing, so what tells that it runs is that it catches the signal.
    let caught = format!("/proc/{}/status", child.id());
    eventually("it catches SIGTERM", || {
        let status = fs::read_to_string(&caught).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        u64::from_str_radix(mask, 16).unwrap() & (1 << 14) != 0
    });
    terminate(&child);
    assert_eq!(ended(&mut child).code(), Some(0));
    let output = child.wait_with_output().unwrap();
    assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), output.stdout.len()), ("", 0));
}

#[test]
fn completions_include_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = tollgate(&["completions", shell]);
        assert_eq!(script.code, Some(0), "{script:?}");
        for command in ["check", "blocked", "unblock", "explain", "completions", "man"] {
            assert!(script.stdout.contains(command), "{shell} does not know {command}");
        }
    }
    assert_eq!(tollgate(&["completions", "none"]).code, Some(2));
}

#[test]
fn each_command_has_a_page_of_the_manual() {
    let page = tollgate(&["man"]);
    assert_eq!(page.code, Some(0), "{page:?}");
    assert!(page.stdout.contains(".TH tollgate 1"), "{}", page.stdout);
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("man1");
    assert_eq!(tollgate(&["man", target.to_str().unwrap()]).code, Some(0));
    for name in ["tollgate.1", "tollgate-run.1", "tollgate-explain.1", "tollgate-events.1"] {
        let text =
            std::fs::read_to_string(target.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(text.contains(".SH SYNOPSIS"), "{name}");
        assert!(text.contains(".SH \"EXIT STATUS\"\n0 "), "{name}: {text}");
    }
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = tollgate(&["man", file.to_str().unwrap()]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.starts_with("tollgate: can't write the man pages: "), "{}", refused.stderr);
}
