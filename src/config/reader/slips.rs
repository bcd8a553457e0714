//! Slips that can be made in any value: quotes of a word processor, and variables in the syntax of a shell.

use crate::config::value::Invalid;

/// Quotes that word processors put in place of straight ones.
const CURLY_QUOTES: [char; 12] = ['“', '”', '„', '‟', '‘', '’', '‚', '‛', '«', '»', '‹', '›'];

/// The text between curly quotes, if `written` begins and ends with one.
pub(super) fn between_curly_quotes(written: &str) -> Option<&str> {
    let inner = written.strip_prefix(CURLY_QUOTES)?.strip_suffix(CURLY_QUOTES)?;
    (!inner.contains(CURLY_QUOTES)).then_some(inner)
}

/// The message for `inner` in curly quotes.
pub(super) fn in_curly_quotes(inner: &str) -> Invalid {
    Invalid::new("is in curly quotes, which YAML takes for a part of the value")
        .expected("put straight quotes around it")
        .suggestion(format!("write \"{inner}\""))
}

/// Whether `written` is `$NAME` alone, a variable in the syntax of a shell.
pub(super) fn is_shell_variable(written: &str) -> bool {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    written.strip_prefix('$').is_some_and(|name| name.chars().all(is_part)) && with_braces(written).is_some()
}

/// The message for a variable in the syntax of a shell, which is not resolved.
pub(super) fn shell_variable_taken_as_text() -> Invalid {
    Invalid::new("is plain text here, not an environment variable").expected("write variables as \"${NAME}\"")
}

/// `written` with `${NAME}` in place of `$NAME` and of Caddy's `{$NAME}`. Variables of nginx are in lower case.
pub(super) fn with_braces(written: &str) -> Option<String> {
    let mut text = String::new();
    let mut rest = written;
    while let Some((before, after)) = rest.split_once('$') {
        let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let name = &after[..after.find(|c| !is_part(c)).unwrap_or(after.len())];
        if name.len() < 2 || name.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let is_braced = before.ends_with('{') && after[name.len()..].starts_with('}');
        text.push_str(if is_braced { &before[..before.len() - 1] } else { before });
        text.push_str("${");
        text.push_str(name);
        text.push('}');
        rest = &after[name.len() + usize::from(is_braced)..];
    }
    text.push_str(rest);
    (text != written).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_of_a_word_processor() {
        assert_eq!(between_curly_quotes("“/api”"), Some("/api"));
        assert_eq!(between_curly_quotes("„acme“"), Some("acme"));
        for text in ["/api", "“a” or “b”", "“a", "“", "it’s", ""] {
            assert_eq!(between_curly_quotes(text), None, "{text}");
        }
    }

    #[test]
    fn variables_of_a_shell() {
        let braced = |text: &str| with_braces(text).unwrap();
        assert_eq!(braced("http://127.0.0.1:$PORT"), "http://127.0.0.1:${PORT}");
        assert_eq!(braced("$HOST:$PORT/x"), "${HOST}:${PORT}/x");
        assert_eq!(braced("http://{$ORIGIN}"), "http://${ORIGIN}");
        for text in ["/api$", "$5", "$remote_addr", "pa$$word", "plain", "${PORT}", "$1A", ""] {
            assert_eq!(with_braces(text), None, "{text}");
        }
        assert!(
            is_shell_variable("$TOKEN") && !is_shell_variable("a$TOKEN") && !is_shell_variable("$TOKEN/x")
        );
    }
}
