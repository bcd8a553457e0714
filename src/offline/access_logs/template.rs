//! A format of one line of text: literals, and the values between them.

use memchr::{memchr, memmem};

use super::{
    field::{Field, LogFields, Meaning, WantedHeaders},
    value::{Escape, LogValue, TimeCache},
};

/// Why a format can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("the format does not tell the time: it needs one of $msec, $time_iso8601 or $time_local")]
    NoTime,
    #[error("the format does not tell the client: it needs $remote_addr")]
    NoClient,
    #[error("the format does not tell the request: it needs $request, or $request_method and $request_uri")]
    NoRequest,
    #[error("nothing separates {first} from {second}, so no line tells where one ends")]
    Adjacent { first: String, second: String },
    #[error("`{0}` is not closed")]
    Unclosed(String),
    #[error(
        "no format is named `{name}`: choose {names}, or give the format as the server's configuration has it"
    )]
    Unknown { name: String, names: String },
    #[error("{file}: {error}")]
    Conf { file: String, error: String },
}

/// A part of a format, as a server's notation has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FormatPart {
    Literal(String),
    /// `name`: as the operator has written it, for errors.
    Variable {
        meaning: Meaning,
        name: String,
    },
    /// A line may end here.
    MayEnd,
}

/// A compiled format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    slots: Vec<ValueSlot>,
    /// The number of values that each line has. It may end before the others.
    required: usize,
    escape: Escape,
    /// Whether anything may follow.
    is_open: bool,
}

/// The place of one value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ValueSlot {
    /// The text before it, if that is not the end of another one.
    before: Box<str>,
    meaning: Meaning,
    name: String,
    is_quoted: bool,
    end: ValueEnd,
}

/// How a value ends.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ValueEnd {
    /// With this text.
    Literal(Box<str>),
    /// Before the slash that begins the next value.
    Slash,
    /// Before a space, or with the line.
    Word,
    Line,
}

/// Where a line differs from its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FormatMismatch {
    /// In bytes from the line's begin.
    at: usize,
    expected: Expected,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// The text before the nth value.
    Before(usize),
    /// The nth value.
    Value(usize),
    /// The text after the nth value.
    After(usize),
    EndOfLine,
}

impl Template {
    /// `is_open`: whether anything may follow.
    ///
    /// # Errors
    /// Two variables follow each other, or nothing tells the time, the client or the request.
    pub(super) fn compile(
        parts: Vec<FormatPart>,
        escape: Escape,
        is_open: bool,
    ) -> Result<Self, FormatError> {
        let mut parts = merged(parts).into_iter().peekable();
        let mut slots = Vec::<ValueSlot>::new();
        let (mut before, mut required, mut was_quote) = (String::new(), None, false);
        while let Some(part) = parts.next() {
            match part {
                FormatPart::Literal(text) => {
                    was_quote = text.ends_with('"');
                    before = text;
                }
                FormatPart::MayEnd => required = required.or(Some(slots.len())),
                FormatPart::Variable { meaning, name } => {
                    let mut is_quoted = false;
                    let end = match parts.peek() {
                        Some(FormatPart::Literal(text)) => {
                            is_quoted = was_quote && text.starts_with('"');
                            was_quote = text.ends_with('"');
                            let end = ValueEnd::Literal(text.as_str().into());
                            parts.next();
                            end
                        }
                        Some(FormatPart::Variable { meaning: next, name: second }) => match next.field {
                            Field::Target | Field::Path | Field::DecodedPath | Field::DecodedPathAndQuery => {
                                ValueEnd::Slash
                            }
                            _ => return Err(FormatError::Adjacent { first: name, second: second.clone() }),
                        },
                        None if !is_open => ValueEnd::Line,
                        Some(FormatPart::MayEnd) | None => ValueEnd::Word,
                    };
                    let before = std::mem::take(&mut before).into();
                    slots.push(ValueSlot { before, meaning, name, is_quoted, end });
                }
            }
        }
        let required = required.unwrap_or(slots.len());
        let mut template = Self { slots, required, escape, is_open };
        template.take_client_from_forwarded_for();
        template.check()?;
        Ok(template)
    }

