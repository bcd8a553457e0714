//! Regular expressions: what they match, as far as Tollgate can say it in another way.

use regex_syntax::hir::{Class, Hir, HirKind, Look};

use crate::offline::convert::{
    condition::RequestCondition,
    path::{self, Path, expression, parse},
};

/// The most texts that an expression is written out as.
const MOST_WORDS: usize = 64;

/// A regular expression that is run here, on a text that is known.
pub(super) fn compiled(pattern: &str, is_insensitive: bool) -> Option<regex::bytes::Regex> {
    let pattern = expression(pattern).ok()?;
    let mut builder = regex::bytes::RegexBuilder::new(&pattern);
    builder.unicode(false).case_insensitive(is_insensitive).build().ok()
}

/// The paths in which an expression is found.
pub(super) fn path(pattern: &str, is_insensitive: bool) -> RequestCondition {
    if let Some(found) = beginning(pattern).filter(|_| !is_insensitive) {
        let path = if found.is_whole { Path::exact(&found.text()) } else { Path::prefix(&found.text()) };
        return path.map_or(RequestCondition::NEVER, RequestCondition::path);
    }
    match Path::regex(pattern, is_insensitive) {
        Err(why) => RequestCondition::unknown_place(why),
        Ok(Path::Regex(pattern)) if path::compiled(&pattern).is_some_and(|regex| !regex.can_match()) => {
            RequestCondition::NEVER
        }
        Ok(path) => RequestCondition::path(path),
    }
}

/// The texts of an expression that has few, and whether they are whole: it is found in texts that begin with one of them,
/// end with one, have one in them, or are one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExpressionTexts {
    pub(super) texts: Vec<String>,
    pub(super) is_start: bool,
    pub(super) is_end: bool,
}

/// The texts that an expression looks for.
pub(super) fn words(pattern: &str, is_insensitive: bool) -> Option<ExpressionTexts> {
    let pattern = expression(pattern).ok()?;
    let hir = parse(&pattern)?;
    let looks = hir.properties();
    let (is_start, is_end) =
        (looks.look_set_prefix().contains(Look::Start), looks.look_set_suffix().contains(Look::End));
    let mut texts = texts(&hir)?;
    if is_insensitive {
        texts.iter_mut().for_each(|text| text.make_ascii_lowercase());
    }
    Some(ExpressionTexts { texts, is_start, is_end })
}

fn texts(hir: &Hir) -> Option<Vec<String>> {
    let found = match hir.kind() {
        HirKind::Empty | HirKind::Look(Look::Start | Look::End) => vec![String::new()],
        HirKind::Look(_) => return None,
        HirKind::Literal(text) => vec![String::from_utf8(text.0.to_vec()).ok()?],
        HirKind::Class(Class::Bytes(class)) => {
            let bytes = class.iter().flat_map(|range| range.start()..=range.end()).take(MOST_WORDS + 1);
            bytes.map(|byte| char::from(byte).to_string()).collect()
        }
        HirKind::Class(Class::Unicode(class)) => {
            let chars = class.iter().flat_map(|range| range.start()..=range.end()).take(MOST_WORDS + 1);
            chars.map(String::from).collect()
        }
        HirKind::Repetition(repeated) if (repeated.min, repeated.max) == (0, Some(1)) => {
            [vec![String::new()], texts(&repeated.sub)?].concat()
        }
        HirKind::Repetition(_) => return None,
        HirKind::Capture(group) => texts(&group.sub)?,
        HirKind::Alternation(parts) => parts.iter().map(texts).collect::<Option<Vec<_>>>()?.concat(),
        HirKind::Concat(parts) => {
            let mut all = vec![String::new()];
            for part in parts {
                let next = texts(part)?;
                all =
                    all.iter().flat_map(|one| next.iter().map(move |next| format!("{one}{next}"))).collect();
                if all.len() > MOST_WORDS {
                    return None;
                }
            }
            all
        }
    };
    (found.len() <= MOST_WORDS).then_some(found)
}

