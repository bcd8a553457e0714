//! Paths as regular expressions.

use std::{borrow::Cow, ops::Range, sync::Arc};

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use regex_syntax::{
    ParserBuilder, ast,
    hir::{self, Class, Hir, HirKind, Look},
};

use crate::config::value::{
    Invalid,
    path_matching::{PathCase, PathMatching, TrailingSlash, fold_case},
};

/// The largest compiled expression, in bytes. The longest search takes time in proportion to this and to the path's
/// length.
const MAX_COMPILED: usize = 64 << 10;
/// The cache of a thread for one expression, in bytes. A search that needs more continues without the cache.
const MAX_CACHE: usize = 64 << 10;
/// The cache for all expressions of a configuration together. With 10,000 expressions, a state of the search takes
/// about 50 KB: a small cache would make each search begin anew.
const MAX_CACHE_SET: usize = 16 << 20;
/// The depth of nested groups.
const MAX_NESTING: u32 = 50;

/// `~^/v[0-9]+/` as `^/v[0-9]+/`: matches any path that contains a match. A search takes time in proportion to the
/// path's length.
#[derive(Debug, Clone)]
pub struct PathRegex {
    pattern: String,
    /// It was written as `~*`: it ignores case, regardless of the route.
    ignores_case: bool,
    /// Shared: a clone of an expression has a cache of its own.
    sensitive: Arc<Regex>,
    insensitive: Arc<Regex>,
    start: String,
    is_anchored: bool,
    can_match: bool,
}

/// The reason why a text is not a regular expression for paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathRegexError {
    /// It is malformed, or uses unsupported syntax.
    #[error(transparent)]
    Syntax(Box<regex_syntax::Error>),
    /// Its compiled form is too large.
    #[error("its compiled form takes more than {} KiB", MAX_COMPILED >> 10)]
    TooLarge,
}

impl PathRegex {
    /// Compiles `pattern`, in ASCII.
    ///
    /// # Errors
    /// It is not a regular expression, or it is too large.
    pub fn new(pattern: &str, ignores_case: bool) -> Result<Self, PathRegexError> {
        let parsed =
            ParserBuilder::new().unicode(false).utf8(false).nest_limit(MAX_NESTING).build().parse(pattern);
        let parsed = parsed.map_err(|error| PathRegexError::Syntax(Box::new(error)))?;
        let compile = |case_insensitive| {
            RegexBuilder::new(pattern)
                .unicode(false)
                .case_insensitive(case_insensitive)
                .nest_limit(MAX_NESTING)
                .size_limit(MAX_COMPILED)
                .dfa_size_limit(MAX_CACHE)
                .build()
                .map_err(|_| PathRegexError::TooLarge)
        };
        let is_anchored = parsed.properties().look_set_prefix().contains(Look::Start);
        Ok(Self {
            pattern: pattern.to_owned(),
            ignores_case,
            sensitive: Arc::new(compile(false)?),
            insensitive: Arc::new(compile(true)?),
            start: literal_start(&parsed),
            is_anchored,
            can_match: !is_anchored || Beginning::of(&parsed) != Beginning::Other,
        })
    }

    /// The literal start of every path that it matches. It may be empty.
    pub fn start(&self) -> &str {
        &self.start
    }

    /// Whether it matches only at the start of a path.
    pub fn is_anchored(&self) -> bool {
        self.is_anchored
    }

    /// False for an expression that no path matches, such as `^api`: every path begins with `/`.
    pub fn can_match(&self) -> bool {
        self.can_match
    }

    /// The expression itself, without `~`.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Whether it was written as `~*`.
    pub fn ignores_case(&self) -> bool {
        self.ignores_case
    }

    /// The same with another literal start.
    #[must_use]
    pub fn with_start(&self, start: String) -> Self {
        Self { start, ..self.clone() }
    }

    /// The same in any case.
    #[must_use]
    pub fn ignoring_case(&self) -> Self {
        Self { ignores_case: true, ..self.clone() }
    }

    /// Whether it matches `path`, or another spelling of it that `matching` treats as equal.
    pub fn matches(&self, path: &str, matching: PathMatching) -> bool {
        let regex = self.regex(matching.case);
        self.spellings(path, matching).any(|path| regex.is_match(path.as_bytes()))
    }

