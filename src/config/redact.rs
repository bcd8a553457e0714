//! Masks secrets in everything that is shown of a configuration: in errors, and in its text on the admin port.
//!
//! [`Secrets`] of YAML are found by their places in the tree (`secret_places.rs`). Text that is not YAML has no tree,
//! and comments are not in it: there, words decide, and some that only look like secrets are masked as well.
//!
//! Values that were inserted from the environment or from files are not in the text at all.

use std::ops::Range;

use strsim::damerau_levenshtein;

/// The replacement of a secret.
pub(super) const MASK: &str = "***";

/// Keys whose value is a credential, in YAML or in the query of a URL, and the ends of such keys: `x-api-key`. Like the
/// names of headers, they are not case-sensitive.
const CREDENTIAL_KEYS: [&str; 11] = [
    "token",
    "password",
    "secret",
    "authorization",
    "authentication",
    "passwd",
    "passphrase",
    "bearer",
    "api-key",
    "api_key",
    "apikey",
];
/// Likewise, but only after `-` or `_`, because other words end so, too.
const SHORT_CREDENTIAL_KEYS: [&str; 6] =
    ["pass", "pwd", "private_key", "secret_key", "access_key", "auth_key"];
/// The ends of the names of further fields with credentials.
const CREDENTIAL_ENDS: [&str; 6] =
    ["-key", "-auth", "-credential", "_credential", "-credentials", "_credentials"];
/// The ends of names that only look like credentials: directives of nginx that name an upstream, settings, and keys
/// that are not secret.
const PLAIN_ENDS: [&str; 20] = [
    "proxy_pass",
    "grpc_pass",
    "fastcgi_pass",
    "uwsgi_pass",
    "client-auth",
    "allow-credentials",
    "allow_credentials",
    "websocket-key",
    "idempotency-key",
    "cache-key",
    "surrogate-key",
    "partition-key",
    "routing-key",
    "public-key",
    "primary-key",
    "hash-key",
    "sort-key",
    "limit-key",
    "per-key",
    "by-key",
];
/// Whether the value of this key is a credential, also where the key is misspelled.
pub(super) fn is_credential_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let is_one = |known: &&str| {
        let mistakes = if known.len() < 8 { 1 } else { 2 };
        key.ends_with(*known) || damerau_levenshtein(&key, known) <= mistakes
    };
    let ends_in = |known: &&str| {
        key.strip_suffix(*known).is_some_and(|rest| rest.ends_with(['-', '_']) || rest.is_empty())
    };
    let is_credential = key == "auth"
        || CREDENTIAL_KEYS.iter().any(is_one)
        || SHORT_CREDENTIAL_KEYS.iter().any(ends_in)
        || CREDENTIAL_ENDS.iter().any(|end| key.ends_with(end));
    is_credential && !PLAIN_ENDS.iter().any(|end| key.ends_with(end))
}

/// Whether the header, cookie or query parameter of this name is a credential.
pub(super) fn is_credential_field(name: &str) -> bool {
    // `credentials` is a setting as well.
    let fields = ["cookie", "set-cookie", "credential", "credentials"];
    is_credential_key(name) || fields.iter().any(|field| name.eq_ignore_ascii_case(field))
}

/// `text` with its credentials masked.
pub(super) fn mask_credentials(text: &str) -> String {
    mask_ranges(text, &credential_ranges(text), 1).0
}

/// Whether a part of `word` looks as if a program had made it, such as the last one of `sk_live_4f9a8c7b6d5e4f3a`.
pub(super) fn looks_random(word: &str) -> bool {
    word.split(['-', '_']).any(|part| {
        let count = |is_one: fn(&char) -> bool| part.chars().filter(is_one).count();
        part.chars().all(|c| c.is_ascii_alphanumeric())
            && part.len() >= 16
            && count(char::is_ascii_digit) >= 3
            && count(char::is_ascii_alphabetic) >= 3
    })
}

/// The ranges of words that look random.
pub(super) fn random_ranges(text: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    for word in text.split_inclusive(|c| !is_of_key(c)) {
        let bare = word.trim_end_matches(|c| !is_of_key(c));
        if looks_random(bare) {
            ranges.push(at..at + bare.len());
        }
        at += word.len();
    }
    ranges
}

/// Whether nothing in `text` looks like a credential.
pub(super) fn has_no_credentials(text: &str) -> bool {
    credential_ranges(text).is_empty()
}

/// Whether `text` consists of `${…}` alone, without a fallback.
pub(super) fn is_all_interpolated(text: &str) -> bool {
    literal(text).chars().all(|c| c == INSERTED)
}

