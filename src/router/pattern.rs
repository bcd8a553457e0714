//! A route's path pattern, in the form in which paths are matched.

use super::{Rejection, interpretation::PathInterpretation, normalization::normalize};
use crate::config::model::{PathPattern, Segment};

/// Matches paths in their literal interpretation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) kind: PatternKind,
    /// The ambiguities of the pattern itself. In `/fetch/https://*`, for one, `//` is meant
    /// literally.
    pub(super) intended_ambiguities: PathInterpretation,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PatternKind {
    Exact(String),
    /// Ends in `/`. `/a/` matches `/a/` and `/a/b`, not `/a`.
    Prefix(String),
    /// One a segment; `None` is any that is not empty.
    Template(Vec<Option<String>>),
}

impl Pattern {
    pub(super) fn new(pattern: &PathPattern) -> Self {
        match pattern {
            PathPattern::Exact(path) => Self::with_kind(path, PatternKind::Exact(literal_path(path))),
            PathPattern::Prefix(path) => Self::with_kind(path, PatternKind::Prefix(literal_path(path))),
            PathPattern::Template(segments) => {
                let path: String = segments.iter().map(example).collect();
                Self::with_kind(&path, PatternKind::Template(segments.iter().map(literal_segment).collect()))
            }
        }
    }

    fn with_kind(path: &str, kind: PatternKind) -> Self {
        Self {
            kind,
            intended_ambiguities: PathInterpretation::ambiguities(path)
                .unwrap_or(PathInterpretation::LITERAL),
        }
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        match &self.kind {
            PatternKind::Exact(exact) => path == exact,
            PatternKind::Prefix(prefix) => path.starts_with(prefix.as_str()),
            PatternKind::Template(template) => {
                let mut segments = path.split('/').skip(1);
                template.iter().all(|wanted| {
                    segments.next().is_some_and(|segment| match wanted {
                        Some(literal) => segment == literal,
                        None => !segment.is_empty(),
                    })
                }) && segments.next().is_none()
            }
        }
    }
}

/// The pattern in the literal interpretation. One that no path can equal, such as one with a malformed
/// percent-encoding, stays as it is.
fn literal_path(path: &str) -> String {
    let read = |path: &str| -> Result<String, Rejection> {
        Ok(PathInterpretation::LITERAL.interpret(&normalize(path)?)?.into_owned())
    };
    read(path).unwrap_or_else(|_| path.to_owned())
}

fn literal_segment(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Literal(_) => Some(literal_path(&example(segment)).split_off(1)),
        Segment::Parameter(_) => None,
    }
}

/// The segment as part of a path; a parameter has some value.
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

    fn check(pattern: &PathPattern, matching: &[&str], others: &[&str]) {
        let compiled = Pattern::new(pattern);
        for path in matching {
            assert!(compiled.matches(path), "{pattern:?} {path}");
        }
        for path in others {
            assert!(!compiled.matches(path), "{pattern:?} {path}");
        }
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
    fn patterns_are_read_as_paths_are() {
        check(&PathPattern::Exact("/%40me/é/%7e".to_owned()), &["/@me/%C3%A9/~"], &["/%40me/é/%7e"]);
        check(&PathPattern::Prefix("/a b/".to_owned()), &["/a b/c"], &[]);
        check(&template("/%3Ax/{id}"), &["/:x/1"], &["/%3Ax/1"]);
        check(&PathPattern::Exact("/%zz".to_owned()), &["/%zz"], &[]);
    }

    #[test]
    fn a_pattern_spells_out_what_it_holds() {
        let intended_ambiguities =
            |path: &str| Pattern::new(&PathPattern::Prefix(path.to_owned())).intended_ambiguities;
        assert_eq!(intended_ambiguities("/fetch/https://"), PathInterpretation::ambiguities("//").unwrap());
        assert_eq!(intended_ambiguities("/a%2Fb/"), PathInterpretation::ambiguities("/a%2Fb").unwrap());
        assert_eq!(intended_ambiguities("/a/b/"), PathInterpretation::LITERAL);
        assert_eq!(
            Pattern::new(&template("/a;x/{id}")).intended_ambiguities,
            PathInterpretation::ambiguities("/a;x").unwrap()
        );
    }
}
