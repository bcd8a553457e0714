//! What belongs to one connection stays on it, and what must go on does, in both directions.

use crate::harness::{Client, Config, Origin, Reply, Tollgate, get, get_from};

/// A request as the origin sees it: names and values of its fields, in the order in which they came.
fn seen(fields: &str) -> Vec<(String, String)> {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut client = Client::connect(tollgate.address);
    client.send(format!("GET /a HTTP/1.1\r\nhost: a.example\r\n{fields}\r\n"));
    assert_eq!(client.reply().status, 200, "{fields:?}");
    let head = origin.heads()[0].clone();
    head.split("\r\n")
        .skip(1)
        .map(|line| line.split_once(": ").unwrap_or((line, "")))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect()
}

fn names(fields: &[(String, String)]) -> Vec<&str> {
    fields.iter().map(|(name, _)| name.as_str()).collect()
}

/// An answer with these fields, as the client sees it.
fn answered(fields: &str) -> Reply {
    let origin = Origin::saying(format!("HTTP/1.1 200 OK\r\n{fields}content-length: 2\r\n\r\nok"));
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    get(tollgate.address, "/", &[])
}

/// What the proxy adds to every request.
const ADDED: [&str; 6] =
    ["host", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "via", "x-request-id"];

#[test]
fn fields_that_connection_names_are_not_passed_on() {
    let fields = seen(
        "Connection: keep-alive, X-Mine\r\nX-Mine: 1\r\nx-mine: 2\r\nconnection: x-other,,x-third\r\nX-Other: 1\r\nx-third: 1\r\nx-stays: 1\r\n",
    );
    let mut expected = ADDED.to_vec();
    expected.insert(1, "x-stays");
    assert_eq!(names(&fields), expected);
}

#[test]
fn fields_of_the_connection_are_not_passed_to_the_origin() {
    let fields = seen(
        "keep-alive: timeout=5\r\nproxy-connection: keep-alive\r\nproxy-authorization: Basic eDp5\r\nte: gzip\r\nupgrade: websocket\r\nproxy-authenticate: Basic\r\n",
    );
    assert_eq!(names(&fields), ADDED);
}

#[test]
fn a_change_to_http_2_is_not_passed_to_the_origin() {
    for fields in [
        "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
        "upgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
        "connection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
    ] {
        assert_eq!(names(&seen(fields)), ADDED, "{fields:?}");
    }
}

#[test]
fn a_connection_whose_upgrade_was_passed_over_serves_the_next_request() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut client = Client::connect(tollgate.address);
    let upgrade = [("connection", "upgrade"), ("upgrade", "h2c")];
    assert_eq!(client.request("GET", "/", &upgrade, b"").status, 200);
    assert_eq!(client.request("GET", "/", &[], b"").text(), "ok");
}

#[test]
fn credentials_for_the_origin_are_passed_on() {
    let fields = seen("authorization: Bearer x\r\ncookie: a=b\r\ncookie: c=d\r\n");
    assert_eq!(names(&fields)[1..4], ["authorization", "cookie", "cookie"]);
}

#[test]
fn connection_can_not_take_what_the_proxy_adds() {
    let fields = seen("connection: x-forwarded-for, x-request-id, via, x-forwarded-host, host\r\n");
    assert_eq!(names(&fields), ADDED);
}

#[test]
fn fields_of_the_origins_connection_are_not_passed_to_the_client() {
    let reply = answered(
        "Connection: X-Internal, close\r\nx-internal: 1\r\nkeep-alive: timeout=5\r\nproxy-authenticate: Basic\r\nupgrade: h2c\r\nproxy-connection: close\r\nx-stays: 1\r\nset-cookie: a=b\r\nset-cookie: c=d\r\n",
    );
    let gone =
        ["x-internal", "keep-alive", "proxy-authenticate", "upgrade", "proxy-connection", "connection"];
    assert!(gone.iter().all(|name| reply.header(name).is_none()), "{reply:?}");
    assert_eq!((reply.header("x-stays"), reply.all("set-cookie")), (Some("1"), vec!["a=b", "c=d"]));
}

#[test]
fn an_origin_that_closes_does_not_close_the_client() {
    let origin = Origin::saying("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok");
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let mut client = Client::connect(tollgate.address);
    for _ in 0..3 {
        assert_eq!(client.request("GET", "/", &[], b"").text(), "ok");
    }
    assert_eq!(origin.connections(), 3);
}

