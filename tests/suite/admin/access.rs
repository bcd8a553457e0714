//! The admin port: authorization, and refusals.

use crate::harness::{Client, Config, Origin, Reply, Tollgate, eventually, get, request};

fn start(rest: &str) -> (Origin, Tollgate) {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], rest));
    (origin, tollgate)
}

const PATHS: [&str; 4] = ["/metrics", "/v1/status", "/v1/blocked", "/v1/blocked/127.0.0.1"];

#[track_caller]
fn is_problem(reply: &Reply, status: u16) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.json()["status"], status);
    assert_ne!(reply.json()["detail"].as_str().unwrap_or_default(), "");
}

#[test]
fn with_a_token_nothing_is_shown_without_it() {
    let (_origin, tollgate) = start("admin: { address: \"127.0.0.1:0\", token: s3cret-token }\n");
    for path in PATHS {
        for headers in [
            [].as_slice(),
            &[("authorization", "Bearer s3cret-tokem")],
            &[("authorization", "Bearer s3cret-token-and-more")],
            &[("authorization", "Bearer ")],
            &[("authorization", "s3cret-token")],
            &[("authorization", "Basic s3cret-token")],
        ] {
            let refused = get(tollgate.admin, path, headers);
            is_problem(&refused, 401);
            assert!(refused.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")));
        }
        let reply = get(tollgate.admin, path, &[("authorization", "bearer s3cret-token")]);
        assert!(matches!(reply.status, 200 | 404), "{reply:?}");
    }
    // Paths that are not assets get an error page, which lists outages, so they need the token.
    for path in ["/assets/", "/assets/x/y", "/assets/../", "/assets"] {
        let refused = get(tollgate.admin, path, &[("accept", "text/html")]);
        assert!(matches!(refused.status, 303 | 401), "{path}: {refused:?}");
    }
    is_problem(&request(tollgate.admin, "DELETE", "/v1/blocked/127.0.0.1", &[], b""), 401);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(tollgate.admin, path, &[]).status, 200, "{path} is for load balancers");
    }
}

#[test]
fn without_a_token_a_page_in_the_operator_s_browser_learns_nothing() {
    let (_origin, tollgate) = start("");
    let port = tollgate.admin.port();
    for path in PATHS {
        let foreign = get(tollgate.admin, path, &[("host", "rebound.example")]);
        is_problem(&foreign, 403);
        is_problem(&get(tollgate.admin, path, &[("origin", "https://evil.example")]), 403);
        is_problem(&get(tollgate.admin, path, &[("origin", "null")]), 403);
        for host in ["[::1].evil.example", "evil.example@127.0.0.1", "127.0.0.1:evil.example"] {
            is_problem(&get(tollgate.admin, path, &[("host", host)]), 403);
            is_problem(&get(tollgate.admin, path, &[("origin", &format!("http://{host}"))]), 403);
        }
    }
    for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")] {
        assert_eq!(get(tollgate.admin, "/v1/status", &[("host", &host)]).status, 200, "{host}");
    }
    let own = format!("http://127.0.0.1:{port}");
    assert_eq!(get(tollgate.admin, "/v1/status", &[("origin", &own)]).status, 200);
}

