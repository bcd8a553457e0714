//! The admin port behind a proxy: what strangers can do there, and what operators can.

use std::{io::Read, net::SocketAddr, path::Path};

use tempfile::TempDir;

use crate::harness::{
    Authority, Browser, Client, Config, Reply, Running, Tollgate, caddy, eventually, file_name, get, nginx,
    nobody, printed, program, request,
};

pub const TOKEN: &str = "9c1185a5c5e9fc54612808977ee8f548b2258d31";
/// Where clients come from; the proxy comes from 127.0.0.1.
const STRANGER: &str = "127.0.0.9";
pub const OPERATOR: &str = "127.0.0.10";
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

/// Signs in at the page on `https://localhost` with this port, sees what happens live, and bans an address.
#[track_caller]
pub fn operates_in_a_browser(front: SocketAddr, tollgate: &Tollgate) {
    let origin = format!("https://localhost:{}", front.port());
    let browser = Browser::open_at(&origin, "/bans", &["--ignore-certificate-errors"]);
    browser.comes_to("/login?next=%2Fbans");
    browser.write("[name=token]", TOKEN);
    browser.click("button[type=submit]");
    browser.comes_to("/bans");
    browser.shows("#live", "Live");
    assert!(matches!(from(OPERATOR, tollgate.admin, "POST", "/v1/bans", TOKEN, BAN).status, 200 | 201));
    browser.shows("main table", "ip:203.0.113.7");
    browser.write("form.stack [name=key]", "ip:203.0.113.8");
    browser.click("form.stack [type=submit]");
    browser.shows("#said", "ip:203.0.113.8 is banned until");
    browser.click("#logout");
    browser.comes_to("/login");
    let logged = browser.logged();
    assert!(logged.is_empty(), "{logged:#?}");
}

/// Signs in by curl, as a browser does: the session that `front` sets.
#[track_caller]
pub fn session_by_curl(front: SocketAddr, authority: &Authority) -> String {
    let (origin, authority) = (format!("https://localhost:{}", front.port()), authority.file());
    let mut curl = program("curl", "curl");
    curl.args(["-sS", "-D", "-", "--max-time", "60", "--interface", OPERATOR, "-4"]);
    curl.args(["--cacert", file_name(&authority), "-H", &format!("origin: {origin}")]);
    curl.args(["-H", "sec-fetch-site: same-origin", "-H", "content-type: application/json"]);
    let said =
        printed(curl.args(["-d", &format!(r#"{{"token": "{TOKEN}"}}"#)]).arg(format!("{origin}/login")));
    assert!(said.contains(" 204"), "{said}");
    let cookie =
        said.lines().find_map(|line| line.strip_prefix("set-cookie: ").or(line.strip_prefix("Set-Cookie: ")));
    cookie.unwrap_or_else(|| panic!("{said}")).to_owned()
}

#[test]
fn operators_sign_in_behind_nginx_whatever_host_it_sends() {
    let authority = Authority::new("Authority of the tests");
    let certificate = authority.issue("server", &["localhost"]);
    let tls = format!(
        "ssl_certificate {}; ssl_certificate_key {};",
        file_name(&certificate.cert),
        file_name(&certificate.key)
    );
    for host in ["", "proxy_set_header Host $host;", "proxy_set_header Host $http_host;"] {
        let tollgate = start(true, "");
        let (directory, front) = (TempDir::new().unwrap(), nobody());
        let location = format!("location / {{ proxy_pass http://{}; {host} }}", tollgate.admin);
        let server = format!("server {{ listen {front} ssl http2; {tls} {location} }}");
        let (_nginx, _) = nginx(directory.path(), &server, "");
        assert!(session_by_curl(front, &authority).ends_with("; Secure"), "{host}");
        operates_in_a_browser(front, &tollgate);
    }
}

#[test]
fn another_site_s_page_is_told_apart_by_what_the_browser_says_or_by_origin() {
    let (tollgate, directory) = (start(true, ""), TempDir::new().unwrap());
    let (_nginx, front) = behind_nginx(directory.path(), &tollgate, "");
    let body = format!(r#"{{"token": "{TOKEN}"}}"#);
    let sign_in = |fields: &[(&str, &str)]| {
        request(front, "POST", "/login", &[&[JSON], fields].concat(), body.as_bytes())
    };
    let origin = ("origin", "https://admin.example.com");
    assert_eq!(sign_in(&[origin, ("sec-fetch-site", "same-origin")]).status, 204);
    for site in ["cross-site", "same-site", ""] {
        assert_eq!(sign_in(&[origin, ("sec-fetch-site", site)]).status, 403, "{site}");
    }
    let old_browser = sign_in(&[origin]);
    assert_eq!(old_browser.status, 403);
    assert!(old_browser.text().contains("proxy_set_header Host $http_host"), "{}", old_browser.text());
}
