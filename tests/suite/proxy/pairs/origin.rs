//! Origins that do the same by any protocol. A request's path says what: `/NAME/HOW/NUMBER`, the number is its own.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use h2::{Reason, server::Builder};
use tokio::sync::Semaphore;

use crate::harness::{
    Conn, Handled, Http2Exchange, Http2Origin, Issued, Origin, eventually, in_runtime, send_body,
    server_config,
};

/// What every body is; halves are told apart.
pub const BODY_LENGTH: usize = 200_000;
pub const HALF: usize = BODY_LENGTH / 2;

/// What an origin speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginProtocol {
    Http1,
    Https,
    Http2,
    Http2OverTls,
}

impl OriginProtocol {
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Http2OverTls)
    }

    pub const fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Http2OverTls)
    }
}

/// How a connection of HTTP/1.1 dies.
pub mod end {
    /// In order.
    pub const CLOSE: u32 = 0;
    pub const RESET: u32 = 1;
    /// In order, but TLS does not tell its end.
    pub const UNTOLD: u32 = 2;
}

/// An origin, and what it has seen.
pub struct AnyOrigin {
    pub address: SocketAddr,
    notes: Arc<Notes>,
    /// They live as long as the test does.
    _origin: Kept,
}

enum Kept {
    Http1(Origin),
    Http2(Http2Origin),
}

/// What became of each request, and turns that the test gives.
struct Notes {
    lines: Mutex<Vec<String>>,
    turns: Semaphore,
}

impl Notes {
    fn note(&self, what: &str, path: &str) {
        self.lines.lock().unwrap().push(format!("{what} {path}"));
    }

    async fn turn(&self) {
        self.turns.acquire().await.unwrap().forget();
    }
}

impl AnyOrigin {
    pub fn start(protocol: OriginProtocol, certificate: &Issued) -> Self {
        let notes = Arc::new(Notes { lines: Mutex::default(), turns: Semaphore::new(0) });
        let shared = Arc::clone(&notes);
        let http1 = move |conn: &mut Conn| serve_http1(conn, &shared);
        let shared = Arc::clone(&notes);
        let http2 = move |exchange| serve_http2(exchange, Arc::clone(&shared));
        let origin = match protocol {
            OriginProtocol::Http1 => Kept::Http1(Origin::start(http1)),
            OriginProtocol::Https => Kept::Http1(Origin::start_tls(server_config(certificate), http1)),
            OriginProtocol::Http2 => Kept::Http2(Http2Origin::start(http2)),
            OriginProtocol::Http2OverTls => {
                Kept::Http2(Http2Origin::over_tls(certificate, Builder::new(), http2))
            }
        };
        let address = match &origin {
            Kept::Http1(origin) => origin.address,
            Kept::Http2(origin) => origin.address,
        };
        Self { address, notes, _origin: origin }
    }

    /// Lets one that waits for its turn go on.
    pub fn turn(&self) {
        self.notes.turns.add_permits(1);
    }

    /// Whether this was noted of the request for `path`.
    pub fn has_seen(&self, what: &str, path: &str) -> bool {
        let line = format!("{what} {path}");
        self.notes.lines.lock().unwrap().contains(&line)
    }

    #[track_caller]
    pub fn sees(&self, what: &str, path: &str) {
        eventually(&format!("the origin notes {what:?} of {path}"), || self.has_seen(what, path));
    }
}

/// The name, and how.
fn parse(path: &str) -> (&str, u32) {
    let mut words = path.trim_start_matches("/leased").split('/').skip(1);
    let name = words.next().unwrap_or_default();
    (name, words.next().and_then(|how| how.parse().ok()).unwrap_or_default())
}

