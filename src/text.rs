//! Invisible and misleading characters in text from clients, and suggestions for misspelled words.

use std::{borrow::Cow, fmt::Write};

use icu_properties::{CodePointMapData, props::GeneralCategory};
use strsim::damerau_levenshtein;

/// Whether a `character` is invisible, moves the cursor, breaks the line or changes the writing direction: control
/// characters (Cc), format characters (Cf) such as U+202E and U+FEFF, and separators of lines and paragraphs (Zl, Zp).
pub fn is_invisible(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    matches!(
        CodePointMapData::<GeneralCategory>::new().get(character),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
    )
}

/// Escapes invisible characters, including those that move the cursor, set colours or reverse the writing direction.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_invisible) {
        return text.into();
    }
    let mut out = String::new();
    for character in text.chars() {
        if is_invisible(character) {
            out.extend(character.escape_unicode());
        } else {
            out.push(character);
        }
    }
    out.into()
}

/// `text` as a scalar of YAML in double quotes, in which invisible characters are escaped.
pub fn yaml_quoted(text: &str) -> String {
    let mut out = String::new();
    // JSON is YAML, but for surrogates: a character above U+FFFF has one escape.
    for character in serde_json::Value::from(text).to_string().chars() {
        // Writing to a string does not fail.
        let _ = match u32::from(character) {
            _ if !is_invisible(character) => write!(out, "{character}"),
            code @ 0..=0xffff => write!(out, "\\u{code:04x}"),
            code => write!(out, "\\U{code:08x}"),
        };
    }
    out
}

/// `1 request`, `2 requests`.
pub fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Separates thousands: `812,000`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The escape of a `character` in a JSON string: `\u202e`, and two escapes above U+FFFF (RFC 8259, 7).
pub fn json_escape(character: char) -> String {
    let mut escape = String::new();
    for unit in character.encode_utf16(&mut [0; 2]) {
        // Writing to a string does not fail.
        let _ = write!(escape, "\\u{unit:04x}");
    }
    escape
}

/// The most similar of `known`, if it differs in at most one of every four letters.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The comparison is quadratic in length, and all known words are short.
    if word.len() > 64 {
        return None;
    }
    let plain = |word: &str| word.to_lowercase().replace('-', "_");
    let word = plain(word);
    known
        .into_iter()
        .map(|name| (damerau_levenshtein(&word, &plain(name)), name))
        .filter(|(slips, name)| *slips <= (word.len().max(name.len()) / 4).max(1) && *slips < name.len())
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_found() {
        let invisible = "\0\x1b\x7f\u{85}\u{ad}\u{600}\u{61c}\u{6dd}\u{180e}\u{200b}\u{200d}\u{200f}\u{2028}\u{2029}\
            \u{202a}\u{202e}\u{2060}\u{2066}\u{206f}\u{feff}\u{fff9}\u{110bd}\u{1d173}\u{e0001}\u{e0061}";
        for character in invisible.chars() {
            assert!(is_invisible(character), "{character:?}");
        }
        for character in " aß\u{301}日😀ا\u{a0}".chars() {
            assert!(!is_invisible(character), "{character:?}");
        }
    }

    #[test]
    fn quoted_text_is_read_as_it_was_and_shows_nothing_invisible() {
        for text in [
            "",
            "a\"b\\c: #",
            "\0\t\r\n\x1b\x7f\u{85}",
            "ß日😀",
            "\u{202e}\u{2028}\u{feff}\u{e0041}\u{1d173}",
        ] {
            let quoted = yaml_quoted(text);
            assert!(!quoted.contains(is_invisible), "{quoted}");
            assert_eq!(serde_yaml::from_str::<String>(&quoted).unwrap(), text, "{quoted}");
        }
    }

    #[test]
    fn an_escape_is_read_as_its_character() {
        assert_eq!([json_escape('\u{202e}'), json_escape('\u{e0001}')], ["\\u202e", "\\udb40\\udc01"]);
        for character in ['\x07', '\u{feff}', '\u{1d173}'] {
            let read: String = serde_json::from_str(&format!("\"{}\"", json_escape(character))).unwrap();
            assert_eq!(read, character.to_string());
        }
    }
}
