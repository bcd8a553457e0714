//! A client that is refused before it has sent everything sees the refusal: no RST overtakes it.

use std::io::Write;

use crate::harness::{Client, Config, Origin, Tollgate, eventually};

/// More than the proxy reads before it answers, less than it reads and forgets afterwards.
const LENGTH: usize = 900 << 10;

/// Sends `head` and a long body, reads the answer, and holds that the connection ends in order: five times.
#[track_caller]
fn refused(tollgate: &Tollgate, head: &str, status: u16) {
    for _ in 0..5 {
        let mut client = Client::sending(tollgate.address, format!("{head}{}", "x".repeat(LENGTH)));
        let reply = client.reply();
        assert_eq!(reply.status, status, "{head:?}: {reply:?}");
        // A connection that was reset can't be shut down.
        let in_order = client.stream.shutdown(std::net::Shutdown::Write).is_ok() && client.closed_in_order();
        assert!(in_order, "{head:?} was answered {status}, then reset");
    }
}

fn upload(fields: &str) -> String {
    format!("POST / HTTP/1.1\r\n{fields}content-length: {LENGTH}\r\n\r\n")
}

#[test]
fn an_upload_over_its_limit_sees_its_429() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "policies:\n  one: {{ algorithm: sliding_log, key: ip, limit: 1/1h }}\nupstreams:\n  a: {{ endpoints: [\"http://{}\"], policies: [one] }}\nroutes:\n  - {{ path: /*, upstream: a }}\n",
        origin.address
    )));
    assert_eq!(Client::connect(tollgate.address).request("GET", "/", &[], b"").status, 200);
    refused(&tollgate, &upload("host: a\r\n"), 429);
}

#[test]
fn uploads_that_are_no_good_requests_see_why() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    for (head, status) in [
        (upload("").as_str(), 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5, 6\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\nx: ", 431),
    ] {
        refused(&tollgate, head, status);
    }
    assert_eq!(origin.connections(), 0, "{:?}", origin.heads());
}

#[test]
fn an_upload_with_a_malformed_chunk_sees_its_400() {
    let origin = Origin::sink();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    refused(&tollgate, "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n", 400);
}

#[test]
fn an_upload_that_was_answered_early_sees_the_answer() {
    let origin = Origin::start(|conn| {
        conn.head()?;
        conn.answer("403 Forbidden", &[("connection", "close")], b"no")?;
        conn.closed();
        Ok(())
    });
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    refused(&tollgate, &upload("host: a\r\n"), 403);
}

/// Only `/here` leads anywhere.
fn with_one_route() -> (Origin, Tollgate) {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "upstreams:\n  a: {{ endpoints: [\"http://{}\"] }}\nroutes:\n  - {{ path: /here, upstream: a }}\n",
        origin.address
    )));
    (origin, tollgate)
}

#[test]
fn a_small_body_that_nobody_needed_leaves_its_connection_usable() {
    let (origin, tollgate) = with_one_route();
    let mut client = Client::connect(tollgate.address);
    for (framing, body) in
        [("content-length: 5", "hello"), ("transfer-encoding: chunked", "5\r\nhello\r\n0\r\n\r\n")]
    {
        client.send(format!("POST /nowhere HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n"));
        let reply = client.reply();
        assert_eq!((reply.status, reply.header("connection")), (404, None));
        // The body comes when the answer is there already.
        client.send(body);
        assert_eq!(client.request("POST", "/here", &[], b"hello").status, 200, "{framing}");
    }
    assert_eq!(origin.heads().len(), 2);
}

#[test]
fn the_rest_of_a_body_that_nobody_needed_is_no_head() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "client_limits: {{ header_timeout: 500ms, idle_timeout: 60s }}\nupstreams:\n  a: {{ endpoints: [\"http://{}\"] }}\nroutes:\n  - {{ path: /here, upstream: a }}\n",
        origin.address
    )));
    for (framing, begin, end) in
        [("content-length: 5", "he", "llo"), ("transfer-encoding: chunked", "5\r\nhe", "llo\r\n0\r\n\r\n")]
    {
        let mut client = Client::connect(tollgate.address);
        client.send(format!("POST /nowhere HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n"));
        assert_eq!(client.reply().status, 404);
        client.send(begin);
        // Longer than a head may take.
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        assert!(!client.has_something_to_read(), "{framing}: {}", client.unread());
        client.send(end);
        assert_eq!(client.request("POST", "/here", &[], b"hello").status, 200, "{framing}");
    }
}

#[test]
fn a_long_body_that_nobody_needs_ends_its_connection_and_the_answer_says_so() {
    let (_origin, tollgate) = with_one_route();
    for fields in ["content-length: 100000", "content-length: 5\r\nexpect: 100-continue"] {
        let mut client = Client::connect(tollgate.address);
        client.send(format!("POST /nowhere HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\n"));
        let reply = client.reply();
        assert_eq!((reply.status, reply.header("connection")), (404, Some("close")), "{fields}");
        assert!(client.finish().closed());
    }
}

#[test]
fn chunks_without_end_that_nobody_needs_end_their_connection() {
    let (_origin, tollgate) = with_one_route();
    let mut client = Client::connect(tollgate.address);
    client.send("POST /nowhere HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    assert_eq!(client.reply().status, 404);
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
    eventually("the connection is closed while chunks keep coming", || {
        client.stream.write_all(chunk.as_bytes()).is_err()
    });
}
