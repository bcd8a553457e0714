//! The recipes, each with the real program: limits, what a client can't choose, and what happens without Tollgate.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::{Asking, Front, envoy, traefik};
use crate::{
    guide::replace,
    harness::{Client, Config, Origin, Tollgate, eventually, nginx, nobody},
};

/// Where the clients come from; the front comes from 127.0.0.1.
const CLIENT: &str = "127.0.0.9";
const NEIGHBOR: &str = "127.0.0.10";

/// What a client may send to choose the request that Tollgate decides on, or its own address.
const FORGED: [(&str, &str); 9] = [
    ("x-original-url", "http://free.example.org/free"),
    ("x-original-uri", "/free"),
    ("x-original-method", "DELETE"),
    ("x-forwarded-uri", "/free"),
    ("x-forwarded-method", "DELETE"),
    ("x-forwarded-host", "free.example.org"),
    ("x-forwarded-for", "6.6.6.6"),
    ("x-envoy-original-path", "/free"),
    ("x-tollgate-status", "200"),
];

fn connect(asking: &Asking, source: &str) -> Client {
    Client::connect_from(source.parse().unwrap(), asking.address)
}

/// The recorded addresses, once the client is one of them.
fn recorded(asking: &Asking) -> String {
    let mut blocked = String::new();
    eventually("the client is recorded", || {
        blocked = asking.tollgate.command(&["blocked", "--json"]).stdout;
        blocked.contains(&format!("\"{CLIENT}\""))
    });
    blocked
}

/// Five logins a minute pass, and no more, whatever their client sends.
fn limits(front: Front) {
    // The one page that has no limit of logins.
    let yaml = match front {
        Front::IngressNginx | Front::Envoy => front
            .yaml()
            .replace("policies:\n", "policies:\n  login: { algorithm: sliding_log, key: ip, limit: 5/1m }\n")
            .replace("routes:\n", "routes:\n  - { path: /login, policies: [login] }\n"),
        _ => front.yaml(),
    };
    let yaml = yaml.replace("routes:\n", "routes:\n  - { path: /free, policies: [] }\n  - { hosts: [free.example.org], path: /* }\n  - { path: /*, methods: [DELETE] }\n");
    let Some(asking) = Asking::start(front, &yaml, false) else { return };
    let mut client = connect(&asking, CLIENT);
    for _ in 0..5 {
        let reply = client.request("POST", "/login?next=/", &[("content-type", "text/plain")], b"a=b");
        assert_eq!(reply.status, 200, "{front:?}: {}", reply.text());
        assert_eq!(reply.json()["body"], "a=b", "{front:?}");
    }
    let denied = client.request("POST", "/login", &[], b"a=b");
    assert_eq!(denied.status, 429, "{front:?}: {}", denied.text());
    let retry_after: u32 = denied.header("retry-after").expect("Retry-After").parse().unwrap();
    assert!((1..=60).contains(&retry_after), "{front:?}");
    if front != Front::Nginx && front != Front::IngressNginx {
        assert!(denied.text().contains("violated-policies"), "{front:?}: {}", denied.text());
    }
    if front != Front::IngressNginx {
        assert!(denied.header("ratelimit").is_some_and(|left| left.contains("\"login\";r=0")), "{front:?}");
    }
    for (name, value) in FORGED {
        let reply = connect(&asking, CLIENT).request("POST", "/login", &[(name, value)], b"");
        assert_eq!(reply.status, 429, "{front:?}: {name}: {value}");
    }
    let twice = [
        ("x-forwarded-uri", "/free"),
        ("x-original-uri", "/free"),
        ("x-original-uri", "/free"),
        ("x-forwarded-for", "6.6.6.6"),
    ];
    assert_eq!(connect(&asking, CLIENT).request("POST", "/login", &twice, b"").status, 429, "{front:?}");
    for spelling in ["/LOGIN", "//login", "/login/", "/x/../login", "/%6cogin"] {
        let reply = connect(&asking, CLIENT).request("GET", spelling, &[], b"");
        // A front may resolve dots itself, or refuse them.
        assert!([429, 400].contains(&reply.status), "{front:?}: {spelling}: {}", reply.status);
    }
    assert_eq!(asking.origin.heads().len(), 5, "{front:?}");
    assert_eq!(connect(&asking, NEIGHBOR).request("POST", "/login", &[], b"").status, 200, "{front:?}");

    // The records tell of the client, and not of the front.
    let blocked = recorded(&asking);
    assert!(!blocked.contains("6.6.6.6"), "{front:?}: {blocked}");
    assert!(!blocked.contains("\"127.0.0.1\""), "{front:?}: {blocked}");
    // A ban counts as for any request.
    let banned = asking.tollgate.command(&["ban", NEIGHBOR, "--for", "1h"]);
    assert_eq!(banned.code, Some(0), "{}", banned.stderr);
    let mut status = 0;
    eventually("the ban is known", || {
        status = connect(&asking, NEIGHBOR).request("GET", "/other", &[], b"").status;
        status != 200
    });
    assert_eq!(status, 403, "{front:?}");
    let name = match front {
        Front::ExtAuthz => "ext_authz",
        Front::Nginx => "nginx",
        Front::IngressNginx => "ingress_nginx",
        Front::Traefik => "traefik",
        Front::Caddy => "caddy",
        Front::Envoy => "envoy",
        Front::RateLimits => "rate_limits",
    };
    let asked = |answer| {
        asking
            .tollgate
            .metric(&format!("tollgate_decisions_asked_total{{front=\"{name}\",answer=\"{answer}\"}}"))
    };
    assert!(asked("allowed") >= 6.0 && asked("refused") >= 12.0, "{front:?}");
}

