//! A route's path pattern, in the form in which paths are read.

use super::{Refused, normalise::normalise, reading::Reading};
use crate::config::model::{PathPattern, Segment};

/// Matches paths that were read literally.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) shape: Shape,
    /// The liberties that would make a difference to the pattern itself. Whoever writes
    /// `/fetch/https://*` says that there `//` is meant as it stands.
    pub(super) spelled_out: Reading,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    Exact(String),
    /// Ends in `/`. `/a/` matches `/a/` and `/a/b`, not `/a`.
    Prefix(String),
    /// One a segment; `None` is any that is not empty.
    Template(Vec<Option<String>>),
}

impl Pattern {
    pub(super) fn new(pattern: &PathPattern) -> Self {
        match pattern {
            PathPattern::Exact(path) => Self::of(path, Shape::Exact(read(path))),
            PathPattern::Prefix(path) => Self::of(path, Shape::Prefix(read(path))),
            PathPattern::Template(segments) => {
                let path: String = segments.iter().map(in_path).collect();
                Self::of(&path, Shape::Template(segments.iter().map(literal).collect()))
            }
        }
    }

    fn of(path: &str, shape: Shape) -> Self {
        Self { shape, spelled_out: Reading::possible(path).unwrap_or(Reading::LITERAL) }
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        match &self.shape {
            Shape::Exact(exact) => path == exact,
            Shape::Prefix(prefix) => path.starts_with(prefix.as_str()),
            Shape::Template(template) => {
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

/// A pattern that no path can equal, such as one with a broken escape, is left as it is.
fn read(path: &str) -> String {
    let read = |path: &str| -> Result<String, Refused> {
        Ok(Reading::LITERAL.apply(&normalise(path)?)?.into_owned())
    };
    read(path).unwrap_or_else(|_| path.to_owned())
}

fn literal(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Literal(_) => Some(read(&in_path(segment)).split_off(1)),
        Segment::Parameter(_) => None,
    }
}

fn in_path(segment: &Segment) -> String {
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
        let spelled_out = |path: &str| Pattern::new(&PathPattern::Prefix(path.to_owned())).spelled_out;
        assert_eq!(spelled_out("/fetch/https://"), Reading::possible("//").unwrap());
        assert_eq!(spelled_out("/a%2Fb/"), Reading::possible("/a%2Fb").unwrap());
        assert_eq!(spelled_out("/a/b/"), Reading::LITERAL);
        assert_eq!(Pattern::new(&template("/a;x/{id}")).spelled_out, Reading::possible("/a;x").unwrap());
    }
}
