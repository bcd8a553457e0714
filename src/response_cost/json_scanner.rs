//! Finds numbers in JSON texts that arrive in pieces.
//!
//! It looks only at values on a path, and skips everything else by its brackets and quotes. So its state is as small
//! as the paths, however long or deep a text is, and malformed JSON costs no more than other JSON.

use std::sync::Arc;

use memchr::memchr2;

use super::json_sum::{FoundNumber, JsonSum};

/// Most bytes of a number. A longer one is unusable.
const MAX_DIGITS: usize = 64;
/// Most strings are shorter: a plain loop finds their end sooner than a vectorised search starts.
const SHORT: usize = 24;

/// The state between two pieces.
#[derive(Debug, Clone)]
pub(super) struct JsonScanner {
    sum: Arc<JsonSum>,
    /// The open objects on a path, and the array of texts around them.
    open: Vec<Container>,
    /// How many brackets are open in the value that is skipped.
    skipped: u64,
    state: ScanState,
    /// The node of the next value, if it is on a path.
    value: Option<usize>,
    /// The beginning of the name or number that is being read.
    text: Vec<u8>,
    /// The last result for each number of the sum.
    found: Vec<FoundNumber>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    /// An object at this node.
    Object(usize),
    /// An array of texts: Gemini's streams are one.
    Array,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    /// Before a value, or between a value and the comma or bracket that follows it.
    Value,
    /// In an object, before a name or its end.
    Name,
    /// In a name.
    InName {
        is_escaped: bool,
    },
    /// In a string that is no name, or is skipped.
    InString {
        is_escaped: bool,
    },
    InNumber,
    /// In brackets that are skipped.
    InSkipped,
}

impl JsonScanner {
    pub(super) fn new(sum: Arc<JsonSum>) -> Self {
        let found = vec![FoundNumber::Nothing; sum.numbers().len()];
        let (state, value) = (ScanState::Value, Some(JsonSum::ROOT));
        Self { sum, open: Vec::new(), skipped: 0, state, value, text: Vec::new(), found }
    }

    /// The sum of the numbers so far.
    pub(super) fn total(&self) -> FoundNumber {
        self.sum.total(&self.found)
    }

    /// The last result for each number of the sum.
    pub(super) fn found(&self) -> &[FoundNumber] {
        &self.found
    }

