//! Paths that a rule compares, as sets: they can be intersected and compared.

use std::{cell::RefCell, collections::HashMap};

use regex_syntax::hir::{
    Class, Hir, HirKind, Look, Repetition,
    literal::{ExtractKind, Extractor},
};

use crate::config::model::{PathMatching, PathRegex};

/// The most alternatives of an expression that is joined with a prefix.
const MAX_ALTERNATIVES: usize = 32;
/// The most expressions that are kept compiled.
const MAX_COMPILED: usize = 1_000;

/// Paths without their queries, compared letter by letter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Path {
    #[default]
    Any,
    Exact(String),
    /// Every path that begins with this text: `/api` is also the beginning of `/apis`.
    Prefix(String),
    /// Every path that contains a match of this expression, in the syntax of the crate `regex`.
    Regex(String),
}

/// Two sets of paths whose intersection a route cannot have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inexpressible;

impl Path {
    /// This path alone. It is decoded, as the source compares it.
    ///
    /// # Errors
    /// Why no request has it.
    pub(super) fn exact(path: &str) -> Result<Self, String> {
        begins(path).map(|()| Self::Exact(encoded(path)))
    }

    /// Every path that begins with this text, which is decoded.
    ///
    /// # Errors
    /// Why no request has it.
    pub(super) fn prefix(path: &str) -> Result<Self, String> {
        match path {
            "" | "/" => Ok(Self::Any),
            _ => begins(path).map(|()| Self::Prefix(encoded(path))),
        }
    }

    /// Every path in which this expression of PCRE or RE2 is found.
    ///
    /// # Errors
    /// Why Tollgate cannot search it.
    pub(super) fn regex(pattern: &str, is_insensitive: bool) -> Result<Self, String> {
        let pattern = expression(pattern)?;
        let pattern = if is_insensitive { format!("(?i:{pattern})") } else { pattern };
        if !pattern.chars().all(|c| c.is_ascii_graphic()) {
            return Err("the expression has characters that a path has only percent-encoded".to_owned());
        }
        match compiled(&pattern) {
            Some(_) => Ok(literal(&pattern).unwrap_or(Self::Regex(pattern))),
            None => Err(UNREADABLE.to_owned()),
        }
    }

    /// The path as `path` of a route has it.
    pub(super) fn written(&self) -> String {
        let is_plain = |text: &str| !text.contains(['{', '}', '*', '~']);
        match self {
            Self::Any => "/*".to_owned(),
            Self::Exact(path) if is_plain(path) => path.clone(),
            Self::Exact(path) => format!("~^{}$", regex_text(path)),
            Self::Prefix(prefix) if prefix.ends_with('/') && is_plain(prefix) => format!("{prefix}*"),
            Self::Prefix(prefix) => format!("~^{}", regex_text(prefix)),
            Self::Regex(pattern) => format!("~{pattern}"),
        }
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (Self::Prefix(prefix), Self::Exact(path) | Self::Prefix(path)) => {
                path.starts_with(prefix.as_str())
            }
            (Self::Prefix(prefix), Self::Regex(pattern)) => compiled(pattern)
                .is_some_and(|regex| regex.is_anchored() && regex.start().starts_with(prefix)),
            (Self::Regex(pattern), Self::Exact(path)) => is_match(pattern, path),
            (Self::Regex(pattern), Self::Prefix(prefix)) => {
                pattern == &format!("^{}", regex_text(prefix)) || within(prefix, pattern) == Ok(Within::All)
            }
            (Self::Regex(pattern), Self::Regex(other)) if ending(pattern).is_some() && !is_open(other) => {
                other.strip_suffix(pattern.as_str()).is_some_and(|before| !before.ends_with('\\'))
            }
            (one, other) => one == other,
        }
    }

    /// The paths that both have; `None` if there are none.
    pub(super) fn and(&self, other: &Self) -> Result<Option<Self>, Inexpressible> {
        if self.covers(other) {
            return Ok(Some(other.clone()));
        }
        if other.covers(self) {
            return Ok(Some(self.clone()));
        }
        match (self, other) {
            (Self::Regex(pattern), Self::Prefix(prefix)) | (Self::Prefix(prefix), Self::Regex(pattern)) => {
                Ok(match within(prefix, pattern)? {
                    Within::None => None,
                    Within::All => Some(Self::Prefix(prefix.clone())),
                    Within::Some(pattern) => Some(Self::Regex(pattern)),
                })
            }
            (Self::Regex(one), Self::Regex(other)) => {
                if let (Some(one), Some(other)) = (ending(one), ending(other)) {
                    return match (one.ends_with(&other), other.ends_with(&one)) {
                        (true, _) => Ok(Some(self.clone())),
                        (_, true) => Ok(Some(other_of(self, &one, other.as_str()))),
                        _ => Ok(None),
                    };
                }
                if end_apart(one, other) {
                    return Ok(None);
                }
                let (Some(one), Some(other)) = (compiled(one), compiled(other)) else {
                    return Err(Inexpressible);
                };
                let (a, b) = (one.start(), other.start());
                let differ = one.is_anchored() && other.is_anchored();
                if differ && !a.starts_with(b) && !b.starts_with(a) { Ok(None) } else { Err(Inexpressible) }
            }
            _ => Ok(None),
        }
    }
}

