//! The encoding of users in keys of bans, the same as in identifiers of limits.

use std::{borrow::Cow, fmt::Write};

use compact_str::CompactString;
use percent_encoding::{percent_decode_str, percent_encode_byte};
use sha2::{Digest, Sha256};

use crate::abuse::names::is_pseudonym;

/// Longest name that is encoded, in bytes. A longer one is replaced by its hash.
const MAX_NAME_BYTES: usize = 128;

/// Encodes the name of a user from an operator's input. A name that is encoded already, as in the admin API, is kept.
pub fn normalize(name: &str) -> CompactString {
    if is_encoded(name) { name.into() } else { encode(name) }
}

/// Encodes the name of a user from a request: `{ } + : %` and control characters are percent-encoded.
pub(super) fn encode(name: &str) -> CompactString {
    let mut out = CompactString::const_new("");
    if name.len() > MAX_NAME_BYTES {
        out.push_str("%sha256-");
        for byte in &Sha256::digest(name)[..16] {
            // Writing to a string cannot fail.
            let _ = write!(out, "{byte:02x}");
        }
        return out;
    }
    for character in name.chars() {
        let mut buffer = [0; 4];
        let bytes = character.encode_utf8(&mut buffer);
        if is_special(character) || character == '%' {
            bytes.bytes().for_each(|byte| out.push_str(percent_encode_byte(byte)));
        } else {
            out.push_str(bytes);
        }
    }
    out
}

/// The name in an operator's input, encoded or not. `None` if only its hash is left.
pub(super) fn decode(name: &str) -> Option<Cow<'_, str>> {
    match is_encoded(name) {
        true if name.starts_with("%sha256-") => None,
        true => Some(percent_decode_str(name).decode_utf8_lossy()),
        false => Some(name.into()),
    }
}

/// Whether this may be an encoded name or a pseudonym.
pub(super) fn is_encoded(name: &str) -> bool {
    if is_pseudonym(name) {
        return true;
    }
    if let Some(hash) = name.strip_prefix("%sha256-") {
        return hash.len() == 32 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    }
    // Other escapes, such as `%40`, are part of a name.
    percent_decode_str(name).decode_utf8().is_ok_and(|decoded| encode(&decoded) == name)
}

fn is_special(character: char) -> bool {
    matches!(character, '{' | '}' | '+' | ':') || character.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_and_encoded_names_stay() {
        for (name, encoded) in [
            ("acme", "acme"),
            ("a+b@example.com", "a%2Bb@example.com"),
            ("a:b", "a%3Ab"),
            ("100%", "100%25"),
            ("ann%40example.com", "ann%2540example.com"),
            ("é b", "é b"),
            ("a%3Ab", "a%3Ab"),
            ("\u{85}", "%C2%85"),
        ] {
            assert_eq!(normalize(name), encoded);
            assert_eq!(normalize(&normalize(name)), encoded);
        }
        for length in [MAX_NAME_BYTES + 1, MAX_NAME_BYTES * 3, MAX_NAME_BYTES + 300] {
            let long = normalize(&"u".repeat(length));
            assert!(long.starts_with("%sha256-") && is_encoded(&long), "{long}");
            assert_eq!(normalize(&long), long);
        }
        for longest in ["u".repeat(MAX_NAME_BYTES), ":".repeat(MAX_NAME_BYTES)] {
            let encoded = encode(&longest);
            assert_eq!((normalize(&encoded), decode(&encoded)), (encoded.clone(), Some(longest.into())));
        }
        for foreign in ["%", "%4", "%sha256-", "a:b", "%c2", "%C2", "%41", "ann%40example.com", "a%2Fb%2Bc"] {
            assert!(!is_encoded(foreign), "{foreign}");
        }
    }
}