    /// If nothing else tells the client, `X-Forwarded-For` does.
    fn take_client_from_forwarded_for(&mut self) {
        if self.has_field(|field| matches!(field, Field::Client | Field::ClientAndPort)) {
            return;
        }
        for slot in &mut self.slots {
            if matches!(&slot.meaning.field, Field::Header(name) if name == "x-forwarded-for") {
                slot.meaning = Meaning::of(Field::LastForwardedFor);
            }
        }
    }

    fn check(&self) -> Result<(), FormatError> {
        let has_time = self
            .has_field(|field| matches!(field, Field::Start | Field::End | Field::Time | Field::TimeOfDay));
        let has_client = self.has_field(|field| {
            matches!(field, Field::Client | Field::ClientAndPort | Field::LastForwardedFor)
        });
        let has_path = self.has_field(|field| {
            matches!(field, Field::Target | Field::Path | Field::DecodedPath | Field::DecodedPathAndQuery)
        });
        let has_line = self.has_field(|field| matches!(field, Field::RequestLine));
        let has_method = self.has_field(|field| *field == Field::Method);
        if !has_time {
            Err(FormatError::NoTime)
        } else if !has_client {
            Err(FormatError::NoClient)
        } else if !(has_line || has_method && has_path) {
            Err(FormatError::NoRequest)
        } else {
            Ok(())
        }
    }

    fn has_field(&self, is_it: impl Fn(&Field) -> bool) -> bool {
        self.slots.iter().any(|slot| is_it(&slot.meaning.field))
    }

    /// Ignores header fields that the caller does not want.
    pub(super) fn only(mut self, wanted: &WantedHeaders) -> Self {
        for slot in &mut self.slots {
            slot.meaning = slot.meaning.clone().only(wanted);
        }
        self
    }

    /// The number of values that tell something.
    pub(super) fn telling(&self) -> usize {
        self.slots.iter().filter(|slot| slot.meaning.field != Field::Ignored).count()
    }

    /// Takes in the values of a line.
    ///
    /// # Errors
    /// The line has another format.
    pub(super) fn read<'l>(
        &self,
        line: &'l [u8],
        told: &mut LogFields<'l>,
        times: &mut TimeCache,
    ) -> Result<(), FormatMismatch> {
        let mut rest = line;
        for (nth, slot) in self.slots.iter().enumerate() {
            match self.read_slot(nth, slot, rest, told, times) {
                Ok(behind) => rest = behind,
                Err(_) if nth >= self.required => return Ok(()),
                Err((rest, expected)) => {
                    return Err(FormatMismatch { at: line.len() - rest.len(), expected });
                }
            }
        }
        if rest.is_empty() || self.is_open {
            return Ok(());
        }
        Err(FormatMismatch { at: line.len() - rest.len(), expected: Expected::EndOfLine })
    }

    /// Takes in the nth value. Returns the text behind it, or that which differs.
    fn read_slot<'l>(
        &self,
        nth: usize,
        slot: &ValueSlot,
        rest: &'l [u8],
        told: &mut LogFields<'l>,
        times: &mut TimeCache,
    ) -> Result<&'l [u8], (&'l [u8], Expected)> {
        let rest = match slot.before.as_bytes() {
            // Most are empty. To compare with nothing was measured to take a quarter of the time.
            [] => rest,
            before => rest.strip_prefix(before).ok_or((rest, Expected::Before(nth)))?,
        };
        let (text, behind) = slot.split(rest, self.escape).ok_or((rest, Expected::After(nth)))?;
        let field = &slot.meaning.field;
        if *field != Field::Ignored {
            let text = if field.is_escaped() { self.escape.decode(text) } else { text.into() };
            if !told.set(&slot.meaning, LogValue::Text(text), times) {
                return Err((rest, Expected::Value(nth)));
            }
        }
        Ok(behind)
    }

    /// What `line` lacks: `line 7 differs at column 23: expected …`.
    pub(super) fn describe(&self, FormatMismatch { at, expected }: FormatMismatch, line: &[u8]) -> String {
        let slot = |nth: usize| self.slots.get(nth).map(|slot| (slot, slot.name.as_str()));
        let (expected, behind) = match expected {
            Expected::EndOfLine => ("the end of the line".to_owned(), String::new()),
            Expected::Before(nth) => match slot(nth) {
                Some((slot, name)) => (format!("`{}`", slot.before), format!(" before {name}")),
                None => return String::new(),
            },
            Expected::After(nth) => match slot(nth) {
                Some((slot, name)) => (slot.end.described(), format!(" after {name}")),
                None => return String::new(),
            },
            Expected::Value(nth) => match slot(nth) {
                Some((slot, name)) => (slot.meaning.field.expected().to_owned(), format!(" for {name}")),
                None => return String::new(),
            },
        };
        let found = line.get(at..).unwrap_or_default();
        let found = String::from_utf8_lossy(&found[..found.len().min(40)]).into_owned();
        let found = if found.is_empty() { "the end of the line".to_owned() } else { format!("`{found}`") };
        format!("at column {}: expected {expected}{behind}, found {found}", at + 1)
    }

    /// Whether a value before the difference was one that only few texts are: a time, an address or a status.
    pub(super) fn is_alike(&self, FormatMismatch { expected, .. }: FormatMismatch) -> bool {
        let read = match expected {
            Expected::Before(nth) | Expected::Value(nth) | Expected::After(nth) => nth,
            Expected::EndOfLine => self.slots.len(),
        };
        self.slots.iter().take(read).any(|slot| slot.meaning.field.is_strict())
    }

    /// A line of this format with `value` for each variable, by name.
    #[cfg(test)]
    pub(super) fn render(&self, value: impl Fn(&str) -> String) -> String {
        let slots = self.slots.iter().map(|slot| {
            let end = if let ValueEnd::Literal(text) = &slot.end { text } else { "" };
            format!("{}{}{end}", slot.before, value(&slot.name))
        });
        slots.collect()
    }
}

