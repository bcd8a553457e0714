//! gRPC through the proxy, by grpcio on both sides.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::Stdio,
};

use crate::harness::{Client, Config, Http2Origin, Running, Tollgate, Topology, printed, program};

/// The service, its clients, and what they check.
const SCRIPT: &str = include_str!("grpc_interop.py");

/// A service of gRPC, and where Python's packages are. `None`: they are not installed.
fn service() -> Option<(Running, SocketAddr, String)> {
    let Ok(packages) = std::env::var("PYTHON_CLIENTS") else {
        eprintln!("left out: `scripts/test` installs grpcio and says where in PYTHON_CLIENTS");
        return None;
    };
    let mut python = program("python3", "python3");
    python.env("PYTHONPATH", &packages).args(["-c", SCRIPT, "serve"]);
    let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port.trim().parse().unwrap()));
    Some((Running(child), address, packages))
}

fn before(service: SocketAddr, policies: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "upstreams: {{ calls: {{ endpoints: [\"http://{service}\"], protocol: h2 }} }}\n{policies}"
    )))
}

/// What `grpc_interop.py COMMAND` prints, by line.
fn run(packages: &str, command: &str, tollgate: &Tollgate) -> Vec<String> {
    let mut python = program("python3", "python3");
    python.env("PYTHONPATH", packages).args(["-c", SCRIPT, command, &tollgate.address.to_string()]);
    printed(&mut python).lines().map(str::to_owned).collect()
}

#[test]
fn the_cases_of_its_interoperability_tests_hold() {
    let Some((_service, address, packages)) = service() else { return };
    let tollgate = before(address, "routes: [{ path: /*, upstream: calls }]");
    assert_eq!(
        run(&packages, "call", &tollgate),
        [
            "cancel_after_begin",
            "cancel_after_first_response",
            "client_streaming",
            "custom_metadata",
            "empty_stream",
            "empty_unary",
            "large_unary",
            "messages_of_16_mib",
            "ping_pong",
            "server_streaming",
            "special_status_message",
            "status_code_and_message",
            "timeout_on_sleeping_server",
            "unimplemented_method",
            "unimplemented_service",
        ]
    );
    assert_eq!(tollgate.metric_total("tollgate_upstream_retries_total"), 0.0);
}

#[test]
fn failed_calls_alone_count_where_that_is_set() {
    let Some((_service, address, packages)) = service() else { return };
    failed_calls_count(address, &packages, "");
    for topology in [Topology::Server, Topology::Cluster] {
        let redis = topology.start();
        let timeout = "timeout: 5s";
        failed_calls_count(
            address,
            &packages,
            &format!("store: {{ redis: {{ {}, {timeout} }} }}\n", redis.settings()),
        );
    }
}

fn failed_calls_count(address: SocketAddr, packages: &str, store: &str) {
    let tollgate = before(
        address,
        &format!("{store}policies:
  failures: {{ algorithm: sliding_log, key: \"header:x-user\", limit: 2/1h, count: {{ grpc_statuses: [16] }} }}
routes:
  - {{ path: /grpc.testing.TestService/Login, upstream: calls, policies: [failures] }}
  - {{ path: /grpc.testing.TestService/LoginStream, upstream: calls, policies: [failures] }}
"),
    );
    let expected = |method: &str| {
        [
            "a right OK",
            "a right OK",
            "a right OK",
            "a right OK",
            "a wrong UNAUTHENTICATED",
            "a wrong UNAUTHENTICATED",
            // Denied: the third guess, and then the right password, too.
            "a wrong RESOURCE_EXHAUSTED",
            "a right RESOURCE_EXHAUSTED",
            "b right OK",
        ]
        .map(|line| format!("{method} {line}"))
    };
    // In the head alone, and in the trailers behind a message.
    assert_eq!(run(packages, "limited", &tollgate), [expected("Login"), expected("LoginStream")].concat());
}

#[test]
fn limits_know_methods_and_metadata() {
    let Some((_service, address, packages)) = service() else { return };
    let tollgate = before(
        address,
        "policies:
  calls: { algorithm: sliding_log, key: \"path+header:x-user\", limit: 4/1h }
routes: [{ path: /grpc.testing.TestService/*, upstream: calls, policies: [calls] }]
",
    );
    let seen = run(&packages, "limited", &tollgate);
    let denied = |line: &String| line.ends_with("RESOURCE_EXHAUSTED");
    for (method, lines) in [("Login", &seen[..9]), ("LoginStream", &seen[9..])] {
        assert!(!lines[..4].iter().any(denied) && lines[4..8].iter().all(denied), "{method}: {lines:?}");
        assert_eq!(lines[8], format!("{method} b right OK"));
    }
}

/// As browsers send it: the trailers are a frame of the body.
#[test]
fn grpc_web_passes_by_http1_to_an_upstream_of_http2() {
    const ANSWER: &[u8] = b"\0\0\0\0\x02\x08\x01\x80\0\0\0\x0fgrpc-status: 0\r\n";
    const CALL: &[u8] = b"\0\0\0\0\x02\x08\x07";
    let origin = Http2Origin::start(|mut exchange| async move {
        let mut body = Vec::new();
        loop {
            match exchange.data().await? {
                data if data.is_empty() => break,
                data => body.extend(data),
            }
        }
        assert_eq!(body, CALL);
        let content_type = exchange.head.headers()["content-type"].to_str().unwrap().to_owned();
        exchange.respond(200, &[("content-type", &content_type)], ANSWER)
    });
    let policy = "policies: { calls: { algorithm: sliding_log, key: ip, limit: 2/1h } }\n";
    let tollgate =
        Tollgate::start(Config::upstream(&[origin.address], "protocol: h2, policies: [calls]", policy));
    let mut client = Client::connect(tollgate.address);
    let fields =
        [("content-type", "application/grpc-web+proto"), ("x-grpc-web", "1"), ("origin", "http://a")];
    for _ in 0..2 {
        let reply = client.request("POST", "/a.Service/Method", &fields, CALL);
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/grpc-web+proto")));
        assert_eq!(reply.body, ANSWER);
    }
    let denied = client.request("POST", "/a.Service/Method", &fields, CALL);
    assert_eq!((denied.status, denied.header("grpc-status")), (200, Some("8")));
    assert_eq!(origin.connections(), 1);
}
