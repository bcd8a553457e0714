//! The admin port behind a proxy: what strangers can do there, and what operators can.

use std::{io::Read, net::SocketAddr, path::Path};

use tempfile::TempDir;

use crate::harness::{
    Client, Config, Reply, Running, Tollgate, caddy, eventually, get, nginx, nobody, request,
};

const TOKEN: &str = "9c1185a5c5e9fc54612808977ee8f548b2258d31";
/// Where clients come from; the proxy comes from 127.0.0.1.
const STRANGER: &str = "127.0.0.9";
const OPERATOR: &str = "127.0.0.10";
const JSON: (&str, &str) = ("content-type", "application/json");
const BAN: &[u8] = br#"{"key": "ip:203.0.113.7", "for": "1h"}"#;

/// `rest`: more YAML at the top level.
fn start(token: bool, rest: &str) -> Tollgate {
    let token = if token { format!(", token: {TOKEN}") } else { String::new() };
    let yaml = format!("admin: {{ address: \"127.0.0.1:0\"{token} }}\n{rest}");
    Tollgate::start(Config::new(&[nobody()], &yaml))
}

/// nginx in front of the admin port, whose location has these `settings` beside `proxy_pass`.
fn behind_nginx(directory: &Path, tollgate: &Tollgate, settings: &str) -> (Running, SocketAddr) {
    nginx(directory, "", &format!("location / {{ proxy_pass http://{}; {settings} }}", tollgate.admin))
}

fn from(source: &str, front: SocketAddr, method: &str, path: &str, token: &str, body: &[u8]) -> Reply {
    let authorization = format!("Bearer {token}");
    let fields = [("authorization", &*authorization), JSON];
    Client::connect_from(source.parse().unwrap(), front).request(method, path, &fields, body)
}

/// The statuses of a request and of a sign-in with this token.
fn tries(source: &str, front: SocketAddr, token: &str) -> [u16; 2] {
    let body = format!(r#"{{"token": "{token}"}}"#);
    [
        from(source, front, "GET", "/v1/status", token, b"").status,
        from(source, front, "POST", "/login", "", body.as_bytes()).status,
    ]
}

#[test]
fn a_stranger_s_wrong_tokens_lock_nobody_out() {
    for settings in ["", "proxy_set_header X-Forwarded-For $remote_addr;"] {
        let (tollgate, directory) = (start(true, "trusted_proxies: [127.0.0.1]\n"), TempDir::new().unwrap());
        let (_nginx, front) = behind_nginx(directory.path(), &tollgate, settings);
        for _ in 0..60 {
            // More than are looked at in a second.
            eventually("the stranger has to wait", || {
                (0..40).any(|_| tries(STRANGER, front, "wrong") == [429, 429])
            });
            assert_eq!(tries(OPERATOR, front, TOKEN), [200, 204], "the right token passes");
            assert_eq!(tries(STRANGER, front, TOKEN), [200, 204], "from any address");
        }
        if !settings.is_empty() {
            assert_eq!(tries(OPERATOR, front, "wrong"), [401, 403], "the stranger's count for the stranger");
            let said = |what: &str| format!("{what} from {STRANGER} to the admin port");
            let log = tollgate.log().join("\n");
            assert!(log.contains(&said("a request")) && log.contains(&said("a sign-in")), "{log}");
        }
    }
}

#[test]
fn the_audit_log_has_the_address_that_trusted_proxies_tell() {
    let (tollgate, directory) = (start(true, "trusted_proxies: [127.0.0.1]\n"), TempDir::new().unwrap());
    let settings = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;";
    let (_nginx, front) = behind_nginx(directory.path(), &tollgate, settings);
    let last_by = || {
        let reply = from(OPERATOR, front, "GET", "/v1/audit?limit=1", TOKEN, b"");
        reply.json()["entries"][0]["by"].as_str().unwrap().to_owned()
    };
    let ban = |forged: &str| {
        let authorization = format!("Bearer {TOKEN}");
        let fields = [("authorization", &*authorization), JSON, ("x-forwarded-for", forged)];
        let reply =
            Client::connect_from(OPERATOR.parse().unwrap(), front).request("POST", "/v1/bans", &fields, BAN);
        assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
    };
    ban("6.6.6.6");
    assert_eq!(last_by(), format!("operator at {OPERATOR}"));
    // The settings of a reload count at once.
    let file = tollgate.directory().join("proxy.yaml");
    let yaml = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, yaml.replace("trusted_proxies: [127.0.0.1]", "trusted_proxies: []")).unwrap();
    assert_eq!(from(OPERATOR, front, "POST", "/v1/reload", TOKEN, b"").status, 200);
    ban("6.6.6.6");
    assert_eq!(last_by(), "operator at 127.0.0.1");
}

