//! Escapes text from clients, so that it cannot end a field or a line, or reach a terminal as a control sequence.

use crate::text::{is_invisible, json_escape};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends `bytes` as the content of a JSON string (RFC 8259, 7). Invalid UTF-8 becomes U+FFFD; invisible characters
/// are escaped, including those that JSON allows (DEL, C1, format characters).
pub(super) fn json(out: &mut Vec<u8>, bytes: &[u8]) {
    if all_plain(bytes, is_plain) {
        out.extend_from_slice(bytes);
        return;
    }
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
                c if is_invisible(c) => out.extend_from_slice(json_escape(c).as_bytes()),
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

/// Appends `bytes` for a quoted field, as nginx does: `"`, `\`, control characters and non-ASCII as `\xHH`.
pub(super) fn quoted(out: &mut Vec<u8>, bytes: &[u8]) {
    push(out, bytes, is_plain);
}

/// As [`quoted`], for a field without quotes: also escapes spaces and brackets, which would end it.
pub(super) fn bare(out: &mut Vec<u8>, bytes: &[u8]) {
    push(out, bytes, |byte| is_plain(byte) && !matches!(byte, b' ' | b'[' | b']'));
}

fn push(out: &mut Vec<u8>, bytes: &[u8], plain: impl Fn(u8) -> bool) {
    if all_plain(bytes, &plain) {
        out.extend_from_slice(bytes);
        return;
    }
    for &byte in bytes {
        if plain(byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(b"\\x");
            hex(out, byte);
        }
    }
}

/// Does not stop early, so that the compiler can vectorise it: nearly all text is plain.
fn all_plain(bytes: &[u8], plain: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(true, |all, &byte| all & plain(byte))
}

fn hex(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}

fn is_plain(byte: u8) -> bool {
    (0x20..0x7f).contains(&byte) & (byte != b'"') & (byte != b'\\')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(escape: impl Fn(&mut Vec<u8>, &[u8]), bytes: &[u8]) -> String {
        let mut out = Vec::new();
        escape(&mut out, bytes);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_keeps_text_and_escapes_the_rest() {
        assert_eq!(text(json, "Grüße/日本".as_bytes()), "Grüße/日本");
        assert_eq!(text(json, b"a\"b\\c\nd\x1b[2J\x7f"), r#"a\"b\\c\u000ad\u001b[2J\u007f"#);
        assert_eq!(text(json, "\u{9b}2J".as_bytes()), r"\u009b2J");
        assert_eq!(text(json, "a\u{202e}b\u{feff}\u{e0041}".as_bytes()), r"a\u202eb\ufeff\udb40\udc41");
        assert_eq!(text(json, b"a\xffb"), "a\u{fffd}b");
    }

    #[test]
    fn quoted_is_nginx_s() {
        assert_eq!(text(quoted, b"a b\"\\\r\n\xc3\xa9"), r"a b\x22\x5c\x0d\x0a\xc3\xa9");
        assert_eq!(text(bare, b"eve [x] "), r"eve\x20\x5bx\x5d\x20");
    }

    proptest! {
        #[test]
        fn no_bytes_break_out_of_json(bytes: Vec<u8>) {
            let quoted = format!("\"{}\"", text(json, &bytes));
            let read: String = serde_json::from_str(&quoted).unwrap();
            prop_assert_eq!(read, String::from_utf8_lossy(&bytes));
            prop_assert!(!quoted.chars().any(is_invisible));
        }

        #[test]
        fn no_bytes_break_out_of_quotes(bytes: Vec<u8>) {
            let text = text(quoted, &bytes);
            let clean = text.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b'"');
            prop_assert!(clean);
        }
    }
}