    /// The parts of `path` that its named groups match. `None`: the group matches nothing.
    pub fn captures(&self, path: &str, matching: PathMatching) -> Vec<Option<Range<usize>>> {
        let regex = self.regex(matching.case);
        let groups = regex.capture_names().enumerate().filter(|(_, name)| name.is_some());
        let sent = path;
        let Some((is_aligned, found)) = self.spellings(path, matching).find_map(|path| {
            let found = regex.captures(path.as_bytes())?;
            let ranges = found.iter().map(|group| group.map(|group| group.range())).collect::<Vec<_>>();
            // A spelling may have a slash more or less. If its letters take other numbers of bytes, its ranges do not
            // apply to the path.
            let places = |text: &str| -> Vec<_> {
                text.trim_end_matches('/').bytes().map(|byte| [b'%', b'/'].contains(&byte)).collect()
            };
            Some((places(&path) == places(sent), ranges))
        }) else {
            return groups.map(|_| None).collect();
        };
        let part = |group: usize| {
            let range = found.get(group)?.clone().filter(|_| is_aligned)?;
            Some(range.start.min(sent.len())..range.end.min(sent.len()))
        };
        groups.map(|(group, _)| part(group)).collect()
    }

    /// The names of its named groups.
    pub fn capture_names(&self) -> impl Iterator<Item = &str> {
        self.sensitive.capture_names().flatten()
    }

    fn regex(&self, case: PathCase) -> &Regex {
        match self.case(case) {
            PathCase::Sensitive => &self.sensitive,
            PathCase::Insensitive => &self.insensitive,
        }
    }

    /// Its own comparison of letters, given the comparison of the route.
    pub fn case(&self, case: PathCase) -> PathCase {
        if self.ignores_case { PathCase::Insensitive } else { case }
    }

    /// The spellings of `path` to search.
    fn spellings<'p>(&self, path: &'p str, matching: PathMatching) -> impl Iterator<Item = Cow<'p, str>> {
        spellings(path, PathMatching { case: self.case(matching.case), ..matching })
    }
}

/// The same expression, read in the same way.
impl PartialEq for PathRegex {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern && self.ignores_case == other.ignores_case
    }
}

impl Eq for PathRegex {}

/// `path`; its lower-case form, if case is ignored beyond ASCII; and each with a slash more or less, if slashes at the
/// end are ignored.
fn spellings(path: &str, matching: PathMatching) -> impl Iterator<Item = Cow<'_, str>> {
    let folds = matching.case == PathCase::Insensitive && path.contains('%');
    let folded = move || folds.then(|| fold_case(path)).filter(|folded| folded != path);
    let either = matching.trailing_slash == TrailingSlash::Either;
    let other = move || (either && path != "/").then(|| other_slash(path.into()));
    let folded_other = move || folded().filter(|_| either).map(other_slash);
    std::iter::once(Cow::Borrowed(path))
        .chain(std::iter::once_with(other).flatten())
        .chain(std::iter::once_with(folded).flatten())
        .chain(std::iter::once_with(folded_other).flatten())
}

fn other_slash(path: Cow<'_, str>) -> Cow<'_, str> {
    match path {
        Cow::Borrowed(path) if path.ends_with('/') => Cow::Borrowed(&path[..path.len() - 1]),
        Cow::Owned(path) if path.ends_with('/') => Cow::Owned(path[..path.len() - 1].to_owned()),
        path => Cow::Owned([&*path, "/"].concat()),
    }
}

/// The text that `expression` begins with, if it is anchored at the start.
fn literal_start(expression: &Hir) -> String {
    let HirKind::Concat(parts) = expression.kind() else { return String::new() };
    let mut parts = parts.iter();
    if !parts.next().is_some_and(|part| *part.kind() == HirKind::Look(Look::Start)) {
        return String::new();
    }
    let literals = parts.map_while(|part| match part.kind() {
        HirKind::Literal(literal) => str::from_utf8(&literal.0).ok(),
        _ => None,
    });
    literals.collect()
}

/// The possible beginnings of a match at the start of a path. If several apply, the last one is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Beginning {
    /// No match is empty or begins with a slash.
    Other,
    /// A match can be empty, so the rest of the expression decides.
    Empty,
    /// A match can begin with a slash.
    Slash,
}

