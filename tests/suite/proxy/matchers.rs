//! What routes match by besides plain paths: regular expressions, query parameters, cookies.

use serde_json::json;

use crate::harness::{Config, Origin, Tollgate, becomes, by_http2, get, request};

const ROUTES: &str = r#"
match: { case: sensitive, trailing_slash: exact }
routes:
  - { name: debug, path: /*, query: { debug: "1" }, reply: { status: 200, body: debug } }
  - { name: beta, path: /*, cookie: { beta: "yes" }, reply: { status: 200, body: beta } }
  - { path: '~^/(?P<year>\d{4})/(?P<page>[^/]+)$', upstream: origin, rewrite: { path: "/{page}/of/{year}" } }
  - { name: items, path: '~^/v\d+/items', reply: { status: 200, body: items } }
  - { name: images, path: '~*\.(gif|png)$', reply: { status: 200, body: images } }
  - { name: all, path: /*, upstream: origin }
"#;

/// Every route but the last answers with its name.
fn start(origin: &Origin) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "upstreams:\n  origin: {{ endpoints: [\"http://{}\"] }}\n{ROUTES}",
        origin.address
    )))
}

#[test]
fn requests_take_the_route_that_they_match() {
    let origin = Origin::ok();
    let tollgate = start(&origin);
    for (path, cookie, route) in [
        ("/", "", "all"),
        ("/?debug=1", "", "debug"),
        ("/a/b?x&debug=%31", "", "debug"),
        ("/?debug=11", "", "all"),
        ("/", "beta=yes", "beta"),
        ("/", "a=b; beta=\"yes\"; c=d", "beta"),
        ("/", "beta=no", "all"),
        ("/v1/items", "", "items"),
        ("/v23/items/7", "", "items"),
        ("/%761/items", "", "items"),
        ("/x/v1/items", "", "all"),
        ("/V1/items", "", "all"),
        ("/a/b.PNG", "", "images"),
        ("/a/b.png/", "", "all"),
    ] {
        let asked = json!({ "url": path, "headers": { "host": "a", "cookie": cookie } }).to_string();
        let json = [("content-type", "application/json")];
        let explained = request(tollgate.admin, "POST", "/v1/explain", &json, asked.as_bytes()).json();
        assert_eq!(explained["route"]["name"], route, "{path} {cookie}: {explained}");
        let answer = if route == "all" { "ok" } else { route };
        assert_eq!(get(tollgate.address, path, &[("cookie", cookie)]).text(), answer, "{path} {cookie}");
    }
    // No other reading of the path leads around a route.
    for path in ["/v1%2Fitems", "//v1/items", "/v1/;x/items", "/v1\\items", "/a/b.png;x"] {
        assert_eq!(get(tollgate.address, path, &[]).status, 400, "{path}");
    }
}

#[test]
fn named_groups_fill_in_other_paths() {
    let origin = Origin::ok();
    let tollgate = start(&origin);
    // As they were sent: `%3B` must not become a separator of parameters, nor `%2e` a dot.
    for (path, sent) in [
        ("/2024/news?x=1", "/news/of/2024?x=1"),
        ("/%32024/new%73", "/new%73/of/%32024"),
        ("/2024/news%3Bx", "/news%3Bx/of/2024"),
        ("/2024/%C3%A4%25", "/%C3%A4%25/of/2024"),
    ] {
        assert_eq!(get(tollgate.address, path, &[]).text(), "ok");
        let heads = origin.heads();
        assert!(heads.last().unwrap().starts_with(&format!("GET {sent} HTTP/1.1")), "{path}: {heads:?}");
    }
}

#[test]
fn a_cookie_of_its_own_field_matches_by_http2() {
    let origin = Origin::ok();
    let tollgate = start(&origin);
    by_http2(tollgate.address, async |mut client| {
        let crumbs = [("cookie", "a=b"), ("cookie", "beta=yes")];
        assert_eq!(client.get("/", &crumbs).await.unwrap().text(), "beta");
        assert_eq!(client.get("/", &crumbs[..1]).await.unwrap().text(), "ok");
    });
}

/// A route is refused as unreachable only if an earlier one takes all of its requests.
#[test]
fn routes_that_some_request_reaches_are_accepted() {
    let own = |name: &str, route: &str| {
        format!("  - {{ name: {name}, {route}, reply: {{ status: 200, body: {name} }} }}\n")
    };
    let sensitive = "match: { case: sensitive }";
    let exact = "match: { trailing_slash: exact }";
    for (earlier, later, path) in [
        (format!("path: /Files/*, {sensitive}"), format!("path: '~*^/Files/a', {sensitive}"), "/files/a"),
        (format!("path: '~*^/a$', {sensitive}"), "path: '~^/a'".to_owned(), "/ab"),
        (format!("path: '~^/a$', {exact}"), "path: '~^/a$'".to_owned(), "/a/"),
        (format!("path: /files/*, {exact}"), "path: '~^/files/'".to_owned(), "/files"),
        (format!("path: '~^/(ab|AB|Ab)$', {sensitive}"), "path: /Ab".to_owned(), "/aB"),
        ("path: '~^/[^b]$'".to_owned(), format!("path: '~^/[^b]$', {sensitive}"), "/B"),
    ] {
        let tollgate = Tollgate::start(Config::yaml(format!(
            "routes:\n{}{}",
            own("earlier", &earlier),
            own("later", &later)
        )));
        assert_eq!(get(tollgate.address, path, &[]).text(), "later", "{earlier}; {later}");
    }
    // Preflights for POST are OPTIONS, which only a route with `cors` matches.
    let tollgate = Tollgate::start(Config::yaml(format!(
        "routes:\n{}{}",
        own("earlier", "path: /a, methods: [POST]"),
        own("later", "path: /a, methods: [POST], cors: { origins: [\"https://a.example\"] }")
    )));
    let fields = [("origin", "https://a.example"), ("access-control-request-method", "POST")];
    assert_eq!(request(tollgate.address, "OPTIONS", "/a", &fields, b"").status, 204);
}

#[test]
fn long_paths_are_not_searched() {
    let origin = Origin::ok();
    let tollgate = start(&origin);
    let path = |length: usize| format!("/{}", "a".repeat(length - 1));
    assert_eq!(get(tollgate.address, &path(4_096), &[]).text(), "ok");
    assert_eq!(get(tollgate.address, &path(4_097), &[]).status, 414);
    becomes(1.0, || tollgate.metric("tollgate_requests_refused_total{reason=\"uri_too_long\"}"));
}

#[test]
fn explain_says_why_a_route_does_not_match() {
    let origin = Origin::ok();
    let tollgate = start(&origin);
    let ended = tollgate.command(&["explain", "/a.txt", "-H", "host: a", "-H", "cookie: beta=no"]);
    for line in [
        "not debug: the query parameter debug is not 1",
        "not beta: the cookie beta is not yes",
        r"not items: the path does not match ~^/v\d+/items",
        r"not images: the path does not match ~*\.(gif|png)$",
    ] {
        assert!(ended.stdout.contains(line), "{line}: {ended:?}");
    }
}

#[test]
fn many_routes_are_read_and_explained_in_few_words() {
    let origin = Origin::ok();
    let routes: String = (0..10_000)
        .map(|nth| match nth % 100 {
            0 => format!("  - {{ path: '~^/r{nth}/[a-z]+$', upstream: origin }}\n"),
            1..40 => format!("  - {{ path: /exact/{nth}, upstream: origin }}\n"),
            40..70 => format!("  - {{ path: /prefix/{nth}/*, upstream: origin }}\n"),
            70..90 => format!("  - {{ path: \"/users/{{id}}/{nth}\", upstream: origin }}\n"),
            _ => format!("  - {{ path: /*, hosts: [h{nth}.example.org], upstream: origin }}\n"),
        })
        .collect();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "upstreams:\n  origin: {{ endpoints: [\"http://{}\"] }}\nroutes:\n{routes}",
        origin.address
    )));
    for path in ["/r9900/abc", "/exact/9939", "/prefix/9969/x", "/users/7/9989"] {
        assert_eq!(get(tollgate.address, path, &[]).status, 200, "{path}");
    }
    assert_eq!(get(tollgate.address, "/x", &[("host", "H9999.example.org")]).status, 200);
    assert_eq!(get(tollgate.address, "/r9900/1", &[]).status, 404);
    let asked = json!({ "url": "/exact/9939", "headers": { "host": "a" } }).to_string();
    let json = [("content-type", "application/json")];
    let explained = request(tollgate.admin, "POST", "/v1/explain", &json, asked.as_bytes());
    let count = explained.json()["route"]["passed_over"].as_array().unwrap().len();
    assert!(count <= 20 && explained.text().len() < 10_000, "{}", explained.text());
    assert_eq!(explained.json()["route"]["others"], 9_939 - count);
    let start = std::time::Instant::now();
    assert_eq!(tollgate.admin("POST", "/v1/reload").status, 200);
    eprintln!("10,000 routes were read again in {:?}", start.elapsed());
}

/// There are services that take `post` for POST.
#[test]
fn methods_in_other_letters_go_around_no_policy() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "upstreams: {{ api: {{ endpoints: [\"http://{}\"] }} }}
policies:
  login: {{ algorithm: fixed_window, key: ip, limit: 2/1d }}
  each: {{ algorithm: fixed_window, key: ip+method, limit: 2/1d }}
routes:
  - {{ path: /login, methods: [POST], upstream: api, policies: [login] }}
  - {{ path: /each, upstream: api, policies: [each] }}
  - {{ path: /*, upstream: api }}
",
        origin.address
    )));
    let status = |method, path| request(tollgate.address, method, path, &[], b"").status;
    assert_eq!(["POST", "post", "Post", "POST"].map(|method| status(method, "/login")), [200, 200, 429, 429]);
    assert_eq!(["GET", "get", "Get", "head"].map(|method| status(method, "/each")), [200, 200, 429, 429]);
    assert_eq!(status("get", "/login"), 200, "of another method");
    assert!(origin.heads()[1].starts_with("post /login"), "it is passed on as it came");
}
