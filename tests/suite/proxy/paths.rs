//! What is asked for: the route that was matched is what the origin gets, and the host is one.

use std::{collections::BTreeSet, net::SocketAddr};

use crate::harness::{
    Client, Config, Origin, Reply, Tollgate, by_http2, eventually, haproxy, nginx, nobody, request,
};

fn start() -> (Origin, Tollgate) {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    (origin, tollgate)
}

fn ask(tollgate: &Tollgate, head: &str) -> Reply {
    let mut client = Client::sending(tollgate.address, format!("{head}\r\n\r\n"));
    client.reply()
}

/// The target of the only request that the origin saw, as it stood in its request line.
#[track_caller]
fn target(origin: &Origin) -> String {
    let heads = origin.heads();
    assert_eq!(heads.len(), 1, "{heads:?}");
    heads[0].split(' ').nth(1).unwrap().to_owned()
}

/// Each byte in a path and in a query, by itself and percent-encoded. Left out are bytes by themselves from 0x7f on: whether
/// HAProxy forwards one depends on where in the target it stands.
fn all_bytes() -> Vec<String> {
    let itself = (0_u8..0x7f).map(|byte| char::from(byte).to_string());
    let encoded = (0..=255_u8).map(|byte| format!("%{byte:02x}"));
    itself.chain(encoded).flat_map(|byte| [format!("/a{byte}b"), format!("/a?x={byte}b")]).collect()
}

/// Those of these targets that reach `origin`, which is behind `proxy`, as they are.
fn forwarded(targets: &[String], proxy: SocketAddr, origin: &Origin) -> BTreeSet<String> {
    for target in targets {
        let mut client = Client::connect(proxy);
        client.send(format!("GET {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"));
        // What is no request may be answered by an end.
        let _reply = client.try_reply();
    }
    let heads = origin.heads();
    let seen: BTreeSet<&str> =
        heads.iter().filter_map(|head| head.strip_prefix("GET ")?.split_once(" HTTP/1.")?.0.into()).collect();
    targets.iter().filter(|target| seen.contains(target.as_str())).cloned().collect()
}

/// Targets with bytes that have to be percent-encoded, which nginx and HAProxy forward as well.
const REFUSED: [&str; 6] = ["/a<b", "/a>b", "/a?x=\"b", "/a?x=<b", "/a?x=>b", "/a`b"];

#[test]
fn targets_that_nginx_and_haproxy_forward_are_forwarded_as_they_came() {
    let (targets, directory) = (all_bytes(), tempfile::tempdir().unwrap());
    let origins = [(); 2].map(|()| Origin::ok());
    let server = format!("location / {{ proxy_pass http://{}; }}", origins[0].address);
    let (_nginx, before_nginx) = nginx(directory.path(), "", &server);
    let before_haproxy = nobody();
    let configuration = format!(
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\nfrontend f\n  \
         bind {before_haproxy}\n  default_backend b\nbackend b\n  server s {}\n",
        origins[1].address
    );
    let _haproxy = haproxy(directory.path(), &configuration, before_haproxy);
    let by_nginx = forwarded(&targets, before_nginx, &origins[0]);
    let by_haproxy = forwarded(&targets, before_haproxy, &origins[1]);
    let by_both: BTreeSet<_> = by_nginx.intersection(&by_haproxy).cloned().collect();
    assert!(by_both.len() > 600, "{} and {} of {}", by_nginx.len(), by_haproxy.len(), targets.len());
    let (origin, tollgate) = start();
    let ours = forwarded(&targets, tollgate.address, &origin);
    let missing: Vec<_> = by_both.difference(&ours).collect();
    assert_eq!(missing, REFUSED);
    // By HTTP/2 as well.
    let (origin, tollgate) = start();
    by_http2(tollgate.address, async |mut client| {
        for target in by_both.intersection(&ours) {
            assert_eq!(client.get(target, &[]).await.unwrap().status(), 200, "{target}");
        }
    });
    let heads = origin.heads();
    let seen: BTreeSet<&str> = heads.iter().filter_map(|head| head.split(' ').nth(1)).collect();
    let missing: Vec<_> = by_both.iter().filter(|target| !seen.contains(target.as_str())).collect();
    assert_eq!(missing, REFUSED);
}

