//! Scanning responses for their cost, and reading and editing requests: nanoseconds a byte of the body.
//!
//! `cargo bench --bench response_cost [NAME]`
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a table is what it is for, and it may end")]

use std::{
    env,
    fmt::Write as _,
    hint::black_box,
    io::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{
    HeaderMap, HeaderValue,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use tollgate::{
    json_path::JsonPath,
    request_values::{AskedMembers, OutputBounds, ask_for_usage, usage_paths},
    response_cost::{BodyScanner, FoundNumber, JsonSum, UsageEventFilter},
};

/// The allocator of the proxy.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long each figure is measured.
const RUN_TIME: Duration = Duration::from_millis(500);
/// The pieces of a body: a segment of TCP, and what is read at once at most.
const PIECES: [usize; 2] = [1_400, 16 << 10];

const LAST_EVENT: &str = "data: {\"choices\":[],\"usage\":{\"total_tokens\":5}}\n\ndata: [DONE]\n\n";
const END: &str = "],\"usage\":{\"total_tokens\":5}}";

/// A body, and its media type.
struct Subject {
    name: &'static str,
    media_type: &'static str,
    body: String,
}

/// Events as OpenAI sends them.
fn events() -> String {
    let mut random = fastrand::Rng::with_seed(1);
    let mut events = String::new();
    for _ in 0..4_000 {
        let (word, padding) = (word(&mut random), word(&mut random));
        write!(
            events,
            "data: {{\"id\":\"chatcmpl-1a2b3c\",\"object\":\"chat.completion.chunk\",\"created\":1750000000,\
             \"model\":\"gpt-4o-mini\",\"system_fingerprint\":\"fp_0a1b2c\",\"choices\":[{{\"index\":0,\"delta\":\
             {{\"content\":\" {word}\"}},\"logprobs\":null,\"finish_reason\":null}}],\"usage\":null,\
             \"obfuscation\":\"{padding}\"}}\n\n"
        )
        .unwrap();
    }
    events + LAST_EVENT
}

/// A text of these many words.
fn prose(words: usize) -> String {
    let mut random = fastrand::Rng::with_seed(2);
    (0..words).map(|nth| word(&mut random) + if nth % 12 == 0 { ".\\n" } else { " " }).collect()
}

fn word(random: &mut fastrand::Rng) -> String {
    let length = random.usize(2..10);
    std::iter::repeat_with(|| random.lowercase()).take(length).collect()
}

fn subjects() -> [Subject; 5] {
    let subject = |name, media_type, body| Subject { name, media_type, body };
    let json = |values: String| format!("{{\"choices\":[{values}{END}");
    [
        subject("events", "text/event-stream", events()),
        subject("prose", "application/json", json(format!("\"{}\"", prose(150_000)))),
        subject("short strings", "application/json", json("\"a\":\"b\",".repeat(120_000))),
        subject("numbers", "application/json", json("[1.25,{\"a\":null}],".repeat(60_000))),
        subject("brackets", "application/json", json("[{}],".repeat(200_000))),
    ]
}

fn main() {
    let only = env::args().skip(1).find(|argument| !argument.starts_with('-'));
    println!("| body | piece | plain | gzip, per decoded byte |");
    println!("| --- | ---: | ---: | ---: |");
    for Subject { name, media_type, body } in subjects() {
        if only.as_deref().is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(body.as_bytes()).unwrap();
        let zipped = encoder.finish().unwrap();
        for piece in PIECES {
            let plain = nanos(body.len(), || scan(media_type, None, body.as_bytes(), piece));
            // Pieces that decode to about as much.
            let piece_of_zip = (piece * zipped.len() / body.len()).max(1);
            let gzip = nanos(body.len(), || scan(media_type, Some("gzip"), &zipped, piece_of_zip));
            println!("| {name} | {piece} | {plain:.2} ns | {gzip:.2} ns |");
        }
    }
    others();
}

fn scan(media_type: &'static str, coding: Option<&'static str>, body: &[u8], piece: usize) {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    if let Some(coding) = coding {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    let mut scanner = BodyScanner::new(&Arc::new(JsonSum::openai()), &headers).unwrap();
    for mut piece in body.chunks(piece) {
        while !piece.is_empty() {
            piece = &piece[scanner.read(black_box(piece))..];
        }
    }
    assert_eq!(scanner.found(), FoundNumber::Number(5));
}

/// The filter, and what reads or edits requests.
fn others() {
    let body = Bytes::from(events());
    let filtered = nanos(body.len(), || {
        let mut filter = UsageEventFilter::new();
        for from in (0..body.len()).step_by(PIECES[0]) {
            black_box(filter.filter(&body.slice(from..(from + PIECES[0]).min(body.len()))));
        }
        black_box(filter.finish());
    });
    let message =
        "{\"role\":\"user\",\"content\":\"lorem ipsum dolor sit amet, consectetur adipiscing elit\"},";
    let request = format!("{{\"messages\":[{}0],\"max_tokens\":5,\"stream\":true}}", message.repeat(10_000));
    let bounds = OutputBounds::new(
        &["max_completion_tokens", "max_tokens"].map(|path| JsonPath::parse(path).unwrap()),
        false,
    );
    let members = AskedMembers::new(bounds.paths());
    let read = nanos(request.len(), || {
        let found = members.read(black_box(request.as_bytes())).unwrap();
        assert_eq!(bounds.asked(&found[0]).unwrap().bound, Some(5));
    });
    let members = AskedMembers::new(usage_paths());
    let asked = nanos(request.len(), || {
        let found = members.read(black_box(request.as_bytes())).unwrap();
        assert!(ask_for_usage(&found[0], "/", request.as_bytes()).unwrap().is_some());
    });
    println!("\n| | |\n| --- | ---: |");
    println!(
        "| filter of events | {filtered:.2} ns |\n| number of a request | {read:.2} ns |\n| ask for usage | {asked:.2} ns |"
    );
}

/// The time that `run` takes for each of `bytes`: that of the fastest of many runs, which nothing has interrupted.
fn nanos(bytes: usize, run: impl Fn()) -> f64 {
    let (start, mut fastest) = (Instant::now(), Duration::MAX);
    while start.elapsed() < RUN_TIME {
        let start = Instant::now();
        run();
        fastest = fastest.min(start.elapsed());
    }
    fastest.as_nanos() as f64 / bytes as f64
}