/// The secrets in the text of a configuration.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    /// In bytes, sorted and disjoint.
    pub(super) ranges: Vec<Range<usize>>,
    /// Values and comments.
    pub(super) texts: Vec<Range<usize>>,
    /// The keys with secrets in them, because a space or a colon is missing; each with its masked text.
    pub(super) keys: Vec<(String, String)>,
}

impl Secrets {
    /// Finds the secrets of `text` by its words.
    pub(super) fn by_words(text: &str) -> Self {
        let mut ranges = Vec::new();
        let mut all = lines(text).into_iter().peekable();
        // The indent of a key whose value may continue in the lines below.
        let mut open: Option<usize> = None;
        while let Some((at, line)) = all.next() {
            let content = line.trim_start();
            if open.is_some_and(|key| content.is_empty() || indent(line) > key) {
                ranges.push(at + line.len() - content.len()..at + line.trim_end().len());
                continue;
            }
            open = all.peek().filter(|(_, next)| may_go_on(line, next)).map(|_| indent(line));
            ranges.extend(shifted(credential_ranges(line), at));
            let words = content.trim_start_matches([' ', '-', '{']).trim_end();
            ranges.extend(shifted(behind_a_space(words), at + line.trim_end().len() - words.len()));
        }
        Self { ranges: disjoint(ranges), ..Self::default() }
    }

    /// The ranges inside `part` of the text, relative to its beginning.
    pub(super) fn within(&self, part: &Range<usize>) -> Vec<Range<usize>> {
        let first = self.ranges.partition_point(|range| range.end <= part.start);
        let inside = self.ranges[first..].iter().take_while(|range| range.start < part.end);
        inside
            .map(|range| range.start.max(part.start) - part.start..range.end.min(part.end) - part.start)
            .collect()
    }

    /// The scalar `word` at `span` with its secrets masked. `None`: it has none.
    pub(super) fn masked(&self, span: &Range<usize>, word: &str) -> Option<String> {
        let inside = self.within(span);
        let (first, last) = (inside.first()?, inside.last()?);
        let is_whole = first.start <= 1 && last.end + 1 >= span.len();
        let masked = if is_whole { word.to_owned() } else { mask_credentials(word) };
        Some(if masked == word { MASK.to_owned() } else { masked })
    }

    /// Masks the secrets in keys that `message` quotes.
    pub(super) fn mask_keys(&self, message: String) -> String {
        self.keys.iter().fold(message, |message, (key, masked)| message.replace(key, masked))
    }

    /// `text` with all secrets masked.
    pub(super) fn mask(&self, text: &str) -> String {
        mask_ranges(text, &self.ranges, 1).0
    }
}

pub(super) fn shifted(ranges: impl IntoIterator<Item = Range<usize>>, by: usize) -> Vec<Range<usize>> {
    ranges.into_iter().map(|range| range.start + by..range.end + by).collect()
}

/// The same bytes, sorted and in disjoint ranges.
pub(super) fn disjoint(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut apart: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match apart.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    apart
}

/// The lines of `text`, each with the byte at which it begins; YAML (5.4) ends them with CRLF, CR or LF. Never empty.
pub(super) fn lines(text: &str) -> Vec<(usize, &str)> {
    let mut lines = Vec::new();
    let mut at = 0;
    while let Some(length) = text[at..].find(['\n', '\r']) {
        lines.push((at, &text[at..at + length]));
        at += length + if text[at + length..].starts_with("\r\n") { 2 } else { 1 };
    }
    lines.push((at, &text[at..]));
    lines
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '-']).len()
}

/// Whether `line` has the key of a secret whose value continues in the line `next`, if that is indented further. A mapping
/// is not a secret.
fn may_go_on(line: &str, next: &str) -> bool {
    let Some((key, value)) = line.split_once(':') else { return false };
    let name = key.trim_start_matches([' ', '-', '{', '?']).trim_matches(['"', '\'', ' ']);
    let value = value.split(" #").next().unwrap_or_default().trim();
    // An anchor or a tag precedes the value.
    let is_below = value.split_whitespace().all(|word| word.starts_with(['&', '!']));
    let has_end = match value.chars().next() {
        _ if is_below => next.contains(": ") || next.trim_end().ends_with(':'),
        Some(quote @ ('"' | '\'')) => value.matches(quote).count() > 1,
        first => matches!(first, Some('{' | '[')),
    };
    !has_end && (is_credential_key(name) || name.eq_ignore_ascii_case("url"))
}

