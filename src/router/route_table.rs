//! The routes in their order, and the first of them that a request matches.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::{
    Host, Rejection, Target,
    interpretation::dot_segment_readings,
    path_rewrite::stripped_prefix,
    pattern::{ComparedPath, Pattern},
};
use crate::{
    config::model::{
        DotSegments, HostPattern, PathCase, PathMatching, PathRegexSet, Route, TrailingSlash, trim_slash,
    },
    request_values::{cookies, preflight_method, query_values},
    route_index::RouteIndex,
};

/// Finds the route of a request. Paths and hosts are looked up, and regular expressions looked for at once, so that of many
/// routes only few are tried.
#[derive(Debug)]
pub struct Router {
    routes: Vec<CompiledRoute>,
    /// The routes without regular expressions.
    index: RouteIndex,
    /// The routes with one, in order.
    regexes: Vec<usize>,
    /// Their expressions. `None`: there are not two, or they are too large together.
    regex_set: Option<PathRegexSet>,
    /// Whether a route is matched in any case.
    folds_case: bool,
}

impl Router {
    /// `routes` in the order in which they are tried.
    pub fn new(routes: &[Route]) -> Self {
        let mut router = Self {
            routes: routes.iter().map(CompiledRoute::new).collect(),
            index: RouteIndex::default(),
            regexes: Vec::new(),
            regex_set: None,
            folds_case: routes.iter().any(|route| route.matching.case == PathCase::Insensitive),
        };
        for (index, route) in router.routes.iter().enumerate() {
            match route.path.key(router.folds_case) {
                Some(path) => router.index.insert(index, &route.hosts, &path),
                None => router.regexes.push(index),
            }
        }
        let expressions = router.regexes.iter().filter_map(|&index| router.routes[index].path.regex());
        let expressions: Vec<_> = expressions.collect();
        if expressions.len() > 1 {
            router.regex_set = PathRegexSet::new(&expressions);
        }
        router
    }

    /// The index of the first route whose conditions the request meets.
    ///
    /// # Errors
    /// 404 if there is none; 400 if an origin that interprets the path in another way would expect another route, or none, or
    /// if the route refuses dot segments.
    pub fn find(&self, method: &Method, target: &Target, headers: &HeaderMap) -> Result<usize, Rejection> {
        let request = RequestParts::new(method, target, headers);
        let path = self.compared(target.literal_path(), target.has_upper_case);
        let found = self.first(&request, &path).ok_or(Rejection::not_found("No route matches."))?;
        let ambiguities = target.ambiguities.without(self.routes[found].path.intended_ambiguities);
        for interpretation in ambiguities.subsets() {
            let path = interpretation.interpret(target.path())?;
            if self.first(&request, &self.compared(&path, true)) != Some(found) {
                return Err(AMBIGUOUS);
            }
        }
        if let Some(path) = target.unresolved_path() {
            self.check_dot_segments(&request, found, path)?;
        }
        Ok(found)
    }

    /// Whether the route that was found without dot segments is that of `path`, which has some.
    #[cold]
    fn check_dot_segments(
        &self,
        request: &RequestParts<'_>,
        found: usize,
        path: &str,
    ) -> Result<(), Rejection> {
        match self.routes[found].dot_segments {
            DotSegments::Normalize => Ok(()),
            DotSegments::Refuse => Err(Rejection::bad_request("The path has dot segments (. or ..).")),
            DotSegments::Pass => {
                let is_other = |path: &String| self.first(request, &self.compared(path, true)) != Some(found);
                match dot_segment_readings(path)?.iter().any(is_other) {
                    true => Err(AMBIGUOUS),
                    false => Ok(()),
                }
            }
        }
    }

