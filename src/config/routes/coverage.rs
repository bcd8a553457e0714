//! Which routes match all requests that another matches, and so leave none to a later one.

use http::Method;

use crate::config::{
    reader::Cursor,
    routes::{
        index::{PathKey, RouteIndex},
        settings::Route,
    },
    value::{
        path_matching::{PathCase, PathMatching, TrailingSlash, fold_case, trim_slash},
        path_regex::PathRegex,
        patterns::{HostPattern, PathPattern, Segment},
    },
};

/// A route that is not yet compared with the others.
pub(in crate::config) struct DraftRoute<'t> {
    /// The route in the file.
    pub(in crate::config) cursor: Cursor<'t>,
    /// Its configured name. `None`: it is named after its path.
    pub(in crate::config) name: Option<Cursor<'t>>,
    pub(in crate::config) route: Route,
}

/// The most routes of a kind that a route is compared with: comparing all of thousands with the same path, or with
/// expressions that may match any path, would take long.
const MAX_COMPARED: usize = 64;

/// The routes by their hosts and paths, so that each is compared with few others.
pub(in crate::config) struct DraftIndex {
    routes: RouteIndex,
    /// The first routes with a regular expression, which may match any path.
    expressions: Vec<usize>,
}

impl DraftIndex {
    pub(in crate::config) fn new(drafts: &[DraftRoute<'_>]) -> Self {
        let mut index = Self { routes: RouteIndex::default(), expressions: Vec::new() };
        for (nth, DraftRoute { route, .. }) in drafts.iter().enumerate() {
            match &route.path {
                PathPattern::Regex(regex) => {
                    index.routes.insert(nth, &route.hosts, &expression_key(regex));
                    if index.expressions.len() < MAX_COMPARED {
                        index.expressions.push(nth);
                    }
                }
                path => index.routes.insert(nth, &route.hosts, &path_key(path)),
            }
        }
        index
    }

    /// The routes that may cover `route`, in their order: hardly any other does.
    pub(in crate::config) fn around(&self, route: &Route) -> Vec<usize> {
        let host = route.hosts.first();
        let mut found = self.routes.around(host, &path_key(&route.path), MAX_COMPARED);
        match &route.path {
            PathPattern::Regex(regex) => {
                found.extend(self.routes.around(host, &expression_key(regex), MAX_COMPARED));
            }
            PathPattern::Exact(_) => found.extend(&self.expressions),
            PathPattern::Prefix(_) | PathPattern::Template(_) => {}
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The key by which routes with the same expression are found.
fn expression_key(regex: &PathRegex) -> PathKey {
    PathKey { segments: vec![Some(format!("~{}", regex.pattern()))], below: false }
}

/// Whether `earlier` matches every request that `later` matches. A route that only several earlier routes together cover
/// is not found.
pub(in crate::config) fn covers(earlier: &Route, later: &Route) -> bool {
    any_or_all(&earlier.listeners, &later.listeners, PartialEq::eq)
        && earlier.domain == later.domain
        && earlier.descriptor.iter().all(|entry| later.descriptor.contains(entry))
        && any_or_all(&earlier.hosts, &later.hosts, covers_host)
        && any_or_all(&earlier.methods, &later.methods, covers_method)
        && covers_preflights(earlier, later)
        && earlier.headers.iter().all(|header| later.headers.contains(header))
        && earlier.query.iter().all(|parameter| later.query.contains(parameter))
        && earlier.cookies.iter().all(|cookie| later.cookies.contains(cookie))
        && covers_path((&earlier.path, earlier.matching), (&later.path, later.matching))
}

/// An empty list matches anything.
fn any_or_all<T>(earlier: &[T], later: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
    earlier.is_empty()
        || !later.is_empty() && later.iter().all(|later| earlier.iter().any(|earlier| covers(earlier, later)))
}

fn covers_method(earlier: &Method, later: &Method) -> bool {
    earlier == later || *earlier == Method::GET && *later == Method::HEAD
}

/// Whether `earlier` matches the CORS preflights that `later` answers for its methods, which are OPTIONS.
fn covers_preflights(earlier: &Route, later: &Route) -> bool {
    later.cors.is_none()
        || earlier.cors.is_some()
        || earlier.methods.is_empty()
        || earlier.methods.contains(&Method::OPTIONS)
}

fn covers_host(earlier: &HostPattern, later: &HostPattern) -> bool {
    match (earlier, later) {
        (HostPattern::Suffix(suffix), HostPattern::Exact(host) | HostPattern::Suffix(host)) => {
            // `.example.org` does not match itself as a host, but it is the same pattern.
            earlier == later || host.len() > suffix.len() && host.ends_with(suffix.as_str())
        }
        (HostPattern::Exact(_), _) => earlier == later,
    }
}

/// Whether one route matches, in its way to compare paths, all paths that another matches in its own.
pub(in crate::config) fn covers_path(
    (earlier, earlier_matching): (&PathPattern, PathMatching),
    (later, later_matching): (&PathPattern, PathMatching),
) -> bool {
    if let PathPattern::Regex(regex) = earlier {
        return expression_covers((regex, earlier_matching), (later, later_matching));
    }
    let compared = |path: PathPattern| match earlier_matching.case {
        PathCase::Sensitive => path,
        PathCase::Insensitive => folded(&path),
    };
    let by_case = PathMatching { case: PathCase::Sensitive, ..earlier_matching };
    let earlier: Vec<PathPattern> = spellings(earlier, by_case).into_iter().map(compared).collect();
    let mut later = spellings(later, later_matching).into_iter().map(compared);
    later.all(|later| earlier.iter().any(|earlier| covers_spelling(earlier, &later)))
}

/// Whether one pattern matches all paths that another matches, letter by letter.
pub(in crate::config) fn covers_spelling(earlier: &PathPattern, later: &PathPattern) -> bool {
    use PathPattern::{Exact, Prefix, Regex, Template};
    match (earlier, later) {
        (Exact(one), Exact(other)) => one == other,
        (Prefix(prefix), Exact(path) | Prefix(path)) => path.starts_with(prefix.as_str()),
        (Prefix(prefix), Template(segments)) => literal_start(segments).starts_with(prefix.as_str()),
        (Template(segments), Exact(path)) => {
            let path: Vec<_> = path.split('/').skip(1).collect();
            path.len() == segments.len()
                && segments.iter().zip(path).all(|(segment, part)| match segment {
                    Segment::Literal(literal) => literal == part,
                    Segment::Parameter(_) => !part.is_empty(),
                })
        }
        (Template(one), Template(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|pair| match pair {
                    (Segment::Literal(one), Segment::Literal(other)) => one == other,
                    (Segment::Literal(_), Segment::Parameter(_)) => false,
                    (Segment::Parameter(_), Segment::Literal(literal)) => !literal.is_empty(),
                    (Segment::Parameter(_), Segment::Parameter(_)) => true,
                })
        }
        (Prefix(prefix), Regex(regex)) => prefix == "/" || regex.start().starts_with(prefix.as_str()),
        (Exact(_) | Template(_), Prefix(_) | Regex(_)) | (Regex(_), _) | (Exact(_), Template(_)) => false,
    }
}

/// Whether a regular expression is found in all paths that another route matches: in those of the same expression, and in those
/// of one path.
fn expression_covers(
    (regex, matching): (&PathRegex, PathMatching),
    (later, later_matching): (&PathPattern, PathMatching),
) -> bool {
    match later {
        PathPattern::Regex(other) => {
            // `[^a]` matches more with the case than without, so that both have to compare it alike.
            regex.pattern() == other.pattern()
                && regex.case(matching.case) == other.case(later_matching.case)
                && (matching.trailing_slash == TrailingSlash::Either
                    || later_matching.trailing_slash == TrailingSlash::Exact)
        }
        PathPattern::Exact(path) => {
            // Requests are compared decoded.
            let is_plain = path.is_ascii() && !path.contains('%');
            // Not every way to write the letters is tried. An expression that ignores the case matches none or all, unless
            // a part of it has flags of its own.
            let every_case_matches = later_matching.case == PathCase::Sensitive
                || !path.contains(|c: char| c.is_ascii_alphabetic())
                || regex.case(matching.case) == PathCase::Insensitive && !regex.pattern().contains("(?");
            let by_slash = PathMatching { case: PathCase::Sensitive, ..later_matching };
            is_plain
                && every_case_matches
                && spellings(later, by_slash)
                    .iter()
                    .all(|path| matches!(path, PathPattern::Exact(path) if regex.matches(path, matching)))
        }
        PathPattern::Prefix(_) | PathPattern::Template(_) => false,
    }
}

/// The prefix of every path that `segments` match.
fn literal_start(segments: &[Segment]) -> String {
    let mut start = String::new();
    for segment in segments {
        start.push('/');
        match segment {
            Segment::Literal(literal) => start.push_str(literal),
            Segment::Parameter(_) => break,
        }
    }
    start
}

/// Patterns that together match the same paths as `path`, if each is compared letter by letter. Of the letters' cases, which are many,
/// only the one that is written, the lower and the upper are given.
pub(in crate::config) fn spellings(path: &PathPattern, matching: PathMatching) -> Vec<PathPattern> {
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
fn folded(path: &PathPattern) -> PathPattern {
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

/// The key by which a path is found among others, in any of its spellings.
fn path_key(path: &PathPattern) -> PathKey {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::{host_pattern, path_pattern};

    const STRICT: PathMatching =
        PathMatching { case: PathCase::Sensitive, trailing_slash: TrailingSlash::Exact };

    fn path_as(earlier: (&str, PathMatching), later: (&str, PathMatching)) -> bool {
        let [one, other] = [earlier.0, later.0].map(|path| path_pattern(path).unwrap());
        covers_path((&one, earlier.1), (&other, later.1))
    }

    fn path(earlier: &str, later: &str) -> bool {
        path_as((earlier, STRICT), (later, STRICT))
    }

    #[test]
    fn a_looser_route_covers_more() {
        const LOOSE: PathMatching = PathMatching::LOOSE;
        for (earlier, later) in [
            ("/a", "/A/"),
            ("/a/", "/A"),
            ("/*", "/a"),
            ("/A/*", "/a"),
            ("/a/*", "/A/{id}/"),
            ("/A/{id}/", "/a/{id}"),
            ("/{id}", "/A/"),
        ] {
            assert!(path_as((earlier, LOOSE), (later, LOOSE)), "{earlier} covers {later}");
            assert!(path_as((earlier, LOOSE), (later, STRICT)), "{earlier} covers {later}");
        }
        for (earlier, later) in [("/a", "/a"), ("/1", "/1"), ("/a/*", "/a/*"), ("/{id}", "/{id}")] {
            assert!(!path_as((earlier, STRICT), (later, LOOSE)), "{earlier} does not cover {later}");
        }
        assert!(path_as(("/*", STRICT), ("/a", LOOSE)) && path_as(("/a/*", STRICT), ("/a/1", STRICT)));
        let by_slash = PathMatching { trailing_slash: TrailingSlash::Exact, ..LOOSE };
        assert!(path_as(("/A", by_slash), ("/a", STRICT)) && !path_as(("/a", by_slash), ("/a/", STRICT)));
    }

    #[test]
    fn paths_that_cover() {
        for (earlier, later) in [
            ("/*", "/"),
            ("/*", "/a"),
            ("/*", "/a/*"),
            ("/*", "/{id}"),
            ("/a/*", "/a/b"),
            ("/a/*", "/a/{id}/c"),
            ("/a/*", "/a/*"),
            ("/a", "/a"),
            ("/{x}", "/a"),
            ("/a/{x}", "/a/{y}"),
            ("/{x}/{y}", "/a/{y}"),
        ] {
            assert!(path(earlier, later), "{earlier} covers {later}");
        }
    }

    #[test]
    fn paths_that_do_not() {
        for (earlier, later) in [
            ("/a/*", "/a"),
            ("/a/*", "/ab"),
            ("/a/*", "/*"),
            ("/a/*", "/{id}/b"),
            ("/a", "/a/"),
            ("/{x}", "/"),
            ("/{x}", "/*"),
            ("/a/{x}", "/{x}/{y}"),
            ("/{x}", "/a/b"),
            ("/{x}/{y}", "/{x}/"),
            ("/a/b/*", "/a/{x}"),
        ] {
            assert!(!path(earlier, later), "{earlier} does not cover {later}");
        }
    }

    #[test]
    fn expressions_cover_what_they_surely_match() {
        const LOOSE: PathMatching = PathMatching::LOOSE;
        const BY_SLASH: PathMatching = PathMatching { case: PathCase::Insensitive, ..STRICT };
        for (earlier, later) in [
            (("/*", STRICT), ("~\\.php$", STRICT)),
            (("/files/*", STRICT), ("~^/files/a", STRICT)),
            (("/files/*", LOOSE), ("~*^/Files/a", STRICT)),
            (("~^/a$", LOOSE), ("~^/a$", LOOSE)),
            (("~^/a$", LOOSE), ("~*^/a$", STRICT)),
            (("~^/[a-z]+$", STRICT), ("/ab", STRICT)),
            (("~^/[a-z]+$", LOOSE), ("/Ab", LOOSE)),
            (("~^/[0-9]+$", STRICT), ("/12", BY_SLASH)),
        ] {
            assert!(path_as(earlier, later), "{earlier:?} covers {later:?}");
        }
        for (earlier, later) in [
            // In any case, whatever the route says.
            (("/Files/*", STRICT), ("~*^/Files/a", STRICT)),
            (("/files/*", STRICT), ("~^/files/a", LOOSE)),
            // `/files` is `/files/` to the later one alone.
            (("/files/*", STRICT), ("~^/files/", LOOSE)),
            (("~^/a$", STRICT), ("~^/a$", LOOSE)),
            (("~^/a$", BY_SLASH), ("~^/a$", LOOSE)),
            (("~^/a$", STRICT), ("~*^/a$", STRICT)),
            (("~^/[^a]$", LOOSE), ("~^/[^a]$", STRICT)),
            (("~^/(ab|AB|Ab)$", STRICT), ("/Ab", LOOSE)),
            (("~^/(?-i:ab|AB|Ab)$", LOOSE), ("/Ab", LOOSE)),
            (("~^/[a-z]+$", STRICT), ("/ab", LOOSE)),
            // Requests for this path are compared as /@me.
            (("~^/%40me$", STRICT), ("/%40me", STRICT)),
        ] {
            assert!(!path_as(earlier, later), "{earlier:?} does not cover {later:?}");
        }
    }

    #[test]
    fn hosts() {
        let covers = |one, other| covers_host(&host_pattern(one).unwrap(), &host_pattern(other).unwrap());
        assert!(covers("*.a.b", "*.a.b") && covers("*.a.b", "x.a.b") && covers("*.a.b", "*.x.a.b"));
        assert!(!covers("*.a.b", "a.b") && !covers("x.a.b", "*.a.b") && !covers("*.a.b", "xa.b"));
    }

    #[test]
    fn an_empty_condition_is_any() {
        let eq = |one: &u8, other: &u8| one == other;
        assert!(any_or_all(&[], &[1], eq) && any_or_all(&[], &[], eq) && any_or_all(&[1, 2], &[2], eq));
        assert!(!any_or_all(&[1], &[], eq) && !any_or_all(&[1], &[1, 2], eq));
    }
}
