//! Encodes text from clients for use in a key: different texts have different encodings, and none can be mistaken for
//! another part of a key.

use std::fmt::Write;

use compact_str::CompactString;
use percent_encoding::percent_encode_byte;
use sha2::{Digest, Sha256};

/// The longest text, in bytes, that is written out. A longer one is hashed.
const LONGEST: usize = 128;

/// Appends `text`, which need not be UTF-8. `{ } + : %`, control characters and bytes that are not UTF-8 are
/// percent-encoded. A text of more than 128 bytes becomes `%sha256-` and 32 hexadecimal digits: half of its SHA-256. No
/// short text is encoded like this, since `%s` is not an escape.
pub(super) fn push_text(out: &mut CompactString, text: &[u8]) {
    push(out, text, |byte| matches!(byte, b'{' | b'}' | b'+' | b':' | b'%'));
}

/// Appends a path, in which every `%` already begins an escape. Otherwise like [`push_text`].
pub(super) fn push_path(out: &mut CompactString, path: &str) {
    push(out, path.as_bytes(), |byte| matches!(byte, b'{' | b'}' | b'+' | b':'));
}

fn push(out: &mut CompactString, text: &[u8], is_special: impl Fn(u8) -> bool) {
    if text.len() > LONGEST {
        push_hash(out, text);
        return;
    }
    let is_plain = |byte: &u8| (b' '..=b'~').contains(byte) && !is_special(*byte);
    for chunk in text.utf8_chunks() {
        let valid = chunk.valid();
        if valid.bytes().all(|byte| is_plain(&byte)) {
            out.push_str(valid);
        } else {
            push_valid(out, valid, &is_special);
        }
        push_escaped(out, chunk.invalid());
    }
}

fn push_valid(out: &mut CompactString, text: &str, is_special: impl Fn(u8) -> bool) {
    for character in text.chars() {
        let mut buffer = [0; 4];
        let encoded = character.encode_utf8(&mut buffer);
        if character.is_control() || encoded.bytes().any(&is_special) {
            push_escaped(out, encoded.as_bytes());
        } else {
            out.push_str(encoded);
        }
    }
}

fn push_escaped(out: &mut CompactString, bytes: &[u8]) {
    bytes.iter().for_each(|&byte| out.push_str(percent_encode_byte(byte)));
}

fn push_hash(out: &mut CompactString, text: &[u8]) {
    out.push_str("%sha256-");
    for byte in &Sha256::digest(text)[..16] {
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use percent_encoding::percent_decode_str;
    use proptest::prelude::*;

    use super::*;

    fn text(text: &[u8]) -> String {
        let mut out = CompactString::const_new("");
        push_text(&mut out, text);
        out.into()
    }

    #[test]
    fn only_what_could_mislead_is_encoded() {
        let cases: &[(&[u8], &str)] = &[
            (b"acme", "acme"),
            (b"a b/c=d,\"e\"", "a b/c=d,\"e\""),
            (b"{a}+b:c%d", "%7Ba%7D%2Bb%3Ac%25d"),
            (b"a\0b\r\n\x7f", "a%00b%0D%0A%7F"),
            ("café".as_bytes(), "café"),
            ("a\u{85}b".as_bytes(), "a%C2%85b"),
            (b"caf\xe9!", "caf%E9!"),
            (b"\xff\xfe", "%FF%FE"),
        ];
        for (sent, written) in cases {
            assert_eq!(text(sent), *written);
        }
    }

    #[test]
    fn escapes_in_paths_are_kept() {
        let mut out = CompactString::const_new("");
        push_path(&mut out, "/a:b/{c}+%25/%C3%A9");
        assert_eq!(out, "/a%3Ab/%7Bc%7D%2B%25/%C3%A9");
    }

    #[test]
    fn long_texts_become_a_hash() {
        assert_eq!(text(&[b'a'; 128]), "a".repeat(128));
        // printf 'a%.0s' $(seq 129) | sha256sum
        assert_eq!(text(&[b'a'; 129]), "%sha256-c12cb024a2e5551cca0e08fce8f1c5e3");
        assert_ne!(text(&[b'a'; 129]), text(&[b'a'; 130]));
        assert_ne!(text(text(&[b'a'; 129]).as_bytes()), text(&[b'a'; 129]));
    }

    proptest! {
        #[test]
        fn whatever_is_short_can_be_read_back(sent in prop::collection::vec(any::<u8>(), 0..=LONGEST)) {
            let written = text(&sent);
            let misleads = |character: char| "{}+:".contains(character) || character.is_control();
            prop_assert!(!written.contains(misleads));
            prop_assert_eq!(percent_decode_str(&written).collect::<Vec<u8>>(), sent);
        }
    }
}
