//! Small configurations, converted.

use std::{fs, path::Path};

use super::convert;

const CLOSED: &str = "{ path: /*, reply: { status: 501 } }";
const REFUSED: &str = "{ path: /*, reply: { status: 403 } }";
const OPEN: &str = "{ path: /*, upstream: web }";
const TABLE: &str =
    "stick-table type ip size 1m expire 1m store http_req_rate(10s),http_err_rate(1m),conn_cur,gpc0\n";

/// The whole file and its notes.
fn at(path: &Path, text: &str) -> (String, Vec<String>) {
    let text = format!("defaults\nmode http\n{text}\nbackend web\nserver a 10.0.0.1:80\n");
    let conversion = convert(&text, path).unwrap().finish("", None);
    (conversion.yaml, conversion.unconverted.into_iter().map(|note| note.text).collect())
}

fn whole(text: &str) -> (String, Vec<String>) {
    at(Path::new("haproxy.cfg"), text)
}

/// The items of `routes`, each in one line, and the notes.
fn converted(text: &str) -> (Vec<String>, Vec<String>) {
    let (yaml, notes) = whole(text);
    let routes = yaml.split("routes:\n").nth(1).unwrap_or_default();
    let mut items: Vec<String> = Vec::new();
    for line in routes.lines().take_while(|line| line.starts_with(' ')) {
        let line = line.replace("\"~", "~").replace("'~", "~").replace("\",", ",").replace("',", ",");
        match (line.trim_start().strip_prefix("- "), items.last_mut()) {
            (Some(item), _) => items.push(item.to_owned()),
            (None, Some(item)) if !line.contains('#') => *item += &format!("; {}", line.trim()),
            _ => {}
        }
    }
    (items, notes)
}

/// The routes of a frontend with these lines, which leads to `web`.
fn frontend(lines: &str) -> (Vec<String>, Vec<String>) {
    converted(&format!("frontend f\nbind :80\n{lines}\ndefault_backend web"))
}

/// It has an equal.
#[track_caller]
fn becomes(lines: &str, expected: &[&str]) {
    let (routes, notes) = frontend(lines);
    assert_eq!(routes, expected, "{lines}\n{notes:?}");
    assert_eq!(notes, [""; 0], "{lines}");
}

/// It becomes this, and a note says `word`.
#[track_caller]
fn is_noted(lines: &str, word: &str, expected: &[&str]) {
    let (routes, notes) = frontend(lines);
    assert_eq!(routes, expected, "{lines}\n{notes:?}");
    assert!(notes.iter().any(|note| note.contains(word)), "{lines}\n{notes:?}");
}

#[test]
fn rules_that_overlap_hold_together() {
    becomes(
        &format!(
            "acl a hdr(host) admin.example.com\nhttp-request deny if a !{{ src 10.0.0.0/8 }}\n{TABLE}\
             http-request track-sc0 src if {{ path /login }}\n\
             http-request deny deny_status 429 if {{ path /login }} {{ sc_http_req_rate(0) gt 5 }}"
        ),
        &[
            "{ hosts: [admin.example.com], path: /login, upstream: web, policies: [f], allow: [10.0.0.0/8] }",
            "{ hosts: [admin.example.com], path: /*, upstream: web, allow: [10.0.0.0/8] }",
            "{ path: /login, upstream: web, policies: [f] }",
            OPEN,
        ],
    );
    becomes(
        "http-request deny if { hdr_end(host) .example.com } { src 10.0.0.0/8 }\n\
         http-request deny if { hdr(host) -i A.example.com } { path_end .php }",
        &[
            "{ hosts: [a.example.com], path: ~\\.php$, reply: { status: 403 } }",
            "{ hosts: [a.example.com, \"*.example.com\"], path: /*, upstream: web, deny: [10.0.0.0/8] }",
            OPEN,
        ],
    );
}

