//! Requests that are refused for what they are: each gets a problem, a line in the access log and a count by reason, also
//! those of which no request could be made.

use serde_json::{Value, json};

use super::assert_problem;
use crate::harness::{Authority, Client, Config, Origin, TlsConnector, Tollgate, eventually, file_name};

fn start(origin: &Origin, rest: &str) -> Tollgate {
    let rest = format!("access_log: {{ format: json, to: stdout }}\n{rest}");
    Tollgate::start(Config::new(&[origin.address], &rest))
}

fn refused(tollgate: &Tollgate, reason: &str) -> f64 {
    tollgate.metric(&format!("tollgate_requests_refused_total{{reason=\"{reason}\"}}"))
}

/// The lines of the access log once there are so many.
#[track_caller]
fn logged(tollgate: &Tollgate, count: usize) -> Vec<Value> {
    eventually("all lines are written", || tollgate.stdout().len() >= count);
    let lines = tollgate.stdout();
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What is wrong with it, the status and the reason, and what is logged of its request line.
fn refusals() -> Vec<(String, u16, &'static str, [Value; 3])> {
    let unknown = || [Value::Null, Value::Null, Value::Null];
    let get = |path: &str, protocol: &str| [json!("GET"), json!(path), json!(protocol)];
    let host = "host: a\r\n";
    vec![
        (format!("GET /a HTTP/1.1\r\n{host}a b: c\r\n\r\n"), 400, "malformed", get("/a", "HTTP/1.1")),
        ("hello\r\n\r\n".to_owned(), 400, "malformed", unknown()),
        (format!("POST /a HTTP/1.1\r\n{host}content-length: 5, 6\r\n\r\nhello"), 400, "malformed", unknown()),
        (format!("POST /a HTTP/1.1\r\n{host}transfer-encoding: gzip\r\n\r\n"), 400, "malformed", unknown()),
        // What comes behind such a head is not taken for its request line.
        (
            format!("POST /a HTTP/1.1\r\n{host}content-length: 1, 2\r\n\r\nGET /b HTTP/1.1\r\n"),
            400,
            "malformed",
            unknown(),
        ),
        (
            format!("POST /a HTTP/1.1\r\n{host}transfer-encoding: gzip\r\n\r\nGET /b HTTP/9.9\r\nfoo"),
            400,
            "malformed",
            unknown(),
        ),
        (
            format!("POST /a HTTP/1.1\r\n{host}transfer-encoding: gzip\r\n\r\nHEAD /b HTTP/1.1\r\nfoo"),
            400,
            "malformed",
            unknown(),
        ),
        (
            format!("POST /a HTTP/1.1\r\n{host}content-length: {}\r\n\r\nGET /b HTTP/1.1\r\n", u64::MAX),
            413,
            "body_too_large",
            unknown(),
        ),
        (format!("GET /a HTTP/1.2\r\n{host}\r\n"), 505, "version", get("/a", "HTTP/1.2")),
        (format!("GET /a HTTP/2.1\r\n{host}\r\n"), 505, "version", get("/a", "HTTP/2.1")),
        (
            format!("GET /{} HTTP/1.1\r\n{host}\r\n", "a".repeat(5_000)),
            414,
            "uri_too_long",
            get(&format!("/{}", "a".repeat(2_047)), "HTTP/1.1"),
        ),
        (
            format!("GET /a HTTP/1.1\r\n{host}x: {}\r\n\r\n", "y".repeat(5_000)),
            431,
            "head_too_large",
            get("/a", "HTTP/1.1"),
        ),
        ("\r\n".repeat(3_000), 431, "head_too_large", unknown()),
        (
            format!("GET /a HTTP/1.1\r\n{host}{}\r\n", "x: y\r\n".repeat(200)),
            431,
            "head_too_large",
            get("/a", "HTTP/1.1"),
        ),
        (
            format!("GET /a HTTP/1.1\r\n{host}expect: 200-maybe\r\n\r\n"),
            417,
            "expectation",
            get("/a", "HTTP/1.1"),
        ),
        (
            format!("POST /a HTTP/1.1\r\n{host}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
            501,
            "not_implemented",
            [json!("POST"), json!("/a"), json!("HTTP/1.1")],
        ),
    ]
}

#[test]
fn each_refusal_is_a_problem_a_line_and_a_count() {
    for (head, status, reason, [method, path, protocol]) in refusals() {
        let origin = Origin::ok();
        let tollgate = start(&origin, "client_limits: { header_size: 4KiB }\n");
        let mut client = Client::connect(tollgate.address);
        // Also on a connection that was used before.
        assert_eq!(client.request("GET", "/before", &[], b"").status, 200);
        let reply = client.send(&head).reply();
        assert_problem(&reply, status, &[origin.address]);
        assert_eq!(reply.header("connection"), Some("close"), "{head}");
        assert!(reply.header("date").is_some() && reply.header("x-request-id").is_some(), "{reply:?}");
        assert!(client.finish().closed_in_order(), "{head}");
        let line = logged(&tollgate, 2).swap_remove(1);
        assert_eq!((&line["status"], &line["client"]), (&json!(status), &json!("127.0.0.1")), "{line}");
        assert_eq!(line["request_id"].as_str(), reply.header("x-request-id"));
        assert_eq!(line["bytes"], reply.text().len());
        assert_eq!(
            [&line["method"], &line["path"], &line["protocol"]],
            [&method, &path, &protocol],
            "{head}"
        );
        eventually("it is counted", || refused(&tollgate, reason) == 1.0);
        assert_eq!(
            tollgate.metric("tollgate_requests_total{route=\"\",status=\"4xx\"}")
                + tollgate.metric("tollgate_requests_total{route=\"\",status=\"5xx\"}"),
            1.0
        );
        let errors = "tollgate_server_errors_total{route=\"\",source=\"proxy\",status=\"other\"}";
        assert_eq!(tollgate.metric(errors), f64::from(u8::from(status >= 500)), "{head}");
        assert_eq!(origin.heads().len(), 1, "{:?}", origin.heads());
    }
}

#[test]
fn a_request_behind_another_is_refused_in_its_turn() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    let mut client = Client::connect(tollgate.address);
    client.send("GET /1 HTTP/1.1\r\nhost: a\r\n\r\nGET /2 HTTP/1.1\r\nhost: a\r\n\r\nGET /3 HTTP/7\r\nhost: a\r\n\r\n");
    assert_eq!([(); 2].map(|()| client.reply().status), [200, 200]);
    assert_problem(&client.reply(), 505, &[origin.address]);
    assert!(client.closed());
}

/// What an origin sends is never taken for a refusal.
#[test]
fn an_answer_that_reads_like_a_refusal_arrives() {
    let bare = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let origin = Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            if head.contains("/bare") {
                conn.answer("400 Bad Request", &[], b"")?;
            } else {
                conn.send(format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n{:x}\r\n{bare}\r\n0\r\n\r\n", bare.len()).as_bytes())?;
            }
        }
        Ok(())
    });
    let tollgate = start(&origin, "");
    let mut client = Client::connect(tollgate.address);
    assert_eq!(client.request("GET", "/", &[], b"").text(), format!("x{bare}"));
    let reply = client.request("GET", "/bare", &[], b"");
    assert_eq!((reply.status, reply.text().as_str(), reply.header("content-type")), (400, "", None));
    assert_eq!(client.request("GET", "/", &[], b"").text(), format!("x{bare}"));
    assert_eq!(refused(&tollgate, "malformed"), 0.0);
}

