//! An origin's answer that breaks off or can be read in two ways is never completed towards the client.

use std::{io::Read, thread, time::Duration};

use h2::Reason;

use crate::harness::{Client, Config, Origin, Reply, Tollgate, by_http2, get, reset_of};

fn in_front_of(origin: &Origin) -> Tollgate {
    Tollgate::start(Config::new(&[origin.address], ""))
}

/// What a client gets whose origin says `answer` and ends the connection: an answer, or its beginning.
fn said(answer: &str) -> Result<Reply, String> {
    let origin = Origin::saying(answer);
    let tollgate = in_front_of(&origin);
    let mut client = Client::sending(tollgate.address, "GET /a HTTP/1.1\r\nhost: a\r\n\r\n");
    client.try_reply().map_err(|error| error.to_string())
}

#[test]
fn answers_that_break_off_are_never_completed() {
    let answers = [
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nnonsense\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nbad trailer\r\n\r\n",
    ];
    for answer in answers {
        let origin = Origin::saying(answer);
        let tollgate = in_front_of(&origin);
        Client::connect(tollgate.address).send("GET /a HTTP/1.1\r\nhost: a\r\n\r\n").broken_off();
    }
}

#[test]
fn an_http_1_0_client_can_tell_a_broken_answer_from_a_whole_one() {
    for (rest, is_whole) in [("0\r\n\r\n", true), ("", false), ("nonsense\r\n", false)] {
        let answer = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n{rest}");
        let origin = Origin::saying(answer);
        let tollgate = in_front_of(&origin);
        let mut client = Client::sending(tollgate.address, "GET /a HTTP/1.0\r\n\r\n");
        let ended = std::io::Read::read_to_end(&mut client.stream, &mut Vec::new());
        assert_eq!(ended.is_ok(), is_whole, "{rest:?}: {ended:?}");
    }
}

/// All that the origin sent before it broke off arrives, and the client can tell that something is missing: by the length,
/// or by a reset after the last byte.
#[test]
fn an_http_1_0_client_gets_all_of_an_answer_that_ends_short() {
    // More than all buffers on the way hold.
    for size in [0, 5, 10 << 20] {
        for (fields, has_length) in
            [(format!("content-length: {}\r\n", size + 1), true), (String::new(), false)]
        {
            let fields = if has_length { fields } else { "transfer-encoding: chunked\r\n".to_owned() };
            let origin = Origin::start(move |conn| {
                conn.head()?;
                conn.send(format!("HTTP/1.1 200 OK\r\nx-a: b\r\n{fields}\r\n").as_bytes())?;
                if !has_length && size > 0 {
                    conn.send(format!("{size:x}\r\n").as_bytes())?;
                }
                conn.send(&vec![b'x'; size])
            });
            let tollgate = in_front_of(&origin);
            for request in ["GET /a HTTP/1.0\r\n\r\n", "GET /a HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"] {
                let mut client = Client::sending(tollgate.address, request);
                let head = client.head();
                assert_eq!((head.status, head.header("x-a")), (200, Some("b")));
                // The rest waits in the kernels, and beyond them in Tollgate.
                thread::sleep(Duration::from_millis(300));
                let mut body = client.unread().into_bytes();
                let ended = client.stream.read_to_end(&mut body);
                assert_eq!(body.len(), size, "{request:?}, a length: {has_length}, {ended:?}");
                assert_eq!(ended.is_ok(), has_length, "{ended:?}");
            }
        }
    }
}

