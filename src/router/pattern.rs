//! A route's path pattern, compiled for matching.

use std::{borrow::Cow, ops::Range};

use smallvec::smallvec;

use super::{Captures, Rejection, interpretation::PathInterpretation, normalization::well_formed};
use crate::{
    config::model::PathKey,
    config::model::{
        PathCase, PathMatching, PathPattern, PathRegex, Segment, TrailingSlash, fold_case, trim_slash,
    },
};

/// Matches paths in their literal interpretation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) kind: PatternKind,
    matching: PathMatching,
    /// The ambiguities of the pattern itself, which are intended: for example `//` in `/fetch/https://*`.
    pub(super) intended_ambiguities: PathInterpretation,
}

/// If letter case is ignored, all in lower case. If the trailing slash is ignored, an exact path and a template have
/// none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PatternKind {
    Exact(String),
    /// Ends in `/`. `/a/` matches `/a/` and `/a/b`, and `/a` only if the trailing slash is ignored.
    Prefix(String),
    /// One per segment. `None` matches any non-empty segment.
    Template(Vec<Option<String>>),
    Regex(Box<PathRegex>),
}

/// A path in its literal interpretation, as routes compare it.
pub(super) struct ComparedPath<'p> {
    pub(super) literal: &'p str,
    /// In lower case.
    pub(super) folded: Cow<'p, str>,
}

impl<'p> ComparedPath<'p> {
    pub(super) fn new(literal: &'p str) -> Self {
        Self { literal, folded: fold_case(literal) }
    }
}

impl Pattern {
    pub(super) fn new(pattern: &PathPattern, matching: PathMatching) -> Self {
        let fold = |path: String| match matching.case {
            PathCase::Sensitive => path,
            PathCase::Insensitive => fold_case(&path).into_owned(),
        };
        let (path, kind) = match pattern {
            PathPattern::Exact(path) => {
                let exact = fold(literal_path(path));
                (path.clone(), PatternKind::Exact(matching.trim(&exact).to_owned()))
            }
            PathPattern::Prefix(path) => (path.clone(), PatternKind::Prefix(fold(literal_path(path)))),
            PathPattern::Template(segments) => {
                let mut template: Vec<_> =
                    segments.iter().map(|segment| literal_segment(segment).map(fold)).collect();
                if matching.trailing_slash == TrailingSlash::Either
                    && template.len() > 1
                    && template.last().is_some_and(|last| last.as_deref() == Some(""))
                {
                    template.pop();
                }
                (segments.iter().map(example).collect(), PatternKind::Template(template))
            }
            // Only the literal start of an expression is certain to be intended.
            PathPattern::Regex(regex) => (regex.start().to_owned(), PatternKind::Regex(regex.clone())),
        };
        Self { kind, matching, intended_ambiguities: PathInterpretation::ambiguities(&path) }
    }

    pub(super) fn matches(&self, path: &ComparedPath<'_>) -> bool {
        let literal = path.literal;
        let path = match self.matching.case {
            PathCase::Sensitive => path.literal,
            PathCase::Insensitive => &path.folded,
        };
        match &self.kind {
            PatternKind::Exact(exact) => self.matching.trim(path) == exact,
            PatternKind::Prefix(prefix) => {
                path.starts_with(prefix.as_str())
                    || self.matching.trailing_slash == TrailingSlash::Either
                        && prefix.strip_suffix('/') == Some(path)
            }
            PatternKind::Template(template) => {
                let mut segments = self.matching.trim(path).split('/').skip(1);
                template.iter().all(|wanted| {
                    segments.next().is_some_and(|segment| match wanted {
                        Some(literal) => segment == literal,
                        None => !segment.is_empty(),
                    })
                }) && segments.next().is_none()
            }
            PatternKind::Regex(regex) => regex.matches(literal, self.matching),
        }
    }

    /// The key of the pattern in the index, without one trailing slash. `folds_case`: whether the index is searched in
    /// lower case. `None`: it is a regular expression.
    pub(super) fn key(&self, folds_case: bool) -> Option<PathKey> {
        let fold = |path: &str| match folds_case {
            true => fold_case(path).into_owned(),
            false => path.to_owned(),
        };
        let segments = |path: &str| path.split('/').skip(1).map(|segment| Some(segment.to_owned())).collect();
        let is_trimmed = self.matching.trailing_slash == TrailingSlash::Either;
        Some(match &self.kind {
            PatternKind::Exact(path) => {
                let path = fold(path);
                let path = if is_trimmed { &path } else { trim_slash(&path) };
                PathKey { segments: segments(path), below: false }
            }
            PatternKind::Prefix(path) => {
                let path = fold(path);
                PathKey { segments: segments(path.strip_suffix('/').unwrap_or(&path)), below: true }
            }
            PatternKind::Template(template) => {
                let mut segments: Vec<_> =
                    template.iter().map(|segment| segment.as_deref().map(fold)).collect();
                if !is_trimmed && segments.len() > 1 {
                    segments.pop_if(|last| last.as_deref() == Some(""));
                }
                PathKey { segments, below: false }
            }
            PatternKind::Regex(_) => return None,
        })
    }

