//! The paths that a route matches besides the one that it is written with, so that routes can be compared.

use crate::config::model::{
    PathCase, PathMatching, PathPattern, Segment, TrailingSlash, fold_case, trim_slash,
};

/// Patterns that match what `path` matches, if each is compared letter by letter. Of the letters' cases, which are many,
/// only the one that is written, the lower and the upper are given.
pub(super) fn spellings(path: &PathPattern, matching: PathMatching) -> Vec<PathPattern> {
    let mut all = vec![path.clone()];
    if matching.trailing_slash == TrailingSlash::Either {
        all.extend(with_other_slash(path));
    }
    if matching.case == PathCase::Insensitive {
        let cases = all.iter().flat_map(|path| [folded(path), mapped(path, str::to_ascii_uppercase)]);
        all.extend(cases.collect::<Vec<_>>());
    }
    all
}

/// The pattern in lower case.
pub(super) fn folded(path: &PathPattern) -> PathPattern {
    mapped(path, |text| fold_case(text).into_owned())
}

fn mapped(path: &PathPattern, change: impl Fn(&str) -> String) -> PathPattern {
    match path {
        PathPattern::Exact(path) => PathPattern::Exact(change(path)),
        PathPattern::Prefix(path) => PathPattern::Prefix(change(path)),
        PathPattern::Template(segments) => {
            let changed = segments.iter().map(|segment| match segment {
                Segment::Literal(text) => Segment::Literal(change(text)),
                Segment::Parameter(_) => segment.clone(),
            });
            PathPattern::Template(changed.collect())
        }
    }
}

/// The pattern with a trailing slash if it has none, and without if it has one. `None`: it is `/` or `/*`.
fn with_other_slash(path: &PathPattern) -> Option<PathPattern> {
    match path {
        PathPattern::Exact(path) | PathPattern::Prefix(path) if path == "/" => None,
        PathPattern::Exact(path) if path.ends_with('/') => {
            Some(PathPattern::Exact(trim_slash(path).to_owned()))
        }
        PathPattern::Exact(path) => Some(PathPattern::Exact(format!("{path}/"))),
        PathPattern::Prefix(path) => Some(PathPattern::Exact(trim_slash(path).to_owned())),
        PathPattern::Template(segments) => {
            let mut segments = segments.clone();
            match segments.pop_if(|last| *last == Segment::Literal(String::new())) {
                Some(_) => {}
                None => segments.push(Segment::Literal(String::new())),
            }
            Some(PathPattern::Template(segments))
        }
    }
}
