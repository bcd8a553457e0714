//! The client beside hyper's: the same requests, and the same bytes in reply.
//!
//! `TOLLGATE_LIVES` is the number of connections, and `TOLLGATE_SEED` the first of their seeds. A million:
//! `TOLLGATE_LIVES=1000000 cargo test --release --lib against_hyper -- --nocapture`.

use std::{
    collections::{BTreeMap, VecDeque},
    env,
    fmt::Display,
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::{
    client::conn::http1::{Builder, SendRequest},
    ext::ReasonPhrase,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    task::{AbortHandle, LocalSet, spawn_local, yield_now},
    time::timeout,
};

use super::{Flusher, Http1Connection, MAX_HEAD};
use crate::upstream::{ExchangeError, OnInformational, OutgoingBody, io::UpstreamIo};

/// How often the other tasks run after each piece of a response: until nothing moves any more.
const TURNS: usize = 8;

/// A request, and the bytes that the endpoint sends in reply.
#[derive(Debug, Clone)]
struct Script {
    method: &'static str,
    fields: Vec<(&'static str, String)>,
    body: ScriptedBody,
    /// With a pause behind each.
    pieces: Vec<Vec<u8>>,
}

impl Script {
    fn request(&self) -> Request<ScriptedBody> {
        let mut request = Request::builder().method(self.method).uri("/path?query");
        for (name, value) in &self.fields {
            request = request.header(*name, value);
        }
        request.body(self.body.clone()).unwrap()
    }

    /// Whether the request breaks off, or is shorter than announced.
    fn is_broken(&self) -> bool {
        let length: usize = self.body.parts.iter().map(Bytes::len).sum();
        let announced = self.fields.iter().find(|(name, _)| *name == "content-length");
        self.body.is_broken || announced.is_some_and(|(_, announced)| announced.parse() != Ok(length))
    }
}

#[derive(Debug, Clone, Default)]
struct ScriptedBody {
    parts: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
    is_length_known: bool,
    /// Whether the end is told with the last part.
    is_end_told: bool,
    is_whole: bool,
    is_broken: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("the body is broken")]
struct Broken;

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let data = self.parts.pop_front().map(Frame::data);
        let frame = data.or_else(|| self.trailers.take().map(Frame::trailers));
        Poll::Ready(frame.map(Ok).or_else(|| self.is_broken.then_some(Err(Broken))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_end_told && self.parts.is_empty() && self.trailers.is_none() && !self.is_broken
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.parts.iter().map(|part| part.len() as u64).sum();
        if self.is_length_known { SizeHint::with_exact(length) } else { SizeHint::default() }
    }
}

impl OutgoingBody for ScriptedBody {
    fn repeatable(&self) -> Option<Self> {
        None
    }

    fn into_whole(mut self) -> Result<Bytes, Self> {
        if self.is_whole { Ok(self.parts.pop_front().unwrap_or_default()) } else { Err(self) }
    }
}

/// The result of an exchange, as the client and the endpoint saw it.
#[derive(Debug, Default, PartialEq, Clone)]
struct Outcome {
    sent: Vec<u8>,
    informational: Vec<String>,
    head: Option<String>,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
    fault: Option<String>,
    is_reusable: bool,
}

trait TestedClient: Sized + 'static {
    async fn open(stream: TcpStream) -> Self;
    /// Notes the response in `outcome`.
    async fn exchange(
        &mut self,
        request: Request<ScriptedBody>,
        informational: Arc<Mutex<Vec<String>>>,
        outcome: &mut Outcome,
    );
    /// Ready once the connection may carry another request.
    async fn reusable(&mut self) -> bool;
}

struct Hyper(SendRequest<ScriptedBody>, AbortHandle);

impl TestedClient for Hyper {
    async fn open(stream: TcpStream) -> Self {
        let io = TokioIo::new(UpstreamIo::plain(stream));
        let (sender, connection) =
            Builder::new().writev(false).max_buf_size(MAX_HEAD).handshake(io).await.unwrap();
        let task = spawn_local(async move { drop(connection.with_upgrades().await) });
        Self(sender, task.abort_handle())
    }

    async fn exchange(
        &mut self,
        mut request: Request<ScriptedBody>,
        informational: Arc<Mutex<Vec<String>>>,
        outcome: &mut Outcome,
    ) {
        hyper::ext::on_informational(&mut request, move |response| {
            informational.lock().unwrap().push(format!("{} {:?}", response.status(), response.headers()));
        });
        outcome.note(self.0.send_request(request).await).await;
    }

    async fn reusable(&mut self) -> bool {
        self.0.ready().await.is_ok()
    }
}

impl Drop for Hyper {
    fn drop(&mut self) {
        self.1.abort();
    }
}

struct Own(Http1Connection<ScriptedBody>);

impl TestedClient for Own {
    async fn open(stream: TcpStream) -> Self {
        Self(Http1Connection::new(UpstreamIo::plain(stream), 0, &Rc::new(Flusher::start())))
    }

    async fn exchange(
        &mut self,
        mut request: Request<ScriptedBody>,
        informational: Arc<Mutex<Vec<String>>>,
        outcome: &mut Outcome,
    ) {
        request.extensions_mut().insert(OnInformational::new(move |response| {
            informational.lock().unwrap().push(format!("{} {:?}", response.status(), response.headers()));
        }));
        let response = self.0.send(request).await.map_err(|failed| failed.error);
        outcome.note(response).await;
    }

    async fn reusable(&mut self) -> bool {
        self.0.is_usable() || self.0.is_unfinished() && self.0.finish().await
    }
}

impl Outcome {
    async fn note<B>(&mut self, response: Result<Response<B>, B::Error>)
    where
        B: Body<Data = Bytes, Error: Display + 'static> + Unpin,
    {
        let fault = |error: &B::Error| match (error as &dyn std::any::Any).downcast_ref() {
            Some(ExchangeError::Http1(fault)) => format!("{fault:?}"),
            _ => error.to_string(),
        };
        let response = match response {
            Ok(response) => response,
            Err(error) => return self.fault = Some(fault(&error)),
        };
        let reason = response.extensions().get::<ReasonPhrase>().cloned();
        let fields: Vec<_> = response.headers().iter().collect();
        self.head = Some(format!("{:?} {} {reason:?} {fields:?}", response.version(), response.status()));
        let mut body = response.into_body();
        loop {
            match body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.body.extend_from_slice(&data),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
                Some(Err(error)) => return self.fault = Some(fault(&error)),
                None => return,
            }
        }
    }
}