#[test]
fn via_names_the_proxy_in_both_directions() {
    let fields = seen("via: 1.0 before\r\nvia: 1.1 between\r\n");
    assert!(fields.contains(&("via".into(), "1.0 before, 1.1 between, 1.1 tollgate".into())), "{fields:?}");
    assert_eq!(answered("via: 1.1 inner\r\n").header("via"), Some("1.1 inner, 1.1 tollgate"));
}

/// The trailers of a request with these, as the origin sees them, and whether they were announced to it.
fn trailers_seen(settings: &str, trailers: &[(&str, &str)]) -> (Vec<String>, bool) {
    let origin = Origin::echo();
    let tollgate = Tollgate::start(Config::new(&[origin.address], settings));
    let names: Vec<_> = trailers.iter().map(|(name, _)| *name).collect();
    let lines: String = trailers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let mut client = Client::connect(tollgate.address);
    client.send(format!(
        "POST / HTTP/1.1\r\nhost: a\r\ntrailer: {}\r\ntransfer-encoding: chunked\r\n\r\n",
        names.join(", ")
    ));
    client.send(format!("5\r\nhello\r\n0\r\n{lines}\r\n"));
    let echoed = client.reply().json();
    assert_eq!(echoed["body"], "hello");
    // The connection goes on.
    assert_eq!(client.request("GET", "/b", &[], b"").json()["target"], "/b");
    let seen = echoed["trailers"].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned());
    (seen.collect(), origin.heads()[0].contains("\r\ntrailer:"))
}

#[test]
fn trailers_are_dropped_unless_they_shall_pass() {
    let sum = [("x-sum", "42")];
    assert_eq!(trailers_seen("", &sum), (vec![], false));
    assert_eq!(trailers_seen("trailers: drop\n", &sum), (vec![], false));
    assert_eq!(trailers_seen("trailers: pass\n", &sum), (vec!["x-sum: 42".to_owned()], true));
}

#[test]
fn a_route_may_pass_trailers() {
    let origin = Origin::echo();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "upstreams:\n  a: {{ endpoints: [\"http://{}\"] }}\nroutes:\n  - {{ path: /sums, upstream: a, trailers: pass }}\n  - {{ path: /*, upstream: a }}\n",
        origin.address
    )));
    for (path, trailers) in [("/sums", serde_json::json!(["x-sum: 42"])), ("/", serde_json::json!([]))] {
        let mut client = Client::connect(tollgate.address);
        client.send(format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n"
        ));
        client.send("5\r\nhello\r\n0\r\nx-sum: 42\r\n\r\n");
        assert_eq!(client.reply().json()["trailers"], trailers, "{path}");
    }
}

#[test]
fn trailers_that_were_not_announced_do_not_hold_the_request_up() {
    for settings in ["", "trailers: pass\n"] {
        let origin = Origin::echo();
        let tollgate = Tollgate::start(Config::new(&[origin.address], settings));
        let mut client = Client::connect(tollgate.address);
        client.send(
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: 1\r\n\r\n",
        );
        assert_eq!(client.reply().json()["body"], "hello");
        assert_eq!(client.request("GET", "/b", &[], b"").json()["target"], "/b");
    }
}

