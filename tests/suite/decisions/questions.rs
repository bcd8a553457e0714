//! Questions by HTTP, asked directly: who may ask, what is left out, and the answer in each front's words.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
};

use crate::harness::{
    Authority, Client, Config, Ended, Reply, TlsConnector, Tollgate, file_name, tollgate_in,
};

fn deciding(front: &str, yaml: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "listeners: [{{ name: asked, address: \"127.0.0.1:0\", serves: decisions, front: {front} }}]\ntrusted_proxies: [127.0.0.1]\n{yaml}"
    )))
}

/// A question of nginx about this request of 203.0.113.7.
fn ask_as_nginx(tollgate: &Tollgate, method: &str, uri: &str, fields: &[(&str, &str)]) -> Reply {
    let own = [("x-original-method", method), ("x-original-uri", uri), ("x-forwarded-for", "203.0.113.7")];
    Client::connect(tollgate.address).request("GET", "/_tollgate", &[&own, fields].concat(), b"")
}

fn ask_as_traefik(client: &mut Client, method: &str, uri: &str, fields: &[(&str, &str)]) -> Reply {
    let own = [
        ("x-forwarded-method", method),
        ("x-forwarded-uri", uri),
        ("x-forwarded-host", "api.example.org"),
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-proto", "https"),
    ];
    client.request("GET", "/", &[&own, fields].concat(), b"")
}

const LIMIT: &str = "policies:\n  address: { algorithm: sliding_log, key: ip, limit: 2/1h }\nroutes:\n  - { path: /api/*, policies: [address] }\n";

#[test]
fn only_trusted_proxies_may_ask() {
    let tollgate = deciding("nginx", LIMIT);
    let mut client = Client::connect_from([127, 0, 0, 9].into(), tollgate.address);
    let reply = client.request("GET", "/", &[("x-original-uri", "/api/a")], b"");
    assert_eq!(reply.status, 403);
    assert!(reply.text().contains("Only trusted proxies may ask for decisions."), "{}", reply.text());
    assert_eq!(ask_as_nginx(&tollgate, "GET", "/api/a", &[]).status, 200);
    let explained =
        tollgate.command(&["explain", "--peer", "192.0.2.1", "--listener", "asked", "http://a/api/a"]);
    assert!(
        explained.stdout.contains("answers with 403: only trusted proxies may ask"),
        "{}",
        explained.stdout
    );
}

#[test]
fn a_front_keeps_its_connection_whatever_clients_send() {
    let tollgate = deciding("traefik", LIMIT);
    let mut clients: Vec<Client> = (0..64).map(|_| Client::connect(tollgate.address)).collect();
    for round in 0..40 {
        for client in &mut clients {
            let (uri, statuses) = match round % 4 {
                0 => ("/none", [200, 200]),
                1 => ("/api/a", [200, 429]),
                2 => ("/api/%2", [400, 400]),
                _ => ("relative", [400, 400]),
            };
            let reply = ask_as_traefik(client, "GET", uri, &[]);
            assert!(statuses.contains(&reply.status), "{uri}: {}", reply.status);
            assert_eq!(reply.header("connection"), None, "{uri}");
        }
    }
    // A question that is none is the front's own fault, and its connection stays, too.
    let client = &mut clients[0];
    for fields in [&[][..], &[("x-forwarded-uri", "/a"), ("x-forwarded-uri", "/b")]] {
        let reply = client.request("GET", "/", fields, b"");
        assert_eq!((reply.status, reply.header("connection")), (400, None), "{fields:?}");
    }
    assert_eq!(ask_as_traefik(client, "GET", "/none", &[]).status, 200);
}

