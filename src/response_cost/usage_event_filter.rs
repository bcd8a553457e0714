//! Takes the event out of a stream that a client has not asked for.

use bytes::Bytes;
use serde::{Deserialize, de::IgnoredAny};

use super::event_stream::{EventParser, EventPart};

/// The longest event that is held back until it ends. The event with the usage is shorter by far.
const MAX_EVENT: usize = 32 << 10;

/// Takes the event out of an OpenAI chat completion stream that it has only because of `include_usage`: it has no
/// choices, and a usage. All else passes byte for byte: also the `"usage":null` that the other events have then, which
/// clients ignore.
///
/// It holds back the current event until it ends, at most 32 KiB, and a copy of its data. A longer one passes. The body
/// must not be compressed.
#[derive(Debug)]
pub struct UsageEventFilter {
    parser: EventParser,
    /// The current event, as far as it has arrived.
    held: Vec<u8>,
    /// Its data.
    data: Vec<u8>,
    /// Whether it is too long to be held back.
    is_too_long: bool,
    /// Whether the previous event was taken out.
    was_removed: bool,
}

impl UsageEventFilter {
    #[expect(clippy::new_without_default, reason = "a filter belongs to a stream: none is the default one")]
    pub fn new() -> Self {
        let parser = EventParser::new();
        Self { parser, held: Vec::new(), data: Vec::new(), is_too_long: false, was_removed: false }
    }

    /// Takes the next chunk of the body. Returns the events that are complete now, without the one with the usage. May
    /// be empty.
    pub fn filter(&mut self, chunk: &Bytes) -> Bytes {
        let mut rest = &chunk[..];
        // These bytes pass: `before`, then `chunk[from..to]`.
        let mut before = Vec::new();
        let (mut from, mut to) = (0, 0);
        let is_between_events = self.held.is_empty() && !self.is_too_long;
        if self.parser.take_lf(&mut rest) && is_between_events {
            // It belongs to the previous event.
            to = 1;
            from = usize::from(self.was_removed);
        }
        while let Some(part) = self.parser.next(&mut rest) {
            match part {
                EventPart::Data(data) => self.add(data),
                EventPart::End => {
                    let end = chunk.len() - rest.len();
                    self.is_too_long |= self.held.len() + end - to > MAX_EVENT;
                    self.was_removed = self.take_usage();
                    if self.was_removed {
                        self.held.clear();
                        before.extend_from_slice(&chunk[from..to]);
                        from = end;
                    } else if !self.held.is_empty() {
                        before = std::mem::take(&mut self.held);
                    }
                    to = end;
                }
            }
        }
        self.is_too_long |= self.held.len() + chunk.len() - to > MAX_EVENT;
        if self.is_too_long {
            self.data.clear();
            before.append(&mut self.held);
            to = chunk.len();
        } else {
            self.held.extend_from_slice(&chunk[to..]);
        }
        if before.is_empty() {
            return chunk.slice(from..to);
        }
        before.extend_from_slice(&chunk[from..to]);
        before.into()
    }

    /// Returns the unfinished event at the end of the body.
    pub fn finish(&mut self) -> Bytes {
        if self.take_usage() { Bytes::new() } else { std::mem::take(&mut self.held).into() }
    }

    /// Adds to the data of the current event.
    fn add(&mut self, data: &[u8]) {
        self.is_too_long |= self.data.len() + data.len() > MAX_EVENT;
        if !self.is_too_long {
            self.data.extend_from_slice(data);
        }
    }

    /// Ends the current event. Returns whether it is the one with the usage.
    fn take_usage(&mut self) -> bool {
        let is_usage = !std::mem::take(&mut self.is_too_long) && is_usage(&self.data);
        self.data.clear();
        is_usage
    }
}

/// A chat completion chunk that tells the usage, and nothing else.
#[derive(Deserialize)]
struct UsageChunk {
    #[serde(rename = "choices")]
    _choices: [IgnoredAny; 0],
    usage: Option<IgnoredAny>,
}

fn is_usage(data: &[u8]) -> bool {
    // Serde would take an array for a struct, too.
    data.trim_ascii_start().starts_with(b"{")
        && serde_json::from_slice::<UsageChunk>(data).is_ok_and(|chunk| chunk.usage.is_some())
}
