//! The costs that responses tell, found in their bodies however they arrive.

mod providers;
mod scanner;
mod usage_event_filter;

use std::{io::Write, sync::Arc};

use flate2::{Compression, write::GzEncoder};
use http::{
    HeaderMap, HeaderValue,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use tollgate::response_cost::{BodyScanner, FoundNumber, JsonSum, Unscannable};

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";
const EVENTS: &str = "text/event-stream";

fn scanner(sum: &Arc<JsonSum>, content_type: &str, coding: Option<&str>) -> Result<BodyScanner, Unscannable> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap());
    if let Some(coding) = coding {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_str(coding).unwrap());
    }
    BodyScanner::new(sum, &headers)
}

/// What a scanner finds in these pieces.
fn scan<'p>(
    sum: &Arc<JsonSum>,
    content_type: &str,
    coding: Option<&str>,
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> FoundNumber {
    let mut scanner = scanner(sum, content_type, coding).unwrap();
    pieces.into_iter().for_each(|piece| read_all(&mut scanner, piece));
    scanner.found()
}

/// Reads a piece, step by step where it expands far.
fn read_all(scanner: &mut BodyScanner, mut piece: &[u8]) {
    while !piece.is_empty() {
        piece = &piece[scanner.read(piece)..];
    }
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// The pieces of `body` with these lengths, again and again.
fn pieces<'b>(mut body: &'b [u8], lengths: &[usize]) -> Vec<&'b [u8]> {
    let mut pieces = Vec::new();
    for length in lengths.iter().cycle() {
        if body.is_empty() {
            break;
        }
        let (piece, rest) = body.split_at((*length).clamp(1, body.len()));
        pieces.push(piece);
        body = rest;
    }
    pieces
}