#[test]
fn rules_before_a_reply_hold_for_it() {
    for (rule, reply) in [
        (
            "return status 200 content-type text/plain string ok",
            "reply: { status: 200, content_type: text/plain, body: ok }",
        ),
        ("redirect location /b code 301", "redirect: { path: /b, query: drop, status: 301 }"),
        ("redirect scheme https", "redirect: { scheme: https, status: 302 }"),
        (
            "redirect prefix https://a.com:80",
            "redirect: { scheme: https, host: a.com, port: 80, status: 302 }",
        ),
        (
            "redirect location https://%[req.hdr(host)]%[capture.req.uri] code 308",
            "redirect: { scheme: https, status: 308 }",
        ),
        ("redirect location https://a.com", "redirect: { to: https://a.com/, query: drop, status: 302 }"),
        ("return status 503", "reply: { status: 503 }"),
    ] {
        becomes(
            &format!("http-request deny unless {{ src 10.0.0.0/8 }}\nhttp-request {rule} if {{ path /a }}"),
            &[
                &format!("{{ path: /a, {reply}, allow: [10.0.0.0/8] }}"),
                "{ path: /*, upstream: web, allow: [10.0.0.0/8] }",
            ],
        );
    }
    // The legacy `redirect` is behind all `http-request`.
    becomes(
        "redirect scheme https unless { path /a }\nhttp-request deny if { src 10.0.0.0/8 }",
        &[
            "{ path: /a, upstream: web, deny: [10.0.0.0/8] }",
            "{ path: /*, redirect: { scheme: https, status: 302 }, deny: [10.0.0.0/8] }",
        ],
    );
}

#[test]
fn allow_ends_its_list_alone() {
    becomes(
        "http-request allow if { path_beg /pub/ }\nhttp-request deny unless { src 10.0.0.0/8 }\n\
         redirect scheme https if { path /pub/a }",
        &[
            "{ path: /pub/a, redirect: { scheme: https, status: 302 } }",
            "{ path: /pub/*, upstream: web }",
            "{ path: /*, upstream: web, allow: [10.0.0.0/8] }",
        ],
    );
    is_noted(
        "tcp-request content accept if { path /a }\ntcp-request content reject if { path_beg /a }\n\
         http-request deny if { path /a } { src 10.0.0.0/8 }",
        "does not close the connection",
        &["{ path: /a, upstream: web, deny: [10.0.0.0/8] }", "{ path: ~^/a, reply: { status: 403 } }", OPEN],
    );
    // A condition that Tollgate cannot tell opens nothing.
    is_noted("http-request allow if { rand(2) 1 }\nhttp-request deny", "rand(2)", &[REFUSED]);
}

