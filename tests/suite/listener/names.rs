//! Named listeners, and the routes that are for some of them.

use std::{
    fs,
    io::{Read, Write},
    net::SocketAddr,
    os::unix::net::UnixStream,
};

use serde_json::{Value, json};

use super::pair;
use crate::harness::{
    Authority, Client, Config, Http2Client, Origin, TlsConnector, Tollgate, by_http2, get, in_runtime,
    printed, program, request,
};

/// The addresses that it listens on, in the order of the file.
fn addresses(tollgate: &Tollgate) -> Vec<SocketAddr> {
    let lines = tollgate.log();
    let serving = lines.iter().filter(|line| line.contains("serving clients"));
    let address = |line: &String| line.split("address=").nth(1)?.split_whitespace().next()?.parse().ok();
    serving.filter_map(address).collect()
}

/// The listeners of most tests: two with names, and one without.
const LISTENERS: [&str; 3] = [
    "{ address: \"127.0.0.1:0\", name: public }",
    "{ address: \"127.0.0.2:0\", name: internal }",
    "{ address: \"127.0.0.3:0\" }",
];

/// The whole file. Tollgate replies to all requests itself, with the name of the route.
fn yaml(listeners: &[&str], routes: &[&str]) -> String {
    let routes = routes.iter().map(|route| {
        let name = route.split("name: ").nth(1).unwrap().split(',').next().unwrap();
        format!("  - {{ {route}, reply: {{ body: {name} }} }}\n")
    });
    format!(
        "listeners: [{}]\nadmin: {{ address: \"127.0.0.1:0\" }}\nworkers: 2\naccess_log: off\n\
         log: {{ level: debug, format: text }}\nroutes:\n{}",
        listeners.join(", "),
        routes.collect::<String>()
    )
}

const ROUTES: [&str; 4] = [
    "name: admin, path: /admin/*, listeners: [internal]",
    "name: both, path: /both, listeners: [public, internal]",
    "name: inside, path: /*, listeners: [internal]",
    "name: outside, path: /a/*",
];

/// The name of the route that takes the request, or the status.
fn route(address: SocketAddr, path: &str) -> String {
    let reply = get(address, path, &[]);
    if reply.status == 200 { reply.text() } else { reply.status.to_string() }
}

#[test]
fn a_route_for_listeners_takes_their_requests_alone() {
    let tollgate = Tollgate::start(Config::yaml(yaml(&LISTENERS, &ROUTES)));
    let [public, internal, unnamed] = addresses(&tollgate).try_into().unwrap();
    for (path, expected) in [
        ("/admin/x", ["404", "admin", "404"]),
        ("/both", ["both", "both", "404"]),
        ("/a/b", ["outside", "inside", "outside"]),
        ("/c", ["404", "inside", "404"]),
        // A reading of the path has another route only on this listener.
        ("/admin%2Fx", ["404", "400", "404"]),
        ("//admin/x", ["404", "400", "404"]),
    ] {
        let found = [public, internal, unnamed].map(|address| route(address, path));
        assert_eq!(found, expected, "{path}");
    }
    let explained = tollgate.admin("GET", "/v1/routes").json();
    assert_eq!(explained["routes"][1]["listeners"], json!(["public", "internal"]));
    assert_eq!(explained["routes"][3]["listeners"], json!([]));
}

#[test]
fn preflights_take_the_route_of_their_listener() {
    let cors = |origin: &str| format!("cors: {{ origins: [\"https://{origin}\"] }}, methods: [PUT]");
    let (inside, outside) = (cors("inside.example"), cors("outside.example"));
    let routes = [
        format!("name: inside, path: /*, listeners: [internal], {inside}"),
        format!("name: outside, path: /*, {outside}"),
    ];
    let routes: Vec<&str> = routes.iter().map(String::as_str).collect();
    let tollgate = Tollgate::start(Config::yaml(yaml(&LISTENERS[..2], &routes)));
    let allows = |address: SocketAddr, origin: &str| {
        let headers = [("origin", origin), ("access-control-request-method", "PUT")];
        request(address, "OPTIONS", "/a", &headers, b"").header("access-control-allow-origin").is_some()
    };
    let [public, internal] = addresses(&tollgate).try_into().unwrap();
    for origin in ["https://inside.example", "https://outside.example"] {
        let is_inside = origin == "https://inside.example";
        assert_eq!([allows(public, origin), allows(internal, origin)], [!is_inside, is_inside], "{origin}");
    }
}

