//! The tree of keys and values, and how serde builds it.

use std::{fmt, ops::Range};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::Spanned;

use crate::config::FileLocation;

/// A value and its location. A value that an alias or a merge refers to has the location of the anchor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) location: FileLocation,
    /// Its bytes in the file. A scalar includes its quotes.
    pub(crate) span: Range<usize>,
    pub(crate) kind: NodeKind,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// Nothing, `~` or `null`.
    Null,
    /// The text, without its quotes.
    Scalar(String),
    List(Vec<Node>),
    /// In the order of the file.
    Mapping {
        entries: Vec<(Key, Node)>,
        /// Whether it is written in braces (flow style).
        braces: bool,
    },
}

/// The key of a mapping and its location.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) location: FileLocation,
    pub(crate) span: Range<usize>,
    pub(crate) name: String,
}

impl Node {
    pub(crate) fn is_null(&self) -> bool {
        self.kind == NodeKind::Null
    }

    /// The tree of a value that was parsed from `source`.
    pub(super) fn new(raw: Spanned<RawValue>, source: &str) -> Self {
        let span = to_span(raw.defined, source);
        // The parser counts the line ends behind a block scalar as parts of it.
        let verbatim = source[span.clone()].trim_end();
        let span = span.start..span.start + verbatim.len();
        let kind = match raw.value {
            RawValue::Null => NodeKind::Null,
            RawValue::Text(text) => NodeKind::Scalar(text),
            RawValue::Typed => NodeKind::Scalar(verbatim.to_owned()),
            RawValue::List(items) => {
                NodeKind::List(items.into_iter().map(|item| Self::new(item, source)).collect())
            }
            RawValue::Mapping(entries) => NodeKind::Mapping {
                entries: entries
                    .into_iter()
                    .map(|(key, value)| {
                        let (location, span) = (to_location(key.defined), to_span(key.defined, source));
                        let key = Key { location, span, name: key.value };
                        (key, Self::new(value, source))
                    })
                    .collect(),
                braces: verbatim.starts_with('{'),
            },
        };
        Self { location: to_location(raw.defined), span, kind }
    }
}

/// Converts a location of the parser. An unknown one becomes the start of the file.
pub(super) fn to_location(location: serde_yaml::Location) -> FileLocation {
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).max(1);
    FileLocation { line: count(location.line()), column: count(location.column()) }
}

/// The bytes of `source` at `location`. Empty where the parser does not know them.
fn to_span(location: serde_yaml::Location, source: &str) -> Range<usize> {
    let span = location.span();
    let (Some(start), Some(length)) = (span.byte_offset(), span.byte_len()) else { return 0..0 };
    let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let range = at(start)..at(start.saturating_add(length));
    if source.get(range.clone()).is_some() { range } else { 0..0 }
}

/// A value as serde reads it, before the text of typed scalars is taken from the source.
pub(super) enum RawValue {
    Null,
    Text(String),
    /// A number or a boolean. Its text is taken from the source, not from serde.
    Typed,
    List(Vec<Spanned<RawValue>>),
    Mapping(Vec<(Spanned<String>, Spanned<RawValue>)>),
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawValueVisitor)
    }
}

struct RawValueVisitor;

impl<'de> Visitor<'de> for RawValueVisitor {
    type Value = RawValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a single value, a list or a mapping")
    }

    fn visit_unit<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<RawValue, E> {
        Ok(RawValue::Typed)
    }

    fn visit_u64<E>(self, _: u64) -> Result<RawValue, E> {
        Ok(RawValue::Typed)
    }

    fn visit_i64<E>(self, _: i64) -> Result<RawValue, E> {
        Ok(RawValue::Typed)
    }

    fn visit_f64<E>(self, _: f64) -> Result<RawValue, E> {
        Ok(RawValue::Typed)
    }

    fn visit_str<E>(self, text: &str) -> Result<RawValue, E> {
        Ok(RawValue::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<RawValue, E> {
        Ok(RawValue::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(RawValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RawValue, A::Error> {
        let mut mapping = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            mapping.push(entry);
        }
        Ok(RawValue::Mapping(mapping))
    }
}
