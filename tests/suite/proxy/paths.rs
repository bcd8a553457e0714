//! What is asked for: the route that was matched is what the origin gets, and the host is one.

use crate::harness::{Client, Config, Origin, Reply, Tollgate};

fn start() -> (Origin, Tollgate) {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    (origin, tollgate)
}

fn ask(tollgate: &Tollgate, head: &str) -> Reply {
    let mut client = Client::connect(tollgate.address);
    client.send(format!("{head}\r\n\r\n"));
    client.reply()
}

/// The target of the only request that the origin saw, as it stood in its request line.
#[track_caller]
fn target(origin: &Origin) -> String {
    let heads = origin.heads();
    assert_eq!(heads.len(), 1, "{heads:?}");
    heads[0].split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn targets_reach_the_origin_in_normal_form() {
    for (sent, received) in [
        ("/a/../b", "/b"),
        ("/a/%2e%2e/b", "/b"),
        ("/a/.%2E/b", "/b"),
        ("/../../etc/passwd", "/etc/passwd"),
        ("/%7euser/./x", "/~user/x"),
        ("/a%2fb", "/a%2Fb"),
        ("//a///b", "//a///b"),
        ("/a;v=1/b", "/a;v=1/b"),
        ("/a\\b", "/a\\b"),
        ("/a%5cb", "/a%5Cb"),
        ("/%252e%252e/x", "/%252e%252e/x"),
        ("/a?q=/../%2e%2e//&x=%00", "/a?q=/../%2e%2e//&x=%00"),
        ("/a??", "/a??"),
        ("http://h.example/a/../b?c", "/b?c"),
        ("http://h.example?c", "/?c"),
    ] {
        let (origin, tollgate) = start();
        let reply = ask(&tollgate, &format!("GET {sent} HTTP/1.1\r\nhost: a"));
        assert_eq!(reply.status, 200, "{sent}: {reply:?}");
        assert_eq!(target(&origin), received, "{sent}");
    }
}

#[test]
fn targets_that_can_not_be_read_are_refused() {
    let (origin, tollgate) = start();
    for sent in [
        "/%00",
        "/a%0d%0aX:%20y",
        "/%",
        "/%2",
        "/%zz",
        "/a%",
        "/..%2f",
        "/a/..%2fb",
        "/a/..;/b",
        "/a\\..\\b",
        "/a/%2e%2e%5cb",
        "*",
        "a",
        "a/b",
        "ftp://h/a",
        "http://",
        "http:///a",
        "h.example:80",
        "/\u{7f}",
    ] {
        let reply = ask(&tollgate, &format!("GET {sent} HTTP/1.1\r\nhost: a"));
        assert_eq!(reply.status, 400, "{sent}: {reply:?}");
    }
    assert_eq!(origin.received().concat(), "");
}

#[test]
fn tunnels_and_the_server_as_a_whole_are_not_to_be_had() {
    let (origin, tollgate) = start();
    assert_eq!(ask(&tollgate, "CONNECT h.example:443 HTTP/1.1\r\nhost: h.example:443").status, 501);
    assert_eq!(ask(&tollgate, "OPTIONS * HTTP/1.1\r\nhost: a").status, 404);
    assert_eq!(origin.received().concat(), "");
}

/// One login a minute, anything else as often as wanted. An origin that reads paths loosely serves all
/// of these as `/api/login`.
#[test]
fn no_spelling_of_a_path_dodges_its_policy() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "policies:\n  login: {{ algorithm: sliding_log, key: ip, limit: 1/1m }}\nupstreams:\n  a: {{ endpoints: [\"http://{}\"] }}\nroutes:\n  - {{ path: /api/login, upstream: a, policies: [login] }}\n  - {{ path: /*, upstream: a }}\n",
        origin.address
    )));
    assert_eq!(ask(&tollgate, "POST /api/login HTTP/1.1\r\nhost: a\r\ncontent-length: 0").status, 200);
    for path in [
        "/api/login",
        "/api/login?x",
        "/api/%6cogin",
        "/api/x/../login",
        "/api/%2e/login",
        "/x/%2e%2e/api/./login",
        "http://b.example/api/login",
        "//api/login",
        "/api//login",
        "/api/login;x",
        "/api;x=/login",
        "/api%2flogin",
        "/api%2Flogin",
        "/api\\login",
        "/api%5clogin",
        "/%2fapi/login",
        "/;/api/login",
        "/api/x/..%2flogin",
        "/api/x/..;/login",
        "/x\\../api/login",
    ] {
        let reply = ask(&tollgate, &format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 0"));
        assert!(matches!(reply.status, 429 | 400), "{path}: {reply:?}");
    }
    assert_eq!(origin.heads().len(), 1, "{:?}", origin.heads());
    assert_eq!(ask(&tollgate, "GET /api/logout HTTP/1.1\r\nhost: a").status, 200);
}