/// `line` with these ranges masked, and the new position of `column`. Columns start at 1 and count characters.
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
    let found = user_info(text).into_iter().chain(after_scheme(text)).chain(values_of_keys(text, false));
    disjoint(found.collect())
}

/// The credentials in `key`: a space or a colon is missing.
pub(super) fn ranges_in_key(key: &str) -> Vec<Range<usize>> {
    let found = if key.contains([':', '=']) { credential_ranges(key) } else { Vec::new() };
    disjoint(found.into_iter().chain(behind_a_space(key)).collect())
}

/// The text after the key of a credential and a space.
pub(super) fn behind_a_space(text: &str) -> Option<Range<usize>> {
    let (key, value) = text.split_once(' ')?;
    let is_secret = key.chars().all(is_of_key) && is_credential_key(key) && !is_all_interpolated(value);
    is_secret.then(|| text.len() - value.len()..text.len())
}

/// The user info before the last `@`. A password may contain characters that should have been encoded, so the range
/// begins as early as possible: after the first scheme, else with the value, else with the quoted text.
fn user_info(text: &str) -> Option<Range<usize>> {
    let mut marks = text.match_indices('@').map(|(at, _)| at).filter(|at| !is_in_path(&text[..*at]));
    let first = marks.next()?;
    let last = marks.next_back().unwrap_or(first);
    let before = &text[..first];
    let value =
        before.split_once("://").or_else(|| before.rsplit_once(": ")).or_else(|| before.split_once(" `"));
    let value = value.map_or_else(|| before.strip_prefix('`').unwrap_or(before), |(_, value)| value);
    Some(first - value.trim_start_matches([' ', '"', '\'']).len()..last)
}

/// The user info of URLs that YAML has cut in two, because it has a space: the rest of it is another value.
pub(super) fn cut_user_info(text: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    for (at, line) in lines(text) {
        for (mark, scheme) in line.match_indices("://") {
            let rest = &line[mark + scheme.len()..];
            let (Some(space), Some(last)) = (rest.find([' ', '\t']), rest.rfind('@')) else { continue };
            let authority = rest[..space].split(['/', '?', '#']).next().unwrap_or_default();
            let authority = authority.trim_end_matches([',', '}', ']', '"', '\'']);
            if space < last && !is_address(authority) && !authority.contains('@') {
                ranges.push(at + mark + scheme.len()..at + mark + scheme.len() + last);
            }
        }
    }
    ranges
}

/// Whether `before` ends in the path of a URL of HTTP that has no user info.
fn is_in_path(before: &str) -> bool {
    let Some((scheme, rest)) = before.split_once("://") else { return false };
    let rest = literal(rest);
    let is_one_url = !rest.contains([' ', '\t', '"', '\'', '`', ',']) && !rest.contains("://");
    let authority = rest.split_once(['/', '?', '#']).map(|(authority, _)| authority);
    is_http(scheme) && is_one_url && authority.is_some_and(is_address)
}

/// Whether the scheme of HTTP ends this text.
fn is_http(before: &str) -> bool {
    before.ends_with("http") || before.ends_with("https")
}

/// Whether this is a host with an optional port, and not a user with a password.
fn is_address(authority: &str) -> bool {
    let Some((host, port)) = authority.split_once(':') else { return !authority.contains('@') };
    let port_alone = port.chars().all(|c| c.is_ascii_digit() || c == INSERTED);
    host.starts_with('[') || !host.is_empty() && port_alone && (1..=5).contains(&port.len())
}

/// The text after a scheme in a URL without `@`, unless it is a host with an optional port. It may be a password: the
/// host may be missing, or YAML may have cut the URL in two.
fn after_scheme(text: &str) -> impl Iterator<Item = Range<usize>> {
    text.match_indices("://").filter_map(move |(at, mark)| {
        let start = at + mark.len();
        let rest = &text[start..];
        // In a URL of HTTP, a password has a user name, and ends in `@`.
        if is_http(&text[..at]) || rest.contains('@') {
            return None;
        }
        let word = rest.split([' ', '\t', '"', '\'', '`']).next().unwrap_or_default().trim_end_matches(',');
        let literal = literal(word);
        let authority = literal.split(['/', '}', ']']).next().unwrap_or_default();
        (!is_address(authority) && literal != ":").then(|| start..start + word.len())
    })
}

/// The credentials in text that may have any words: those of a URL, or the values of keys.
pub(super) fn ranges_in_text(text: &str, is_plain: bool) -> Vec<Range<usize>> {
    match text.contains("://") {
        true => credential_ranges(text),
        false => values_of_keys(text, is_plain).collect(),
    }
}