#[test]
fn nginx_limits() {
    limits(Front::Nginx);
}

#[test]
fn ingress_nginx_limits() {
    limits(Front::IngressNginx);
}

#[test]
fn traefik_limits() {
    limits(Front::Traefik);
}

#[test]
fn caddy_limits() {
    limits(Front::Caddy);
}

#[test]
fn envoy_limits_by_grpc() {
    limits(Front::ExtAuthz);
}

#[test]
fn envoy_limits_by_http() {
    limits(Front::Envoy);
}

/// With Tollgate away, requests are refused, or pass where the recipe says so; and then are decided on again.
fn outage(front: Front, can_be_open: bool) {
    let Some(mut asking) = Asking::start(front, &front.yaml(), false) else { return };
    let get = |asking: &Asking| connect(asking, CLIENT).request("GET", "/", &[], b"").status;
    assert_eq!(get(&asking), 200, "{front:?}");
    asking.tollgate.signal("KILL");
    asking.tollgate.wait();
    let status = get(&asking);
    assert!(status >= 500, "{front:?}: {status}");
    assert_eq!(asking.origin.heads().len(), 1, "{front:?}");

    if can_be_open {
        let Some(mut asking) = Asking::start(front, &front.yaml(), true) else { return };
        assert_eq!(get(&asking), 200, "{front:?}");
        asking.tollgate.signal("KILL");
        asking.tollgate.wait();
        assert_eq!(get(&asking), 200, "{front:?}");
        let posted = connect(&asking, CLIENT).request("POST", "/orders?a=1", &[], b"a=b").json();
        assert_eq!((&posted["method"], &posted["body"]), (&"POST".into(), &"a=b".into()), "{front:?}");
    }
}

#[test]
fn nginx_without_tollgate() {
    outage(Front::Nginx, true);
}

#[test]
fn traefik_without_tollgate() {
    outage(Front::Traefik, false);
}

#[test]
fn caddy_without_tollgate() {
    outage(Front::Caddy, true);
}

#[test]
fn envoy_without_tollgate() {
    outage(Front::ExtAuthz, true);
    outage(Front::Envoy, true);
    outage(Front::RateLimits, true);
}