#[test]
fn a_target_with_bytes_to_encode_is_refused_with_the_advice_to_encode_them() {
    let origin = Origin::ok();
    let log = "access_log: { format: json, to: stdout }\n";
    let tollgate = Tollgate::start(Config::new(&[origin.address], log));
    for target in REFUSED {
        let mut client = Client::connect(tollgate.address);
        // The log has nothing of what follows the head.
        client.send(format!(
            "POST {target} HTTP/1.1\r\nhost: a\r\ncontent-length: 22\r\n\r\nGET /next HTTP/1.1\r\n\r\n"
        ));
        let reply = client.reply();
        assert_eq!(reply.status, 400, "{target}");
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("percent-encode \" < > `"), "{target}: {detail}");
        assert!(client.closed(), "{target}");
        // What would happen to the request with these bytes encoded.
        let explained = tollgate.command(&["explain", target]);
        assert!(explained.code == Some(0), "{target}: {explained:?}");
    }
    assert!(origin.heads().is_empty());
    // hyper still has the head of a target with a control character.
    assert_eq!(ask(&tollgate, "GET /control\u{1} HTTP/1.1\r\nhost: a").status, 400);
    let has = |text: &str| tollgate.stdout().iter().any(|line| line.contains(text));
    eventually("its line has the target", || has("\"/control"));
    assert!(!has("/next"), "{:?}", tollgate.stdout());
}

#[test]
fn a_target_that_is_a_fragment_alone_is_the_root() {
    let (origin, tollgate) = start();
    assert_eq!(ask(&tollgate, "GET http://a#x HTTP/1.1\r\nhost: a").status, 200);
    assert_eq!(target(&origin), "/");
}

#[test]
fn targets_reach_the_origin_as_they_came_without_dot_segments() {
    for (sent, received) in [
        ("/a/../b", "/b"),
        ("/a/%2e%2e/b", "/b"),
        ("/a/.%2E/b", "/b"),
        ("/../../etc/passwd", "/etc/passwd"),
        ("/%7euser/./x", "/%7euser/x"),
        ("/a%2fb/%2e/c", "/a%2fb/c"),
        ("//a///b", "//a///b"),
        ("/a;v=1/b", "/a;v=1/b"),
        ("/a\\b", "/a\\b"),
        ("/a%5cb", "/a%5cb"),
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
        "/api/login/",
        "/API/login",
        "/Api/LOGIN/?x",
        "/api/login//",
        "/API//login",
        "/%41PI/login/",
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
    let mut client = Client::sending(tollgate.address, "GET /a HTTP/1.0\r\n\r\n");
    assert_eq!(client.reply().text(), "ok");
    let head = origin.heads()[0].clone();
    assert!(head.contains(&format!("\r\nhost: {}", origin.address)), "{head}");
    assert!(head.starts_with("GET /a HTTP/1.1\r\n") && head.contains("via: 1.0 tollgate"), "{head}");
}

/// An upstream with one route that is limited to one request a minute, and one for all else, with these settings of the
/// first route and of the top level.
fn one_a_minute(origin: &Origin, limited: &str, top: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "policies:\n  one: {{ algorithm: sliding_log, key: ip, limit: 1/1m }}\nupstreams:\n  a: {{ endpoints: [\"http://{}\"] }}\nroutes:\n  - {{ name: limited, upstream: a, policies: [one], {limited} }}\n  - {{ name: rest, path: /*, upstream: a }}\n{top}",
        origin.address
    )))
}

#[test]
fn a_route_compares_paths_as_it_is_told() {
    let origin = Origin::ok();
    let statuses = |tollgate: &Tollgate, paths: &[&str]| -> Vec<u16> {
        assert_eq!(ask(tollgate, "GET /api/Login HTTP/1.1\r\nhost: a").status, 200);
        paths.iter().map(|path| ask(tollgate, &format!("GET {path} HTTP/1.1\r\nhost: a")).status).collect()
    };
    let spellings = ["/api/Login", "/api/login", "/api/Login/", "/API/LOGIN/"];
    for (route, top, expected) in [
        ("", "", [429, 429, 429, 429]),
        (", match: { case: sensitive }", "", [429, 200, 429, 200]),
        (", match: { trailing_slash: exact }", "", [429, 429, 200, 200]),
        ("", "match: { case: sensitive, trailing_slash: exact }\n", [429, 200, 200, 200]),
        (
            ", match: { case: insensitive }",
            "match: { case: sensitive, trailing_slash: exact }\n",
            [429, 429, 200, 200],
        ),
    ] {
        let tollgate = one_a_minute(&origin, &format!("path: /api/Login{route}"), top);
        assert_eq!(statuses(&tollgate, &spellings), expected, "{route} {top}");
    }
}

