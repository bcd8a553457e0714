//! The routes in their order, and the first of them that a request matches.

use std::collections::HashMap;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header::ACCESS_CONTROL_REQUEST_METHOD};
use smallvec::SmallVec;

use super::{
    Host, Rejection, Target,
    interpretation::dot_segment_readings,
    path_rewrite::stripped_prefix,
    pattern::{ComparedPath, Pattern, PatternKind},
};
use crate::config::model::{
    DotSegments, HostPattern, PathCase, PathMatching, Route, TrailingSlash, fold_case, trim_slash,
};

/// Finds the route of a request. Routes with an exact path are looked up, the others scanned.
#[derive(Debug)]
pub struct Router {
    routes: Vec<CompiledRoute>,
    /// The routes of each exact path, by its loosest spelling, in order.
    exact: HashMap<String, SmallVec<[usize; 1]>, foldhash::fast::RandomState>,
    /// The other routes, in order.
    scanned: Vec<usize>,
    /// Whether a route is matched in any case.
    folds_case: bool,
}

impl Router {
    /// `routes` in the order in which they are tried.
    pub fn new(routes: &[Route]) -> Self {
        let mut router = Self {
            routes: routes.iter().map(CompiledRoute::new).collect(),
            exact: HashMap::default(),
            scanned: Vec::new(),
            folds_case: routes.iter().any(|route| route.matching.case == PathCase::Insensitive),
        };
        for (index, route) in router.routes.iter().enumerate() {
            match &route.path.kind {
                PatternKind::Exact(path) => {
                    let folded = if router.folds_case { fold_case(path) } else { path.into() };
                    router.exact.entry(trim_slash(&folded).to_owned()).or_default().push(index);
                }
                PatternKind::Prefix(_) | PatternKind::Template(_) => router.scanned.push(index),
            }
        }
        router
    }

    /// The index of the first route whose conditions the request meets.
    ///
    /// # Errors
    /// 404 if there is none; 400 if an origin that interprets the path in another way would expect another route, or none, or
    /// if the route refuses dot segments.
    pub fn find(&self, method: &Method, target: &Target, headers: &HeaderMap) -> Result<usize, Rejection> {
        let request = RequestParts { method, host: target.host().map(Host::name), headers };
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

    /// The first route that the request matches by its literal path, and why each route before it does not match: what
    /// [`Router::find`] decides, with reasons.
    pub fn explain(&self, method: &Method, target: &Target, headers: &HeaderMap) -> RouteExplanation {
        let request = RequestParts { method, host: target.host().map(Host::name), headers };
        let path = self.compared(target.literal_path(), true);
        let matched = self.first(&request, &path);
        let before = self.routes.iter().enumerate().take(matched.unwrap_or(self.routes.len()));
        let passed_over =
            before.filter_map(|(index, route)| Some((index, route.mismatch(&request, &path)?))).collect();
        RouteExplanation { matched, passed_over }
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
        let exact = self.exact.get(trim_slash(&path.folded)).map_or(&[][..], SmallVec::as_slice);
        let exact = exact.iter().copied().find(|&index| self.routes[index].matches(request, path));
        let before =
            self.scanned.iter().copied().take_while(|&index| exact.is_none_or(|exact| index < exact));
        before.into_iter().find(|&index| self.routes[index].matches(request, path)).or(exact)
    }
}

const AMBIGUOUS: Rejection =
    Rejection::bad_request("The path is ambiguous: read in another way, it matches another route.");

/// Why a request has its route, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteExplanation {
    /// The first route that matches.
    pub matched: Option<usize>,
    /// The routes before it, and why each does not match.
    pub passed_over: Vec<(usize, Mismatch)>,
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
}

/// The parts of a request that conditions other than the path look at.
struct RequestParts<'a> {
    method: &'a Method,
    host: Option<&'a str>,
    headers: &'a HeaderMap,
}

/// The conditions of a route.
#[derive(Debug)]
struct CompiledRoute {
    path: Pattern,
    hosts: Vec<HostPattern>,
    methods: Vec<Method>,
    headers: Vec<(HeaderName, HeaderValue)>,
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
        self.headers.iter().position(|field| !is_sent(field)).map(Mismatch::Header)
    }

    /// Whether this is a CORS preflight for one of the route's methods.
    fn answers_preflight(&self, request: &RequestParts<'_>) -> bool {
        let requested = || request.headers.get(ACCESS_CONTROL_REQUEST_METHOD);
        self.answers_preflights
            && *request.method == Method::OPTIONS
            && requested().is_some_and(|requested| {
                self.methods.iter().any(|method| method.as_str().as_bytes() == requested.as_bytes())
            })
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
        Access, EarlyHints, MethodOverride, PathPattern, Retry, RouteAction, Segment, Timeouts, Trailers,
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
            patterns in prop::collection::vec(
                (
                    select(&["/", "/a", "/B", "/a/b", "/A/", "/*", "/a/*", "/{x}", "/A/{x}", "/{x}/b"][..]),
                    any::<bool>(),
                    select(&MATCHINGS[..]),
                ),
                0..8,
            ),
            path in "/[aAb]?(/[abB]?)?",
            is_post in any::<bool>(),
        ) {
            let routes: Vec<_> = patterns
                .iter()
                .map(|(path, only_post, matching)| Route {
                    methods: if *only_post { vec![Method::POST] } else { Vec::new() },
                    matching: *matching,
                    ..route(path)
                })
                .collect();
            let method = if is_post { Method::POST } else { Method::GET };
            let headers = HeaderMap::new();
            let request = RequestParts { method: &method, host: None, headers: &headers };
            let scan = routes.iter().position(|route| {
                CompiledRoute::new(route).matches(&request, &ComparedPath::new(&path))
            });
            let router = Router::new(&routes);
            prop_assert_eq!(router.first(&request, &router.compared(&path, true)), scan);
            let uri = path.parse().unwrap();
            if let Ok(target) = Target::parse(&method, &uri, Version::HTTP_10, &headers) {
                let account = Router::new(&routes).explain(&method, &target, &headers);
                let passed_over: Vec<usize> = account.passed_over.iter().map(|(index, _)| *index).collect();
                prop_assert_eq!(&passed_over, &(0..account.matched.unwrap_or(routes.len())).collect::<Vec<_>>());
            }
        }
    }
}
