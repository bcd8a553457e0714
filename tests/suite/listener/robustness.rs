//! Handshakes as they should not be: cut into pieces, altered, or something else altogether. Whatever comes, no request
//! of an altered connection is forwarded, and everybody else is served.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use rustls::{ClientConfig, ClientConnection, SupportedProtocolVersion, pki_types::ServerName};

use super::Https;
use crate::harness::{Origin, TLS_VERSIONS, TlsConnector, eventually};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
/// Type, version and length (RFC 8446, 5.1).
const RECORD_HEADER: usize = 5;
const MAX_RECORD: usize = 1 << 14;

/// What a client sends before it waits for an answer, again and again, and what becomes of it.
struct Dialogue {
    session: ClientConnection,
    stream: TcpStream,
}

impl Dialogue {
    fn begin(https: &Https, config: &Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::clone(config), name).unwrap();
        let stream = TcpStream::connect(https.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { session, stream }
    }

    /// All flights up to the answer, each sent as `send` does it. None: the server refuses.
    fn run(mut self, mut send: impl FnMut(usize, Vec<u8>, &mut TcpStream)) -> Option<String> {
        let mut answer = Vec::new();
        let mut is_asked = false;
        let mut number = 0;
        loop {
            if !self.session.is_handshaking() && !is_asked {
                self.session.writer().write_all(REQUEST).unwrap();
                is_asked = true;
            }
            let mut flight = Vec::new();
            while self.session.wants_write() {
                self.session.write_tls(&mut flight).unwrap();
            }
            if !flight.is_empty() {
                send(number, flight, &mut self.stream);
                number += 1;
            }
            match self.session.read_tls(&mut self.stream) {
                Ok(1..) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
            }
            self.session.process_new_packets().ok()?;
            // An error is only that nothing more is there.
            let _ = self.session.reader().read_to_end(&mut answer);
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        answer.starts_with("HTTP/1.1 200 ").then_some(answer)
    }
}

/// Where the records of a flight are.
fn records(flight: &[u8]) -> Vec<Range<usize>> {
    let mut records = Vec::new();
    let mut at = 0;
    while let Some(&[_, _, _, high, low]) = flight.get(at..at + RECORD_HEADER) {
        let end = at + RECORD_HEADER + usize::from(u16::from_be_bytes([high, low]));
        records.push(at..end);
        at = end;
    }
    records
}

/// Those of the bytes that say the version of a record: everybody ignores them (RFC 8446, 5.1).
fn is_version(flight: &[u8], at: usize) -> bool {
    records(flight).iter().any(|record| (record.start + 1..record.start + 3).contains(&at))
}

fn config(https: &Https, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    Arc::clone(TlsConnector::speaking(&https.authority, version).config())
}

/// The handshake messages of a first flight, in records of `size` bytes.
fn in_records_of(size: usize, flight: &[u8]) -> Vec<u8> {
    let message = &flight[RECORD_HEADER..];
    let records = message
        .chunks(size)
        .map(|piece| [&[22, 3, 1][..], &u16::try_from(piece.len()).unwrap().to_be_bytes(), piece].concat());
    records.collect::<Vec<_>>().concat()
}

#[test]
fn pieces_do_not_matter() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    for (_, version) in TLS_VERSIONS {
        for size in [1, 7, 100] {
            let config = config(&https, version);
            let by_segments = Dialogue::begin(&https, &config).run(|_, flight, stream| {
                flight.chunks(size).for_each(|piece| stream.write_all(piece).unwrap());
            });
            assert!(by_segments.is_some(), "{version:?} in segments of {size} bytes");
            let by_records = Dialogue::begin(&https, &config).run(|number, flight, stream| {
                let flight = if number == 0 { in_records_of(size, &flight) } else { flight };
                stream.write_all(&flight).unwrap();
            });
            assert!(by_records.is_some(), "{version:?} in records of {size} bytes");
        }
    }
}