#[test]
fn the_conditions_to_count_and_to_deny_are_apart() {
    let on = |track: &str, deny: &str| {
        frontend(&format!("{TABLE}http-request track-sc0 src{track}\nhttp-request deny if {deny}"))
    };
    let rate = "{ sc_http_req_rate(0) gt 5 }";
    let (routes, notes) = on("", &format!("{{ path_beg /api/ }} {rate}"));
    assert_eq!(
        (routes[0].as_str(), routes.len(), notes.len()),
        ("{ path: /api/*, reply: { status: 501 } }", 2, 1)
    );
    assert_eq!(on(" if { path_beg /api/ }", rate).0[0], "{ path: /api/*, upstream: web, policies: [f] }");
    assert_eq!(on("", &format!("METH_POST {rate}")).0, ["{ path: /*, upstream: web, policies: [f] }"]);
    // Requests that another rule refuses count, too.
    assert_eq!(
        on("", &format!("{{ path /x }}\nhttp-request deny if {rate}")).0,
        ["{ path: /x, reply: { status: 403 }, policies: [f] }", "{ path: /*, upstream: web, policies: [f] }"]
    );
    // A lookup denies requests that do not count.
    let (routes, _) = on(" if { path /a }", "{ src_http_req_rate(f) gt 5 }");
    assert_eq!(routes, ["{ path: /a, upstream: web, policies: [f] }", CLOSED]);
    let policy = |lines: &str| {
        let (yaml, notes) = whole(&format!("frontend f\nbind :80\n{TABLE}{lines}\ndefault_backend web"));
        let policy = yaml.split("policies:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
        (policy.unwrap_or_default().trim().replace("\n    ", " "), notes.len())
    };
    let tracked = |deny: &str| {
        policy(&format!("http-request track-sc0 src\nhttp-request deny deny_status 429 if {deny}"))
    };
    assert_eq!(
        tracked(&format!("{rate} !{{ src 10.0.0.0/8 }}")),
        ("f: { algorithm: sliding_window, key: ip, limit: 5/10s, count_denied: true, exempt: [10.0.0.0/8] }".into(), 0)
    );
    assert_eq!(
        tracked("{ sc0_http_err_rate ge 5 }").0,
        "f: { algorithm: sliding_window, key: ip, limit: 5/1m, count: { statuses: [\"4xx\"] } }"
    );
    assert_eq!(tracked("{ sc0_conn_cur gt 9 }").0, "f: { algorithm: concurrency, key: ip, limit: 9 }");
    for closed in [
        "{ sc_http_req_rate(0) lt 5 }",
        "{ sc0_get_gpc0 gt 0 }",
        "{ sc0_conn_rate gt 5 }",
        "{ sc0_http_req_rate gt 4000000000 }",
    ] {
        assert_eq!(tracked(closed), (String::new(), 1), "{closed}");
    }
    let (yaml, _) = whole(&format!(
        "frontend f\nbind :80\n{TABLE}tcp-request connection track-sc0 src\n\
         tcp-request connection reject if {{ sc0_conn_cur gt 9 }}\ndefault_backend web"
    ));
    assert!(yaml.contains("connections_per_address: 9"), "{yaml}");
}

#[test]
fn tables_of_several_sections_are_told_apart() {
    let section = |name: &str, port: u16, table: &str, deny: &str| {
        format!(
            "frontend {name}\nbind :{port}\n{TABLE}http-request track-sc0 src{table}\n{deny}\ndefault_backend web\n"
        )
    };
    let deny = "http-request deny if { sc_http_req_rate(0) gt 5 }";
    let names = |second: &str| {
        let (routes, notes) = converted(&(section("f", 80, "", deny) + second));
        (routes.join("\n"), notes.len())
    };
    // A table for each, one for both, and one that also counts admitted requests.
    let (routes, notes) = names(&section("g", 81, "", deny));
    assert!(notes == 0 && routes.contains("policies: [f]") && routes.contains("policies: [g]"), "{routes}");
    let (routes, notes) = names(&section("g", 81, " table f", deny));
    assert!(notes == 0 && routes.matches("policies: [f]").count() == 2, "{routes}");
    let (routes, notes) = names(&section("g", 81, " table f", ""));
    assert!(
        notes == 1 && routes.contains("{ listeners: [f], path: /*, reply: { status: 501 } }"),
        "{routes}"
    );
    // The frontend counts, and one of its backends denies.
    let (routes, notes) = converted(&format!(
        "frontend f\nbind :80\n{TABLE}http-request track-sc0 src\nuse_backend b if {{ path /b }}\ndefault_backend web\n\
         backend b\n{deny}\nserver a 10.0.0.2:80"
    ));
    assert_eq!(
        (routes, notes.len()),
        (vec!["{ path: /b, reply: { status: 501 } }".to_owned(), OPEN.to_owned()], 1)
    );
}

#[test]
fn listeners_open_nothing_that_was_closed() {
    let (yaml, notes) = whole(
        "frontend off\ndisabled\nbind :81\ndefault_backend web\n\
         frontend inner\nbind 127.0.0.1:82\ndefault_backend web\n\
         frontend outer\nbind :443 ssl crt /no/dir/ ca-file ca.pem verify required\nbind :80,:8080\n\
         http-request deny if !{ ssl_fc }\ndefault_backend web\n\
         frontend revoked\nbind :444 ssl crt a.pem ca-file ca.pem crl-file crl.pem verify required\ndefault_backend web\n\
         frontend unknown\nbind :445 interface eth0\ndefault_backend web\n\
         frontend twice\nbind 127.0.0.2:80\ndefault_backend web\n\
         frontend tcp\nmode tcp\nbind :446\ndefault_backend web\n\
         listen stats\nbind :9000\nstats enable",
    );
    for (expected, is_there) in [
        ("{ address: 127.0.0.1:82, name: inner }", true),
        ("client_ca: ca.pem", true),
        ("cert: CERTIFICATE.pem", true),
        ("{ address: 0.0.0.0:8080, name: outer-8080 }", true),
        ("{ listeners: [inner], path: /*, upstream: web }", true),
        ("{ listeners: [outer-443], path: /*, upstream: web }", true),
        ("reply: { status: 403 } }", true),
        ("81", false),
        ("444", false),
        ("445", false),
        ("446", false),
        ("127.0.0.2", false),
        ("9000", false),
    ] {
        let yaml: String = yaml.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        assert_eq!(yaml.contains(expected), is_there, "{expected}\n{yaml}");
    }
    for word in [
        "disabled",
        "crl-file",
        "interface",
        "mode http",
        "another line has",
        "admin port",
        "each certificate of the folder",
    ] {
        assert!(notes.iter().any(|note| note.contains(word)), "{word}: {notes:?}");
    }
}

#[test]
fn tests_are_no_narrower_than_the_source() {
    for (test, path) in [
        ("path /a /b", "{ path: /a, reply: { status: 403 } }"),
        ("path_beg /a", "{ path: ~^/a, reply: { status: 403 } }"),
        ("path -m beg -i /a", "{ path: ~(?i:^/a), reply: { status: 403 } }"),
        ("path,lower -m beg /a", "{ path: ~(?i:^/a), reply: { status: 403 } }"),
        ("path_dir a", "{ path: ~/a(?:/|$), reply: { status: 403 } }"),
        ("path_sub a.b", "{ path: ~a\\.b, reply: { status: 403 } }"),
        ("path_reg [a&&b]", "{ path: ~[a\\&\\&b], reply: { status: 403 } }"),
        ("url_beg /a", "{ path: ~^/a, reply: { status: 403 } }"),
        ("method POST PURGE", "{ path: /*, methods: [POST, PURGE], reply: { status: 403 } }"),
        ("req.cook(a) b", "{ path: /*, cookie: { a: b }, reply: { status: 403 } }"),
        ("url_param(a) b", "{ path: /*, query: { a: b }, reply: { status: 403 } }"),
        ("req.fhdr(x-a) b", "{ path: /*, headers: { x-a: b }, reply: { status: 403 } }"),
    ] {
        let (routes, notes) = frontend(&format!("http-request deny if {{ {test} }}"));
        assert_eq!((routes[0].as_str(), notes.len()), (path, 0), "{test}");
        assert_eq!(routes.last().unwrap(), OPEN, "{test}");
    }
    // They hold for more than Tollgate can list: all is refused.
    for test in [
        "url_sub a=1",
        "url_end .php",
        "hdr(x-a) -i b",
        "hdr(x-a) b",
        "hdr(x-a) -m sub b",
        "req.hdr(x-a) -m found",
        "hdr_dom(host) -i a.com",
        "hdr_beg(host) www.",
        "hdr_reg(host) ^a",
        "src -f none.lst",
        "src office.example.com",
        "path_reg (?!a)b",
        "nbsrv(web) lt 1",
        "http_auth(users)",
        "base_beg a.com/x",
        "url_len gt 5",
        "path,url_dec /x",
        "rand(2) 1",
    ] {
        let (routes, notes) = frontend(&format!("http-request deny if {{ {test} }}"));
        assert_eq!(routes.last().unwrap(), REFUSED, "{test}: {routes:?}");
        assert!(!notes.is_empty(), "{test}");
        let (routes, _) = frontend(&format!("use_backend web if {{ {test} }}"));
        assert_eq!(routes.last().unwrap(), CLOSED, "{test}: {routes:?}");
    }
    is_noted("http-request deny if nobody", "does not test `nobody`", &[REFUSED]);
    is_noted(
        "http-request deny if { method TRACK }",
        "TRACK",
        &[
            "{ path: /*, methods: [CONNECT, DELETE, GET, OPTIONS, PATCH, POST, PUT, TRACE], upstream: web }",
            REFUSED,
        ],
    );
    becomes("http-request deny if { path_beg x } || { dst_port 81 } || FALSE", &[OPEN]);
    becomes("http-request deny if { dst_port 79:80 } !FALSE", &[REFUSED]);
    becomes(
        "acl a path /x\nacl a path /y\nacl b method PUT\nhttp-request deny if a !b or METH_DELETE",
        &[
            "{ path: /x, methods: [PUT], upstream: web }",
            "{ path: /x, reply: { status: 403 } }",
            "{ path: /y, methods: [PUT], upstream: web }",
            "{ path: /y, reply: { status: 403 } }",
            "{ path: /*, methods: [DELETE], reply: { status: 403 } }",
            OPEN,
        ],
    );
}

#[test]
fn files_of_acls_are_read() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.lst"), "# office\n10.0.0.0/8\n\n192.0.2.1\n").unwrap();
    let (yaml, notes) = at(
        &directory.path().join("haproxy.cfg"),
        "frontend f\nbind :80\nhttp-request deny unless { src -f a.lst }\ndefault_backend web",
    );
    assert!(yaml.contains("allow: [10.0.0.0/8, 192.0.2.1]") && notes.is_empty(), "{yaml}");
}