/// The outcome of each exchange, until the connection can't be used again.
async fn live<C: TestedClient>(listener: &TcpListener, scripts: &[Script], is_reset: bool) -> Vec<Outcome> {
    let (stream, accepted) =
        tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let origin = accepted.unwrap().0;
    origin.set_nodelay(true).unwrap();
    let mut origin = Some(origin);
    let mut client = C::open(stream.unwrap()).await;
    let mut outcomes = Vec::new();
    for script in scripts {
        let request = script.request();
        let informational = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&informational);
        let task = spawn_local(async move {
            let mut outcome = Outcome::default();
            client.exchange(request, noted, &mut outcome).await;
            (client, outcome)
        });
        let mut sent = Vec::new();
        rest(&mut origin, &mut sent).await;
        for piece in &script.pieces {
            // It fails if the client has closed the connection.
            let _refused = origin.as_mut().unwrap().write_all(piece).await;
            rest(&mut origin, &mut sent).await;
        }
        if !task.is_finished() {
            let open = origin.as_mut().unwrap();
            if is_reset {
                socket2::SockRef::from(&*open).set_linger(Some(Duration::ZERO)).unwrap();
                origin = None;
            } else {
                let _refused = open.shutdown().await;
            }
            rest(&mut origin, &mut sent).await;
        }
        let ended = timeout(Duration::from_secs(20), task).await.expect("the exchange ends");
        let (returned, mut outcome) = ended.unwrap();
        client = returned;
        let (checked, is_reusable) = {
            let task = spawn_local(async move {
                let is_reusable = client.reusable().await;
                (client, is_reusable)
            });
            rest(&mut origin, &mut sent).await;
            // An upload that is not read to its end.
            if !task.is_finished() {
                origin = None;
            }
            timeout(Duration::from_secs(20), task).await.expect("the rest of the request ends").unwrap()
        };
        client = checked;
        (outcome.sent, outcome.is_reusable) = (sent, is_reusable && origin.is_some());
        outcome.informational = informational.lock().unwrap().clone();
        outcomes.push(outcome);
        if !is_reusable || origin.is_none() {
            break;
        }
    }
    outcomes
}