#[test]
fn answers_that_are_reset_are_never_completed() {
    for framing in
        ["content-length: 10\r\n\r\nhello", "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", "\r\nhello"]
    {
        let origin = Origin::start(move |conn| {
            conn.head()?;
            conn.send(format!("HTTP/1.1 200 OK\r\n{framing}").as_bytes())?;
            // Once the client has its part, the rest is cut off.
            conn.pause()?;
            conn.reset()
        });
        let tollgate = in_front_of(&origin);
        let mut client = Client::sending(tollgate.address, "GET /a HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(client.head().status, 200);
        origin.resume();
        assert!(client.closed());
        assert!(!client.unread().ends_with("0\r\n\r\n"), "{framing:?}: {}", client.unread());
    }
}

#[test]
fn answers_that_are_no_http_are_a_502() {
    let fields = "x: y\r\n".repeat(200);
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    for answer in [
        "",
        "\r\n",
        "hello\r\n\r\n",
        "HTTP/1.1 2OO OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 099 Low\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 2000 High\r\ncontent-length: 0\r\n\r\n",
        "HTTP/2 200 OK\r\ncontent-length: 0\r\n\r\n",
        "ICY 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\ncontent-length: 5, 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: five\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length : 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nx: 1\r\n folded\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nhello",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        &format!(
            "{}HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 102 Processing\r\n\r\n".repeat(9)
        ),
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n",
        &format!("HTTP/1.1 200 OK\r\n{fields}content-length: 0\r\n\r\n"),
        &long,
    ] {
        let start = &answer[..answer.len().min(80)];
        let reply = said(answer).unwrap_or_else(|error| panic!("{start:?}: {error}"));
        assert_eq!(reply.status, 502, "{start:?}: {reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        assert_eq!(reply.json()["status"], 502);
    }
}

#[test]
fn a_length_that_an_answer_says_twice_is_passed_on_once() {
    for fields in ["content-length: 5\r\ncontent-length: 5", "content-length: 5, 5"] {
        let reply = said(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nhello")).unwrap();
        assert_eq!((reply.text().as_str(), reply.all("content-length")), ("hello", vec!["5"]), "{fields:?}");
    }
}

#[test]
fn bytes_behind_an_answer_are_no_answer() {
    let origin = Origin::start(|conn| {
        while conn.head()?.is_some() {
            conn.send(
                b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\npoison!",
            )?;
        }
        Ok(())
    });
    let tollgate = in_front_of(&origin);
    for _ in 0..20 {
        assert_eq!(get(tollgate.address, "/", &[]).text(), "hello");
    }
}

#[test]
fn a_body_where_none_may_be_is_not_the_next_answer() {
    for status in ["204 No Content", "304 Not Modified"] {
        let origin = Origin::start(move |conn| {
            while let Some(head) = conn.head()? {
                if head.starts_with("GET /empty") {
                    let poison = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison";
                    let length = poison.len();
                    conn.send(
                        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{poison}").as_bytes(),
                    )?;
                } else {
                    conn.answer("200 OK", &[], b"mine")?;
                }
            }
            Ok(())
        });
        let tollgate = in_front_of(&origin);
        let mut client = Client::connect(tollgate.address);
        for _ in 0..20 {
            let empty = client.request("GET", "/empty", &[], b"");
            assert_eq!(empty.status.to_string(), status[..3]);
            assert_eq!(client.request("GET", "/", &[], b"").text(), "mine", "{status}");
        }
    }
}

/// HTTP/1 clients pass over it; to those of HTTP/2 the response would be malformed.
#[test]
fn a_response_without_content_has_no_length() {
    let origin = Origin::saying("HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\nhello");
    let tollgate = in_front_of(&origin);
    by_http2(tollgate.address, async |mut client| {
        let reply = client.get("/", &[]).await.unwrap();
        let length = reply.head.headers().get("content-length");
        assert_eq!((reply.status(), length, reply.body.len()), (204, None, 0));
    });
    assert_eq!(get(tollgate.address, "/", &[]).header("content-length"), None);
}

#[test]
fn an_answer_to_head_keeps_its_length_and_has_no_body() {
    let origin = Origin::start(|conn| {
        while conn.head()?.is_some() {
            conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")?;
        }
        Ok(())
    });
    let tollgate = in_front_of(&origin);
    let mut client = Client::connect(tollgate.address);
    for _ in 0..3 {
        assert_eq!(client.request("HEAD", "/", &[], b"").header("content-length"), Some("1000"));
    }
}

#[test]
fn interim_answers_are_not_taken_for_the_answer() {
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n";
    let mut reply = said(&format!("{interim}HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")).unwrap();
    reply.headers.retain(|(name, _)| name == "link");
    assert_eq!((reply.status, reply.text().as_str(), reply.headers.len()), (200, "ok", 0));
}

#[test]
fn interim_answers_are_no_answer() {
    let origin = Origin::start(|conn| {
        conn.head()?;
        for _ in 0..8 {
            conn.send(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")?;
        }
        conn.pause()
    });
    let tollgate = Tollgate::start(Config::upstream(&[origin.address], "timeouts: { response: 200ms }", ""));
    assert_eq!(get(tollgate.address, "/", &[]).status, 504);
}

#[test]
fn http_1_0_answers_are_passed_on_as_1_1() {
    for (fields, length) in [("content-length: 5\r\n", Some("5")), ("", None)] {
        let reply = said(&format!("HTTP/1.0 200 OK\r\n{fields}\r\nhello")).unwrap();
        assert_eq!((reply.text().as_str(), reply.header("content-length")), ("hello", length));
        assert_eq!(reply.header("via"), Some("1.0 tollgate"));
    }
}

#[test]
fn an_http_1_0_client_gets_no_chunks() {
    let origin =
        Origin::saying("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    let tollgate = in_front_of(&origin);
    let mut client = Client::sending(tollgate.address, "GET / HTTP/1.0\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.text().as_str(), reply.header("transfer-encoding")), ("hello", None));
}

#[test]
fn the_head_of_an_answer_whose_body_breaks_off_at_once_comes_all_the_same() {
    for (part, rest) in [
        ("content-length: 50\r\n\r\n", ""),
        ("transfer-encoding: chunked\r\n\r\n", ""),
        ("content-length: 50\r\n\r\nhello", "hello"),
        ("transfer-encoding: chunked\r\n\r\nnonsense", ""),
    ] {
        let origin = Origin::saying(format!("HTTP/1.1 500 Internal Server Error\r\nx-a: 1\r\n{part}"));
        let tollgate = in_front_of(&origin);
        for number in 0..20 {
            let mut client = Client::sending(tollgate.address, "GET /a HTTP/1.1\r\nhost: a\r\n\r\n");
            let head = client.try_head();
            let head = head.unwrap_or_else(|error| panic!("{part:?}, {number}: {error}"));
            assert_eq!((head.status, head.header("x-a")), (500, Some("1")), "{part:?}");
            assert_eq!(String::from_utf8_lossy(&client.rest()), rest, "{part:?}");
        }
        by_http2(tollgate.address, async |mut client| {
            for number in 0..20 {
                let (answer, _) = client.send("GET", "/a", &[], true).await.unwrap();
                let answer = answer.await.unwrap_or_else(|error| panic!("{part:?}, {number}: {error}"));
                assert_eq!(answer.status(), 500, "{part:?}");
                assert_eq!(reset_of(answer.into_body()).await, Some(Reason::INTERNAL_ERROR), "{part:?}");
            }
        });
    }
}
