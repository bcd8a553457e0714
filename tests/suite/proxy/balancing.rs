//! Several endpoints: who gets the next request.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    thread,
};

use super::{nobody, one_worker};
use crate::harness::{Client, Config, Latch, Origin, Tollgate, eventually, get};

fn counts(origins: &[Origin]) -> Vec<usize> {
    origins.iter().map(|origin| origin.heads().len()).collect()
}

fn addresses(origins: &[Origin]) -> Vec<SocketAddr> {
    origins.iter().map(|origin| origin.address).collect()
}

#[test]
fn round_robin_takes_turns() {
    let origins = [Origin::ok(), Origin::ok(), Origin::ok()];
    let tollgate = one_worker(&addresses(&origins), "balance: round_robin");
    for _ in 0..12 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    assert_eq!(counts(&origins), [4, 4, 4]);
}

#[test]
fn equals_take_turns_by_default() {
    let origins = [Origin::ok(), Origin::ok()];
    let tollgate = one_worker(&addresses(&origins), "");
    for _ in 0..12 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    assert_eq!(counts(&origins), [6, 6]);
}

#[test]
fn weights_are_kept() {
    let origins = [Origin::ok(), Origin::ok()];
    let tollgate = Tollgate::start(Config::yaml(format!(
        "workers: 1\nupstreams:\n  a:\n    balance: round_robin\n    endpoints:\n      - {{ url: \"http://{}\", weight: 3 }}\n      - \"http://{}\"\nroutes: [{{ path: /*, upstream: a }}]\n",
        origins[0].address, origins[1].address
    )));
    for _ in 0..12 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    assert_eq!(counts(&origins), [9, 3]);
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
        let mut client = Client::connect(tollgate.address);
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
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
fn what_one_endpoint_refuses_another_one_gets() {
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
fn what_an_endpoint_drops_as_it_ends_another_one_gets() {
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
fn what_an_endpoint_drops_it_gets_again_if_no_other_can_be_reached() {
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
fn what_one_endpoint_does_not_accept_in_time_another_one_gets() {
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
        let mut client = Client::connect(tollgate.address);
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        clients.push(client);
        back.accept().is_ok()
    });
}