/// The expression for a literal ending, unless `path` is it.
fn other_of(path: &Path, ending: &str, other: &str) -> Path {
    match ending == other {
        true => path.clone(),
        false => Path::Regex(format!("{}$", regex_text(other))),
    }
}

const UNREADABLE: &str = "Tollgate's regular expressions have no look-around, no back-references and no possessive \
                          quantifiers";

fn begins(path: &str) -> Result<(), String> {
    match path.starts_with('/') {
        true => Ok(()),
        false => Err(format!("no path begins with `{path}`")),
    }
}

/// Whether an expression is found in a path.
fn is_match(pattern: &str, path: &str) -> bool {
    compiled(pattern).is_some_and(|regex| regex.matches(path, PathMatching::STRICT))
}

/// The compiled expression. Each is compiled once: rules that overlap compare the same ones again and again.
pub(super) fn compiled(pattern: &str) -> Option<PathRegex> {
    thread_local! {
        static COMPILED: RefCell<HashMap<String, Option<PathRegex>>> = RefCell::default();
    }
    COMPILED.with_borrow_mut(|compiled| {
        if compiled.len() > MAX_COMPILED {
            compiled.clear();
        }
        let compile = || PathRegex::new(pattern, false).ok();
        compiled.entry(pattern.to_owned()).or_insert_with(compile).clone()
    })
}

pub(super) fn parse(pattern: &str) -> Option<Hir> {
    regex_syntax::ParserBuilder::new().unicode(false).utf8(false).nest_limit(50).build().parse(pattern).ok()
}

/// A path or a prefix that is written as an expression.
fn literal(pattern: &str) -> Option<Path> {
    let parsed = parse(pattern)?;
    let HirKind::Concat(parts) = parsed.kind() else { return None };
    let (start, text, end) = match parts.as_slice() {
        [start, text] => (start, text, None),
        [start, text, end] => (start, text, Some(end)),
        _ => return None,
    };
    let HirKind::Literal(text) = text.kind() else { return None };
    let text = str::from_utf8(&text.0).ok().filter(|text| text.starts_with('/'))?;
    match (start.kind(), end.map(Hir::kind)) {
        (HirKind::Look(Look::Start), None) if text == "/" => Some(Path::Any),
        (HirKind::Look(Look::Start), None) => Some(Path::Prefix(text.to_owned())),
        (HirKind::Look(Look::Start), Some(HirKind::Look(Look::End))) => Some(Path::Exact(text.to_owned())),
        _ => None,
    }
}

/// The literal text that an expression compares with the end of paths, if it does nothing else.
fn ending(pattern: &str) -> Option<String> {
    let parsed = parse(pattern)?;
    let HirKind::Concat(parts) = parsed.kind() else { return None };
    let [text, end] = parts.as_slice() else { return None };
    match (text.kind(), end.kind()) {
        (HirKind::Literal(text), HirKind::Look(Look::End)) => String::from_utf8(text.0.to_vec()).ok(),
        _ => None,
    }
}

/// Whether no path ends as both expressions want it.
fn end_apart(one: &str, other: &str) -> bool {
    let ends = |pattern: &str| {
        let parsed = parse(pattern)?;
        let is_end = parsed.properties().look_set_suffix().contains(Look::End);
        let literals = Extractor::new().kind(ExtractKind::Suffix).extract(&parsed);
        let literals = literals.literals().filter(|_| is_end)?;
        Some(literals.iter().map(|literal| literal.as_bytes().to_vec()).collect::<Vec<_>>())
    };
    let (Some(one), Some(other)) = (ends(one), ends(other)) else { return false };
    let is_apart = |one: &Vec<u8>, other: &Vec<u8>| !one.ends_with(other) && !other.ends_with(one);
    one.iter().all(|one| other.iter().all(|other| is_apart(one, other)))
}

/// Of the paths that begin with a prefix, those that an expression is found in.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Within {
    All,
    None,
    Some(String),
}

