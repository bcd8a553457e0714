//! Paths for upstreams and redirects, assembled from the path of a request.

use http::uri::PathAndQuery;
use smallvec::SmallVec;

use super::{
    Rejection, Router, Target,
    interpretation::PathInterpretation,
    normalization::{DotSegmentSpelling, has_dot_segment, well_formed},
    pattern::{ComparedPath, Pattern},
    target::with_path,
};
use crate::config::model::{PathMatching, PathPattern, Rewrite, Route, TrailingSlash};

/// The parts of a request's path that a route's pattern captures, percent-encoded as sent.
pub type Captures<'t> = SmallVec<[&'t str; 4]>;

impl Router {
    /// The captures of this route, which has matched, in the order of [`PathPattern::captures`].
    pub fn captures<'t>(&self, route: usize, target: &'t Target) -> Captures<'t> {
        self.pattern(route)
            .map(|pattern| pattern.captures(target.path(), target.literal_path()))
            .unwrap_or_default()
    }

    /// The rest of the path after the prefix that this route strips, without the slash between them. `None`: the path
    /// has another prefix.
    pub fn strip_prefix<'t>(&self, route: usize, target: &'t Target) -> Option<&'t str> {
        let prefix = self.stripped_prefix(route)?;
        if !prefix.matches(&ComparedPath::new(target.literal_path())) {
            return None;
        }
        prefix.captures(target.path(), target.literal_path()).first().copied()
    }
}

/// The prefix that `route` strips.
pub(super) fn stripped_prefix(route: &Route) -> Option<Pattern> {
    let Some(Rewrite::StripPrefix(prefix)) = &route.rewrite else { return None };
    let matching = PathMatching { case: route.matching.case, trailing_slash: TrailingSlash::Either };
    Some(Pattern::new(&PathPattern::Prefix(format!("{prefix}/")), matching))
}

/// Returns an assembled `path`, which begins with a slash, in a form that every origin and browser reads as a path:
/// after two slashes at its start, they would read a host.
///
/// # Errors
/// 400 if it contains a dot segment in any spelling.
pub fn assembled_path(path: &str) -> Result<String, Rejection> {
    let path = format!("/{}", path.trim_start_matches(['/', '\\']));
    let path = well_formed(&path)?;
    if has_dot_segment(&path, DotSegmentSpelling::Any) {
        return Err(Rejection::bad_request("The rewritten path has dot segments (. or ..)."));
    }
    PathInterpretation::ambiguities(&path).interpret(&path)?;
    Ok(path.into_owned())
}

impl Target {
    /// This target's query with another path, made by [`assembled_path`].
    ///
    /// # Errors
    /// 400 if the result is not a valid request target, or too long.
    pub fn with_path(&self, path: &str) -> Result<PathAndQuery, Rejection> {
        with_path(self.path_and_query(), path)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method, Uri, Version, header::HOST};
    use proptest::prelude::*;

    use super::*;
    use crate::{config::model::PathPattern, telemetry};

    /// A router with one route that has this path and rewrite.
    fn router(path: &PathPattern, rewrite: Option<&Rewrite>) -> Router {
        let mut routes = telemetry::testing::config().routes;
        routes.truncate(1);
        for route in &mut routes {
            (route.path, route.rewrite) = (path.clone(), rewrite.cloned());
        }
        Router::new(&routes)
    }