#[test]
fn every_kind_of_listener_may_have_a_name() {
    let authority = Authority::new("Authority of the tests");
    let certificate = authority.issue("server", &["127.0.0.4"]);
    let directory = tempfile::TempDir::new().unwrap();
    let socket = directory.path().join("tollgate.sock");
    let listeners = [
        LISTENERS[0].to_owned(),
        format!("{{ address: \"unix:{}\", name: socket }}", socket.display()),
        "{ address: \"127.0.0.3:0\", name: balanced, proxy_protocol: true }".to_owned(),
        format!(
            "{{ address: \"127.0.0.4:0\", name: secure, tls: {{ certificates: [{}] }} }}",
            pair(&certificate)
        ),
    ];
    let listeners: Vec<&str> = listeners.iter().map(String::as_str).collect();
    let routes = ["socket", "balanced", "secure", "public"]
        .map(|name| format!("name: to-{name}, path: /*, listeners: [{name}]"));
    let routes: Vec<&str> = routes.iter().map(String::as_str).collect();
    let yaml = yaml(&listeners, &routes) + "trusted_proxies: [127.0.0.1]\n";
    let tollgate = Tollgate::start(Config::yaml(yaml));
    let [public, balanced, secure] = addresses(&tollgate).try_into().unwrap();
    assert_eq!(route(public, "/"), "to-public");

    let mut client = Client::connect(balanced);
    client.send("PROXY TCP4 192.0.2.7 10.0.0.1 56324 443\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.reply().text(), "to-balanced");

    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("\r\n\r\nto-socket"), "{text}");

    let mut https = TlsConnector::new(&authority).connect(secure, "127.0.0.4").unwrap().into_http();
    assert_eq!(https.request("GET", "/", &[("host", "a")], b"").text(), "to-secure");
    // Over HTTP/2, begun in clear text or chosen in the handshake.
    by_http2(public, async |mut client| {
        assert_eq!(client.get("/", &[]).await.unwrap().text(), "to-public");
    });
    let ca = authority.file();
    let options = ["-sS", "--max-time", "10", "--http2", "-w", " %{http_version}", "--cacert"];
    let mut curl = program("curl", "curl");
    curl.args(options).arg(&ca).arg(format!("https://{secure}/"));
    assert_eq!(printed(&mut curl), "to-secure 2");
}

#[test]
fn a_reload_changes_names_and_lists_for_open_connections() {
    let tollgate = Tollgate::start(Config::yaml(yaml(&LISTENERS, &ROUTES)));
    let [public, internal, unnamed] = addresses(&tollgate).try_into().unwrap();
    let mut kept = [public, internal, unnamed].map(Client::connect);
    let mut on_kept = |path: &str| {
        let ask = |client: &mut Client| {
            let reply = client.request("GET", path, &[], b"");
            if reply.status == 200 { reply.text() } else { reply.status.to_string() }
        };
        kept.each_mut().map(ask)
    };
    let reload = |yaml: &str| {
        fs::write(tollgate.directory().join("proxy.yaml"), yaml).unwrap();
        let reply = tollgate.admin("POST", "/v1/reload");
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    };
    in_runtime(async {
        let mut http2 = Http2Client::connect(public).await;
        assert_eq!(http2.get("/admin/x", &[]).await.unwrap().status(), 404);
        assert_eq!(on_kept("/admin/x"), ["404", "admin", "404"]);
        // In another order, with the names of the first two exchanged, and with one for the third.
        let listeners = [
            "{ address: \"127.0.0.3:0\", name: third }",
            "{ address: \"127.0.0.2:0\", name: public }",
            "{ address: \"127.0.0.1:0\", name: internal }",
        ];
        let answer = reload(&yaml(&listeners, &ROUTES));
        assert_eq!(
            answer["changed"],
            json!([
                "listener 127.0.0.1:0: name public → internal",
                "listener 127.0.0.2:0: name internal → public",
                "listener 127.0.0.3:0: name none → third",
            ])
        );
        assert_eq!(answer["needs_restart"], json!([]));
        assert_eq!(on_kept("/admin/x"), ["admin", "404", "404"]);
        assert_eq!(http2.get("/admin/x", &[]).await.unwrap().text(), "admin");
        // Another list.
        let routes = ["name: admin, path: /admin/*, listeners: [third, public]", ROUTES[3]];
        let answer = reload(&yaml(&listeners, &routes));
        let changed = answer["changed"].as_array().unwrap();
        assert!(changed.contains(&json!("route admin: listeners internal → third, public")), "{answer}");
        assert_eq!(on_kept("/admin/x"), ["404", "admin", "admin"]);
    });
    // A listener that is not open yet has no requests.
    let listeners = [LISTENERS[0], LISTENERS[1], LISTENERS[2], "{ address: \"127.0.0.5:0\", name: new }"];
    let answer = reload(&yaml(&listeners, &["name: admin, path: /admin/*, listeners: [new]", ROUTES[3]]));
    assert_eq!(answer["needs_restart"], json!(["listener 127.0.0.5:0: added"]));
    assert_eq!(on_kept("/admin/x"), ["404", "404", "404"]);
}