#[test]
fn unknown_rules_close_and_keep_other_locks() {
    for (line, word) in [
        ("http-request auth unless { http_auth(u) }", "passwords"),
        ("http-request set-src hdr(x-real-ip)", "trusted_proxies"),
        ("http-request lua.check", "lua.check"),
        ("http-request set-method POST", "set-method"),
        ("http-request replace-header Cookie a b", "replace-header"),
        ("http-request del-header x -m reg", "del-header"),
        ("http-request set-header Host a.com", "host: rewrite"),
        ("http-response deny if { status 500 }", "http-response deny"),
        ("filter spoe engine a", "filter"),
        ("option frobnicate", "frobnicate"),
        ("frobnicate 1", "frobnicate"),
        ("use_backend %[req.hdr(host)]", "variables"),
        ("use_backend none", "no such backend"),
    ] {
        let closed = "{ path: /*, reply: { status: 501 }, allow: [10.0.0.0/8] }";
        is_noted(&format!("{line}\nhttp-request deny unless {{ src 10.0.0.0/8 }}"), word, &[closed]);
    }
    // Under a condition, it closes a part.
    for (line, closed) in [
        (
            "http-request use-service prometheus-exporter if { path /a }",
            "{ path: /a, reply: { status: 501 } }",
        ),
        ("http-request return status 200 lf-file a if { path /a }", "{ path: /a, reply: { status: 501 } }"),
        (
            "http-request return status 302 hdr location /x if { path /a }",
            "{ path: /a, reply: { status: 501 } }",
        ),
        (
            "http-request redirect location /x set-cookie a=b if { path /a }",
            "{ path: /a, reply: { status: 501 } }",
        ),
        ("use_backend %[path] if { path /a }", "{ path: /a, reply: { status: 501 } }"),
        ("stats uri /a/", "{ path: /a/*, reply: { status: 501 } }"),
        ("stats enable", "{ path: /haproxy, reply: { status: 501 } }"),
    ] {
        is_noted(line, "", &[closed, OPEN]);
    }
    is_noted(".if defined(X)\nhttp-request deny\n.endif", "environment", &[REFUSED]);
    is_noted("http-request deny if { path \"$X\" }", "environment", &[REFUSED]);
    // It is said even where no request gets to.
    is_noted("http-request set-method POST\nhttp-request deny", "set-method", &[REFUSED]);
}