/// What is removed from a head, what identifies clients, and what any setting goes by: an origin that merges trailers into
/// the head would find there what no limit has seen.
#[test]
fn trailers_can_not_say_what_only_a_head_may() {
    const SETTINGS: &str = "
trailers: pass
trusted_proxies: [192.0.2.1]
client_address: { header: fastly-client-ip }
request_id: x-correlation-id
user:
  - { header: x-user-id }
  - { header: x-name, from: anyone }
policies:
  key: { algorithm: gcra, key: \"header:x-api-key\", limit: 9/1s, cost: { header: x-cost, default: 1, max: 9 } }
  plan: { algorithm: gcra, key: ip, limit: 9/1s, exempt: [\"header:x-plan=gold\"] }
  tenants: { algorithm: distinct, key: ip, value: \"header:x-tenant\", limit: 9/1s }
bans:
  hammering: { key: ip, after: 20/1m, for: 5m, exempt: [\"header:x-monitor=1\"] }
";
    let forbidden = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "authorization",
        "cookie",
        "x-forwarded-for",
        "X_Forwarded_For",
        "forwarded",
        "x-real-ip",
        "fastly-client-ip",
        "x-correlation-id",
        "x-user-id",
        "X_User_Id",
        "x-name",
        "x-api-key",
        "x-cost",
        "x-plan",
        "x-tenant",
        "x-monitor",
        "x-http-method-override",
        "traceparent",
    ];
    let mut trailers: Vec<_> = forbidden.iter().map(|name| (*name, "3")).collect();
    trailers.push(("x-fine", "1"));
    for settings in [SETTINGS, &SETTINGS.replace("192.0.2.1", "127.0.0.1")] {
        assert_eq!(trailers_seen(settings, &trailers).0, ["x-fine: 1"], "trusted or not");
    }
}

/// The trailers of an answer with this head and these trailers, as a client that takes them sees them.
fn trailers_answered(settings: &str, head: &str, trailers: &str) -> Vec<String> {
    let origin = Origin::saying(format!(
        "HTTP/1.1 200 OK\r\n{head}transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n{trailers}\r\n"
    ));
    let tollgate = Tollgate::start(Config::new(&[origin.address], settings));
    let reply = get(tollgate.address, "/", &[("te", "trailers"), ("connection", "te")]);
    assert_eq!(reply.text(), "hello");
    assert!(origin.heads()[0].contains("\r\nte: trailers"), "{:?}", origin.heads());
    reply.trailers.into_iter().map(|(name, value)| format!("{name}: {value}")).collect()
}

#[test]
fn trailers_reach_a_client_that_takes_them() {
    let (head, trailers) = ("trailer: x-sum\r\n", "x-sum: 42\r\n");
    assert_eq!(trailers_answered("trailers: pass\n", head, trailers), ["x-sum: 42"]);
    assert_eq!(trailers_answered("", head, trailers), [""; 0]);
    let origin = Origin::saying(format!(
        "HTTP/1.1 200 OK\r\n{head}transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n{trailers}\r\n"
    ));
    let tollgate = Tollgate::start(Config::new(&[origin.address], "trailers: pass\n"));
    let reply = get(tollgate.address, "/", &[("te", "gzip"), ("connection", "te")]);
    assert_eq!((reply.text().as_str(), reply.trailers.len()), ("hello", 0));
    assert!(!origin.heads()[0].contains("\r\nte:"), "{:?}", origin.heads());
}

#[test]
fn grpcs_trailers_always_reach_the_client() {
    let head = "content-type: application/grpc+proto\r\ntrailer: grpc-status, grpc-message, x-debug\r\n";
    let trailers = "grpc-status: 0\r\ngrpc-message: ok\r\nx-debug: 1\r\n";
    assert_eq!(trailers_answered("", head, trailers), ["grpc-status: 0", "grpc-message: ok", "x-debug: 1"]);
}

#[test]
fn trailers_of_an_answer_can_not_speak_of_the_connection() {
    let head = "trailer: connection, upgrade, set-cookie, x-fine\r\n";
    let trailers = "connection: close\r\nupgrade: h2c\r\nset-cookie: a=b\r\nx-fine: 1\r\n";
    assert_eq!(trailers_answered("trailers: pass\n", head, trailers), ["x-fine: 1"]);
}

#[test]
fn a_client_s_request_id_is_replaced_on_both_sides() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::new(&[origin.address], ""));
    let first = get(tollgate.address, "/", &[("x-request-id", "mine"), ("x_request_id", "mine")]);
    let second = get(tollgate.address, "/", &[]);
    let id = first.header("x-request-id").unwrap().to_owned();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert_ne!(second.header("x-request-id"), Some(id.as_str()));
    assert!(origin.heads()[0].contains(&format!("\r\nx-request-id: {id}")), "{:?}", origin.heads());
    assert!(!origin.heads()[0].contains("mine"), "{:?}", origin.heads());
}

/// Services that know a field by its letters and digits alone would take each for the real one.
#[test]
fn no_spelling_of_what_only_trusted_proxies_may_say_reaches_a_service() {
    let origin = Origin::ok();
    let settings = "trusted_proxies: [192.0.2.1]\nuser: [{ header: x-user-id }]\ntrusted_headers: [x-plan]\n";
    let tollgate = Tollgate::start(Config::new(&[origin.address], settings));
    let names = ["x_user_id", "x.user.id", "x-plan!", "x~plan", "x_forwarded.for", "x.real.ip"];
    let fields: Vec<_> = names.iter().map(|name| (*name, "mallory")).collect();
    get(tollgate.address, "/", &fields);
    let head = &origin.heads()[0];
    let passed = names.iter().filter(|name| head.contains(&format!("\r\n{name}: mallory")));
    assert_eq!(passed.collect::<Vec<_>>(), [&"x-plan!"], "that is another one");
}

/// A proxy in front sets `X-User-Id`, and passes on what it takes for another field.
#[test]
fn no_other_spelling_of_what_a_trusted_proxy_says_reaches_a_service() {
    let origin = Origin::ok();
    let settings = "trusted_proxies: [127.0.0.1]\nuser: [{ header: x-user-id }]\ntrusted_headers: [x-plan]\n";
    let tollgate = Tollgate::start(Config::new(&[origin.address], settings));
    let names = ["x_user_id", "X.User.Id", "x~plan", "X_Forwarded.For", "x.real.ip", "x_request_id"];
    let mut fields: Vec<_> = names.iter().map(|name| (*name, "mallory")).collect();
    let said =
        [("x-user-id", "ann"), ("x-plan", "free"), ("x-real-ip", "192.0.2.7"), ("x-request-id", "r-1")];
    fields.extend(said);
    get(tollgate.address, "/", &fields);
    let head = &origin.heads()[0];
    assert!(!head.contains("mallory"), "{head}");
    for (name, value) in said {
        assert!(head.contains(&format!("\r\n{name}: {value}\r\n")), "{name} in {head}");
    }
}

#[test]
fn what_only_trusted_proxies_may_say_chooses_no_route_and_no_limit_of_others() {
    let origin = Origin::ok();
    let tollgate = Tollgate::start(Config::yaml(format!(
        "trusted_proxies: [127.0.0.2]
trusted_headers: [x-plan]
policies: {{ by-plan: {{ algorithm: fixed_window, key: \"header:x-plan\", missing: ip, limit: 2/1d }} }}
upstreams: {{ a: {{ endpoints: [\"http://{}\"], policies: [by-plan] }} }}
routes: [{{ name: gold, path: /*, headers: {{ x-plan: gold }}, upstream: a }}, {{ name: rest, path: /*, upstream: a }}]
",
        origin.address
    )));
    for (source, plan, route, key) in [
        ("127.0.0.2", "gold", "gold", "header:x-plan=gold"),
        ("127.0.0.2", "pro", "rest", "header:x-plan=pro"),
        ("127.0.0.1", "gold", "rest", "ip:127.0.0.1"),
        ("127.0.0.1", "pro", "rest", "ip:127.0.0.1"),
    ] {
        let fields = [("x-plan", plan), ("x_plan", plan)];
        assert_eq!(get_from(source, tollgate.address, "/", &fields).status, 200);
        let field = format!("x-plan: {plan}");
        let explained = tollgate.command(&["explain", "--peer", source, "-H", &field, "/"]).stdout;
        assert!(explained.contains(&format!("route     {route}")), "{explained}");
        assert!(explained.contains(key), "{key}: {explained}");
        let is_left_out = explained.contains("its x-plan is ignored, because it is not a trusted proxy");
        assert_eq!(is_left_out, source == "127.0.0.1", "{explained}");
    }
    // Both plans of the untrusted client were counted as one address.
    assert_eq!(get_from("127.0.0.1", tollgate.address, "/", &[("x-plan", "free")]).status, 429);
}

#[test]
fn a_request_id_of_a_trusted_proxy_is_kept() {
    let origin =
        Origin::saying("HTTP/1.1 200 OK\r\nx-request-id: the-origins\r\ncontent-length: 2\r\n\r\nok");
    let tollgate = Tollgate::start(Config::new(
        &[origin.address],
        "trusted_proxies: [127.0.0.1]\nrequest_id: x-request-id\n",
    ));
    let reply = get(tollgate.address, "/", &[("x-request-id", "gateway-1")]);
    assert_eq!(reply.all("x-request-id"), ["gateway-1"]);
    assert_eq!(origin.heads()[0].matches("x-request-id: gateway-1").count(), 1, "{:?}", origin.heads());
}
