//! `reply` of a route: requests that Tollgate answers itself, by both versions of HTTP.

use serde_json::json;

use crate::harness::{Client, Config, Origin, Reply, Tollgate, becomes, by_http2, eventually, request};

/// Routes that reply, before one to `origin`; `rest` is YAML for the top level.
fn replying(origin: &Origin, routes: &str, rest: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "upstreams:\n  origin: {{ endpoints: [\"http://{}\"] }}\nroutes:\n{routes}\
         \x20 - {{ path: /*, upstream: origin }}\n{rest}",
        origin.address
    )))
}

fn ask(tollgate: &Tollgate, path: &str) -> Reply {
    request(tollgate.address, "GET", path, &[], b"")
}

#[test]
fn a_route_replies_what_it_says() {
    let origin = Origin::ok();
    let routes = "  - { path: /health, reply: { status: 200, body: ok } }\n\
                  \x20 - { path: /empty, reply: { status: 204 } }\n\
                  \x20 - { path: /json, reply: { body: '{\"state\":\"up\"}', headers: { cache-control: no-store } } }\n\
                  \x20 - { path: /gone, reply: { status: 410, body: <b>gone</b>, content_type: text/html } }\n\
                  \x20 - { path: /away, reply: { status: 503, body: later, headers: { retry-after: \"120\" } } }\n";
    let tollgate = replying(&origin, routes, "");
    let reply = ask(&tollgate, "/health");
    assert_eq!((reply.status, reply.text().as_str()), (200, "ok"));
    assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
    assert!(reply.header("x-request-id").is_some() && reply.header("connection").is_none());
    let reply = ask(&tollgate, "/empty");
    assert_eq!((reply.status, reply.text().as_str()), (204, ""));
    assert_eq!((reply.header("content-type"), reply.header("content-length")), (None, None));
    let reply = ask(&tollgate, "/json");
    assert_eq!(reply.json(), json!({"state": "up"}));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let reply = ask(&tollgate, "/gone");
    assert_eq!((reply.status, reply.text().as_str()), (410, "<b>gone</b>"));
    assert_eq!(reply.header("content-type"), Some("text/html"));
    let reply = ask(&tollgate, "/away");
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("120")));
    assert_eq!(origin.connections(), 0);
    assert_eq!(ask(&tollgate, "/healthy").text(), "ok", "the origin's");
    assert_eq!(origin.connections(), 1);

    by_http2(tollgate.address, async |mut client| {
        let reply = client.get("/json", &[]).await.unwrap();
        assert_eq!((reply.status(), reply.text().as_str()), (200, "{\"state\":\"up\"}"));
        assert_eq!(reply.head.headers()["content-type"], "application/json");
        assert_eq!(client.get("/empty", &[]).await.unwrap().status(), 204);
        let (answer, _) = client.send("HEAD", "/health", &[], true).await.unwrap();
        let reply = crate::harness::read(answer).await.unwrap();
        assert_eq!((reply.status(), reply.body.len()), (200, 0));
        assert_eq!(reply.head.headers()["content-length"], "2");
    });
    assert_eq!(origin.connections(), 1);
}

#[test]
fn no_upstream_is_needed_where_none_is_asked() {
    let tollgate =
        Tollgate::start(Config::yaml("routes:\n  - { path: /*, reply: { status: 404, body: nothing } }\n"));
    let reply = ask(&tollgate, "/x");
    assert_eq!((reply.status, reply.text().as_str()), (404, "nothing"));
    assert_eq!(tollgate.admin("GET", "/v1/upstreams").json()["upstreams"], json!([]));
}

#[test]
fn head_gets_the_fields_without_the_body() {
    let origin = Origin::ok();
    let tollgate = replying(&origin, "  - { path: /health, reply: { body: fine } }\n", "");
    let mut client = Client::connect(tollgate.address);
    let reply = client.request("HEAD", "/health", &[], b"");
    assert_eq!((reply.status, reply.header("content-length"), reply.text().as_str()), (200, Some("4"), ""));
    assert_eq!(client.request("GET", "/health", &[], b"").text(), "fine", "on the same connection");
}

