//! The fields of `text/event-stream` (HTML, 9.2.5 and 9.2.6), in pieces of any size.

use memchr::memchr2;

const DATA: &[u8] = b"data";
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The state between two pieces.
#[derive(Debug, Clone)]
pub(super) struct EventParser {
    line: LinePosition,
    /// Whether the current event has a field.
    has_fields: bool,
    /// The last byte was CR, and ended a line. An LF that follows belongs to it.
    is_after_cr: bool,
}

/// The position in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinePosition {
    /// After so many bytes of a byte order mark, which may precede the first line.
    ByteOrderMark(usize),
    /// After so many bytes of `data`.
    Field(usize),
    /// After `data:`. A space that precedes the value is nothing in JSON, and is left there.
    Data,
    /// In another field.
    Other,
    Comment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventPart<'p> {
    /// A part of the event's data. Its last part is a line break.
    Data(&'p [u8]),
    /// The event ends. A comment before an event's first field is an event of its own: some servers send one alone, to
    /// show that they are alive.
    End,
}

impl EventParser {
    pub(super) fn new() -> Self {
        Self { line: LinePosition::ByteOrderMark(0), has_fields: false, is_after_cr: false }
    }

    /// Takes the next part from the front of `piece`. `None`: all of the piece is taken.
    pub(super) fn next<'p>(&mut self, piece: &mut &'p [u8]) -> Option<EventPart<'p>> {
        self.take_lf(piece);
        loop {
            let byte = *piece.first()?;
            if matches!(byte, b'\r' | b'\n') {
                *piece = &piece[1..];
                if byte == b'\r' {
                    self.is_after_cr = true;
                    self.take_lf(piece);
                }
                match self.end_line() {
                    Some(part) => return Some(part),
                    None => continue,
                }
            }
            match self.line {
                LinePosition::Data => return Some(EventPart::Data(take_line(piece))),
                LinePosition::Other | LinePosition::Comment => {
                    take_line(piece);
                }
                LinePosition::ByteOrderMark(matched) => {
                    self.line = match BYTE_ORDER_MARK.get(matched) {
                        Some(expected) if *expected == byte => LinePosition::ByteOrderMark(matched + 1),
                        None => LinePosition::Field(0),
                        Some(_) if matched == 0 => LinePosition::Field(0),
                        Some(_) => LinePosition::Other,
                    };
                    if let LinePosition::ByteOrderMark(_) = self.line {
                        *piece = &piece[1..];
                    }
                }
                LinePosition::Field(matched) => {
                    self.line = match DATA.get(matched) {
                        Some(expected) if *expected == byte => LinePosition::Field(matched + 1),
                        None if byte == b':' => LinePosition::Data,
                        Some(_) if matched == 0 && byte == b':' => LinePosition::Comment,
                        _ => LinePosition::Other,
                    };
                    *piece = &piece[1..];
                }
            }
        }
    }

    /// Takes the LF of a line break whose CR was the end of the previous piece.
    pub(super) fn take_lf(&mut self, piece: &mut &[u8]) -> bool {
        let Some(first) = piece.first() else { return false };
        let is_taken = std::mem::take(&mut self.is_after_cr) && *first == b'\n';
        *piece = &piece[usize::from(is_taken)..];
        is_taken
    }

    fn end_line(&mut self) -> Option<EventPart<'static>> {
        let line = std::mem::replace(&mut self.line, LinePosition::Field(0));
        match line {
            LinePosition::Field(0) => {}
            LinePosition::ByteOrderMark(matched) if matched == 0 || matched == BYTE_ORDER_MARK.len() => {}
            LinePosition::Comment if !self.has_fields => {}
            LinePosition::Comment => return None,
            LinePosition::Data => {
                self.has_fields = true;
                return Some(EventPart::Data(b"\n"));
            }
            LinePosition::Field(_) | LinePosition::Other | LinePosition::ByteOrderMark(_) => {
                self.has_fields = true;
                // A field `data` without a colon is an empty line of data, which is nothing in JSON.
                return None;
            }
        }
        self.has_fields = false;
        Some(EventPart::End)
    }
}

/// Takes the rest of a line, without its break.
fn take_line<'p>(piece: &mut &'p [u8]) -> &'p [u8] {
    let (line, rest) = piece.split_at(memchr2(b'\r', b'\n', piece).unwrap_or(piece.len()));
    *piece = rest;
    line
}
