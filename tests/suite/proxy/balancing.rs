//! Several endpoints: who gets the next request.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
};

use super::{nobody, one_worker};
use crate::harness::{Client, Config, Latch, Origin, Tollgate, eventually, get};

fn counts(origins: &[Origin]) -> Vec<usize> {
    origins.iter().map(|origin| origin.heads().len()).collect()
}

#[test]
fn endpoints_take_turns_by_their_weights() {
    for (settings, weights, expected) in [
        ("balance: round_robin", &[1, 1, 1][..], &[4, 4, 4][..]),
        ("", &[1, 1], &[6, 6]),
        ("balance: round_robin", &[3, 1], &[9, 3]),
    ] {
        let origins: Vec<_> = weights.iter().map(|_| Origin::ok()).collect();
        let endpoint = |(origin, weight): (&Origin, &u8)| match weight {
            1 => format!("\"http://{}\"", origin.address),
            weight => format!("{{ url: \"http://{}\", weight: {weight} }}", origin.address),
        };
        let endpoints: Vec<_> = origins.iter().zip(weights).map(endpoint).collect();
        let tollgate = Tollgate::start(Config::yaml(format!(
            "workers: 1
upstreams: {{ a: {{ endpoints: [{}], {settings} }} }}
routes: [{{ path: /*, upstream: a }}]",
            endpoints.join(", ")
        )));
        for _ in 0..12 {
            assert_eq!(get(tollgate.address, "/", &[]).status, 200);
        }
        assert_eq!(counts(&origins), expected, "{settings}, weights {weights:?}");
    }
}

#[test]
fn a_slow_endpoint_gets_no_more_while_another_is_free() {
    let release = Latch::new();
    let released = release.clone();
    let slow = Origin::start(move |conn| {
        while conn.head()?.is_some() {
            released.wait();
            conn.answer("200 OK", &[], b"slow")?;
        }
        Ok(())
    });
    let fast = Origin::ok();
    // Two workers: what one has under way, the other knows.
    let tollgate = Tollgate::start(Config::new(&[slow.address, fast.address], ""));
    let mut held = Vec::new();
    eventually("the slow one holds a request", || {
        let client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let sent = held.len() + 1;
        held.push(client);
        eventually("it arrives", || slow.heads().len() + fast.heads().len() == sent);
        slow.heads().len() == 1
    });
    for _ in 0..10 {
        assert_eq!(get(tollgate.address, "/", &[]).text(), "ok");
    }
    assert_eq!(slow.heads().len(), 1);
    release.open();
    assert!(held.iter_mut().all(|client| client.reply().status == 200));
}

#[test]
fn a_request_that_one_endpoint_refuses_goes_to_another() {
    for balance in ["least_request", "round_robin"] {
        let origin = Origin::ok();
        let tollgate = one_worker(&[nobody(), origin.address], &format!("balance: {balance}"));
        for _ in 0..10 {
            let mut client = Client::connect(tollgate.address);
            assert_eq!(client.request("POST", "/", &[], b"body").text(), "ok", "{balance}");
        }
        assert_eq!(origin.heads().len(), 10, "each once");
    }
}

#[test]
fn a_request_that_an_endpoint_drops_as_it_ends_goes_to_another() {
    // Answers one request, and ends when it is asked again: its port refuses by then.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ending = listener.local_addr().unwrap();
    let served = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 1024];
        assert!(stream.read(&mut head).unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfirst").unwrap();
        drop(listener);
        assert!(stream.read(&mut head).unwrap() > 0);
    });
    let other = Origin::ok();
    // By its weight it is the first choice, once more for the request that it dropped.
    let tollgate = Tollgate::start(Config::yaml(format!(
        "workers: 1\nupstreams:\n  a:\n    endpoints:\n      - {{ url: \"http://{ending}\", weight: 3 }}\n      - \"http://{}\"\nroutes: [{{ path: /*, upstream: a }}]\n",
        other.address
    )));
    assert_eq!(get(tollgate.address, "/", &[]).text(), "first");
    assert_eq!(get(tollgate.address, "/", &[]).text(), "ok");
    served.join().unwrap();
}

#[test]
fn a_dropped_request_goes_to_the_same_endpoint_if_no_other_can_be_reached() {
    let origin = Origin::start(|conn| {
        conn.head()?;
        conn.answer("200 OK", &[], b"ok")?;
        conn.head().map(drop)
    });
    let tollgate = one_worker(&[nobody(), origin.address], "");
    for _ in 0..6 {
        assert_eq!(get(tollgate.address, "/", &[]).text(), "ok");
    }
}

#[test]
fn a_request_that_one_endpoint_does_not_accept_in_time_goes_to_another() {
    let (full, origin) = (super::timeouts::Full::listen(), Origin::ok());
    let tollgate = one_worker(&[full.address, origin.address], "timeouts: { connect: 100ms }");
    for _ in 0..4 {
        assert_eq!(get(tollgate.address, "/", &[]).text(), "ok");
    }
}

#[test]
fn an_endpoint_that_comes_back_is_used_again() {
    let origin = Origin::ok();
    let reserved = nobody();
    let tollgate = one_worker(&[reserved, origin.address], "balance: round_robin");
    assert_eq!(get(tollgate.address, "/", &[]).text(), "ok");
    let back = std::net::TcpListener::bind(reserved).unwrap();
    back.set_nonblocking(true).unwrap();
    // It rests for a while after it could not be reached.
    let mut clients = Vec::new();
    eventually("it is asked again", || {
        clients.push(Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n"));
        back.accept().is_ok()
    });
}