/// Reads the client's bytes until no task does anything any more.
async fn rest(origin: &mut Option<TcpStream>, sent: &mut Vec<u8>) {
    let mut turns = 0;
    while turns < TURNS {
        yield_now().await;
        turns += 1;
        let Some(origin) = origin else { continue };
        while let Ok(1..) = origin.try_read_buf(sent) {
            turns = 0;
        }
    }
}

fn pick<'a, T: ?Sized>(rng: &mut Rng, choices: &[&'a T]) -> &'a T {
    choices[rng.usize(..choices.len())]
}

fn request(rng: &mut Rng) -> Script {
    let method = pick(rng, &["GET", "GET", "HEAD", "POST", "POST", "PUT", "OPTIONS", "x-own"]);
    let mut fields = vec![("host", "example.org".to_owned()), ("x-a", "b".repeat(rng.usize(..100)))];
    let mut body = ScriptedBody { is_end_told: rng.bool(), ..ScriptedBody::default() };
    if rng.bool() {
        for _ in 0..rng.usize(1..4) {
            let length = match rng.u8(..10) {
                0 => 0,
                1 => rng.usize((16 << 10) - 2..(16 << 10) + 3),
                2 => rng.usize(..100_000),
                _ => rng.usize(1..300),
            };
            body.parts.push_back(vec![b'a' + rng.u8(..26); length].into());
        }
        body.is_length_known = rng.bool();
        body.is_broken = rng.u8(..10) == 0;
        if rng.u8(..4) == 0 {
            let mut trailers = HeaderMap::new();
            for name in ["x-sum", "x-unannounced", "content-length", "x-sum"] {
                trailers.append(name, HeaderValue::from_static("1"));
            }
            body.trailers = Some(trailers);
        }
        if body.is_length_known && !body.is_broken && body.trailers.is_none() && rng.bool() {
            let whole: Vec<u8> = body.parts.drain(..).flatten().collect();
            (body.is_whole, body.is_end_told) = (true, true);
            body.parts.extend((!whole.is_empty()).then(|| whole.into()));
        }
    } else {
        body.is_end_told = true;
    }
    let length: usize = body.parts.iter().map(Bytes::len).sum();
    match rng.u8(..6) {
        0 if !body.is_whole => fields.push(("content-length", (length + rng.usize(..3)).to_string())),
        0 => fields.push(("content-length", length.to_string())),
        1 => fields.push(("transfer-encoding", "chunked".to_owned())),
        2 => fields.push(("content-length", length.to_string())),
        // As the proxy does: hyper takes it that GET has no body.
        _ if !body.is_length_known => fields.push(("transfer-encoding", "chunked".to_owned())),
        _ => {}
    }
    if rng.bool() {
        fields.push((
            "trailer",
            pick(rng, &["x-sum", "x-other, X-Sum", "content-length, x-sum", "a b"]).to_owned(),
        ));
    }
    Script { method, fields, body, pieces: Vec::new() }
}

fn reply(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    while rng.u8(..12) == 0 {
        let line = pick(rng, &["100 Continue", "103 Early Hints", "102 Processing", "199 ", "101 Switching"]);
        let field =
            pick(rng, &["", "link: </a>\r\n", "content-length: 5\r\n", "transfer-encoding: chunked\r\n"]);
        bytes.extend_from_slice(format!("HTTP/1.1 {line}\r\n{field}\r\n").as_bytes());
    }
    let line = status_line(rng);
    let end = if rng.u8(..30) == 0 { "\n" } else { "\r\n" };
    let length = if rng.u8(..10) == 0 { rng.usize(..200_000) } else { rng.usize(..200) };
    let (mut fields, is_chunked) = fields(rng, length);
    rng.shuffle(&mut fields);
    bytes.extend_from_slice(line.as_bytes());
    bytes.extend_from_slice(end.as_bytes());
    for field in &fields {
        bytes.extend_from_slice(field.as_bytes());
        bytes.extend_from_slice(end.as_bytes());
    }
    bytes.extend_from_slice(end.as_bytes());
    if is_chunked {
        chunks(rng, &mut bytes, length);
    } else {
        bytes.extend((0..length).map(|at| b'a' + (at % 26) as u8));
    }
    match rng.u8(..30) {
        0 => bytes.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        1 => bytes.extend_from_slice(b"\r\n"),
        2 => bytes.truncate(rng.usize(..=bytes.len())),
        _ => {}
    }
    bytes
}

