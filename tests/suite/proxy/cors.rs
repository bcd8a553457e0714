//! `cors` of a route: preflights are answered here, and answers say which pages may read them.

use std::net::SocketAddr;

use serde_json::json;

use crate::harness::{Browser, Client, Config, Origin, Reply, Tollgate, by_http2, eventually, request};

const APP: &str = "https://app.example.com";

/// Before `endpoint`, with these settings of `cors` and of the route; `rest` is YAML for the top level.
fn sharing(endpoint: SocketAddr, cors: &str, route: &str, rest: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "upstreams:\n  origin: {{ endpoints: [\"http://{endpoint}\"] }}\nroutes:\n\
         \x20 - {{ path: /api/*, cors: {{ {cors} }}, {route} }}\n  - {{ path: /*, upstream: origin }}\n{rest}"
    )))
}

fn preflight(tollgate: &Tollgate, origin: &str, method: &str, headers: &str) -> Reply {
    let fields = [
        ("origin", origin),
        ("access-control-request-method", method),
        ("access-control-request-headers", headers),
    ];
    request(tollgate.address, "OPTIONS", "/api/x", &fields, b"")
}

fn ask(tollgate: &Tollgate, origin: &str) -> Reply {
    request(tollgate.address, "GET", "/api/x", &[("origin", origin)], b"")
}

/// Who may read it, and whether with credentials.
fn readers(reply: &Reply) -> (Option<&str>, Option<&str>) {
    (reply.header("access-control-allow-origin"), reply.header("access-control-allow-credentials"))
}

#[test]
fn preflights_are_answered_without_the_upstream() {
    let origin = Origin::ok();
    let cors = "origins: [\"https://app.example.com\", \"https://*.example.org\"], methods: [GET, PUT], \
                headers: [authorization, x-id], credentials: true, max_age: 10m";
    let tollgate = sharing(
        origin.address,
        cors,
        "methods: [GET, PUT], upstream: origin",
        "access_log: { format: json }\n",
    );
    let reply = preflight(&tollgate, APP, "PUT", "authorization");
    assert_eq!((reply.status, reply.text().as_str()), (204, ""));
    assert_eq!(readers(&reply), (Some(APP), Some("true")));
    assert_eq!(reply.header("access-control-allow-methods"), Some("GET, PUT"));
    assert_eq!(reply.header("access-control-allow-headers"), Some("authorization, x-id"));
    assert_eq!(reply.header("access-control-max-age"), Some("600"));
    assert_eq!(reply.all("vary"), ["origin"]);
    let reply = preflight(&tollgate, "https://a.b.example.org", "GET", "");
    assert_eq!((reply.status, readers(&reply).0), (204, Some("https://a.b.example.org")));
    for other in ["https://evil.com", "http://app.example.com", "null", "https://evilexample.org"] {
        let reply = preflight(&tollgate, other, "PUT", "");
        assert_eq!((reply.status, readers(&reply)), (403, (None, None)), "{other}");
        assert_eq!(reply.all("vary"), ["origin"]);
    }
    assert_eq!(origin.connections(), 0);
    eventually("they are logged", || tollgate.stdout().len() == 6);
    // No preflights: one without an origin, one for a method that the route does not have, one with a body.
    let plain = request(tollgate.address, "OPTIONS", "/api/x", &[("origin", APP)], b"");
    assert_eq!(plain.text(), "ok", "the origin's, by the next route");
    assert_eq!(preflight(&tollgate, APP, "DELETE", "").text(), "ok");
    let asked = [("access-control-request-method", "PUT")];
    let plain = request(tollgate.address, "OPTIONS", "/api/x", &asked, b"");
    assert_eq!(plain.text(), "ok", "without an origin it is no preflight, and not for the route");
    let fields = [("origin", APP), ("access-control-request-method", "PUT")];
    let mut client = Client::connect(tollgate.address);
    assert_eq!(client.request("OPTIONS", "/api/x", &fields, b"").status, 204);
    assert_eq!(client.request("GET", "/api/x", &fields, b"").text(), "ok", "on the same connection");

    by_http2(tollgate.address, async |mut client| {
        let (answer, _) = client.send("OPTIONS", "/api/x", &fields, true).await.unwrap();
        let reply = crate::harness::read(answer).await.unwrap();
        assert_eq!(reply.status(), 204);
        assert_eq!(reply.head.headers()["access-control-allow-origin"], APP);
        let reply = client.get("/api/x", &[("origin", APP)]).await.unwrap();
        assert_eq!(reply.head.headers()["access-control-allow-origin"], APP);
        assert_eq!(reply.head.headers()["vary"], "origin");
    });
}

