//! What a route changes in the messages that it passes on.

use http::{HeaderName, HeaderValue};
use serde::{Serialize, Serializer};

use super::{PlaceholderText, serialize};

/// The path that the upstream gets instead of the client's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rewrite {
    /// Without these segments at its start: `/api`, which neither is `/` nor ends in it.
    StripPrefix(String),
    Path(PlaceholderText),
}

/// Changes of the header of a message, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct HeaderEdits {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<FieldPattern>,
    /// Each replaces all lines of its field.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "serialize::fields")]
    pub set: Vec<(HeaderName, FieldText)>,
    /// Each is one more line.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "serialize::fields")]
    pub add: Vec<(HeaderName, FieldText)>,
}

/// Which fields are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldPattern {
    Name(HeaderName),
    /// `x-internal-*` as `x-internal-`, in lower case.
    Prefix(String),
}

impl Serialize for FieldPattern {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Name(name) => to.serialize_str(name.as_str()),
            Self::Prefix(prefix) => to.collect_str(&format_args!("{prefix}*")),
        }
    }
}

/// The value of a field, which is left out where its text is empty for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldText {
    pub text: PlaceholderText,
    /// The value, if it is the same for every request.
    pub constant: Option<HeaderValue>,
}

impl Serialize for FieldText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(to)
    }
}
