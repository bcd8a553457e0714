//! `redirect` of a route: where clients are sent, and that nobody else chooses it.

use serde_json::json;

use super::assert_problem;
use crate::harness::{Client, Config, Origin, Reply, Tollgate, by_http2, program, request};

/// Routes before one to `origin`; `rest` is YAML for the top level.
fn redirecting(origin: &Origin, routes: &str, rest: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "upstreams:\n  origin: {{ endpoints: [\"http://{}\"] }}\nroutes:\n{routes}\
         \x20 - {{ path: /*, upstream: origin }}\n{rest}",
        origin.address
    )))
}

fn ask(tollgate: &Tollgate, path: &str) -> Reply {
    request(tollgate.address, "GET", path, &[], b"")
}

#[track_caller]
fn assert_sent_to(tollgate: &Tollgate, path: &str, status: u16, location: &str) {
    let reply = ask(tollgate, path);
    assert_eq!((reply.status, reply.header("location")), (status, Some(location)), "{path}: {reply:?}");
}

#[test]
fn captures_and_the_query_are_kept() {
    let origin = Origin::ok();
    let routes = "  - { path: /old/*, redirect: { path: \"/new/{rest}\" } }\n\
                  \x20 - { path: \"/users/{id}/posts/{post}\", redirect: { path: \"/p/{post}/by/{id}\", status: 301 } }\n\
                  \x20 - { path: /gone, redirect: { path: /here, status: 303, query: drop } }\n\
                  \x20 - { path: /docs/*, redirect: { to: \"https://docs.example.com:8443/v2/{rest}?from=old#top\", status: 302 } }\n\
                  \x20 - { path: /www/*, redirect: { host: www.example.com } }\n\
                  \x20 - { path: /port/*, redirect: { scheme: https, host: www.example.com, port: 8443, path: \"/x/{rest}\", status: 307 } }\n";
    let tollgate = redirecting(&origin, routes, "");
    for (path, status, location) in [
        ("/old/a/b?x=1&y=%2F", 308, "/new/a/b?x=1&y=%2F"),
        ("/old/", 308, "/new/"),
        ("/old/a%2Fb%20c/", 308, "/new/a%2Fb%20c/"),
        ("/users/7/posts/a%40b", 301, "/p/a%40b/by/7"),
        ("/gone?x", 303, "/here"),
        ("/docs/a?q=1", 302, "https://docs.example.com:8443/v2/a?from=old&q=1#top"),
        ("/docs/a", 302, "https://docs.example.com:8443/v2/a?from=old#top"),
        ("/www/a//b?q", 308, "//www.example.com/www/a//b?q"),
        ("/port/a", 307, "https://www.example.com:8443/x/a"),
    ] {
        assert_sent_to(&tollgate, path, status, location);
    }
    by_http2(tollgate.address, async |mut client| {
        let reply = client.get("/old/x?y", &[]).await.unwrap();
        assert_eq!((reply.status(), &reply.head.headers()["location"]), (308, &"/new/x?y".parse().unwrap()));
    });
    assert_eq!(origin.connections(), 0);
}

