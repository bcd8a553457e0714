//! Credentials in what a file says, which must not be shown with an error.
//!
//! This goes by the look of the text alone: an error may stand in a line that has a password beside
//! it, or that is not even YAML. What looks like a credential and is none is hidden as well.

use std::ops::Range;

const MASK: &str = "***";

/// Keys whose value is a credential, in YAML or in the query of a URL.
const KEYS: [&str; 4] = ["token", "password", "secret", "pass"];

/// `text` with its credentials hidden.
pub(super) fn masked(text: &str) -> String {
    masked_at(text, 1).0
}

/// Whether `text` has no credentials to hide.
pub(super) fn is_open(text: &str) -> bool {
    hidden(text).is_empty()
}

/// Whether nothing of `text` stands in the file: all of it is `${…}`.
pub(super) fn is_inserted(text: &str) -> bool {
    literal(text).chars().all(|c| c == INSERTED)
}

/// `line` with its credentials hidden, and where `column` is then, both from 1 and in characters.
pub(super) fn masked_at(line: &str, column: usize) -> (String, usize) {
    let at = line.char_indices().nth(column - 1).map_or(line.len(), |(at, _)| at);
    let mut shown = String::with_capacity(line.len());
    let (mut from, mut shown_column) = (0, column);
    for Range { start, end } in hidden(line) {
        shown.push_str(&line[from..start]);
        // Inside of what is hidden, the start of it is as near as one may point.
        let passed = line[start..end.min(at.max(start))].chars().count();
        if passed > 0 {
            shown_column -= passed;
            shown_column += if at < end { 0 } else { MASK.len() };
        }
        shown.push_str(MASK);
        from = end;
    }
    shown.push_str(&line[from..]);
    (shown, shown_column)
}