fn status_line(rng: &mut Rng) -> &'static str {
    match rng.u8(..4) {
        0 => pick(
            rng,
            &[
                "HTTP/1.0 200 OK",
                "HTTP/1.1 204 No Content",
                "HTTP/1.1 304 Not Modified",
                "HTTP/1.1 205 Reset Content",
                "HTTP/1.1 404 Gone fishing",
                "HTTP/1.1 999 ",
                "HTTP/1.1 200",
                "HTTP/1.1 200 ",
                "HTTP/1.1  200 OK",
                "HTTP/1.1 200  OK",
                "\r\nHTTP/1.1 200 OK",
                "\nHTTP/1.1 200 OK",
                "HTTP/1.1 099 Low",
                "HTTP/1.1 1000 High",
                "HTTP/2.0 200 OK",
                "http/1.1 200 OK",
                "ICY 200 OK",
            ],
        ),
        _ => "HTTP/1.1 200 OK",
    }
}

const ODD_LENGTHS: &[&str] = &[
    "+5",
    "-1",
    "",
    "5, 6",
    "0x5",
    "18446744073709551615",
    "18446744073709551614",
    "18446744073709551613",
    "99999999999999999999",
    "5 5",
    "05",
    ",",
];

const ODD_FIELDS: &[&str] = &[
    "a : b",
    "a",
    ": b",
    "a:\r\n b",
    " a: b",
    "a: b\rc",
    "a: b\0",
    "a:",
    "a: \t b \t",
    "\"a\": b",
    "a\u{e9}: b",
    "a: \u{e9}",
    "a: \u{1}",
    "a: \u{7f}",
    "a(b): c",
    "a: b\n\tc",
];

/// The fields of a response whose body has about this length, and whether its body is chunked.
fn fields(rng: &mut Rng, length: usize) -> (Vec<String>, bool) {
    let mut fields = vec!["x: y".to_owned(), format!("Server: {}", "s".repeat(rng.usize(..40)))];
    let is_chunked = match rng.u8(..8) {
        0 => false,
        1..4 => {
            let coding = match rng.u8(..8) {
                0 => {
                    pick(rng, &["gzip, chunked", "gzip", "CHUNKED ", "chunked,", "identity", "xchunked", ""])
                }
                _ => "chunked",
            };
            fields.push(format!("Transfer-Encoding: {coding}"));
            true
        }
        _ => {
            let value = match rng.u8(..12) {
                0 => format!("{length}, {length}"),
                1 => format!("{length}\r\ncontent-length: {length}"),
                2 => pick(rng, ODD_LENGTHS).to_owned(),
                3 => (length + rng.usize(..5)).to_string(),
                _ => length.to_string(),
            };
            fields.push(format!("content-length: {value}"));
            false
        }
    };
    if rng.u8(..20) == 0 {
        fields.push(format!("content-length: {length}\r\ntransfer-encoding: chunked"));
    }
    match rng.u8(..8) {
        0 => fields.push("connection: close".to_owned()),
        1 => fields.push("Connection: Keep-Alive".to_owned()),
        2 => fields.push(
            pick(rng, &["connection: x, close", "connection: closed", "connection: keep-alive, close"])
                .to_owned(),
        ),
        _ => {}
    }
    if rng.u8(..10) == 0 {
        let odd = pick(rng, ODD_FIELDS);
        fields.insert(rng.usize(..fields.len()), odd.to_owned());
    }
    if rng.u8(..60) == 0 {
        let count = rng.usize(90..110);
        fields.extend((0..count).map(|at| format!("f{at}: v")));
    }
    if rng.u8(..60) == 0 {
        fields.push(format!("long: {}", "l".repeat(rng.usize(MAX_HEAD - 400..MAX_HEAD + 400))));
    }
    (fields, is_chunked)
}