#[test]
fn a_request_without_exactly_one_good_host_is_refused() {
    let (origin, tollgate) = start();
    for fields in [
        "",
        "host:",
        "host:  ",
        "host: a\r\nhost: a",
        "host: a\r\nHost: b",
        "host: a, b",
        "host: a b",
        "host: user@a",
        "host: user:secret@a",
        "host: a:99999",
        "host: a:b",
        "host: a/b",
        "host: a?b",
        "host: a#b",
        "host: [::1",
        "host: ::1",
        "host: a%00b",
        "host: http://a",
    ] {
        let fields = if fields.is_empty() { String::new() } else { format!("\r\n{fields}") };
        let reply = ask(&tollgate, &format!("GET /a HTTP/1.1{fields}"));
        assert_eq!(reply.status, 400, "{fields:?}: {reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{fields:?}");
        assert_eq!(reply.header("connection"), Some("close"), "{fields:?}");
    }
    assert_eq!(origin.received().concat(), "");
}

#[test]
fn the_host_reaches_the_origin_as_it_was_sent() {
    for host in ["Example.ORG", "example.org:8080", "example.org.", "[::1]:80", "under_score.example"] {
        let (origin, tollgate) = start();
        assert_eq!(ask(&tollgate, &format!("GET /a HTTP/1.1\r\nhost: {host}")).status, 200);
        let head = origin.heads()[0].clone();
        assert!(head.contains(&format!("\r\nhost: {host}\r\n")), "{head}");
    }
}

#[test]
fn the_absolute_form_wins_over_host() {
    let (origin, tollgate) = start();
    assert_eq!(ask(&tollgate, "GET http://A.example:81/p HTTP/1.1\r\nhost: b.example").status, 200);
    let head = origin.heads()[0].clone();
    assert!(head.starts_with("GET /p HTTP/1.1\r\n") && !head.contains("b.example"), "{head}");
    assert_eq!(head.matches("host: A.example:81").count(), 2, "Host and X-Forwarded-Host: {head}");
}

#[test]
fn the_absolute_form_decides_the_route() {
    let inside = Origin::ok();
    let outside = Origin::ok();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "upstreams:\n  in: {{ endpoints: [\"http://{}\"] }}\n  out: {{ endpoints: [\"http://{}\"] }}\nroutes:\n  - {{ hosts: [in.example], path: /*, upstream: in }}\n  - {{ path: /*, upstream: out, name: out }}\n",
        inside.address, outside.address
    )));
    ask(&tollgate, "GET http://out.example/ HTTP/1.1\r\nhost: in.example");
    assert_eq!((inside.heads().len(), outside.heads().len()), (0, 1));
    ask(&tollgate, "GET http://IN.example./ HTTP/1.1\r\nhost: out.example");
    assert_eq!((inside.heads().len(), outside.heads().len()), (1, 1));
}

#[test]
fn credentials_in_a_target_are_refused() {
    let (origin, tollgate) = start();
    for target in ["http://user@a/", "http://user:secret@a/", "http://a@b@c/", "http://@a/"] {
        let reply = ask(&tollgate, &format!("GET {target} HTTP/1.1\r\nhost: a"));
        assert_eq!(reply.status, 400, "{target}: {reply:?}");
    }
    assert_eq!(origin.received().concat(), "");
}

#[test]
fn http_1_0_needs_no_host() {
    let (origin, tollgate) = start();
    let mut client = Client::connect(tollgate.address);
    client.send("GET /a HTTP/1.0\r\n\r\n");
    assert_eq!(client.reply().text(), "ok");
    let head = origin.heads()[0].clone();
    assert!(head.contains(&format!("\r\nhost: {}", origin.address)), "{head}");
    assert!(head.starts_with("GET /a HTTP/1.1\r\n") && head.contains("via: 1.0 tollgate"), "{head}");
}
