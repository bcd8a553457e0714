//! `max_body`: a request body that is too long is refused, before it is sent where its length is told, and else while it
//! comes. The origin never sees the request as complete.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::Reason;
use serde_json::{Value, json};

use super::assert_problem;
use crate::harness::{
    Client, Config, Deployment, Origin, Tollgate, by_http2, eventually, on_each_store, read, request,
};

on_each_store!(a_body_refused_by_its_length_costs_nothing_and_one_broken_off_counts);

const REFUSED: &str = "tollgate_requests_refused_total{reason=\"body_too_large\"}";

/// One whose bodies may have `max_body`, with `settings` of its upstream.
fn limited(origin: &Origin, max_body: &str, settings: &str) -> Tollgate {
    let rest = format!("client_limits: {{ max_body: {max_body} }}\n");
    Tollgate::start(Config::upstream(&[origin.address], settings, &rest))
}

fn post(client: &mut Client, length: usize) -> u16 {
    client.request("POST", "/", &[], &vec![b'x'; length]).status
}

/// An answer of HTTP/2 is the problem, and nothing more is said of the stream's body than that it is not needed.
fn assert_problem_by_http2(reply: &crate::harness::Http2Reply) {
    assert_eq!(reply.status(), 413);
    assert_eq!(reply.head.headers()["content-type"], "application/problem+json");
    let problem: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(problem["status"], 413);
}

/// The origin has the beginning of one body, whose connection has ended, and no end of it.
#[track_caller]
fn assert_broken_off(origin: &Origin, beginning: &str) {
    eventually("the origin's connection ends", || origin.ended() == origin.connections());
    let received = origin.received();
    assert_eq!(received.len(), 1, "{received:?}");
    assert!(received[0].contains(beginning), "{received:?}");
    assert!(!received[0].contains("\r\n0\r\n"), "the last chunk was sent: {received:?}");
}

#[test]
fn a_body_whose_length_is_told_is_refused_before_it_is_sent() {
    for settings in ["request_buffering: 0", "request_buffering: 1MiB"] {
        let origin = Origin::echo();
        let tollgate = limited(&origin, "1KiB", settings);
        let mut client = Client::connect(tollgate.address);
        assert_eq!(post(&mut client, 1024), 200, "{settings}");
        assert_eq!(origin.heads().len(), 1);
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1025\r\n\r\n");
        let reply = client.reply();
        assert_problem(&reply, 413, &[origin.address]);
        assert_eq!(reply.header("connection"), None, "a small rest is read");
        client.send("x".repeat(1025));
        assert_eq!(post(&mut client, 10), 200, "{settings}");
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 18446744073709551000\r\n\r\n");
        let reply = client.reply();
        assert_eq!((reply.status, reply.header("connection")), (413, Some("close")));
        assert_eq!(origin.heads().len(), 2, "{:?}", origin.heads());
        eventually("both are counted", || tollgate.metric(REFUSED) == 2.0);
    }
}

#[test]
fn a_client_that_sends_all_of_a_long_body_before_it_reads_is_told_that_it_is_too_long() {
    let origin = Origin::echo();
    let tollgate = limited(&origin, "1KiB", "request_buffering: 0");
    let length = 24 << 20;
    for framing in [format!("content-length: {length}"), "transfer-encoding: chunked".to_owned()] {
        let mut client = Client::connect(tollgate.address);
        client.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n"));
        if framing.contains("chunked") {
            client.send(format!("{length:x}\r\n"));
        }
        let part = vec![b'x'; length / 3];
        for _ in 0..3 {
            client.send(&part);
            client.wait_until_read();
        }
        assert_problem(&client.reply(), 413, &[origin.address]);
    }
}

#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_never_asked() {
    let origin = Origin::echo();
    let tollgate = limited(&origin, "1KiB", "host: preserve");
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 1025\r\n\r\n");
    let reply = client.reply();
    assert_problem(&reply, 413, &[origin.address]);
    assert!(client.closed(), "or the client would not know whether to send the body");
    assert_eq!(origin.connections(), 0);
}

