//! `Expect: 100-continue`: the body is asked for when the origin wants it.

use std::time::{Duration, Instant};

use super::before;
use crate::harness::{Client, Latch, Origin, quickest};

/// Below the time for which an origin's 100 is waited for.
const AT_ONCE: Duration = Duration::from_millis(900);

const HEAD: &str = "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";

#[test]
fn the_body_is_asked_for_when_the_origin_says_100() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            assert!(head.contains("expect: 100-continue"), "{head}");
            conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            let (body, _) = conn.body(&head)?;
            conn.answer("200 OK", &[], &body)?;
        }
        Ok(())
    });
    let tollgate = before(&origin);
    let took = quickest(|| {
        let mut client = Client::connect(tollgate.address);
        let begun = Instant::now();
        assert_eq!(client.send(HEAD).reply().status, 100);
        let took = begun.elapsed();
        assert_eq!(client.send("body").reply().text(), "body");
        took
    });
    assert!(took < AT_ONCE, "the origin's 100 was waited for in vain");
}

#[test]
fn an_origin_that_refuses_at_once_never_has_the_body_asked_for() {
    for status in ["401 Unauthorized", "417 Expectation Failed"] {
        let ended = Latch::new();
        let end = ended.clone();
        let origin = Origin::start(move |conn| {
            conn.head()?;
            conn.answer(status, &[], b"no")?;
            assert_eq!(conn.rest(), b"", "the body was sent on");
            end.open();
            Ok(())
        });
        let tollgate = before(&origin);
        let mut client = Client::connect(tollgate.address);
        let reply = client.send(HEAD).reply();
        assert_eq!(format!("{} {}", reply.status, reply.reason), status);
        assert_eq!((reply.text().as_str(), reply.header("connection")), ("no", Some("close")));
        assert!(client.closed(), "or the client would not know whether to send the body");
        ended.wait();
    }
}

#[test]
fn an_origin_that_knows_no_expectation_gets_the_body_after_a_while() {
    let origin = Origin::ok();
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    let begun = Instant::now();
    assert_eq!(client.send(HEAD).reply().status, 100);
    assert!(begun.elapsed() > Duration::from_millis(500), "the origin had no time to answer");
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(client.send("body").reply().text(), "ok");
}

#[test]
fn a_client_that_does_not_wait_is_served_too() {
    let origin = Origin::echo();
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    client.send(HEAD).send("body");
    let mut reply = client.reply();
    if reply.status == 100 {
        reply = client.reply();
    }
    assert_eq!(reply.json()["body"], "body");
}

/// RFC 9110, 10.1.1: such an expectation is ignored, since no 100 may be sent.
#[test]
fn http_1_0_has_no_expectations() {
    let origin = Origin::echo();
    let tollgate = before(&origin);
    let took = quickest(|| {
        let mut client = Client::connect(tollgate.address);
        let begun = Instant::now();
        client.send(HEAD.replace("1.1", "1.0")).send("body");
        let reply = client.reply();
        assert_eq!(reply.status, 200);
        assert_eq!(reply.json()["body"], "body");
        begun.elapsed()
    });
    assert!(took < AT_ONCE, "a 100 was waited for");
}

#[test]
fn an_expectation_without_a_body_holds_nothing_up() {
    let origin = Origin::ok();
    let tollgate = before(&origin);
    let took = quickest(|| {
        let begun = Instant::now();
        let reply = Client::connect(tollgate.address).request("GET", "/", &[("expect", "100-continue")], b"");
        assert_eq!(reply.text(), "ok");
        begun.elapsed()
    });
    assert!(took < AT_ONCE, "a 100 was waited for");
}

#[test]
fn empty_expectations_are_none() {
    let origin = Origin::echo();
    let tollgate = before(&origin);
    let post =
        |expect: &str| Client::connect(tollgate.address).request("POST", "/", &[("expect", expect)], b"body");
    for expect in ["100-continue,", ", 100-continue ,,", ",", ""] {
        assert_eq!(post(expect).json()["body"], "body", "{expect}");
    }
    for expect in ["100-continue, 200-maybe", ", 200-maybe"] {
        assert_eq!(post(expect).status, 417, "{expect}");
    }
}
