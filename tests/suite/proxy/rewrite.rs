//! `rewrite`: the path that the upstream gets instead of the client's.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Client, Config, Origin, Tollgate, by_http2, eventually, get, request};

/// A proxy with these routes, each to one origin, and with these settings at the top level.
fn start(origin: &Origin, routes: &str, settings: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "
upstreams: {{ a: {{ endpoints: [\"http://{}\"] }} }}
routes: [{routes}]
access_log: {{ format: json, to: stdout }}
{settings}
",
        origin.address
    )))
}

/// The target of the last request that the origin saw.
fn target(origin: &Origin) -> String {
    origin.heads().last().map(|head| head.split(' ').nth(1).unwrap().to_owned()).unwrap_or_default()
}

/// Sends each target by HTTP/1.1 and by HTTP/2, and compares what the origin gets. `None`: nothing, and the client gets 400,
/// or 404 where no route matches.
fn check(origin: &Origin, tollgate: &Tollgate, table: &[(&str, Option<&str>)]) {
    let seen = |asked: &str, sent: Option<&str>, status: u16, requests: usize| match sent {
        Some(sent) => assert_eq!((status, target(origin).as_str()), (200, sent), "{asked}"),
        None => {
            assert!(matches!(status, 400 | 404), "{asked}: {status}");
            assert_eq!(origin.heads().len(), requests, "{asked} was sent as {}", target(origin));
        }
    };
    for (asked, sent) in table {
        let requests = origin.heads().len();
        let reply = get(tollgate.address, asked, &[]);
        seen(asked, *sent, reply.status, requests);
    }
    by_http2(tollgate.address, async |mut client| {
        for (asked, sent) in table {
            let requests = origin.heads().len();
            let reply = client.get(asked, &[]).await.unwrap();
            seen(asked, *sent, reply.status(), requests);
        }
    });
}

#[test]
fn a_prefix_is_stripped_from_the_path_as_it_was_sent() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "{ path: /api/*, upstream: a, rewrite: { strip_prefix: /api } }", "");
    check(
        &origin,
        &tollgate,
        &[
            ("/api/users", Some("/users")),
            ("/api/users?a=/api/b&c", Some("/users?a=/api/b&c")),
            ("/api?a=1", Some("/?a=1")),
            ("/api", Some("/")),
            ("/api/", Some("/")),
            ("/api/?", Some("/?")),
            ("/API/Users", Some("/Users")),
            ("/%61pi/x", Some("/x")),
            ("/%61%70%69", Some("/")),
            ("/api/a%2Fb/%7Ec/%C3%A9", Some("/a%2Fb/%7Ec/%C3%A9")),
            ("/api/api/x", Some("/api/x")),
            ("/api/x//y/", Some("/x//y/")),
            // A target that begins with two slashes is read as a host by some.
            ("/api//evil.example/x", Some("/evil.example/x")),
            ("/api///x", Some("/x")),
            ("/api/\\evil.example", Some("/evil.example")),
            ("/api/%2Fx", Some("/%2Fx")),
            ("/api/a;b=c/d", Some("/a;b=c/d")),
            ("/api/../api/x", Some("/x")),
            ("/api/./%2e/x", Some("/x")),
            ("/api/..;/x", None),
            ("/api/..%2Fx", None),
            ("/api/..\\x", None),
        ],
    );
}

#[test]
fn a_path_is_set_with_what_the_route_captured() {
    let origin = Origin::ok();
    let routes = "{ path: '/users/{id}/orders/{order}', upstream: a, rewrite: { path: '/v2/{order}/of/{id}' } }, \
                  { path: /old/*, upstream: a, rewrite: { path: '/new/{rest}' } }, \
                  { path: /one, upstream: a, rewrite: { path: /two } }, \
                  { path: /glued/*, upstream: a, rewrite: { path: '/{rest}' } }, \
                  { path: '/dots/{a}/{b}', upstream: a, rewrite: { path: '/x/{a}{b}' } }, \
                  { path: '/tail/*', upstream: a, rewrite: { path: '/x/.{rest}' } }, \
                  { path: '/host/*', upstream: a, rewrite: { path: '/{host}/{client_address}' } }";
    let tollgate = start(&origin, routes, "");
    check(
        &origin,
        &tollgate,
        &[
            ("/users/7/orders/x", Some("/v2/x/of/7")),
            ("/USERS/7/orders/x/", Some("/v2/x/of/7")),
            ("/users/a%20b/orders/%3Fq%23?k=v", Some("/v2/%3Fq%23/of/a%20b?k=v")),
            ("/users/%7e/orders/%0", None),
            ("/old/a/b%2Fc/?d", Some("/new/a/b%2Fc/?d")),
            ("/old/", Some("/new/")),
            ("/old", Some("/new/")),
            ("/o%6Cd/x", Some("/new/x")),
            ("/one", Some("/two")),
            ("/one/?q=1", Some("/two?q=1")),
            ("/glued//evil.example", Some("/evil.example")),
            ("/glued/", Some("/")),
            ("/dots/a/.b", Some("/x/a.b")),
            ("/dots/.a/.b", Some("/x/.a.b")),
            ("/dots/..a/b", Some("/x/..ab")),
            // What is put together must not become a dot segment.
            ("/tail/", None),
            ("/tail/a", Some("/x/.a")),
            ("/tail/.b", Some("/x/..b")),
            ("/tail/.;/b", None),
        ],
    );
    let reply = get(tollgate.address, "/host/x", &[("x-forwarded-for", "1.2.3.4")]);
    assert_eq!(reply.status, 200);
    assert!(target(&origin).ends_with("/127.0.0.1"), "{}", target(&origin));
}

