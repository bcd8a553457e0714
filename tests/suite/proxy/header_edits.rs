//! `request_headers` and `response_headers`: what a route changes in the header of the messages that it passes on.

use crate::harness::{Client, Config, Origin, Reply, Tollgate, by_http2, get};

/// A proxy whose only route has these settings beside its path.
fn start(origin: &Origin, path: &str, route: &str, settings: &str) -> Tollgate {
    Tollgate::start(Config::yaml(format!(
        "
upstreams: {{ a: {{ endpoints: [\"http://{}\"] }} }}
routes: [{{ path: \"{path}\", upstream: a, {route} }}]
{settings}
",
        origin.address
    )))
}

/// The values of a field in the head of the last request that the origin saw.
fn sent(origin: &Origin, name: &str) -> Vec<String> {
    let head = origin.heads().pop().unwrap_or_default();
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).collect()
}

/// Asks by HTTP/1.1 and by HTTP/2, and checks each time what the origin got.
fn ask_twice(tollgate: &Tollgate, path: &str, headers: &[(&str, &str)], check: impl Fn()) {
    assert_eq!(get(tollgate.address, path, headers).status, 200);
    check();
    by_http2(tollgate.address, async |mut client| {
        assert_eq!(client.get(path, headers).await.unwrap().status(), 200);
    });
    check();
}

#[test]
fn fields_are_removed_then_set_then_added() {
    let origin = Origin::ok();
    let edits = "request_headers: { add: { x-many: [three, four], x-set: more }, set: { x-set: ours, x-new: 'a b' }, \
                 remove: [x-gone, 'x-internal-*', x-many] }";
    let tollgate = start(&origin, "/*", edits, "");
    let asked = [
        ("x-set", "theirs"),
        ("x-set", "theirs too"),
        ("x_set", "theirs in disguise"),
        ("x-gone", "1"),
        ("x-internal-a", "1"),
        ("x_internal_b", "1"),
        ("x-internal", "kept"),
        ("x-many", "one"),
        ("x-kept", "kept"),
    ];
    ask_twice(&tollgate, "/", &asked, || {
        assert_eq!(sent(&origin, "x-set"), ["ours", "more"]);
        assert_eq!(sent(&origin, "x-new"), ["a b"]);
        assert_eq!(sent(&origin, "x-many"), ["three", "four"]);
        assert_eq!(
            (sent(&origin, "x-internal"), sent(&origin, "x-kept")),
            (vec!["kept".into()], vec!["kept".into()])
        );
        for gone in ["x_set", "x-gone", "x-internal-a", "x_internal_b"] {
            assert!(sent(&origin, gone).is_empty(), "{gone}");
        }
    });
}

#[test]
fn values_are_those_of_the_request() {
    let origin = Origin::ok();
    let edits = "request_headers: { set: { x-client: '{client_address}', x-user: '{user}', x-id: '<{request_id}>', \
                 x-host: '{host}', x-capture: 'id={id};{id}', x-brace: '{{}}' } }";
    let tollgate =
        start(&origin, "/users/{id}", edits, "trusted_proxies: [127.0.0.1]\nuser: [{ header: x-name }]");
    let asked = [
        ("x-forwarded-for", "2001:db8::7"),
        ("x-name", "zoe smith"),
        ("x-request-id", "mine"),
        ("x-client", "forged"),
    ];
    ask_twice(&tollgate, "/users/a%3Fb%20c", &asked, || {
        assert_eq!(sent(&origin, "x-client"), ["2001:db8::7"]);
        assert_eq!(sent(&origin, "x-user"), ["zoe smith"]);
        assert_eq!(sent(&origin, "x-id"), ["<mine>"]);
        assert_eq!(sent(&origin, "x-host").len(), 1);
        assert_eq!(sent(&origin, "x-capture"), ["id=a%3Fb%20c;a%3Fb%20c"]);
        assert_eq!(sent(&origin, "x-brace"), ["{}"]);
    });
    // Where there is no user, nobody else's word counts.
    ask_twice(&tollgate, "/users/1", &[("x-user", "forged")], || {
        assert!(sent(&origin, "x-user").is_empty());
        assert_eq!(sent(&origin, "x-client"), ["127.0.0.1"]);
    });
}

#[test]
fn a_value_with_parts_of_the_request_has_one_line() {
    let origin = Origin::ok();
    let edits =
        "request_headers: { set: { x-rest: '{rest}' } }, response_headers: { set: { x-rest: '{rest}' } }";
    let tollgate = start(&origin, "/*", edits, "");
    for (path, value) in [
        ("/a%20b", Some("a%20b")),
        ("/a%C3%A9", Some("a%C3%A9")),
        ("/é", Some("%C3%A9")),
        ("/a\u{7f}b", None),
        ("/a:b,c;\"d\"", Some("a:b,c;\"d\"")),
        ("/", None),
        ("/a%0d%0aset-cookie:%20x", Some("a%0d%0aset-cookie:%20x")),
        ("/a%00", None),
    ] {
        let reply = get(tollgate.address, path, &[("x-rest", "forged")]);
        let values: Vec<_> = reply.all("x-rest").into_iter().map(str::to_owned).collect();
        assert_eq!(values, value.into_iter().collect::<Vec<_>>(), "{path}");
        assert_eq!(reply.header("set-cookie"), None);
        if reply.status == 200 {
            assert_eq!(sent(&origin, "x-rest"), value.into_iter().collect::<Vec<_>>(), "{path}");
        } else {
            assert_eq!(reply.status, 400, "{path}");
        }
    }
}

#[test]
fn a_user_whom_nobody_has_verified_is_not_told() {
    let origin = Origin::ok();
    let edits = "request_headers: { set: { x-user: '{user}' } }";
    let tollgate = start(&origin, "/*", edits, "user: [basic]");
    // me:password
    ask_twice(&tollgate, "/", &[("authorization", "Basic bWU6cGFzc3dvcmQ="), ("x-user", "admin")], || {
        assert!(sent(&origin, "x-user").is_empty(), "{:?}", sent(&origin, "x-user"));
    });
}

#[test]
fn fields_that_tollgate_sets_can_be_changed() {
    let origin = Origin::ok();
    let edits = "request_headers: { remove: [via, x-forwarded-for], set: { x-forwarded-proto: https, x-request-id: fixed } }, \
                 response_headers: { remove: [via, x-request-id, 'ratelimit*'] }";
    let settings = "policies: { p: { algorithm: gcra, key: ip, limit: 100/1s } }";
    let tollgate = start(&origin, "/*", &format!("policies: [p], {edits}"), settings);
    let reply = get(tollgate.address, "/", &[]);
    for gone in ["via", "x-request-id", "ratelimit", "ratelimit-policy"] {
        assert_eq!(reply.header(gone), None);
    }
    assert!(sent(&origin, "via").is_empty() && sent(&origin, "x-forwarded-for").is_empty());
    assert_eq!(sent(&origin, "x-forwarded-proto"), ["https"]);
    assert_eq!(sent(&origin, "x-request-id"), ["fixed"]);
}

const EDITS: &str = "response_headers: { set: { server: ours, x-frame-options: DENY, x-for: '{client_address}' }, \
                     add: { set-cookie: a=b }, remove: [x-powered-by] }";

fn is_edited(reply: &Reply) {
    assert_eq!(reply.all("server"), ["ours"]);
    assert_eq!(reply.all("x-frame-options"), ["DENY"]);
    assert_eq!(reply.all("x-for"), ["127.0.0.1"]);
    assert_eq!(reply.header("x-powered-by"), None);
    assert_eq!(reply.all("set-cookie").last(), Some(&"a=b"));
}

#[test]
fn responses_are_changed_no_matter_who_sends_them() {
    let origin = Origin::start(|conn| {
        while conn.head()?.is_some() {
            let fields = [("server", "x"), ("server", "y"), ("x-powered-by", "z"), ("set-cookie", "c=d")];
            conn.answer("200 OK", &fields, b"ok")?;
        }
        Ok(())
    });
    let settings = "policies: { p: { algorithm: sliding_log, key: ip, limit: 1/1h } }";
    let tollgate = start(&origin, "/*", &format!("policies: [p], max_body: 1, {EDITS}"), settings);
    let mut client = Client::connect(tollgate.address);
    let forwarded = client.request("GET", "/", &[], b"");
    assert_eq!((forwarded.status, forwarded.text().as_str()), (200, "ok"));
    assert_eq!(forwarded.all("set-cookie"), ["c=d", "a=b"]);
    is_edited(&forwarded);
    let denied = client.request("GET", "/", &[], b"");
    assert_eq!(denied.status, 429);
    assert!(denied.header("retry-after").is_some());
    is_edited(&denied);
    let too_long = client.request("POST", "/", &[], b"four");
    assert_eq!(too_long.status, 413);
    is_edited(&too_long);
    drop(origin);
    // Not those of requests without a route.
    let malformed = Client::connect(tollgate.address).request("GET", "/%", &[], b"");
    assert_eq!((malformed.status, malformed.header("x-frame-options")), (400, None));
}

#[test]
fn a_response_is_changed_even_if_the_upstream_is_away() {
    let address = crate::harness::nobody();
    let yaml = format!(
        "upstreams: {{ a: {{ endpoints: [\"http://{address}\"] }} }}\nroutes: [{{ path: /*, upstream: a, {EDITS} }}]\n"
    );
    let tollgate = Tollgate::start(Config::yaml(yaml));
    let reply = get(tollgate.address, "/", &[]);
    assert_eq!(reply.status, 502);
    is_edited(&reply);
}

#[test]
fn trailers_bring_nothing_back() {
    let origin = Origin::echo();
    let edits =
        "trailers: pass, request_headers: { set: { x-set: a }, remove: ['x-in-*'], add: { x-add: b } }";
    let tollgate = start(&origin, "/*", edits, "");
    let mut client = Client::connect(tollgate.address);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntrailer: x-set, x_set, x-in-a, x-sum\r\n\r\n\
         1\r\na\r\n0\r\nx-set: forged\r\nx_set: forged\r\nx-in-a: forged\r\nx-sum: 1\r\n\r\n");
    let trailers = client.reply().json()["trailers"].to_string();
    assert!(trailers.contains("x-sum") && !trailers.contains("forged"), "{trailers}");

    let origin = Origin::saying(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-gone, x-kept\r\n\r\n1\r\na\r\n0\r\nx-gone: 1\r\nx-kept: 1\r\n\r\n",
    );
    let tollgate = start(&origin, "/*", "trailers: pass, response_headers: { remove: [x-gone] }", "");
    let mut client = Client::sending(tollgate.address, "GET / HTTP/1.1\r\nhost: a\r\nte: trailers\r\n\r\n");
    client.head();
    while client.chunk().unwrap().is_some() {}
    let trailers = client.trailers().unwrap();
    assert_eq!(trailers, [("x-kept".to_owned(), "1".to_owned())]);
}

#[test]
fn edits_of_fields_that_frame_a_message_are_refused() {
    for edits in [
        "request_headers: { set: { host: x } }",
        "request_headers: { set: { Content-Length: '5' } }",
        "request_headers: { remove: [transfer-encoding] }",
        "request_headers: { remove: ['*'] }",
        "request_headers: { remove: ['con*'] }",
        "request_headers: { add: { ':path': /x } }",
        "request_headers: { set: { x-a: \"b\\r\\nc: d\" } }",
        "response_headers: { set: { connection: close } }",
        "response_headers: { set: { x-a: '{rest}{nothing}' } }",
        "response_headers: { x-frame-options: DENY }",
    ] {
        let yaml = format!(
            "upstreams: {{ a: {{ endpoints: [\"http://127.0.0.1:1\"] }} }}\nroutes: [{{ path: /*, upstream: a, {edits} }}]\n"
        );
        let (code, _) = Tollgate::refuses(Config::yaml(yaml));
        assert_eq!(code, Some(78), "{edits}");
    }
}
