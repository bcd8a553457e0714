//! Methods, versions, fields, bodies: what arrives is what was sent.

use super::before;
use crate::harness::{Client, Origin, get, request};

/// Answers every request with these bytes, and closes.
fn says(answer: &'static [u8]) -> Origin {
    Origin::start(move |conn| {
        let Some(head) = conn.head()? else { return Ok(()) };
        conn.body(&head)?;
        conn.send(answer)
    })
}

#[test]
fn every_method_passes_with_and_without_a_body() {
    let origin = Origin::echo();
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    for method in ["GET", "OPTIONS", "PATCH", "DELETE", "PUT", "POST", "PROPFIND", "M-SEARCH", "x!"] {
        for body in ["", "a body"] {
            let seen = client.request(method, "/a?b=c", &[], body.as_bytes()).json();
            assert_eq!((&seen["method"], &seen["target"]), (&method.into(), &"/a?b=c".into()));
            assert_eq!(seen["body"], body, "{method}");
        }
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn an_empty_post_keeps_its_length() {
    let origin = Origin::echo();
    let tollgate = before(&origin);
    let reply = request(tollgate.address, "POST", "/", &[("content-length", "0")], b"");
    assert_eq!(reply.status, 200);
    let head = &origin.heads()[0];
    assert!(head.contains("content-length: 0"), "{head}");
    assert!(!head.contains("transfer-encoding"), "{head}");
}

/// Answers every request on a connection with these bytes.
fn repeats(answer: &'static str) -> Origin {
    Origin::start(move |conn| {
        while conn.head()?.is_some() {
            conn.send(answer.as_bytes())?;
        }
        Ok(())
    })
}

#[test]
fn an_answer_to_head_has_the_length_and_no_body() {
    for (answer, length) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n", Some("1234")),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", None),
        ("HTTP/1.1 200 OK\r\n\r\n", None),
    ] {
        let origin = repeats(answer);
        let tollgate = before(&origin);
        let mut client = Client::connect(tollgate.address);
        for _ in 0..3 {
            let reply = client.request("HEAD", "/", &[], b"");
            assert_eq!((reply.status, reply.header("content-length")), (200, length), "{answer}");
        }
        assert_eq!(origin.connections(), 1, "{answer}");
    }
}

#[test]
fn answers_without_a_body_end_with_their_head() {
    for (answer, status) in [
        ("HTTP/1.1 204 No Content\r\netag: \"x\"\r\n\r\n", 204),
        ("HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\n\r\n", 304),
        ("HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\ncontent-length: 99\r\n\r\n", 304),
    ] {
        let origin = repeats(answer);
        let tollgate = before(&origin);
        let mut client = Client::connect(tollgate.address);
        for _ in 0..3 {
            let reply = client.request("GET", "/", &[("if-none-match", "\"x\"")], b"");
            assert_eq!((reply.status, reply.header("etag")), (status, Some("\"x\"")), "{answer}");
            assert_ne!(reply.header("content-length"), Some("0"), "{answer}");
            assert_eq!(reply.header("transfer-encoding"), None, "{answer}");
        }
        assert_eq!(origin.connections(), 1, "{answer}");
    }
}

#[test]
fn an_http_1_0_client_is_answered_as_it_expects() {
    let origin = says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n");
    let tollgate = before(&origin);
    let mut client = Client::sending(tollgate.address, "GET / HTTP/1.0\r\n\r\n");
    assert!(client.line().unwrap().starts_with("HTTP/1.0 200"));
    let mut rest = Vec::new();
    while let Ok(line) = client.line() {
        rest.push(line.to_ascii_lowercase());
    }
    assert!(!rest.iter().any(|line| line.starts_with("transfer-encoding")), "{rest:?}");
    assert_eq!(client.rest(), b"abc");
    assert!(origin.heads()[0].starts_with("GET / HTTP/1.1\r\n"));
    assert!(origin.heads()[0].contains("host: "));
}

#[test]
fn an_http_1_0_client_may_keep_its_connection() {
    let origin = Origin::ok();
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    for _ in 0..3 {
        let reply = client.send("GET / HTTP/1.0\r\nhost: a\r\nconnection: keep-alive\r\n\r\n").reply();
        assert_eq!(reply.text(), "ok");
        assert_eq!(reply.header("connection"), Some("keep-alive"));
    }
}

#[test]
fn an_http_1_0_client_that_does_not_ask_is_disconnected() {
    let origin = Origin::ok();
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    assert_eq!(client.send("GET / HTTP/1.0\r\nhost: a\r\n\r\n").reply().text(), "ok");
    assert!(client.closed());
}