#[test]
fn dot_segments_are_resolved_even_where_they_are_passed_on() {
    let origin = Origin::ok();
    let routes = "{ path: /api/*, upstream: a, rewrite: { strip_prefix: /api } }";
    let tollgate = start(&origin, routes, "paths: pass");
    check(
        &origin,
        &tollgate,
        &[
            ("/api/x/../y", Some("/y")),
            ("/api/x/%2e%2E/y", Some("/y")),
            ("/api/../x", None),
            ("/api/./x", Some("/x")),
        ],
    );
}

#[test]
fn a_path_without_the_prefix_goes_on_as_it_is() {
    let origin = Origin::ok();
    let tollgate = start(&origin, "{ path: /*, upstream: a, rewrite: { strip_prefix: /a/b } }", "");
    check(
        &origin,
        &tollgate,
        &[
            ("/a/b/c", Some("/c")),
            ("/a/b", Some("/")),
            ("/a/bc", Some("/a/bc")),
            ("/a", Some("/a")),
            ("/", Some("/")),
            // It does not begin with two segments, but an origin may read it so.
            ("/a%2Fb/c", Some("/a%2Fb/c")),
        ],
    );
}

#[test]
fn the_upstream_is_told_of_the_prefix_and_the_log_keeps_the_clients_path() {
    let origin = Origin::ok();
    let routes = "{ path: /api/*, upstream: a, rewrite: { strip_prefix: /api } }";
    let tollgate = start(&origin, routes, "");
    get(tollgate.address, "/%61pi/x?q", &[("X-Forwarded-Prefix", "/evil"), ("x_forwarded_prefix", "/evil")]);
    let head = origin.heads().pop().unwrap().to_lowercase();
    assert!(head.ends_with("\r\nx-forwarded-prefix: /api") && !head.contains("evil"), "{head}");
    eventually("it is logged", || tollgate.stdout().iter().any(|line| line.contains("\"/%61pi/x?q\"")));

    let origin = Origin::ok();
    let tollgate = start(&origin, routes, "trusted_proxies: [127.0.0.1]");
    get(tollgate.address, "/api/x", &[("x-forwarded-prefix", "/outer")]);
    let head = origin.heads().pop().unwrap().to_lowercase();
    assert!(head.contains("x-forwarded-prefix: /outer, /api"), "{head}");

    for settings in ["forwarded: off", "forwarded: forwarded"] {
        let origin = Origin::ok();
        let tollgate = start(&origin, routes, settings);
        get(tollgate.address, "/api/x", &[]);
        let head = origin.heads().pop().unwrap().to_lowercase();
        assert!(!head.contains("x-forwarded-prefix"), "{head}");
    }
}

#[test]
fn policies_count_the_clients_path() {
    let origin = Origin::ok();
    let settings = "policies: { per-path: { algorithm: sliding_log, key: path, limit: 1/1h } }";
    let routes = "{ path: '/a/{id}', upstream: a, rewrite: { path: /same }, policies: [per-path] }";
    let tollgate = start(&origin, routes, settings);
    let mut client = Client::connect(tollgate.address);
    let statuses = ["/a/1", "/a/2", "/a/1"].map(|path| client.request("GET", path, &[], b"").status);
    assert_eq!(statuses, [200, 200, 429]);
}

#[test]
fn a_reload_changes_the_path() {
    let origin = Origin::ok();
    let yaml = |to: &str| {
        format!(
            "upstreams: {{ a: {{ endpoints: [\"http://{}\"] }} }}\nroutes: [{{ path: /*, upstream: a, rewrite: {{ path: '{to}' }} }}]\n",
            origin.address
        )
    };
    let tollgate = Tollgate::start(Config::yaml(yaml("/one/{rest}")));
    get(tollgate.address, "/x", &[]);
    assert_eq!(target(&origin), "/one/x");
    fs::write(tollgate.directory().join("proxy.yaml"), yaml("/two/{rest}")).unwrap();
    tollgate.signal("HUP");
    eventually("the new path is sent", || {
        get(tollgate.address, "/x", &[]);
        target(&origin) == "/two/x"
    });
}