#[test]
fn directives_that_open_nothing_are_noted() {
    for line in [
        "compression algo gzip",
        "errorfile 503 /etc/503.http",
        "http-error status 503 file /etc/503",
        "rate-limit sessions 100",
        "maxconn 100",
        "http-request set-var(txn.a) path",
        "http-request sc-inc-gpc0(0)",
        "http-response set-header X-A %[var(txn.a)]",
        "http-request cache-use a",
        "stick on src",
    ] {
        is_noted(
            line,
            line.split(' ').next().unwrap(),
            &[if line.contains("X-A") {
                "{ path: /*, upstream: web, response_headers: { remove: [x-a] } }"
            } else {
                OPEN
            }],
        );
    }
    for line in [
        "option httplog",
        "log global",
        "timeout queue 5s",
        "http-request capture req.hdr(a) len 5",
        "http-request set-log-level silent",
        "unique-id-format %ID",
        "no option httpclose",
    ] {
        becomes(line, &[OPEN]);
    }
    is_noted("http-request tarpit", "does not hold", &["{ path: /*, reply: { status: 500 } }"]);
    is_noted(
        "monitor-uri /alive",
        "with any query",
        &[
            "path: /alive; reply:; status: 200; content_type: text/html; body: \"<html><body><h1>200 OK</h1>\\nService ready.\\n</body></html>\\n\"",
            OPEN,
        ],
    );
}