fn is_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// The values after keys of credentials and `:` or `=`, unless they consist of `${…}` alone. A mapping is not a value,
/// but its entries are searched. `is_plain`: only those of the condition `header:NAME=VALUE`, even misspelled, and of the
/// query of a path.
fn values_of_keys(text: &str, is_plain: bool) -> impl Iterator<Item = Range<usize>> {
    text.match_indices([':', '=']).filter_map(move |(at, separator)| {
        let before = text[..at].trim_end().trim_end_matches(['"', '\'']);
        let (before, key) = before.split_at(before.trim_end_matches(is_of_key).len());
        let is_key = is_credential_key(key) || before.ends_with(':') && is_credential_field(key);
        // The name of a variable is not a key, and neither is the host before a port.
        let host = before.trim_end_matches(|c| is_of_key(c) || c == '.');
        let is_host = host.ends_with("//") || host.ends_with('@');
        let has_port = text[at + 1..].starts_with(|c: char| c.is_ascii_digit() || c == '$');
        let is_of_condition = |c: char| is_of_key(c) || matches!(c, ':' | ' ' | '"' | '\'');
        let is_in_plain_text = before.ends_with(':')
            || separator == "=" && (before.contains(['?', '#']) || before.chars().all(is_of_condition));
        if !is_key || before.ends_with("${") || is_host && has_port || is_plain && !is_in_plain_text {
            return None;
        }
        let mut rest = text[at + 1..].trim_start();
        // An anchor or a tag.
        while rest.starts_with(['&', '!']) {
            rest = rest.split_once(' ').map_or("", |(_, rest)| rest.trim_start());
        }
        let opening = rest.chars().next().filter(|c| matches!(c, '"' | '\'' | '[' | '{'));
        let value = &rest[opening.map_or(0, char::len_utf8)..];
        let word = before.rsplit([' ', '"', '\'', '`']).next().unwrap_or_default();
        let is_in_query = separator == "=" && word.contains(['?', '#']);
        let end = match (opening, open_quote(&text[..at])) {
            (Some('{'), _) => return None,
            (Some(opening), _) => closing(value, opening),
            (None, _) if is_in_query => value.find(['&', ' ', '"', '\'', '`']),
            (None, Some(quote)) => closing(value, quote),
            (None, None) if before.contains(['{', '[']) => {
                [", ", " }", " #"].iter().filter_map(|end| value.find(end)).min()
            }
            // In the condition `header:NAME=VALUE`, the value has no end of its own.
            (None, None) if separator == "=" && before.ends_with(':') => None,
            (None, None) => value.find(" #"),
        };
        let value = &value[..end.unwrap_or(value.len())];
        let start = text.len() - rest.len() + usize::from(opening.is_some());
        (!is_all_interpolated(value)).then(|| start..start + value.len())
    })
}

/// The quote that is open at the end of `text`. An apostrophe in a word does not open a quote.
fn open_quote(text: &str) -> Option<char> {
    let mut last = ' ';
    text.chars().fold(None, |open, character| {
        let is_quote = matches!(character, '"' | '\'' | '`') && !last.is_alphanumeric();
        last = character;
        match open {
            None => is_quote.then_some(character),
            Some(quote) => (quote != character).then_some(quote),
        }
    })
}