    /// The first route that the request matches by its literal path, and why routes before it do not match: what
    /// [`Router::find`] decides, with reasons.
    pub fn explain(&self, method: &Method, target: &Target, headers: &HeaderMap) -> RouteExplanation {
        let request = RequestParts::new(method, target, headers);
        let path = self.compared(target.literal_path(), true);
        let matched = self.first(&request, &path);
        let before = self.routes.iter().enumerate().take(matched.unwrap_or(self.routes.len()));
        let mut passed_over: Vec<(usize, Mismatch)> =
            before.filter_map(|(index, route)| Some((index, route.mismatch(&request, &path)?))).collect();
        let all = passed_over.len();
        if all > MAX_PASSED_OVER {
            // Of those for other paths nobody asks why.
            passed_over.retain(|(_, mismatch)| *mismatch != Mismatch::Path);
            passed_over.truncate(MAX_PASSED_OVER);
        }
        RouteExplanation { matched, others: all - passed_over.len(), passed_over }
    }

    /// The path of this route.
    pub(super) fn pattern(&self, route: usize) -> Option<&Pattern> {
        self.routes.get(route).map(|route| &route.path)
    }

    /// The prefix that this route strips.
    pub(super) fn stripped_prefix(&self, route: usize) -> Option<&Pattern> {
        self.routes.get(route)?.strip.as_ref()
    }

    /// The path as routes compare it. `may_change`: whether it may have letters in upper case.
    fn compared<'p>(&self, literal: &'p str, may_change: bool) -> ComparedPath<'p> {
        match self.folds_case && may_change {
            true => ComparedPath::new(literal),
            false => ComparedPath { literal, folded: literal.into() },
        }
    }

    fn first(&self, request: &RequestParts<'_>, path: &ComparedPath<'_>) -> Option<usize> {
        let matches = |index: usize| self.routes[index].matches(request, path);
        let first = self.index.first(request.host, trim_slash(&path.folded), matches);
        if self.regexes.first().is_none_or(|regex| first.is_some_and(|first| first < *regex)) {
            return first;
        }
        self.first_regex(first, path.literal, matches).or(first)
    }

    /// The first route with a regular expression that matches, if it is one before `end`.
    fn first_regex(&self, end: Option<usize>, path: &str, matches: impl Fn(usize) -> bool) -> Option<usize> {
        let is_before = |index: &usize| end.is_none_or(|end| *index < end);
        match &self.regex_set {
            None => self.regexes.iter().copied().take_while(is_before).find(|&index| matches(index)),
            Some(set) => {
                let candidates =
                    set.candidates(path).into_iter().filter_map(|nth| self.regexes.get(nth).copied());
                candidates.take_while(is_before).find(|&index| matches(index))
            }
        }
    }
}

const AMBIGUOUS: Rejection =
    Rejection::bad_request("The path is ambiguous: read in another way, it matches another route.");

/// How many routes an explanation names that do not match.
const MAX_PASSED_OVER: usize = 20;

/// Why a request has its route, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteExplanation {
    /// The first route that matches.
    pub matched: Option<usize>,
    /// Routes before it, and why each does not match: all, or of many the first whose paths match.
    pub passed_over: Vec<(usize, Mismatch)>,
    /// How many more do not match.
    pub others: usize,
}

/// What a route ignores in the path of a request that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IgnoredDifferences {
    pub case: bool,
    pub trailing_slash: bool,
}

impl IgnoredDifferences {
    /// Those of `target`, whose path `route` matches.
    pub fn new(route: &Route, target: &Target) -> Self {
        let path = ComparedPath::new(target.literal_path());
        let is_needed = |strict| !Pattern::new(&route.path, strict).matches(&path);
        let PathMatching { case, trailing_slash } = route.matching;
        Self {
            case: is_needed(PathMatching { case: PathCase::Sensitive, trailing_slash }),
            trailing_slash: is_needed(PathMatching { case, trailing_slash: TrailingSlash::Exact }),
        }
    }
}