#[test]
fn headers_are_changed() {
    let web = |changes: &str| format!("{{ path: /*, upstream: web, {changes} }}");
    for (lines, changes) in [
        ("http-request set-header X-A b", "request_headers: { set: { x-a: b } }"),
        (
            "http-request add-header X-A \"if %[src]\"",
            "request_headers: { add: { x-a: \"if {client_address}\" } }",
        ),
        ("http-request del-header x-i- -m beg", "request_headers: { remove: [x-i-*] }"),
        ("http-response del-header Server if { ssl_fc } || TRUE", "response_headers: { remove: [server] }"),
        (
            "http-request set-header X-Forwarded-Proto https",
            "request_headers: { set: { x-forwarded-proto: https } }",
        ),
        (
            "http-request set-header X-Forwarded-Port %[dst_port]",
            "request_headers: { set: { x-forwarded-port: \"80\" } }",
        ),
        ("http-request set-header X-Tls %[ssl_fc]", "request_headers: { set: { x-tls: \"0\" } }"),
        (
            "option forwardfor header X-Real-IP",
            "request_headers: { set: { x-real-ip: \"{client_address}\" } }",
        ),
        ("unique-id-header X-Id", "request_headers: { set: { x-id: \"{request_id}\" } }"),
    ] {
        becomes(lines, &[&web(changes)]);
    }
    for lines in [
        "option forwardfor",
        "http-request del-header X-Forwarded-For",
        "http-request set-header X-Forwarded-Proto http",
    ] {
        becomes(lines, &[OPEN]);
    }
    // Tollgate's own comes back.
    becomes(
        "http-request set-header X-Forwarded-Host a.com if { path /a }\n\
         http-request set-header X-Forwarded-Host %[req.hdr(host)] if METH_POST",
        &[
            "{ path: /a, methods: [POST], upstream: web }",
            "{ path: /a, upstream: web, request_headers: { set: { x-forwarded-host: a.com } } }",
            OPEN,
        ],
    );
    // The client's own does not pass.
    let removed = web("request_headers: { remove: [x-user] }");
    is_noted("http-request set-header X-User %[ssl_c_s_dn(cn)]", "placeholder", &[&removed]);
    is_noted("http-request set-header X-User a if { src 10.0.0.0/8 }", "removed", &[&removed]);
    is_noted("http-request set-header Connection close", "each connection", &[OPEN]);
    // Tollgate's own is not removed with those of clients.
    is_noted("http-request del-header x-f -m beg", "beginnings", &[CLOSED]);
    // HAProxy's own responses have only the headers of `http-after-response`, which runs last.
    becomes(
        "http-after-response set-header X-A b\nhttp-response set-header X-A a\nhttp-response set-header X-B c\n\
         redirect scheme https if { path /a }",
        &[
            "{ path: /a, redirect: { scheme: https, status: 302 }, response_headers: { set: { x-a: b } } }",
            "{ path: /*, upstream: web, response_headers: { set: { x-a: b, x-b: c } } }",
        ],
    );
}

#[test]
fn paths_are_rewritten() {
    for (lines, route) in [
        ("replace-path ^/v1/(.*)$ /\\\\1", "{ path: /v1/*, upstream: web, rewrite: { strip_prefix: /v1 } }"),
        (
            "replace-uri ^/v1/(.*) /v2/\\\\1",
            "{ path: /v1/*, upstream: web, rewrite: { path: \"/v2/{rest}\" } }",
        ),
        ("replace-path ^/a(/.*) \\\\1", "{ path: /a/*, upstream: web, rewrite: { strip_prefix: /a } }"),
        (
            "replace-path ^/u/([0-9]+)$ /p/\\\\1",
            "{ path: ~^/u/(?P<g1>[0-9]+)$, upstream: web, rewrite: { path: \"/p/{g1}\" } }",
        ),
        (
            "set-path %[path,regsub(^/api/,/)]",
            "{ path: /api/*, upstream: web, rewrite: { strip_prefix: /api } }",
        ),
        ("set-path /x%[path]", "{ path: /*, upstream: web, rewrite: { path: \"/x/{rest}\" } }"),
        ("set-path /x", "{ path: /*, upstream: web, rewrite: { path: /x } }"),
    ] {
        let (routes, notes) = frontend(&format!("http-request {lines}"));
        assert_eq!((routes[0].as_str(), notes.len()), (route, 0), "{lines}");
    }
    // A redirect keeps the path as it is then.
    is_noted(
        "http-request set-path /x if { path /a }\nhttp-request redirect prefix https://b.com",
        "as the client sent it",
        &[
            "{ path: /a, reply: { status: 501 } }",
            "{ path: /*, redirect: { scheme: https, host: b.com, status: 302 } }",
        ],
    );
    for lines in ["set-uri /x", "replace-path (?=a)b /x", "set-path %[path,lower]", "set-query a=1"] {
        is_noted(&format!("http-request {lines}"), "", &[CLOSED]);
    }
}

