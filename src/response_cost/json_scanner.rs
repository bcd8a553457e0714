//! Finds numbers in JSON texts that arrive in pieces, and counts the texts of a response.
//!
//! It looks only at values on a path, and skips everything else by its brackets and quotes. So its state is as small
//! as the paths, however long or deep a text is, and malformed JSON costs no more than other JSON.

use std::sync::Arc;

use memchr::memchr2;

use super::json_sum::{FoundNumber, JsonSum};
use crate::json_path::PathTree;

/// Most bytes of a number. A longer one is unusable.
const MAX_DIGITS: usize = 64;
/// Most open objects and arrays that are not skipped. The arguments of a tool may be deeper: their texts are not counted.
const MAX_OPEN: usize = 64;
/// Most strings are shorter: a plain loop finds their end sooner than a vectorised search starts.
const SHORT: usize = 24;

/// The state between two pieces.
#[derive(Debug, Clone)]
pub(super) struct JsonScanner {
    sum: Arc<JsonSum>,
    /// The open objects and arrays on a path.
    open: Vec<Container>,
    /// How many brackets are open in the value that is skipped.
    skipped: u64,
    state: ScanState,
    /// The place of the next value.
    value: ValuePlace,
    /// The beginning of the name or number that is being read.
    text: Vec<u8>,
    /// The last result for each number of the sum.
    found: Vec<FoundNumber>,
    /// If the text is an array of responses: the sums of its elements, and those without the current one.
    array: Vec<FoundNumber>,
    before: Vec<FoundNumber>,
    /// Bytes of the texts so far, without JSON's escapes.
    text_bytes: u64,
}

/// The place of a value: its node among the paths of numbers, and among those of texts, if it has one there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ValuePlace {
    number: Option<usize>,
    text: Option<TextPlace>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextPlace {
    Node(usize),
    /// Everything below is text.
    Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    /// An object at this place.
    Object(ValuePlace),
    /// An array whose elements are at this place.
    Array(ValuePlace),
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
    /// In a string that counts.
    InText(EscapePart),
    InNumber,
    /// In brackets that are skipped.
    InSkipped,
}

/// How far an escape is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EscapePart {
    None,
    /// After the backslash.
    Begun,
    /// After `\u` and so many digits.
    Digits(u8),
}

impl ValuePlace {
    /// Of a whole text.
    const ROOT: Self = Self { number: Some(PathTree::ROOT), text: Some(TextPlace::Node(PathTree::ROOT)) };
    const NONE: Self = Self { number: None, text: None };
}

impl JsonScanner {
    pub(super) fn new(sum: Arc<JsonSum>) -> Self {
        let found = vec![FoundNumber::Nothing; sum.numbers().len()];
        let (array, before) = (found.clone(), found.clone());
        let (state, value) = (ScanState::Value, ValuePlace::ROOT);
        Self {
            sum,
            open: Vec::new(),
            skipped: 0,
            state,
            value,
            text: Vec::new(),
            found,
            array,
            before,
            text_bytes: 0,
        }
    }

    /// Bytes of the texts so far.
    pub(super) fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    /// The sum of the numbers so far.
    pub(super) fn total(&self) -> FoundNumber {
        self.sum.total(&self.found)
    }

    /// The most bytes that JSON may take to write a name of a path: `\uXXXX` for each byte.
    fn longest_name(&self) -> usize {
        6 * self.sum.paths.longest_name().max(self.sum.texts.longest_name())
    }

