//! Small files, and the routes and notes that become of them: every kind of fault that conversions had.

use std::path::Path;

use super::convert;
use crate::offline::convert::Conversion;

fn converted(text: &str) -> Conversion {
    convert(text, Path::new("/nowhere/nginx.conf")).unwrap().finish("", None)
}

/// The items of `routes` but for TRACE, in one line each, and the notes without their places.
fn routes(text: &str) -> (Vec<String>, Vec<String>) {
    let conversion = converted(text);
    let section = conversion.yaml.split("routes:\n").nth(1).unwrap_or_default();
    let section = section.split("\n\n").next().unwrap_or_default();
    let mut items: Vec<String> = Vec::new();
    for line in section.lines().filter(|line| !line.trim_start().starts_with('#')) {
        match (line.strip_prefix("  - "), items.last_mut()) {
            (Some(begin), _) => {
                let inner = begin.strip_prefix("{ ").and_then(|begin| begin.strip_suffix(" }"));
                items.push(inner.unwrap_or(begin).to_owned());
            }
            (None, Some(item)) => *item += &format!(", {}", line.trim()),
            (None, None) => {}
        }
    }
    items.retain(|item| !item.contains("methods: [CONNECT, TRACE]"));
    (items, conversion.unconverted.into_iter().map(|note| note.text).collect())
}

/// The routes of a server with these directives.
fn server(text: &str) -> Vec<String> {
    routes(&format!("server {{ listen 80; {text} }}")).0
}

/// Whether all requests of the server are closed or refused, and a note says so.
fn is_closed(text: &str) -> bool {
    let (routes, notes) = routes(&format!("server {{ listen 80; {text} }}"));
    let is_closed = |route: &String| route.contains("reply: { status: 501 }") || route.contains("status: 40");
    !notes.is_empty() && !routes.is_empty() && routes.iter().all(is_closed)
}

const PROXY: &str = "location / { proxy_pass http://a; }";
const TO_A: &str = "path: /*, upstream: a";

#[test]
fn conditions_refuse_at_least_what_nginx_refuses() {
    for (condition, expected) in [
        ("$request_method = POST", &["path: /*, methods: [POST], reply: { status: 403 }", TO_A][..]),
        (
            "$request_method !~ ^(GET|HEAD)$",
            &["path: /*, methods: [GET], upstream: a", "path: /*, reply: { status: 403 }"],
        ),
        (
            "$request_method ~ ^P",
            &[
                "path: /*, methods: [PATCH, POST, PROPFIND, PROPPATCH, PURGE, PUT], reply: { status: 403 }",
                "path: /*, methods: [COPY, DELETE, GET, LOCK, MKCOL, MOVE, OPTIONS, REPORT, UNLOCK], upstream: a",
                "path: /*, reply: { status: 403 }",
            ],
        ),
        ("$host = b.com", &["hosts: [b.com], path: /*, reply: { status: 403 }", TO_A]),
        ("$host != b.com", &["hosts: [b.com], path: /*, upstream: a", "path: /*, reply: { status: 403 }"]),
        (r"$host ~ ^(www\.)?b\.com$", &["hosts: [b.com, www.b.com], path: /*, reply: { status: 403 }", TO_A]),
        ("$http_x_key = k", &["path: /*, headers: { x-key: k }, reply: { status: 403 }", TO_A]),
        ("$uri ~ ^/app", &["path: \"~^/app\", reply: { status: 403 }", TO_A]),
        ("$remote_addr = 192.0.2.1", &["path: /*, upstream: a, deny: [192.0.2.1]"]),
        (r"$remote_addr ~ ^10\.(1|2)\.", &["path: /*, upstream: a, deny: [10.1.0.0/16, 10.2.0.0/16]"]),
        ("$scheme = http", &["path: /*, reply: { status: 403 }"]),
        ("$https = on", &[TO_A]),
        // These cannot be told.
        ("$cookie_a != yes", &["path: /*, reply: { status: 403 }"]),
        ("$arg_x = 1", &["path: /*, reply: { status: 403 }"]),
        ("$request_uri ~* debug", &["path: /*, reply: { status: 403 }"]),
        ("$http_x_key = \"\"", &["path: /*, reply: { status: 403 }"]),
        ("$http_x_key", &["path: /*, reply: { status: 403 }"]),
        ("$http_user_agent ~* (bot|crawl)", &["path: /*, reply: { status: 403 }"]),
        ("$ssl_client_verify != SUCCESS", &["path: /*, reply: { status: 403 }"]),
        ("$unknown = 1", &["path: /*, reply: { status: 403 }"]),
        ("-f $request_filename", &["path: /*, reply: { status: 403 }"]),
    ] {
        assert_eq!(server(&format!("if ({condition}) {{ return 403; }} {PROXY}")), expected, "{condition}");
    }
    let found = server(&format!("if ($request_uri ~ ^/x$) {{ return 301 /y; }} {PROXY}"));
    assert_eq!(found, ["path: /x, reply: { status: 501 }", TO_A]);
}

