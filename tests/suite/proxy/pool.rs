//! Kept connections, to clients and to origins: used again, given up in time, replaced when stale.

use std::net::Shutdown;

use super::{assert_problem, before, one_worker};
use crate::harness::{Client, Config, Latch, Origin, Tollgate, eventually, get};

#[test]
fn one_connection_serves_a_client_s_requests_one_after_the_other() {
    let origin = Origin::echo();
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    for number in 0..10 {
        let reply = client.request("POST", &format!("/{number}"), &[], b"body");
        assert_eq!(reply.json()["target"], format!("/{number}"));
        assert_eq!(reply.header("connection"), None);
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn one_connection_serves_different_clients_one_after_the_other() {
    let origin = Origin::ok();
    let tollgate = one_worker(&[origin.address], "");
    for number in 1..=10 {
        let mut client = Client::connect_from([127, 0, 0, number].into(), tollgate.address);
        assert_eq!(client.request("GET", "/", &[], b"").text(), "ok");
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn after_chunks_and_trailers_a_connection_is_used_again() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            conn.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n")?;
        }
        Ok(())
    });
    let tollgate = one_worker(&[origin.address], "");
    for _ in 0..5 {
        assert_eq!(get(tollgate.address, "/", &[]).text(), "ok");
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_client_that_asks_for_it_is_disconnected_and_the_origin_is_not() {
    let origin = Origin::ok();
    let tollgate = one_worker(&[origin.address], "");
    for _ in 0..3 {
        let mut client = Client::connect(tollgate.address);
        let reply = client.request("GET", "/", &[("connection", "close")], b"");
        assert_eq!(reply.header("connection"), Some("close"));
        assert!(client.closed());
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn an_origin_that_asks_for_it_is_disconnected_and_the_client_is_not() {
    let origin = Origin::start(|conn| {
        let head = conn.head()?.unwrap();
        conn.body(&head)?;
        conn.answer("200 OK", &[("connection", "close")], b"ok")
    });
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    for number in 1..=5 {
        let reply = client.request("POST", "/", &[], b"body");
        assert_eq!((reply.status, reply.header("connection")), (200, None));
        assert_eq!(origin.connections(), number);
    }
}

/// Answers on kept connections, and opens the latch when the proxy gives the first one up.
fn given_up() -> (Origin, Latch) {
    let ended = Latch::new();
    let end = ended.clone();
    let origin = Origin::start(move |conn| {
        while conn.head()?.is_some() {
            conn.answer("200 OK", &[], b"ok")?;
        }
        end.open();
        Ok(())
    });
    (origin, ended)
}

#[test]
fn an_idle_connection_to_the_origin_is_given_up_in_time() {
    let (origin, ended) = given_up();
    let tollgate = one_worker(&[origin.address], "timeouts: { idle: 200ms }");
    let mut client = Client::connect(tollgate.address);
    assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    ended.wait();
    assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    assert_eq!(origin.connections(), 2);
}

#[test]
fn an_idle_client_is_disconnected_in_time() {
    let origin = Origin::ok();
    let tollgate =
        Tollgate::start(Config::new(&[origin.address], "client_limits: { idle_timeout: 200ms }\n"));
    let mut client = Client::connect(tollgate.address);
    assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    assert!(client.closed());
}

#[test]
fn no_more_idle_connections_are_kept_than_configured() {
    for (idle, kept) in [("idle_connections: 1", 1), ("idle_connections: 0", 0)] {
        let together = std::sync::Arc::new(std::sync::Barrier::new(3));
        let meet = std::sync::Arc::clone(&together);
        let origin = Origin::start(move |conn| {
            while conn.head()?.is_some() {
                meet.wait();
                conn.answer("200 OK", &[], b"ok")?;
            }
            Ok(())
        });
        let tollgate = one_worker(&[origin.address], idle);
        let mut clients = [(); 3].map(|()| Client::connect(tollgate.address));
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        }
        assert!(clients.iter_mut().all(|client| client.reply().status == 200));
        assert_eq!(origin.connections(), 3);
        eventually("the rest is closed", || origin.open_connections() == kept);
        let reported = "tollgate_upstream_connections{upstream=\"origin\",state=\"idle\"}";
        eventually("and not counted", || tollgate.metric(reported) == kept as f64);
    }
}

const ENDPOINT_ERRORS: &str = "tollgate_upstream_endpoint_errors_total";

/// Closes every connection after its first answer, unannounced. The latch tells that it is closed.
fn closes_after_the_answer() -> (Origin, Latch) {
    let closed = Latch::new();
    let close = closed.clone();
    let origin = Origin::start(move |conn| {
        let head = conn.head()?.unwrap();
        conn.body(&head)?;
        conn.answer("200 OK", &[], b"ok")?;
        conn.stream.shutdown(Shutdown::Both)?;
        close.open();
        Ok(())
    });
    (origin, closed)
}

#[test]
fn a_connection_that_was_closed_while_idle_is_replaced_whatever_the_method() {
    for method in ["GET", "POST"] {
        let (origin, closed) = closes_after_the_answer();
        let tollgate = one_worker(&[origin.address], "");
        let mut client = Client::connect(tollgate.address);
        assert_eq!(client.request(method, "/", &[], b"").status, 200);
        closed.wait();
        assert_eq!(client.request(method, "/", &[], b"body").status, 200, "{method}");
        assert_eq!(origin.heads().len(), 2, "{method} was sent once");
    }
}

/// Answers the first request of the first connection, and then closes whatever it is asked on, until
/// `until` connections were made.
fn closes_when_asked(until: usize) -> Origin {
    Origin::start(move |conn| {
        let first = conn.number == 0;
        while conn.head()?.is_some() {
            if !first && conn.number < until {
                return Ok(());
            }
            conn.answer("200 OK", &[], b"ok")?;
            if first {
                return conn.head().map(drop);
            }
        }
        Ok(())
    })
}

#[test]
fn a_get_is_repeated_when_its_kept_connection_closes() {
    for (method, body) in
        [("GET", ""), ("HEAD", ""), ("OPTIONS", ""), ("DELETE", ""), ("PUT", ""), ("PUT", "body")]
    {
        let origin = closes_when_asked(1);
        let tollgate = one_worker(&[origin.address], "");
        let mut client = Client::connect(tollgate.address);
        assert_eq!(client.request("GET", "/", &[], b"").status, 200);
        assert_eq!(client.request(method, "/", &[], body.as_bytes()).status, 200, "{method}");
        assert_eq!((origin.heads().len(), origin.connections()), (3, 2), "{method}");
        assert_eq!(tollgate.metric_total(ENDPOINT_ERRORS), 0.0, "{method}: it has answered each");
    }
}

#[test]
fn a_post_that_was_sent_is_never_repeated() {
    for (method, body) in [("POST", ""), ("POST", "body"), ("PATCH", ""), ("ODD", "")] {
        let origin = closes_when_asked(1);
        let tollgate = one_worker(&[origin.address], "");
        let mut client = Client::connect(tollgate.address);
        assert_eq!(client.request("GET", "/", &[], b"").status, 200);
        let reply = client.request(method, "/", &[], body.as_bytes());
        assert_problem(&reply, 502, &[origin.address]);
        assert_eq!(origin.heads().len(), 2, "{method} was sent once");
        assert_eq!(tollgate.metric_total(ENDPOINT_ERRORS), 1.0, "{method} was not answered");
    }
}

#[test]
fn nothing_is_repeated_twice() {
    let origin = closes_when_asked(usize::MAX);
    let tollgate = one_worker(&[origin.address], "");
    let mut client = Client::connect(tollgate.address);
    assert_eq!(client.request("GET", "/", &[], b"").status, 200);
    assert_problem(&client.request("GET", "/", &[], b""), 502, &[origin.address]);
    assert_eq!(origin.heads().len(), 3);
}

#[test]
fn a_request_whose_answer_began_is_not_repeated() {
    let origin = Origin::start(|conn| {
        conn.head()?;
        conn.answer("200 OK", &[], b"ok")?;
        conn.head()?;
        conn.send(b"HTTP/1.1 200 OK\r\ncontent-le")
    });
    let tollgate = one_worker(&[origin.address], "");
    let mut client = Client::connect(tollgate.address);
    assert_eq!(client.request("POST", "/", &[], b"").status, 200);
    assert_problem(&client.request("POST", "/", &[], b""), 502, &[origin.address]);
    assert_eq!(origin.heads().len(), 2);
}

#[test]
fn only_a_kept_connection_that_turns_out_to_be_closed_is_replaced() {
    let fields = "x: y\r\n".repeat(150);
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok!",
        "HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 0\r\n\r\n",
        &format!("HTTP/1.1 200 OK\r\n{fields}content-length: 0\r\n\r\n"),
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-le",
    ] {
        let said = answer.to_owned();
        let origin = Origin::start(move |conn| {
            conn.head()?;
            conn.answer("200 OK", &[], b"ok")?;
            conn.head()?;
            conn.send(said.as_bytes())
        });
        let tollgate = one_worker(&[origin.address], "retry: { max: 0 }");
        let mut client = Client::connect(tollgate.address);
        assert_eq!(client.request("GET", "/", &[], b"").status, 200);
        assert_problem(&client.request("GET", "/", &[], b""), 502, &[origin.address]);
        let what = &answer[..answer.len().min(80)];
        assert_eq!((origin.heads().len(), origin.connections()), (2, 1), "{what:?}");
        assert_eq!(tollgate.metric_total("tollgate_upstream_retries_total"), 0.0, "{what:?}");
        assert_eq!(tollgate.metric_total(ENDPOINT_ERRORS), 1.0, "{what:?}");
    }
}
