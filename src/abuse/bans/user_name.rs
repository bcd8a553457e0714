//! Users as keys write them: the same that identifiers of limits do.

use std::fmt::Write;

use compact_str::CompactString;
use percent_encoding::percent_encode_byte;
use sha2::{Digest, Sha256};

/// Bytes of a name that is written out. Of a longer one, only a hash is.
const LONGEST: usize = 128;

/// What an operator calls a user, as keys write it. What is written so already, as the admin port shows it, stays as it
/// is; of any other name `{ } + : %` and control characters are percent-encoded.
pub(super) fn user(name: &str) -> CompactString {
    if is_encoded(name) { name.into() } else { written(name) }
}

/// A user's name as it is, as keys write it.
pub(super) fn written(name: &str) -> CompactString {
    let mut out = CompactString::const_new("");
    if name.len() > LONGEST {
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

/// Whether keys may write a user so.
pub(super) fn is_encoded(name: &str) -> bool {
    if let Some(hash) = name.strip_prefix("%sha256-") {
        return hash.len() == 32 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    }
    let escapes = name.split('%').skip(1).all(|rest| {
        let digits = rest.as_bytes().get(..2).unwrap_or_default();
        digits.len() == 2 && digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'))
    });
    // Each of at most as many bytes was written as three.
    escapes && name.len() <= LONGEST * 3 && !name.chars().any(is_special)
}

fn is_special(character: char) -> bool {
    matches!(character, '{' | '}' | '+' | ':') || character.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_in_keys_and_what_is_written_so_stays() {
        for (name, written) in [
            ("acme", "acme"),
            ("a+b@example.com", "a%2Bb@example.com"),
            ("a:b", "a%3Ab"),
            ("100%", "100%25"),
            ("é b", "é b"),
            ("a%3Ab", "a%3Ab"),
            ("\u{85}", "%C2%85"),
        ] {
            assert_eq!(user(name), written);
            assert_eq!(user(&user(name)), written);
        }
        let long = user(&"u".repeat(LONGEST + 300));
        assert!(long.starts_with("%sha256-") && is_encoded(&long), "{long}");
        assert_eq!(user(&long), long);
        for foreign in ["%", "%4", "%sha256-", "a:b", "%c2"] {
            assert!(!is_encoded(foreign), "{foreign}");
        }
    }
}