fn chunks(rng: &mut Rng, bytes: &mut Vec<u8>, length: usize) {
    let mut left = length;
    while left > 0 {
        let size = rng.usize(1..=left);
        left -= size;
        let zeros = if rng.u8(..10) == 0 { "0".repeat(rng.usize(..20)) } else { String::new() };
        let size_text = if rng.bool() { format!("{zeros}{size:x}") } else { format!("{zeros}{size:X}") };
        let extension = match rng.u8(..10) {
            0 => {
                pick(rng, &[";a", ";a=b", " ", " ;a", ";a=\"b c\"", "\t", ";", " x", ";a\n", ";\r", "; a\0"])
                    .to_owned()
            }
            1 if rng.u8(..10) == 0 => format!(";{}", "e".repeat(rng.usize(..20_000))),
            _ => String::new(),
        };
        bytes.extend_from_slice(format!("{size_text}{extension}\r\n").as_bytes());
        bytes.extend((0..size).map(|at| b'a' + (at % 26) as u8));
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(pick(rng, &["0\r\n", "0\r\n", "00\r\n", "0;a\r\n"]).as_bytes());
    if rng.u8(..5) == 0 {
        for _ in 0..rng.usize(..4) {
            let trailer = match rng.u8(..4) {
                0 => pick(
                    rng,
                    &["a : b", "a", ": b", "a: b\n", "a: b\r", "content-length: 5", "a: \0", " a: b", "a:"],
                ),
                _ => pick(rng, &["X-Sum: 1", "x-sum: 2", "expires: never"]),
            };
            bytes.extend_from_slice(format!("{trailer}\r\n").as_bytes());
        }
        if rng.u8(..40) == 0 {
            bytes.extend_from_slice(format!("long: {}\r\n", "l".repeat(rng.usize(..20_000))).as_bytes());
        }
        if rng.u8(..40) == 0 {
            bytes.extend_from_slice("many: v\r\n".repeat(rng.usize(90..110)).as_bytes());
        }
    }
    bytes.extend_from_slice(b"\r\n");
}

/// Changes a few bytes.
fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.usize(1..4) {
        // Mostly near the start, where the head is.
        let end = if rng.bool() { bytes.len().min(200) } else { bytes.len() };
        let at = rng.usize(..=end);
        let byte =
            pick(rng, &["\r", "\n", "\0", " ", "\t", ":", ",", ";", "0", "9", "f", "\r\n", "a", "\u{e9}"])
                .as_bytes();
        match rng.u8(..5) {
            0 if at < bytes.len() => drop(bytes.remove(at)),
            1 if at < bytes.len() => bytes[at] = byte[0],
            2 if at < bytes.len() => bytes[at] = rng.u8(..),
            3 => {
                let from = rng.usize(..=at);
                let copy = bytes[from.max(at.saturating_sub(40))..at].to_vec();
                drop(bytes.splice(at..at, copy));
            }
            _ => drop(bytes.splice(at..at, byte.iter().copied())),
        }
    }
}

/// Tears `bytes` at random places.
fn pieces(rng: &mut Rng, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut cuts: Vec<_> = match rng.u8(..6) {
        0 if bytes.len() < 200 => (0..bytes.len()).collect(),
        0..3 => (0..rng.usize(1..6)).map(|_| rng.usize(..=bytes.len())).collect(),
        _ => Vec::new(),
    };
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| bytes[cut[0]..cut[1]].to_vec()).filter(|piece| !piece.is_empty()).collect()
}