/// What `POST /v1/explain` says of a request for `path`.
fn explain(tollgate: &Tollgate, path: &str, listener: Option<&str>) -> Value {
    let mut asked = json!({ "url": path });
    if let Some(listener) = listener {
        asked["listener"] = json!(listener);
    }
    let json = [("content-type", "application/json")];
    request(tollgate.admin, "POST", "/v1/explain", &json, asked.to_string().as_bytes()).json()
}

#[test]
fn an_explanation_is_for_the_listener_that_is_named_or_assumed() {
    let tollgate = Tollgate::start(Config::yaml(yaml(&LISTENERS, &ROUTES)));
    let admin = |listener: Option<&str>| explain(&tollgate, "/admin/x", listener);
    for listener in ["internal", "127.0.0.2:0"] {
        let explained = admin(Some(listener));
        assert_eq!(explained["route"]["name"], "admin");
        let because = "the path matches /admin/*, the listener is one of internal";
        assert_eq!(explained["route"]["because"], because);
        assert_eq!(explained["assumed_listener"], Value::Null);
    }
    for listener in [Some("public"), Some("127.0.0.3:0"), None] {
        let explained = admin(listener);
        assert_eq!((&explained["route"]["name"], &explained["status"]), (&Value::Null, &json!(404)));
        let passed_over = explained["route"]["passed_over"].as_array().unwrap();
        let because = json!({ "name": "admin", "because": "the listener is not one of internal" });
        assert!(passed_over.contains(&because), "{explained}");
        let assumed = &explained["assumed_listener"]["listener"];
        assert_eq!(*assumed, listener.map_or(json!("public"), |_| Value::Null));
    }
    // The route is the same on all listeners.
    let routes = ["name: outside, path: /a/*", "name: inside, path: /*, listeners: [internal]"];
    let other = Tollgate::start(Config::yaml(yaml(&LISTENERS, &routes)));
    assert_eq!(explain(&other, "/a/b", None)["assumed_listener"], Value::Null);
    assert_eq!(explain(&other, "/b", None)["assumed_listener"]["listener"], "public");

    let wrong = admin(Some("intern"));
    let known = "the listeners: public (127.0.0.1:0), internal (127.0.0.2:0), 127.0.0.3:0";
    assert_eq!(wrong["detail"], format!("no listener has the name or the address intern; {known}"));

    let url = "http://a.example/admin/x";
    let ended = tollgate.command(&["explain", url, "--listener", "internal"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended
            .stdout
            .contains("route     admin: the path matches /admin/*, the listener is one of internal\n")
    );
    let ended = tollgate.command(&["explain", url]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let assumed = "listener  public: assumed, because the route depends on the listener and none is named\n";
    assert!(ended.stdout.contains(assumed), "{}", ended.stdout);
    assert!(ended.stdout.contains("          not admin: the listener is not one of internal\n"));
    let ended = tollgate.command(&["explain", url, "--listener", "intern"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
}

#[test]
fn an_explanation_assumes_a_listener_that_serves_the_request() {
    let origin = Origin::ok();
    let listeners = "listeners:
  - { address: \"127.0.0.1:0\", name: redirecting, redirect: https, max_body: 1KiB }
  - { address: \"127.0.0.2:0\", name: plain, max_body: 2KiB }
  - { address: \"127.0.0.3:0\", name: other, max_body: 3KiB }
";
    let yaml = format!(
        "{listeners}upstreams: {{ api: {{ endpoints: [\"http://{}\"] }} }}\nroutes:
  - {{ name: first, path: /*, listeners: [redirecting, other], upstream: api }}
  - {{ name: second, path: /*, upstream: api }}
",
        origin.address
    );
    let tollgate = Tollgate::start(Config::yaml(yaml));
    let explained = explain(&tollgate, "/", None);
    assert_eq!(explained["assumed_listener"]["listener"], "plain");
    assert_eq!(
        (&explained["route"]["name"], &explained["body_limit"]["max"]),
        (&json!("second"), &json!(2048))
    );
    assert_eq!(explained["listeners"][0]["listener"], "127.0.0.1:0");
    let explained = explain(&tollgate, "/", Some("redirecting"));
    assert_eq!((&explained["verdict"], &explained["status"]), (&json!("refused"), &json!(308)));
    assert_eq!(explained["because"], "listener 127.0.0.1:0 replies itself: it redirects to HTTPS");
    let explained = explain(&tollgate, "/", Some("other"));
    assert_eq!(
        (&explained["route"]["name"], &explained["body_limit"]["max"]),
        (&json!("first"), &json!(3072))
    );
    assert_eq!(explained["listeners"], json!([]));
}