/// The first condition of a route that a request does not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    Path,
    Host,
    Method,
    /// The field of this index in [`Route::headers`].
    Header(usize),
    /// The parameter of this index in [`Route::query`].
    Query(usize),
    /// The cookie of this index in [`Route::cookies`].
    Cookie(usize),
}

/// The parts of a request that conditions other than the path look at.
struct RequestParts<'a> {
    method: &'a Method,
    host: Option<&'a str>,
    query: Option<&'a str>,
    headers: &'a HeaderMap,
}

impl<'a> RequestParts<'a> {
    fn new(method: &'a Method, target: &'a Target, headers: &'a HeaderMap) -> Self {
        Self { method, host: target.host().map(Host::name), query: target.query(), headers }
    }
}

/// The conditions of a route.
#[derive(Debug)]
struct CompiledRoute {
    path: Pattern,
    hosts: Vec<HostPattern>,
    methods: Vec<Method>,
    headers: Vec<(HeaderName, HeaderValue)>,
    query: Vec<(String, String)>,
    cookies: Vec<(String, String)>,
    dot_segments: DotSegments,
    /// Whether CORS preflights are answered here: they match by the method that they ask for.
    answers_preflights: bool,
    /// The prefix that is stripped.
    strip: Option<Pattern>,
}

impl CompiledRoute {
    fn new(route: &Route) -> Self {
        let mut methods = route.methods.clone();
        if methods.contains(&Method::GET) {
            methods.push(Method::HEAD);
        }
        Self {
            path: Pattern::new(&route.path, route.matching),
            hosts: route.hosts.clone(),
            methods,
            headers: route.headers.clone(),
            query: route.query.clone(),
            cookies: route.cookies.clone(),
            dot_segments: route.dot_segments,
            answers_preflights: route.cors.is_some(),
            strip: stripped_prefix(route),
        }
    }

    fn matches(&self, request: &RequestParts<'_>, path: &ComparedPath<'_>) -> bool {
        self.mismatch(request, path).is_none()
    }

    fn mismatch(&self, request: &RequestParts<'_>, path: &ComparedPath<'_>) -> Option<Mismatch> {
        if !self.path.matches(path) {
            return Some(Mismatch::Path);
        }
        let is_host = |host: &str| self.hosts.iter().any(|pattern| is_host(pattern, host));
        if !self.hosts.is_empty() && !request.host.is_some_and(is_host) {
            return Some(Mismatch::Host);
        }
        if !self.methods.is_empty()
            && !self.methods.contains(request.method)
            && !self.answers_preflight(request)
        {
            return Some(Mismatch::Method);
        }
        let is_sent = |(name, value): &(HeaderName, HeaderValue)| {
            request.headers.get_all(name).iter().any(|sent| sent == value)
        };
        if let Some(field) = self.headers.iter().position(|field| !is_sent(field)) {
            return Some(Mismatch::Header(field));
        }
        let has_parameter = |(name, value): &(String, String)| {
            query_values(request.query.unwrap_or_default(), name).any(|sent| *sent == *value.as_bytes())
        };
        if let Some(parameter) = self.query.iter().position(|parameter| !has_parameter(parameter)) {
            return Some(Mismatch::Query(parameter));
        }
        let has_cookie = |(name, value): &(String, String)| {
            cookies(request.headers, name).any(|sent| sent == value.as_bytes())
        };
        self.cookies.iter().position(|cookie| !has_cookie(cookie)).map(Mismatch::Cookie)
    }

    /// Whether this is a CORS preflight for one of the route's methods.
    fn answers_preflight(&self, request: &RequestParts<'_>) -> bool {
        self.answers_preflights
            && preflight_method(request.method, request.headers)
                .is_some_and(|method| self.methods.contains(&method))
    }
}