/// The text that everything ends with in which an expression is found.
pub(super) fn ending(pattern: &str) -> Option<String> {
    let hir = parse(&expression(pattern).ok()?)?;
    let HirKind::Concat(parts) = hir.kind() else { return None };
    match parts.as_slice() {
        [.., text, end] if *end.kind() == HirKind::Look(Look::End) => match text.kind() {
            HirKind::Literal(text) => String::from_utf8(text.0.to_vec()).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// An expression that looks for a beginning, and takes the rest: `^/old/(.*)$`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PrefixExpression {
    /// Before the group.
    pub(super) before: String,
    /// What the group begins with. `None`: there is no group.
    pub(super) group: Option<String>,
    /// Nothing may follow.
    pub(super) is_whole: bool,
}

impl PrefixExpression {
    /// What it looks for at the beginning.
    pub(super) fn text(&self) -> String {
        format!("{}{}", self.before, self.group.as_deref().unwrap_or_default())
    }
}

pub(super) fn beginning(pattern: &str) -> Option<PrefixExpression> {
    // Every path begins with a slash.
    let pattern = pattern.strip_prefix("^/?").map_or(pattern.to_owned(), |rest| format!("^/{rest}"));
    let hir = parse(&expression(&pattern).ok()?)?;
    let mut parts = match hir.kind() {
        HirKind::Concat(parts) => parts.as_slice(),
        _ => std::slice::from_ref(&hir),
    };
    let is_anchored = parts.first().is_some_and(|part| *part.kind() == HirKind::Look(Look::Start));
    if is_anchored {
        parts = &parts[1..];
    }
    let (mut before, mut group) = (String::new(), None);
    if let [first, rest @ ..] = parts
        && let HirKind::Literal(text) = first.kind()
    {
        before = String::from_utf8(text.0.to_vec()).ok()?;
        parts = rest;
    }
    if let [first, rest @ ..] = parts
        && let HirKind::Capture(capture) = first.kind()
    {
        group = Some(match capture.sub.kind() {
            HirKind::Concat(inner) => match inner.as_slice() {
                [text, any] if is_any(any) => match text.kind() {
                    HirKind::Literal(text) => String::from_utf8(text.0.to_vec()).ok()?,
                    _ => return None,
                },
                _ => return None,
            },
            _ if is_any(&capture.sub) => String::new(),
            _ => return None,
        });
        parts = rest;
    }
    let has_any = parts.first().is_some_and(is_any);
    let rest = if has_any { &parts[1..] } else { parts };
    let is_end = matches!(rest, [end] if *end.kind() == HirKind::Look(Look::End));
    let is_known = rest.is_empty() || is_end;
    let is_empty = before.is_empty() && group.as_deref().is_none_or(str::is_empty);
    if !is_known || !is_anchored && !(is_empty && (has_any || group.is_some() || !is_end)) {
        return None;
    }
    Some(PrefixExpression { before, is_whole: is_end && group.is_none() && !has_any, group })
}

/// Whether this is `.*`.
fn is_any(hir: &Hir) -> bool {
    parse(".*").as_ref() == Some(hir)
}

/// Names the groups of an expression `p1`, `p2`, …, whatever they are called, so that a path can use them. Returns the
/// names that they had.
pub(super) fn with_named_groups(pattern: &str) -> (String, Vec<String>) {
    let (mut out, mut names) = (String::new(), Vec::new());
    let mut is_in_class = false;
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        out.push(c);
        match c {
            '\\' => {
                let next = rest.chars().next();
                out.extend(next);
                rest = &rest[next.map_or(0, char::len_utf8)..];
            }
            '[' => is_in_class = true,
            ']' => is_in_class = false,
            '(' if !is_in_class => {
                let named = ["?P<", "?<", "?'"].into_iter().find_map(|begin| rest.strip_prefix(begin));
                let named = named.filter(|rest| !rest.starts_with(['=', '!']));
                let name = match (named.and_then(|rest| rest.split_once(['>', '\''])), rest.starts_with('?'))
                {
                    (Some((name, behind)), _) => {
                        rest = behind;
                        name.to_owned()
                    }
                    (None, true) => continue,
                    (None, false) => String::new(),
                };
                names.push(name);
                out += &format!("?P<p{}>", names.len());
            }
            _ => {}
        }
    }
    (out, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_written_out() {
        let all = |pattern: &str| words(pattern, false).map(|words| words.texts);
        assert_eq!(all("^(GET|HEAD|P[OU]ST?)$").unwrap(), ["GET", "HEAD", "POS", "POST", "PUS", "PUST"]);
        assert_eq!(all("^P"), Some(vec!["P".to_owned()]));
        assert_eq!(all("a+"), None);
        assert_eq!(all("[^a]"), None);
        let c = words(r"^(www\.)?c\.test$", false).unwrap();
        assert_eq!(
            (c.texts.as_slice(), c.is_start, c.is_end),
            (&["c.test".into(), "www.c.test".into()][..], true, true)
        );
        assert_eq!(ending(r"^(?<sub>.+)\.example\.com$").as_deref(), Some(".example.com"));
        assert_eq!(ending("a|b$"), None);
    }

    #[test]
    fn beginnings_are_found() {
        let of = |pattern: &str| {
            beginning(pattern).map(|found| (found.before, found.group.unwrap_or("-".into()), found.is_whole))
        };
        let some =
            |before: &str, group: &str, is_whole| Some((before.to_owned(), group.to_owned(), is_whole));
        assert_eq!(of("^/old/(.*)$"), some("/old/", "", false));
        assert_eq!(of("^/old(/.*)$"), some("/old", "/", false));
        assert_eq!(of("^/old/?(.*)"), None);
        assert_eq!(of("^/?(.*)"), some("/", "", false));
        assert_eq!(of("^/old$"), some("/old", "-", true));
        assert_eq!(of("^/old"), some("/old", "-", false));
        assert_eq!(of("^"), some("", "-", false));
        assert_eq!(of("^(.*)$"), some("", "", false));
        assert_eq!(of("(.*)"), some("", "", false));
        assert_eq!(of("/old/(.*)"), None);
        assert_eq!(of("^/old/(.+)$"), None);
        assert_eq!(of(r"\.php$"), None);
    }

    #[test]
    fn groups_get_names() {
        let (pattern, names) = with_named_groups(r"^/(?<a>x|(?:b))/\(([()])(?!c)$");
        assert_eq!(pattern, r"^/(?P<p1>x|(?:b))/\((?P<p2>[()])(?!c)$");
        assert_eq!(names, ["a", ""]);
    }
}
