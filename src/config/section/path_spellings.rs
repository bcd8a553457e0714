//! The paths that a route matches besides the one that it is written with, so that routes can be compared.

use crate::{
    config::model::PathKey,
    config::model::{PathCase, PathMatching, PathPattern, Segment, TrailingSlash, fold_case, trim_slash},
};

/// Patterns that match what `path` matches, if each is compared letter by letter. Of the letters' cases, which are many,
/// only the one that is written, the lower and the upper are given.
pub(super) fn spellings(path: &PathPattern, matching: PathMatching) -> Vec<PathPattern> {
    let case = match path {
        PathPattern::Regex(regex) => regex.case(matching.case),
        _ => matching.case,
    };
    let mut all = vec![path.clone()];
    if matching.trailing_slash == TrailingSlash::Either {
        all.extend(with_other_slash(path));
    }
    if case == PathCase::Insensitive {
        let cases = all.iter().flat_map(|path| [folded(path), mapped(path, str::to_ascii_uppercase)]);
        all.extend(cases.collect::<Vec<_>>());
    }
    all
}

/// The pattern in lower case.
pub(super) fn folded(path: &PathPattern) -> PathPattern {
    match mapped(path, |text| fold_case(text).into_owned()) {
        PathPattern::Regex(regex) => PathPattern::Regex(Box::new(regex.ignoring_case())),
        path => path,
    }
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
        PathPattern::Regex(regex) => PathPattern::Regex(Box::new(regex.with_start(change(regex.start())))),
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
        PathPattern::Regex(regex) if regex.start().ends_with('/') => {
            let start = regex.start().trim_end_matches('/').to_owned();
            Some(PathPattern::Regex(Box::new(regex.with_start(start))))
        }
        PathPattern::Regex(_) => None,
    }
}

/// What a path is found by among others, in any of its spellings.
pub(super) fn path_key(path: &PathPattern) -> PathKey {
    let folded = folded(path);
    let segments = |path: &str| path.split('/').skip(1).map(|segment| Some(segment.to_owned())).collect();
    match &folded {
        PathPattern::Exact(path) => PathKey { segments: segments(trim_slash(path)), below: false },
        PathPattern::Prefix(path) => {
            PathKey { segments: segments(path.strip_suffix('/').unwrap_or(path)), below: true }
        }
        PathPattern::Template(template) => {
            let mut segments: Vec<_> = template
                .iter()
                .map(|segment| match segment {
                    Segment::Literal(text) => Some(text.clone()),
                    Segment::Parameter(_) => None,
                })
                .collect();
            if segments.len() > 1 {
                segments.pop_if(|last| last.as_deref() == Some(""));
            }
            PathKey { segments, below: false }
        }
        // Whole segments alone.
        PathPattern::Regex(regex) => {
            let start = regex.start().rsplit_once('/').map_or("", |(start, _)| start);
            PathKey { segments: segments(start), below: true }
        }
    }
}
