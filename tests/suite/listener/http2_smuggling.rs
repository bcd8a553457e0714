//! What HTTP/2 can say and HTTP/1 would read otherwise: the origin, which reads strictly, gets none of it.
//!
//! The lists are those of RFC 9113, 8.2 and 8.3, and what http2smugl tries: spaces, line breaks and letters of Unicode that
//! hide `Content-Length` and `Transfer-Encoding`.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use crate::harness::{
    Config, Origin, Tollgate, eventually,
    frames::{
        CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameClient, HEADERS, Outcome, PADDED, block, frame,
    },
};

type Field = (Vec<u8>, Vec<u8>);

fn field(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Field {
    (name.as_ref().to_vec(), value.as_ref().to_vec())
}

fn coded(fields: &[Field]) -> Vec<u8> {
    block(&fields.iter().map(|(name, value)| (&**name, &**value)).collect::<Vec<_>>())
}

/// The fields that a request begins with.
fn pseudo(method: &str) -> Vec<Field> {
    vec![
        field(":method", method),
        field(":scheme", "http"),
        field(":path", "/"),
        field(":authority", "a.example"),
    ]
}

/// What an origin was told, message by message: its head, and its body.
type Told = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// An origin that reads strictly, and notes what came whole.
fn strict_origin() -> (Origin, Told) {
    let told = Told::default();
    let notes = Arc::clone(&told);
    let origin = Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            let (body, _) = conn.body(&head)?;
            notes.lock().unwrap().push((head, body));
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    (origin, told)
}

/// What comes of a request of these fields, and of DATA frames.
fn ask(address: SocketAddr, fields: &[Field], data: &[&[u8]]) -> Outcome {
    let mut client = FrameClient::connect(address);
    let flags = if data.is_empty() { END_HEADERS | END_STREAM } else { END_HEADERS };
    let mut frames = frame(HEADERS, flags, 1, &coded(fields));
    for (place, bytes) in data.iter().enumerate() {
        let is_last = place + 1 == data.len();
        frames.extend(frame(DATA, if is_last { END_STREAM } else { 0 }, 1, bytes));
    }
    client.send(&frames);
    client.outcome(1)
}

/// Whether a request came to nothing.
fn is_refused(outcome: Outcome) -> bool {
    // PROTOCOL_ERROR, or COMPRESSION_ERROR for what no field can be.
    matches!(outcome, Outcome::Status(400) | Outcome::Reset(1) | Outcome::GoAway(1 | 9))
}

/// Fields that no request may have.
fn refused_fields() -> Vec<Field> {
    let mut all = Vec::new();
    // Names: whatever is no token in lower case.
    let in_names = (0..=255_u8).filter(|byte| {
        !(byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(byte))
    });
    for byte in in_names {
        for name in [vec![byte], vec![byte, b'a'], vec![b'a', byte], vec![b'a', byte, b'a']] {
            all.push((name, b"1".to_vec()));
        }
    }
    all.push(field("", "1"));
    // Values: control characters anywhere, and white space at an end.
    for byte in (0..32_u8).filter(|byte| *byte != b'\t').chain([127]) {
        for value in [vec![byte], vec![byte, b'a'], vec![b'a', byte], vec![b'a', byte, b'a']] {
            all.push((b"x-a".to_vec(), value));
        }
    }
    all.extend([" a", "a ", "\ta", "a\t", " ", "\t"].map(|value| field("x-a", value)));
    // What belongs to a connection of HTTP/1.
    for (name, value) in [
        ("connection", "close"),
        ("connection", "x-a"),
        ("connection", "transfer-encoding"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("transfer-encoding", "chunked"),
        ("transfer-encoding", "identity"),
        ("transfer-encoding", ""),
        ("upgrade", "h2c"),
        ("upgrade", "websocket"),
        ("te", "gzip"),
        ("te", "trailers, deflate"),
        ("te", "trailers;q=0.5"),
        ("host", "b.example"),
        ("host", "a.example, b.example"),
        ("host", "user@a.example"),
        ("host", ""),
        (":path", "/again"),
        (":authority", "b.example"),
        (":method", "GET"),
        (":scheme", "http"),
        (":status", "200"),
        (":protocol", "websocket"),
        (":unknown", "1"),
        (":", "1"),
    ] {
        all.push(field(name, value));
    }
    for length in [
        "-1",
        "+5",
        "0x5",
        "5a",
        " 5",
        "5 ",
        "5,5",
        "5, 5",
        "5, 6",
        "4;5",
        "1e1",
        "٥",
        "",
        "5.0",
        "18446744073709551616",
        "99999999999999999999999999",
    ] {
        all.push(field("content-length", length));
    }
    // Hidden behind a line break, as http2smugl hides them.
    for line_break in ["\r\n", "\r", "\n"] {
        for (name, value) in
            [("transfer-encoding", "chunked"), ("content-length", "1"), ("content-length", "-1")]
        {
            for fake in ["header", " header", "x-forwarded-for"] {
                all.push(field(fake, format!("val{line_break}{name}:{value}")));
            }
            for fake in ["x", "x:"] {
                all.push(field(format!("{fake}{line_break}{name}"), value));
            }
        }
    }
    for space in ["\0", " ", "\t", "\u{b}", "\u{85}", "\u{a0}", "\u{130ba}"] {
        for (name, value) in [("transfer-encoding", "chunked"), ("content-length", "1")] {
            all.push(field(format!("{name}{space}"), value));
            all.push(field(format!("{space}{name}"), value));
        }
    }
    all.push(field("tran\u{17f}fer-encoding", "chunked"));
    all.push(field("transfer-encoding", "chun\u{212a}ed"));
    all
}

#[test]
fn fields_that_http_1_could_misread_are_refused() {
    let (origin, told) = strict_origin();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut passed = Vec::new();
    for bad in refused_fields() {
        let shown = format!("{:?}: {:?}", String::from_utf8_lossy(&bad.0), String::from_utf8_lossy(&bad.1));
        for method in ["GET", "POST"] {
            let mut fields = pseudo(method);
            fields.push(bad.clone());
            let data: &[&[u8]] = if method == "POST" { &[b"0\r\n\r\n"] } else { &[] };
            let outcome = ask(tollgate.address, &fields, data);
            if !is_refused(outcome) {
                passed.push(format!("{method} {shown}: {outcome:?}"));
            }
        }
    }
    assert!(passed.is_empty(), "{passed:#?}");
    assert_eq!(*told.lock().unwrap(), []);
    assert!(origin.received().iter().all(String::is_empty), "{:?}", origin.received());
}

#[test]
fn requests_that_do_not_say_what_they_ask_for_are_refused() {
    let (origin, told) = strict_origin();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let with = |name: &str, value: &str| {
        let mut fields = pseudo("GET");
        fields.iter_mut().find(|(of, _)| of == name.as_bytes()).unwrap().1 = value.as_bytes().to_vec();
        fields
    };
    let mut all = Vec::new();
    for path in [
        "",
        "a",
        "*",
        "?a",
        "a.example:80",
        "http://b.example/",
        "/ ",
        "/a b",
        " /",
        "/\t",
        "/\0",
        "/\u{7f}",
        "/\r\n",
        "/ HTTP/1.1\r\ntransfer-encoding: chunked\r\nx: ",
        "/ HTTP/1.1\ncontent-length: 1\nx: ",
        "/\rx",
        "/\u{b}",
    ] {
        all.push((path, with(":path", path)));
    }
    for method in [
        "",
        " ",
        "GET ",
        " GET",
        "GET /",
        "GET / HTTP/1.1\r\nx: ",
        "GET\n",
        "G\0T",
        "G:T",
        "G,T",
        "(GET)",
        "GÉT",
    ] {
        all.push((method, with(":method", method)));
    }
    for scheme in [
        "",
        " ",
        "ht tp",
        "http://",
        "http:",
        "http\r\n",
        "ftp",
        "javascript",
        "file",
        "http,https",
        "1http",
        "é",
    ] {
        all.push((scheme, with(":scheme", scheme)));
    }
    for authority in [
        "",
        "user@a.example",
        "user:password@a.example",
        "@a.example",
        "a b",
        "a.example ",
        " a.example",
        "a\r\nx: b",
        "a\nb",
        "a\0",
        "a/b",
        "a?b",
        "a#b",
        "a:99999",
        "a:b",
        "a:80:80",
        "[::1",
        "::1",
        "a,b",
        "a%00",
        "é",
        "http://a.example",
    ] {
        all.push((authority, with(":authority", authority)));
    }
    for missing in [":method", ":scheme", ":path", ":authority"] {
        let fields = pseudo("GET").into_iter().filter(|(name, _)| name != missing.as_bytes()).collect();
        all.push((missing, fields));
    }
    // Behind other fields, or more than once.
    for late in 0..4 {
        let mut fields = pseudo("GET");
        let moved = fields.remove(late);
        fields.extend([field("x-a", "1"), moved]);
        all.push(("late", fields));
    }
    for (name, value) in [("host", "a.example"), ("host", "b.example")] {
        let mut fields = pseudo("GET");
        fields.extend([field("host", "a.example"), field(name, value)]);
        all.push(("Host twice", fields));
    }
    let mut neither = pseudo("GET");
    neither.pop();
    all.push(("neither Host nor :authority", neither.clone()));
    neither.push(field("host", "a.example"));
    assert_eq!(
        ask(tollgate.address, &neither, &[]),
        Outcome::Status(200),
        "HTTP/1 translated has Host alone"
    );
    assert_eq!(told.lock().unwrap().drain(..).count(), 1);
    let mut passed = Vec::new();
    for (what, fields) in all {
        let outcome = ask(tollgate.address, &fields, &[]);
        if !is_refused(outcome) {
            passed.push(format!("{what:?} of {:?}: {outcome:?}", String::from_utf8_lossy(&coded(&fields))));
        }
    }
    assert!(passed.is_empty(), "{passed:#?}");
    assert_eq!(*told.lock().unwrap(), []);
    // h2 leaves out a fragment, which no path has (RFC 9113, 8.3.1): the origin does not see it.
    assert_eq!(ask(tollgate.address, &with(":path", "/a#b"), &[]), Outcome::Status(200));
    assert!(told.lock().unwrap().pop().unwrap().0.starts_with("GET /a HTTP/1.1\r\n"));
    // Tunnels: none is opened, with whatever they are asked for.
    for rest in [
        vec![field(":authority", "a.example:443")],
        vec![],
        vec![field(":scheme", "http"), field(":path", "/"), field(":authority", "a.example")],
        vec![field(":authority", "a.example:443"), field(":protocol", "websocket")],
        vec![field(":authority", "a.example:443"), field("content-length", "5")],
        vec![field(":authority", "user@a.example:443")],
    ] {
        let mut fields = vec![field(":method", "CONNECT")];
        fields.extend(rest);
        let outcome = ask(tollgate.address, &fields, &[]);
        let is_tunnel = matches!(outcome, Outcome::Status(..=299));
        assert!(!is_tunnel, "{:?}: {outcome:?}", String::from_utf8_lossy(&coded(&fields)));
    }
    assert_eq!(*told.lock().unwrap(), []);
}

/// What a length says against what comes: the origin never gets a message that the client has not ended there.
#[test]
fn bodies_are_as_long_as_they_are_said_to_be() {
    let (origin, told) = strict_origin();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let length = |value| vec![field("content-length", value)];
    let long = vec![b'x'; 16_000];
    for (what, fields, data) in [
        ("fewer bytes", length("5"), vec![&b"1234"[..]]),
        ("more bytes", length("3"), vec![b"1234"]),
        ("more bytes, later", length("3"), vec![b"12", b"34"]),
        ("none", length("5"), vec![]),
        ("none, by an empty frame", length("5"), vec![b""]),
        ("some for none", length("0"), vec![b"1"]),
        ("two that differ", vec![field("content-length", "4"), field("content-length", "5")], vec![b"1234"]),
        (
            "two that differ, the other way",
            vec![field("content-length", "5"), field("content-length", "4")],
            vec![b"1234"],
        ),
        ("a chunked body by its look", length("4"), vec![b"0\r\n\r\n"]),
        ("many, but fewer", length("100000"), vec![&long, &long]),
        ("many, but more", length("20000"), vec![&long, &long]),
    ] {
        let mut all = pseudo("POST");
        all.extend(fields);
        let outcome = ask(tollgate.address, &all, &data);
        assert!(is_refused(outcome), "{what}: {outcome:?}");
        eventually(what, || {
            origin.open_connections() == 0
                || origin.received().iter().all(|all| !all.contains("POST") || all.ends_with("ok"))
        });
        assert_eq!(*told.lock().unwrap(), [], "{what}");
    }
    for (fields, data, seen) in [
        (length("4"), vec![&b"1234"[..]], b"1234"),
        (length("4"), vec![b"1", b"", b"234", b""], b"1234"),
        (vec![], vec![b"12", b"34"], b"1234"),
        // RFC 9110, 8.6: the same twice is once.
        (vec![field("content-length", "4"), field("content-length", "4")], vec![b"1234"], b"1234"),
    ] {
        let mut all = pseudo("POST");
        all.extend(fields.clone());
        assert_eq!(ask(tollgate.address, &all, &data), Outcome::Status(200), "{fields:?}");
        let (head, body) = told.lock().unwrap().pop().unwrap();
        assert_eq!(body, seen);
        let of = |name: &str| head.to_lowercase().matches(&format!("\r\n{name}:")).count();
        assert_eq!(of("content-length") + of("transfer-encoding"), 1, "{head}");
    }
}

#[test]
fn trailers_are_no_second_head() {
    let (origin, told) = strict_origin();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let post = frame(HEADERS, END_HEADERS, 1, &coded(&pseudo("POST")));
    let body = frame(DATA, 0, 1, b"1234");
    for (trailers, flags) in [
        (vec![field("transfer-encoding", "chunked")], END_STREAM),
        (vec![field("connection", "close")], END_STREAM),
        (vec![field("A", "1")], END_STREAM),
        (vec![field("a", "1\r\nb: 2")], END_STREAM),
        (vec![field("a:", "1")], END_STREAM),
        // They end the stream.
        (vec![field("a", "1")], 0),
    ] {
        let mut client = FrameClient::connect(tollgate.address);
        client.send(&[&post[..], &body, &frame(HEADERS, END_HEADERS | flags, 1, &coded(&trailers))].concat());
        let outcome = client.outcome(1);
        assert!(is_refused(outcome), "{trailers:?}: {outcome:?}");
        assert_eq!(*told.lock().unwrap(), [], "{trailers:?}");
    }
    // h2 drops pseudo-header fields of trailers, which make a request malformed (RFC 9113, 8.1): nobody sees them.
    for trailers in [
        vec![field(":path", "/other")],
        vec![field(":method", "DELETE")],
        vec![field("content-length", "9")],
        vec![field("host", "b.example")],
        vec![field("x-forwarded-for", "1")],
    ] {
        let mut client = FrameClient::connect(tollgate.address);
        client.send(
            &[&post[..], &body, &frame(HEADERS, END_HEADERS | END_STREAM, 1, &coded(&trailers))].concat(),
        );
        assert_eq!(client.outcome(1), Outcome::Status(200), "{trailers:?}");
        let (head, body) = told.lock().unwrap().pop().unwrap();
        assert_eq!(body, b"1234");
        let head = head.to_lowercase();
        assert!(!head.contains("b.example") && !head.contains("content-length: 9"), "{head}");
    }
    let received = origin.received().concat();
    assert!(!received.contains("content-length: 9") && !received.contains("b.example"), "{received}");
}

/// However the same request is cut into frames, it is one request.
#[test]
fn frames_are_no_part_of_the_message() {
    let (origin, told) = strict_origin();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut fields = pseudo("POST");
    fields.push(field("x-a", "b"));
    let head = coded(&fields);
    for step in [1, 3, 40, head.len()] {
        // A few CONTINUATION frames are no flood.
        let parts: Vec<_> = if step < 30 {
            let (first, last) = head.split_at(head.len() - 3 * step);
            std::iter::once(first).chain(last.chunks(step)).collect()
        } else {
            head.chunks(step).collect()
        };
        let mut frames = Vec::new();
        for (place, part) in parts.iter().enumerate() {
            let kind = if place == 0 { HEADERS } else { CONTINUATION };
            let flags = if place + 1 == parts.len() { END_HEADERS } else { 0 };
            frames.extend(frame(kind, flags, 1, part));
        }
        for padding in [0_u8, 1, 255] {
            let padded = [&[padding][..], b"12", &vec![0; usize::from(padding)]].concat();
            frames.extend(frame(DATA, PADDED, 1, &padded));
        }
        frames.extend(frame(DATA, END_STREAM, 1, b""));
        let mut client = FrameClient::connect(tollgate.address);
        client.send(&frames);
        assert_eq!(client.outcome(1), Outcome::Status(200), "{step}");
        let (head, body) = told.lock().unwrap().pop().unwrap();
        assert!(head.starts_with("POST / HTTP/1.1\r\n") && head.contains("\r\nx-a: b"), "{head}");
        assert_eq!(body, b"121212");
    }
}

/// What an origin says about a message without a body does not end up in one.
#[test]
fn answers_that_have_no_body_get_none() {
    for (method, answer) in [
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\nhello"),
        ("GET", "HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\nhello"),
        ("GET", "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\nhello"),
    ] {
        let origin = Origin::saying(answer);
        let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
        let mut client = FrameClient::connect(tollgate.address);
        client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &coded(&pseudo(method))));
        let mut data = Vec::new();
        let mut is_ended = false;
        while !is_ended {
            let frame = client.next().unwrap_or_else(|| panic!("{method} {answer:?} ends"));
            if frame.stream == 1 {
                assert!(frame.kind == HEADERS || frame.kind == DATA, "{method} {answer:?}: {}", frame.kind);
                is_ended = frame.flags & END_STREAM != 0;
                if frame.kind == DATA {
                    data.extend(frame.payload);
                }
            }
        }
        assert_eq!(data, b"", "{method} {answer:?}");
    }
}
