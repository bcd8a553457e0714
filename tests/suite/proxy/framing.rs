//! Where a request ends must have one answer: what leaves room for two is refused, or reaches the
//! origin framed anew, as one message.

use crate::harness::{Client, Config, Origin, Reply, Tollgate, eventually};

/// Clients hide this in a body, or behind one, to have it taken for a request.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";

fn start() -> (Origin, Tollgate) {
    let origin = Origin::echo();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    (origin, tollgate)
}

/// Sends `bytes` over a connection of their own, followed by [`SMUGGLED`].
#[track_caller]
fn answer(tollgate: &Tollgate, bytes: &str) -> (Reply, Client) {
    let mut client = Client::sending(tollgate.address, format!("{bytes}{SMUGGLED}"));
    let reply = client.try_reply().unwrap_or_else(|error| panic!("{error}: no answer to {bytes:?}"));
    (reply, client)
}

/// Every one of `requests` is refused, its connection closed, and nothing of it seen by the origin.
#[track_caller]
fn refused(requests: &[impl AsRef<str>]) {
    let (origin, tollgate) = start();
    for request in requests.iter().map(AsRef::as_ref) {
        let (reply, mut client) = answer(&tollgate, request);
        assert_eq!(reply.status, 400, "{request:?}: {reply:?}");
        assert!(client.closed(), "{request:?} left its connection open");
    }
    assert_eq!(origin.received().concat(), "");
}

/// Every one of `requests` has a malformed body: it is refused, and the origin never sees its end.
#[track_caller]
fn never_completed(requests: &[impl AsRef<str>]) {
    let origin = Origin::sink();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    for request in requests.iter().map(AsRef::as_ref) {
        let (reply, mut client) = answer(&tollgate, request);
        assert_eq!(reply.status, 400, "{request:?}: {reply:?}");
        assert!(client.closed(), "{request:?} left its connection open");
        eventually("the origin's connection ends", || origin.ended() == origin.connections());
        let received = origin.received().concat();
        assert!(!received.contains("\r\n0\r\n"), "{request:?} was completed: {received:?}");
        assert!(!received.contains("smuggled"), "{request:?}: {received:?}");
    }
}

/// The body of the one message that the origin saw of `request`; the client's connection is closed.
#[track_caller]
fn reframed(request: &str) -> String {
    let (origin, tollgate) = start();
    let (reply, mut client) = answer(&tollgate, request);
    assert_eq!(reply.status, 200, "{request:?}: {reply:?}");
    assert!(client.closed(), "{request:?} left its connection open");
    assert_eq!(origin.heads().len(), 1, "{request:?}: {:?}", origin.received());
    let head = origin.heads()[0].to_ascii_lowercase();
    assert!(head.contains("transfer-encoding: chunked") && !head.contains("content-length"), "{head}");
    reply.json()["body"].as_str().unwrap().to_owned()
}

/// `request` comes to its origin with this body: the origin.
#[track_caller]
fn passed_on(request: impl AsRef<str>, body: &str) -> Origin {
    let (origin, tollgate) = start();
    let reply = Client::sending(tollgate.address, request.as_ref()).reply();
    assert_eq!(reply.json()["body"], body, "{:?}", request.as_ref());
    origin
}

#[test]
fn lengths_that_are_not_one_number_are_refused() {
    let post = |fields: &str| format!("POST /a HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\nhello");
    let lengths = [
        "content-length: 5\r\ncontent-length: 6",
        "content-length: 6\r\ncontent-length: 5",
        "content-length: 5, 5",
        "content-length: 5, 6",
        "content-length: +5",
        "content-length: -5",
        "content-length: 0x5",
        "content-length: 5 5",
        "content-length: 5;",
        "content-length: 5.0",
        "content-length:",
        "content-length: five",
        "content-length: 18446744073709551621",
        "content-length: \u{a0}5",
    ];
    refused(&lengths.map(post));
}

#[test]
fn a_length_that_no_body_can_have_is_refused() {
    let (origin, tollgate) = start();
    let request = "POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 18446744073709551615\r\n\r\n";
    let (reply, mut client) = answer(&tollgate, request);
    assert!(reply.status == 413 && client.closed(), "{reply:?}");
    assert_eq!(origin.received().concat(), "");
}

