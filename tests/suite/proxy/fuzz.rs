//! Whatever bytes come: the process lives, and the origin gets well-formed requests or none. Seeds are
//! fixed, so that a failure can be seen again.

use std::{
    io::{ErrorKind, Write},
    sync::{Arc, Mutex},
};

use crate::harness::{Client, Config, Origin, Tollgate, get};

const ROUNDS: usize = 1500;

/// What mutations start from.
const REQUESTS: [&str; 5] = [
    "GET /a?b=c HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: example.org\r\nContent-Length: 37\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: b\r\n\r\nxx",
    "POST /a HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\n5;e\r\nhello\r\n0\r\nx: 1\r\n\r\n",
    "GET http://example.org/%2e%2e/a HTTP/1.1\r\nHost: b\r\nX-Forwarded-For: 1.2.3.4\r\nUpgrade: h2c\r\n\r\n",
    "PUT /a HTTP/1.0\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabcGET / HTTP/1.1\r\nHost: c\r\n\r\n",
];

/// What is put in where a mutation wants more than a random byte.
const TOKENS: [&str; 16] = [
    "\r\n",
    "\n",
    "\r",
    "\0",
    " ",
    ":",
    ",",
    "chunked",
    "0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Content-Length: 3\r\n",
    "Content-Length: 30\r\n",
    "Host: d\r\n",
    "HTTP/1.1",
    "ffffffff",
    "%00",
];

/// Sends `bytes`, says that nothing more comes, and waits until the proxy is done with them.
fn feed(tollgate: &Tollgate, bytes: &[u8]) {
    let mut client = Client::connect(tollgate.address);
    // The proxy may have closed before everything was sent.
    let _ = client.stream.write_all(bytes);
    let _ = client.stream.shutdown(std::net::Shutdown::Write);
    assert!(client.closed(), "left open: {:?}", bytes.escape_ascii().to_string());
}

fn mutated(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = REQUESTS[random.usize(..REQUESTS.len())].as_bytes().to_vec();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(..bytes.len());
        match random.u8(..5) {
            0 => bytes[at] = random.u8(..),
            1 => drop(bytes.remove(at)),
            2 => drop(bytes.splice(at..at, TOKENS[random.usize(..TOKENS.len())].bytes())),
            3 => {
                let end = random.usize(at..bytes.len());
                bytes.extend_from_within(at..end);
            }
            _ => drop(bytes.splice(at..at, [random.u8(..)])),
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

/// What is wrong with a head that reached the origin.
fn flaw(head: &str) -> Option<String> {
    let lines: Vec<_> = head.split("\r\n").collect();
    let words: Vec<_> = lines[0].split(' ').collect();
    let named = |name: &str| {
        lines[1..]
            .iter()
            .filter(|line| line.split(':').next().is_some_and(|n| n.eq_ignore_ascii_case(name)))
            .count()
    };
    let flaws = [
        (words.len() != 3 || words[2] != "HTTP/1.1" || !words[1].starts_with('/'), "request line"),
        (head.replace("\r\n", "").contains(['\r', '\n', '\0']), "control characters"),
        (named("host") != 1, "host"),
        (named("content-length") + named("transfer-encoding") > 1, "framing"),
        (named("x-forwarded-for") != 1 || !head.contains("x-forwarded-for: 127.0.0.1"), "x-forwarded-for"),
        (named("upgrade") + named("keep-alive") != 0, "fields of the connection"),
        (words.get(1).is_some_and(|target| target.split('/').any(|part| part == "..")), "dot segments"),
    ];
    flaws.iter().find(|(wrong, _)| *wrong).map(|(_, what)| format!("{what}: {head:?}"))
}

#[test]
fn random_bytes_reach_no_origin_and_end_nothing() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..ROUNDS {
        let bytes: Vec<u8> = (0..random.usize(1..400)).map(|_| random.u8(..)).collect();
        feed(&tollgate, &bytes);
    }
    assert_eq!(origin.received().concat(), "");
    assert_eq!(get(tollgate.address, "/", &[]).text(), "ok");
}

#[test]
fn mutated_requests_reach_the_origin_well_formed_or_not_at_all() {
    let flaws = Arc::<Mutex<Vec<String>>>::default();
    let found = Arc::clone(&flaws);
    let origin = Origin::start(move |conn| {
        while let Some(head) = conn.head()? {
            found.lock().unwrap().extend(flaw(&head));
            match conn.body(&head) {
                Ok(_) => conn.answer("200 OK", &[], b"ok")?,
                // Broken off, as it should be.
                Err(error)
                    if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) =>
                {
                    break;
                }
                Err(error) => found.lock().unwrap().push(format!("{error}: {head:?}")),
            }
        }
        Ok(())
    });
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut random = fastrand::Rng::with_seed(2);
    for _ in 0..ROUNDS {
        feed(&tollgate, &mutated(&mut random));
    }
    assert_eq!(*flaws.lock().unwrap(), [""; 0]);
    assert!(origin.heads().len() > ROUNDS / 10, "hardly anything got through: {}", origin.heads().len());
    assert_eq!(get(tollgate.address, "/", &[]).text(), "ok");
}

#[test]
fn other_protocols_are_refused() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    for greeting in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
        b"\r\n\r\n\0\r\nQUIT\n",
        b"*1\r\n$4\r\nPING\r\n",
    ] {
        feed(&tollgate, greeting);
    }
    assert_eq!(origin.received().concat(), "");
}