#[test]
fn any_method_and_header_are_allowed_as_they_are_asked_for() {
    let origin = Origin::ok();
    let tollgate =
        sharing(origin.address, "origins: \"*\", methods: \"*\", headers: [\"*\"]", "upstream: origin", "");
    let reply = preflight(&tollgate, APP, "PURGE", "x-a, x-b");
    assert_eq!((reply.status, readers(&reply)), (204, (Some("*"), None)));
    assert_eq!(reply.header("access-control-allow-methods"), Some("PURGE"));
    assert_eq!(reply.header("access-control-allow-headers"), Some("x-a, x-b"));
    assert_eq!(reply.all("vary"), ["access-control-request-method", "access-control-request-headers"]);
    let reply = request(tollgate.address, "GET", "/api/x", &[], b"");
    assert_eq!((readers(&reply).0, reply.header("vary")), (Some("*"), None));
}

#[test]
fn cors_fields_of_the_upstream_are_replaced() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.skip_body(&head)?;
            let fields = [
                ("access-control-allow-origin", "*"),
                ("access-control-allow-credentials", "true"),
                ("access-control-expose-headers", "x-secret"),
                ("vary", "accept-encoding"),
            ];
            conn.answer("200 OK", &fields, b"said")?;
        }
        Ok(())
    });
    let tollgate = sharing(
        origin.address,
        "origins: [\"https://app.example.com\"], expose: [x-total, ratelimit]",
        "upstream: origin",
        "",
    );
    let reply = ask(&tollgate, APP);
    assert_eq!((reply.status, readers(&reply)), (200, (Some(APP), None)));
    assert_eq!(reply.all("access-control-expose-headers"), ["x-total, ratelimit"]);
    assert_eq!(reply.all("vary"), ["accept-encoding", "origin"]);
    for reply in [ask(&tollgate, "https://evil.com"), request(tollgate.address, "GET", "/api/x", &[], b"")] {
        assert_eq!((reply.status, readers(&reply)), (200, (None, None)));
        assert_eq!(reply.header("access-control-expose-headers"), None);
        assert_eq!(reply.all("vary"), ["accept-encoding", "origin"], "a cache has to know");
    }
    let other = request(tollgate.address, "GET", "/", &[("origin", APP)], b"");
    assert_eq!(readers(&other), (Some("*"), Some("true")), "other routes pass on what they get");
}

#[test]
fn pages_can_read_errors_and_denials() {
    let nobody = crate::harness::nobody();
    let rest = "trusted_proxies: [127.0.0.1]\n\
                policies:\n  few: { algorithm: fixed_window, key: ip, limit: 1/1h, reply: { headers: { access-control-allow-origin: \"*\" } } }\n";
    let route = "upstream: origin, policies: [few], deny: [192.0.2.1], max_body: 5";
    let tollgate = sharing(nobody, "origins: [\"https://app.example.com\"], credentials: true", route, rest);
    let from = |address: &str| {
        request(tollgate.address, "GET", "/api/x", &[("origin", APP), ("x-forwarded-for", address)], b"")
    };
    assert_eq!(preflight(&tollgate, APP, "GET", "").status, 204, "this does not count");
    let denied = from("192.0.2.1");
    assert_eq!((denied.status, readers(&denied)), (403, (Some(APP), Some("true"))));
    let unreachable = from("127.0.0.9");
    assert_eq!((unreachable.status, readers(&unreachable)), (502, (Some(APP), Some("true"))));
    let limited = from("127.0.0.9");
    assert_eq!((limited.status, readers(&limited)), (429, (Some(APP), Some("true"))));
    assert!(limited.all("access-control-expose-headers").join(",").contains("Retry-After"));
    let fields = [("origin", APP), ("x-forwarded-for", "127.0.0.8")];
    let long = request(tollgate.address, "POST", "/api/x", &fields, b"too long");
    assert_eq!((long.status, readers(&long)), (413, (Some(APP), Some("true"))));
}

#[test]
fn policies_that_count_preflights_limit_them() {
    let origin = Origin::ok();
    let rest = "policies:\n  all: { algorithm: fixed_window, key: ip, limit: 2/1h, preflight: true }\n";
    let tollgate = sharing(
        origin.address,
        "origins: [\"https://app.example.com\"]",
        "upstream: origin, policies: [all]",
        rest,
    );
    let statuses = [0; 3].map(|_| preflight(&tollgate, APP, "GET", "").status);
    assert_eq!(statuses, [204, 204, 429]);
}