#[test]
fn a_length_that_is_said_twice_is_passed_on_once() {
    let request = "POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nContent-Length:  5 \r\n\r\nhello";
    let origin = passed_on(request, "hello");
    assert_eq!(origin.heads()[0].matches("ontent-length").count(), 1, "{:?}", origin.heads());
}

#[test]
fn transfer_codings_other_than_chunked_are_refused() {
    let (origin, tollgate) = start();
    for coding in [
        "chunked, chunked",
        "identity",
        "gzip, chunked",
        "chunked, gzip",
        "xchunked",
        "chunked;q=1",
        "\"chunked\"",
        "chunked,",
        ",chunked",
        "chunked\r\ntransfer-encoding: chunked",
        "chunked\r\ntransfer-encoding: identity",
        "identity\r\ntransfer-encoding: chunked",
        "",
        "\u{b}chunked",
        "chunked\u{b}",
    ] {
        let request = format!(
            "POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: {coding}\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        );
        let (reply, mut client) = answer(&tollgate, &request);
        assert!(matches!(reply.status, 400 | 501), "{coding:?}: {reply:?}");
        assert!(client.closed(), "{coding:?} left its connection open");
    }
    assert_eq!(origin.received().concat(), "");
}

#[test]
fn http_1_0_knows_no_transfer_coding() {
    refused(&[
        "POST /a HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /a HTTP/1.0\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ]);
}

#[test]
fn a_length_beside_chunks_is_void_and_the_connection_ends_with_it() {
    for fields in [
        "content-length: 5\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 5",
        "transfer-encoding: chunked\r\ncontent-length: nonsense",
        "Transfer-Encoding: CHUNKED\r\ncontent-length: 0",
        "content-length: 5\r\ntransfer-encoding: chunked\r\nconnection: transfer-encoding, content-length",
    ] {
        let request = format!("POST /a HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
        assert_eq!(reframed(&request), "abc", "{fields:?}");
    }
}

#[test]
fn heads_that_are_read_in_two_ways_are_refused() {
    refused(&[
        "GET /a HTTP/1.1\r\nhost: a\r\nx: 1\r\n folded\r\n\r\n",
        "GET /a HTTP/1.1\r\nhost: a\r\nx: 1\r\n\tfolded\r\n\r\n",
        "POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        "GET /a HTTP/1.1\r\n host: a\r\n\r\n",
        "GET /a HTTP/1.1\r\n x: y\r\nhost: a\r\n\r\n",
        "POST /a HTTP/1.1\r\nhost: a\r\ncontent-length : 5\r\n\r\nhello",
        "POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n",
        "GET /a HTTP/1.1\r\nhost\t: a\r\n\r\n",
        "GET /a HTTP/1.1\r\nhost: a\r\n: empty\r\n\r\n",
        "GET /a HTTP/1.1\r\nhost: a\r\nno colon\r\n\r\n",
        "GET /a HTTP/1.1\r\nhost: a\r\nx: a\rb\r\n\r\n",
        "GET /a HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n",
        "GET /a HTTP/1.1\r\nhost: a\r\nx\0: a\r\n\r\n",
        "GET /a HTTP/1.1\rhost: a\r\n\r\n",
        "GET  /a HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /a  HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /a b HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /a\0 HTTP/1.1\r\nhost: a\r\n\r\n",
        " GET /a HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET\t/a\tHTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /a\r\nhost: a\r\n\r\n",
        "GET /a HTTP/1.11\r\nhost: a\r\n\r\n",
        "GET /a http/1.1\r\nhost: a\r\n\r\n",
        "GET /a HTTP/1.1 \r\nhost: a\r\n\r\n",
        "GE(T) /a HTTP/1.1\r\nhost: a\r\n\r\n",
    ]);
}

#[test]
fn lines_that_end_in_a_bare_lf_reach_the_origin_with_their_cr() {
    let origin = passed_on("POST /a HTTP/1.1\nhost: a\ncontent-length: 5\nx: 1\n\nhello", "hello");
    let received = origin.received().concat();
    assert_eq!(received.matches('\n').count(), received.matches("\r\n").count(), "{received:?}");
}

#[test]
fn empty_lines_before_a_request_are_no_request() {
    let (origin, tollgate) = start();
    let mut client = Client::sending(tollgate.address, "\r\n\r\nGET /a HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.reply().status, 200);
    assert!(origin.received().concat().starts_with("GET /a HTTP/1.1\r\n"));
}

#[test]
fn bad_chunks_are_never_completed() {
    let post =
        |chunks: &str| format!("POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
    let chunks = [
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "\r\n0\r\n\r\n",
        "g\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffff5\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhellooo\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\n",
        "5\r\nhello\r\n0\r\nbad trailer\r\n\r\n",
        "5\r\nhello\r\n0\r\nx : 1\r\n\r\n",
        "5\r\nhello\r\n0\r\n folded: 1\r\n\r\n",
        "5\r\nhello\r\n0\r\nx: a\0b\r\n\r\n",
    ];
    never_completed(&chunks.map(post));
}

#[test]
fn a_request_behind_a_bare_lf_in_trailers_is_never_answered() {
    for end in ["0\r\n\n", "0\r\nx: 1\n\n", "0\r\nx: 1\r\n\n"] {
        let (origin, tollgate) = start();
        let request = format!(
            "POST /a HTTP/1.1\r\nhost: a\r\ntrailer: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n{end}"
        );
        let (_, mut client) = answer(&tollgate, &request);
        assert_eq!(client.finish().line().ok(), None, "{end:?} was answered twice");
        assert!(!origin.received().concat().contains("smuggled"), "{:?}", origin.received());
    }
}

#[test]
fn chunk_extensions_are_not_passed_on() {
    let head = "POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    let origin = passed_on(format!("{head}5;x=\"y;z\"\r\nhello\r\n0;q\r\n\r\n"), "hello");
    assert!(!origin.received().concat().contains(';'), "{:?}", origin.received());
}

#[test]
fn chunk_extensions_without_end_are_refused() {
    let long = format!(
        "POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5;{}\r\nhello\r\n0\r\n\r\n",
        "x".repeat(32 << 10)
    );
    never_completed(&[long]);
}

#[test]
fn a_request_behind_a_body_is_answered_on_its_own() {
    let (origin, tollgate) = start();
    let mut client = Client::connect(tollgate.address);
    let second = "GET /second HTTP/1.1\r\nhost: b\r\n\r\n";
    client.send(format!("POST /first HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello{second}"));
    let first = client.reply().json();
    assert_eq!((&first["target"], &first["body"]), (&"/first".into(), &"hello".into()));
    assert_eq!(client.reply().json()["target"], "/second");
    assert_eq!(origin.heads().len(), 2);
}

#[test]
fn a_request_that_looks_like_two_is_passed_on_as_one() {
    let head = format!("POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", SMUGGLED.len());
    let origin = passed_on(format!("{head}{SMUGGLED}"), SMUGGLED);
    assert_eq!(origin.heads().len(), 1);
}

#[test]
fn connection_can_take_neither_length_nor_host_nor_chunks_from_a_request() {
    for (fields, body) in [
        ("connection: close, content-length\r\ncontent-length: 5", "hello"),
        ("connection: host, content-length\r\ncontent-length: 5", "hello"),
        ("connection: transfer-encoding\r\ncontent-length: 5", "hello"),
        ("connection: transfer-encoding\r\ntransfer-encoding: chunked", "5\r\nhello\r\n0\r\n\r\n"),
    ] {
        let request = format!("POST /a HTTP/1.1\r\nhost: a.example\r\n{fields}\r\n\r\n{body}");
        let origin = passed_on(request, "hello");
        let head = origin.heads()[0].clone();
        assert!(head.contains("\r\nhost: a.example"), "{head}");
    }
}

#[test]
fn the_body_of_a_get_is_passed_on_however_it_is_framed() {
    for framed in
        ["content-length: 5\r\n\r\nhello", "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]
    {
        let (origin, tollgate) = start();
        let mut client = Client::sending(tollgate.address, format!("GET /a HTTP/1.1\r\nhost: a\r\n{framed}"));
        assert_eq!(client.reply().json()["body"], "hello", "{framed:?}");
        client.send("GET /b HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(client.reply().json()["target"], "/b");
        assert_eq!(origin.heads().len(), 2);
    }
}

#[test]
fn a_head_that_does_not_end_is_no_request() {
    let (origin, tollgate) = start();
    let mut client = Client::connect(tollgate.address);
    client.send("GET /a HTTP/1.1\r\nhost: a\r\n").finish();
    assert!(client.closed());
    assert_eq!(origin.received().concat(), "");
}