#[test]
fn chunks_are_measured_while_they_come() {
    for settings in ["request_buffering: 0", "request_buffering: 1MiB"] {
        let origin = Origin::echo();
        let tollgate = limited(&origin, "10", settings);
        let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        let mut client = Client::connect(tollgate.address);
        client.send(format!("{head}5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n"));
        assert_eq!(client.reply().json()["body"], "helloworld");

        let origin = Origin::sink();
        let tollgate = limited(&origin, "10", settings);
        for expect in ["", "expect: 100-continue\r\n"] {
            let origin = Origin::sink();
            let tollgate = limited(&origin, "10", settings);
            let mut client = Client::connect(tollgate.address);
            client.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{expect}transfer-encoding: chunked\r\n\r\n"));
            if !expect.is_empty() {
                assert_eq!(client.reply().status, 100);
            }
            client.send("5\r\nhello\r\n");
            eventually("the origin has the beginning", || origin.received().concat().contains("hello"));
            client.send("6\r\nworld!\r\n");
            let reply = client.reply();
            assert_problem(&reply, 413, &[origin.address]);
            assert_eq!(reply.header("connection"), Some("close"));
            assert!(client.finish().closed());
            assert_broken_off(&origin, "hello");
            assert!(!origin.received().concat().contains("world"));
            eventually("it is counted", || tollgate.metric(REFUSED) == 1.0);
        }

        // All at once, with its end.
        let mut client = Client::sending(tollgate.address, format!("{head}b\r\nhello world\r\n0\r\n\r\n"));
        assert_eq!(client.reply().status, 413);
        eventually("the origin's connection ends", || origin.ended() == origin.connections());
        assert!(!origin.received().concat().contains("\r\n0\r\n"), "{:?}", origin.received());
    }
}

#[test]
fn a_body_that_is_too_long_by_http_2_ends_its_own_stream_alone() {
    let origin = Origin::echo();
    let tollgate = limited(&origin, "10", "host: preserve");
    by_http2(tollgate.address, async |mut client| {
        // Its length is told.
        let (answer, mut body) =
            client.send("POST", "/told", &[("content-length", "11")], false).await.unwrap();
        assert_problem_by_http2(&read(answer).await.unwrap());
        let reset = std::future::poll_fn(|cx| body.poll_reset(cx)).await.unwrap();
        assert_eq!(reset, Reason::NO_ERROR);
        assert_eq!(origin.connections(), 0);

        // As long as it may be, with its length and without.
        for fields in [&[("content-length", "10")][..], &[]] {
            let (answer, mut body) = client.send("POST", "/ok", fields, false).await.unwrap();
            body.send_data(Bytes::from_static(b"helloworld"), true).unwrap();
            let seen: Value = serde_json::from_slice(&read(answer).await.unwrap().body).unwrap();
            assert_eq!(seen["body"], "helloworld");
        }
        assert_eq!(client.get("/", &[]).await.unwrap().status(), 200);
    });

    let origin = Origin::sink();
    let tollgate = limited(&origin, "10", "host: preserve");
    by_http2(tollgate.address, async |mut client| {
        let (answer, mut body) = client.send("POST", "/untold", &[], false).await.unwrap();
        body.send_data(Bytes::from_static(b"hello"), false).unwrap();
        while !origin.received().concat().contains("hello") {
            client.ping().await.unwrap();
        }
        body.send_data(Bytes::from_static(b"world!"), true).unwrap();
        assert_problem_by_http2(&read(answer).await.unwrap());
        // The connection goes on.
        let (answer, _) = client.send("POST", "/told", &[("content-length", "11")], false).await.unwrap();
        assert_eq!(read(answer).await.unwrap().status(), 413);
    });
    assert_broken_off(&origin, "hello");
    eventually("both are counted", || tollgate.metric(REFUSED) == 2.0);
}

#[test]
fn an_answer_that_has_begun_breaks_off_with_its_request() {
    let origin = Origin::start(|conn| {
        conn.head()?;
        conn.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n")?;
        conn.closed();
        Ok(())
    });
    let tollgate = limited(&origin, "10", "host: preserve");
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n");
    assert_eq!(client.head().status, 200);
    client.send("6\r\nworld!\r\n");
    client.broken_off();
    assert_broken_off(&origin, "hello");
    eventually("it is counted", || tollgate.metric(REFUSED) == 1.0);
    let blamed = tollgate.log().into_iter().find(|line| line.contains("WARN") && line.contains("endpoint"));
    assert_eq!(blamed, None, "it is not the endpoint's fault");
}