#[test]
fn rewrites_and_header_edits_are_explained() {
    let origin = Origin::ok();
    let routes = "{ path: '/users/{id}', upstream: a, rewrite: { path: '/v2/{id}' }, \
                  request_headers: { remove: ['x-in-*'], set: { x-host: '{host}', authorization: 'Bearer ${HOME}' } }, \
                  response_headers: { add: { set-cookie: a=b } } }, \
                  { path: '/dots/*', upstream: a, rewrite: { path: '/.{rest}' } }, \
                  { path: '/*', upstream: a }";
    let tollgate = start(&origin, routes, "");
    let explain = |path: &str| {
        let asked = json!({ "url": format!("http://b.example{path}") });
        let fields = [("content-type", "application/json")];
        request(tollgate.admin, "POST", "/v1/explain", &fields, asked.to_string().as_bytes()).json()
    };
    let users = explain("/Users/7%3F?a");
    assert_eq!((&users["verdict"], &users["rewritten_path"]), (&json!("allowed"), &json!("/v2/7%3F?a")));
    let change = |change, name, value| json!({ "change": change, "name": name, "value": value });
    assert_eq!(
        users["request_headers"],
        json!([
            change("remove", "x-in-*", Value::Null),
            change("set", "x-host", json!("b.example")),
            change("set", "authorization", json!("***")),
        ])
    );
    assert_eq!(users["response_headers"], json!([change("add", "set-cookie", json!("***"))]));
    let dots = explain("/dots/");
    assert_eq!((&dots["verdict"], &dots["status"]), (&json!("refused"), &json!(400)));
    let other = explain("/other");
    assert_eq!((&other["rewritten_path"], &other["request_headers"]), (&Value::Null, &json!([])));
    let printed = tollgate.command(&["explain", "http://b.example/users/7"]).stdout;
    assert!(printed.contains("path      /v2/7, rewritten"), "{printed}");
    assert!(printed.contains("response  add set-cookie: ***"), "{printed}");
}

/// Some services read `%2e` as a dot.
#[test]
fn no_encoded_dot_segments_are_put_together() {
    let origin = Origin::ok();
    let routes = r#"
        { path: '~^/glue/(?P<x>[^/]+)-(?P<y>[^/]+)$', upstream: a, rewrite: { path: "/b/{x}{y}" } },
        { path: "/dot/{x}", upstream: a, rewrite: { path: "/b/%2E{x}/c" } },
        { path: /rest/*, upstream: a, rewrite: { path: "/b/.{rest}" } },
        { path: '~^/half/(?P<x>.*)e$', upstream: a, rewrite: { path: "/b/{x}e" } },
    "#;
    let tollgate = start(&origin, routes, "match: { case: sensitive, trailing_slash: exact }");
    check(
        &origin,
        &tollgate,
        &[
            ("/glue/a-.b", Some("/b/a.b")),
            ("/glue/.-.", None),
            ("/glue/%2e-%2E", None),
            ("/glue/%2e-.", None),
            ("/glue/.-.;x", None),
            ("/glue/.-.%2Fx", None),
            ("/glue/%252e-%252e", Some("/b/%252e%252e")),
            ("/dot/x", Some("/b/%2Ex/c")),
            ("/dot/%2e;x", None),
            ("/rest/", None),
            ("/rest/./x", Some("/b/.x")),
            ("/rest/.%2Fx", None),
            ("/rest/x", Some("/b/.x")),
            ("/half/%2e%2e", None),
            ("/half/x%2ee", Some("/b/x%2ee")),
        ],
    );
}

/// `/users/{user}/orders` without a user could be read as that of all.
#[test]
fn a_path_that_needs_what_a_request_lacks_is_not_sent() {
    let origin = Origin::ok();
    let routes = "{ path: /mine/*, upstream: a, rewrite: { path: \"/users/{user}/{rest}\" } }";
    let settings = "user: [{ header: x-user }]\ntrusted_proxies: [127.0.0.1]";
    let tollgate = start(&origin, routes, settings);
    assert_eq!(get(tollgate.address, "/mine/orders", &[]).status, 400);
    assert_eq!(origin.connections(), 0);
    assert_eq!(get(tollgate.address, "/mine/orders", &[("x-user", "acme")]).status, 200);
    assert_eq!(target(&origin), "/users/acme/orders");
}

/// Each label of a host is looked up: one of many bytes would be the work of many requests.
#[test]
fn a_host_is_no_longer_than_names_are() {
    let origin = Origin::ok();
    let tollgate = start(
        &origin,
        "{ hosts: [\"*.example.com\"], path: /*, upstream: a }, { path: /*, upstream: a }",
        "",
    );
    let longest = "a.".repeat(126) + "a";
    assert_eq!(get(tollgate.address, "/", &[("host", &longest)]).status, 200);
    for long in ["a.".repeat(127) + "a", ".".repeat(30_000)] {
        assert_eq!(get(tollgate.address, "/", &[("host", &long)]).status, 400);
    }
}