    /// Reads the next piece of a text.
    pub(super) fn read(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let used = match self.state {
                ScanState::Value => self.before_value(piece),
                ScanState::Name => self.before_name(piece),
                ScanState::InName { is_escaped } => self.in_name(piece, is_escaped),
                ScanState::InString { is_escaped } => self.in_string(piece, is_escaped),
                ScanState::InNumber => self.in_number(piece),
                ScanState::InSkipped => self.in_skipped(piece),
            };
            piece = &piece[used.min(piece.len())..];
        }
    }

    /// Ends the text, even if it is incomplete. Another one may follow.
    pub(super) fn end(&mut self) {
        self.open.clear();
        (self.skipped, self.state, self.value) = (0, ScanState::Value, Some(JsonSum::ROOT));
    }

    fn before_value(&mut self, piece: &[u8]) -> usize {
        // Letters belong to `true`, `false` and `null`, which count for nothing.
        let is_token =
            |byte: &u8| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']' | b',' | b'-' | b'0'..=b'9');
        let Some(at) = piece.iter().position(is_token) else { return piece.len() };
        match piece[at] {
            b'"' => self.state = ScanState::InString { is_escaped: false },
            b'{' => match self.value.filter(|node| self.sum.has_children(*node)) {
                Some(node) => {
                    self.open.push(Container::Object(node));
                    self.state = ScanState::Name;
                }
                None => self.skip(),
            },
            b'[' if self.value == Some(JsonSum::ROOT) && self.open.is_empty() => {
                self.open.push(Container::Array);
            }
            b'[' => self.skip(),
            b'}' | b']' => self.close(),
            b',' => self.after_comma(),
            _ => {
                self.text.clear();
                self.state = ScanState::InNumber;
                return at;
            }
        }
        at + 1
    }

    fn skip(&mut self) {
        (self.skipped, self.state) = (1, ScanState::InSkipped);
    }

    fn after_comma(&mut self) {
        (self.state, self.value) = match self.open.last() {
            Some(Container::Object(_)) => (ScanState::Name, None),
            Some(Container::Array) | None => (ScanState::Value, Some(JsonSum::ROOT)),
        };
    }

    /// Ends the innermost open container.
    fn close(&mut self) {
        self.open.pop();
        let is_text_next = matches!(self.open.last(), None | Some(Container::Array));
        (self.state, self.value) = (ScanState::Value, is_text_next.then_some(JsonSum::ROOT));
    }

    fn before_name(&mut self, piece: &[u8]) -> usize {
        let Some(at) = piece.iter().position(|byte| matches!(byte, b'"' | b'}')) else { return piece.len() };
        if piece[at] == b'"' {
            self.text.clear();
            self.state = ScanState::InName { is_escaped: false };
        } else {
            self.close();
        }
        at + 1
    }

    fn in_name(&mut self, piece: &[u8], is_escaped: bool) -> usize {
        let longest = self.sum.longest_name();
        match end_of_string(piece, is_escaped) {
            StringPart::GoesOn { is_escaped } => {
                self.keep(piece, longest);
                self.state = ScanState::InName { is_escaped };
                piece.len()
            }
            StringPart::Ends { used } => {
                let part = &piece[..used - 1];
                // Most names arrive whole. This saves a copy.
                let is_whole = self.text.is_empty();
                if !is_whole {
                    self.keep(part, longest);
                }
                let name = if is_whole { part } else { &self.text };
                self.value = match self.open.last() {
                    Some(Container::Object(node)) if name.len() <= longest => child(&self.sum, *node, name),
                    _ => None,
                };
                self.state = ScanState::Value;
                used
            }
        }
    }

    /// Adds `part` to the text, whose length is bounded: one byte above `longest` tells that it is longer.
    fn keep(&mut self, part: &[u8], longest: usize) {
        let room = (longest + 1).saturating_sub(self.text.len());
        self.text.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn in_string(&mut self, piece: &[u8], is_escaped: bool) -> usize {
        match end_of_string(piece, is_escaped) {
            StringPart::GoesOn { is_escaped } => {
                self.state = ScanState::InString { is_escaped };
                piece.len()
            }
            StringPart::Ends { used } => {
                self.state = if self.skipped > 0 { ScanState::InSkipped } else { ScanState::Value };
                used
            }
        }
    }

    fn in_number(&mut self, piece: &[u8]) -> usize {
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let end = piece.iter().position(|byte| !is_part(byte));
        let part = &piece[..end.unwrap_or(piece.len())];
        // Numbers off the paths are not kept.
        if let Some(node) = self.value {
            self.keep(part, MAX_DIGITS);
            if end.is_some() {
                for number in self.sum.numbers_at(node) {
                    self.found[*number] = if self.text.len() <= MAX_DIGITS {
                        FoundNumber::parse(&self.text)
                    } else {
                        FoundNumber::Unusable
                    };
                }
            }
        }
        if end.is_some() {
            self.state = ScanState::Value;
        }
        part.len()
    }

    fn in_skipped(&mut self, piece: &[u8]) -> usize {
        for (at, byte) in piece.iter().enumerate() {
            match byte {
                b'"' => {
                    self.state = ScanState::InString { is_escaped: false };
                    return at + 1;
                }
                b'{' | b'[' => self.skipped += 1,
                b'}' | b']' => {
                    self.skipped -= 1;
                    if self.skipped == 0 {
                        self.state = ScanState::Value;
                        return at + 1;
                    }
                }
                _ => {}
            }
        }
        piece.len()
    }
}

/// A piece of text that begins in a string.
enum StringPart {
    /// The string ends in it, after `used` bytes, the quote included.
    Ends { used: usize },
    /// `is_escaped`: the next byte belongs to an escape.
    GoesOn { is_escaped: bool },
}

fn end_of_string(piece: &[u8], is_escaped: bool) -> StringPart {
    let mut at = usize::from(is_escaped);
    loop {
        let rest = piece.get(at..).unwrap_or_default();
        let short = &rest[..rest.len().min(SHORT)];
        let found = short.iter().position(|byte| matches!(byte, b'"' | b'\\'));
        let found = found.or_else(|| Some(short.len() + memchr2(b'"', b'\\', &rest[short.len()..])?));
        match found {
            None => return StringPart::GoesOn { is_escaped: at > piece.len() },
            Some(found) if rest[found] == b'"' => return StringPart::Ends { used: at + found + 1 },
            Some(found) => at += found + 2,
        }
    }
}

/// The node below `node` for the name that JSON writes as `name`.
fn child(sum: &JsonSum, node: usize, name: &[u8]) -> Option<usize> {
    if !name.contains(&b'\\') {
        return sum.child(node, name);
    }
    let quoted = [b"\"", name, b"\""].concat();
    let name: String = serde_json::from_slice(&quoted).ok()?;
    sum.child(node, name.as_bytes())
}