impl ValueSlot {
    /// Splits the value from what follows its end.
    fn split<'l>(&self, text: &'l [u8], escape: Escape) -> Option<(&'l [u8], &'l [u8])> {
        let (at, skipped) = match &self.end {
            ValueEnd::Literal(end) if self.is_quoted => {
                let at = escape.closing_quote(text)?;
                if text[at..].starts_with(end.as_bytes()) {
                    (at, end.len())
                } else {
                    // Servers without escapes may write quotes.
                    (memmem::find(text, end.as_bytes()).filter(|_| escape != Escape::Backslash)?, end.len())
                }
            }
            ValueEnd::Literal(end) => match end.as_bytes() {
                [byte] => (memchr(*byte, text)?, 1),
                end => (memmem::find(text, end)?, end.len()),
            },
            ValueEnd::Slash => (memchr(b'/', text)?, 0),
            ValueEnd::Word => (memchr(b' ', text).unwrap_or(text.len()), 0),
            ValueEnd::Line => (text.len(), 0),
        };
        Some((&text[..at], &text[at + skipped..]))
    }
}

impl ValueEnd {
    fn described(&self) -> String {
        match self {
            Self::Literal(text) => format!("`{text}`"),
            Self::Slash => "`/`".to_owned(),
            Self::Word | Self::Line => "the end of the line".to_owned(),
        }
    }
}

/// Joins literals, the path with the query behind it, and variables that tell nothing.
fn merged(parts: Vec<FormatPart>) -> Vec<FormatPart> {
    let mut merged = Vec::<FormatPart>::new();
    for part in parts {
        match (merged.last_mut(), part) {
            (Some(FormatPart::Literal(last)), FormatPart::Literal(text)) => last.push_str(&text),
            (
                Some(FormatPart::Variable { meaning: last, .. }),
                FormatPart::Variable { meaning: Meaning { field: Field::Ignored, .. }, name },
            ) if last.field == Field::Ignored || last.field == Field::DecodedPath && name == "$is_args" => {}
            (
                Some(FormatPart::Variable { meaning: last, .. }),
                FormatPart::Variable { meaning: Meaning { field: Field::Query, .. }, .. },
            ) if last.field == Field::DecodedPath => last.field = Field::DecodedPathAndQuery,
            (_, part) => merged.push(part),
        }
    }
    // Lines are read without spaces at their end.
    if let Some(FormatPart::Literal(last)) = merged.last_mut() {
        last.truncate(last.trim_ascii_end().len());
        if last.is_empty() {
            merged.pop();
        }
    }
    merged
}