#[test]
fn nginx_gets_the_statuses_that_it_knows() {
    let tollgate = deciding(
        "nginx",
        "policies:\n  address: { algorithm: sliding_log, key: ip, limit: 1/1h }\n  full: { algorithm: sliding_log, key: ip, limit: 1/1h, reply: { status: 503 } }\n\
         user: [{ header: x-login, from: trusted_proxies }]\n\
         trusted_headers: [x-login]\n\
         routes:\n  - { path: /keys, require: user }\n  - { path: /denied, deny: [203.0.113.0/24] }\n  - { path: /full, policies: [full] }\n  - { path: /*, policies: [address] }\n",
    );
    let status = |uri: &str, fields: &[(&str, &str)]| {
        let reply = ask_as_nginx(&tollgate, "GET", uri, fields);
        (reply.status, reply.header("x-tollgate-status").map(str::to_owned))
    };
    let told = |status: u16| (403, Some(status.to_string()));
    assert_eq!(status("/a", &[]), (200, None));
    assert_eq!(status("/a", &[]), told(429));
    assert_eq!(status("/denied", &[]), told(403));
    assert_eq!(status("/a%2", &[]), told(400));
    // A policy's own 503 is a denial: nginx would take it for an outage, and may let requests pass then.
    assert_eq!([status("/full", &[]), status("/full", &[])], [(200, None), told(503)]);
    let unauthorized = ask_as_nginx(&tollgate, "GET", "/keys", &[]);
    assert_eq!((unauthorized.status, unauthorized.header("x-tollgate-status")), (401, None));
    assert!(unauthorized.header("www-authenticate").is_some());
}