/// The end of a list or of a quoted text whose opening bracket or quote is before `text`. A quote in a quoted text is
/// written `\"`, or `''` (YAML 1.2, 7.3).
fn closing(text: &str, opening: char) -> Option<usize> {
    let (mut quote, mut depth) = if opening == '[' { (None, 1) } else { (Some(opening), 0) };
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match (quote, character) {
            (Some('"'), '\\') => drop(characters.next()),
            (Some(open), _) if open == character => {
                let is_doubled = open != '"' && characters.next_if(|(_, next)| *next == open).is_some();
                quote = quote.filter(|_| is_doubled);
            }
            (None, '"' | '\'') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') => depth -= 1,
            _ => continue,
        }
        if quote.is_none() && depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The placeholder of an interpolated value.
const INSERTED: char = '\0';

/// The literal parts of `text`: not `${NAME}`, but the fallback of `${NAME:-fallback}`.
fn literal(text: &str) -> String {
    let of_part = |part: &str| match part.split_once("${") {
        None => part.to_owned(),
        Some((before, inner)) => match inner.trim_end_matches('}').split_once(":-") {
            None => format!("{before}{INSERTED}"),
            Some((_, fallback)) => format!("{before}{fallback}"),
        },
    };
    text.split_inclusive('}').map(of_part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_hidden_and_the_rest_is_not() {
        for (text, shown) in [
            ("url: redis://user:hunter2@host:6379/0", "url: redis://***@host:6379/0"),
            // YAML has cut it in two at a comma.
            ("url: redis://:/hunter2", "url: redis://***"),
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
            ("{ x-api-key: [A, B], x: 1 }", "{ x-api-key: [***], x: 1 }"),
            ("x-api-key: [\"A]\", ['B', [C]]] # x", "x-api-key: [***] # x"),
            ("x-api-key: [A, B", "x-api-key: [***"),
            ("db_pass: hunter2", "db_pass: ***"),
            ("{ token = hunter2 two, x: 1 }", "{ token = ***, x: 1 }"),
            ("exempt: [\"header:x-api-key=hunter2 two&three\"]", "exempt: [\"header:x-api-key=***\"]"),
            ("header:x-api-key=hunter2 #two", "header:x-api-key=***"),
            ("`hader:cookie=hunter2 two` is wrong", "`hader:cookie=***` is wrong"),
            ("\"the token: hunter2\" # x", "\"the token: ***\" # x"),
            ("token: hun\"ter2", "token: ***"),
            ("it's the token: hun'ter2", "it's the token: ***"),
            ("http://user:hun/ter2@host", "http://***@host"),
            ("http://user:hunter2@auth:3000/@x/", "http://***@x/"),
            ("[http://a/,redis://u:hunter2@h]", "[http://***@h]"),
            ("redis://auth:hunter2", "redis://***"),
            ("redis://user:hunter2@auth:6379", "redis://***@auth:6379"),
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
            "tokens: { algorithm: gcra, key: ip }",
            "proxy_pass: http://127.0.0.1:3000",
            "bypass: /static/*",
            "endpoints: [http://auth:3000, \"http://my.secret:3000/\"]",
            "url: redis://auth:6379",
            "otlp: http://token:${PORT}",
            "https://h/@x/",
            "to: \"http://auth:3000/a/@x?y=a@b\"",
        ] {
            assert!(has_no_credentials(text), "{text}: {}", mask_credentials(text));
        }
    }

    #[test]
    fn the_caret_stays_where_it_belongs() {
        let line = "{ url: redis://:hunter2@é, timout: 1 }";
        for (column, under) in [(3, 'u'), (8, 'r'), (16, '*'), (20, '*'), (24, '@'), (25, 'é'), (28, 't')] {
            let (shown, column) = mask_ranges(line, &credential_ranges(line), column);
            assert_eq!(shown.chars().nth(column - 1), Some(under), "{column} in {shown}");
        }
        assert_eq!(mask_ranges("ab", &[], 3), ("ab".to_owned(), 3));
        assert_eq!(mask_ranges("a@", &credential_ranges("a@"), 3), ("***@".to_owned(), 5));
    }

    #[test]
    fn names_say_that_they_are_of_credentials() {
        for name in [
            "x-auth-key",
            "X-Secret-Key",
            "ocp-apim-subscription-key",
            "x-functions-key",
            "x-access-key",
            "x-auth",
            "proxy-auth",
            "authentication",
            "bearer",
            "x-passphrase",
            "private_key",
            "aws_secret_key",
            "x-credential",
            "x-amz-credentials",
            "credentials",
            "set-cookie",
        ] {
            assert!(is_credential_field(name), "{name}");
        }
        for name in [
            "sec-websocket-key",
            "idempotency-key",
            "X-Idempotency-Key",
            "x-cache-key",
            "surrogate-key",
            "access-control-allow-credentials",
            "access-control-allow-headers",
            "client_auth",
            "max_keys",
            "hash_key",
            "key",
            "header",
            "author",
            "x-user-id",
        ] {
            assert!(!is_credential_field(name), "{name}");
        }
        // A setting of `cors`.
        assert!(!is_credential_key("credentials"));
    }

    #[test]
    fn text_that_is_no_yaml_is_judged_by_its_words() {
        let text = "policies:\n  tokens:\n    key: ip\n  secrets: { key: ip }\nadmin:\n  token:\n    hunter2\n\n    hunter2\n  address: x\n\
                    x:\n  x-api-key:\n    - hunter2\n    - hunter2\n  url: >\n    redis://hunter2\nend: [";
        let shown = "policies:\n  tokens:\n    key: ip\n  secrets: { key: ip }\nadmin:\n  token:\n    ***\n\n    ***\n  address: x\n\
                     x:\n  x-api-key:\n    ***\n    ***\n  url: >\n    ***\nend: [";
        assert_eq!(Secrets::by_words(text).mask(text), shown);
    }
}