#[test]
fn variables_are_followed() {
    let tables = "geo $in { default 0; 10.0.0.0/8 1; 10.1.0.0/16 0; }
                  map $host $to { a.com one; b.com two; default one; }
                  map $request_method $plan { POST $in; default x; }";
    let of = |text: &str| routes(&format!("{tables} server {{ listen 80; {text} }}")).0;
    let found = of(&format!("if ($in = 1) {{ return 403; }} {PROXY}"));
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("deny:, - 10.0.0.0/16, - 10.2.0.0/15, "), "{found:?}");
    let found = of("location / { proxy_pass http://$to; }");
    assert_eq!(found[1..], ["hosts: [b.com], path: /*, upstream: two", "path: /*, upstream: one"]);
    let found = of(&format!("if ($plan = 0) {{ return 403; }} {PROXY}"));
    assert!(found[0].starts_with("path: /*, methods: [POST], upstream: a, allow:"), "{found:?}");
    // Two conditions in steps, and a name that begins another.
    let steps = "set $t \"\"; set $remote x; if ($request_method = POST) { set $t A; } if ($host = a.com) { set $t \"${t}B\"; }
                 if ($t = AB) { return 405; }";
    let found =
        server(&format!("{steps} location / {{ proxy_set_header X-A $remote_addr; proxy_pass http://a; }}"));
    assert_eq!(
        found,
        [
            "hosts: [a.com], path: /*, methods: [POST], reply: { status: 405 }",
            "path: /*, upstream: a, request_headers: { set: { x-a: \"{client_address}\" } }",
        ]
    );
}

