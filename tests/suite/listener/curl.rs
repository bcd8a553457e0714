//! curl over https.

use std::{fs, process::Command};

use tempfile::TempDir;

use super::{Https, pair};
use crate::harness::{Authority, Config, Origin, Tollgate, file_name, get, printed, program};

/// curl, which trusts this authority.
fn curl(authority: &Authority, arguments: &[&str]) -> Command {
    let mut curl = program("curl", "curl");
    curl.args(["-sS", "--max-time", "20", "--noproxy", "*", "--cacert", file_name(&authority.file())]);
    curl.args(arguments);
    curl
}

#[test]
fn curl_gets_and_posts_over_one_connection() {
    let origin = Origin::echo();
    let https = Https::before(&origin);
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("upload");
    fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
    let upload = format!("@{}", file_name(&file));
    let url = https.url("/a?b=c");
    for version in ["--http1.1", "--http2"] {
        let arguments = [version, "-w", "\n%{num_connects}\n", "--data-binary", &upload, &url, &url];
        let said = printed(&mut curl(&https.authority, &arguments));
        assert_eq!(said.matches("\"body_bytes\":1048576").count(), 2, "{said}");
        let connects: Vec<_> = said.lines().filter(|line| line.len() == 1).collect();
        assert_eq!(connects, ["1", "0"]);
    }
    let said = printed(&mut curl(&https.authority, &[&url]));
    assert!(said.contains("\"target\":\"/a?b=c\""), "{said}");
    assert!(said.contains("[\"x-forwarded-proto\",\"https\"]"), "{said}");
    assert!(printed(&mut curl(&https.authority, &["--http1.0", &url])).contains("\"GET\""));
    assert!(printed(&mut curl(&https.authority, &["-I", &url])).starts_with("HTTP/2 200"));
    assert!(printed(&mut curl(&https.authority, &["-I", "--http1.1", &url])).starts_with("HTTP/1.1 200"));
}

#[test]
fn curl_speaks_either_version() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    for (option, version) in [("--tls-max=1.2", "1.2"), ("--tlsv1.3", "1.3")] {
        let options: Vec<_> = option.split('=').collect();
        let url = https.url("/");
        assert_eq!(printed(&mut curl(&https.authority, &[&options[..], &[&url]].concat())), "ok");
        assert_eq!(https.handshakes(version, false), 1.0);
    }
}

#[test]
fn the_name_chooses_the_certificate() {
    let origin = Origin::ok();
    let authority = Authority::new("Authority of the tests");
    let certificates = [
        authority.issue("first", &["first.example.com"]),
        authority.issue("wildcard", &["*.example.org", "example.org"]),
        authority.issue("exact", &["exact.example.org"]),
    ];
    let pairs = certificates.each_ref().map(pair).join(", ");
    let listeners =
        format!("listeners: [{{ address: \"127.0.0.1:0\", tls: {{ certificates: [{pairs}] }} }}]\n");
    let tollgate = Tollgate::start(Config::new(&[origin.address], &listeners));
    let port = tollgate.address.port();
    let ask = |name: &str| {
        let (resolve, url) = (format!("{name}:{port}:127.0.0.1"), format!("https://{name}:{port}/"));
        let output = curl(&authority, &["-v", "--resolve", &resolve, &url]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let subject = said.lines().find_map(|line| line.split_once("subject: CN=")).map(|(_, name)| name);
        (output.status.code(), subject.unwrap_or_default().to_owned())
    };
    for (name, certificate) in [
        ("first.example.com", "first"),
        ("api.example.org", "wildcard"),
        ("API.Example.ORG", "wildcard"),
        ("example.org", "wildcard"),
        // The wildcard stands before it in the configuration, but the exact name has precedence.
        ("exact.example.org", "exact"),
    ] {
        assert_eq!(ask(name), (Some(0), certificate.to_owned()), "{name}");
    }
    // A wildcard stands for one label. curl shows what it was given, and refuses it.
    const PEER_FAILED_VERIFICATION: i32 = 60;
    for name in ["a.b.example.org", "unknown.example.net"] {
        assert_eq!(ask(name).0, Some(PEER_FAILED_VERIFICATION), "{name}");
    }
}

#[test]
fn curl_comes_by_ipv6() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("left out: this machine has no IPv6");
        return;
    }
    let origin = Origin::echo();
    let https = Https::on("[::1]:0", &origin, "", "");
    let said = printed(&mut curl(&https.authority, &[&format!("https://{}/", https.address())]));
    assert!(said.contains("[\"x-forwarded-for\",\"::1\"]"), "{said}");
}

#[test]
fn plain_http_is_told_to_use_https() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    let url = format!("http://localhost:{}/", https.address().port());
    let said = printed(&mut curl(&https.authority, &["-i", "-d", "a=b", &url]));
    assert!(said.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{said}");
    assert!(said.contains("https:// instead of http://"), "{said}");
    assert_eq!(get(https.address(), "/", &[]).json()["status"], 400);
    https.has_failed("plain_http", 2.0);
    assert_eq!(origin.connections(), 0);
}

#[test]
fn curl_shows_early_hints() {
    let answers = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let origin = Origin::saying(answers.to_owned());
    let https = Https::with(&origin, "", "early_hints: pass\n");
    let (first, second) = (https.url("/1"), https.url("/2"));
    let said = printed(&mut curl(&https.authority, &["--http1.1", "-i", &first, &second]));
    let answers: Vec<_> = said.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(answers, ["103", "200", "103", "200"], "{said}");
    let said = printed(&mut curl(&https.authority, &["--http2", "-i", &first]));
    assert!(said.starts_with("HTTP/2 200") && said.ends_with("ok"), "{said}");
}