    /// The regular expression and its matching options.
    pub(super) fn regex(&self) -> Option<(&PathRegex, PathMatching)> {
        match &self.kind {
            PatternKind::Regex(regex) => Some((regex, self.matching)),
            _ => None,
        }
    }
}

impl Pattern {
    /// The parts of a matching `path`, as sent, that the pattern's parameters, `*` or groups capture. A regular
    /// expression is searched in the `literal` interpretation, which has the same slashes.
    pub(super) fn captures<'p>(&self, path: &'p str, literal: &'p str) -> Captures<'p> {
        match &self.kind {
            PatternKind::Exact(_) => Captures::new(),
            PatternKind::Regex(regex) => {
                let sent = |range: Range<usize>| {
                    let [start, end] = sent_at(path, literal, [range.start, range.end])?;
                    path.get(start..end)
                };
                let groups = regex.captures(literal, self.matching).into_iter();
                groups.map(|range| range.and_then(sent).unwrap_or_default()).collect()
            }
            PatternKind::Prefix(prefix) => {
                let slashes = prefix.bytes().filter(|byte| *byte == b'/').count();
                smallvec![path.splitn(slashes + 1, '/').nth(slashes).unwrap_or_default()]
            }
            PatternKind::Template(template) => path
                .split('/')
                .skip(1)
                .zip(template)
                .filter_map(|(segment, wanted)| wanted.is_none().then_some(segment))
                .collect(),
        }
    }
}

/// Maps positions in the `literal` interpretation to positions in the `path` as sent, where each byte of the former is
/// either the same or percent-encoded. Captures remain encoded, since otherwise `%3B` would become a separator. `None`:
/// they can't be mapped.
fn sent_at<const N: usize>(path: &str, literal: &str, places: [usize; N]) -> Option<[usize; N]> {
    let (path, literal) = (path.as_bytes(), literal.as_bytes());
    let mut found = places.map(|_| None);
    let mut at = 0;
    for (place, byte) in literal.iter().map(Some).chain([None]).enumerate() {
        for (found, _) in found.iter_mut().zip(places).filter(|(_, wanted)| *wanted == place) {
            *found = Some(at);
        }
        let Some(byte) = byte else { break };
        let sent = *path.get(at)?;
        at += if sent == b'%' && *byte != b'%' { 3 } else { 1 };
    }
    // More than encodings was changed, so positions are unknown.
    if at != path.len() {
        return None;
    }
    let mut all = [0; N];
    for (known, found) in all.iter_mut().zip(found) {
        *known = found?;
    }
    Some(all)
}

/// The pattern in its literal interpretation. A pattern that no path can equal, such as one with a malformed
/// percent-encoding, is unchanged.
fn literal_path(path: &str) -> String {
    let read = |path: &str| -> Result<String, Rejection> {
        Ok(PathInterpretation::LITERAL.interpret(&well_formed(path)?)?.into_owned())
    };
    read(path).unwrap_or_else(|_| path.to_owned())
}

fn literal_segment(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Literal(_) => Some(literal_path(&example(segment)).split_off(1)),
        Segment::Parameter(_) => None,
    }
}

