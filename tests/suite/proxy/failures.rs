//! Origins that can't be reached, break off, or talk nonsense.

use std::{io, net::SocketAddr};

use super::{assert_problem, before, nobody, one_worker};
use crate::harness::{Client, Config, Conn, Origin, Tollgate, eventually, get};

#[test]
fn nobody_listens() {
    let nobody: [SocketAddr; 2] = [nobody(), nobody()];
    let tollgate = Tollgate::start(Config::new(&nobody, ""));
    assert_problem(&get(tollgate.address, "/", &[]), 502, &nobody);
}

#[test]
fn after_a_failure_the_client_s_connection_goes_on() {
    let tollgate = Tollgate::start(Config::new(&[nobody()], ""));
    let mut client = Client::connect(tollgate.address);
    for _ in 0..3 {
        assert_eq!(client.request("GET", "/", &[], b"").status, 502);
    }
}

fn reads_and_closes(conn: &mut Conn) -> io::Result<()> {
    conn.head().map(drop)
}

#[test]
fn a_new_connection_that_breaks_before_the_answer_is_not_tried_again() {
    let origin = Origin::start(reads_and_closes);
    let tollgate = before(&origin);
    for method in ["GET", "POST"] {
        let reply = Client::connect(tollgate.address).request(method, "/", &[], b"");
        assert_problem(&reply, 502, &[origin.address]);
    }
    assert_eq!(origin.heads().len(), 2);
}

#[test]
fn an_answer_that_is_not_http_is_a_502() {
    for nonsense in [
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 999999 Odd\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ] {
        let origin = Origin::start(move |conn| {
            conn.head()?;
            conn.send(nonsense.as_bytes())
        });
        let tollgate = before(&origin);
        assert_problem(&get(tollgate.address, "/", &[]), 502, &[origin.address]);
    }
}

#[test]
fn a_head_that_is_too_long_is_said_to_be() {
    for (lines, length, is_passed) in [(90, 100, true), (101, 1, false), (90, 5_000, false)] {
        let origin = Origin::start(move |conn| {
            conn.head()?;
            let lines: String = (0..lines).map(|n| format!("x-{n}: {}\r\n", "v".repeat(length))).collect();
            conn.send(format!("HTTP/1.1 200 OK\r\n{lines}content-length: 2\r\n\r\nok").as_bytes())
        });
        let tollgate = before(&origin);
        assert_eq!(get(tollgate.address, "/", &[]).status, if is_passed { 200 } else { 502 });
        let told = "its response has more than 100 header lines, or more than 64 KiB of them";
        let says = || tollgate.has_logged(&[told]);
        if !is_passed {
            eventually("it is logged", says);
        }
        assert!(!tollgate.log().join("\n").contains("https"), "{:?}", tollgate.log());
    }
}

#[test]
fn an_answer_that_breaks_off_is_never_completed() {
    for half in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
    ] {
        let origin = Origin::start(move |conn| {
            conn.head()?;
            conn.send(half.as_bytes())
        });
        let tollgate = before(&origin);
        let mut client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert!(client.try_reply().is_err(), "a whole answer");
        assert!(client.closed());
    }
}

#[test]
fn a_broken_answer_s_connection_is_not_used_again() {
    let origin = Origin::start(|conn| {
        conn.head()?;
        // More than was announced: a second answer that nobody asked for.
        conn.send(
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
        )?;
        conn.closed();
        Ok(())
    });
    let tollgate = one_worker(&[origin.address], "");
    for _ in 0..3 {
        assert_eq!(get(tollgate.address, "/", &[]).text(), "ok");
    }
}