#[test]
fn no_client_chooses_where_another_is_sent() {
    let origin = Origin::ok();
    let routes = "  - { path: /go/*, redirect: { path: \"/{rest}\" } }\n\
                  \x20 - { path: \"/to/{name}\", redirect: { path: \"/{name}/x\" } }\n\
                  \x20 - { path: /out/*, redirect: { to: \"https://new.example.com/{rest}\" } }\n";
    let tollgate = redirecting(&origin, routes, "");
    for (path, location) in [
        ("/go//evil.example", "/evil.example"),
        ("/go///evil.example/a", "/evil.example/a"),
        ("/go/%2Fevil.example", "/%2Fevil.example"),
        ("/go/%5Cevil.example", "/%5Cevil.example"),
        ("/go/https://evil.example", "/https://evil.example"),
        ("/to/%2F%2Fevil.example", "/%2F%2Fevil.example/x"),
        ("/out/@evil.example/", "https://new.example.com/@evil.example/"),
        ("/out//evil.example", "https://new.example.com/evil.example"),
        ("/go/a%0d%0aset-cookie:%20x=1", "/a%0d%0aset-cookie:%20x=1"),
        ("/go/?a=%0d%0ab", "/?a=%0d%0ab"),
    ] {
        let reply = ask(&tollgate, path);
        if reply.status == 400 {
            continue;
        }
        assert_eq!((reply.status, reply.header("location")), (308, Some(location)), "{path}");
        assert_eq!(reply.header("set-cookie"), None);
    }
    // As they stand, backslashes are slashes to browsers.
    let mut client = Client::sending(tollgate.address, "GET /go/\\evil.example HTTP/1.1\r\nhost: a\r\n\r\n");
    let reply = client.reply();
    assert!(reply.status == 400 || reply.header("location") == Some("/evil.example"), "{reply:?}");
    for path in ["/go/..%2Fevil", "/go/a/..;/b"] {
        assert_problem(&ask(&tollgate, path), 400, &[origin.address]);
    }
}

#[test]
fn a_scheme_alone_keeps_host_path_and_query() {
    let origin = Origin::ok();
    let tollgate = redirecting(
        &origin,
        "  - { path: /*, hosts: [secure.example.com, a], redirect: { scheme: https } }\n",
        "",
    );
    let reply = request(tollgate.address, "GET", "/a//b?c=d", &[("host", "secure.example.com:8080")], b"");
    assert_eq!((reply.status, reply.header("location")), (308, Some("https://secure.example.com/a//b?c=d")));
    assert_eq!(ask(&tollgate, "/x").text(), "ok", "another host");
}

#[test]
fn redirects_are_limited_explained_and_seen() {
    let origin = Origin::ok();
    let routes = "  - { name: moved, path: /old/*, redirect: { path: \"/new/{rest}\" }, policies: [few] }\n";
    let rest = "policies:\n  few: { algorithm: fixed_window, key: ip, limit: 2/1h }\n";
    let tollgate = redirecting(&origin, routes, rest);
    let mut client = Client::connect(tollgate.address);
    let reply = client.request("POST", "/old/x", &[], b"some body");
    assert_eq!((reply.status, reply.header("connection")), (308, None));
    assert!(reply.header("ratelimit").is_some());
    let reply = client.request("HEAD", "/old/x", &[], b"");
    assert_eq!((reply.status, reply.header("location"), reply.text().as_str()), (308, Some("/new/x"), ""));
    assert_eq!(client.request("GET", "/old/x", &[], b"").status, 429);
    let page = tollgate.command(&["explain", "-H", "x: y", "/old/x?z"]).stdout;
    assert!(page.contains("redirect  308 to /new/x?z"), "{page}");
    let route = &tollgate.admin("GET", "/v1/routes").json()["routes"][0];
    assert_eq!(
        (&route["reply"], &route["redirect"], &route["upstream"]),
        (&json!(308), &json!("/new/{rest}"), &json!(null))
    );
    let path = tollgate.directory().join("proxy.yaml");
    let yaml = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, yaml.replace("/new/{rest}\"", "/newer/{rest}\", status: 302")).unwrap();
    let reloaded = tollgate.admin("POST", "/v1/reload").json();
    let changes = json!([
        "route moved: redirect.status 308 → 302",
        "route moved: redirect.to /new/{rest} → /newer/{rest}"
    ]);
    assert_eq!(reloaded["changed"], changes);
}

#[test]
fn curl_follows_to_the_end() {
    let origin = Origin::echo();
    let routes = "  - { path: /old/*, redirect: { path: \"/new/{rest}\" } }\n";
    let tollgate = redirecting(&origin, routes, "");
    let url = format!("http://{}/old/a%20b?c", tollgate.address);
    let ended = program("curl", "curl").args(["-sS", "-L", "--data-binary", "hello", &url]).output().unwrap();
    let seen: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(seen["body"], "hello", "{seen}");
    assert!(origin.heads()[0].starts_with("POST /new/a%20b?c "), "{:?}", origin.heads());
}
