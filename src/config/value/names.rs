//! The names that things have: policies, upstreams, routes, keys in Redis, claims.

use super::Invalid;

/// Reads a text that names something outside: a claim, an issuer.
pub(in crate::config) fn text(text: &str) -> Result<String, Invalid> {
    label(text, |c| !c.is_control(), "any characters that can be printed")
}

/// Reads the name of a policy or an upstream: they are parts of keys, of metrics and of header fields.
pub(in crate::config) fn name_of_thing(text: &str) -> Result<String, Invalid> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    label(text, |c| u8::try_from(c).is_ok_and(fine), "letters, digits, and . _ -")
}

/// Reads the name of a route, which is a label in metrics and in logs.
pub(in crate::config) fn route_name(text: &str) -> Result<String, Invalid> {
    label(text, |c| !c.is_control(), "any characters that can be printed")
}

/// Reads the first part of every key in a shared store. A brace there would begin a hash tag, by which
/// a cluster tells where a key belongs.
pub(in crate::config) fn key_prefix(text: &str) -> Result<String, Invalid> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':');
    match (1..=64).contains(&text.len()) && text.bytes().all(fine) {
        true => Ok(text.to_owned()),
        false => Err(Invalid::new("cannot begin a key").form("1 to 64 letters, digits, and _ - . :")),
    }
}

/// Reads a name of 1 to 128 `fine` characters.
fn label(text: &str, fine: impl Fn(char) -> bool, form: &'static str) -> Result<String, Invalid> {
    if text.is_empty() || text.chars().count() > 128 {
        return Err(Invalid::new("is too short or too long for a name").form("from 1 to 128 characters"));
    }
    match text.trim() == text && text.chars().all(fine) {
        true => Ok(text.to_owned()),
        false => Err(Invalid::new("cannot be a name").form(form)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert!(name_of_thing("per-ip_1.x").is_ok());
        for text in ["", "a b", "a:b", "é", "a+b", "{a}"] {
            assert!(name_of_thing(text).is_err(), "{text}");
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
