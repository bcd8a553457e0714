//! Paths as regular expressions.

use std::{borrow::Cow, ops::Range, sync::Arc};

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use regex_syntax::{
    ParserBuilder,
    hir::{Class, Hir, HirKind, Look},
};

use super::{PathCase, PathMatching, TrailingSlash, fold_case};

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