/// Intersects a prefix with an expression: what is left of the expression behind the prefix, wherever its match begins.
fn within(prefix: &str, pattern: &str) -> Result<Within, Inexpressible> {
    let parsed = parse(pattern).ok_or(Inexpressible)?;
    let known = [Look::Start, Look::End];
    if parsed.properties().look_set().iter().any(|look| !known.contains(&look)) {
        return Err(Inexpressible);
    }
    let mut rests: Vec<Hir> = Vec::new();
    for begin in 0..prefix.len() {
        let mut terms = vec![parsed.clone()];
        for (at, byte) in prefix.bytes().enumerate().skip(begin) {
            // A match that ended in the prefix is one, whatever follows.
            if terms.iter().any(|term| is_empty(term, at == 0)) {
                return Ok(Within::All);
            }
            terms = terms.iter().flat_map(|term| behind(term, byte, at == 0)).collect();
            terms.dedup();
            if terms.len() > MAX_ALTERNATIVES {
                return Err(Inexpressible);
            }
        }
        if terms.iter().any(|term| is_empty(term, false)) {
            return Ok(Within::All);
        }
        for term in terms {
            if !rests.contains(&term) {
                rests.push(term);
            }
        }
    }
    if rests.len() > MAX_ALTERNATIVES {
        return Err(Inexpressible);
    }
    let mut alternatives: Vec<String> = rests.iter().map(shown).collect();
    if !parsed.properties().look_set_prefix().contains(Look::Start) {
        alternatives.push(if is_open(pattern) { format!(".*(?:{pattern})") } else { format!(".*{pattern}") });
    }
    let begin = regex_text(prefix);
    let joined = match alternatives.as_slice() {
        [] => return Ok(Within::None),
        [one] if !is_open(one) => format!("^{begin}{one}"),
        all => format!("^{begin}(?:{})", all.join("|")),
    };
    match compiled(&joined).is_some_and(|_| joined.chars().all(|c| c.is_ascii_graphic())) {
        true => Ok(Within::Some(joined)),
        false => Err(Inexpressible),
    }
}

/// Whether an expression needs a group when another one stands beside it: it has `|`, or flags for all that follows.
pub(super) fn is_open(pattern: &str) -> bool {
    let (mut depth, mut is_in_class, mut chars) = (0_usize, false, pattern.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '[' => is_in_class = true,
            ']' => is_in_class = false,
            _ if is_in_class => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return true,
            _ => {}
        }
    }
    // `(?i)`, not `(?i:…)`, `(?:…)` or `(?P<name>…)`
    pattern
        .split("(?")
        .skip(1)
        .any(|flags| flags.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '-').starts_with(')'))
}

/// An expression as text. Literals and ends are written as people write them.
fn shown(hir: &Hir) -> String {
    match hir.kind() {
        HirKind::Literal(text) => regex_text(&String::from_utf8_lossy(&text.0)),
        HirKind::Look(Look::End) => "$".to_owned(),
        HirKind::Concat(parts) => parts.iter().map(shown).collect(),
        HirKind::Repetition(repeated)
            if is_any(&repeated.sub) && repeated.min == 0 && repeated.max.is_none() =>
        {
            ".*".to_owned()
        }
        _ => format!("(?:{hir})"),
    }
}

/// Whether this is `.`, any character of a path.
fn is_any(hir: &Hir) -> bool {
    parse(".").as_ref() == Some(hir) || parse("(?s-u:.)").as_ref() == Some(hir)
}

/// Whether the expression matches the empty text, and more text may follow it.
fn is_empty(hir: &Hir, is_start: bool) -> bool {
    match hir.kind() {
        HirKind::Empty => true,
        HirKind::Look(Look::Start) => is_start,
        HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => false,
        HirKind::Repetition(repeated) => repeated.min == 0 || is_empty(&repeated.sub, is_start),
        HirKind::Capture(group) => is_empty(&group.sub, is_start),
        HirKind::Concat(parts) => parts.iter().all(|part| is_empty(part, is_start)),
        HirKind::Alternation(parts) => parts.iter().any(|part| is_empty(part, is_start)),
    }
}