#[test]
fn backends_run_their_rules_behind_the_frontend() {
    let (routes, notes) = converted(
        "frontend f\nbind :80\nacl local src 127.0.0.0/8\nuse_backend b if { hdr(host) b.com }\ndefault_backend c\n\
         backend b\nacl local src 10.0.0.0/8\nhttp-request deny unless local\nserver a 10.0.0.2:80\n\
         backend c\ndisabled\nserver a 10.0.0.3:80\n\
         listen l\nbind :81\nhttp-request deny if { path /x }\nserver a 10.0.0.4:80",
    );
    assert_eq!(
        routes,
        [
            "{ listeners: [f], hosts: [b.com], path: /*, upstream: b, allow: [10.0.0.0/8] }",
            "{ listeners: [f], path: /*, reply: { status: 503 } }",
            "{ listeners: [l], path: /x, reply: { status: 403 } }",
            "{ listeners: [l], path: /*, upstream: l }",
        ]
    );
    assert!(notes.iter().any(|note| note.starts_with("`backend c`")), "{notes:?}");
}

#[test]
fn servers_are_endpoints() {
    let upstream = |lines: &str| {
        let (yaml, notes) =
            whole(&format!("timeout server 2s\nfrontend f\nbind :80\ndefault_backend b\nbackend b\n{lines}"));
        let found = yaml.split("  b:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
        let notes: Vec<_> = notes.into_iter().filter(|note| !note.contains("no route leads")).collect();
        (found.unwrap_or_default().trim().replace("\n    ", "; "), notes)
    };
    let (found, notes) = upstream(
        "balance leastconn\ncookie S insert indirect\noption httpchk GET /ok\nhttp-check send hdr Host a.com\n\
         http-check expect status 200-299\ntimeout tunnel 30s\ndefault-server check inter 2s fall 3\n\
         server a 10.0.0.2:80 weight 5 slowstart 10s\nserver b 10.0.0.3:80 disabled maxconn 9\nserver c 10.0.0.4:80 backup",
    );
    assert_eq!(
        found,
        "endpoints: [{ url: http://10.0.0.2:80, weight: 5 }, { url: http://10.0.0.3:80, drain: true }]; \
         balance: least_request; sticky: { cookie: S }; slow_start: 10s; \
         health: { path: /ok, host: a.com, statuses: [\"200-299\"], interval: 2s, unhealthy: 3 }; max_connections: 9; \
         timeouts: { response: 2s, idle: 30s }"
    );
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(
        notes.iter().any(|note| note.contains("backup"))
            && notes.iter().any(|note| note.contains("timeout tunnel"))
    );
    let (found, notes) = upstream(
        "server a a.com:443 ssl verify none sni str(a.com) send-proxy\nserver b 10.0.0.3:80 frobnicate",
    );
    assert!(
        found.starts_with("endpoints: [https://a.com:443, http://10.0.0.3:80]") && notes.len() == 3,
        "{found}\n{notes:?}"
    );
    let (found, _) = upstream("server a 10.0.0.2:80 disabled\nserver b 10.0.0.3:80 backup");
    assert!(
        found.starts_with("endpoints: [{ url: http://10.0.0.2:80, drain: true }, http://10.0.0.3:80]"),
        "{found}"
    );
    for lines in ["server a unix@/run/a", "server a \"$HOST:80\"", "server a :80", ""] {
        let (found, notes) = upstream(lines);
        assert!(
            found.is_empty() && notes.iter().any(|note| note.contains("503")),
            "{lines}: {found} {notes:?}"
        );
    }
}

#[test]
fn defaults_are_part_of_sections() {
    let (routes, notes) = converted(
        "defaults inner from usual\noption forwardfor header X-A\n\
         frontend f from inner\nbind :80\nno option forwardfor\ndefault_backend web",
    );
    // There is no `usual`, so that `mode` is missing.
    assert!(routes.is_empty() && notes.iter().any(|note| note.contains("mode http")), "{notes:?}");
    let (routes, _) = converted(
        "mode http\nerrorfile 503 a\ndefaults inner\nmode http\ntimeout client 5s\nfrontend f from inner\nbind :80\ndefault_backend web",
    );
    assert_eq!(routes, [OPEN]);
}