    /// Reads the next piece of a text.
    pub(super) fn read(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let used = match self.state {
                ScanState::Value => self.before_value(piece),
                ScanState::Name => self.before_name(piece),
                ScanState::InName { is_escaped } => self.in_name(piece, is_escaped),
                ScanState::InString { is_escaped } => self.in_string(piece, is_escaped),
                ScanState::InText(escape) => self.in_text(piece, escape),
                ScanState::InNumber => self.in_number(piece),
                ScanState::InSkipped => self.in_skipped(piece),
            };
            piece = &piece[used.min(piece.len())..];
        }
    }

    /// Ends the text, even if it is incomplete. Another one may follow.
    pub(super) fn end(&mut self) {
        self.open.clear();
        self.before.fill(FoundNumber::Nothing);
        (self.skipped, self.state, self.value) = (0, ScanState::Value, ValuePlace::ROOT);
    }

    fn before_value(&mut self, piece: &[u8]) -> usize {
        // Letters belong to `true`, `false` and `null`, which count for nothing.
        let is_token =
            |byte: &u8| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']' | b',' | b'-' | b'0'..=b'9');
        let Some(at) = piece.iter().position(is_token) else { return piece.len() };
        match piece[at] {
            b'"' if self.value.text == Some(TextPlace::Text) => {
                self.state = ScanState::InText(EscapePart::None);
            }
            b'"' => self.state = ScanState::InString { is_escaped: false },
            b'{' if self.goes_on() => {
                self.open.push(Container::Object(self.value));
                self.state = ScanState::Name;
            }
            b'[' if self.value == ValuePlace::ROOT && self.open.is_empty() => {
                self.array.fill(FoundNumber::Nothing);
                self.open.push(Container::Array(ValuePlace::ROOT));
            }
            b'[' if self.value.text.is_some() && self.open.len() < MAX_OPEN => {
                self.value.number = None;
                self.open.push(Container::Array(self.value));
            }
            b'{' | b'[' => self.skip(),
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

    /// Whether something is looked for in an object at the place of the value.
    fn goes_on(&self) -> bool {
        let ValuePlace { number, text } = self.value;
        let has_text = text.is_some_and(|text| match text {
            TextPlace::Text => true,
            TextPlace::Node(node) => self.sum.texts.has_children(node),
        });
        let has_numbers = number.is_some_and(|node| self.sum.paths.has_children(node));
        (has_numbers || has_text) && self.open.len() < MAX_OPEN
    }

    fn after_comma(&mut self) {
        (self.state, self.value) = match self.open.last() {
            Some(Container::Object(_)) => (ScanState::Name, ValuePlace::NONE),
            Some(Container::Array(place)) => (ScanState::Value, *place),
            None => (ScanState::Value, ValuePlace::ROOT),
        };
        if let [Container::Array(_)] = *self.open {
            self.before.copy_from_slice(&self.array);
        }
    }

    /// Ends the innermost open container.
    fn close(&mut self) {
        self.open.pop();
        (self.state, self.value) = (ScanState::Value, ValuePlace::NONE);
        if self.open.is_empty() {
            self.before.fill(FoundNumber::Nothing);
            self.value = ValuePlace::ROOT;
        }
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
        let longest = self.longest_name();
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
                    Some(Container::Object(place)) => child(&self.sum, *place, name, longest),
                    _ => ValuePlace::NONE,
                };
                if let Some(Container::Object(ValuePlace { text: Some(TextPlace::Text), .. })) =
                    self.open.last()
                {
                    self.text_bytes += name.len() as u64;
                }
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

    /// Counts a text. An escape of a character counts as the two or three bytes that most such characters have.
    fn in_text(&mut self, piece: &[u8], mut escape: EscapePart) -> usize {
        let mut at = 0;
        while let Some(byte) = piece.get(at) {
            escape = match escape {
                EscapePart::None => {
                    let Some(found) = memchr2(b'"', b'\\', &piece[at..]) else {
                        self.text_bytes += (piece.len() - at) as u64;
                        break;
                    };
                    self.text_bytes += found as u64;
                    at += found;
                    if piece[at] == b'"' {
                        self.state = ScanState::Value;
                        return at + 1;
                    }
                    EscapePart::Begun
                }
                EscapePart::Begun if *byte == b'u' => EscapePart::Digits(0),
                EscapePart::Begun => {
                    self.text_bytes += 1;
                    EscapePart::None
                }
                EscapePart::Digits(0) => {
                    // Below U+1000, or half of a pair of surrogates.
                    self.text_bytes += if matches!(byte, b'0' | b'd' | b'D') { 2 } else { 3 };
                    EscapePart::Digits(1)
                }
                EscapePart::Digits(3) => EscapePart::None,
                EscapePart::Digits(read) => EscapePart::Digits(read + 1),
            };
            at += 1;
        }
        self.state = ScanState::InText(escape);
        piece.len()
    }

    fn in_number(&mut self, piece: &[u8]) -> usize {
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let end = piece.iter().position(|byte| !is_part(byte));
        let part = &piece[..end.unwrap_or(piece.len())];
        if self.value.text == Some(TextPlace::Text) {
            self.text_bytes += part.len() as u64;
        }
        // Numbers off the paths are not kept.
        if let Some(node) = self.value.number {
            self.keep(part, MAX_DIGITS);
            if end.is_some() {
                for number in self.sum.paths.sought_at(node) {
                    let read = match self.text.len() <= MAX_DIGITS {
                        true => FoundNumber::parse(&self.text),
                        false => FoundNumber::Unusable,
                    };
                    let is_total = self.sum.numbers()[*number].is_total;
                    self.found[*number] = if is_total { read } else { self.before[*number].plus(read) };
                    self.array[*number] = self.found[*number];
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

/// The place below `place` for the name that JSON writes as `name`. `longest`: the most bytes of a name on a path.
fn child(sum: &JsonSum, place: ValuePlace, name: &[u8], longest: usize) -> ValuePlace {
    if name.len() > longest {
        return ValuePlace { number: None, text: place.text.filter(|text| *text == TextPlace::Text) };
    }
    let unescaped: Option<String> = name
        .contains(&b'\\')
        .then(|| serde_json::from_slice(&[b"\"", name, b"\""].concat()).unwrap_or_default());
    let name = unescaped.as_ref().map_or(name, String::as_bytes);
    let text = place.text.and_then(|text| match text {
        TextPlace::Text => Some(text),
        TextPlace::Node(node) => {
            let child = sum.texts.child(node, name)?;
            let is_end = !sum.texts.sought_at(child).is_empty();
            Some(if is_end { TextPlace::Text } else { TextPlace::Node(child) })
        }
    });
    ValuePlace { number: place.number.and_then(|node| sum.paths.child(node, name)), text }
}
