//! Regular expressions of paths: `~^/v[0-9]+/`.

use regex_syntax::{ast, hir};

use super::Invalid;
use crate::config::model::{PathPattern, PathRegex, PathRegexError};

/// The longest expression, in bytes.
const MAX_LENGTH: usize = 4096;

/// Reads `~EXPRESSION`, or `~*EXPRESSION` in any case, as nginx does.
pub(super) fn path_regex(text: &str) -> Result<PathPattern, Invalid> {
    let (pattern, ignores_case) = match text.strip_prefix("~*") {
        Some(pattern) => (pattern, true),
        None => (text.strip_prefix('~').unwrap_or(text), false),
    };
    let pattern = pattern.trim_start();
    if pattern.is_empty() {
        return Err(Invalid::new("is no regular expression yet").expected("such as ~^/v[0-9]+/"));
    }
    if pattern.len() > MAX_LENGTH {
        return Err(Invalid::new(format!("is a regular expression of more than {MAX_LENGTH} bytes")));
    }
    if pattern.contains(char::is_control) {
        return Err(Invalid::new("has characters that no path has")
            .suggestion(r"in double quotes, YAML reads \ itself: use single quotes, such as '~^/v\d+/'"));
    }
    if let Some(other) = pattern.chars().find(|c| !c.is_ascii_graphic()) {
        let encoded: String =
            other.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("%{byte:02X}")).collect();
        let written = other.escape_default();
        return Err(Invalid::new("has characters that a path has only percent-encoded")
            .suggestion(format!("write {encoded} in place of `{written}`")));
    }
    if pattern.contains("\\?") {
        return Err(Invalid::new("has \\?, but a path ends before the query")
            .expected("match query parameters by `query: { NAME: VALUE }` beside `path`"));
    }
    let regex =
        PathRegex::new(pattern, ignores_case).map_err(|error| explain(&error, text.len() - pattern.len()))?;
    if !regex.can_match() {
        let invalid =
            Invalid::new("matches no path, since every path begins with /").expected("write / behind ^");
        // With a |, the other alternatives would need a slash of their own.
        return Err(match pattern.strip_prefix('^').filter(|rest| !rest.contains('|')) {
            Some(rest) => {
                let mark = if ignores_case { "~*" } else { "~" };
                invalid.suggestion(format!("did you mean `path: '{mark}^/{rest}'`?"))
            }
            None => invalid,
        });
    }
    Ok(PathPattern::Regex(Box::new(regex)))
}

/// The error, its place in the expression, and the suggestion. `before`: characters before the expression.
fn explain(error: &PathRegexError, before: usize) -> Invalid {
    let syntax = match error {
        PathRegexError::TooLarge => {
            return Invalid::new(format!("is too large a regular expression: {error}"))
                .expected("use smaller counts in {…}, or several routes");
        }
        PathRegexError::Syntax(syntax) => syntax,
    };
    let at = |offset: usize| format!("at character {}", before + offset + 1);
    match &**syntax {
        regex_syntax::Error::Parse(error) => {
            let place = at(error.span().start.offset);
            let (reason, help) = explain_syntax(error);
            Invalid::new(format!("{reason}, {place}")).expected(help)
        }
        regex_syntax::Error::Translate(error) => {
            let place = at(error.span().start.offset);
            let help = match error.kind() {
                hir::ErrorKind::UnicodeNotAllowed
                | hir::ErrorKind::UnicodePropertyNotFound
                | hir::ErrorKind::UnicodePropertyValueNotFound
                | hir::ErrorKind::UnicodePerlClassNotFound => {
                    "paths are matched as they are sent, in ASCII: write [A-Za-z] for letters"
                }
                _ => FORMS,
            };
            Invalid::new(format!("is not a regular expression for paths: {}, {place}", error.kind()))
                .expected(help)
        }
        _ => Invalid::new("is not a regular expression").expected(FORMS),
    }
}

const FORMS: &str = "write regular expressions such as ~^/v[0-9]+/items";