/// Alters one byte of a flight, again and again: every `step`th.
fn alter(version: &'static SupportedProtocolVersion, is_resumed: bool, flight_number: usize, step: usize) {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    let config = config(&https, version);
    let unaltered = |lengths: &mut Vec<Vec<u8>>| {
        Dialogue::begin(&https, &config).run(|_, flight, stream| {
            stream.write_all(&flight).unwrap();
            lengths.push(flight);
        })
    };
    let mut flights = Vec::new();
    assert!(unaltered(&mut flights).is_some());
    let served = origin.heads().len();
    let length = flights[flight_number].len();
    let mut random = fastrand::Rng::with_seed(7);
    let mut asked = 0;
    for at in (0..length).step_by(step) {
        let config = if is_resumed { Arc::clone(&config) } else { self::config(&https, version) };
        if is_resumed {
            // A ticket is used once.
            assert!(unaltered(&mut Vec::new()).is_some());
            asked += 1;
        }
        let mut is_version_altered = false;
        let answer = Dialogue::begin(&https, &config).run(|number, mut flight, stream| {
            if number == flight_number && at < flight.len() {
                is_version_altered = is_version(&flight, at);
                flight[at] ^= random.u8(1..=255);
            }
            // The server may have closed the connection.
            let _ = stream.write_all(&flight);
            // Where it waits for more, it need not.
            if number >= flight_number && !is_version_altered {
                let _ = stream.shutdown(Shutdown::Write);
            }
        });
        let is_answered = answer.is_some();
        asked += usize::from(is_answered);
        assert!(!is_answered || is_version_altered, "byte {at} of flight {flight_number} ({version:?})");
    }
    assert_eq!(origin.heads().len(), served + asked, "an altered request was forwarded");
    assert_eq!(https.connect().request("GET", "/", &[], b"").status, 200);
    eventually("all slots are free", || https.tollgate.metric("tollgate_connections") <= 1.0);
}

#[test]
fn an_altered_client_hello_leads_nowhere() {
    for (_, version) in TLS_VERSIONS {
        alter(version, false, 0, 1);
    }
}

#[test]
fn an_altered_ticket_leads_nowhere() {
    for (_, version) in TLS_VERSIONS {
        alter(version, true, 0, 5);
    }
}

#[test]
fn an_altered_finished_or_request_leads_nowhere() {
    // 1.2: key exchange and Finished, then the request. 1.3: Finished and the request.
    for (name, version) in TLS_VERSIONS {
        alter(version, false, 1, 1);
        if name == "1.2" {
            alter(version, false, 2, 1);
        }
    }
}

#[test]
fn records_that_are_no_handshake_are_refused_at_once() {
    let origin = Origin::ok();
    let https = Https::with(&origin, "", "client_limits: { header_timeout: 15s }\n");
    let record = |kind: u8, length: usize, bytes: &[u8]| {
        [&[kind, 3, 3][..], &u16::try_from(length).unwrap().to_be_bytes(), bytes].concat()
    };
    let too_long = vec![0; MAX_RECORD + 300];
    let wrong = [
        // SSL 2.0's ClientHello, an alert, application data, an unknown type, the change of a cipher.
        b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10\x01\x00\x80".to_vec(),
        record(21, 2, &[2, 40]),
        record(23, 5, b"hello"),
        record(99, 5, b"hello"),
        record(20, 1, &[1]),
        // Handshake messages that are no ClientHello, too long, or empty.
        record(22, 4, &[2, 0, 0, 0]),
        record(22, 4, &[1, 255, 255, 255]),
        record(22, too_long.len(), &too_long),
        record(22, 0, &[]),
        record(22, 4, &[1, 0, 0, 0]),
        b"\0\0\0\0\0\0\0\0".to_vec(),
        b"ssh-2.0-OpenSSH_9.2\r\n".to_vec(),
    ];
    let count = wrong.len() as f64;
    for bytes in wrong {
        let mut stream = TcpStream::connect(https.address()).unwrap();
        // Shorter than the time for a handshake.
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(&bytes).unwrap();
        let mut rest = Vec::new();
        let read = stream.read_to_end(&mut rest);
        let still_open = read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!still_open, "{:?} is waited for", &bytes[..bytes.len().min(16)]);
        // Nothing but an alert.
        assert!(rest.is_empty() || rest[0] == 21, "{rest:?}");
    }
    let counted =
        || https.failures("malformed") + https.failures("closed") + https.failures("no_shared_version");
    eventually("all are counted", || counted() == count);
    assert_eq!(https.connect().request("GET", "/", &[], b"").status, 200);
}
