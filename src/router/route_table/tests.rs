use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version, header::HOST};
use proptest::{prelude::*, sample::select};

use super::*;
use crate::config::model::{HostPattern, PathPattern, PathRegex, Segment};

const STRICT: PathMatching = PathMatching { case: PathCase::Sensitive, trailing_slash: TrailingSlash::Exact };
const MATCHINGS: [PathMatching; 4] = [
    STRICT,
    PathMatching { case: PathCase::Insensitive, ..STRICT },
    PathMatching { trailing_slash: TrailingSlash::Either, ..STRICT },
    PathMatching::LOOSE,
];

fn route(path: &str) -> Route {
    let pattern = match path.strip_suffix('*') {
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
    };
    Route { matching: STRICT, ..Route::new(path, pattern) }
}

fn on(host: HostPattern, route: Route) -> Route {
    Route { hosts: vec![host], ..route }
}

/// The parts of a request on the first listener.
fn parts<'a>(method: &'a Method, target: &'a Target, headers: &'a HeaderMap) -> RequestParts<'a> {
    RequestParts { method, target, headers, listener: 0, is_question: false, descriptor: None }
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
    for (uri, found) in [("/a/b", 0), ("/a/b/c", 2), ("/a/", 2), ("/a", 4), ("/c", 3), ("/c/", 4), ("/C", 4)]
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
    // A request without host does not match a route with hosts.
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
        let target = Target::parse(&Method::GET, &uri.parse().unwrap(), Version::HTTP_10, &HeaderMap::new());
        let IgnoredDifferences { case, trailing_slash } =
            IgnoredDifferences::new(&routes[1], &target.unwrap());
        (case, trailing_slash)
    };
    assert_eq!(ignored("/api/Login"), (false, false));
    assert_eq!(ignored("/api/login"), (true, false));
    assert_eq!(ignored("/API/login/"), (true, true));
}

#[test]
fn two_slashes_at_the_end_are_found_where_one_makes_no_difference() {
    let loose = |path| Route { matching: PathMatching::LOOSE, ..route(path) };
    for path in ["/a//", "/{x}//"] {
        for (uri, found) in [("/a//", Ok(0)), ("/a", Err(404))] {
            assert_eq!(get(&[loose(path)], uri), found, "{path} {uri}");
        }
    }
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
    // With all liberties this is /p/q/r, literally it is /p%2Fq//r: both match the last route. An origin that merges
    // slashes without decoding them reads /p%2Fq/r, which matches the first route.
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
        let listeners = listeners(["a", "b", "a.and.b"]);
        let router = Router::with_listeners(&routes, &listeners);
        for listener in 0..listeners.len() {
            let request = RequestParts { listener, ..parts(&method, &target, &headers) };
            let scan = routes.iter().position(|route| {
                CompiledRoute::new(route, &listeners).matches(&request, &ComparedPath::new(&path))
            });
            prop_assert_eq!(router.first(&request, &router.compared(&path, true), 1).ok().flatten(), scan);
            let account = router.explain(&request);
            let before = account.matched.unwrap_or(routes.len());
            prop_assert_eq!(account.passed_over.len() + account.others, before);
            prop_assert!(account.passed_over.iter().all(|(index, _)| *index < before));
            // A listener of the same group has the same route.
            let same = router.distinct_listeners().iter().map(|&listener| RequestParts { listener, ..request });
            let same = same.map(|request| router.find_on(&request)).any(|found| found == router.find_on(&request));
            prop_assert!(same);
        }
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
        "/{x}//",
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
        // Half of the routes are for any host.
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
                listeners: match condition {
                    4 => vec!["a".to_owned()],
                    5 => vec!["b".to_owned(), "closed".to_owned()],
                    _ => Vec::new(),
                },
                ..route(path)
            }
        })
}

fn listeners<const N: usize>(names: [&str; N]) -> [Listener; N] {
    names.map(|name| Listener {
        // An empty one is no name.
        name: Some(name.to_owned()).filter(|name| !name.is_empty()),
        ..Listener::plain(([127, 0, 0, 1], 8080).into())
    })
}