/// The descriptors of the recipe: one decision for both.
#[test]
fn envoy_asks_about_descriptors() {
    let front = Front::RateLimits;
    let yaml = front.yaml().replace("limit: 100/1m", "limit: 8/1m");
    let Some(asking) = Asking::start(front, &yaml, false) else { return };
    let ann = [("x-user-id", "ann")];
    let mut client = connect(&asking, CLIENT);
    for _ in 0..5 {
        let reply = client.request("POST", "/login", &ann, b"");
        assert_eq!(reply.status, 200);
        assert!(reply.header("ratelimit").is_some_and(|left| left.contains(";r=")), "{:?}", reply.headers);
    }
    for _ in 0..5 {
        let denied = client.request("POST", "/login", &ann, b"");
        assert_eq!(denied.status, 429);
        assert!(denied.text().contains("violated-policies") && denied.header("retry-after").is_some());
        assert!(denied.header("content-type").is_some_and(|of| of.contains("json")), "{:?}", denied.headers);
    }
    // Those that were denied have taken nothing from the address: three are left of eight.
    let statuses = [(); 5].map(|()| client.request("GET", "/", &[("x-user-id", "bob")], b"").status);
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    assert_eq!(connect(&asking, NEIGHBOR).request("GET", "/", &[("x-user-id", "bob")], b"").status, 200);
    recorded(&asking);
    let users = asking.tollgate.command(&["blocked", CLIENT]).stdout;
    assert!(users.contains("-     2"), "the descriptor that denies has no user: {users}");
}

/// A Tollgate with a configuration of `deploy/decisions/`, whose socket is in `directory`, and that file of it.
fn deployed(name: &str, directory: &Path) -> (Tollgate, PathBuf) {
    let socket = directory.join("decisions.sock");
    let text = fs::read_to_string(deploy(name)).unwrap();
    let store = text.split("store:").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap();
    let (group, _) = text.split("group: ").nth(1).and_then(|rest| rest.split_once(',')).unwrap_or(("", ""));
    let owned = format!("mode: \"0660\", group: {group}, ");
    let yaml = text
        .replace(&format!("store:{store}"), "")
        .replace(&owned, "")
        .replace("/run/tollgate/decisions.sock", socket.to_str().unwrap())
        .replace("127.0.0.1:8081", "\"127.0.0.1:0\"")
        .replace(
            "listeners:\n",
            "listeners:\n  - { address: \"127.0.0.1:0\", serves: decisions, front: traefik }\n",
        );
    (Tollgate::start(Config::yaml(yaml)), socket)
}

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/decisions").join(name)
}

/// Five logins pass, and no more.
fn counts(front: SocketAddr) {
    let mut client = Client::connect_from(CLIENT.parse().unwrap(), front);
    let statuses = [(); 7].map(|()| client.request("POST", "/login", &[], b"a=b").status);
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
}

#[test]
fn the_files_for_nginx_work_over_a_unix_socket() {
    let (directory, origin, address) = (TempDir::new().unwrap(), Origin::ok(), nobody());
    let (_tollgate, socket) = deployed("proxy.nginx.yaml", directory.path());
    let text = fs::read_to_string(deploy("nginx.conf")).unwrap();
    let changes = [
        ("listen 80;", &*format!("listen {address};")),
        ("/run/tollgate/decisions.sock", socket.to_str().unwrap()),
        ("127.0.0.1:3000", &origin.address.to_string()),
    ];
    let _nginx = nginx(directory.path(), &replace(&text, &changes), "");
    counts(address);
}

#[test]
fn the_files_for_envoy_work_over_a_unix_socket() {
    if !Front::ExtAuthz.is_installed() {
        return;
    }
    let (directory, origin, address) = (TempDir::new().unwrap(), Origin::ok(), nobody());
    let (_tollgate, socket) = deployed("proxy.envoy.yaml", directory.path());
    let at = |address: SocketAddr| format!("address: {}, port_value: {}", address.ip(), address.port());
    let text = fs::read_to_string(deploy("envoy.yaml")).unwrap();
    let changes = [
        ("address: 0.0.0.0, port_value: 80", &*at(address)),
        ("/run/tollgate/decisions.sock", socket.to_str().unwrap()),
        ("address: 127.0.0.1, port_value: 3000", &at(origin.address)),
        ("timeout: 0.1s", "timeout: 5s"),
    ];
    let _envoy = envoy(directory.path(), &replace(&text, &changes), address);
    counts(address);
}

