//! The access log: one line a request, exact, whole, and not to be broken by what clients send.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::harness::{Client, Config, Origin, Tollgate, eventually, get, request};

/// Logs in this format to `access.log` in its directory.
fn start(origin: &Origin, access_log: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "
access_log: {{ {access_log} }}
user: [{{ header: x-user-id, from: anyone }}]
upstreams: {{ api: {{ endpoints: [\"http://{}\"] }} }}
policies: {{ once: {{ algorithm: single_counter, key: ip, limit: 1/1h }} }}
routes:
  - {{ name: limited, path: /limited, upstream: api, policies: [once] }}
  - {{ name: all, path: /*, upstream: api }}
",
        origin.address
    )))
}

const TO_FILE: &str = "format: json, to: access.log";

fn log_file(tollgate: &Tollgate) -> PathBuf {
    tollgate.directory().join("access.log")
}

fn lines(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// The lines once there are so many, each read as JSON, in the order of their paths: workers hand theirs
/// over one after the other.
#[track_caller]
fn logged(file: &Path, count: usize) -> Vec<Value> {
    eventually("all lines are written", || lines(file).len() >= count);
    let lines = lines(file);
    assert_eq!(lines.len(), count, "{lines:#?}");
    let read = |line: &String| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let mut lines: Vec<Value> = lines.iter().map(read).collect();
    lines.sort_by_key(|line| line["path"].to_string());
    lines
}

/// Ends it, so that what is in the file is all there will be.
fn end(mut tollgate: Tollgate) -> (Tollgate, PathBuf) {
    tollgate.signal("TERM");
    assert_eq!(tollgate.wait().code(), Some(0));
    let file = log_file(&tollgate);
    (tollgate, file)
}

#[test]
fn a_line_tells_exactly_what_happened() {
    let origin = Origin::ok();
    let tollgate = start(&origin, TO_FILE);
    let headers =
        [("host", "api.example"), ("x-user-id", "acme"), ("user-agent", "test/1"), ("referer", "http://r/")];
    let reply = get(tollgate.address, "/a/../b?c=%20d", &headers);
    let mut line = logged(&log_file(&tollgate), 1).remove(0);
    let line = line.as_object_mut().unwrap();
    let time = line.remove("time").unwrap();
    let time: jiff::Timestamp = time.as_str().unwrap().parse().unwrap();
    assert!((jiff::Timestamp::now().as_second() - time.as_second()).abs() < 60);
    let duration = line.remove("duration_ms").unwrap().as_f64().unwrap();
    assert!(duration > 0.0 && duration < 20_000.0, "{duration}");
    assert_eq!(
        Value::Object(line.clone()),
        json!({
            "client": "127.0.0.1", "method": "GET", "path": "/a/../b?c=%20d", "protocol": "HTTP/1.1",
            "status": 200, "bytes": 2, "route": "all", "upstream": origin.address.to_string(),
            "request_id": reply.header("x-request-id").unwrap(), "user": "acme", "host": "api.example",
            "referer": "http://r/", "user_agent": "test/1", "verdict": null, "policy": null,
            "shadow_policy": null, "source": null,
        })
    );
}

#[test]
fn nothing_that_clients_choose_breaks_a_line() {
    let origin = Origin::ok();
    let tollgate = start(&origin, TO_FILE);
    let mut client = Client::connect(tollgate.address);
    let hostile: [&[u8]; 6] = [
        b"\"}\\",
        b"a\tb",
        b"\xff\xfe\x80",
        b"\\u0000\\n",
        "\u{2028}\u{9b}".as_bytes(),
        b"\", \"status\": 1",
    ];
    for value in hostile {
        client.send("GET /%22\"é{}?{}\\ HTTP/1.1\r\nhost: a\r\n");
        for name in ["user-agent", "referer", "x-user-id"] {
            client.send(name).send(b": ").send(value).send(b"\r\n");
        }
        client.send(b"\r\n");
        assert_eq!(client.reply().status, 200);
    }
    // One connection, so one worker: in order.
    for (line, value) in logged(&log_file(&tollgate), hostile.len()).iter().zip(hostile) {
        assert_eq!(line["user_agent"], String::from_utf8_lossy(value).as_ref());
        assert_eq!((&line["path"], &line["status"]), (&"/%22\"é{}?{}\\".into(), &200.into()));
    }
}

#[test]
fn combined_lines_have_apache_s_form_whatever_clients_send() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "format: combined, to: access.log");
    let mut client = Client::connect(tollgate.address);
    let hostile = [("x-user-id", "a [b] \"c"), ("user-agent", "x\" 200 1 \"\t\\.")];
    client.request("GET", "/a?b", &hostile, b"");
    client.request("GET", "/", &[], b"");
    eventually("both are written", || lines(&log_file(&tollgate)).len() == 2);
    let lines = lines(&log_file(&tollgate));
    let (client, rest) = lines[0].split_once(" [").unwrap();
    assert_eq!(client, r"127.0.0.1 - a\x20\x5bb\x5d\x20\x22c");
    let (time, rest) = rest.split_once("] ").unwrap();
    assert!(time.ends_with(" +0000") && time.len() == "03/Jul/2026:12:00:01 +0000".len(), "{time}");
    assert_eq!(rest, r#""GET /a?b HTTP/1.1" 200 2 "-" "x\x22 200 1 \x22\x09\x5c." - - -"#);
    assert!(
        lines[1].starts_with("127.0.0.1 - - [") && lines[1].ends_with(r#" 200 2 "-" "-" - - -"#),
        "{lines:?}"
    );
}

/// Marks that turn the writing direction around, and those that are not seen.
#[test]
fn format_characters_of_clients_are_escaped() {
    let origin = Origin::ok();
    let hostile = "ad\u{202e}nim\u{feff}\u{200b}\u{2066}\u{ad}\u{e0041}é";
    for (format, escaped) in [
        ("json", r"ad\u202enim\ufeff\u200b\u2066\u00ad\udb40\udc41é"),
        (
            "combined",
            r"ad\xe2\x80\xaenim\xef\xbb\xbf\xe2\x80\x8b\xe2\x81\xa6\xc2\xad\xf3\xa0\x81\x81\xc3\xa9",
        ),
    ] {
        let tollgate = start(&origin, &format!("format: {format}, to: access.log"));
        let mut client = Client::connect(tollgate.address);
        client.send(format!("GET /{hostile} HTTP/1.1\r\nhost: a\r\nx-user-id: {hostile}\r\n"));
        client.send(format!("user-agent: {hostile}\r\n\r\n"));
        assert_eq!(client.reply().status, 200);
        eventually("it is written", || lines(&log_file(&tollgate)).len() == 1);
        let line = lines(&log_file(&tollgate)).remove(0);
        assert_eq!(line.matches(escaped).count(), 3, "{line}");
        assert!(!line.contains(['\u{202e}', '\u{feff}', '\u{200b}', '\u{2066}', '\u{ad}', '\u{e0041}']));
    }
}

/// The process' own messages, in both formats, and what the commands print.
#[test]
fn format_characters_reach_no_terminal() {
    for format in ["text", "json"] {
        let origin = Origin::ok();
        let yaml = format!(
            "log: {{ level: info, format: {format} }}\nupstreams: {{ api: {{ endpoints: [\"http://{}\"] }} }}\n\
             routes: [{{ path: /*, upstream: api }}]\n",
            origin.address
        );
        let tollgate = Tollgate::start(Config::yaml(yaml));
        let reason = "ad\u{202e}nim\u{feff}\u{e0041}";
        let banned = tollgate.command(&["ban", "203.0.113.7", "--for", "1h", "--reason", reason]);
        assert_eq!(banned.code, Some(0), "{}", banned.stderr);
        let escaped = match format {
            "text" => r"ad\u{202e}nim\u{feff}\u{e0041}",
            _ => r"ad\u202enim\ufeff\udb40\udc41",
        };
        eventually("the ban is logged", || tollgate.has_logged(&[escaped]));
        let listed = tollgate.command(&["bans"]).stdout;
        assert!(listed.contains(r"ad\u{202e}nim\u{feff}\u{e0041}"), "{listed}");
        let json = tollgate.command(&["bans", "--json"]).stdout;
        assert!(json.contains(r"ad\u202enim\ufeff\udb40\udc41"), "{json}");
        let seen = format!("{} {listed} {json} {}", tollgate.log().join(" "), banned.stdout);
        assert!(!seen.contains(['\u{202e}', '\u{feff}', '\u{e0041}']), "{seen}");
    }
}

#[test]
fn denied_unmatched_and_refused_requests_have_their_lines() {
    let origin = Origin::ok();
    let tollgate = start(&origin, TO_FILE);
    get(tollgate.address, "/limited?1", &[]);
    let denied = get(tollgate.address, "/limited?2", &[("x-user-id", "eve")]);
    request(tollgate.address, "GET", "/refused", &[("host", "a b")], b"");
    let lines = logged(&log_file(&tollgate), 3);
    let line = &lines[1];
    assert_eq!((&line["status"], &line["user"]), (&429.into(), &"eve".into()));
    assert_eq!(
        (&line["verdict"], &line["policy"], &line["source"]),
        (&"denied".into(), &"once".into(), &"store".into())
    );
    assert_eq!((&lines[0]["verdict"], &lines[0]["policy"]), (&"allowed".into(), &Value::Null));
    assert_eq!((&lines[2]["verdict"], &lines[2]["source"]), (&Value::Null, &Value::Null));
    assert_eq!((&line["route"], &line["upstream"]), (&"limited".into(), &Value::Null));
    assert_eq!(line["bytes"], denied.body.len());
    assert_eq!((&lines[2]["status"], &lines[2]["route"]), (&400.into(), &Value::Null));
}

#[test]
fn an_upstream_that_fails_and_a_client_that_leaves_have_their_lines() {
    let origin = Origin::start(|conn| {
        let head = conn.head()?.unwrap_or_default();
        if head.starts_with("GET /wait") {
            conn.closed();
        }
        Ok(())
    });
    let tollgate = start(&origin, TO_FILE);
    assert_eq!(get(tollgate.address, "/break", &[]).status, 502);
    let client = Client::sending(tollgate.address, "GET /wait HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("it is under way", || origin.heads().iter().any(|head| head.starts_with("GET /wait")));
    drop(client);
    let lines = logged(&log_file(&tollgate), 2);
    assert_eq!((&lines[0]["status"], &lines[0]["path"]), (&502.into(), &"/break".into()));
    assert_eq!((&lines[1]["status"], &lines[1]["path"]), (&499.into(), &"/wait".into()));
}

#[test]
fn no_line_is_lost_at_the_end() {
    const CLIENTS: usize = 8;
    const EACH: usize = 150;
    let origin = Origin::ok();
    let tollgate = start(&origin, TO_FILE);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let address = tollgate.address;
            scope.spawn(move || {
                let mut connection = Client::connect(address);
                for n in 0..EACH {
                    let path = format!("/{client}/{n}");
                    assert_eq!(connection.request("GET", &path, &[], b"").status, 200);
                }
            });
        }
    });
    let (_tollgate, file) = end(tollgate);
    let paths: std::collections::BTreeSet<_> =
        logged(&file, CLIENTS * EACH).iter().map(|line| line["path"].to_string()).collect();
    assert_eq!(paths.len(), CLIENTS * EACH, "each its own");
}

#[test]
fn a_file_moved_away_is_opened_anew_on_sigusr1() {
    let origin = Origin::ok();
    let tollgate = start(&origin, TO_FILE);
    let (file, moved) = (log_file(&tollgate), tollgate.directory().join("access.log.1"));
    get(tollgate.address, "/before", &[]);
    logged(&file, 1);
    fs::rename(&file, &moved).unwrap();
    tollgate.signal("USR1");
    eventually("the file is there again", || file.exists());
    get(tollgate.address, "/after", &[]);
    assert_eq!(logged(&file, 1)[0]["path"], "/after");
    assert_eq!(logged(&moved, 1)[0]["path"], "/before");
}

#[test]
fn a_file_is_appended_to() {
    let origin = Origin::ok();
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("kept.log");
    fs::write(&file, "{\"path\":\"/earlier\"}\n").unwrap();
    let tollgate = start(&origin, &format!("format: json, to: {}", file.display()));
    get(tollgate.address, "/now", &[]);
    assert_eq!(logged(&file, 2)[0]["path"], "/earlier");
}

#[test]
fn stdout_has_the_lines_and_nothing_else() {
    let origin = Origin::ok();
    let mut tollgate = start(&origin, "format: json, to: stdout");
    for _ in 0..10 {
        get(tollgate.address, "/", &[]);
    }
    tollgate.signal("TERM");
    assert_eq!(tollgate.wait().code(), Some(0));
    eventually("all lines are read", || tollgate.stdout().len() >= 10);
    let lines = tollgate.stdout();
    assert_eq!(lines.len(), 10, "{lines:#?}");
    assert!(lines.iter().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{lines:#?}");
}

#[test]
fn off_and_a_share_of_nothing_write_nothing() {
    let origin = Origin::ok();
    for access_log in ["format: off", "format: json, to: access.log, sample: 0%"] {
        let tollgate = start(&origin, access_log);
        for _ in 0..20 {
            get(tollgate.address, "/", &[]);
        }
        let (tollgate, file) = end(tollgate);
        assert_eq!((lines(&file), tollgate.stdout()), (vec![], vec![]), "{access_log}");
    }
}

#[test]
fn a_banned_request_has_a_line_that_says_so() {
    let origin = Origin::ok();
    let tollgate = start(&origin, TO_FILE);
    let banned = tollgate.command(&["ban", "127.0.0.1", "--for", "5m", "--force"]);
    assert_eq!(banned.code, Some(0), "{banned:?}");
    eventually("it holds", || get(tollgate.address, "/", &[]).status == 403);
    let file = log_file(&tollgate);
    let is_told = |line: &String| {
        let line: Value = serde_json::from_str(line).unwrap();
        (&line["verdict"], &line["policy"]) == (&"banned".into(), &"ban".into())
    };
    eventually("it is told", || lines(&file).iter().any(is_told));
}
