//! Time is up: 504 before the answer has begun, a broken connection after.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use socket2::{Domain, Socket, Type};

use super::{assert_problem, one_worker};
use crate::harness::{Client, Config, Latch, Origin, PATIENCE, Tollgate, eventually, get};

/// A listener that takes no more connections: its queue is full, and the kernel lets others wait.
pub(super) struct Full {
    pub(super) address: SocketAddr,
    _sockets: Vec<Socket>,
}

impl Full {
    pub(super) fn listen() -> Self {
        let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let listener = socket();
        listener.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        listener.listen(1).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let mut sockets = vec![listener];
        loop {
            let filler = socket();
            let connected = filler.connect_timeout(&address.into(), Duration::from_millis(100));
            sockets.push(filler);
            if connected.is_err() {
                return Self { address, _sockets: sockets };
            }
        }
    }
}

/// Sends `bytes` in place of an answer, and the latch tells when the proxy has had enough.
fn hangs_after(bytes: &'static [u8]) -> (Origin, Latch) {
    let ended = Latch::new();
    let end = ended.clone();
    let origin = Origin::start(move |conn| {
        conn.head()?;
        conn.send(bytes)?;
        conn.closed();
        end.open();
        Ok(())
    });
    (origin, ended)
}

#[test]
fn a_connection_that_does_not_come_about_is_a_504() {
    let full = Full::listen();
    let tollgate = one_worker(&[full.address], "timeouts: { connect: 200ms }");
    let begun = Instant::now();
    assert_problem(&get(tollgate.address, "/", &[]), 504, &[full.address]);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn an_endpoint_is_found_out_though_no_request_waits_as_long_as_connecting_may_take() {
    let (full, good) = (Full::listen(), Origin::ok());
    let timeouts = "timeouts: { connect: 500ms, total: 200ms }";
    let tollgate = one_worker(&[full.address, good.address], &format!("balance: round_robin, {timeouts}"));
    let unreachable = format!(
        "http://{} cannot be reached, and gets no requests while others can: it accepted no connection in time",
        full.address
    );
    eventually("it is known to be down", || {
        get(tollgate.address, "/", &[]);
        tollgate.has_logged(&[&unreachable])
    });
    // It is tried again once a second at most.
    let statuses: Vec<_> = (0..10).map(|_| get(tollgate.address, "/", &[]).status).collect();
    assert!(statuses.iter().filter(|&&status| status == 200).count() >= 8, "{statuses:?}");
}

#[test]
fn an_endpoint_that_uses_up_the_time_for_all_tries_is_ejected() {
    let (silent, good) = (Origin::sink(), Origin::ok());
    let settings = "balance: round_robin, timeouts: { total: 200ms }, outlier: { failures: 2 }";
    let tollgate = one_worker(&[silent.address, good.address], settings);
    eventually("it is ejected", || {
        get(tollgate.address, "/", &[]);
        let ejected = format!("http://{} is ejected", silent.address);
        tollgate.has_logged(&[&ejected, "did not respond in time"])
    });
}

#[test]
fn an_answer_that_does_not_come_is_a_504_and_the_work_is_cancelled() {
    let (origin, ended) = hangs_after(b"");
    let tollgate = one_worker(&[origin.address], "timeouts: { response: 200ms }");
    let mut client = Client::connect(tollgate.address);
    for (method, body) in [("GET", ""), ("POST", "body")] {
        assert_problem(&client.request(method, "/", &[], body.as_bytes()), 504, &[origin.address]);
    }
    assert!(ended.opens_within(PATIENCE));
    assert_eq!(origin.heads().len(), 2, "a timeout is not repeated");
}

#[test]
fn half_a_head_is_no_answer() {
    let (origin, _ended) = hangs_after(b"HTTP/1.1 200 OK\r\ncontent-");
    let tollgate = one_worker(&[origin.address], "timeouts: { response: 200ms }");
    assert_problem(&get(tollgate.address, "/", &[]), 504, &[origin.address]);
}

#[test]
fn an_origin_that_does_not_take_the_body_is_a_504() {
    let refused = Latch::new();
    let until = refused.clone();
    let origin = Origin::start(move |conn| {
        conn.head()?;
        until.wait();
        Ok(())
    });
    let tollgate = one_worker(&[origin.address], "timeouts: { response: 300ms }");
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 67108864\r\n\r\n");
    let mut stream = client.stream.try_clone().unwrap();
    let upload = thread::spawn(move || std::io::Write::write_all(&mut stream, &vec![b'x'; 64 << 20]));
    assert_problem(&client.reply(), 504, &[origin.address]);
    refused.open();
    let _ = client.stream.shutdown(std::net::Shutdown::Both);
    assert!(upload.join().unwrap().is_err(), "all of it was taken");
}

#[test]
fn an_answer_that_stalls_is_broken_off() {
    for half in [
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".as_slice(),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ] {
        let (origin, ended) = hangs_after(half);
        let tollgate = one_worker(&[origin.address], "timeouts: { idle: 200ms }");
        let mut client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert!(client.try_reply().is_err(), "half an answer passed for a whole one");
        assert!(client.closed());
        assert!(ended.opens_within(PATIENCE));
    }
}

#[test]
fn a_client_that_stops_sending_its_body_gets_a_408() {
    let (origin, ended) = hangs_after(b"");
    let tollgate =
        Tollgate::start(Config::new(&[origin.address], "client_limits: { idle_timeout: 200ms }\n"));
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\nhalf");
    assert_problem(&client.reply(), 408, &[origin.address]);
    assert!(client.closed());
    assert!(ended.opens_within(PATIENCE));
}

#[test]
fn a_route_may_have_more_or_less_time_than_its_upstream() {
    let origin = Origin::start(|conn| {
        while conn.head()?.is_some() {
            thread::sleep(Duration::from_millis(500));
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    let tollgate = Tollgate::start(Config::yaml(format!(
        "upstreams:\n  a: {{ endpoints: [\"http://{}\"], timeouts: {{ response: 100ms }} }}\nroutes:\n  - {{ path: /slow, upstream: a, timeouts: {{ response: 10s }} }}\n  - {{ path: /*, upstream: a }}\n",
        origin.address
    )));
    assert_eq!(get(tollgate.address, "/slow", &[]).status, 200);
    assert_eq!(get(tollgate.address, "/other", &[]).status, 504);
}

#[test]
fn a_slow_response_whose_bytes_keep_coming_is_not_cut_off() {
    let origin = Origin::start(|conn| {
        let head = conn.head()?.unwrap();
        conn.body(&head)?;
        conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n")?;
        for _ in 0..8 {
            thread::sleep(Duration::from_millis(500));
            conn.send(b"x")?;
        }
        Ok(())
    });
    let settings = "timeouts: { response: 3s, idle: 3s }";
    let tollgate = Tollgate::start(Config::upstream(
        &[origin.address],
        settings,
        "client_limits: { idle_timeout: 3s, header_timeout: 3s }\n",
    ));
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 8\r\n\r\n");
    for _ in 0..8 {
        thread::sleep(Duration::from_millis(500));
        client.send("x");
    }
    assert_eq!(client.reply().text(), "xxxxxxxx");
}

#[test]
fn an_answer_of_a_client_that_reads_nothing_is_given_up() {
    let ended = Latch::new();
    let end = ended.clone();
    let origin = Origin::start(move |conn| {
        conn.head()?;
        conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n")?;
        while conn.send(&[b'x'; 1 << 16]).is_ok() {}
        end.open();
        Ok(())
    });
    let tollgate =
        Tollgate::start(Config::new(&[origin.address], "client_limits: { idle_timeout: 300ms }\n"));
    let _client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(ended.opens_within(PATIENCE), "the origin is kept busy for nobody");
}
