//! Names: of policies, upstreams, routes, keys in Redis, claims.

use super::Invalid;
use crate::json_path::JsonPath;

/// Reads a name that something outside has given: a claim, an issuer.
pub(in crate::config) fn printable_text(text: &str) -> Result<String, Invalid> {
    checked_name(text, |c| !c.is_control(), "use printable characters")
}

/// Reads the name of a policy, an upstream or a ban. They become parts of keys, metrics and header fields.
pub(in crate::config) fn resource_name(text: &str) -> Result<String, Invalid> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    checked_name(text, |c| u8::try_from(c).is_ok_and(allowed), "use letters, digits, and . _ -")
}

/// Reads the name of a route, which is a label in metrics and in logs.
pub(in crate::config) fn route_name(text: &str) -> Result<String, Invalid> {
    checked_name(text, |c| !c.is_control(), "use printable characters")
}

/// Reads the prefix of all keys in Redis. A brace in it would begin a hash tag, which decides the slot of a key in a
/// Redis Cluster.
pub(in crate::config) fn key_prefix(text: &str) -> Result<String, Invalid> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':');
    match (1..=64).contains(&text.len()) && text.bytes().all(allowed) {
        true => Ok(text.to_owned()),
        false => {
            Err(Invalid::new("is not a valid key prefix")
                .expected("use 1 to 64 letters, digits, and _ - . :"))
        }
    }
}

/// Reads the first part of API keys. An underscore ends it.
pub(in crate::config) fn api_key_prefix(text: &str) -> Result<String, Invalid> {
    match (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        true => Ok(text.to_owned()),
        false => Err(Invalid::new("is not a prefix of keys").expected("use 1 to 16 letters and digits")),
    }
}

/// Reads a name of 1 to 128 `allowed` characters.
fn checked_name(
    text: &str,
    allowed: impl Fn(char) -> bool,
    expected: &'static str,
) -> Result<String, Invalid> {
    if text.is_empty() || text.chars().count() > 128 {
        return Err(Invalid::new("is not a valid length for a name").expected("from 1 to 128 characters"));
    }
    match text.trim() == text && text.chars().all(allowed) {
        true => Ok(text.to_owned()),
        false => Err(Invalid::new("is not a valid name").expected(expected)),
    }
}

/// Reads the names that lead to a value in JSON: `usage.total_tokens`.
pub(in crate::config) fn json_path(text: &str) -> Result<JsonPath, Invalid> {
    JsonPath::parse(text).map_err(|reason| {
        Invalid::new(format!("is no path in JSON: {reason}"))
            .expected("names with dots between them, such as usage.total_tokens")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert!(resource_name("per-ip_1.x").is_ok());
        for text in ["", "a b", "a:b", "é", "a+b", "{a}"] {
            assert!(resource_name(text).is_err(), "{text}");
        }
        assert!(key_prefix("eu-1:rate.limit_2").is_ok() && key_prefix(&"x".repeat(64)).is_ok());
        for text in ["", "a b", "{a}", "é", "a\n", "a/b", &"x".repeat(65)] {
            assert!(key_prefix(text).is_err(), "{text}");
        }
        assert!(route_name("GET /users/{id} (é)").is_ok());
        assert!(route_name("a\nb").is_err());
        assert!(route_name(&"x".repeat(129)).is_err());
    }
}
