//! Asks OpenAI's chat completions for the tokens of a stream, which they leave out unless asked.

use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::value::RawValue;

/// The members of a chat completion request that matter here. A name that comes twice is an error.
#[derive(Deserialize)]
struct ChatRequest<'b> {
    /// Every chat completion has it. A request of the Responses API does not, and could not ask for usage either.
    #[serde(rename = "messages")]
    _messages: IgnoredAny,
    stream: bool,
    #[serde(default, borrow, deserialize_with = "written")]
    stream_options: Option<&'b str>,
}

#[derive(Deserialize)]
struct StreamOptions<'b> {
    #[serde(default, borrow, deserialize_with = "written")]
    include_usage: Option<&'b str>,
}

/// A value as the text has it, `null` too.
fn written<'b, 'de: 'b, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'b str>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(|value| Some(value.get()))
}

/// Sets `stream_options.include_usage` in the body of a chat completion request with `"stream": true`. All else stays
/// byte for byte. `None`: the body stays as it is, because it already asks, is not such a request, or has a name twice.
pub fn ask_for_usage(body: &[u8]) -> Option<Vec<u8>> {
    let body = std::str::from_utf8(body).ok()?;
    let members = after_brace(body)?;
    let request: ChatRequest = serde_json::from_str(body).ok()?;
    if !request.stream {
        return None;
    }
    match request.stream_options {
        None => Some(insert(body, members, r#""stream_options":{"include_usage":true}"#)),
        Some(options @ "null") => Some(replace(body, options, r#"{"include_usage":true}"#)),
        Some(options) => {
            let members = after_brace(options)?;
            let StreamOptions { include_usage } = serde_json::from_str(options).ok()?;
            match include_usage {
                None => Some(insert(body, members, r#""include_usage":true"#)),
                Some(value @ ("false" | "null")) => Some(replace(body, value, "true")),
                Some(_) => None,
            }
        }
    }
}

/// The text after the brace that opens an object.
fn after_brace(text: &str) -> Option<&str> {
    text.trim_ascii_start().strip_prefix('{')
}

/// `body` with `member` as the first one of an object. `members`: the rest of `body` after its brace.
fn insert(body: &str, members: &str, member: &str) -> Vec<u8> {
    let at = offset(body, members);
    let comma = if members.trim_ascii_start().starts_with('}') { "" } else { "," };
    [&body[..at], member, comma, &body[at..]].concat().into_bytes()
}

/// `body` with `new` in place of `old`, a part of it.
fn replace(body: &str, old: &str, new: &str) -> Vec<u8> {
    let at = offset(body, old);
    [&body[..at], new, &body[at + old.len()..]].concat().into_bytes()
}

/// Where `part`, which is borrowed from `body`, begins in it.
fn offset(body: &str, part: &str) -> usize {
    part.as_ptr().addr() - body.as_ptr().addr()
}