#[test]
fn a_head_that_does_not_come_in_time_gets_408() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "client_limits: { header_timeout: 300ms }\n");
    let mut client = Client::connect(tollgate.address);
    let reply = client.send("GET /slow HTTP/1.1\r\nhost: a\r\nx: ").reply();
    assert_problem(&reply, 408, &[origin.address]);
    assert!(client.finish().closed_in_order());
    let line = logged(&tollgate, 1).swap_remove(0);
    assert_eq!((&line["path"], &line["status"]), (&json!("/slow"), &json!(408)));
    assert!(line["duration_ms"].as_f64().unwrap() >= 250.0, "{line}");
    assert_eq!(refused(&tollgate, "timeout"), 1.0);
    // One that has said nothing is told nothing.
    assert!(Client::connect(tollgate.address).rest().is_empty());
    assert_eq!(refused(&tollgate, "timeout"), 1.0);
}

#[test]
fn http_2_where_it_is_not_spoken_gets_505() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "listeners: [{ address: \"127.0.0.1:0\", http2: false }]\n");
    let mut client = Client::connect(tollgate.address);
    let reply = client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").reply();
    assert_problem(&reply, 505, &[origin.address]);
    eventually("it is counted", || refused(&tollgate, "version") == 1.0);
}

#[test]
fn an_answer_to_head_has_no_body() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "");
    let mut client = Client::connect(tollgate.address);
    client.send("HEAD / HTTP/1.2\r\nhost: a\r\n\r\n").finish();
    let text = String::from_utf8(client.rest()).unwrap();
    assert!(text.starts_with("HTTP/1.1 505 ") && text.ends_with("\r\n\r\n"), "{text}");
}

#[test]
fn refusals_are_the_same_over_tls() {
    let authority = Authority::new("Authority of the tests");
    let certificate = authority.issue("server", &["localhost"]);
    let origin = Origin::ok();
    let tollgate = start(
        &origin,
        &format!(
            "listeners: [{{ address: \"127.0.0.1:0\", max_body: 10, tls: {{ certificates: [{{ cert: {}, key: {} }}], hsts: 1d }} }}]\nclient_limits: {{ header_size: 4KiB }}\n",
            file_name(&certificate.cert),
            file_name(&certificate.key)
        ),
    );
    let connector = TlsConnector::new(&authority);
    let mut count = 0;
    for (head, status, ..) in refusals() {
        let mut client = connector.connect(tollgate.address, "localhost").unwrap().into_http();
        let reply = client.send(&head).reply();
        assert_problem(&reply, status, &[origin.address]);
        assert_eq!(reply.header("strict-transport-security"), Some("max-age=86400"));
        assert!(client.closed());
        count += 1;
        assert_eq!(logged(&tollgate, count)[count - 1]["tls_version"], "TLSv1.3");
    }
    let mut client = connector.connect(tollgate.address, "localhost").unwrap().into_http();
    let reply = client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 11\r\n\r\n").reply();
    assert_problem(&reply, 413, &[origin.address]);
    assert_eq!(origin.connections(), 0);
}