#[test]
fn prefixes_and_templates_are_compared_like_any_path() {
    let origin = Origin::ok();
    for (pattern, first, others) in [
        ("/api/*", "/api", ["/api/", "/API", "/Api/x"]),
        (
            "\"/users/{id}/orders\"",
            "/users/7/orders",
            ["/users/8/orders/", "/Users/7/ORDERS", "/users/x/orders"],
        ),
    ] {
        let tollgate = one_a_minute(&origin, &format!("path: {pattern}"), "");
        assert_eq!(ask(&tollgate, &format!("GET {first} HTTP/1.1\r\nhost: a")).status, 200);
        for path in others {
            assert_eq!(ask(&tollgate, &format!("GET {path} HTTP/1.1\r\nhost: a")).status, 429, "{path}");
        }
        assert_eq!(ask(&tollgate, "GET /apis HTTP/1.1\r\nhost: a").status, 200);
    }
}

#[test]
fn the_path_reaches_the_origin_as_it_was_spelled() {
    let (origin, tollgate) = start();
    assert_eq!(ask(&tollgate, "GET /API/Users/ HTTP/1.1\r\nhost: a").status, 200);
    assert_eq!(target(&origin), "/API/Users/");
}

#[test]
fn head_is_no_way_around_a_route_for_get() {
    let origin = Origin::ok();
    let tollgate = one_a_minute(&origin, "path: /report, methods: [GET]", "");
    let status = |method| request(tollgate.address, method, "/report", &[], b"").status;
    assert_eq!(["HEAD", "GET", "HEAD", "POST"].map(status), [200, 429, 429, 200]);
}

#[test]
fn explain_says_how_a_path_was_matched() {
    let origin = Origin::ok();
    let tollgate = one_a_minute(&origin, "path: /report, methods: [GET]", "");
    for (method, path, because) in [
        ("GET", "/report", "the path matches /report, the method is one of GET"),
        ("GET", "/REPORT", "the path matches /report (in any case), the method is one of GET"),
        (
            "GET",
            "/report/",
            "the path matches /report (with or without trailing slash), the method is one of GET",
        ),
        (
            "HEAD",
            "/Report/",
            "the path matches /report (in any case, with or without trailing slash), the method is one of GET (HEAD \
             follows GET)",
        ),
    ] {
        let asked =
            serde_json::json!({ "method": method, "url": path, "headers": { "host": "a" } }).to_string();
        let mut admin = Client::connect(tollgate.admin);
        let answer =
            admin.request("POST", "/v1/explain", &[("content-type", "application/json")], asked.as_bytes());
        let route = &answer.json()["route"];
        assert_eq!(
            (&route["name"], &route["because"]),
            (&"limited".into(), &because.into()),
            "{method} {path}"
        );
    }
}

/// Rails, Laravel and others take these for the method, the host or the path, which are then others than the route's.
#[test]
fn no_field_asks_for_another_target_than_the_one_that_was_matched() {
    const FIELDS: [(&str, &str); 12] = [
        ("x-http-method-override", "DELETE"),
        ("X_HTTP_Method_Override", "DELETE"),
        ("x-http-method", "DELETE"),
        ("x-method-override", "DELETE"),
        ("x-original-method", "DELETE"),
        ("x-host", "evil.example"),
        ("x-original-host", "evil.example"),
        ("x-original-url", "/api/evil"),
        ("x-original-uri", "/api/evil"),
        ("x-rewrite-url", "/api/evil"),
        ("proxy", "http://evil.example"),
        ("x-stays", "1"),
    ];
    let passed = |settings: &str, path: &str| -> Vec<String> {
        let origin = Origin::ok();
        let tollgate = one_a_minute(&origin, "path: /tunnel, method_override: allow", settings);
        assert_eq!(Client::connect(tollgate.address).request("POST", path, &FIELDS, b"").status, 200);
        let head = origin.heads()[0].to_ascii_lowercase();
        let lines = head.split("\r\n").filter_map(|line| line.split_once(": "));
        let is_one = |name: &&str| FIELDS.iter().any(|(field, _)| field.eq_ignore_ascii_case(name));
        lines.map(|(name, _)| name).filter(is_one).map(str::to_owned).collect()
    };
    let overrides =
        ["x-http-method-override", "x_http_method_override", "x-http-method", "x-method-override"];
    assert_eq!(passed("", "/"), ["x-stays"]);
    assert_eq!(passed("", "/tunnel"), [&overrides[..], &["x-stays"]].concat());
    assert_eq!(passed("method_override: allow\n", "/"), [&overrides[..], &["x-stays"]].concat());
    // A trusted proxy spells them as everybody does: it passes on what has another spelling.
    let spelled = FIELDS.iter().map(|(name, _)| name.to_ascii_lowercase()).filter(|name| !name.contains('_'));
    let sorted = |names: Vec<String>| names.into_iter().collect::<BTreeSet<_>>();
    assert_eq!(sorted(passed("trusted_proxies: [127.0.0.1]\n", "/")), sorted(spelled.collect()));
}
