//! Text with placeholders, which are replaced for each request.

use serde::{Serialize, Serializer};

use super::{PathPattern, Segment};

/// Text such as `/new/{rest}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceholderText {
    /// The text in `proxy.yaml`.
    pub written: String,
    pub parts: Vec<TextPart>,
    /// Whether it is a credential, or a part of it was inserted from outside the file, so that it must not be shown.
    pub is_secret: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextPart {
    Literal(String),
    Placeholder(Placeholder),
}

/// The value that replaces a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placeholder {
    /// `{client_address}`
    ClientAddress,
    /// `{user}`
    User,
    /// `{request_id}`
    RequestId,
    /// `{host}`: without port.
    Host,
    /// The text that a part of the route's path matched: its index in [`PathPattern::captures`].
    Capture(usize),
}

impl Placeholder {
    /// The placeholders that do not depend on the route's path, by their names.
    pub const OF_EVERY_REQUEST: [(&'static str, Self); 4] = [
        ("client_address", Self::ClientAddress),
        ("user", Self::User),
        ("request_id", Self::RequestId),
        ("host", Self::Host),
    ];
}

impl PlaceholderText {
    /// The whole text, if it is the same for every request.
    pub fn constant(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [TextPart::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether it has this placeholder.
    pub fn has(&self, placeholder: Placeholder) -> bool {
        self.parts.contains(&TextPart::Placeholder(placeholder))
    }
}

impl Serialize for PlaceholderText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.written)
    }
}

/// The name of the text that the `*` at the end of a path matches.
pub const REST: &str = "rest";

impl PathPattern {
    /// The names of its captures: its parameters in order, or `rest` for its `*`.
    pub fn captures(&self) -> Vec<&str> {
        match self {
            Self::Exact(_) => Vec::new(),
            Self::Prefix(_) => vec![REST],
            Self::Regex(regex) => regex.capture_names().collect(),
            Self::Template(segments) => segments
                .iter()
                .filter_map(|segment| match segment {
                    Segment::Literal(_) => None,
                    Segment::Parameter(name) => Some(name.as_str()),
                })
                .collect(),
        }
    }
}