#[test]
fn bodies_of_requests_are_read_so_that_the_connection_stays() {
    let origin = Origin::ok();
    let routes = "  - { path: /sink, reply: { status: 202 } }\n\
                  \x20 - { path: /small, max_body: 5, reply: { status: 202 } }\n";
    let tollgate = replying(&origin, routes, "");
    let mut client = Client::connect(tollgate.address);
    for body in [&b"x".repeat(1000)[..], b"", &b"y".repeat(60_000)] {
        let reply = client.request("POST", "/sink", &[], body);
        assert_eq!((reply.status, reply.header("connection")), (202, None));
    }
    client
        .send("POST /sink HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    assert_eq!(client.reply().status, 202);
    assert_eq!(client.request("POST", "/small", &[], b"123456").status, 413);
    assert_eq!(client.request("POST", "/small", &[], b"12345").status, 202);
    // One that is too long to be read for nothing, and one that waits to be asked for.
    client.send("POST /sink HTTP/1.1\r\nhost: a\r\ncontent-length: 10000000\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("connection")), (202, Some("close")));
    assert!(client.closed());
    let mut client = Client::connect(tollgate.address);
    client.send("POST /sink HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("connection")), (202, Some("close")));
    assert_eq!(origin.connections(), 0);
}

#[test]
fn policies_hold_and_replies_count_for_them() {
    let origin = Origin::ok();
    let routes = "  - { path: /limited, reply: { body: ok }, policies: [few] }\n\
                  \x20 - { path: /wrong, reply: { status: 401 }, policies: [failures] }\n\
                  \x20 - { path: /right, reply: { status: 200 }, policies: [failures] }\n\
                  \x20 - { path: /one, reply: { status: 200 }, policies: [parallel] }\n";
    let rest = "policies:\n  few: { algorithm: fixed_window, key: ip, limit: 2/1h }\n\
                \x20 failures: { algorithm: sliding_log, key: ip, limit: 2/1h, count: { statuses: [401] } }\n\
                \x20 parallel: { algorithm: concurrency, key: ip, limit: 1 }\n";
    let tollgate = replying(&origin, routes, rest);
    let reply = ask(&tollgate, "/limited");
    assert_eq!(reply.header("ratelimit-policy"), Some("\"few\";q=2;w=3600"));
    assert!(reply.header("ratelimit").is_some_and(|left| left.starts_with("\"few\";r=1;")));
    assert_eq!(ask(&tollgate, "/limited").status, 200);
    assert_eq!(ask(&tollgate, "/limited").status, 429);

    let mut client = Client::connect(tollgate.address);
    let statuses = |client: &mut Client, path: &str, times| -> Vec<u16> {
        (0..times).map(|_| client.request("GET", path, &[], b"").status).collect()
    };
    assert_eq!(statuses(&mut client, "/right", 5), [200; 5], "these do not count");
    assert_eq!(statuses(&mut client, "/wrong", 3), [401, 401, 429]);
    assert_eq!(statuses(&mut client, "/right", 1), [429]);
    assert_eq!(statuses(&mut client, "/one", 20), [200; 20], "a lease ends with its reply");
    assert_eq!(origin.connections(), 0);
}

#[test]
fn replies_are_logged_counted_and_explained_and_errors_that_are_meant_are_none() {
    let origin = Origin::ok();
    let routes = "  - { name: maintenance, path: /shop/*, reply: { status: 503, body: later } }\n\
                  \x20 - { path: /bad, reply: { status: 400 } }\n";
    let tollgate = replying(&origin, routes, "access_log: { format: json }\n");
    assert_eq!(ask(&tollgate, "/shop/cart").status, 503);
    assert_eq!(ask(&tollgate, "/bad").status, 400);
    let mut line = serde_json::Value::Null;
    eventually("both requests are logged", || {
        let lines = tollgate.stdout();
        let is_wanted = |line: &serde_json::Value| line["route"] == "maintenance";
        line = lines
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok())
            .find(is_wanted)
            .unwrap_or_default();
        lines.len() == 2
    });
    assert_eq!(
        (&line["route"], &line["status"], &line["upstream"]),
        (&json!("maintenance"), &json!(503), &json!(null))
    );
    becomes(1.0, || tollgate.metric("tollgate_requests_total{route=\"maintenance\",status=\"5xx\"}"));
    assert_eq!(tollgate.metric("tollgate_requests_refused_total{reason=\"malformed\"}"), 0.0);
    let routes = tollgate.admin("GET", "/v1/routes").json();
    let route = &routes["routes"][0];
    assert_eq!((&route["upstream"], &route["reply"]), (&json!(null), &json!(503)));
    assert_eq!(route["server_errors"], json!({"origin": 0, "proxy": 0}));
    assert_eq!(
        (&routes["routes"][2]["upstream"], &routes["routes"][2]["reply"]),
        (&json!("origin"), &json!(null))
    );

    let explained = tollgate.command(&["explain", "/shop/cart"]);
    assert_eq!(explained.code, Some(0), "{explained:?}");
    assert!(explained.stdout.contains("reply     503: by the route"), "{}", explained.stdout);
    assert!(!explained.stdout.contains("upstream"), "{}", explained.stdout);
    assert!(explained.stdout.contains("allowed with 503"), "{}", explained.stdout);
}

/// What a route is configured to reply is no error. What Tollgate refuses there is one.
#[test]
fn refusals_on_a_route_that_replies_itself_are_counted() {
    let origin = Origin::ok();
    let routes = "  - { path: /me, redirect: { path: \"/users/{user}\" } }\n\
                  \x20 - { path: /status, reply: { body: ok }, cors: { origins: [\"https://app.example.com\"] } }\n\
                  \x20 - { path: /bad, reply: { status: 400 } }\n";
    let tollgate = replying(&origin, routes, "user: [{ header: x-user }]\ntrusted_proxies: [127.0.0.1]\n");
    assert_eq!(ask(&tollgate, "/me").status, 400);
    assert_eq!(ask(&tollgate, "/bad").status, 400);
    for (origin, status) in [("https://app.example.com", 204), ("https://evil.example", 403)] {
        let fields = [("origin", origin), ("access-control-request-method", "GET")];
        assert_eq!(request(tollgate.address, "OPTIONS", "/status", &fields, b"").status, status, "{origin}");
    }
    let refused =
        |reason: &str| tollgate.metric(&format!("tollgate_requests_refused_total{{reason=\"{reason}\"}}"));
    eventually("each is counted once, by its reason", || {
        [refused("malformed"), refused("origin"), refused("address")] == [1.0, 1.0, 0.0]
    });
}

#[test]
fn a_reply_can_be_changed_by_a_reload() {
    let origin = Origin::ok();
    let tollgate = replying(&origin, "  - { path: /x, reply: { body: one } }\n", "");
    assert_eq!(ask(&tollgate, "/x").text(), "one");
    let path = tollgate.directory().join("proxy.yaml");
    let yaml = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, yaml.replace("reply: { body: one }", "reply: { status: 203, body: two }")).unwrap();
    let reloaded = tollgate.admin("POST", "/v1/reload").json();
    assert_eq!(reloaded["changed"], json!(["route /x: reply changed"]));
    let reply = ask(&tollgate, "/x");
    assert_eq!((reply.status, reply.text().as_str()), (203, "two"));
    std::fs::write(&path, yaml.replace("reply: { body: one }", "upstream: origin")).unwrap();
    let reloaded = tollgate.admin("POST", "/v1/reload").json();
    assert_eq!(reloaded["changed"], json!(["route /x: reply changed", "route /x: upstream none → origin"]));
    assert_eq!(ask(&tollgate, "/x").text(), "ok");
}