/// The segment as part of a path, with a sample value for a parameter.
fn example(segment: &Segment) -> String {
    match segment {
        Segment::Literal(text) => format!("/{text}"),
        Segment::Parameter(_) => "/x".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(pattern: &str) -> PathPattern {
        let segments = pattern.split('/').skip(1).map(|segment| {
            let parameter = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}'));
            match parameter {
                Some(name) => Segment::Parameter(name.to_owned()),
                None => Segment::Literal(segment.to_owned()),
            }
        });
        PathPattern::Template(segments.collect())
    }

    const STRICT: PathMatching =
        PathMatching { case: PathCase::Sensitive, trailing_slash: TrailingSlash::Exact };

    fn check_as(matching: PathMatching, pattern: &PathPattern, matched: &[&str], others: &[&str]) {
        let compiled = Pattern::new(pattern, matching);
        let matches = |path: &&&str| compiled.matches(&ComparedPath::new(path));
        assert_eq!(matched.iter().filter(matches).collect::<Vec<_>>(), matched.iter().collect::<Vec<_>>());
        assert_eq!(others.iter().find(matches), None, "{pattern:?}");
    }

    fn check(pattern: &PathPattern, matched: &[&str], others: &[&str]) {
        check_as(STRICT, pattern, matched, others);
    }

    #[test]
    fn patterns_match_as_they_say() {
        let exact = PathPattern::Exact("/api/login".to_owned());
        check(&exact, &["/api/login"], &["/api/login/", "/api/logi", "/api/Login", "/api/loginx", "/"]);
        let prefix = PathPattern::Prefix("/api/".to_owned());
        check(&prefix, &["/api/", "/api/a", "/api/a/b", "/api//"], &["/api", "/apis", "/", "/x/api/"]);
        check(&PathPattern::Prefix("/".to_owned()), &["/", "/a", "//", "/a%2Fb"], &[]);
        check(
            &template("/users/{id}/posts"),
            &["/users/1/posts", "/users/a%2Fb/posts", "/users/@/posts"],
            &["/users//posts", "/users/1/posts/", "/users/1/post", "/users/1", "/users/1/2/posts", "/users"],
        );
        check(&template("/{a}"), &["/x"], &["/", "/x/", "/x/y"]);
        check(&template("/{a}/"), &["/x/"], &["/", "/x", "//", "/x//"]);
    }

    #[test]
    fn a_loose_pattern_matches_every_spelling() {
        let loose = |pattern: &PathPattern, matched: &[&str], others: &[&str]| {
            check_as(PathMatching::LOOSE, pattern, matched, others);
        };
        let [exact, slash, root] =
            ["/API/login", "/api/login/", "/"].map(|path| PathPattern::Exact(path.into()));
        let spellings = ["/api/login", "/api/login/", "/API/Login", "/Api/LOGIN/"];
        loose(&exact, &spellings, &["/api/login//", "/api/loginx", "/api", "/"]);
        loose(&slash, &spellings, &["/api/login/x"]);
        loose(&root, &["/", "//"], &["/a"]);
        let prefix = PathPattern::Prefix("/Api/".to_owned());
        loose(&prefix, &["/api", "/API/", "/api/X"], &["/apis", "/ap", "/"]);
        loose(&PathPattern::Prefix("/".to_owned()), &["/", "/a", "//"], &[]);
        loose(&template("/users/{id}"), &["/Users/1", "/users/1/"], &["/users/", "/users", "/users/1/2"]);
        loose(&template("/users/{id}/"), &["/users/1", "/users/1/"], &["/users/", "/users/1/2"]);
        loose(&template("/{a}/"), &["/x", "/x/"], &["/", "//"]);

        let by_case = PathMatching { case: PathCase::Sensitive, ..PathMatching::LOOSE };
        check_as(by_case, &exact, &["/API/login", "/API/login/"], &["/api/login"]);
        let by_slash = PathMatching { trailing_slash: TrailingSlash::Exact, ..PathMatching::LOOSE };
        check_as(by_slash, &exact, &["/api/LOGIN"], &["/api/login/"]);
    }

    #[test]
    fn patterns_are_read_as_paths_are() {
        check(&PathPattern::Exact("/%40me/é/%7e".to_owned()), &["/@me/%C3%A9/~"], &["/%40me/é/%7e"]);
        check(&PathPattern::Prefix("/a b/".to_owned()), &["/a b/c"], &[]);
        check(&template("/%3Ax/{id}"), &["/:x/1"], &["/%3Ax/1"]);
        check(&PathPattern::Exact("/%zz".to_owned()), &["/%zz"], &[]);
    }

    #[test]
    fn a_pattern_spells_out_what_it_holds() {
        let intended_ambiguities =
            |path: &str| Pattern::new(&PathPattern::Prefix(path.to_owned()), STRICT).intended_ambiguities;
        assert_eq!(intended_ambiguities("/fetch/https://"), PathInterpretation::ambiguities("//"));
        assert_eq!(intended_ambiguities("/a%2Fb/"), PathInterpretation::ambiguities("/a%2Fb"));
        assert_eq!(intended_ambiguities("/a/b/"), PathInterpretation::LITERAL);
        assert_eq!(
            Pattern::new(&template("/a;x/{id}"), STRICT).intended_ambiguities,
            PathInterpretation::ambiguities("/a;x")
        );
    }
}