/// A subscriber gets what happens as it happens, and not only once a buffer is full.
#[track_caller]
fn events_arrive(front: SocketAddr) {
    let mut listener = Client::connect(front);
    listener
        .send(format!("GET /v1/events HTTP/1.1\r\nhost: {front}\r\nauthorization: Bearer {TOKEN}\r\n\r\n"));
    let (mut received, mut part) = (String::new(), [0; 64 << 10]);
    while !received.contains("retry:") {
        let read = listener.stream.read(&mut part).unwrap();
        assert_ne!(read, 0, "it ended: {received}");
        received += &String::from_utf8_lossy(&part[..read]);
    }
    assert!(received.len() < 4_096, "nginx' buffer was full first: {received}");
}

#[test]
fn events_pass_nginx_and_caddy_as_they_are_by_default() {
    let (tollgate, directory) = (start(true, ""), TempDir::new().unwrap());
    let (_nginx, front) = behind_nginx(directory.path(), &tollgate, "");
    events_arrive(front);
    let front = nobody();
    let site = format!("http:// {{\n\treverse_proxy {}\n}}\n", tollgate.admin);
    let _caddy = caddy(directory.path(), &site, "http", front);
    events_arrive(front);
}

#[test]
fn without_a_token_nobody_is_an_operator_behind_a_proxy() {
    let (tollgate, directory) = (start(false, ""), TempDir::new().unwrap());
    let is_refused = |reply: &Reply, what: &str| {
        assert_eq!(reply.status, 403, "{what}: {}", reply.text());
        let detail = reply.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert!(detail.contains("a proxy") && detail.contains("set admin.token"), "{what}: {detail}");
    };
    let all_are_refused = |front: SocketAddr, what: &str| {
        is_refused(&request(front, "POST", "/v1/bans", &[JSON], BAN), what);
        is_refused(&get(front, "/", &[]), what);
        is_refused(&get(front, "/metrics", &[]), what);
        for path in ["/healthz", "/readyz"] {
            assert_eq!(get(front, path, &[]).status, 200, "{what}: {path}");
        }
    };
    let (_nginx, front) = behind_nginx(directory.path(), &tollgate, "");
    all_are_refused(front, "nginx");
    let settings = "proxy_http_version 1.1; proxy_set_header X-Real-IP $remote_addr;";
    let other = TempDir::new().unwrap();
    let (_nginx, front) = behind_nginx(other.path(), &tollgate, settings);
    all_are_refused(front, "nginx over HTTP/1.1");
    let front = nobody();
    let host = "{\n\t\theader_up Host {upstream_hostport}\n\t}";
    let site = format!("http:// {{\n\treverse_proxy {} {host}\n}}\n", tollgate.admin);
    let _caddy = caddy(directory.path(), &site, "http", front);
    all_are_refused(front, "Caddy");
    for (name, value) in [
        ("X-Forwarded-For", "203.0.113.7"),
        ("x-forwarded-host", "admin.example.com"),
        ("x-forwarded-proto", "https"),
        ("forwarded", "for=203.0.113.7"),
        ("x-real-ip", "203.0.113.7"),
        ("cf-connecting-ip", "203.0.113.7"),
        ("via", "1.1 Caddy"),
    ] {
        is_refused(&request(tollgate.admin, "POST", "/v1/bans", &[JSON, (name, value)], BAN), name);
    }
    assert_eq!(request(tollgate.admin, "POST", "/v1/bans", &[JSON], BAN).status, 201);
}