/// The partial derivatives of an expression after `byte` (Antimirov, 1996).
fn behind(hir: &Hir, byte: u8, is_start: bool) -> Vec<Hir> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Vec::new(),
        HirKind::Literal(text) => match text.0.split_first() {
            Some((first, rest)) if *first == byte => vec![Hir::literal(rest)],
            _ => Vec::new(),
        },
        HirKind::Class(class) => match has(class, byte) {
            true => vec![Hir::empty()],
            false => Vec::new(),
        },
        HirKind::Repetition(repeated) if repeated.max == Some(0) => Vec::new(),
        HirKind::Repetition(repeated) => {
            let rest = Hir::repetition(Repetition {
                min: repeated.min.saturating_sub(1),
                max: repeated.max.map(|max| max - 1),
                ..repeated.clone()
            });
            let first = behind(&repeated.sub, byte, is_start);
            first.into_iter().map(|first| Hir::concat(vec![first, rest.clone()])).collect()
        }
        HirKind::Capture(group) => behind(&group.sub, byte, is_start),
        HirKind::Concat(parts) => {
            let mut all = Vec::new();
            for (nth, part) in parts.iter().enumerate() {
                let rest = &parts[nth + 1..];
                let first = behind(part, byte, is_start).into_iter();
                all.extend(first.map(|first| Hir::concat([&[first], rest].concat())));
                if !is_empty(part, is_start) {
                    break;
                }
            }
            all
        }
        HirKind::Alternation(parts) => parts.iter().flat_map(|part| behind(part, byte, is_start)).collect(),
    }
}

fn has(class: &Class, byte: u8) -> bool {
    match class {
        Class::Bytes(class) => class.iter().any(|range| (range.start()..=range.end()).contains(&byte)),
        Class::Unicode(class) => {
            class.iter().any(|range| (range.start()..=range.end()).contains(&char::from(byte)))
        }
    }
}

/// A path or a prefix, which is encoded already, as a part of an expression.
pub(super) fn regex_text(path: &str) -> String {
    // A dash needs no escape outside of a class.
    regex_syntax::escape(path).replace(r"\-", "-")
}

/// A decoded path as a part of an expression.
pub(super) fn escaped(path: &str) -> String {
    regex_text(&encoded(path))
}

/// A path with characters percent-encoded that must be.
pub(super) fn encoded(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        match byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'%') {
            true => out.push(char::from(byte)),
            false => out += &format!("%{byte:02X}"),
        }
    }
    out
}