#[test]
fn the_files_for_traefik_work() {
    if !Front::Traefik.is_installed() {
        return;
    }
    let (directory, origin, address) = (TempDir::new().unwrap(), Origin::ok(), nobody());
    let (tollgate, _) = deployed("proxy.traefik.yaml", directory.path());
    let dynamic = fs::read_to_string(deploy("traefik.dynamic.yml")).unwrap();
    let changes =
        [("127.0.0.1:8081", &*tollgate.address.to_string()), ("127.0.0.1:3000", &origin.address.to_string())];
    let dynamic = replace(&dynamic, &changes);
    let fixed = fs::read_to_string(deploy("traefik.yml")).unwrap();
    let changes = [(":80", &*address.to_string()), ("/etc/traefik/traefik.dynamic.yml", "dynamic.yml")];
    let _traefik = traefik(directory.path(), &replace(&fixed, &changes), &dynamic);
    counts(address);
}

/// What a client sends never makes a decision a fault, which would let its request pass.
#[test]
fn clients_cause_no_faults() {
    let denied = |front: Front, asking: &Asking, lines: &str| {
        let mut client = connect(asking, CLIENT);
        client.send(format!("GET /login HTTP/1.1\r\nhost: a\r\n{lines}\r\n").replace('!', "\u{7f}"));
        let status = client.try_reply().map_or(0, |reply| reply.status);
        // The front may refuse it by itself.
        assert!(status == 0 || (400..500).contains(&status), "{front:?}: {lines:.60}: {status}");
    };
    for front in [Front::Nginx, Front::Caddy, Front::ExtAuthz, Front::Envoy] {
        let yaml = front
            .yaml()
            .replace("policies:\n", "policies:\n  never: { algorithm: sliding_log, key: ip, limit: 1/1h }\n");
        let yaml = yaml.replace("routes:\n", "routes:\n  - { path: /login, policies: [never] }\n");
        let yaml = yaml.replace("  - { path: /login, policies: [per-address, login] }\n", "");
        let Some(asking) = Asking::start(front, &yaml, true) else { continue };
        assert_eq!(connect(&asking, CLIENT).request("GET", "/login", &[], b"").status, 200);
        let many: String = (0..150).map(|nth| format!("x-{nth}: 1\r\n")).collect();
        let long = format!("x-long: {}\r\n", "x".repeat(40_000));
        for lines in [
            "x-odd: a!b\r\n",
            "x-odd: a\u{1}b\r\n",
            many.as_str(),
            long.as_str(),
            "upgrade: websocket\r\nconnection: upgrade\r\n",
            "expect: 200-ok\r\n",
        ] {
            denied(front, &asking, lines);
        }
        assert_eq!(asking.origin.heads().len(), 1, "{front:?}: {:?}", asking.origin.heads());
    }
}

#[test]
fn bytes_that_are_no_text_do_not_lift_a_limit() {
    let front = Front::RateLimits;
    let yaml = front.yaml().replace("limit: 100/1m", "limit: 3/1h");
    let Some(asking) = Asking::start(front, &yaml, true) else { return };
    let send = || {
        let mut client = connect(&asking, CLIENT);
        client.send(b"GET / HTTP/1.1\r\nhost: a\r\nx-user-id: \xff\xfe\r\n\r\n");
        client.reply().status
    };
    assert_eq!([(); 5].map(|()| send()), [200, 200, 200, 429, 429]);
}

#[test]
fn a_failing_api_behind_caddy_gets_a_request_once() {
    let front = Front::Caddy;
    let directory = TempDir::new().unwrap();
    // It closes each connection without an answer.
    let api = Origin::start(|conn| conn.head().map(|_| ()));
    let tollgate = Tollgate::start(Config::yaml(front.yaml()));
    let (_caddy, address) = front.start(directory.path(), tollgate.address, api.address, true);
    let reply = Client::connect(address).request("POST", "/pay", &[], b"a=b");
    assert_eq!(reply.status, 502);
    assert_eq!(api.heads().len(), 1, "{:?}", api.heads());
}

#[test]
fn a_denial_with_503_is_no_fault_for_envoy() {
    let front = Front::Envoy;
    let yaml = front.yaml().replace("limit: 600/1m }", "limit: 1/1h, reply: { status: 503 } }");
    let Some(asking) = Asking::start(front, &yaml, true) else { return };
    let statuses = [(); 3].map(|()| connect(&asking, CLIENT).request("GET", "/", &[], b"").status);
    assert_eq!(statuses, [200, 403, 403]);
}
