//! Asks OpenAI's completions for the tokens of a stream, which they leave out unless asked.

use std::sync::LazyLock;

use super::{BodyRefusal, JsonMember, Members};
use crate::json_path::JsonPath;

/// The members of a completion request that matter here.
static PATHS: LazyLock<[JsonPath; 5]> = LazyLock::new(|| {
    ["messages", "prompt", "stream", "stream_options", "stream_options.include_usage"].map(JsonPath::known)
});

/// The paths of all members that [`ask_for_usage`] reads.
pub fn usage_paths() -> &'static [JsonPath] {
    &*PATHS
}

/// Sets `stream_options.include_usage` in the `body` of a completion request to `path` with `"stream": true`. All else stays byte
/// for byte. `None`: the body stays as it is, because it already asks, or is no such request. A request of the Responses
/// API is none: it has `input`, or `prompt` as an object, and could not ask for usage. Nor is one for an image.
///
/// # Errors
/// A member is something else than such a request may have there.
pub fn ask_for_usage(
    members: &Members<'_, '_>,
    path: &str,
    body: &[u8],
) -> Result<Option<Vec<u8>>, BodyRefusal> {
    let [messages, prompt, stream, options, include_usage] = &*PATHS;
    let is_true = |path| members.get(path).map_or(Ok(false), |member| member.boolean(path));
    let has_prompt = || members.get(prompt).is_some_and(JsonMember::is_text_or_array);
    let is_completion = || has_prompt() && !path.contains("/images/");
    if !is_true(stream)? || !(members.get(messages).is_some() || is_completion()) {
        return Ok(None);
    }
    if members.get(options).is_some_and(|options| !options.is_object()) {
        return Err(BodyRefusal::malformed(format!("has no object at `{options}`")));
    }
    let asks = is_true(include_usage)?;
    let Some(text) = str::from_utf8(body).ok().filter(|_| !asks) else { return Ok(None) };
    let edited = match (members.written(options), members.written(include_usage)) {
        (None, _) => insert(text, text, r#""stream_options":{"include_usage":true}"#),
        (Some(null @ "null"), _) => Some(replace(text, null, r#"{"include_usage":true}"#)),
        (Some(options), None) => insert(text, options, r#""include_usage":true"#),
        (Some(_), Some(value)) => Some(replace(text, value, "true")),
    };
    Ok(edited)
}

/// `body` with `member` as the first one of the `object`, a part of it. `None`: it is none.
fn insert(body: &str, object: &str, member: &str) -> Option<Vec<u8>> {
    let members = object.trim_ascii_start().strip_prefix('{')?;
    let at = offset(body, members);
    let comma = if members.trim_ascii_start().starts_with('}') { "" } else { "," };
    Some([&body[..at], member, comma, &body[at..]].concat().into_bytes())
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
