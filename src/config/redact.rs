//! Masks credentials in everything that is shown.
//!
//! [`mask_credentials`] looks at one line alone, because the line of an error may also hold a password, and may not even
//! be YAML. It also masks text that only looks like a credential.
//!
//! [`redact_config`] makes the whole text of a configuration safe for operators. First it masks credentials line by line,
//! and secrets that span lines as a whole. Then it masks every other occurrence of the known secrets, for instance in an
//! anchor. Interpolated values are not in the text at all.

use std::ops::Range;

use strsim::damerau_levenshtein;

use super::Config;

const MASK: &str = "***";

/// Keys whose value is a credential, in YAML or in the query of a URL, and the ends of such keys: `x-api-key`. In any case, as
/// header names are.
const CREDENTIAL_KEYS: [&str; 10] =
    ["token", "password", "secret", "pass", "authorization", "passwd", "pwd", "api-key", "api_key", "apikey"];

/// Whether the value of this key is a credential, also where the key is misspelled.
pub(super) fn is_credential_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    // `client_auth` is a setting.
    key == "auth"
        || CREDENTIAL_KEYS.iter().any(|known| {
            let mistakes = if known.len() < 8 { 1 } else { 2 };
            key.ends_with(known) || known.len() >= 5 && damerau_levenshtein(&key, known) <= mistakes
        })
}

/// `text` with its credentials masked.
pub(super) fn mask_credentials(text: &str) -> String {
    mask_line(text, 1).0
}

/// Whether nothing in `text` looks like a credential.
pub(super) fn has_no_credentials(text: &str) -> bool {
    credential_ranges(text).is_empty()
}

/// Whether `text` consists of `${…}` alone, without a fallback.
pub(super) fn is_all_interpolated(text: &str) -> bool {
    literal(text).chars().all(|c| c == INSERTED)
}

/// `line` with its credentials masked, and the new position of `column`. Columns start at 1 and count characters.
pub(super) fn mask_line(line: &str, column: usize) -> (String, usize) {
    mask_ranges(line, &credential_ranges(line), column)
}