#[test]
fn a_described_call_of_grpc_is_denied_in_http() {
    let tollgate = deciding("caddy", LIMIT);
    let mut client = Client::connect(tollgate.address);
    let call = [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", "1n")];
    let statuses = [(); 4].map(|()| ask_as_traefik(&mut client, "POST", "/api/a", &call).status);
    assert_eq!(statuses, [200, 200, 429, 429]);
    // HEAD has a body here: it is the question's answer.
    let head = ask_as_traefik(&mut client, "HEAD", "/api/a", &[]);
    assert!(head.status == 429 && head.text().contains("violated-policies"), "{}", head.text());
}

#[test]
fn what_needs_the_response_or_the_body_does_not_apply() {
    let yaml = r#"
values:
  model: { json: model }
policies:
  slots: { algorithm: concurrency, key: ip, limit: 1 }
  failed: { algorithm: sliding_log, key: ip, limit: 1/1h, count: { statuses: [401] } }
  tokens: { algorithm: fixed_window, key: ip, limit: 1/1d, cost: { response: { preset: openai }, reserve: 1000 } }
  models: { algorithm: sliding_log, key: "value:model", limit: 1/1h }
  late: { algorithm: gcra, key: ip, limit: 60/1h, burst: 2, delay: 1h }
routes:
  - { path: /left-out, policies: [slots, failed, tokens, models] }
  - { path: /late, policies: [late] }
  - { path: /*, max_body: 1KiB }
"#;
    let tollgate = deciding("nginx", yaml);
    for _ in 0..3 {
        assert_eq!(ask_as_nginx(&tollgate, "POST", "/left-out", &[]).status, 200);
    }
    // A wait is a denial.
    let statuses = [(); 3].map(|()| ask_as_nginx(&tollgate, "GET", "/late", &[]).status);
    assert_eq!(statuses, [200, 200, 403]);
    for policy in ["slots", "failed", "tokens", "models"] {
        let warnings = tollgate
            .log()
            .iter()
            .filter(|line| line.contains(&format!("policy `{policy}` does not apply")))
            .count();
        assert_eq!(warnings, 1, "{policy}");
    }
    let explained = tollgate.command(&["explain", "--listener", "asked", "-X", "POST", "http://a/left-out"]);
    let needs = "it needs the response, the body or the end, which another proxy has";
    assert_eq!(explained.stdout.matches(needs).count(), 4, "{}", explained.stdout);

    // And `check` says it before.
    let directory = tempfile::TempDir::new().unwrap();
    let whole = format!(
        "listeners: [{{ address: \"127.0.0.1:0\", serves: decisions, front: nginx }}]\ntrusted_proxies: [127.0.0.1]\n{yaml}"
    );
    fs::write(directory.path().join("proxy.yaml"), whole).unwrap();
    let Ended { stderr, .. } = tollgate_in(directory.path(), &[], &["check", "--config", "proxy.yaml"]);
    for said in [
        "`slots` never applies here: another proxy asks, and the policy needs the end of a request",
        "`failed` never applies here: another proxy asks, and the policy needs the response",
        "`tokens` never applies here: another proxy asks, and the policy needs the response",
        "`models` never applies here: another proxy asks, and the policy needs the body",
        "`late` delays nothing here: another proxy asks, and a wait is a denial",
        "`max_body` does nothing on this route",
    ] {
        assert!(stderr.contains(said), "{said} is missing in {stderr}");
    }
}

#[test]
fn an_answer_tells_what_the_upstream_would_get() {
    let tollgate = deciding(
        "caddy",
        "user: [{ header: x-login, from: trusted_proxies }]\ntrusted_headers: [x-login]\n\
         policies:\n  user: { algorithm: sliding_log, key: user, limit: 2/1h }\n\
         routes:\n  - { path: /*, policies: [user], request_headers: { set: { x-user-id: \"{user}\" } } }\n",
    );
    let mut client = Client::connect(tollgate.address);
    let reply = ask_as_traefik(&mut client, "GET", "/", &[("x-login", "ann"), ("x-user-id", "eve")]);
    assert_eq!((reply.status, reply.header("x-user-id")), (200, Some("ann")));
    assert!(
        reply.header("ratelimit").is_some_and(|left| left.contains("\"user\";r=1")),
        "{:?}",
        reply.headers
    );
    assert_eq!(ask_as_traefik(&mut client, "GET", "/", &[("x-user-id", "eve")]).header("x-user-id"), None);
}

#[test]
fn envoy_removes_what_a_client_says_of_itself() {
    let tollgate = Tollgate::start(Config::yaml(
        "listeners: [{ address: \"127.0.0.1:0\", serves: decisions, front: envoy, path_prefix: /decide/ }]\ntrusted_proxies: [127.0.0.1]\n\
         user: [{ header: x-login, from: trusted_proxies }]\ntrusted_headers: [x-login]\n\
         routes:\n  - { path: /own/*, request_headers: { set: { x-user-id: \"{user}\" }, remove: [x-internal-*] } }\n  - { path: /* }\n",
    ));
    let mut client = Client::connect(tollgate.address);
    let mut ask = |path: &str, fields: &[(&str, &str)]| client.request("GET", path, fields, b"");
    let claims = [("x_user_id", "eve"), ("x-user-id", "eve"), ("x-internal-role", "admin")];
    let unknown = ask("/decide//own/a", &claims);
    assert_eq!(unknown.status, 200);
    let removed = unknown.header("x-envoy-auth-headers-to-remove");
    assert_eq!(removed, Some("x-internal-role,x-user-id,x_user_id"));
    let known = ask("/decide//own/a", &[&claims[..2], &[("x-login", "ann")]].concat());
    assert_eq!(known.header("x-user-id"), Some("ann"));
    assert_eq!(known.header("x-envoy-auth-headers-to-remove"), Some("x_user_id"));
    assert_eq!(ask("/decide//a", &claims).header("x-envoy-auth-headers-to-remove"), None);
}

#[test]
fn no_reading_of_a_request_leaves_its_limits() {
    let tollgate = deciding(
        "nginx",
        "policies:\n  address: { algorithm: sliding_log, key: ip, limit: 2/1h }\n\
         routes:\n  - { path: /open/* }\n  - { path: /api/*, policies: [address] }\n",
    );
    let status = |method: &str, uri: &str, fields: &[(&str, &str)]| {
        let reply = ask_as_nginx(&tollgate, method, uri, fields);
        let told = reply.header("x-tollgate-status").map(|status| status.parse().unwrap());
        told.unwrap_or(reply.status)
    };
    // Another proxy may pass the dots on, or resolve them.
    for uri in ["/open/../api/a", "/open/%2e%2e/api/a", "/api/../open/a", "/api/../none", "/none/../api/a"] {
        assert_eq!(status("GET", uri, &[]), 400, "{uri}");
    }
    assert_eq!(status("GET", "/open/x/../a", &[]), 200);
    assert_eq!(status("GET", "/none/../a", &[]), 200);
    // A preflight is free, but none that an API may take for a request.
    let asks = ("access-control-request-method", "GET");
    let preflight = |fields: &[(&str, &str)]| {
        status("OPTIONS", "/api/a", &[&[("origin", "https://a.example"), asks], fields].concat())
    };
    assert_eq!([(); 4].map(|()| preflight(&[])), [200; 4]);
    assert_eq!([(); 3].map(|()| preflight(&[("x_http-method-override", "POST")])), [200, 200, 429]);
}

#[test]
fn a_front_may_ask_over_a_unix_socket() {
    let directory = tempfile::TempDir::new().unwrap();
    let socket = directory.path().join("asked.sock");
    let tollgate = Tollgate::start(Config::yaml(format!(
        "listeners:\n  - {{ address: \"127.0.0.1:0\", serves: decisions, front: nginx }}\n  - {{ address: \"unix:{}\", serves: decisions, front: nginx }}\n\
         trusted_proxies: [unix]\n{LIMIT}",
        socket.display()
    )));
    let mut stream = UnixStream::connect(&socket).unwrap();
    let question = "GET / HTTP/1.1\r\nhost: a\r\nx-original-uri: /api/a\r\nx-forwarded-for: 203.0.113.9\r\n";
    for (nth, status) in ["200", "200", "403"].into_iter().enumerate() {
        let last = if nth == 2 { "connection: close\r\n" } else { "" };
        write!(stream, "{question}{last}\r\n").unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head[9..], status.as_bytes());
        let mut rest = Vec::new();
        while !rest.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            rest.push(byte[0]);
        }
    }
    // 127.0.0.1 is not trusted here.
    assert_eq!(ask_as_nginx(&tollgate, "GET", "/api/a", &[]).status, 403);
}

#[test]
fn the_certificate_of_a_front_is_not_that_of_its_clients() {
    let authority = Authority::new("Authority of the tests");
    let server = authority.issue("server", &["localhost"]);
    let front = authority.issue("front", &[]);
    let ca = authority.file();
    let yaml = format!(
        "listeners:\n  - address: \"127.0.0.1:0\"\n    serves: decisions\n    front: nginx\n    tls: {{ certificates: [{{ cert: {}, key: {} }}], client_ca: {} }}\n\
         trusted_proxies: [127.0.0.1]\nuser: [{{ tls: subject }}]\n\
         policies:\n  subject: {{ algorithm: sliding_log, key: \"tls:subject\", limit: 1/1h, missing: deny }}\n\
         routes:\n  - {{ path: /by-subject, policies: [subject] }}\n  - {{ path: /* }}\n",
        file_name(&server.cert),
        file_name(&server.key),
        file_name(&ca)
    );
    let tollgate = Tollgate::start(Config::yaml(yaml));
    let connector = TlsConnector::with_certificate(&authority, &front);
    let ask = |uri: &str| {
        let plain = Client::connect(tollgate.address);
        let mut client = connector.over(plain.stream, "localhost").unwrap().into_http();
        let fields = [("host", "localhost"), ("x-original-uri", uri), ("x-forwarded-for", "203.0.113.7")];
        client.request("GET", "/", &fields, b"").status
    };
    assert_eq!(ask("/other"), 200);
    assert_eq!(ask("/by-subject"), 403, "no client has shown a certificate");
}
