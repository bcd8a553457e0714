//! Scans the body of a response for its cost, beside its way to the client.

use std::sync::Arc;

use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use memchr::memchr;

use super::{
    event_stream::{EventParser, EventPart},
    gzip::Gunzip,
    json_scanner::JsonScanner,
    json_sum::{FoundNumber, JsonSum},
};

/// Finds the numbers of a sum in a body that arrives in pieces.
#[derive(Debug)]
pub struct BodyScanner {
    gunzip: Option<Gunzip>,
    texts: JsonTexts,
}

/// Why a response is not scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unscannable {
    /// Its media type is not JSON, JSON lines or an event stream. Or it has none.
    MediaType,
    /// Its content coding is not gzip.
    ContentCoding,
}

/// The JSON texts of a body, by its media type.
#[derive(Debug)]
enum JsonTexts {
    /// `application/json`: one text, or an array of texts.
    Whole(JsonScanner),
    /// `application/x-ndjson`: a text a line.
    Lines(JsonScanner),
    /// `text/event-stream`: a text an event.
    Events(EventParser, JsonScanner),
}

impl BodyScanner {
    /// Scans the body of the response with these headers.
    pub fn new(sum: &Arc<JsonSum>, headers: &HeaderMap) -> Result<Self, Unscannable> {
        let texts = JsonTexts::new(sum, headers).ok_or(Unscannable::MediaType)?;
        let codings =
            headers.get_all(CONTENT_ENCODING).iter().flat_map(|field| field.as_bytes().split(|b| *b == b','));
        let mut codings = codings
            .map(<[u8]>::trim_ascii)
            .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"));
        let gunzip = match (codings.next(), codings.next()) {
            (None, _) => None,
            (Some(coding), None) if is_gzip(coding) => Some(Gunzip::new()),
            _ => return Err(Unscannable::ContentCoding),
        };
        Ok(Self { gunzip, texts })
    }

    /// Reads the next piece of the body, as the upstream sent it. Returns how many bytes of it were read: less than all where
    /// they are compressed and expand far. The rest comes with the next call.
    #[must_use]
    pub fn read(&mut self, piece: &[u8]) -> usize {
        match &mut self.gunzip {
            None => {
                self.texts.read(piece);
                piece.len()
            }
            Some(gunzip) => gunzip.read(piece, |decoded| self.texts.read(decoded)),
        }
    }

    /// Bytes of the texts so far, of which the response consists.
    pub fn text_bytes(&self) -> u64 {
        self.texts.json().text_bytes()
    }

    /// The cost by the body so far. A body that cannot be decoded to its end is unusable: its last numbers are missing.
    pub fn found(&self) -> FoundNumber {
        match &self.gunzip {
            Some(gunzip) if gunzip.has_failed() => FoundNumber::Unusable,
            _ => self.texts.json().total(),
        }
    }
}

/// The media type that `headers` name, without its parameters, in lower case (RFC 9110, 8.3.1).
pub fn media_type(headers: &HeaderMap) -> Option<String> {
    let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(content_type.split(';').next()?.trim().to_ascii_lowercase())
}

/// RFC 9110, 8.4.1.3
fn is_gzip(coding: &[u8]) -> bool {
    coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip")
}

impl JsonTexts {
    fn new(sum: &Arc<JsonSum>, headers: &HeaderMap) -> Option<Self> {
        let media_type = media_type(headers)?;
        let json = || JsonScanner::new(sum.clone());
        match media_type.as_str() {
            "text/event-stream" => Some(Self::Events(EventParser::new(), json())),
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/x-jsonlines"
            | "application/json-seq" => Some(Self::Lines(json())),
            "application/json" => Some(Self::Whole(json())),
            // RFC 6839, 3.1
            other if other.starts_with("application/") && other.ends_with("+json") => {
                Some(Self::Whole(json()))
            }
            _ => None,
        }
    }

    fn json(&self) -> &JsonScanner {
        match self {
            Self::Whole(json) | Self::Lines(json) | Self::Events(_, json) => json,
        }
    }

    fn read(&mut self, mut piece: &[u8]) {
        match self {
            Self::Whole(json) => json.read(piece),
            Self::Lines(json) => {
                // No string has a line break, so that a torn line does not spoil the next one.
                while let Some(end) = memchr(b'\n', piece) {
                    let (line, rest) = piece.split_at(end + 1);
                    json.read(line);
                    json.end();
                    piece = rest;
                }
                json.read(piece);
            }
            Self::Events(events, json) => {
                while let Some(part) = events.next(&mut piece) {
                    match part {
                        EventPart::Data(data) => json.read(data),
                        EventPart::End => json.end(),
                    }
                }
            }
        }
    }
}
