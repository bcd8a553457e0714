//! The tree of keys and values, and what the parser gives for it by way of serde.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::{Location, Spanned};

use crate::config::Place;

/// A value and where it stands. Behind an alias or a merge that is where it was written.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::config) struct Node {
    pub(in crate::config) place: Place,
    pub(in crate::config) kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::config) enum Kind {
    /// Nothing, `~` or `null`.
    Nothing,
    /// The text, without its quotes.
    Word(String),
    List(Vec<Node>),
    /// In the order of the file.
    Mapping {
        entries: Vec<(Key, Node)>,
        /// Written in braces.
        braces: bool,
    },
}

/// The key of a mapping and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::config) struct Key {
    pub(in crate::config) place: Place,
    pub(in crate::config) name: String,
}

impl Node {
    pub(in crate::config) fn is_nothing(&self) -> bool {
        self.kind == Kind::Nothing
    }

    /// The tree of what was read from `source`.
    pub(super) fn new(raw: Spanned<Raw>, source: &str) -> Self {
        let written = written(raw.defined, source);
        let kind = match raw.value {
            Raw::Nothing => Kind::Nothing,
            Raw::Text(text) => Kind::Word(text),
            Raw::Typed => Kind::Word(written.to_owned()),
            Raw::List(items) => Kind::List(items.into_iter().map(|item| Self::new(item, source)).collect()),
            Raw::Mapping(entries) => Kind::Mapping {
                entries: entries
                    .into_iter()
                    .map(|(key, value)| {
                        let key = Key { place: place(key.defined), name: key.value };
                        (key, Self::new(value, source))
                    })
                    .collect(),
                braces: written.starts_with('{'),
            },
        };
        Self { place: place(raw.defined), kind }
    }
}

/// A location of the parser as a place; one it does not know is the file's start.
pub(super) fn place(location: Location) -> Place {
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).max(1);
    Place { line: count(location.line()), column: count(location.column()) }
}

/// What stands in the file at `location`.
fn written(location: Location, source: &str) -> &str {
    let span = location.span();
    let (Some(start), Some(length)) = (span.byte_offset(), span.byte_len()) else { return "" };
    let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    source.get(at(start)..at(start.saturating_add(length))).unwrap_or_default()
}

/// A value before its text is looked up.
pub(super) enum Raw {
    Nothing,
    Text(String),
    /// A number or a boolean: what stands in the file matters, not what serde makes of it.
    Typed,
    List(Vec<Spanned<Raw>>),
    Mapping(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word, a list or a mapping")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Nothing)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Raw, E> {
        Ok(Raw::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut mapping = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            mapping.push(entry);
        }
        Ok(Raw::Mapping(mapping))
    }
}