fn is_host(pattern: &HostPattern, host: &str) -> bool {
    match pattern {
        HostPattern::Exact(name) => host.eq_ignore_ascii_case(name),
        HostPattern::Suffix(suffix) => {
            let (host, suffix) = (host.as_bytes(), suffix.as_bytes());
            host.len() > suffix.len() && host[host.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Uri, Version, header::HOST};
    use proptest::{prelude::*, sample::select};

    use super::*;
    use crate::config::model::{
        Access, EarlyHints, MethodOverride, PathPattern, PathRegex, Retry, RouteAction, Segment, Timeouts,
        Trailers,
    };

    const STRICT: PathMatching =
        PathMatching { case: PathCase::Sensitive, trailing_slash: TrailingSlash::Exact };
    const MATCHINGS: [PathMatching; 4] = [
        STRICT,
        PathMatching { case: PathCase::Insensitive, ..STRICT },
        PathMatching { trailing_slash: TrailingSlash::Either, ..STRICT },
        PathMatching::LOOSE,
    ];

    fn route(path: &str) -> Route {
        Route {
            name: path.to_owned(),
            hosts: Vec::new(),
            path: match path.strip_suffix('*') {
                _ if path.starts_with('~') => {
                    PathPattern::Regex(Box::new(PathRegex::new(&path[1..], false).unwrap()))
                }
                Some(prefix) => PathPattern::Prefix(prefix.to_owned()),
                None if path.contains('{') => PathPattern::Template(
                    path.split('/')
                        .skip(1)
                        .map(|segment| match segment.starts_with('{') {
                            true => Segment::Parameter(segment.to_owned()),
                            false => Segment::Literal(segment.to_owned()),
                        })
                        .collect(),
                ),
                None => PathPattern::Exact(path.to_owned()),
            },
            matching: STRICT,
            dot_segments: DotSegments::Normalize,
            methods: Vec::new(),
            headers: Vec::new(),
            query: Vec::new(),
            cookies: Vec::new(),
            action: RouteAction::Upstream(0),
            split: None,
            policies: Vec::new(),
            timeouts: Timeouts::default(),
            retry: Retry::default(),
            method_override: MethodOverride::Remove,
            trailers: Trailers::Drop,
            early_hints: EarlyHints::Drop,
            max_body: None,
            access: Access::default(),
            cors: None,
            rewrite: None,
            request_headers: None,
            response_headers: None,
        }
    }

    fn on(host: HostPattern, route: Route) -> Route {
        Route { hosts: vec![host], ..route }
    }

    fn find(
        routes: &[Route],
        method: &Method,
        host: &str,
        uri: &str,
        fields: &[(&'static str, &str)],
    ) -> Result<usize, u16> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        let target = Target::parse(method, &uri.parse().unwrap(), Version::HTTP_11, &headers);
        target
            .and_then(|target| Router::new(routes).find(method, &target, &headers))
            .map_err(|rejection| rejection.status.as_u16())
    }

    fn get(routes: &[Route], uri: &str) -> Result<usize, u16> {
        find(routes, &Method::GET, "example.org", uri, &[])
    }

    #[test]
    fn the_first_that_matches_is_taken() {
        let routes = ["/a/{x}", "/a/b", "/a/*", "/c", "/*"].map(route);
        for (uri, found) in
            [("/a/b", 0), ("/a/b/c", 2), ("/a/", 2), ("/a", 4), ("/c", 3), ("/c/", 4), ("/C", 4)]
        {
            assert_eq!(get(&routes, uri), Ok(found), "{uri}");
        }
        assert_eq!(get(&routes[..4], "/d"), Err(404));
        assert_eq!(get(&[], "/"), Err(404));
    }

    #[test]
    fn hosts_are_exact_or_below_a_suffix() {
        let routes = [
            on(HostPattern::Exact("api.example.com".to_owned()), route("/*")),
            on(HostPattern::Suffix(".example.org".to_owned()), route("/*")),
            on(HostPattern::Exact("[::1]".to_owned()), route("/*")),
        ];
        for (host, found) in [
            ("api.example.com", Ok(0)),
            ("API.Example.com.:8080", Ok(0)),
            ("a.example.org", Ok(1)),
            ("a.b.EXAMPLE.org", Ok(1)),
            ("example.org", Err(404)),
            (".example.org", Err(404)),
            ("notexample.org", Err(404)),
            ("example.com", Err(404)),
            ("api.example.com.evil.net", Err(404)),
            ("[::1]:80", Ok(2)),
        ] {
            assert_eq!(find(&routes, &Method::GET, host, "/", &[]), found, "{host}");
        }
        // A request without host takes no route that asks for one.
        let target =
            Target::parse(&Method::GET, &Uri::from_static("/"), Version::HTTP_10, &HeaderMap::new()).unwrap();
        assert!(Router::new(&routes).find(&Method::GET, &target, &HeaderMap::new()).is_err());
    }

    #[test]
    fn methods_and_headers_must_all_match() {
        let posts = Route { methods: vec![Method::POST, Method::PUT], ..route("/a") };
        let field = |value| (HeaderName::from_static("x-version"), HeaderValue::from_static(value));
        let versioned = Route { headers: vec![field("2")], ..route("/a") };
        let routes = [posts, versioned, route("/a")];
        let go = |method, fields| find(&routes, &method, "h", "/a", fields);
        assert_eq!(go(Method::PUT, &[]), Ok(0));
        assert_eq!(go(Method::GET, &[("x-version", "2")]), Ok(1));
        assert_eq!(go(Method::GET, &[("x-version", "1"), ("x-version", "2")]), Ok(1));
        assert_eq!(go(Method::GET, &[("x-version", "22")]), Ok(2));
        assert_eq!(go(Method::HEAD, &[]), Ok(2));
    }

    #[test]
    fn head_follows_get() {
        let only = |method| Route { methods: vec![method], ..route("/a") };
        let routes = [only(Method::GET), only(Method::HEAD), route("/a")];
        for (method, found) in [(Method::GET, 0), (Method::HEAD, 0), (Method::OPTIONS, 2)] {
            assert_eq!(find(&routes, &method, "h", "/a", &[]), Ok(found), "{method}");
        }
        assert_eq!(find(&routes[1..], &Method::GET, "h", "/a", &[]), Ok(1), "GET does not follow HEAD");
    }

    #[test]
    fn each_route_has_its_own_way_to_compare_paths() {
        let with = |path, matching| Route { matching, ..route(path) };
        let routes = [
            with("/A", STRICT),
            with("/api/Login", PathMatching::LOOSE),
            with("/api/files/*", PathMatching { case: PathCase::Insensitive, ..STRICT }),
            with("/a", PathMatching { trailing_slash: TrailingSlash::Either, ..STRICT }),
            with("/*", PathMatching::LOOSE),
        ];
        for (uri, found) in [
            ("/A", Ok(0)),
            ("/a", Ok(3)),
            ("/a/", Ok(3)),
            ("/A/", Ok(4)),
            ("/api/login", Ok(1)),
            ("/API/LOGIN/", Ok(1)),
            ("/%41pi/login", Ok(1)),
            ("/api/login//", Err(400)),
            ("/API//login", Err(400)),
            ("/API%2Flogin/", Err(400)),
            ("/API/login;x", Err(400)),
            ("/API/Files/x", Ok(2)),
            ("/api/files", Ok(4)),
        ] {
            assert_eq!(get(&routes, uri), found, "{uri}");
        }
        assert_eq!(get(&[with("/caf%C3%A9", PathMatching::LOOSE)], "/CAF%c3%89/"), Ok(0));
        let ignored = |uri: &str| {
            let target =
                Target::parse(&Method::GET, &uri.parse().unwrap(), Version::HTTP_10, &HeaderMap::new());
            let IgnoredDifferences { case, trailing_slash } =
                IgnoredDifferences::new(&routes[1], &target.unwrap());
            (case, trailing_slash)
        };
        assert_eq!(ignored("/api/Login"), (false, false));
        assert_eq!(ignored("/api/login"), (true, false));
        assert_eq!(ignored("/API/login/"), (true, true));
    }

    #[test]
    fn no_spelling_gets_around_a_route() {
        let routes = ["/api/login", "/users/{id}", "/projects/*", "/fetch/*", "/*"].map(route);
        for uri in [
            "//api/login",
            "/api//login",
            "/api%2Flogin",
            "/api%2flogin",
            "/api\\login",
            "/api%5Clogin",
            "/api/login;x=1",
            "/api;x/login",
            "/api/;/login",
            "/api/%2Flogin",
            "/users/1%2Fposts",
            "/projects/..%2Fapi%2Flogin",
            "/projects/..;/api/login",
            "/projects%2Fx",
        ] {
            assert_eq!(get(&routes, uri), Err(400), "{uri}");
        }
        for (uri, found) in [
            ("/api/%6Cogin", 0),
            ("/x/../api/./login", 0),
            ("/x/%2e%2e/api/login", 0),
            ("/users/%40me", 1),
            ("/users/1;v=2", 1),
            ("/projects/group%2Fproject", 2),
            ("/projects/../users/7", 1),
            ("/fetch/https://x/", 3),
            ("/fetch/https://x/a%2Fb;c", 3),
            ("/any//thing", 4),
            ("/api%252Flogin", 4),
        ] {
            assert_eq!(get(&routes, uri), Ok(found), "{uri}");
        }
    }

    #[test]
    fn dot_segments_never_lead_around_a_route() {
        let with = |path, dot_segments| Route { dot_segments, ..route(path) };
        let routes = [
            with("/admin/*", DotSegments::Normalize),
            with("/files/*", DotSegments::Pass),
            with("/strict/*", DotSegments::Refuse),
            with("/{a}/c", DotSegments::Pass),
        ];
        for (uri, found) in [
            ("/files/a/../b", Ok(1)),
            ("/files/a/%2e%2E/%2e/b", Ok(1)),
            ("/files/a/b/..", Ok(1)),
            // The route of the resolved path decides, and other readings must lead there, too.
            ("/files/../admin/x", Ok(0)),
            ("/admin/../files/x", Err(400)),
            ("/files/../files/x", Ok(1)),
            ("/files/%2e%2e/files/x", Ok(1)),
            ("/files/..", Err(404)),
            ("/files/../x", Err(404)),
            ("/x/../files/y", Err(400)),
            ("/./files/y", Err(400)),
            ("/x/../a/c", Err(400)),
            ("/files/a//../b", Err(400)),
            ("/files/a;x/../b", Err(400)),
            ("/files/a%2Fb/../c", Err(400)),
            ("/files/..%2fadmin/x", Err(400)),
            ("/files/..;/admin/x", Err(400)),
            ("/strict/a/./b", Err(400)),
            ("/files/../strict/b", Err(400)),
            ("/strict/a.b/..c", Ok(2)),
            // With all resolved this is /files/c, with the literal one alone it is /files/a/b/d/%2e%2e/c, then /files/a/b/c.
            ("/files/a/b/d/%2e%2e/../%2e%2e/c", Ok(1)),
            ("/files/a/b/%2e%2e/../%2e%2e/c", Err(404)),
            ("/files/a/%2e%2e/%2e%2e/../files/c", Ok(1)),
        ] {
            assert_eq!(get(&routes, uri), found, "{uri}");
        }
    }

    #[test]
    fn partial_readings_count_too() {
        // With all liberties this is /p/q/r, literally it is /p%2Fq//r: both take the last route.
        // An origin that merges slashes without decoding them reads /p%2Fq/r, which is the first route's.
        let routes = ["/{a}/{b}", "/*"].map(route);
        assert_eq!(get(&routes, "/p%2Fq//r"), Err(400));
        assert_eq!(get(&routes, "/p/q//r"), Ok(1));
    }

    #[test]
    fn a_pattern_may_mean_its_slashes_as_they_stand() {
        let routes = ["/fetch/https://*", "/a%2Fb", "/@me", "/*"].map(route);
        assert_eq!(get(&routes, "/fetch/https://x//y"), Ok(0));
        assert_eq!(get(&routes, "/fetch/https://x%2Fy"), Ok(0));
        assert_eq!(get(&routes, "/a%2fb"), Ok(1));
        assert_eq!(get(&routes, "/%40me"), Ok(2));
        assert_eq!(get(&routes, "/fetch/https:/x"), Ok(3));
    }

    proptest! {
        #[test]
        fn the_index_finds_what_a_scan_finds(
            routes in prop::collection::vec(any_route(), 0..24),
            path in "/[aAb]?(/[abB1]{0,2}){0,3}",
            query in "(\\?[ab]=[12](&[ab]=[12])?)?",
            host in select(&["", "a.example", "B.a.example", "b.a.example.", "example", "[::1]"][..]),
            is_post in any::<bool>(),
            fields in prop::collection::vec((select(&["x-a", "cookie"][..]), select(&["1", "a=1", "b=2; a=1"][..])), 0..3),
        ) {
            let method = if is_post { Method::POST } else { Method::GET };
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(name, HeaderValue::from_static(value));
            }
            let mut version = Version::HTTP_10;
            if !host.is_empty() {
                headers.insert(HOST, HeaderValue::from_static(host));
                version = Version::HTTP_11;
            }
            let target = Target::parse(&method, &format!("{path}{query}").parse().unwrap(), version, &headers);
            let Ok(target) = target else { return Ok(()) };
            let request = RequestParts::new(&method, &target, &headers);
            let scan = routes.iter().position(|route| {
                CompiledRoute::new(route).matches(&request, &ComparedPath::new(&path))
            });
            let router = Router::new(&routes);
            prop_assert_eq!(router.first(&request, &router.compared(&path, true)), scan);
            let account = router.explain(&method, &target, &headers);
            let before = account.matched.unwrap_or(routes.len());
            prop_assert_eq!(account.passed_over.len() + account.others, before);
            prop_assert!(account.passed_over.iter().all(|(index, _)| *index < before));
        }
    }

    fn any_route() -> impl Strategy<Value = Route> {
        let paths = [
            "/",
            "/a",
            "/B",
            "/a/b",
            "/A/",
            "//",
            "/a//",
            "/*",
            "/a/*",
            "/a/b/*",
            "/{x}",
            "/A/{x}",
            "/{x}/b",
            "/{x}/{y}",
            "/{x}/",
            "/a/{x}/1",
            "~^/a",
            "~^/A/[a-c]+$",
            "~b",
            "~^/(?P<x>[^/]*)/b/?$",
            "~^/$",
            "~^/a/b/",
            "~(?i)B$",
        ];
        let hosts = [
            HostPattern::Exact("a.example".to_owned()),
            HostPattern::Exact("b.a.example".to_owned()),
            HostPattern::Exact("[::1]".to_owned()),
            HostPattern::Suffix(".example".to_owned()),
            HostPattern::Suffix(".a.example".to_owned()),
        ];
        (
            select(paths.to_vec()),
            select(&MATCHINGS[..]),
            // Half of all routes are for any host.
            prop::option::of(prop::collection::vec(select(hosts.to_vec()), 1..3)),
            0..12_u8,
        )
            .prop_map(|(path, matching, hosts, condition)| {
                let pair = || vec![("a".to_owned(), "1".to_owned())];
                let field = || vec![(HeaderName::from_static("x-a"), HeaderValue::from_static("1"))];
                Route {
                    matching,
                    hosts: hosts.unwrap_or_default(),
                    methods: if condition == 0 { vec![Method::POST] } else { Vec::new() },
                    headers: if condition == 1 { field() } else { Vec::new() },
                    query: if condition == 2 { pair() } else { Vec::new() },
                    cookies: if condition == 3 { pair() } else { Vec::new() },
                    ..route(path)
                }
            })
    }

    #[test]
    fn query_parameters_and_cookies_must_match() {
        let pair = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let routes = [
            Route { query: pair("debug", "a b"), ..route("/a") },
            Route { cookies: pair("beta", "yes"), ..route("/a") },
            Route { query: pair("flag", ""), ..route("/a") },
            route("/a"),
        ];
        for (uri, cookie, found) in [
            ("/a?debug=a+b", "", 0),
            ("/a?x=1&debug=1&d%65bug=a%20b", "beta=yes", 0),
            ("/a?debug=a", "", 3),
            ("/a?debug", "", 3),
            ("/a?Debug=a+b", "", 3),
            ("/a?flag", "", 2),
            ("/a?flag=", "", 2),
            ("/a?flag=1", "", 3),
            ("/a", "beta=yes", 1),
            ("/a", "x=1; beta=\"yes\"", 1),
            ("/a", "beta=no; beta=yes", 1),
            ("/a", "beta=yess", 3),
            ("/a", "Beta=yes", 3),
        ] {
            assert_eq!(
                find(&routes, &Method::GET, "h", uri, &[("cookie", cookie)]),
                Ok(found),
                "{uri} {cookie}"
            );
        }
    }

    #[test]
    fn expressions_match_as_the_route_compares() {
        let with = |path, matching| Route { matching, ..route(path) };
        let routes = [
            with("~^/v[0-9]+/Items$", STRICT),
            with("~^/v[0-9]+/items$", PathMatching::LOOSE),
            with("~^/files/", PathMatching::LOOSE),
            with("~\\.php$", STRICT),
            with("~^/fetch/https://", STRICT),
            with("~^/caf%C3%A9$", PathMatching::LOOSE),
        ];
        for (uri, found) in [
            ("/v1/Items", Ok(0)),
            ("/v12/ITEMS/", Ok(1)),
            ("/v1/items", Ok(1)),
            ("/%761/items", Ok(1)),
            ("/v1/items/2", Err(404)),
            ("/x/v1/items", Err(404)),
            ("/Files", Ok(2)),
            ("/files/a", Ok(2)),
            ("/filesx", Err(404)),
            ("/a/index.php", Ok(3)),
            ("/a/index.PHP", Err(404)),
            // Whatever else an origin may read there must lead to the same route.
            ("/a;/index.php", Ok(3)),
            ("/a/index.php;x", Err(404)),
            ("/v1%2Fitems", Err(404)),
            ("/v1//items", Err(404)),
            ("/files//a", Ok(2)),
            ("/fetch/https://x/y", Ok(4)),
            ("/CAF%c3%89/", Ok(5)),
        ] {
            assert_eq!(get(&routes, uri), found, "{uri}");
        }
        let routes = [with("~^/admin/", STRICT), route("/*")];
        for uri in ["/admin%2Fx", "//admin/x", "/admin;a/x", "/x\\admin"] {
            let found = get(&routes, uri);
            assert!(found == Err(400) || uri == "/x\\admin" && found == Ok(1), "{uri}: {found:?}");
        }
    }

    #[test]
    fn of_many_routes_an_explanation_names_few() {
        let mut routes: Vec<Route> = (0..1_000).map(|nth| route(&format!("/{nth}"))).collect();
        routes.insert(500, Route { methods: vec![Method::POST], ..route("/*") });
        routes.push(route("/*"));
        let headers = HeaderMap::new();
        let target =
            Target::parse(&Method::GET, &Uri::from_static("/x"), Version::HTTP_10, &headers).unwrap();
        let explained = Router::new(&routes).explain(&Method::GET, &target, &headers);
        assert_eq!(explained.matched, Some(1_001));
        assert_eq!((explained.passed_over, explained.others), (vec![(500, Mismatch::Method)], 1_000));
    }
}