    fn target(path: &str) -> Option<Target> {
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("a"))]);
        Target::parse(&Method::GET, &path.parse::<Uri>().ok()?, Version::HTTP_11, &headers).ok()
    }

    /// Whether every origin and browser reads it as a path without dot segments.
    fn is_plain(path: &str) -> bool {
        let readings = PathInterpretation::ambiguities(path);
        path.starts_with('/')
            && !path[1..].starts_with(['/', '\\'])
            && !has_dot_segment(path, DotSegmentSpelling::Any)
            && readings.subsets().all(|reading| reading.interpret(path).is_ok())
    }

    #[test]
    fn captures_are_spelled_as_they_were_sent() {
        let segment = |text: &str| crate::config::model::Segment::Literal(text.to_owned());
        let parameter = |name: &str| crate::config::model::Segment::Parameter(name.to_owned());
        let template =
            PathPattern::Template(vec![segment("a"), parameter("b"), segment("c"), parameter("d")]);
        let template = router(&template, None);
        let prefix = router(&PathPattern::Prefix("/fetch/https://".to_owned()), None);
        for (router, path, captures) in [
            (&template, "/a/x%2Fy/c/%7ez", vec!["x%2Fy", "%7ez"]),
            (&template, "/%61/x/%63/z/", vec!["x", "z"]),
            (&prefix, "/fetch/https://b.example/c", vec!["b.example/c"]),
            (&prefix, "/%66etch/https://", vec![""]),
        ] {
            assert_eq!(router.captures(0, &target(path).unwrap()).to_vec(), captures, "{path}");
        }
        assert!(
            router(&PathPattern::Exact("/a".to_owned()), None).captures(0, &target("/a").unwrap()).is_empty()
        );
    }

    #[test]
    fn an_assembled_path_stays_one_path() {
        for (path, assembled) in [
            ("/", "/"),
            ("//evil.example", "/evil.example"),
            ("/\\/\\evil.example", "/evil.example"),
            ("/a//b\\c", "/a//b\\c"),
            ("/a%2Fb/é", "/a%2Fb/%C3%A9"),
            ("/...", "/..."),
            ("/a%0Ab", "/a%0Ab"),
        ] {
            assert_eq!(assembled_path(path).as_deref(), Ok(assembled), "{path}");
        }
        for path in ["/..", "/a/.", "/%2e%2E/b", "/a/..;b", "/a/..%2Fb", "/a%2F..", "/a\\..", "/a%00b", "/a%"]
        {
            assert!(assembled_path(path).is_err(), "{path}");
        }
    }

    proptest! {
        /// The prefix is stripped in any spelling, and the rest is unchanged.
        #[test]
        fn a_prefix_is_stripped_in_every_spelling(
            spelling in prop::collection::vec(0..3_u8, 6),
            rest in "(/([a-c;.\\\\]|%2F|%41|%C3%A9){0,4}){0,4}",
            query in "(\\?[a-c/=&.]{0,8})?",
        ) {
            let spelled: String = "/api/v1".bytes().enumerate().map(|(at, byte)| match spelling.get(at) {
                Some(1) if byte != b'/' => format!("%{byte:02x}"),
                Some(2) => char::from(byte).to_ascii_uppercase().to_string(),
                _ => char::from(byte).to_string(),
            }).collect();
            let rewrite = Rewrite::StripPrefix("/api/v1".to_owned());
            let router = router(&PathPattern::Prefix("/".to_owned()), Some(&rewrite));
            let sent = format!("{spelled}{rest}{query}");
            if let Some(target) = target(&sent) {
                let stripped = router.strip_prefix(0, &target).map(|rest| assembled_path(&format!("/{rest}")));
                if !target.has_dot_segments() {
                    prop_assert_eq!(router.strip_prefix(0, &target), Some(rest.strip_prefix('/').unwrap_or("")));
                }
                if let Some(path) = stripped {
                    let path = path.unwrap();
                    prop_assert!(is_plain(&path), "{path}");
                    let forwarded = target.with_path(&path).unwrap();
                    prop_assert_eq!(forwarded.path(), path.as_str());
                    prop_assert_eq!(forwarded.query(), target.query());
                    let segments = |path: &str| path.trim_start_matches(['/', '\\']).split('/').count();
                    let before = segments(target.path().splitn(4, '/').nth(3).unwrap_or_default());
                    prop_assert_eq!(segments(&path), before);
                }
            }
        }

        /// A path assembled from any parts is refused, or unambiguous.
        #[test]
        fn no_parts_make_another_path(parts in "([a./;\\\\?#]|%2[eEfF]|%5C|%3B|%0[aAdD]|%25|é){0,16}") {
            let path = format!("/{}", parts.replace(['?', '#'], ""));
            if let Ok(path) = assembled_path(&path) {
                prop_assert!(is_plain(&path), "{path}");
                prop_assert!(PathAndQuery::try_from(path.as_str()).is_ok());
            }
        }
    }
}