#[test]
fn an_http_1_0_origin_s_answer_ends_with_its_connection() {
    let origin = says(b"HTTP/1.0 200 OK\r\nserver: old\r\n\r\nall of it");
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    for _ in 0..3 {
        let reply = client.request("GET", "/", &[], b"");
        assert_eq!(reply.text(), "all of it");
        assert_eq!(reply.header("via"), Some("1.0 tollgate"));
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let origin = Origin::echo();
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    let requests: String =
        (0..20).map(|n| format!("POST /{n} HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody")).collect();
    client.send(requests);
    for number in 0..20 {
        assert_eq!(client.reply().json()["target"], format!("/{number}"));
    }
}

#[test]
fn many_and_long_fields_pass_in_both_directions() {
    let origin = Origin::start(|conn| {
        while conn.head()?.is_some() {
            let fields: Vec<_> = (0..80).map(|n| (format!("x-{n}"), "v".repeat(300))).collect();
            let fields: Vec<_> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
            conn.answer("200 OK", &fields, b"ok")?;
        }
        Ok(())
    });
    let tollgate = before(&origin);
    let long = "l".repeat(20_000);
    let mut fields = vec![("x-long".to_owned(), long.as_str())];
    fields.extend((0..80).map(|n| (format!("x-{n}"), "value")));
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let reply = get(tollgate.address, "/", &fields);
    assert_eq!(reply.text(), "ok");
    assert!((0..80).all(|n| reply.header(&format!("x-{n}")).is_some_and(|value| value.len() == 300)));
    let head = &origin.heads()[0];
    assert!(head.contains(&long) && (0..80).all(|n| head.contains(&format!("x-{n}: value"))));
}

#[test]
fn bytes_beyond_ascii_pass_in_field_values() {
    let origin = Origin::start(|conn| {
        let head = conn.head_bytes()?;
        let echoed = head.split(|&byte| byte == b'\n').find(|line| line.starts_with(b"x-name:")).unwrap();
        conn.send(&[b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n", echoed, b"\n\r\n"].concat())
    });
    let tollgate = before(&origin);
    let mut client = Client::connect(tollgate.address);
    client.send(b"GET / HTTP/1.1\r\nhost: a\r\nx-name: J\xfcrgen \xc3\xa9\r\nconnection: close\r\n\r\n");
    let rest = client.rest();
    assert!(rest.windows(9).any(|bytes| bytes == b"J\xfcrgen \xc3\xa9"), "{}", rest.escape_ascii());
}

#[test]
fn the_origin_s_own_words_are_kept() {
    let origin = says(
        b"HTTP/1.1 299 Quite Fine\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\nserver: mine\r\ncontent-length: 0\r\n\r\n",
    );
    let tollgate = before(&origin);
    let reply = get(tollgate.address, "/", &[]);
    assert_eq!((reply.status, reply.reason.as_str()), (299, "Quite Fine"));
    assert_eq!(reply.all("date"), ["Thu, 01 Jan 1970 00:00:00 GMT"]);
    assert_eq!(reply.all("server"), ["mine"]);
}

#[test]
fn a_date_is_added_where_the_origin_has_none() {
    let origin = Origin::ok();
    let tollgate = before(&origin);
    let reply = get(tollgate.address, "/", &[]);
    assert_eq!(reply.all("date").len(), 1);
    assert_eq!(reply.header("server"), None);
}

#[test]
fn repeated_fields_stay_apart_and_in_order() {
    let origin = says(
        b"HTTP/1.1 200 OK\r\nset-cookie: a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT\r\nset-cookie: b=2\r\nset-cookie: c=3\r\ncontent-length: 0\r\n\r\n",
    );
    let tollgate = before(&origin);
    let reply = get(tollgate.address, "/", &[("x-a", "1"), ("x-a", "2")]);
    assert_eq!(reply.all("set-cookie"), ["a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "b=2", "c=3"]);
    assert!(origin.heads()[0].contains("x-a: 1\r\nx-a: 2"));
}

#[test]
fn encoded_bodies_pass_as_they_are() {
    let origin =
        says(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x8b\x08\x00");
    let tollgate = before(&origin);
    let reply = get(tollgate.address, "/", &[("accept-encoding", "gzip, br")]);
    assert_eq!(reply.body, b"\x1f\x8b\x08\x00");
    assert_eq!(reply.header("content-encoding"), Some("gzip"));
    assert!(origin.heads()[0].contains("accept-encoding: gzip, br"));
}