#[test]
fn max_body_of_the_route_holds_before_the_listener_and_the_default() {
    let origin = Origin::echo();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
client_limits: {{ max_body: 100 }}
listeners:
  - {{ address: \"127.0.0.1:0\" }}
  - {{ address: \"127.0.0.1:0\", max_body: 200 }}
upstreams: {{ origin: {{ endpoints: [\"http://{}\"] }} }}
routes:
  - {{ name: large, path: /large, upstream: origin, max_body: 300 }}
  - {{ name: small, path: /small, upstream: origin, max_body: 50 }}
  - {{ name: any, path: /any, upstream: origin, max_body: 0 }}
  - {{ name: all, path: /*, upstream: origin }}
",
        origin.address
    )));
    let listeners = || -> Vec<SocketAddr> {
        let log = tollgate.log();
        let named = log.iter().filter_map(|line| line.split_once("is serving clients at "));
        named.map(|(_, address)| address.split(' ').next().unwrap().parse().unwrap()).collect()
    };
    eventually("both listeners are named", || listeners().len() == 2);
    let other = listeners()[1];
    assert_eq!(listeners()[0], tollgate.address);
    for (listener, path, max) in [
        (tollgate.address, "/", 100),
        (other, "/", 200),
        (tollgate.address, "/large", 300),
        (other, "/large", 300),
        (tollgate.address, "/small", 50),
        (other, "/small", 50),
    ] {
        let status = |length| request(listener, "POST", path, &[], &vec![b'x'; length]).status;
        assert_eq!((status(max), status(max + 1)), (200, 413), "{listener} {path}");
    }
    assert_eq!(request(other, "POST", "/any", &[], &vec![b'x'; 70_000]).status, 200);

    // What is in force is shown.
    let routes = tollgate.admin("GET", "/v1/routes").json()["routes"].clone();
    let shown: Vec<_> = routes.as_array().unwrap().iter().map(|route| route["max_body"].clone()).collect();
    assert_eq!(shown, [json!(300), json!(50), json!(0), Value::Null]);
    let explain = |path: &str, length: usize| {
        let asked =
            json!({ "method": "POST", "url": path, "headers": { "content-length": length.to_string() } });
        let fields = [("content-type", "application/json")];
        request(tollgate.admin, "POST", "/v1/explain", &fields, asked.to_string().as_bytes()).json()
    };
    let large = explain("/large", 301);
    assert_eq!(large["body_limit"], json!({ "max": 300, "because": "max_body of the route" }));
    assert_eq!((&large["verdict"], &large["status"]), (&json!("refused"), &json!(413)));
    assert_eq!(large["because"], "the body has 301 bytes, which is more than max_body allows");
    assert_eq!(explain("/large", 300)["verdict"], "allowed");
    assert_eq!(explain("/any", 1_000_000)["body_limit"], Value::Null);
    let by_listener = explain("/", 150);
    let because = by_listener["body_limit"]["because"].as_str().unwrap();
    assert!(because.starts_with("max_body of the listener: 100 on 127.0.0.1:"), "{because}");
    assert_eq!(
        (&by_listener["body_limit"]["max"], &by_listener["verdict"]),
        (&Value::Null, &json!("allowed"))
    );
    assert_eq!(explain("/", 201)["status"], 413);
    let printed = tollgate.command(&["explain", "-X", "POST", "-H", "content-length: 301", "/large"]);
    assert!(
        printed.stdout.contains("body      300 bytes at most: max_body of the route"),
        "{}",
        printed.stdout
    );
    assert!(printed.stdout.contains("refused with 413"), "{}", printed.stdout);
}

fn a_body_refused_by_its_length_costs_nothing_and_one_broken_off_counts(redis: Option<&Deployment>) {
    let origin = Origin::sink();
    let store = redis.map_or_else(String::new, |redis| {
        format!("store: {{ redis: {{ {}, timeout: 5s }} }}", redis.settings())
    });
    let tollgate = Tollgate::start(Config::yaml(format!(
        "
client_limits: {{ max_body: 10 }}
upstreams: {{ origin: {{ endpoints: [\"http://{}\"], policies: [per-ip] }} }}
policies: {{ per-ip: {{ algorithm: sliding_log, key: ip, limit: 1/1h }} }}
routes: [{{ path: /*, upstream: origin }}]
{store}
",
        origin.address
    )));
    let post = |rest: &str| {
        Client::connect(tollgate.address).send(format!("POST / HTTP/1.1\r\nhost: a\r\n{rest}")).reply().status
    };
    assert_eq!([(); 3].map(|()| post("content-length: 11\r\n\r\n")), [413; 3]);
    assert_eq!(post("transfer-encoding: chunked\r\n\r\nb\r\nhello world\r\n"), 413);
    assert_eq!(
        post("transfer-encoding: chunked\r\n\r\nb\r\nhello world\r\n"),
        429,
        "the last one has counted"
    );
    // It is refused for its length, whatever is left.
    assert_eq!(post("content-length: 11\r\n\r\n"), 413);
}