#[test]
fn a_route_for_listeners_takes_only_their_requests() {
    let on = |names: &[&str], path: &str| Route {
        listeners: names.iter().map(|name| (*name).to_owned()).collect(),
        ..route(path)
    };
    let routes = [
        on(&["internal"], "/admin/*"),
        on(&["internal", "public"], "/a"),
        on(&["closed"], "/a"),
        on(&["public"], "~^/[ab]$"),
        route("/a"),
    ];
    let listeners = listeners(["public", "", "internal", "other"]);
    let router = Router::with_listeners(&routes, &listeners);
    let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("h"))]);
    let find = |listener: usize, uri: &str| {
        let target = Target::parse(&Method::GET, &uri.parse().unwrap(), Version::HTTP_11, &headers).unwrap();
        let request = RequestParts { listener, ..parts(&Method::GET, &target, &headers) };
        let explained = router.explain(&request);
        let passed_over = explained.passed_over.into_iter().filter(|(_, why)| *why == Mismatch::Listener);
        let passed_over: Vec<usize> = passed_over.map(|(route, _)| route).collect();
        (router.find_on(&request).map_err(|rejection| rejection.status.as_u16()), passed_over)
    };
    assert_eq!(find(0, "/admin/x"), (Err(404), vec![0]));
    assert_eq!(find(2, "/admin/x"), (Ok(0), vec![]));
    assert_eq!(find(0, "/a"), (Ok(1), vec![]));
    assert_eq!(find(2, "/a"), (Ok(1), vec![]));
    assert_eq!(find(1, "/a"), (Ok(4), vec![1, 2, 3]));
    assert_eq!(find(0, "/b"), (Ok(3), vec![]));
    assert_eq!(find(2, "/b"), (Err(404), vec![3]));
    // Each reading of an ambiguous path is for the same listener.
    assert_eq!(find(0, "/admin%2Fx"), (Err(404), vec![]));
    assert_eq!(find(2, "/admin%2Fx"), (Err(404), vec![]));
    // The listeners without a route of their own are alike.
    assert_eq!(router.distinct_listeners(), [0, 1, 2]);
    assert_eq!(Router::with_listeners(&routes[4..], &listeners).distinct_listeners(), [0]);
    assert_eq!(Router::new(&routes).distinct_listeners(), [0]);
}

#[test]
fn an_ambiguous_path_is_read_for_its_listener_alone() {
    let internal = Route { listeners: vec!["internal".to_owned()], ..route("/admin/*") };
    let routes = [internal, route("/*")];
    let router = Router::with_listeners(&routes, &listeners(["public", "internal"]));
    let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("h"))]);
    for uri in ["/admin%2Fx", "//admin/x", "/x/..%2Fadmin/x"] {
        let target = Target::parse(&Method::GET, &uri.parse().unwrap(), Version::HTTP_11, &headers);
        let Ok(target) = target else { continue };
        let find = |listener| {
            let request = RequestParts { listener, ..parts(&Method::GET, &target, &headers) };
            router.find_on(&request).map_err(|rejection| rejection.status.as_u16())
        };
        assert_eq!((find(0), find(1)), (Ok(1), Err(400)), "{uri}");
    }
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
        assert_eq!(find(&routes, &Method::GET, "h", uri, &[("cookie", cookie)]), Ok(found), "{uri} {cookie}");
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
        // Every other interpretation must lead to the same route.
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
    let longest = format!("/files/{}", "a".repeat(MAX_SEARCHED_PATH - 7));
    assert_eq!([get(&routes, &longest), get(&routes, &format!("{longest}a"))], [Ok(2), Err(414)]);
    // Each additional reading of the path would be searched, too.
    let half = format!("/files//{}", "a".repeat(MAX_SEARCHED_PATH / 2 - 8));
    assert_eq!([get(&routes, &half), get(&routes, &format!("{half}a"))], [Ok(2), Err(414)]);
    for routes in [[route("/*"), with("~^/a", STRICT)], [route("/files/*"), route("/*")]] {
        assert_eq!(get(&routes, &format!("{longest}a")), Ok(0), "no expression is searched");
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
    let target = Target::parse(&Method::GET, &Uri::from_static("/x"), Version::HTTP_10, &headers).unwrap();
    let explained = Router::new(&routes).explain(&parts(&Method::GET, &target, &headers));
    assert_eq!(explained.matched, Some(1_001));
    assert_eq!((explained.passed_over, explained.others), (vec![(500, Mismatch::Method)], 1_000));
}