#[test]
fn unknown_paths_methods_and_queries_are_refused_as_problems() {
    let (_origin, tollgate) = start("");
    for path in ["/v1", "/nothing", "/v1/nothing", "/v1/blocked/127.0.0.1/x"] {
        is_problem(&tollgate.admin("GET", path), 404);
    }
    let wrong = tollgate.admin("POST", "/v1/status");
    is_problem(&wrong, 405);
    assert_eq!(wrong.header("allow"), Some("GET,HEAD"));
    is_problem(&tollgate.admin("PUT", "/v1/blocked/127.0.0.1"), 405);
    for query in ["limit=0", "limit=1001", "limit=x", "sort=x", "cursor=x", "prefix=x", "x=1"] {
        is_problem(&tollgate.admin("GET", &format!("/v1/blocked?{query}")), 400);
    }
    is_problem(&tollgate.admin("GET", "/v1/blocked?policy=none"), 404);
    is_problem(&tollgate.admin("GET", "/v1/blocked/localhost"), 400);
    is_problem(&tollgate.admin("GET", "/v1/blocked/127.0.0.0%2F8"), 400);
    // The items of a list are not read as fields, in order.
    for (path, list) in [("/v1/bans", r#"["ip:203.0.113.7", "1h"]"#), ("/v1/explain", r#" ["http://a/"]"#)] {
        let json = [("content-type", "application/json")];
        let reply = request(tollgate.admin, "POST", path, &json, list.as_bytes());
        is_problem(&reply, 400);
        assert!(reply.text().contains("it is a list, not an object"), "{}", reply.text());
    }
}

#[test]
fn a_foreign_page_s_form_changes_nothing() {
    let (_origin, tollgate) = start("");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    is_problem(&request(tollgate.admin, "DELETE", "/v1/blocked/127.0.0.1", &form, b"a=b"), 415);
    is_problem(&request(tollgate.admin, "DELETE", "/v1/blocked/127.0.0.1", &[], b"a=b"), 415);
    // With the right type it passes, and there is nothing to unblock.
    let json = [("content-type", "application/json")];
    is_problem(&request(tollgate.admin, "DELETE", "/v1/blocked/127.0.0.1", &json, b"{}"), 404);
}

#[test]
fn answers_are_not_kept_by_caches() {
    let (_origin, tollgate) = start("");
    for path in ["/healthz", "/metrics", "/v1/status", "/nothing"] {
        assert_eq!(tollgate.admin("GET", path).header("cache-control"), Some("no-store"), "{path}");
    }
}

#[test]
fn the_status_says_what_runs() {
    let (_origin, tollgate) = start("");
    let status = tollgate.admin("GET", "/v1/status").json();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&status["ready"], &status["draining"]), (&true.into(), &false.into()));
    assert_eq!((&status["workers"], &status["store"]["topology"]), (&2.into(), &"memory".into()));
    assert_eq!(status["listeners"], serde_json::json!([tollgate.address.to_string()]));
    assert!(status["uptime"].as_str().unwrap().ends_with('s'), "{status}");
    let hash = status["configuration"]["hash"].as_str().unwrap();
    assert!(hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
}

#[test]
fn two_configurations_have_two_hashes_and_one_has_one() {
    let origin = Origin::ok();
    let hash = |rest: &str| {
        let rest = format!("listeners: [{{ address: \"127.0.0.1:0\" }}]\n{rest}");
        let tollgate = Tollgate::start(Config::new(&[origin.address], &rest));
        tollgate.admin("GET", "/v1/status").json()["configuration"]["hash"].clone()
    };
    let plain = hash("");
    assert_eq!(hash("# a comment\n"), plain);
    assert_ne!(hash("shutdown: { drain: 7s }\n"), plain);
}

#[test]
fn it_is_ready_until_it_drains_and_answers_all_the_while() {
    let origin = Origin::start(|conn| {
        conn.head()?;
        // Never responds: the request ends when the proxy gives up.
        conn.closed();
        Ok(())
    });
    let mut tollgate = Tollgate::start(Config::new(&[origin.address], "shutdown: { drain: 60s }\n"));
    assert_eq!(tollgate.admin("GET", "/readyz").status, 200);
    let client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    eventually("the request is under way", || origin.heads().len() == 1);
    tollgate.signal("TERM");
    eventually("it says that it drains", || tollgate.admin("GET", "/readyz").status == 503);
    is_problem(&tollgate.admin("GET", "/readyz"), 503);
    assert_eq!(tollgate.admin("GET", "/healthz").status, 200);
    assert_eq!(tollgate.admin("GET", "/v1/status").json()["draining"], true);
    drop(client);
    assert_eq!(tollgate.wait().code(), Some(0));
}