/// Where the credentials of `text` are, in bytes, in order and apart.
fn hidden(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<_> = user_info(text).into_iter().collect();
    found.extend(without_host(text));
    found.extend(KEYS.iter().flat_map(|key| under_key(text, key)));
    found.sort_by_key(|range| (range.start, range.end));
    let mut apart: Vec<Range<usize>> = Vec::with_capacity(found.len());
    for range in found.into_iter().filter(|range| !range.is_empty()) {
        match apart.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    apart
}

/// What stands before the last `@`. A password may hold anything that its writer forgot to encode, so
/// it begins as early as it can: behind the first scheme, or with the value, or with what is quoted.
fn user_info(text: &str) -> Option<Range<usize>> {
    let (first, last) = (text.find('@')?, text.rfind('@')?);
    let before = &text[..first];
    let behind = |mark: &str, at: Option<usize>| at.map(|at| at + mark.len());
    let start = behind("://", before.find("://"))
        .or_else(|| behind(": ", before.rfind(": ")))
        .or_else(|| behind(" `", before.find(" `")))
        .or_else(|| before.starts_with('`').then_some(1))
        .unwrap_or(0);
    let value = text[start..].trim_start_matches([' ', '"', '\'']);
    Some(text.len() - value.len()..last)
}

/// What follows a scheme without `@`, unless it is a host, and a port where it has one: the host may
/// have been forgotten, or be parted from the password by what YAML makes of that.
fn without_host(text: &str) -> impl Iterator<Item = Range<usize>> {
    text.match_indices("://").filter_map(move |(at, mark)| {
        // Their passwords go with a name, and end in `@`.
        if text[..at].ends_with("http") || text[..at].ends_with("https") {
            return None;
        }
        let start = at + mark.len();
        let word = &text[start..];
        if word.contains('@') {
            return None;
        }
        let word = &word[..word.find([' ', '\t', '"', '\'', '`']).unwrap_or(word.len())];
        let word = word.trim_end_matches(',');
        let literal = literal(word);
        let authority = literal.split(['/', '}', ']']).next().unwrap_or_default();
        let (host, port) = authority.split_once(':')?;
        let port_alone = port.chars().all(|c| c.is_ascii_digit() || c == INSERTED);
        let address = host.starts_with('[') || !host.is_empty() && port_alone && port.len() <= 5;
        (!address && !port.is_empty()).then(|| start..start + word.len())
    })
}

/// The value that follows `key` with `:` or `=`, unless all of it comes from elsewhere.
fn under_key(text: &str, key: &'static str) -> impl Iterator<Item = Range<usize>> {
    text.match_indices(key).filter_map(move |(at, _)| {
        let rest = text[at + key.len()..].trim_start_matches(['"', '\'']).trim_start();
        let (query, rest) = (rest.starts_with('='), rest.strip_prefix(['=', ':'])?.trim_start());
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        let value = rest.strip_prefix(['"', '\'']).unwrap_or(rest);
        let end = match quote {
            Some(quote) => value.find(quote),
            None if query => value.find(['&', ' ', '"', '\'', '`']),
            None => [", ", " }", " #"].iter().filter_map(|end| value.find(end)).min(),
        };
        let value = &value[..end.unwrap_or(value.len())];
        let start = text.len() - rest.len() + usize::from(quote.is_some());
        (!is_inserted(value)).then(|| start..start + value.len())
    })
}

/// Stands for what `${…}` inserts.
const INSERTED: char = '\0';

/// What of `text` stands in the file: `${NAME}` is none of it, but the fallback in `${NAME:-fallback}` is.
fn literal(text: &str) -> String {
    let mut literal = String::new();
    let mut rest = text;
    while let Some((before, from)) = rest.split_once("${") {
        let (inner, after) = from.split_once('}').unwrap_or((from, ""));
        literal.push_str(before);
        match inner.split_once(":-") {
            Some((_, fallback)) => literal.push_str(fallback),
            None => literal.push(INSERTED),
        }
        rest = after;
    }
    literal + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_hidden_and_the_rest_is_not() {
        for (text, shown) in [
            ("url: redis://user:hunter2@host:6379/0", "url: redis://***@host:6379/0"),
            ("url: redis://hunter2@host", "url: redis://***@host"),
            (
                "{ url: \"redis://:hun/t#e r@2@host\", timout: 1s }",
                "{ url: \"redis://***@host\", timout: 1s }",
            ),
            ("`redis://:hunter2@host` is wrong", "`redis://***@host` is wrong"),
            ("url: user:hunter2@host:6379", "url: ***@host:6379"),
            ("`user:hunter2@host` is not a URL", "`***@host` is not a URL"),
            ("the value of `user:hunter2@host` is not a URL", "the value of `***@host` is not a URL"),
            (":hunter2`@host", "***@host"),
            ("  redis://:hunter2", "  redis://***"),
            ("`redi://:hunter2` has no host", "`redi://***` has no host"),
            ("url: rediss://user:hunter2/0", "url: rediss://***"),
            ("{ url: redis://:6379123, x: 1 }", "{ url: redis://***, x: 1 }"),
            ("url: ${U:-redis://:hunter2@host}", "url: ${U:-redis://***@host}"),
            ("url: redis://:${P:-hunter2}", "url: redis://***"),
            ("admin: { token: hunter2 x, adress: a }", "admin: { token: ***, adress: a }"),
            ("\"token\": 'hunter2' # x", "\"token\": '***' # x"),
            ("token: \"${T:-hunter2}\"", "token: \"***\""),
            ("url: \"app:hunter2@host\"", "url: \"***@host\""),
            ("{\"token\":\"hunter2\"}", "{\"token\":\"***\"}"),
            ("url: \"unix:///s?pass=hunter2\"", "url: \"unix:///s?pass=***\""),
            ("url: \"redis://:hunter2\\x40host\"", "url: \"redis://***\""),
            ("{ password: hunter2 }", "{ password: *** }"),
            ("unix:///s?user=a&pass=hunter2&db=1", "unix:///s?user=a&pass=***&db=1"),
            ("- x@y", "***@y"),
        ] {
            assert_eq!(masked(text), shown);
        }
        for text in [
            "",
            "url: redis://127.0.0.1:6379/0",
            "{ redis: { url: redis://host } }",
            "{url: redis://host:1}",
            "url: redis://[::1]:6379",
            "url: redis://${HOST:-localhost}:${PORT}/0",
            "token: \"${TOKEN:-}\"",
            "token: ${file:/run/secrets/token}",
            "`token` is missing",
            "algorithm: token_bucket",
        ] {
            assert!(is_open(text), "{text}: {}", masked(text));
        }
    }

    #[test]
    fn the_caret_stays_where_it_belongs() {
        let line = "{ url: redis://:hunter2@é, timout: 1 }";
        for (column, under) in [(3, 'u'), (8, 'r'), (16, '*'), (20, '*'), (24, '@'), (25, 'é'), (28, 't')] {
            let (shown, column) = masked_at(line, column);
            assert_eq!(shown.chars().nth(column - 1), Some(under), "{column} in {shown}");
        }
        assert_eq!(masked_at("ab", 3), ("ab".to_owned(), 3));
        assert_eq!(masked_at("a@", 3), ("***@".to_owned(), 5));
    }
}
