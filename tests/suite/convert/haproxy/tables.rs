//! Stick tables beside HAProxy, without chance: the same requests in the same order to both programs.
//!
//! Windows are so long that none ends. HAProxy counts what it denies, so that its counts do not depend on what was denied:
//! of each request can be said whether Tollgate admits what HAProxy does not. That never happens. Where Tollgate admits
//! less, a note says so; in the cases that are `Same`, it does not.

use std::env;

use super::{
    super::{
        agreement::{NotRunning, Run},
        sent::{Body, Sent},
        source::{Generated, Listener, Places},
    },
    Haproxy, limits,
};

/// What is asked of Tollgate beside admitting no more.
#[derive(Clone, Copy, PartialEq)]
enum Asked {
    /// It admits as much.
    Same,
    /// It may admit less, if a note says so.
    Noted,
}
use Asked::{Noted, Same};

struct Case {
    name: &'static str,
    asked: Asked,
    /// What follows `defaults`. `PORT` and `OTHER` stand for ports, `ONE` and `TWO` for services.
    text: &'static str,
    /// How often which request is sent: see [`request`].
    sent: &'static [(usize, &'static str)],
}

const HEAD: &str = "defaults
    mode http
    timeout connect 2s
    timeout client 10s
    timeout server 10s
    timeout tarpit 10ms
";
const APP: &str = "backend app\n    server one ONE\n";
const API: &str = "backend api\n    server two TWO\n";
/// A frontend with a table of addresses, and more rules.
macro_rules! web {
    ($($line:literal)*) => {
        concat!(
            "frontend web\n    bind 127.0.0.1:PORT\n",
            "    stick-table type ip size 1k expire 2h store http_req_rate(1h)\n",
            $("    ", $line, "\n",)*
            "    default_backend app\n"
        )
    };
}
/// A frontend without a table.
macro_rules! plain {
    ($($line:literal)*) => {
        concat!("frontend web\n    bind 127.0.0.1:PORT\n", $("    ", $line, "\n",)* "    default_backend app\n")
    };
}
const ALL: &[(usize, &str)] = &[(8, "/"), (8, "/ from 127.0.0.2"), (2, "/api/x"), (2, "/x from 127.0.0.2")];
const PARTS: &[(usize, &str)] = &[
    (4, "/"),
    (4, "/api/x"),
    (4, "/"),
    (4, "/api/y"),
    (3, "/api/x from 127.0.0.2"),
    (9, "/ from 127.0.0.9"),
    (2, "/api/x from 127.0.0.9"),
];
const KEYS: &[(usize, &str)] =
    &[(7, "/ x-key: one"), (7, "/ x-key: two"), (7, "/ from 127.0.0.2 x-key: one"), (3, "/x x-key: two")];