impl Beginning {
    fn of(expression: &Hir) -> Self {
        let slash_if = |begins: bool| if begins { Self::Slash } else { Self::Other };
        match expression.kind() {
            // No path is empty.
            HirKind::Look(Look::End) => Self::Other,
            HirKind::Empty | HirKind::Look(_) => Self::Empty,
            HirKind::Literal(literal) => slash_if(literal.0.starts_with(b"/")),
            HirKind::Class(Class::Bytes(class)) => {
                slash_if(class.iter().any(|range| (range.start()..=range.end()).contains(&b'/')))
            }
            HirKind::Class(Class::Unicode(class)) => {
                slash_if(class.iter().any(|range| (range.start()..=range.end()).contains(&'/')))
            }
            HirKind::Capture(group) => Self::of(&group.sub),
            HirKind::Repetition(repeated) if repeated.min == 0 => Self::of(&repeated.sub).max(Self::Empty),
            HirKind::Repetition(repeated) => Self::of(&repeated.sub),
            HirKind::Concat(parts) => {
                parts.iter().map(Self::of).find(|part| *part != Self::Empty).unwrap_or(Self::Empty)
            }
            HirKind::Alternation(branches) => branches.iter().map(Self::of).max().unwrap_or(Self::Other),
        }
    }
}

/// Expressions that are searched for in one pass.
#[derive(Debug)]
pub struct PathRegexSet {
    set: RegexSet,
    /// The differences that at least one of them ignores.
    loosest: PathMatching,
}

impl PathRegexSet {
    /// The largest size of all compiled expressions of a configuration together, in bytes.
    pub const MAX_COMPILED: usize = 32 << 20;

    /// Whether these are small enough together.
    pub fn fits(expressions: &[(&PathRegex, PathMatching)]) -> bool {
        // So few always fit.
        expressions.len() < Self::MAX_COMPILED / MAX_COMPILED / 2 || Self::new(expressions).is_some()
    }

    /// `None`: together they are too large, and are searched for one by one.
    pub fn new(expressions: &[(&PathRegex, PathMatching)]) -> Option<Self> {
        let patterns = expressions.iter().map(|(regex, matching)| match regex.case(matching.case) {
            PathCase::Sensitive => regex.pattern.clone(),
            // Up to the end of the expression.
            PathCase::Insensitive => format!("(?i){}", regex.pattern),
        });
        let set = RegexSetBuilder::new(patterns)
            .unicode(false)
            .nest_limit(MAX_NESTING + 1)
            .size_limit(Self::MAX_COMPILED)
            .dfa_size_limit(MAX_CACHE_SET)
            .build();
        let mut loosest = PathMatching { case: PathCase::Sensitive, trailing_slash: TrailingSlash::Exact };
        for (regex, matching) in expressions {
            if regex.case(matching.case) == PathCase::Insensitive {
                loosest.case = PathCase::Insensitive;
            }
            if matching.trailing_slash == TrailingSlash::Either {
                loosest.trailing_slash = TrailingSlash::Either;
            }
        }
        Some(Self { set: set.ok()?, loosest })
    }

    /// The indexes of the expressions that may match `path`, in order: all that match, and few others.
    pub fn candidates(&self, path: &str) -> Vec<usize> {
        let mut found = Vec::new();
        for path in spellings(path, self.loosest) {
            if self.set.is_match(path.as_bytes()) {
                found.extend(self.set.matches(path.as_bytes()));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The longest expression, in bytes.
const MAX_LENGTH: usize = 4096;

/// Reads `~EXPRESSION`, or `~*EXPRESSION` in any case, as nginx does.
pub(in crate::config) fn path_regex(text: &str) -> Result<PathRegex, Invalid> {
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
    Ok(regex)
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

    #[test]
    fn every_path_begins_with_a_slash() {
        let can_match = |pattern: &str| PathRegex::new(pattern, false).unwrap().can_match();
        for pattern in [
            "^api/",
            "^(api|v[0-9]+)/",
            "^[a-z]+/",
            "^[^/]",
            r"^\d*x",
            "^(?:a|b?)c",
            "^api|^v1",
            "^$",
            "^^a",
            "(^a)b",
        ] {
            assert!(!can_match(pattern), "{pattern}");
        }
        for pattern in [
            "^/api",
            "^",
            "^.*",
            "^.",
            "^a*/b",
            "^(a|/b)",
            "^(?:a|)/b",
            "^(?:/|$)",
            "^[^a]b",
            "^//?x",
            "api",
            "a|^b",
            "$",
        ] {
            assert!(can_match(pattern), "{pattern}");
        }
    }
}

#[cfg(test)]
mod tests_1 {
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
            let regex = path_regex(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!((regex.pattern(), regex.ignores_case()), (pattern, ignores_case));
        }
    }
}