/// An expression of PCRE or RE2 in the syntax of the crate `regex`, in which it means the same.
///
/// # Errors
/// It uses features that the syntax lacks.
pub(super) fn expression(pattern: &str) -> Result<String, String> {
    let mut text = String::new();
    let mut chars = pattern.chars().peekable();
    let mut class_at: Option<usize> = None;
    let mut last_quantifier = false;
    while let Some(c) = chars.next() {
        let was_quantifier = std::mem::take(&mut last_quantifier);
        match (c, class_at) {
            // A character behind a backslash is itself, unless it is a letter or a digit.
            ('\\', _) => match chars.next() {
                Some(next) if next.is_ascii_alphanumeric() => {
                    if matches!(
                        next,
                        'R' | 'K' | 'X' | 'C' | 'G' | 'Q' | 'E' | 'N' | 'H' | 'h' | 'V' | 'Z' | '1'..='9'
                    ) || matches!(next, 'b' | 'B') && chars.peek() == Some(&'{')
                        || next == 'b' && class_at.is_some()
                    {
                        return Err(UNREADABLE.to_owned());
                    }
                    text.extend(['\\', next]);
                }
                Some(next) => text += &regex_syntax::escape(&next.to_string()),
                None => return Err("it ends with a backslash".to_owned()),
            },
            ('[', None) => {
                text.push(c);
                if chars.peek() == Some(&'^') {
                    text.extend(chars.next());
                }
                // The first `]` is a member.
                if chars.peek() == Some(&']') {
                    chars.next();
                    text += r"\]";
                }
                class_at = Some(text.len());
            }
            ('[', Some(_)) if chars.peek() == Some(&':') => {
                text.push(c);
                for c in chars.by_ref() {
                    text.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            (']', Some(_)) => {
                class_at = None;
                text.push(c);
            }
            // The crate reads these as operations on classes.
            ('[' | '&' | '~', Some(_)) => text.extend(['\\', c]),
            ('-', Some(start)) if text.len() > start && chars.peek() == Some(&'-') => {
                return Err(UNREADABLE.to_owned());
            }
            (_, Some(_)) => text.push(c),
            ('+', None) if was_quantifier => return Err(UNREADABLE.to_owned()),
            ('*' | '+' | '?' | '}', None) => {
                last_quantifier = true;
                text.push(c);
            }
            (_, None) => text.push(c),
        }
    }
    match parse(&text) {
        Some(_) => Ok(text),
        None => Err(UNREADABLE.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(text: &str) -> Path {
        Path::prefix(text).unwrap()
    }

    fn regex(text: &str) -> Path {
        Path::regex(text, false).unwrap()
    }

    fn both(one: &Path, other: &Path) -> Result<Option<String>, Inexpressible> {
        assert_eq!(one.and(other).map(|path| path.is_some()), other.and(one).map(|path| path.is_some()));
        Ok(one.and(other)?.map(|path| path.written()))
    }

    #[test]
    fn expressions_are_joined_with_prefixes_as_trees() {
        for (text, pattern, expected) in [
            ("/api/", r"\.php$", Some(r"~^/api/.*\.php$")),
            ("/api/", "/b$", Some("~^/api/(?:b$|.*/b$)")),
            ("/outer/", "a|b", Some("~^/outer/.*(?:a|b)")),
            ("/outer/", "u", Some("/outer/*")),
            ("/a", "(?i)^/A/b", Some("~^/a/b")),
            ("/a/", "^/b", None),
            ("/v1/", "^/v[0-9]+/x", Some("~^/v1/x")),
            ("/a/", "^/a/(x|y)$", Some("~^/a/(x|y)$")),
        ] {
            let found = both(&prefix(text), &regex(pattern)).unwrap();
            let found = found.map(|text| text.replace("(?:(?-u:[Bb]))", "b"));
            let found = found.map(|text| text.replace("(?:/(?-u:[Bb]))", "/b"));
            assert_eq!(found.as_deref(), expected, "{text} {pattern}");
        }
    }

    #[test]
    fn literal_expressions_are_paths() {
        assert_eq!(regex(r"^/a\.b$"), Path::Exact("/a.b".to_owned()));
        assert_eq!(regex("^/a/"), Path::Prefix("/a/".to_owned()));
        assert_eq!(regex("^/"), Path::Any);
        assert_eq!(Path::exact("/é{a}").unwrap().written(), r"~^/%C3%A9\{a\}$");
        assert!(Path::exact("a").is_err() && Path::regex("^/é/", false).is_err());
        assert_eq!(both(&regex(r"\.php$"), &regex(r"x\.php$")).unwrap().as_deref(), Some(r"~x\.php$"));
        assert_eq!(both(&regex(r"\.php$"), &regex(r"\.css$")), Ok(None));
        assert_eq!(both(&regex(r"^/a/.*\.(png|css)$"), &regex(r"b\.(php|js)$")), Ok(None));
        let below = r"~^/a/.*\.php$";
        assert_eq!(both(&regex(r"\.php$"), &regex(r"^/a/.*\.php$")).unwrap().as_deref(), Some(below));
        assert!(regex(r"\.php$").and(&regex(r"^/a/|b\.php$")).is_err());
        assert!(regex(r"\.php$").and(&regex(r"^/a/\\.php$")).is_err());
        assert_eq!(regex("a.b").and(&regex("c.d")), Err(Inexpressible));
        assert_eq!(regex("a.*b$").and(&regex("c.*(b|d)$")), Err(Inexpressible));
    }

    #[test]
    fn pcre_is_read_as_it_is_meant() {
        for (pcre, expected) in [
            (r"^\/a\/\<b\>", Some(r"^/a/<b>")),
            ("[a&&b]", Some(r"[a\&\&b]")),
            ("[[a]", Some(r"[\[a]")),
            ("[]a]", Some(r"[\]a]")),
            ("[[:alpha:]_]", Some("[[:alpha:]_]")),
            ("(?!a)b", None),
            (r"(a)\1", None),
            ("a++", None),
            ("a+?", Some("a+?")),
            (r"\Qa\E", None),
        ] {
            assert_eq!(expression(pcre).ok().as_deref(), expected, "{pcre}");
        }
    }

    proptest! {
        /// A join matches the paths that both match.
        #[test]
        fn the_intersection_is_exact(
            text in "/[ab/]{0,3}",
            pattern in r"\^?(a|b|/|/a|[ab]|\.|\.\*|a\*|\(a\|/b\)|(/b)?){0,4}\$?",
            path in "/[ab/]{0,5}",
        ) {
            let pattern = pattern.replace('\\', "");
            let (Ok(one), Ok(other)) = (Path::prefix(&text), Path::regex(&pattern, false)) else { return Ok(()) };
            let Ok(both) = one.and(&other) else { return Ok(()) };
            let expected = path.starts_with(&text) && is_match(&pattern, &path);
            let found = match &both {
                None => false,
                Some(Path::Any) => true,
                Some(Path::Exact(exact)) => *exact == path,
                Some(Path::Prefix(prefix)) => path.starts_with(prefix.as_str()),
                Some(Path::Regex(pattern)) => is_match(pattern, &path),
            };
            prop_assert_eq!(found, expected, "{} {} {} {:?}", text, pattern, path, both);
        }
    }
}
