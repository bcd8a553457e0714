//! Finds the value that needs quotes, when YAML cannot be parsed.

use crate::config::{
    FileLocation,
    redact::{Secrets, lines},
};

/// The longest line that is searched, in bytes. The search is quadratic.
const MAX_LINE_BYTES: usize = 1000;

/// A help for a syntax error at `location`, if its line shows the cause.
pub(super) fn help(text: &str, location: FileLocation) -> Option<String> {
    let (at, line) = lines(text).into_iter().nth(location.line - 1)?;
    if line.len() > MAX_LINE_BYTES {
        return None;
    }
    if indentation(line).contains('\t') {
        return Some("indent with spaces, not with tabs".to_owned());
    }
    let before = line.char_indices().nth(location.column).map_or(line.len(), |(at, _)| at);
    let (_, value) = values(line).into_iter().take_while(|(at, _)| *at < before).last()?;
    // The key of a secret may be in a line above.
    if !Secrets::by_words(text).within(&(at..at + line.len())).is_empty() {
        return Some("put quotes around this value".to_owned());
    }
    Some(match key_without_space(value) {
        Some((key, value)) => format!("put a space behind the colon: {key}: {value}"),
        None => format!("put quotes around this value: \"{value}\""),
    })
}

/// The first line behind `location` that is indented with a tab.
pub(super) fn tab_behind(text: &str, location: FileLocation) -> Option<FileLocation> {
    let mut lines = text.lines().enumerate().skip(location.line);
    let (index, _) = lines.find(|(_, line)| indentation(line).contains('\t'))?;
    Some(FileLocation { line: index + 1, column: 1 })
}

fn indentation(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

/// The key and the list or mapping in `endpoints:[…]`.
fn key_without_space(value: &str) -> Option<(&str, &str)> {
    let (key, value) = value.split_once(':')?;
    let is_key = key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    (is_key && !key.is_empty() && value.starts_with(['[', '{'])).then_some((key, value))
}

/// The unquoted values of `line` that YAML does not read as scalars, each with its byte offset.
fn values(line: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = line.get(at..).filter(|rest| !rest.is_empty()) {
        let skipped = rest.len() - rest.trim_start_matches([' ', '-', ',', '[', '{', ']', '}']).len();
        // A bracket opens a list, unless it is part of a value such as `[::]:8080`.
        if let Some(word) = bracketed_word(rest) {
            found.push((at, word));
            at += word.len();
        } else if skipped > 0 {
            let bracket = rest.char_indices().take(skipped).find(|(n, c)| *n > 0 && matches!(c, '[' | '{'));
            at += bracket.map_or(skipped, |(n, _)| n);
        } else if rest.starts_with('#') {
            break;
        } else if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
            at += rest[1..].find(quote).map_or(rest.len(), |end| end + 2);
        } else {
            let word = word(rest);
            if word.starts_with(['@', '%', '`']) || word.contains(['{', '[']) || is_glob(word) {
                found.push((at, word));
            }
            at += word.len().max(1);
            at += line.get(at..).map_or(0, |rest| usize::from(rest.starts_with(':')));
        }
    }
    found
}

/// Whether `word` begins with a star, and is not an alias.
fn is_glob(word: &str) -> bool {
    let name = word.strip_prefix('*');
    name.is_some_and(|name| {
        name.is_empty() || name.contains(|c: char| !c.is_alphanumeric() && c != '-' && c != '_')
    })
}

/// A value that begins with a bracketed part and continues after it.
fn bracketed_word(rest: &str) -> Option<&str> {
    if !rest.starts_with(['[', '{']) {
        return None;
    }
    let word = word(rest);
    let end = closing_bracket(word)? + 1;
    let goes_on = !word[end..].is_empty() && !word[end..].starts_with([']', '}', ':']);
    let port = word[end..].starts_with(':') && word.len() > end + 1;
    (goes_on || port).then_some(word)
}

/// The position of the bracket that closes the first one of `word`.
fn closing_bracket(word: &str) -> Option<usize> {
    let mut open = 0_usize;
    word.char_indices().find_map(|(at, c)| {
        match c {
            '[' | '{' => open += 1,
            ']' | '}' => open -= 1,
            _ => {}
        }
        (open == 0).then_some(at)
    })
}

/// The value at the start of `rest`, up to the end of the brackets that it opens.
fn word(rest: &str) -> &str {
    let mut open = 0_usize;
    let end = rest.char_indices().find(|(at, c)| match c {
        '{' | '[' => {
            open += 1;
            false
        }
        '}' | ']' if open > 0 => {
            open -= 1;
            false
        }
        '}' | ']' | ' ' | ',' => true,
        ':' => rest[at + 1..].is_empty() || rest[at + 1..].starts_with(' '),
        _ => false,
    });
    end.map_or(rest, |(at, _)| &rest[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(line: &str) -> Option<&str> {
        values(line).last().map(|(_, value)| *value)
    }

    #[test]
    fn finds_the_value_that_wants_quotes() {
        assert_eq!(value("  - { path: /users/{id}, upstream: api }"), Some("/users/{id}"));
        assert_eq!(value("path: *"), Some("*"));
        assert_eq!(value("hosts: [api.example.com, *.example.org]"), Some("*.example.org"));
        assert_eq!(value("- address: [::]:8080 # all"), Some("[::]:8080"));
        assert_eq!(value("trusted_proxies: [${PROXY}, 10.0.0.0/8]"), Some("${PROXY}"));
        assert_eq!(value("hosts: [*]"), Some("*"));
        assert_eq!(value("path: {id}/x"), Some("{id}/x"));
        assert_eq!(value("api: { endpoints: [http://[::1]:3000] }"), Some("http://[::1]:3000"));
        assert_eq!(value("endpoints: [[::1]:3000, [::2]:3000]"), Some("[::2]:3000"));
    }

    #[test]
    fn leaves_what_is_well() {
        for line in [
            "key: [ip, user]",
            "- { path: \"/users/{id}\", upstream: api } # {x}",
            "api: { endpoints: [http://127.0.0.1:3000], policies: [per-ip] }",
            "x: [[a], {b: c}]",
            "{}",
            "per-ip: { <<: *limit, key: ip }",
            "",
        ] {
            assert_eq!(value(line), None, "{line}");
        }
    }

    #[test]
    fn tabs_are_named() {
        let location = FileLocation { line: 2, column: 2 };
        assert_eq!(help("a:\n\tb: 1\n", location), Some("indent with spaces, not with tabs".to_owned()));
        let text = "a:\n  b: 1\n\n\tc: 2\n\td: 3\n";
        let found = tab_behind(text, FileLocation { line: 2, column: 6 });
        assert_eq!(found, Some(FileLocation { line: 4, column: 1 }));
        assert_eq!(help("a: b: c", FileLocation { line: 1, column: 5 }), None);
    }
}
