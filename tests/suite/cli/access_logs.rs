//! The access logs that `tollgate replay` reads: those that real servers write, in their own formats.

use std::{fs, io::Write, net::UdpSocket, path::Path, process::Stdio, time::Duration};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Origin, Terminal, command, eventually, haproxy, nginx, nobody, request, tollgate_in};

/// A policy for each thing that a log may tell, each of which denies the second request.
const POLICIES: &str = "user: [{ header: x-api-key, from: anyone }]
policies:
  by-ip: { algorithm: fixed_window, key: ip, limit: 1/1h }
  by-user: { algorithm: fixed_window, key: user, limit: 1/1h }
  by-host: { algorithm: fixed_window, key: host, limit: 1/1h }
  failed: { algorithm: fixed_window, key: ip, limit: 1/1h, count: { statuses: [404] } }
  parallel: { algorithm: concurrency, key: ip, limit: 1 }
upstreams: { api: { endpoints: [\"http://127.0.0.1:1\"] } }
routes:
";

/// A path for each policy.
fn configure(directory: &Path) {
    let names = ["by-ip", "by-user", "by-host", "failed", "parallel"];
    let route = |name: &str| format!("  - {{ path: /{name}/*, upstream: api, policies: [{name}] }}\n");
    fs::write(directory.join("proxy.yaml"), POLICIES.to_owned() + &names.map(route).concat()).unwrap();
}

fn replay(directory: &Path, arguments: &[&str]) -> Value {
    let ended = tollgate_in(directory, &[], &[&["replay", "--json"], arguments].concat());
    // Of keys that clients choose, the configuration is warned.
    assert!(ended.code == Some(0) && !ended.stderr.contains("tollgate:"), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

/// What a policy has checked, denied and not found in the log.
fn of_policy(report: &Value, name: &str) -> [u64; 3] {
    let policy = report["policies"].as_array().unwrap().iter().find(|policy| policy["policy"] == name);
    ["checked", "denied", "not_in_log"].map(|field| policy.unwrap()[field].as_u64().unwrap())
}

fn keys(report: &Value) -> Vec<&str> {
    report["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap()).collect()
}

/// Sends two requests for each of the policies.
fn send(to: std::net::SocketAddr) {
    for name in ["by-ip", "by-user", "by-host", "failed", "parallel"] {
        for nth in 0..2 {
            let path = format!("/{name}/{nth}?a=%22b%20c\"");
            let headers = [("x-api-key", "k\"1"), ("host", "api.example.com")];
            request(to, "GET", &path, &headers, b"");
        }
    }
}

#[test]
fn a_log_format_of_nginx_is_taken_from_its_configuration() {
    let directory = TempDir::new().unwrap();
    fs::write(
        directory.path().join("formats.conf"),
        r#"log_format odd escape=json '{"at":"$msec","who":"$remote_addr",'
                                      '"what":"$request","code":$status,"took":$request_time,'
                                      '"host":"$http_host","key":"$http_x_api_key"}';
           log_format text '$msec|$remote_addr|$request_method|$request_uri|$status|$request_time|$http_host|$http_x_api_key';"#,
    )
    .unwrap();
    let http = "include formats.conf;";
    let server = "access_log odd.log odd; access_log text.log text; access_log combined.log;
                  location / { return 200; } location /failed { return 404; }";
    let (_nginx, address) = nginx(directory.path(), http, server);
    send(address);
    let lines = |name| fs::read_to_string(directory.path().join(name)).unwrap_or_default().lines().count();
    eventually("all is logged", || ["odd.log", "text.log", "combined.log"].map(lines) == [10; 3]);
    configure(directory.path());
    let text =
        "$msec|$remote_addr|$request_method|$request_uri|$status|$request_time|$http_host|$http_x_api_key";
    for arguments in [
        &["--nginx-conf", "nginx.conf", "odd.log"][..],
        &["--nginx-conf", "nginx.conf", "text.log"],
        &["--format", text, "text.log"],
    ] {
        let report = replay(directory.path(), arguments);
        for name in ["by-ip", "by-user", "by-host", "failed"] {
            assert_eq!(of_policy(&report, name), [2, 1, 0], "{name}: {report}");
        }
        assert_eq!(of_policy(&report, "parallel"), [2, 0, 0], "the log has durations");
        let found = keys(&report);
        assert!(found.contains(&"user:k\"1") && found.contains(&"host:api.example.com"), "{found:?}");
        assert_eq!(report["unreadable"]["count"], 0);
    }
    let report = replay(directory.path(), &["--nginx-conf", "nginx.conf", "combined.log"]);
    assert_eq!(
        ["by-ip", "by-user", "parallel"].map(|name| of_policy(&report, name)),
        [[2, 1, 0], [0, 0, 2], [0, 0, 2]]
    );
}

#[test]
fn the_log_of_haproxy_is_recognized_as_syslog_has_it() {
    let directory = TempDir::new().unwrap();
    let (origin, address) = (Origin::ok(), nobody());
    let syslog = UdpSocket::bind("127.0.0.1:0").unwrap();
    syslog.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let configuration = format!(
        "global\n log {} format rfc3164 local0\n\
         defaults\n mode http\n log global\n option httplog\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n\
         frontend in\n bind {address}\n capture request header Host len 40\n\
         http-request deny deny_status 404 if {{ path_beg /failed }}\n default_backend out\n\
         backend out\n server one {}\n",
        syslog.local_addr().unwrap(),
        origin.address
    );
    let _haproxy = haproxy(directory.path(), &configuration, address);
    send(address);
    let mut log = fs::File::create(directory.path().join("haproxy.log")).unwrap();
    let mut requests = 0;
    while requests < 10 {
        let mut line = [0; 4096];
        let length = syslog.recv(&mut line).expect("HAProxy logs each request");
        // Those that the harness has opened to see whether it listens have sent nothing.
        requests += usize::from(line[..length].windows(4).any(|window| window == b"GET "));
        log.write_all(&line[..length]).unwrap();
        log.write_all(b"\n").unwrap();
    }
    configure(directory.path());
    let report = replay(directory.path(), &["haproxy.log"]);
    assert_eq!(of_policy(&report, "by-ip"), [2, 1, 0]);
    // HAProxy has denied these by itself, so the service has not failed.
    assert_eq!(of_policy(&report, "failed"), [2, 0, 0]);
    let [checked, _, not_in_log] = of_policy(&report, "parallel");
    assert_eq!([checked, not_in_log], [2, 0], "the log has durations");
    assert_eq!(of_policy(&report, "by-user"), [0, 0, 2]);
}

#[test]
fn a_format_that_does_not_fit_is_an_error_that_tells_where() {
    let directory = TempDir::new().unwrap();
    configure(directory.path());
    let line = "203.0.113.7 - - [03/Jul/2026:12:00:01 +0000] \"GET / HTTP/1.1\" 200 1 0.25\n";
    fs::write(directory.path().join("access.log"), line).unwrap();
    let run = |arguments: &[&str]| tollgate_in(directory.path(), &[], &[&["replay"], arguments].concat());
    let format = "$remote_addr - $remote_user [$time_local] \"$request\" $status \"$http_referer\"";
    let ended = run(&["--format", format, "access.log"]);
    let expected = "tollgate: access.log is not an access log that Tollgate can read: line 1: it differs from --format at \
                    column 63: expected ` \"` after $status, found `200 1 0.25`.";
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    for (arguments, words) in [
        (&["--format", "combinde", "access.log"][..], "no format is named `combinde`: choose alb, caddy, "),
        (
            &["--format", "$msec $request", "access.log"],
            "the format does not tell the client: it needs $remote_addr",
        ),
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    let ended = run(&["--nginx-conf", "missing.conf", "access.log"]);
    assert_eq!(ended.code, Some(1));
    let words = "tollgate: missing.conf: No such file or directory (os error 2)\n";
    assert!(ended.stderr.ends_with(words), "{}", ended.stderr);
}

#[test]
fn compressed_logs_and_standard_input_are_read() {
    let directory = TempDir::new().unwrap();
    configure(directory.path());
    let line = |nth: usize| {
        format!(
            "203.0.113.7 - - [03/Jul/2026:12:{:02}:{:02} +0000] \"GET /by-ip/{nth} HTTP/1.1\" 200 1\n",
            nth / 60,
            nth % 60
        )
    };
    let text: String = (0..3_000).map(line).collect();
    let zipped =
        ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
    let path = directory.path().join("access.log.zst");
    fs::write(&path, &zipped).unwrap();
    assert_eq!(of_policy(&replay(directory.path(), &["access.log.zst"]), "by-ip"), [3_000, 2_999, 0]);
    let mut command = command(directory.path());
    let command =
        command.args(["replay", "--json", "-"]).stdin(fs::File::open(&path).unwrap()).stdout(Stdio::piped());
    let report: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    assert_eq!(of_policy(&report, "by-ip"), [3_000, 2_999, 0]);
    // What is decompressed is at hand once the window of zstd has passed.
    let long = text.repeat(20);
    let zipped =
        ruzstd::encoding::compress_to_vec(long.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
    fs::write(&path, &zipped[..zipped.len() - 40]).unwrap();
    let ended = tollgate_in(directory.path(), &[], &["replay", "access.log.zst"]);
    assert_eq!(ended.code, Some(0));
    let words = "Not read to the end, since the compressed data is damaged: access.log.zst: ";
    assert!(ended.stdout.contains(words), "{}", ended.stdout);
}

#[test]
fn a_terminal_shows_a_bar_that_is_cleared_at_the_end() {
    let directory = TempDir::new().unwrap();
    configure(directory.path());
    let line = |nth: usize| {
        format!(
            "203.0.{}.{} - - [03/Jul/2026:{:02}:{:02}:{:02} +0000] \"GET /by-ip/{nth} HTTP/1.1\" 200 1\n",
            nth / 256 % 256,
            nth % 256,
            nth / 3_600 % 24,
            nth / 60 % 60,
            nth % 60
        )
    };
    fs::write(directory.path().join("access.log"), (0..80_000).map(line).collect::<String>()).unwrap();
    let terminal = Terminal::open(24, 80);
    let mut command = command(directory.path());
    command
        .args(["replay", "--config"])
        .arg(directory.path().join("proxy.yaml"))
        .arg(directory.path().join("access.log"));
    let mut running = terminal.run(&command);
    eventually("a bar is shown", || {
        let text = terminal.text();
        text.contains("replay ")
            && text.contains(" % ▕")
            && text.contains(" lines/s")
            && text.contains(" left")
    });
    eventually("it ends", || running.0.try_wait().unwrap().is_some());
    eventually("the report replaces it", || {
        let text = terminal.text();
        text.contains("requests from 2026-07-03 00:00:00") && !text.contains('▕')
    });
}