#[test]
fn listeners_keep_to_their_own_servers() {
    let text = "server { listen 80; server_name a.com; location / { proxy_pass http://a; } }
                server { listen 80; server_name .b.com; return 301 https://$host$request_uri; }
                server { listen 127.0.0.1:8080; server_name a.com; location / { proxy_pass http://inner; } }
                server { listen 127.0.0.1:8080 default_server; return 403; }";
    assert_eq!(
        routes(text).0,
        [
            "listeners: [\"80\"], hosts: [b.com, \"*.b.com\"], path: /*, redirect: { scheme: https, status: 301 }",
            "listeners: [\"80\"], path: /*, upstream: a",
            "listeners: [\"127.0.0.1-8080\"], hosts: [a.com], path: /*, upstream: inner",
            "listeners: [\"127.0.0.1-8080\"], path: /*, reply: { status: 403 }",
        ]
    );
    // Exact names, then the longest with a star, then expressions.
    let text = "server { listen 80; server_name *.com; location / { proxy_pass http://a; } }
                server { listen 80; server_name *.b.com; location / { proxy_pass http://b; } }
                server { listen 80; server_name x.b.com; location / { proxy_pass http://x; } }
                server { listen 80; server_name ~^v\\d+\\.net$; location / { proxy_pass http://v; } }
                server { listen 80; server_name ~.*\\.org$; location / { proxy_pass http://o; } }";
    let (found, notes) = routes(text);
    assert_eq!(
        found[..3],
        [
            "hosts: [x.b.com], path: /*, upstream: x",
            "hosts: [\"*.b.com\"], path: /*, upstream: b",
            "hosts: [\"*.com\"], path: /*, upstream: a",
        ]
    );
    assert_eq!(found[3], "hosts: [\"*.net\", \"*.org\"], path: /*, reply: { status: 501 }");
    assert_eq!(notes.len(), 2);
    let text = "server { listen 80; return 404; } server { listen 80; server_name b.*; location / { proxy_pass http://b; } }";
    assert_eq!(routes(text).0, ["path: /*, reply: { status: 501 }"]);
    // An address beside all addresses of a port cannot be told apart.
    let text = format!(
        "server {{ listen 80; {PROXY} }} server {{ listen 127.0.0.1:80; location / {{ proxy_pass http://b; }} }}"
    );
    let (found, notes) = routes(&text);
    assert_eq!((found, notes.len()), (vec![format!("{TO_A}, deny: [127.0.0.0/8, \"::1\"]")], 1));
    let (found, _) = routes(&text.replace("127.0.0.1", "192.0.2.1"));
    assert_eq!(found, ["path: /*, reply: { status: 501 }"]);
}

#[test]
fn certificates_of_clients_are_inherited() {
    let tls = "ssl_certificate c; ssl_certificate_key k;";
    let text = |http: &str, server: &str| {
        converted(&format!("http {{ {tls} {http} server {{ listen 443 ssl; {server} {PROXY} }} }}")).yaml
    };
    let found = text("ssl_client_certificate ca.pem;", "ssl_verify_client on;");
    assert!(
        found.contains("client_ca: /nowhere/ca.pem") && found.contains("path: /*, upstream: a"),
        "{found}"
    );
    assert!(!found.contains("client_auth"), "{found}");
    let found = text("ssl_client_certificate ca.pem; ssl_verify_client optional;", "");
    assert!(found.contains("client_auth: optional"), "{found}");
    for closed in [
        text("ssl_trusted_certificate ca.pem;", "ssl_verify_client on;"),
        text("ssl_client_certificate ca.pem;", "ssl_verify_client optional_no_ca;"),
        text("ssl_client_certificate ca.pem; ssl_crl crl.pem;", "ssl_verify_client on;"),
        text(
            "ssl_client_certificate ca.pem;",
            "ssl_verify_client on; location / { proxy_pass http://a; } } server { listen 443; server_name b.com;",
        ),
    ] {
        assert!(closed.contains("reply: { status: 501 }"), "{closed}");
    }
    let rejecting = format!(
        "server {{ listen 443 ssl default_server; ssl_reject_handshake on; }} \
         server {{ listen 443; server_name a.com; {tls} {PROXY} }}"
    );
    assert_eq!(
        routes(&rejecting).0,
        ["hosts: [a.com], path: /*, upstream: a", "path: /*, reply: { status: 421 }"]
    );
}

#[test]
fn locations_are_chosen_as_nginx_does() {
    let found = server(
        "location / { return 200 root; } location /a/ { return 200 a; location ~ x$ { return 200 inner; } }
         location ^~ /s/ { return 200 s; } location ~ y$ { return 200 y; } location = /e { return 200 e; }",
    );
    let texts: Vec<String> = found
        .iter()
        .map(|route| {
            let path = route.split(", reply").next().unwrap().trim_start_matches("path: ");
            let text = route.split("body: ").nth(1).unwrap().trim_end_matches(" }").trim_matches('"');
            format!("{path} {text}")
        })
        .collect();
    assert_eq!(
        texts,
        ["/e e", "\"~^/a/.*x$\" inner", "\"~^/a/.*y$\" y", "/a/* a", "/s/* s", "\"~y$\" y", "/* root"]
    );
    // Nested alternatives stay in their location, and flags theirs.
    // `^~` stops the expressions of its own level only.
    let nested = "location /o { location ^~ /o/a { proxy_pass http://a; } location ~ b { deny all; } proxy_pass http://a; }
         location ~ c { deny all; }";
    let path = |nested: &str| nested.split(", reply: { status: 403 }").next().map(str::to_owned);
    assert_eq!(path(&server(nested)[0]).as_deref(), Some("path: \"~^/o/a.*c\""));
    let nested = server(
        "location /o/ { location ~ a|b { deny all; } proxy_pass http://a; } location / { proxy_pass http://b; }",
    );
    assert_eq!(nested[1], "path: \"~^/o/.*(?:a|b)\", reply: { status: 403 }");
    // What has no equal closes, and what can never match is left out.
    assert!(is_closed("location ~ ^/(?!public)x { deny all; } location / { proxy_pass http://a; }"));
    assert_eq!(server(&format!("location ~ ^api/ {{ deny all; }} {PROXY}")), [TO_A]);
    let encoded = server("location ~ ^/é/ { proxy_pass http://a; } location ~ é$ { deny all; }");
    assert_eq!(encoded, ["path: /%C3%A9/*, upstream: a", "path: /*, reply: { status: 501 }"]);
}

#[test]
fn a_prefix_without_its_slash_is_redirected() {
    let found = server(
        "location /app/ { allow 10.0.0.0/8; deny all; proxy_pass http://a; } location / { proxy_pass http://b; }",
    );
    assert_eq!(
        found,
        [
            "path: /app, redirect: { path: /app/, status: 301 }",
            "path: /app/*, upstream: a, allow: [10.0.0.0/8]",
            "path: /*, upstream: b",
        ]
    );
    assert_eq!(server("location /app/ { return 204; }"), ["path: /app/*, reply: { status: 204 }"]);
    let found = server("location /app/ { proxy_pass http://a; } location = /app { return 204; }");
    assert_eq!(found[0], "path: /app, reply: { status: 204 }");
}

#[test]
fn rewrites_run_in_their_order() {
    for (text, expected) in [
        (
            "location /s/ { rewrite ^/s/(.*)$ /$1 break; proxy_pass http://a; }",
            "path: /s/*, upstream: a, rewrite: { strip_prefix: /s }",
        ),
        (
            "location /s/ { proxy_pass http://a/v2/; }",
            "path: /s/*, upstream: a, rewrite: { path: \"/v2/{rest}\" }",
        ),
        // `break` ends the directives of this phase, and the path of `proxy_pass` does not count behind it.
        (
            "location /s/ { rewrite ^/s/(.*)$ /t/$1 break; return 403; proxy_pass http://a/v2/; }",
            "path: /s/*, upstream: a, rewrite: { path: \"/t/{rest}\" }",
        ),
        (
            "location /p/ { rewrite ^/p/v([0-9]+)/(.*)$ /$2/v$1 break; proxy_pass http://a; }",
            "path: \"~^/p/v(?P<p1>[0-9]+)/(?P<p2>.*)$\", upstream: a, rewrite: { path: \"/{p2}/v{p1}\" }",
        ),
        (
            "location = /x { rewrite ^/(.*)$ /$1-$1 break; proxy_pass http://a; }",
            "path: /x, upstream: a, rewrite: { path: /x-x }",
        ),
        (
            "rewrite ^/old/(.*)$ /new/$1 last; location /new/ { proxy_pass http://a; } location /old/ { deny all; }",
            "path: /old/*, upstream: a, rewrite: { path: \"/new/{rest}\" }",
        ),
        (
            "rewrite ^/old/(.*)$ /new/$1 last; location /new/x/ { deny all; } location / { proxy_pass http://a; }",
            "path: /old/x/*, reply: { status: 403 }",
        ),
        (
            "location /i { rewrite ^ /index last; } location = /index { internal; proxy_pass http://a; }",
            "path: /index, reply: { status: 404 }",
        ),
        (
            "rewrite ^/go/(.*)$ https://b.com/$1 permanent; location / { proxy_pass http://a; }",
            "path: \"~^/go/(?P<p1>.*)$\", redirect: { to: \"https://b.com/{p1}\", status: 301 }",
        ),
        (
            "location /g/ { rewrite ^/(.*)$ /x/$1 redirect; }",
            "path: \"~^/g/(?P<p1>.*)$\", redirect: { path: \"/x/g/{p1}\", status: 302 }",
        ),
        (
            "location ~ ^/u/([a-z]+)$ { return 301 /user/$1; }",
            "path: \"~^/u/(?P<p1>[a-z]+)$\", redirect: { path: \"/user/{p1}\", status: 301, query: drop }",
        ),
        (
            "location ~ ^/u/([a-z]+)$ { proxy_pass http://a/x/$1$is_args$args; }",
            "path: \"~^/u/(?P<p1>[a-z]+)$\", upstream: a, rewrite: { path: \"/x/{p1}\" }",
        ),
        ("location / { proxy_pass http://a$request_uri; }", TO_A),
        ("location / { set $x http://a; proxy_pass $x; }", TO_A),
    ] {
        let found = server(text);
        assert!(found.iter().any(|route| route == expected), "{text}: {found:#?}");
    }
    for text in [
        "location / { rewrite ^/(.*)$ /x?q=$1 break; proxy_pass http://a; }",
        "location / { proxy_pass http://a/b?c=1; }",
        "location / { rewrite ^/(.*)$ /$1 last; proxy_pass http://a; }",
        "location / { set $x a; proxy_pass http://$x/fixed; }",
        "location / { if ($http_x ~ (.*)) { rewrite ^ /$1 break; } proxy_pass http://a; }",
    ] {
        assert!(is_closed(text), "{text}: {:?}", server(text));
    }
}

#[test]
fn blocks_of_if_take_the_place_of_the_location_s() {
    let found = server(
        "location / { add_header X-A outer always; if ($http_b = yes) { add_header X-A inner always; }
           if ($http_x_k = 1) { proxy_pass http://b; } proxy_pass http://a; }",
    );
    assert_eq!(
        found,
        [
            "path: /*, headers: { b: \"yes\", x-k: \"1\" }, upstream: b, response_headers: { add: { x-a: outer } }",
            "path: /*, headers: { b: \"yes\" }, upstream: a, response_headers: { add: { x-a: inner } }",
            "path: /*, headers: { x-k: \"1\" }, upstream: b, response_headers: { add: { x-a: outer } }",
            "path: /*, upstream: a, response_headers: { add: { x-a: outer } }",
        ]
    );
}

#[test]
fn checks_that_tollgate_does_not_know_close() {
    for directive in [
        "auth_basic x; auth_basic_user_file f;",
        "auth_request /auth;",
        "auth_jwt x;",
        "auth_ldap x;",
        "auth_pam x;",
        "auth_digest x;",
        "access_by_lua_block { --[[ } ]] ngx.exit(403) }",
        "rewrite_by_lua_file f;",
        "secure_link $arg_x;",
        "modsecurity on;",
        "sub_filter a b;",
        "proxy_method POST;",
        "proxy_set_body x;",
        "no_such_directive on;",
        "include missing.conf;",
        "include missing/*.conf;",
        "proxy_set_header Host $http_x;",
    ] {
        let location = format!("location / {{ {directive} proxy_pass http://a; }}");
        assert!(is_closed(&location), "{directive}: {:?}", server(&location));
        assert!(is_closed(&format!("{directive} {PROXY}")), "{directive}");
        let http = format!("http {{ {directive} server {{ {PROXY} }} }}");
        assert_eq!(routes(&http).0, ["path: /*, reply: { status: 501 }"], "{directive}");
    }
    for lifted in [
        "auth_basic off;",
        "auth_request off;",
        "proxy_redirect off;",
        "include mime.types;",
        "server_tokens off;",
    ] {
        let text = format!(
            "auth_basic x; auth_request /x; location / {{ auth_basic off; auth_request off; {lifted} proxy_pass http://a; }}"
        );
        assert_eq!(server(&text), [TO_A], "{lifted}");
    }
    let fixed = server("proxy_set_header Host b.com; location / { proxy_pass http://a; }");
    assert_eq!(fixed, ["hosts: [b.com], path: /*, upstream: a", "path: /*, reply: { status: 501 }"]);
    // A lock keeps the others.
    let found = server(
        "limit_req_zone x zone=z:1m rate=1r/s; location / { allow 10.0.0.0/8; deny all; auth_basic x; proxy_pass http://a; }",
    );
    assert_eq!(found, ["path: /*, reply: { status: 501 }, allow: [10.0.0.0/8]"]);
    // `return` comes before all checks.
    assert_eq!(server("location / { auth_basic x; return 204; }"), ["path: /*, reply: { status: 204 }"]);
    for (either, expected) in [
        ("allow 10.0.0.0/8; deny all;", "path: /*, upstream: a, allow: [10.0.0.0/8]"),
        ("allow 10.0.0.0/8; deny all; auth_basic x;", "path: /*, reply: { status: 501 }"),
    ] {
        assert_eq!(server(&format!("satisfy any; {either} {PROXY}")), [expected]);
    }
}

#[test]
fn access_is_for_addresses_and_methods() {
    for (list, expected) in [
        ("allow 10.0.0.0/8; deny all;", "path: /*, upstream: a, allow: [10.0.0.0/8]"),
        ("deny 10.0.0.0/8;", "path: /*, upstream: a, deny: [10.0.0.0/8]"),
        ("deny 10.1.0.0/16; allow 10.0.0.0/15; deny all;", "path: /*, upstream: a, allow: [10.0.0.0/16]"),
        ("allow 10.0.0.0/9; deny 10.0.0.0/8; allow all;", "path: /*, upstream: a, deny: [10.128.0.0/9]"),
        ("deny all;", "path: /*, reply: { status: 403 }"),
        ("allow office.example; deny all;", "path: /*, reply: { status: 403 }"),
    ] {
        assert_eq!(server(&format!("location / {{ {list} proxy_pass http://a; }}")), [expected], "{list}");
    }
    let found = server("location / { limit_except GET { deny all; } proxy_pass http://a; }");
    assert_eq!(found, ["path: /*, methods: [GET], upstream: a", "path: /*, reply: { status: 403 }"]);
    let found = server(
        "location / { return 204; limit_except GET POST { allow 10.0.0.0/8; deny all; } proxy_pass http://a; }",
    );
    assert_eq!(
        found,
        [
            "path: /*, methods: [GET, POST], reply: { status: 204 }",
            "path: /*, upstream: a, allow: [10.0.0.0/8]"
        ]
    );
    // A name that no route can have.
    let found = server("location / { limit_except GET TRACK { deny all; } proxy_pass http://a; }");
    assert_eq!((found.len(), found[2].as_str()), (3, "path: /*, reply: { status: 501 }"));
}

#[test]
fn proxies_in_front_are_known() {
    let with = |real_ip: &str, server: &str| {
        routes(&format!("http {{ {real_ip} server {{ {server} {PROXY} }} }}")).0
    };
    let of_client = "set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; real_ip_recursive on;";
    let list = "allow 192.0.2.0/24; deny all;";
    assert_eq!(with(of_client, list), ["path: /*, upstream: a, allow: [192.0.2.0/24]"]);
    // nginx takes the last address, also one of a proxy.
    let last = of_client.replace("real_ip_recursive on;", "");
    assert_eq!(with(&last, list), ["path: /*, reply: { status: 403 }"]);
    assert_eq!(with(&last, "deny 192.0.2.1;"), ["path: /*, upstream: a, deny: [192.0.2.1]"]);
    assert_eq!(with(&last, "allow 10.0.0.0/8; deny all;"), ["path: /*, upstream: a, allow: [10.0.0.0/8]"]);
    assert_eq!(with("set_real_ip_from lb.example;", list), ["path: /*, reply: { status: 403 }"]);
    let two =
        format!("location / {{ proxy_pass http://a; }} }} server {{ server_name b.com; {of_client} {list}");
    assert!(with("", &two).iter().any(|route| route == "hosts: [b.com], path: /*, reply: { status: 403 }"));
    assert!(
        converted(&format!("{of_client} server {{ listen 80; }}"))
            .yaml
            .contains("trusted_proxies: [10.0.0.0/8]")
    );
}

#[test]
fn limits_are_inherited_and_strict() {
    let zones = "limit_req_zone $binary_remote_addr zone=r:1m rate=10r/s; limit_conn_zone $binary_remote_addr zone=c:1m;
                 limit_req_zone $server_name zone=s:1m rate=1r/m; limit_req_zone $http_x_key zone=k:1m rate=1r/s;
                 geo $l { default 1; 10.0.0.0/8 0; } map $l $key { 0 \"\"; 1 $binary_remote_addr; }
                 limit_req_zone $key zone=g:1m rate=1r/s; map $request_method $p { POST $binary_remote_addr; default \"\"; }
                 limit_req_zone $p zone=p:1m rate=1r/s; limit_req_zone $geoip zone=x:1m rate=1r/s;
                 limit_req_zone $binary_remote_addr zone=bad:1m rate=99999999999r/s;";
    let with = |text: &str| {
        let text = format!("http {{ {zones} limit_req_status 429; limit_conn_status 429; {text} }}");
        let conversion = converted(&text);
        let policies = conversion.yaml.split("policies:\n").nth(1).unwrap_or_default();
        let policies = policies.split("\n\n").next().unwrap_or_default().lines().map(str::trim);
        let policies: Vec<String> =
            policies.filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
        (policies, routes(&text))
    };
    let (policies, (found, notes)) = with(
        "limit_conn c 5; server { location /a/ { limit_req zone=r burst=20 nodelay; proxy_pass http://a; }
         location /b/ { limit_req zone=r burst=5; proxy_pass http://a; } location /c/ { return 204; } }",
    );
    assert_eq!(
        policies,
        [
            "r: { algorithm: gcra, key: ip, limit: 10/1s, burst: 1 }",
            "c: { algorithm: concurrency, key: ip, limit: 5 }",
        ]
    );
    assert!(found.iter().any(|route| route == "path: /a/*, upstream: a, policies: [r, c]"), "{found:?}");
    assert_eq!(notes.len(), 1, "{notes:?}");
    // What is not limited is excepted, and a part of the methods has routes of its own.
    let (policies, (found, _)) = with(
        "server { limit_req zone=g; location / { limit_req zone=p; limit_req zone=g; proxy_pass http://a; } }",
    );
    assert!(
        policies.contains(
            &"g: { algorithm: gcra, key: ip, limit: 1/1s, burst: 1, exempt: [10.0.0.0/8] }".to_owned()
        ),
        "{policies:?}"
    );
    assert_eq!(
        found,
        ["path: /*, methods: [POST], upstream: a, policies: [p, g]", "path: /*, upstream: a, policies: [g]"]
    );
    // Each server has a count of its own.
    let (policies, _) = with("server { server_name a.com; limit_req zone=s; location / { proxy_pass http://a; } }
                              server { server_name b.com; limit_req zone=s; location / { proxy_pass http://a; } }");
    assert_eq!(policies.len(), 2, "{policies:?}");
    assert!(policies.iter().all(|policy| policy.contains("key: global")));
    // What is found nowhere counts, too.
    let (_, (found, _)) = with("server { limit_req zone=r; location /a { proxy_pass http://a; } }");
    assert_eq!(
        found,
        ["path: \"~^/a\", upstream: a, policies: [r]", "path: /*, reply: { status: 404 }, policies: [r]"]
    );
    // What cannot be counted closes; what is only tried denies nothing.
    for zone in ["x", "bad", "missing"] {
        let (_, (found, notes)) =
            with(&format!("server {{ location / {{ limit_req zone={zone}; proxy_pass http://a; }} }}"));
        assert_eq!((found, notes.is_empty()), (vec!["path: /*, reply: { status: 501 }".to_owned()], false));
    }
    let (policies, _) =
        with("server { location / { limit_req zone=r; limit_req_dry_run on; proxy_pass http://a; } }");
    assert_eq!(policies, ["r: { algorithm: gcra, key: ip, limit: 10/1s, burst: 1, mode: shadow }"]);
    // A zone of a closed location is used.
    let text =
        format!("{zones} server {{ location / {{ limit_req zone=k; auth_basic x; proxy_pass http://a; }} }}");
    assert!(!converted(&text).yaml.contains("no limit uses zone `k`"));
    assert!(converted(&text).yaml.contains("no limit uses zone `r`."));
}

#[test]
fn directives_that_open_nothing_are_noted() {
    for directive in [
        "gzip on;",
        "limit_rate 1k;",
        "error_page 404 /404.html;",
        "error_page 403 =200 /x;",
        "expires 1h;",
        "proxy_cache x;",
        "proxy_redirect / /x/;",
        "charset utf-8;",
        "add_header X-A $unknown;",
        "proxy_set_header X-A $unknown;",
        "proxy_set_header X-Forwarded-For $http_x_forwarded_for;",
    ] {
        let (found, notes) = routes(&format!("server {{ {directive} {PROXY} }}"));
        let word = directive.split(' ').next().unwrap();
        assert!(notes.iter().any(|note| note.contains(word)), "{directive}: {notes:?}");
        assert!(found[0].starts_with(TO_A), "{directive}: {found:?}");
    }
    let by_map = "map $host $v { a.com x; default y; } server { add_header X-A $v; location / { proxy_set_header X-B $v; proxy_pass http://a; } }";
    let (found, notes) = routes(by_map);
    assert_eq!((found.len(), notes.len()), (2, 0));
    assert!(
        found[0].starts_with("hosts: [a.com]")
            && found[0].contains("x-a: x ")
            && found[0].contains("x-b: x "),
        "{found:?}"
    );
    // It is said also where no request comes.
    let (_, notes) =
        routes("server { return 204; location / { sub_filter a b; if ($x) { limit_rate 1; } } }");
    assert_eq!(notes.len(), 2, "{notes:?}");
    let fixed = server(
        "proxy_set_header X-Forwarded-Proto https; proxy_set_header X-Forwarded-Host a.com; location / { proxy_pass http://a; }",
    );
    assert_eq!(
        fixed,
        [format!(
            "{TO_A}, request_headers: {{ set: {{ x-forwarded-proto: https, x-forwarded-host: a.com }} }}"
        )]
    );
    let (_, notes) =
        routes("upstream u { server a; server b backup; } server { location / { proxy_pass http://u; } }");
    assert_eq!(notes, ["`server b backup`: Tollgate has no backup servers: it is left out"]);
}

#[test]
fn headers_are_inherited_as_a_whole() {
    let found = server(
        "add_header X-A a always; proxy_set_header X-B b; proxy_set_header Host $host;
         location /o/ { proxy_set_header X-C c; proxy_pass http://a; } location / { proxy_pass http://b; }
         location = /r { return 403; } location = /n { add_header X-D d; return 404; }",
    );
    assert_eq!(
        found[..4],
        [
            "path: /o, redirect: { path: /o/, status: 301 }, response_headers: { add: { x-a: a } }",
            "path: /r, reply: { status: 403 }",
            "path: /n, reply: { status: 404 }",
            "path: /o/*, upstream: a, request_headers: { set: { x-c: c } }, response_headers: { add: { x-a: a } }",
        ]
        .map(str::to_owned)
    );
    assert!(found[4].contains("x-b: b") && found[4].contains("upstream: b"), "{found:?}");
}

#[test]
fn results_always_load() {
    for (text, expected) in [
        ("return 700;", "path: /*, reply: { status: 501 }"),
        ("return 204 x;", "path: /*, reply: { status: 204 }"),
        (
            "return 301 'https://b.com/a?b={c}';",
            "path: /*, redirect: { to: \"https://b.com/a?b={{c}}\", status: 301, query: drop }",
        ),
        ("return 301 //b.com/;", "path: /*, reply: { status: 501 }"),
        ("return 301 /a/../b;", "path: /*, reply: { status: 501 }"),
        ("return 301 $scheme://$host$request_uri;", "path: /*, redirect: { scheme: http, status: 301 }"),
        ("return 301 $request_uri;", "path: /*, reply: { status: 501 }"),
        ("return 444;", "path: /*, reply: { status: 403 }"),
        ("return 200 \"of $host\";", "path: /*, reply: { status: 501 }"),
    ] {
        assert_eq!(server(text), [expected], "{text}");
    }
    let tls = converted("server { listen 443 ssl; location / { proxy_pass http://a; } }");
    assert!(!tls.yaml.contains("\nlisteners:") && !tls.yaml.contains("routes:"), "{}", tls.yaml);
}

#[test]
fn files_are_not_served() {
    assert!(is_closed("location / { root /var/www; }"));
    assert!(is_closed("root /var/www; location /x { alias /y; }"));
    assert!(is_closed("location ~ \\.php$ { fastcgi_pass a:9000; } location / { try_files $uri =404; }"));
    let (found, notes) = routes(
        "server { location / { allow 10.0.0.0/8; deny all; try_files $uri @app; }
         location @app { deny 10.128.0.0/9; proxy_pass http://a; } }",
    );
    assert_eq!(found, ["path: /*, upstream: a, allow: [10.0.0.0/9]"]);
    assert_eq!(notes.len(), 1);
    assert_eq!(server("location /a { return 204; }"), ["path: \"~^/a\", reply: { status: 204 }"]);
    // The limits of the first location count, or else those of the second.
    for (first, second) in
        [("limit_req zone=z;", ""), ("", "limit_req zone=z;"), ("limit_req zone=z;", "limit_req zone=y;")]
    {
        let (found, _) = routes(&format!(
            "limit_req_zone $host zone=z:1m rate=1r/s; limit_req_zone $uri zone=y:1m rate=1r/s;
             server {{ location / {{ {first} try_files $uri @app; }} location @app {{ {second} proxy_pass http://a; }} }}"
        ));
        assert_eq!(found, ["path: /*, upstream: a, policies: [z]"]);
    }
}

#[test]
fn zones_alone_are_policies() {
    let conversion =
        converted("limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s; limit_req_status 429;");
    assert!(
        conversion.yaml.contains("a: { algorithm: gcra, key: ip, limit: 1/1s, burst: 1 }"),
        "{}",
        conversion.yaml
    );
    assert_eq!((conversion.routes, conversion.unconverted.len()), (0, 1));
}

#[test]
fn work_is_bounded() {
    let conditions: String =
        (0..24).map(|nth| format!("if ($http_a{nth} = 1) {{ add_header A {nth}; }} ")).collect();
    let (routes, notes) =
        routes(&format!("server {{ listen 80; location / {{ {conditions} proxy_pass http://a; }} }}"));
    assert!(routes.len() <= 2_000, "{}", routes.len());
    assert!(notes.iter().any(|note| note.contains("lead to one another too often")));
}

#[test]
fn loops_end() {
    for text in [
        "location / { rewrite ^ /a last; }",
        "location /a { rewrite ^/a(.*)$ /b$1; } location /b { rewrite ^/b(.*)$ /a$1; }",
        "map $a $b { default $b; } location / { proxy_pass http://$b; }",
        "location / { if ($http_a) { add_header A 1; } if ($http_b) { add_header A 2; } if ($http_c) { add_header A 3; }
           if ($http_d) { add_header A 4; } if ($http_e) { add_header A 5; } if ($http_f) { add_header A 6; }
           if ($http_g) { add_header A 7; } if ($http_h) { add_header A 8; } if ($http_i) { add_header A 9; }
           if ($http_j) { add_header A 7; } if ($http_k) { add_header A 8; } if ($http_l) { add_header A 9; }
           proxy_pass http://a; }",
    ] {
        assert!(is_closed(text), "{text}");
    }
}
