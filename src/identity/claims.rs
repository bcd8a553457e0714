//! What a verified token says.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The claims of a token (RFC 7519, 4) whose signature and times were verified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claims(Map<String, Value>);

impl Claims {
    /// Wraps what was verified.
    pub fn new(claims: Map<String, Value>) -> Self {
        Self(claims)
    }

    /// A claim that is a string, a number or a boolean, as text; lists and objects identify nobody.
    pub fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        match self.0.get(name)? {
            Value::String(text) => Some(Cow::Borrowed(text)),
            Value::Number(number) => Some(Cow::Owned(number.to_string())),
            Value::Bool(true) => Some(Cow::Borrowed("true")),
            Value::Bool(false) => Some(Cow::Borrowed("false")),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}