/// Whether both do the same, or how ours is stricter. `None`: it does something else.
fn difference(script: &Script, own: &Outcome, hyper: &Outcome) -> Option<String> {
    let kind = own.fault.as_ref().map(|fault| fault.split('(').next().unwrap_or_default());
    let has_less = |own: &Outcome| {
        hyper.informational.starts_with(&own.informational)
            && hyper.body.starts_with(&own.body)
            && (own.head.is_none() || own.head == hyper.head)
    };
    match (kind, &hyper.fault) {
        (None, None) if own == hyper => Some("same".to_owned()),
        // hyper does not see a `close` beside bytes that are not ASCII.
        (None, None) if *own == (Outcome { is_reusable: false, ..hyper.clone() }) => {
            Some("closed, stricter".to_owned())
        }
        // How much of a broken request is sent before it breaks is a matter of time. hyper waits for the response to
        // one that is shorter than announced.
        (Some("Upload"), _) if script.is_broken() => {
            let is_same = own.sent.starts_with(&hyper.sent) || hyper.sent.starts_with(&own.sent);
            is_same.then(|| "broken request".to_owned())
        }
        (Some(kind), Some(_)) => {
            (own.sent == hyper.sent && (has_less(own) || has_less(hyper))).then(|| format!("{kind} for both"))
        }
        (
            Some(
                kind @ ("AmbiguousLength" | "ManyInformational" | "MalformedChunk" | "MalformedTrailers"
                | "LargeHead"),
            ),
            None,
        ) => (own.sent == hyper.sent && has_less(own)).then(|| format!("{kind}, stricter")),
        _ => None,
    }
}

/// The result of each exchange until both differ.
///
/// # Errors
/// The outcomes differ in a way that is not allowed.
fn compare(scripts: &[Script], own: &[Outcome], hyper: &[Outcome]) -> Vec<Result<String, String>> {
    let mut reasons = Vec::new();
    let mut was_old = false;
    for ((script, own), hyper) in scripts.iter().zip(own).zip(hyper) {
        let reason = difference(script, own, hyper);
        reasons.push(reason.or_else(|| was_old.then(|| "kept after HTTP/1.0".to_owned())).ok_or_else(|| {
            let pieces: Vec<_> = script.pieces.iter().map(|piece| piece.escape_ascii().to_string()).collect();
            let (method, fields) = (script.method, &script.fields);
            let (own, hyper) = (own.shown(), hyper.shown());
            format!("{method} {fields:?}\n {:.600}\n own:   {own}\n hyper: {hyper}", format!("{pieces:?}"))
        }));
        if own != hyper {
            break;
        }
        was_old = own.head.as_ref().is_some_and(|head| head.starts_with("HTTP/1.0"));
    }
    reasons
}

#[test]
fn the_client_does_what_hypers_does_or_is_stricter() {
    let number = |name, default| env::var(name).map_or(default, |text| text.parse().unwrap());
    let (lives, first): (u64, u64) = (number("TOLLGATE_LIVES", 3_000), number("TOLLGATE_SEED", 1));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut found = BTreeMap::<String, u64>::new();
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        for seed in first..first + lives {
            let mut rng = Rng::with_seed(seed);
            let mut scripts: Vec<_> = (0..rng.usize(1..4)).map(|_| request(&mut rng)).collect();
            for script in &mut scripts {
                let mut bytes = reply(&mut rng);
                if rng.bool() {
                    mutate(&mut rng, &mut bytes);
                }
                script.pieces = pieces(&mut rng, &bytes);
            }
            let is_reset = rng.u8(..10) == 0;
            // A busy machine delays bytes, so a difference counts only if it persists.
            let mut reasons = Vec::new();
            for _ in 0..3 {
                let hyper = live::<Hyper>(&listener, &scripts, is_reset).await;
                let own = live::<Own>(&listener, &scripts, is_reset).await;
                reasons = compare(&scripts, &own, &hyper);
                if reasons.iter().all(Result::is_ok) {
                    break;
                }
            }
            for reason in reasons {
                let reason = reason.unwrap_or_else(|difference| {
                    println!("seed {seed}: {difference}");
                    "different".to_owned()
                });
                *found.entry(reason).or_default() += 1;
            }
        }
    });
    println!("{found:#?}");
    assert!(!found.contains_key("different"));
}

impl Outcome {
    fn shown(&self) -> String {
        let text = |bytes: &[u8]| format!("{:.100}… {}", bytes.escape_ascii().to_string(), bytes.len());
        format!(
            "sent {}\n   1xx {:?}\n   head {:.300}\n   body {}\n   trailers {:?} fault {:?} reusable {}",
            text(&self.sent),
            self.informational,
            format!("{:?}", self.head),
            text(&self.body),
            self.trailers,
            self.fault,
            self.is_reusable
        )
    }
}
