//! Routes that no request can reach, because an earlier route matches all their requests, or because no certificate is for
//! their hosts.

use http::Method;

use super::{
    path_spellings::{folded, path_key, spellings},
    routes::DraftRoute,
};
use crate::{
    config::model::{
        HostPattern, PathCase, PathMatching, PathPattern, PathRegex, Route, Segment, TrailingSlash,
    },
    config::model::{PathKey, RouteIndex},
    tls,
};

/// With how many routes of a kind one is compared. Of thousands with the same path, or with expressions that may match any
/// path, a comparison of all with all would take long.
const MAX_COMPARED: usize = 64;

/// Reports every route that one earlier route covers.
pub(super) fn report_covered(drafts: &[DraftRoute<'_>], index: &DraftIndex) {
    for (nth, later) in drafts.iter().enumerate() {
        let around = index.around(&later.route).into_iter().take_while(|earlier| *earlier < nth);
        let mut earlier = around.filter_map(|earlier| drafts.get(earlier));
        if let Some(earlier) = earlier.find(|earlier| covers(&earlier.route, &later.route)) {
            let line = earlier.cursor.location().line;
            let mut help = format!(
                "the route in line {line} matches all of its requests first; move this route before it"
            );
            let (one, other) = (&earlier.route.path, &later.route.path);
            if !matches!(one, PathPattern::Regex(_)) && !covers_spelling(one, other) {
                help += ", or let that one compare its path letter by letter: `match: { case: sensitive, \
                    trailing_slash: exact }`";
            }
            later.cursor.report("no request ever reaches this route", help);
        }
    }
}

/// The routes by their hosts and paths, so that each is compared with few others.
pub(super) struct DraftIndex {
    routes: RouteIndex,
    /// The first routes with a regular expression, which may match any path.
    expressions: Vec<usize>,
}

impl DraftIndex {
    pub(super) fn new(drafts: &[DraftRoute<'_>]) -> Self {
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
    pub(super) fn around(&self, route: &Route) -> Vec<usize> {
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

/// What the same expression is found by.
fn expression_key(regex: &PathRegex) -> PathKey {
    PathKey { segments: vec![Some(format!("~{}", regex.pattern()))], below: false }
}

/// Whether `earlier` matches every request that `later` matches. A route that only several earlier routes together cover
/// is not found.
pub(super) fn covers(earlier: &Route, later: &Route) -> bool {
    any_or_all(&earlier.hosts, &later.hosts, covers_host)
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
pub(super) fn covers_path(
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
fn covers_spelling(earlier: &PathPattern, later: &PathPattern) -> bool {
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
            // Of all ways to write the letters not each is tried. An expression that ignores the case matches none or all, unless
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

/// Warns about every route with hosts for which no certificate is. Their clients get the first certificate, and refuse
/// it. `certified`: the names of all certificates; `None` where clients may do without one.
pub(super) fn warn_of_uncertified(drafts: &[DraftRoute<'_>], certified: Option<&[String]>) {
    let Some(certified) = certified else { return };
    for DraftRoute { cursor, route, .. } in drafts {
        let hosts = route.hosts.iter().filter(|host| !is_certified(host, certified));
        let hosts: Vec<String> = hosts.map(|host| format!("`{host}`")).collect();
        if !hosts.is_empty() {
            let message = format!(
                "no certificate is for {}, and plain HTTP is not served: clients will refuse the first certificate, \
                 which they get instead",
                hosts.join(", ")
            );
            cursor.warn(message, "add a certificate with this name to `listeners`".to_owned());
        }
    }
}

/// Whether a certificate is for this host, or for one of these hosts.
fn is_certified(host: &HostPattern, certified: &[String]) -> bool {
    match host {
        // Certificates name IPv6 addresses without brackets.
        HostPattern::Exact(host) => tls::covers(certified, host.trim_matches(['[', ']'])),
        HostPattern::Suffix(suffix) => certified.iter().any(|name| name.ends_with(suffix.as_str())),
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