/// The reason, and the suggestion.
fn explain_syntax(error: &ast::Error) -> (String, &'static str) {
    use ast::ErrorKind as E;
    let help = match error.kind() {
        E::UnsupportedLookAround => {
            let reason = "has look-around, (?= (?! (?<= or (?<!, which is not supported: here every expression takes linear time";
            return (
                reason.to_owned(),
                "match what is to be left out by a route of its own, before this one",
            );
        }
        E::UnsupportedBackreference => {
            let reason =
                "has a back-reference, which is not supported: here every expression takes linear time";
            return (reason.to_owned(), "write out what may stand there, or match any segment by [^/]+");
        }
        E::ClassUnclosed => "close the [ with ], or write \\[ for the character itself",
        E::GroupUnclosed => "close the ( with ), or write \\( for the character itself",
        E::GroupUnopened => "open it with (, or write \\) for the character itself",
        E::RepetitionMissing => {
            "write before it what is repeated: .* is any text; \\* is the character itself"
        }
        E::RepetitionCountUnclosed
        | E::RepetitionCountDecimalEmpty
        | E::RepetitionCountInvalid
        | E::DecimalEmpty => "write counts as {3} or {1,3}, or \\{ for the character itself",
        E::FlagUnrecognized | E::FlagUnexpectedEof => {
            "write (?:…) for a group without a name, and (?P<name>…) for one with a name"
        }
        E::EscapeUnrecognized | E::EscapeUnexpectedEof => {
            "write \\d for a digit, \\w for a letter, digit or _, \\. for a dot, and $ for the end of the path"
        }
        E::GroupNameDuplicate { .. } => "give each group a name of its own",
        E::NestLimitExceeded(_) => "use fewer groups in groups",
        _ => FORMS,
    };
    (format!("is not a regular expression: {}", error.kind()), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> (String, String) {
        let invalid = path_regex(text).unwrap_err();
        (invalid.reason.to_string(), invalid.help(false).unwrap_or_default())
    }

    #[test]
    fn the_place_and_the_remedy_are_told() {
        for (text, reason, help) in [
            ("~^/v[0-9/items", "unclosed character class, at character 5", "close the [ with ]"),
            ("~^/(a|b", "unclosed group, at character 4", "close the ( with )"),
            ("~*^/a)", "unopened group, at character 6", "\\)"),
            ("~*", "no regular expression", "such as"),
            ("~^/a{1,", "repetition", "{1,3}"),
            ("~^/(?!admin)", "look-around", "before this one"),
            ("~^/(a)/\\1", "back-reference", "[^/]+"),
            ("~^/\\p{L}+", "Unicode", "[A-Za-z]"),
            ("~^/caf\u{e9}", "percent-encoded", "%C3%A9"),
            ("~^/a b", "percent-encoded", "%20"),
            ("~^/a\\?b=", "query", "query:"),
            ("~^/(?>a)", "flag", "(?:"),
            ("~^/\\h", "escape", "\\d"),
            ("~^api/", "no path", "path: '~^/api/'"),
            ("~*^[^/]+$", "no path", "path: '~*^/[^/]+$'"),
            ("~^(api|v1)/", "no path", "write / behind ^"),
            ("~^/(?P<a>x)(?P<a>y)", "duplicate", "name of its own"),
            ("~^/((a{1000}){1000}){1000}", "too large", "smaller counts"),
        ] {
            let (found, helped) = refused(text);
            assert!(found.contains(reason), "{text}: {found}");
            assert!(helped.contains(help), "{text}: {helped}");
        }
        let deep = format!("~{}a{}", "(".repeat(60), ")".repeat(60));
        assert!(refused(&deep).0.contains("nest"), "{deep}");
        assert!(refused(&format!("~{}", "a".repeat(5_000))).0.contains("4096"));
    }

    #[test]
    fn expressions_are_read_as_nginx_reads_them() {
        for (text, pattern, ignores_case) in [
            ("~^/v[0-9]+/", "^/v[0-9]+/", false),
            ("~ \\.php$", "\\.php$", false),
            ("~* \\.(gif|png)$", "\\.(gif|png)$", true),
        ] {
            let Ok(PathPattern::Regex(regex)) = path_regex(text) else { panic!("{text}") };
            assert_eq!((regex.pattern(), regex.ignores_case()), (pattern, ignores_case));
        }
    }
}
