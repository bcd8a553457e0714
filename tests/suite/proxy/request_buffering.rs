//! `request_buffering`: a small body is received before a connection to the upstream is taken.

use std::{thread::sleep, time::Duration};

use super::{assert_problem, before};
use crate::harness::{Client, Config, Origin, Tollgate, becomes, eventually};

#[test]
fn a_small_body_that_trickles_takes_no_connection_until_it_is_there() {
    let origin = Origin::echo();
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 11\r\n\r\n");
    for part in ["hello", " ", "worl"] {
        client.send(part);
        client.wait_until_read();
        assert_eq!(origin.connections(), 0, "{part:?}");
    }
    let reply = client.send("d").reply();
    assert_eq!((reply.json()["body"].as_str(), origin.connections()), (Some("hello world"), 1));
    // The next request on the same connection is one of its own.
    assert_eq!(client.request("POST", "/", &[], b"again").json()["body"], "again");
}

/// Bodies that never come are waited for longer than they are here.
const PATIENT: &str = "workers: 1\nclient_limits: { min_rate: { bytes: 0, grace: 1m } }\n";

#[test]
fn bodies_that_never_come_do_not_take_all_memory() {
    let origin = Origin::sink();
    let tollgate = Tollgate::start(Config::upstream(&[origin.address], "request_buffering: 1MiB", PATIENT));
    let trickle = || {
        Client::sending(
            tollgate.address,
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1048576\r\n\r\nhello",
        )
    };
    let held: Vec<_> = (0..24).map(|_| trickle()).collect();
    held.iter().for_each(Client::wait_until_read);
    assert_eq!(origin.connections(), 0);
    let _streamed = trickle();
    eventually("the body beyond 24 MiB is streamed", || origin.connections() == 1);
}