#[test]
fn routes_that_reply_themselves_share_too_and_it_is_explained() {
    let origin = Origin::ok();
    let tollgate =
        sharing(origin.address, "origins: [\"https://app.example.com\"]", "reply: { body: hi }", "");
    assert_eq!(preflight(&tollgate, APP, "GET", "").status, 204);
    let reply = ask(&tollgate, APP);
    assert_eq!((reply.text().as_str(), readers(&reply).0), ("hi", Some(APP)));
    let explain = |fields: &[&str]| {
        let fields: Vec<&str> = fields.iter().flat_map(|field| ["-H", field]).collect();
        tollgate.command(&[&["explain", "-X", "OPTIONS", "/api/x"], &fields[..]].concat()).stdout
    };
    let page = explain(&["origin: https://app.example.com", "access-control-request-method: GET"]);
    assert!(page.contains("allowed with 204: it is a CORS preflight, which Tollgate answers"), "{page}");
    assert!(page.contains("cors      pages of https://app.example.com may read the response"), "{page}");
    let page = explain(&["origin: https://evil.com"]);
    assert!(
        page.contains("cors      pages of https://evil.com may not read the response: only https://app"),
        "{page}"
    );
    let routes = tollgate.admin("GET", "/v1/routes").json();
    assert_eq!(routes["routes"][0]["cors"], json!([APP]));
    assert_eq!(origin.connections(), 0);
}

/// Asks another origin for what its address bar says, and tells what it could read.
const PAGE: &str = r"<!DOCTYPE html><title>cors</title><p id=state>waiting</p><script>
(async () => {
  const api = 'http://' + location.hash.slice(1);
  const tell = async (name, path, init) => {
    try {
      const reply = await fetch(api + path, init);
      return name + '=' + reply.status + ':' + (reply.headers.get('x-total') ?? '-') + ':' + (await reply.text()).length;
    } catch (error) {
      return name + '=blocked';
    }
  };
  const told = [];
  const json = { 'content-type': 'application/json', 'x-id': '7' };
  told.push(await tell('plain', '/api/x'));
  told.push(await tell('credentials', '/api/x', { credentials: 'include' }));
  told.push(await tell('put', '/api/x', { method: 'PUT', headers: json, body: '{}', credentials: 'include' }));
  told.push(await tell('delete', '/api/x', { method: 'DELETE' }));
  told.push(await tell('field', '/api/x', { headers: { 'x-other': '1' } }));
  told.push(await tell('limited', '/api/limited'));
  told.push(await tell('limited', '/api/limited'));
  told.push(await tell('refused', '/closed/x'));
  told.push(await tell('preflight', '/closed/x', { method: 'PUT' }));
  document.getElementById('state').textContent = told.join(' ') + ' end';
})();
</script>";

#[test]
fn chromium_reads_what_is_allowed_and_nothing_else() {
    let pages = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.skip_body(&head)?;
            conn.answer("200 OK", &[("content-type", "text/html")], PAGE.as_bytes())?;
        }
        Ok(())
    });
    let api = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.skip_body(&head)?;
            conn.answer("200 OK", &[("x-total", "3"), ("access-control-allow-origin", "*")], b"four")?;
        }
        Ok(())
    });
    let page_origin = format!("http://localhost:{}", pages.address.port());
    let tollgate = Tollgate::start(Config::yaml(format!(
        "upstreams:\n  origin: {{ endpoints: [\"http://{}\"] }}\n\
         policies:\n  one: {{ algorithm: fixed_window, key: ip, limit: 1/1h }}\n\
         x-cors: &cors {{ origins: [\"{page_origin}\"], methods: [GET, PUT], headers: [content-type, x-id], credentials: true, expose: [x-total] }}\n\
         routes:\n  - {{ path: /api/limited, cors: *cors, upstream: origin, policies: [one] }}\n\
         \x20 - {{ path: /api/*, cors: *cors, upstream: origin }}\n\
         \x20 - {{ path: /*, cors: {{ origins: [\"https://app.example.com\"], methods: [PUT] }}, upstream: origin }}\n",
        api.address
    )));
    let browser = Browser::open_at(&page_origin, &format!("/#{}", tollgate.address), &[]);
    browser.shows("#state", "end");
    let told = browser.text("#state");
    let told: Vec<&str> = told.split(' ').collect();
    assert_eq!(
        told[..5],
        ["plain=200:3:4", "credentials=200:3:4", "put=200:3:4", "delete=blocked", "field=blocked"]
    );
    assert_eq!(told[5], "limited=200:3:4");
    assert!(
        told[6].starts_with("limited=429:-:") && told[6] != "limited=429:-:0",
        "the problem can be read: {told:?}"
    );
    assert_eq!(told[7..], ["refused=blocked", "preflight=blocked", "end"]);
    let asked =
        api.heads().iter().filter(|head| head.starts_with("DELETE") || head.starts_with("OPTIONS")).count();
    assert_eq!(asked, 0, "{:?}", api.heads());
}