/// Likewise, of a line whose [`credential_ranges`] are known.
pub(super) fn mask_ranges(line: &str, credentials: &[Range<usize>], column: usize) -> (String, usize) {
    let at = line.char_indices().nth(column - 1).map_or(line.len(), |(at, _)| at);
    let mut shown = String::with_capacity(line.len());
    let (mut from, mut shown_column) = (0, column);
    for &Range { start, end } in credentials {
        shown.push_str(&line[from..start]);
        // A column inside a credential moves to its start.
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

/// The byte ranges of the credentials in `text`, sorted and disjoint.
pub(super) fn credential_ranges(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<_> = user_info(text).into_iter().collect();
    found.extend(after_scheme(text));
    found.extend(values_of_keys(text));
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

/// The user info before the last `@`. A password may contain characters that should have been encoded, so the range
/// begins as early as possible: after the first scheme, else with the value, else with the quoted text.
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

/// The text after a scheme in a URL without `@`, unless it is a host with an optional port. It may be a password: the
/// host may be missing, or YAML may have cut the URL in two.
fn after_scheme(text: &str) -> impl Iterator<Item = Range<usize>> {
    text.match_indices("://").filter_map(move |(at, mark)| {
        // A password in such a URL has a user name, and ends in `@`.
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

/// The values after keys of credentials and `:` or `=`, unless they consist of `${…}` alone.
fn values_of_keys(text: &str) -> impl Iterator<Item = Range<usize>> {
    text.match_indices([':', '=']).filter_map(move |(at, separator)| {
        let before = text[..at].trim_end().trim_end_matches(['"', '\'']);
        let is_of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let (before, key) = before.split_at(before.trim_end_matches(is_of_key).len());
        // The name of a variable is none.
        if !is_credential_key(key) || before.ends_with("${") {
            return None;
        }
        let mut rest = text[at + 1..].trim_start();
        while rest.starts_with(['&', '!']) {
            // An anchor or a tag.
            rest = rest.find(' ').map_or("", |end| &rest[end..]).trim_start();
        }
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        let value = &rest[quote.map_or(0, char::len_utf8)..];
        let end = match quote {
            Some(quote) => closing_quote(value, quote),
            None if separator == "=" => value.find(['&', ' ', '"', '\'', '`']),
            None if before.contains(['{', '[']) => {
                [", ", " }", " #"].iter().filter_map(|end| value.find(end)).min()
            }
            None => value.find(" #"),
        };
        let value = &value[..end.unwrap_or(value.len())];
        let start = text.len() - rest.len() + usize::from(quote.is_some());
        (!is_all_interpolated(value)).then(|| start..start + value.len())
    })
}

/// Where a quoted text ends whose opening quote stands before. A quote in it is written `\"`, or `''` (YAML 1.2, 7.3).
fn closing_quote(text: &str, quote: char) -> Option<usize> {
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let is_escaped = match quote {
            '"' => character == '\\',
            _ => character == quote && characters.peek().is_some_and(|(_, next)| *next == quote),
        };
        if is_escaped {
            characters.next();
        } else if character == quote {
            return Some(at);
        }
    }
    None
}

/// The placeholder of an interpolated value.
const INSERTED: char = '\0';

/// The literal parts of `text`: not `${NAME}`, but the fallback of `${NAME:-fallback}`.
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

/// Keys whose value is a secret, or may contain one.
const SECRET_KEYS: [&str; 7] = ["token", "password", "secret", "pass", "authorization", "url", "x-"];
/// Words of a secret with at least this many characters are masked wherever they occur.
const MIN_SECRET_CHARS: usize = 4;

/// `text`, from which `config` was parsed, with all secrets masked.
pub(super) fn redact_config(text: &str, config: &Config) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let indent = indent(line);
        let goes_on = lines.peek().is_some_and(|next| !next.trim().is_empty() && self::indent(next) > indent);
        match multiline_secret(line).filter(|_| goes_on) {
            Some(end) => {
                shown += &line[..end];
                shown += " ";
                shown += MASK;
                while lines.next_if(|next| next.trim().is_empty() || self::indent(next) > indent).is_some() {}
            }
            None if may_hide_secret(line) => {
                shown += line.split_once(':').map_or("", |(key, _)| key);
                shown += ": ";
                shown += MASK;
            }
            None => shown += &mask_credentials(line),
        }
        shown.push('\n');
    }
    for word in secret_words(config) {
        shown = shown.replace(&word, MASK);
    }
    shown
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '-']).len()
}

/// The end of the key in `line`, if it is the key of a secret whose value may continue below: the value is missing, a
/// block, plain, or has an open quote.
fn multiline_secret(line: &str) -> Option<usize> {
    let (key, value) = line.split_once(':')?;
    let name = key.trim_start_matches([' ', '-', '{', '?']).trim_matches(['"', '\'', ' ']);
    let name = &*name.to_ascii_lowercase();
    let is_secret = SECRET_KEYS.iter().any(|secret| match secret.strip_suffix('-') {
        Some(_) => name.starts_with(secret),
        None => name == *secret,
    });
    let value = value.split(" #").next().unwrap_or_default().trim();
    // An anchor or a tag precedes the value.
    let value = value.split_whitespace().find(|word| !word.starts_with(['&', '!'])).map_or("", |_| value);
    let is_mapping = name.starts_with("x-") && value.is_empty();
    let is_block = value.is_empty() || value.ends_with(['|', '>', '-', '+']) && value.len() <= 3;
    let is_unclosed = |quote: char| value.starts_with(quote) && value.matches(quote).count() == 1;
    let is_plain = !value.is_empty() && !value.starts_with(['{', '[', '"', '\'']);
    (is_secret && !is_mapping && (is_block || is_unclosed('"') || is_unclosed('\'') || is_plain))
        .then_some(key.len() + 1)
}

/// Whether `line` defines an anchor and contains escapes. A secret that is written with escapes is not found by its value.
fn may_hide_secret(line: &str) -> bool {
    line.contains('&') && line.contains('\\')
}

/// The words of all secrets, longest first.
fn secret_words(config: &Config) -> Vec<String> {
    let secrets = config.secrets().flat_map(|(_, secret)| {
        let text = secret.reveal();
        match text.split_once("://") {
            // Of a URL: user info, password, and the password in the query.
            Some((_, rest)) => {
                let user_info = rest.rsplit_once('@').map_or("", |(user_info, _)| user_info);
                let password = user_info.split_once(':').map_or(user_info, |(_, password)| password);
                let passed =
                    rest.split_once("pass=").map_or("", |(_, rest)| rest.split('&').next().unwrap_or(""));
                vec![user_info, password, passed]
            }
            None => vec![text],
        }
    });
    let each = secrets.flat_map(|secret| std::iter::once(secret).chain(secret.split_whitespace()));
    let mut secret_words: Vec<String> =
        each.filter(|word| word.chars().count() >= MIN_SECRET_CHARS).map(str::to_owned).collect();
    // The longest first, because one may contain another.
    secret_words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    secret_words
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
            ("token: \"ab\\\"hunter2\" # x", "token: \"***\" # x"),
            ("password: 'ab''hunter2', x: 1", "password: '***', x: 1"),
            ("password: &p \"ab, hunter2\"", "password: &p \"***\""),
            ("password: !!str ab, hunter2", "password: !!str ***"),
            ("{ Authorization: \"Basic aHVudGVyMg==\" }", "{ Authorization: \"***\" }"),
            ("pasword: hunter2", "pasword: ***"),
            ("{ tokne: hunter2, x: 1 }", "{ tokne: ***, x: 1 }"),
            ("X-Api-Key: hunter2", "X-Api-Key: ***"),
            ("auth: hunter2", "auth: ***"),
        ] {
            assert_eq!(mask_credentials(text), shown);
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
            "client_auth: required",
            "key: header:x-user-id",
        ] {
            assert!(has_no_credentials(text), "{text}: {}", mask_credentials(text));
        }
    }

    #[test]
    fn the_caret_stays_where_it_belongs() {
        let line = "{ url: redis://:hunter2@é, timout: 1 }";
        for (column, under) in [(3, 'u'), (8, 'r'), (16, '*'), (20, '*'), (24, '@'), (25, 'é'), (28, 't')] {
            let (shown, column) = mask_line(line, column);
            assert_eq!(shown.chars().nth(column - 1), Some(under), "{column} in {shown}");
        }
        assert_eq!(mask_line("ab", 3), ("ab".to_owned(), 3));
        assert_eq!(mask_line("a@", 3), ("***@".to_owned(), 5));
    }

    use super::super::{Lookup, parse};

    struct Inserted;

    impl Lookup for Inserted {
        fn variable(&self, _: &str) -> Option<String> {
            Some("from-elsewhere".to_owned())
        }

        fn read_text(&self, _: &std::path::Path) -> std::io::Result<String> {
            Ok("from-a-file".to_owned())
        }

        fn read_bytes(&self, _: &std::path::Path) -> std::io::Result<Vec<u8>> {
            Ok(Vec::new())
        }
    }

    fn redacted(settings: &str) -> String {
        let text = format!(
            "{settings}\nupstreams: {{ api: {{ endpoints: [http://127.0.0.1:3000] }} }}\nroutes: [{{ path: /*, upstream: api }}]\n"
        );
        parse("proxy.yaml", &text, &Inserted).unwrap_or_else(|errors| panic!("{errors}")).source.redacted_text
    }

    #[test]
    fn no_secret_is_shown_however_it_is_written() {
        for settings in [
            "admin: { token: hunter2 }",
            "admin:\n  token: hunter2 # the token: hunter2",
            "admin:\n  token: \"hunter2\"",
            "admin:\n  token:\n    hunter2",
            "admin:\n  token: >-\n    hunter2",
            "admin:\n  token: |-\n    hunter2\n  address: 127.0.0.1:9900",
            "admin:\n  token: \"hun\\\n    ter2\"\n",
            "x-t: &t \"hun\\x74er2\"\nadmin: { token: *t }",
            "x-token: &t hunter2\nadmin:\n  token: *t",
            "x-any: &any hunter2\nadmin: { token: *any }",
            "x-all: &all { token: hunter2 }\nadmin: *all",
            "store: { redis: { url: \"redis://user:hunter2@host:6379/0\" } }",
            "store: { redis: { url: \"redis://:hunter2@host\" } }",
            "store:\n  redis:\n    url:\n      redis://:hunter2@host",
            "store:\n  redis: &r\n    url: >-\n      redis://user:hunter2@host:6379/0",
            "store: { redis: { url: \"unix:///s?pass=hunter2\" } }",
            "admin: { token: \"${T:-hunter2}\" }",
            "admin: { token: \"ab\\\"hunter2\" }",
            "x-set: { Authorization: \"Basic hunter2\" }",
            "x-set:\n  Authorization: >-\n    Basic\n    hunter2",
        ] {
            let shown = redacted(settings);
            assert!(!shown.contains("hunter2") && !shown.contains("ter2"), "{settings}\n\n{shown}");
            assert!(shown.contains("***") && shown.contains("upstreams:"), "{shown}");
        }
    }

    #[test]
    fn what_is_inserted_is_shown_by_its_name() {
        let shown = redacted(
            "admin: { token: \"${TOKEN}\" }\nstore: { redis: { url: \"redis://:${file:/run/p}@host\" } }",
        );
        assert!(!shown.contains("from-elsewhere") && !shown.contains("from-a-file"), "{shown}");
        assert!(shown.contains("${TOKEN}"), "{shown}");
    }

    #[test]
    fn what_is_no_secret_is_as_it_was_written() {
        let settings = "# Ours.\nworkers: 2\npolicies:\n  one: { algorithm: gcra, key: ip, limit: 1/1s }\n\nx-a: &a\n  - 10.0.0.0/8";
        assert!(redacted(settings).starts_with(settings), "{}", redacted(settings));
    }
}