const CASES: &[Case] = &[
    Case {
        name: "all",
        asked: Same,
        text: web!("http-request track-sc0 src" "http-request deny deny_status 429 if { sc_http_req_rate(0) gt 5 }"),
        sent: ALL,
    },
    Case {
        name: "another spelling",
        asked: Same,
        text: web!("acl fast sc0_http_req_rate ge 6" "http-request track-sc0 src" "http-request deny if fast"),
        sent: ALL,
    },
    Case {
        name: "unless it is less",
        asked: Noted,
        text: web!("http-request track-sc0 src" "http-request deny unless { sc0_http_req_rate lt 6 }"),
        sent: ALL,
    },
    Case {
        name: "not at most",
        asked: Noted,
        text: web!("http-request track-sc0 src" "http-request deny if !{ sc_http_req_rate(0) le 5 }"),
        sent: ALL,
    },
    Case {
        name: "none",
        asked: Noted,
        text: web!("http-request track-sc0 src" "http-request deny if { sc_http_req_rate(0) gt 0 }"),
        sent: ALL,
    },
    Case {
        name: "as many as nobody sends",
        asked: Noted,
        text: web!("http-request track-sc0 src" "http-request deny if { sc_http_req_rate(0) gt 4000000000 }"),
        sent: ALL,
    },
    Case {
        name: "counted everywhere, denied on a part",
        asked: Noted,
        text: web!("http-request track-sc0 src" "http-request deny if { path_beg /api/ } { sc_http_req_rate(0) gt 5 }"),
        sent: PARTS,
    },
    Case {
        name: "counted and denied on a part",
        asked: Same,
        text: web!("http-request track-sc0 src if { path_beg /api/ }" "http-request deny if { path_beg /api/ } { sc_http_req_rate(0) gt 5 }"),
        sent: PARTS,
    },
    Case {
        name: "counted on a part, denied where it is counted",
        asked: Same,
        text: web!("http-request track-sc0 src if { path_beg /api/ }" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
        sent: PARTS,
    },
    Case {
        name: "counted on a part, denied everywhere",
        asked: Noted,
        text: web!("http-request track-sc0 src if { path_beg /api/ }" "http-request deny if { src_http_req_rate(web) gt 5 }"),
        sent: &[(4, "/"), (4, "/api/x"), (4, "/"), (4, "/api/y"), (4, "/"), (3, "/ from 127.0.0.2")],
    },
    Case {
        name: "two limits of one count",
        asked: Noted,
        text: web!("http-request track-sc0 src"
            "http-request deny if { path_beg /api/ } { sc_http_req_rate(0) gt 3 }"
            "http-request deny if { sc_http_req_rate(0) gt 10 }"),
        sent: PARTS,
    },
    Case {
        name: "exempt where it is denied",
        asked: Same,
        text: web!("acl ours src 127.0.0.2 127.1.0.0/16" "http-request track-sc0 src"
            "http-request deny if { sc_http_req_rate(0) gt 5 } !ours"),
        sent: &[(8, "/"), (8, "/ from 127.0.0.2"), (8, "/ from 127.1.0.1"), (8, "/ from 127.0.0.9")],
    },
    Case {
        name: "exempt where it is counted",
        asked: Same,
        text: web!("http-request track-sc0 src unless { src 127.0.0.2 }" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
        sent: &[(8, "/"), (8, "/ from 127.0.0.2"), (8, "/ from 127.0.0.9")],
    },
    Case {
        name: "only some addresses",
        asked: Noted,
        text: web!("http-request track-sc0 src" "http-request deny if { src 127.0.0.0/30 } { sc_http_req_rate(0) gt 5 }"),
        sent: &[(8, "/"), (8, "/ from 127.0.0.2"), (8, "/ from 127.0.0.9")],
    },
    Case {
        name: "a key in a header",
        asked: Same,
        text: concat!(
            plain!("http-request track-sc0 req.hdr(x-key) table keys" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
            "backend keys\n    stick-table type string len 64 size 1k expire 2h store http_req_rate(1h)\n"
        ),
        sent: KEYS,
    },
    Case {
        name: "a key in a header that some lack",
        asked: Noted,
        text: concat!(
            plain!("http-request track-sc0 hdr(x-key) table keys" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
            "backend keys\n    stick-table type string len 64 size 1k expire 2h store http_req_rate(1h)\n"
        ),
        sent: &[(7, "/ x-key: one"), (9, "/"), (7, "/ x-key: two"), (7, "/ from 127.0.0.2 x-key: one")],
    },
    Case {
        name: "keys that are cut off",
        asked: Noted,
        text: concat!(
            plain!("http-request track-sc0 req.hdr(x-key) table keys" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
            "backend keys\n    stick-table type string len 4 size 1k expire 2h store http_req_rate(1h)\n"
        ),
        sent: &[(4, "/ x-key: aaaa1"), (4, "/ x-key: aaaa2"), (4, "/ x-key: bbbb")],
    },
    Case {
        name: "keys in any case",
        asked: Noted,
        text: concat!(
            plain!("http-request track-sc0 req.hdr(x-key),lower table keys" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
            "backend keys\n    stick-table type string len 64 size 1k expire 2h store http_req_rate(1h)\n"
        ),
        sent: &[(4, "/ x-key: one"), (4, "/ x-key: ONE"), (4, "/ x-key: two")],
    },
    Case {
        name: "a key in the query",
        asked: Noted,
        text: concat!(
            plain!("http-request track-sc0 url_param(token) table keys" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
            "backend keys\n    stick-table type string len 64 size 1k expire 2h store http_req_rate(1h)\n"
        ),
        sent: &[(7, "/?token=one"), (7, "/?a=1&token=two"), (3, "/x?token=one")],
    },
    Case {
        name: "a key in a cookie",
        asked: Noted,
        text: concat!(
            plain!("http-request track-sc0 req.cook(session) table keys" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
            "backend keys\n    stick-table type string len 64 size 1k expire 2h store http_req_rate(1h)\n"
        ),
        sent: &[
            (7, "/ cookie: session=one"),
            (7, "/ cookie: a=1; session=two"),
            (3, "/x cookie: session=one"),
        ],
    },
    Case {
        name: "by path and address",
        asked: Noted,
        text: concat!(
            plain!("http-request track-sc0 base32+src table keys" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
            "backend keys\n    stick-table type binary len 20 size 1k expire 2h store http_req_rate(1h)\n"
        ),
        sent: &[(7, "/a"), (7, "/b"), (7, "/a from 127.0.0.2"), (7, "/a?x=1"), (7, "/a host: b.test")],
    },
    Case {
        name: "by network",
        asked: Noted,
        text: web!("http-request track-sc0 src,ipmask(24)" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
        sent: &[(4, "/"), (4, "/ from 127.0.0.2"), (4, "/ from 127.1.0.1")],
    },
    Case {
        name: "by an address that clients name",
        asked: Noted,
        text: web!("http-request track-sc0 hdr_ip(x-forwarded-for,-1)" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
        sent: &[
            (4, "/ x-forwarded-for: 10.0.0.1"),
            (4, "/ from 127.0.0.2 x-forwarded-for: 10.0.0.1"),
            (7, "/"),
        ],
    },
    Case {
        name: "both of two trackers",
        asked: Noted,
        text: concat!(
            web!("http-request track-sc0 src" "http-request track-sc1 req.hdr(x-key) table keys"
            "http-request deny if { sc0_http_req_rate gt 8 } { sc1_http_req_rate gt 4 }"),
            "backend keys\n    stick-table type string len 64 size 1k expire 2h store http_req_rate(1h)\n"
        ),
        sent: KEYS,
    },
    Case {
        name: "two windows",
        asked: Same,
        text: concat!(
            plain!("http-request track-sc0 src table short" "http-request track-sc1 src table long"
            "http-request deny if { sc_http_req_rate(0) gt 4 }" "http-request deny if { sc_http_req_rate(1) gt 6 }"),
            "backend short\n    stick-table type ip size 1k expire 2h store http_req_rate(1h)\n",
            "backend long\n    stick-table type ip size 1k expire 2d store http_req_rate(1d)\n"
        ),
        sent: ALL,
    },
    Case {
        name: "one table for two frontends",
        asked: Same,
        text: concat!(
            plain!("http-request track-sc0 src table all" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
            "frontend other\n    bind 127.0.0.1:OTHER\n    http-request track-sc0 src table all\n",
            "    http-request deny if { sc_http_req_rate(0) gt 5 }\n    default_backend api\n",
            "backend all\n    stick-table type ip size 1k expire 2h store http_req_rate(1h)\n"
        ),
        sent: &[(4, "/"), (4, "@other /"), (2, "/"), (4, "@other / from 127.0.0.2"), (4, "/ from 127.0.0.2")],
    },
    Case {
        name: "a table for each of two frontends",
        asked: Same,
        text: concat!(
            web!("http-request track-sc0 src" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
            "frontend other\n    bind 127.0.0.1:OTHER\n    stick-table type ip size 1k expire 2h store http_req_rate(1h)\n",
            "    http-request track-sc0 src\n    http-request deny if { sc_http_req_rate(0) gt 5 }\n    default_backend api\n"
        ),
        sent: &[(4, "/"), (4, "@other /"), (4, "/"), (4, "@other /")],
    },
    Case {
        name: "counted at one frontend, denied at another",
        asked: Noted,
        text: concat!(
            plain!("http-request track-sc0 src table all"),
            "frontend other\n    bind 127.0.0.1:OTHER\n    http-request deny if { src_http_req_rate(all) gt 5 }\n",
            "    default_backend api\n",
            "backend all\n    stick-table type ip size 1k expire 2h store http_req_rate(1h)\n"
        ),
        sent: &[(4, "@other /"), (7, "/"), (4, "@other /"), (4, "@other / from 127.0.0.2")],
    },
    Case {
        name: "denied before it is counted",
        asked: Noted,
        text: web!("http-request deny if { src_http_req_rate(web) gt 5 }" "http-request track-sc0 src"),
        sent: ALL,
    },
    Case {
        name: "by a count of a whole life",
        asked: Noted,
        text: concat!(
            plain!("http-request track-sc0 src table all" "http-request deny if { sc_http_req_cnt(0) gt 5 }"),
            "backend all\n    stick-table type ip size 1k expire 2h store http_req_cnt\n"
        ),
        sent: ALL,
    },
    Case {
        name: "errors of the service",
        asked: Noted,
        text: concat!(
            plain!("http-request track-sc0 src table all" "http-request deny if { sc_http_err_rate(0) gt 3 }"),
            "backend all\n    stick-table type ip size 1k expire 2h store http_err_rate(1h)\n"
        ),
        sent: &[(3, "/"), (6, "/ x-want: 404"), (3, "/"), (3, "/ from 127.0.0.2")],
    },
    Case {
        name: "connections",
        asked: Noted,
        text: concat!(
            plain!("tcp-request connection track-sc0 src table all" "tcp-request connection reject if { sc_conn_rate(0) gt 5 }"),
            "backend all\n    stick-table type ip size 1k expire 2h store conn_rate(1h)\n"
        ),
        sent: &[(8, "/ from 127.0.0.2"), (8, "/ from 127.0.0.9")],
    },
    Case {
        name: "tracked by the connection",
        asked: Noted,
        text: web!("tcp-request connection track-sc0 src" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
        sent: &[(8, "/ from 127.0.0.2"), (8, "/ from 127.0.0.9")],
    },
    Case {
        name: "tracked by the content",
        asked: Noted,
        text: web!("tcp-request inspect-delay 5s" "tcp-request content track-sc0 src if HTTP" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
        sent: ALL,
    },
    Case {
        name: "tarpit",
        asked: Noted,
        text: web!("http-request track-sc0 src" "http-request tarpit if { sc_http_req_rate(0) gt 5 }"),
        sent: ALL,
    },
    Case {
        name: "reject",
        asked: Noted,
        text: web!("http-request track-sc0 src" "http-request reject if { sc_http_req_rate(0) gt 5 }"),
        sent: ALL,
    },
    Case {
        name: "a reply of its own",
        asked: Noted,
        text: web!("http-request track-sc0 src" "http-request return status 429 content-type text/plain string slow if { sc_http_req_rate(0) gt 5 }"),
        sent: ALL,
    },
    Case {
        name: "a redirect",
        asked: Noted,
        text: web!("http-request track-sc0 src" "http-request redirect location /slow if { sc_http_req_rate(0) gt 5 }"),
        sent: ALL,
    },
    Case {
        name: "another backend",
        asked: Noted,
        text: web!("http-request track-sc0 src" "use_backend api if { sc_http_req_rate(0) gt 5 }"),
        sent: ALL,
    },
    Case {
        name: "a mark",
        asked: Noted,
        text: concat!(
            plain!("http-request track-sc0 src table all" "http-request sc-inc-gpc0(0) if { sc_http_req_rate(0) gt 5 }"
            "http-request deny if { sc_get_gpc0(0) gt 0 }"),
            "backend all\n    stick-table type ip size 1k expire 2h store http_req_rate(1h),gpc0\n"
        ),
        sent: ALL,
    },
    Case {
        name: "a tracker of a backend",
        asked: Noted,
        text: concat!(
            plain!("use_backend limited if { path_beg /api/ }"),
            "backend limited\n    stick-table type ip size 1k expire 2h store http_req_rate(1h)\n",
            "    http-request track-sc0 src\n    http-request deny if { sc_http_req_rate(0) gt 5 }\n    server two TWO\n"
        ),
        sent: PARTS,
    },
    Case {
        name: "counted by the frontend, denied by a backend",
        asked: Noted,
        text: concat!(
            web!("http-request track-sc0 src" "use_backend limited if { path_beg /api/ }"),
            "backend limited\n    http-request deny if { sc_http_req_rate(0,web) gt 5 }\n    server two TWO\n"
        ),
        sent: PARTS,
    },
    Case {
        name: "by method",
        asked: Same,
        text: web!("http-request track-sc0 src if METH_POST" "http-request deny if METH_POST { sc_http_req_rate(0) gt 5 }"),
        sent: &[(4, "POST /"), (8, "/"), (4, "POST /"), (2, "POST /x"), (8, "/"), (4, "PUT /")],
    },
    Case {
        name: "but for a method",
        asked: Noted,
        text: web!("http-request track-sc0 src unless METH_OPTIONS" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
        sent: &[(4, "/"), (8, "OPTIONS /"), (4, "/"), (4, "OPTIONS /"), (4, "POST / from 127.0.0.2")],
    },
    Case {
        name: "by host",
        asked: Noted,
        text: web!("acl a hdr(host) -i a.test" "http-request track-sc0 src if a" "http-request deny if a { sc_http_req_rate(0) gt 5 }"),
        sent: &[(4, "/"), (8, "/ host: b.test"), (4, "/"), (2, "/ host: b.test"), (2, "/ host: A.test")],
    },
    Case {
        name: "by host where it is denied",
        asked: Noted,
        text: web!("http-request track-sc0 src" "http-request deny if { hdr(host) -i a.test } { sc_http_req_rate(0) gt 5 }"),
        sent: &[(2, "/"), (5, "/ host: b.test"), (2, "/"), (4, "/ host: b.test")],
    },
    Case {
        name: "by a header where it is counted",
        asked: Noted,
        text: web!("http-request track-sc0 src if { hdr(x-plan) free }" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
        sent: &[
            (4, "/ x-plan: free"),
            (8, "/"),
            (4, "/ x-plan: free"),
            (2, "/ x-plan: gold"),
            (2, "/ x-plan: gold, free"),
        ],
    },
    Case {
        name: "answered before it is counted",
        asked: Same,
        text: web!("http-request return status 200 content-type text/plain string well if { path /health }"
            "http-request track-sc0 src" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
        sent: &[(8, "/health"), (7, "/"), (3, "/health")],
    },
    Case {
        name: "allowed before it is counted",
        asked: Noted,
        text: web!("http-request allow if { path /health }" "http-request track-sc0 src" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
        sent: &[(8, "/health"), (7, "/"), (3, "/health")],
    },
    Case {
        name: "allowed when it is counted",
        asked: Noted,
        text: web!("http-request track-sc0 src" "http-request allow if { path /health }" "http-request deny if { sc_http_req_rate(0) gt 5 }"),
        sent: &[(8, "/health"), (3, "/"), (3, "/health")],
    },
    Case {
        name: "answered when it is counted",
        asked: Noted,
        text: web!("http-request track-sc0 src" "http-request deny if { sc_http_req_rate(0) gt 5 }"
            "http-request return status 200 content-type text/plain string well if { path /health }"),
        sent: &[(3, "/health"), (4, "/"), (3, "/health")],
    },
    Case {
        name: "or something else",
        asked: Noted,
        text: web!("acl abuse sc_http_req_rate(0) gt 5" "acl abuse hdr(x-key) bad" "http-request track-sc0 src" "http-request deny if abuse"),
        sent: &[(2, "/ x-key: bad"), (7, "/"), (2, "/ from 127.0.0.2 x-key: bad"), (7, "/ from 127.0.0.2")],
    },
    Case {
        name: "or a path",
        asked: Noted,
        text: web!("http-request track-sc0 src" "http-request deny if { path_beg /closed } || { sc_http_req_rate(0) gt 5 }"),
        sent: &[(2, "/closed"), (7, "/"), (2, "/closed from 127.0.0.2"), (7, "/ from 127.0.0.2")],
    },
    Case {
        name: "tracked once",
        asked: Noted,
        text: concat!(
            plain!("http-request track-sc0 src table one if { path_beg /api/ }" "http-request track-sc0 src table other"
            "http-request deny if { sc_http_req_rate(0) gt 5 }"),
            "backend one\n    stick-table type ip size 1k expire 2h store http_req_rate(1h)\n",
            "backend other\n    stick-table type ip size 1k expire 2h store http_req_rate(1h)\n"
        ),
        sent: PARTS,
    },
    Case {
        name: "a tracker that is not there",
        asked: Noted,
        text: web!("http-request track-sc0 src" "http-request deny if { sc_http_req_rate(1) gt 5 }"),
        sent: ALL,
    },
];

fn generated(case: &Case, places: &Places<'_>) -> Generated {
    let api = if case.text.contains("_backend api") { API } else { "" };
    let mut text = format!("{HEAD}{}{APP}{api}", case.text);
    for (name, port) in [("PORT", places.ports[0]), ("OTHER", places.ports[1])] {
        text = text.replace(name, &port.to_string());
    }
    for (name, origin) in [("ONE", places.origins[0]), ("TWO", places.origins[1])] {
        text = text.replace(name, &origin.to_string());
    }
    let count = if text.contains("frontend other") { 2 } else { 1 };
    let listener = |port: &u16| Listener { address: ([127, 0, 0, 1], *port).into(), is_tls: false };
    let requests = case.sent.iter().flat_map(|(times, text)| vec![request(text); *times]);
    Generated {
        files: vec![("haproxy.cfg".to_owned(), text)],
        listeners: places.ports[..count].iter().map(listener).collect(),
        requests: requests.collect(),
        ..Generated::default()
    }
}

/// A request like `@other POST /x from 127.0.0.2 x-key: one`, of which all but the path may be left out.
fn request(text: &str) -> Sent {
    let (listener, text) = text.strip_prefix("@other ").map_or((0, text), |text| (1, text));
    let (method, text) = match text.starts_with('/') {
        true => ("GET", text),
        false => text.split_once(' ').unwrap(),
    };
    let (target, text) = text.split_once(' ').unwrap_or((text, ""));
    let (peer, text) = match text.strip_prefix("from ") {
        Some(rest) => rest.split_once(' ').unwrap_or((rest, "")),
        None => ("127.0.0.1", text),
    };
    let mut headers = vec![("host".to_owned(), "a.test".to_owned())];
    match text.split_once(": ") {
        Some(("host", value)) => value.clone_into(&mut headers[0].1),
        Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
        None => {}
    }
    Sent {
        listener,
        peer: peer.parse().unwrap(),
        to: None,
        tls_name: String::new(),
        has_certificate: false,
        method: method.to_owned(),
        target: target.to_owned(),
        headers,
        body: Body::None,
    }
}

#[test]
fn stick_tables_admit_no_fewer_than_what_they_are_converted_to() {
    let run = Run::new();
    let mut failures = Vec::new();
    let mut same = 0;
    let only = env::var("TOLLGATE_TEST_CASE").ok();
    let cases: Vec<&Case> = CASES
        .iter()
        .filter(|case| only.as_ref().is_none_or(|only| case.name.contains(only.as_str())))
        .collect();
    for case in &cases {
        match differs(&run, |places| generated(case, places)) {
            Ok(None) => same += 1,
            Ok(Some((_, true))) if case.asked == Noted => {}
            Ok(Some((text, _))) | Err(text) => failures.push(format!("=== {}\n{text}", case.name)),
        }
    }
    println!("{same} of {} cases admit the same", cases.len());
    assert!(failures.is_empty(), "{} fail:\n\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn random_stick_tables_admit_no_fewer_than_what_they_are_converted_to() {
    const CONFIGURATIONS: u64 = 20;
    let number = |name: &str| env::var(name).ok().map(|number| number.parse::<u64>().unwrap());
    let count = CONFIGURATIONS * number("TOLLGATE_TEST_ROUNDS").unwrap_or(1);
    let seeds = number("TOLLGATE_TEST_SEED").map_or(1..1 + count, |seed| seed..seed + 1);
    let run = Run::new();
    let mut failures = Vec::new();
    let (mut same, all) = (0, seeds.end - seeds.start);
    for seed in seeds {
        match differs(&run, |places| limits::generate(seed, places)) {
            Ok(None) => same += 1,
            Ok(Some((_, true))) => {}
            Ok(Some((text, false))) | Err(text) => {
                failures.push(format!("=== TOLLGATE_TEST_SEED={seed}\n{text}"));
            }
        }
    }
    println!("{same} of {all} configurations admit the same");
    let printed = failures.iter().take(5).map(String::as_str).collect::<Vec<_>>().join("\n\n");
    assert!(failures.is_empty(), "{} fail, such as:\n\n{printed}", failures.len());
    // A conversion that closes everything admits no more, either.
    assert!(same * 3 >= all, "only {same} of {all} configurations admit the same");
}

/// Where Tollgate first admits less, and whether a note says so. An error: it admits more.
fn differs(run: &Run, generate: impl Fn(&Places<'_>) -> Generated) -> Result<Option<(String, bool)>, String> {
    let (both, started) = run.start::<Haproxy>(generate);
    let pair = match started {
        Ok(pair) => pair,
        Err(NotRunning::Theirs(error)) => panic!("{}\n{error}", both.text()),
        Err(NotRunning::Ours(error)) => return Err(format!("{}\n{error}", both.text())),
    };
    let head = || format!("{}--- proxy.yaml\n{}", both.text(), pair.converted.yaml);
    let mut first = None;
    for (at, sent) in both.ours.requests.iter().enumerate() {
        let [theirs, ours] = run.outcomes(&pair, sent);
        if theirs.kind() == ours.kind() {
            continue;
        }
        let shown = || format!("{}\n  {at}: {sent}\n  theirs: {theirs}\n  ours: {ours}", head());
        if !ours.is_refused() {
            return Err(shown());
        }
        first.get_or_insert_with(shown);
    }
    Ok(first.map(|text| (text, pair.converted.has_notes)))
}