/// Bodies that are read for a cost: `max_tokens`, of a million, is reserved.
fn reading(origin: &Origin, body_memory: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "
{PATIENT}body_memory: {body_memory}
upstreams:
  streamed: {{ endpoints: [\"http://{0}\"], request_buffering: 0 }}
  buffered: {{ endpoints: [\"http://{0}\"], request_buffering: 1MiB }}
policies:
  tokens:
    {{ algorithm: fixed_window, key: ip, limit: 1000000/1d, cost: {{ response: openai, reserve: {{ json: [max_tokens], default: 1000 }} }} }}
routes:
  - {{ path: /numbers, upstream: streamed, policies: [tokens] }}
  - {{ path: /*, upstream: buffered }}
",
        origin.address
    )))
}

const NUMBERS: &str = "POST /numbers HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";

#[test]
fn bodies_that_never_come_leave_memory_for_those_of_other_clients() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            conn.answer("200 OK", &[], b"")?;
        }
        Ok(())
    });
    let tollgate = reading(&origin, "32MiB");
    let ask = |last: u8| {
        let mut client = Client::connect_from([127, 0, 0, last].into(), tollgate.address);
        client.send(format!(
            "{NUMBERS}transfer-encoding: chunked\r\n\r\n11\r\n{{\"max_tokens\": 7}}\r\n0\r\n\r\n"
        ));
        let reply = client.reply();
        assert_eq!(reply.status, 200);
        let left = reply.header("ratelimit").unwrap().split([';', '=']).nth(2).unwrap().to_owned();
        left.parse::<u64>().unwrap()
    };
    let trickle = |last: u8| {
        let mut client = Client::connect_from([127, 0, 0, last].into(), tollgate.address);
        client.send(format!("{NUMBERS}content-length: 1048576\r\n\r\n{{"));
        client
    };
    let refused = || tollgate.metric("tollgate_requests_total{route=\"/numbers\",status=\"5xx\"}") as u64;
    let mut held: Vec<_> = (0..20).map(|_| trickle(2)).collect();
    assert_eq!(ask(3), 1_000_000 - 7, "while the others wait");
    becomes(4, refused);
    // Another address gets half of the rest.
    held.extend((0..20).map(|_| trickle(4)));
    assert_eq!(ask(5), 1_000_000 - 7);
    becomes(4 + 12, refused);
    let mut late = trickle(4);
    let reply = late.reply();
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    drop(held);
    // Small bodies of the same worker leave room as well.
    let _small: Vec<_> = (0..40)
        .map(|_| {
            let mut client = Client::connect_from([127, 0, 0, 6].into(), tollgate.address);
            client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1048576\r\n\r\nx");
            client
        })
        .collect();
    assert_eq!(ask(7), 1_000_000 - 7);
}

#[test]
fn a_body_waits_until_those_before_it_are_freed() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.pause()?;
            conn.body(&head)?;
            conn.answer("200 OK", &[], b"")?;
        }
        Ok(())
    });
    let tollgate = reading(&origin, "64MiB");
    let body = format!("{{\"max_tokens\":7,\"x\":\"{}\"}}", "x".repeat(14 << 20));
    // The upstream takes none of them yet. A client gets half of the memory: two of them.
    let mut clients: Vec<_> = (0..3)
        .map(|_| {
            let mut client = Client::connect(tollgate.address);
            client.send(format!("{NUMBERS}content-length: {}\r\n\r\n", body.len()));
            client
        })
        .collect();
    for client in &mut clients[..2] {
        client.send(&body);
    }
    becomes(2, || origin.heads().len());
    let mut third = clients.pop().unwrap();
    let sending = std::thread::scope(|scope| {
        let sent = scope.spawn(|| third.send(&body).reply().status);
        sleep(Duration::from_millis(300));
        assert_eq!(origin.heads().len(), 2);
        origin.resume();
        origin.resume();
        origin.resume();
        sent.join().unwrap()
    });
    assert_eq!(sending, 200);
    assert!(clients.iter_mut().all(|client| client.reply().status == 200));
}

#[test]
fn bodies_of_every_size_arrive_whole_with_one_framing() {
    let origin = Origin::echo();
    for buffering in ["0", "1", "16KiB", "1MiB"] {
        let settings = format!("request_buffering: {buffering}");
        let tollgate = Tollgate::start(Config::upstream(&[origin.address], &settings, ""));
        let mut client = Client::connect(tollgate.address);
        for length in [0, 1, 2, 1_000, 16 << 10, (16 << 10) + 1, 100_000, 1 << 20, (1 << 20) + 1] {
            let told = client.request("POST", "/", &[], &vec![b'x'; length]).json();
            assert_eq!(told["body_bytes"], length, "{buffering}");
            let headers = told["headers"].as_array().unwrap();
            let framing = |name: &str| headers.iter().filter(|field| field[0] == name).count();
            assert_eq!(
                (framing("content-length"), framing("transfer-encoding")),
                (usize::from(length > 0), 0)
            );
        }
    }
}

#[test]
fn bodies_too_large_without_length_or_with_expect_are_passed_on_as_they_come() {
    for (settings, head) in [
        ("request_buffering: 0", "content-length: 10\r\n\r\nhello"),
        ("request_buffering: 9", "content-length: 10\r\n\r\nhello"),
        ("", "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"),
        ("", "content-length: 16385\r\n\r\nhello"),
        ("", "content-length: 10\r\nexpect: 100-continue\r\n\r\n"),
    ] {
        let origin = Origin::sink();
        let settings = if settings.is_empty() { "host: preserve" } else { settings };
        let tollgate = Tollgate::start(Config::upstream(&[origin.address], settings, ""));
        let _client = Client::sending(tollgate.address, format!("POST / HTTP/1.1\r\nhost: a\r\n{head}"));
        eventually(head, || origin.connections() == 1);
    }
}

#[test]
fn a_small_body_that_breaks_off_reaches_nobody() {
    let origin = Origin::echo();
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhello").finish();
    assert_problem(&client.reply(), 400, &[origin.address]);
    assert!(client.closed());
    assert_eq!(origin.connections(), 0);
}

#[test]
fn the_access_log_says_that_the_client_has_broken_a_small_body_off() {
    let origin = Origin::echo();
    let log = "access_log: { format: json, to: stdout }\nclient_limits: { idle_timeout: 300ms }\n";
    let tollgate = Tollgate::start(Config::new(&[origin.address], log));
    let upload =
        || Client::sending(tollgate.address, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhello");
    assert_eq!(upload().finish().reply().status, 400);
    assert_eq!(upload().reply().status, 408);
    eventually("both are logged", || tollgate.stdout().len() == 2);
    for line in tollgate.stdout() {
        assert!(line.contains("\"aborted_by\":\"client\""), "{line}");
    }
}

#[test]
fn a_small_body_that_stalls_reaches_nobody() {
    let origin = Origin::echo();
    let limits = "client_limits: { idle_timeout: 300ms }\n";
    let tollgate = Tollgate::start(Config::new(&[origin.address], limits));
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhello");
    assert_problem(&client.reply(), 408, &[origin.address]);
    assert!(client.closed());
    assert_eq!(origin.connections(), 0);
    let counted = "tollgate_requests_cut_off_total{body=\"request\",reason=\"idle_timeout\"}";
    eventually("it is counted", || tollgate.metric(counted) == 1.0);
}

#[test]
fn a_client_that_leaves_amid_a_small_body_leaves_nothing_behind() {
    let origin = Origin::echo();
    let tollgate = before(&origin);
    for _ in 0..3 {
        let mut client = Client::connect(tollgate.address);
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhello");
        client.wait_until_read();
        client.reset();
    }
    let status = "tollgate_requests_total{route=\"/*\",status=\"4xx\"}";
    eventually("all are counted", || tollgate.metric(status) == 3.0);
    assert_eq!(origin.connections(), 0);
}

#[test]
fn the_time_that_a_small_body_takes_is_not_the_origin_s() {
    let origin = Origin::echo();
    let settings = "timeouts: { response: 300ms }";
    let tollgate = Tollgate::start(Config::upstream(&[origin.address], settings, ""));
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhello");
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(client.send("world").reply().json()["body"], "helloworld");
}