/// Serves until the connection ends.
fn serve_http1(conn: &mut Conn, notes: &Notes) -> io::Result<()> {
    while let Some(head) = conn.head()? {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let (name, how) = parse(&path);
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n";
        let chunk = |data: &[u8]| [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat();
        let turn = || in_runtime(notes.turn());
        match name {
            "echo" | "length" => {
                let (body, sum) = upload_http1(conn, &head, &path, notes)?;
                if name == "length" {
                    conn.answer("200 OK", &[], &body)?;
                    continue;
                }
                conn.send(chunked.as_bytes())?;
                body.chunks(30_000).try_for_each(|part| conn.send(&chunk(part)))?;
                conn.send(format!("0\r\nx-sum: {sum}\r\n\r\n").as_bytes())?;
            }
            "early" => {
                let half = first_half(conn, &head)?;
                assert_eq!(half.len(), HALF);
                conn.answer("403 Forbidden", &[("connection", "close")], b"early")?;
                conn.closed();
                return Ok(());
            }
            "hang" => {
                notes.note("asked", &path);
                conn.closed();
                notes.note("told", &path);
                return Ok(());
            }
            "endless" => {
                conn.send(chunked.as_bytes())?;
                conn.send(&chunk(&[b'x'; HALF]))?;
                conn.closed();
                notes.note("told", &path);
                return Ok(());
            }
            "events" => {
                turn();
                conn.send(chunked.replacen("\r\n", "\r\ncontent-type: text/event-stream\r\n", 1).as_bytes())?;
                for event in 0..3 {
                    turn();
                    conn.send(&chunk(format!("data: {event}\n\n").as_bytes()))?;
                }
                conn.send(b"0\r\n\r\n")?;
            }
            _ => {
                let half = [b'x'; HALF];
                match name {
                    "dies-chunked" => conn.send(&[chunked.as_bytes(), &chunk(&half)].concat())?,
                    "dies-unframed" => conn.send(&[b"HTTP/1.1 200 OK\r\n\r\n", &half[..]].concat())?,
                    "dies-length" => {
                        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {BODY_LENGTH}\r\n\r\n");
                        conn.send(&[head.as_bytes(), &half].concat())?;
                    }
                    _ => {}
                }
                if name != "dies-before" {
                    turn();
                }
                if how == end::RESET {
                    conn.reset()?;
                }
                return if how == end::CLOSE { Ok(()) } else { Err(io::ErrorKind::Other.into()) };
            }
        }
    }
    Ok(())
}

/// Reads the first half of a request's body.
fn first_half(conn: &mut Conn, head: &str) -> io::Result<Vec<u8>> {
    if head.contains("content-length: ") {
        return conn.take(HALF);
    }
    let mut body = Vec::new();
    while body.len() < HALF {
        body.extend(conn.chunk()?.ok_or(io::ErrorKind::UnexpectedEof)?);
    }
    Ok(body)
}

/// Reads a request's body, and its trailer `x-sum`.
fn upload_http1(conn: &mut Conn, head: &str, path: &str, notes: &Notes) -> io::Result<(Vec<u8>, String)> {
    let mut body = first_half(conn, head)?;
    notes.note("half", path);
    let rest = if head.contains("content-length: ") {
        conn.take(BODY_LENGTH - HALF).map(|rest| (rest, Vec::new()))
    } else {
        conn.body(head)
    };
    notes.note(if rest.is_ok() { "whole" } else { "broken" }, path);
    let (rest, trailers) = rest?;
    body.extend(rest);
    let sum = trailers.iter().find_map(|line| line.strip_prefix("x-sum: ")).unwrap_or_default();
    Ok((body, sum.to_owned()))
}

/// Notes how a stream has ended, also where its handler is dropped because its connection has.
struct AtEnd<'a> {
    notes: &'a Notes,
    what: &'static str,
    path: &'a str,
}

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.notes.note(self.what, self.path);
    }
}

async fn serve_http2(mut exchange: Http2Exchange, notes: Arc<Notes>) -> Handled {
    let path = exchange.head.uri().path().to_owned();
    let (name, how) = parse(&path);
    let half = Bytes::from_static(&[b'x'; HALF]);
    let length = BODY_LENGTH.to_string();
    match name {
        "echo" | "length" => {
            let (body, sum) = upload_http2(&mut exchange, &path, &notes).await?;
            // HTTP/1.1 clients get trailers that were announced.
            let field =
                if name == "length" { ("content-length", length.as_str()) } else { ("trailer", "x-sum") };
            let mut stream = exchange.head(200, &[field])?;
            send_body(&mut stream, Bytes::from(body)).await?;
            if name == "length" {
                return stream.send_data(Bytes::new(), true);
            }
            stream.send_trailers([("x-sum".parse().unwrap(), sum.parse().unwrap())].into_iter().collect())
        }
        "early" => {
            let mut got = 0;
            while got < HALF {
                got += exchange.data().await?.len();
            }
            // Behind it h2 resets the stream with NO_ERROR (RFC 9113, 8.1): the rest of the request is not needed.
            exchange.respond(403, &[], b"early")
        }
        "hang" => {
            notes.note("asked", &path);
            let _told = AtEnd { notes: &notes, what: "told", path: &path };
            exchange.reset_unanswered().await
        }
        "endless" => {
            let mut stream = exchange.head(200, &[])?;
            send_body(&mut stream, half).await?;
            let _told = AtEnd { notes: &notes, what: "told", path: &path };
            exchange.reset(&mut stream).await
        }
        "events" => {
            notes.turn().await;
            let mut stream = exchange.head(200, &[("content-type", "text/event-stream")])?;
            for event in 0..3 {
                notes.turn().await;
                send_body(&mut stream, Bytes::from(format!("data: {event}\n\n"))).await?;
            }
            stream.send_data(Bytes::new(), true)
        }
        "dies-before" => {
            exchange.answer.send_reset(Reason::from(how));
            Ok(())
        }
        _ => {
            let fields = [("content-length", length.as_str())];
            let mut stream = exchange.head(200, if name == "dies-length" { &fields } else { &[] })?;
            send_body(&mut stream, half).await?;
            notes.turn().await;
            stream.send_reset(Reason::from(how));
            Ok(())
        }
    }
}

/// Reads a request's body, and its trailer `x-sum`.
async fn upload_http2(
    exchange: &mut Http2Exchange,
    path: &str,
    notes: &Notes,
) -> Result<(Vec<u8>, String), h2::Error> {
    let mut body = Vec::new();
    while body.len() < HALF {
        let data = exchange.data().await;
        body.extend(data?);
    }
    notes.note("half", path);
    let mut end = AtEnd { notes, what: "broken", path };
    let (rest, trailers) = exchange.read().await?;
    end.what = "whole";
    body.extend(rest);
    let sum = trailers.as_ref().and_then(|trailers| trailers.get("x-sum"));
    Ok((body, sum.map_or_else(String::new, |sum| sum.to_str().unwrap().to_owned())))
}
