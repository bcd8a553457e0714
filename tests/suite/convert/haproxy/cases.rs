//! Small configurations, one of each kind that a conversion is likely to get wrong, with the requests that tell.
//!
//! `PORT0` … are ports, `ONE`, `TWO`, `THREE` services, `BOTH` a certificate with its key, `CA` the clients' authority.

use super::{
    super::{
        agreement::{self, Run},
        sent::Sent,
        source::{Generated, Listener, Places},
    },
    Haproxy,
};

struct Case {
    name: &'static str,
    /// What follows `defaults`.
    text: &'static str,
    requests: &'static [&'static str],
    /// Words that have to be noted.
    noted: &'static [&'static str],
}

#[test]
fn small_configurations_of_haproxy_agree() {
    let mut run = Run::new();
    let only = std::env::var("TOLLGATE_TEST_CASE").ok();
    for case in CASES.iter().filter(|case| only.as_ref().is_none_or(|only| case.name.contains(only.as_str())))
    {
        run.check::<Haproxy>(case.name, |places| generated(case, places));
    }
    agreement::finish::<Haproxy>(run);
}

fn generated(case: &Case, places: &Places<'_>) -> Generated {
    let head = "defaults\n    mode http\n    timeout connect 2s\n    timeout client 10s\n    timeout server 10s\n    \
                timeout tarpit 10ms\n";
    let mut text = format!("{head}{}\n", case.text.trim());
    for (name, origin) in ["ONE", "TWO", "THREE"].iter().zip(places.origins) {
        text = text.replace(name, &origin.to_string());
    }
    for (name, file) in [("BOTH", &places.tls.both), ("CA", &places.tls.ca)] {
        text = text.replace(name, file);
    }
    for (nth, port) in places.ports.iter().enumerate() {
        text = text.replace(&format!("PORT{nth}"), &port.to_string());
    }
    let (mut listeners, mut off) = (Vec::new(), Vec::new());
    let mut is_off = false;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("frontend" | "listen") => is_off = false,
            Some("disabled") => is_off = true,
            Some("bind") => {
                let address = words.next().unwrap().replace('*', "0.0.0.0").parse().unwrap();
                match is_off {
                    true => off.push(address),
                    false => listeners.push(Listener { address, is_tls: line.contains(" ssl ") }),
                }
            }
            _ => {}
        }
    }
    let mut files = vec![("haproxy.cfg".to_owned(), text)];
    for (name, text) in FILES {
        if case.text.contains(name) {
            files.push((name.to_owned(), text.to_owned()));
        }
    }
    Generated {
        files,
        listeners,
        off,
        requests: case.requests.iter().map(|request| Sent::parse(request)).collect(),
        noted: case.noted.to_vec(),
        ..Generated::default()
    }
}

const FILES: [(&str, &str); 5] = [
    ("networks.lst", "# who may come in\n127.0.0.0/30\n\n127.1.0.1\n"),
    ("paths.lst", "/app\n/api/\n"),
    ("hosts.map", "a.test app\nb.test api\n"),
    ("403.http", "HTTP/1.0 403 Forbidden\r\ncontent-type: text/plain\r\n\r\ntext-of-a-file\n"),
    ("page.txt", "text-of-a-page %[src]\n"),
];

macro_rules! case {
    ($name:literal, $text:literal, [$($request:literal),* $(,)?]) => {
        case!($name, $text, [$($request),*], [])
    };
    ($name:literal, $text:literal, [$($request:literal),* $(,)?], [$($noted:literal),*]) => {
        Case { name: $name, text: $text, requests: &[$($request),*], noted: &[$($noted),*] }
    };
}

const CASES: &[Case] = &[
    // A request that meets several rules.
    case!(
        "a host for some addresses, and a path that is refused",
        "frontend web
    bind 127.0.0.1:PORT0
    acl admin hdr(host) -i a.test
    http-request deny if admin !{ src 127.0.0.0/30 }
    http-request deny deny_status 404 if { path_beg /hidden }
    default_backend app
backend app
    server one ONE",
        [
            "GET a.test/",
            "GET a.test/ from 127.0.0.9",
            "GET a.test/hidden from 127.0.0.9",
            "GET b.test/hidden",
            "GET b.test/ from 127.0.0.9"
        ]
    ),
    case!(
        "a rule for an end of hosts, and a backend for one of them",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny if { hdr_end(host) -i .a.test } { path_beg /admin }
    use_backend api if { hdr(host) -i x.a.test }
    default_backend app
backend app
    server one ONE
backend api
    server two TWO",
        [
            "GET x.a.test/admin",
            "GET x.a.test/",
            "GET a.test/admin",
            "GET y.a.test/admin",
            "GET y.a.test/",
            "GET x.a.test/admin/x?a=1"
        ]
    ),
    case!(
        "rules of the frontend and of the backend",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny if METH_DELETE
    use_backend api if { path_beg /api/ }
    default_backend app
backend app
    server one ONE
backend api
    http-request deny if { path_end .bak } !{ src 127.0.0.2 }
    http-request deny unless { method GET POST }
    server two TWO",
        [
            "DELETE a.test/api/x",
            "DELETE a.test/x",
            "PUT a.test/api/x",
            "HEAD a.test/api/x",
            "PUT a.test/x",
            "GET a.test/api/x.bak",
            "GET a.test/api/x.bak from 127.0.0.2",
            "GET a.test/x.bak"
        ]
    ),
    case!(
        "an end of paths and a beginning",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny if { path_end .php }
    use_backend api if { path_beg /api/ }
    default_backend app
backend app
    server one ONE
backend api
    server two TWO",
        ["GET a.test/api/x.php", "GET a.test/x.php", "GET a.test/api/x", "GET a.test/x", "GET a.test/api/x.php5"]
    ),
    // Rules before a reply.
    case!(
        "an address before a reply and a redirect",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny if !{ src 127.0.0.0/30 }
    http-request return status 200 content-type text/plain string text-1 if { path /health }
    http-request redirect location /new if { path /old }
    default_backend app
backend app
    server one ONE",
        [
            "GET a.test/health",
            "GET a.test/health from 127.0.0.9",
            "GET a.test/old",
            "GET a.test/old from 127.0.0.9",
            "GET a.test/x from 127.1.0.1"
        ]
    ),
    case!(
        "a reply before an address",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request return status 200 content-type text/plain string text-1 if { path /health }
    http-request deny if !{ src 127.0.0.0/30 }
    default_backend app
backend app
    server one ONE",
        ["GET a.test/health", "GET a.test/health from 127.0.0.9", "GET a.test/", "GET a.test/ from 127.0.0.9"]
    ),
    case!(
        "what is allowed is not denied behind",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request allow if { path_beg /open }
    http-request deny if { path_beg /open/not /closed }
    http-request deny if METH_DELETE
    default_backend app
backend app
    http-request deny if { path_beg /open/never }
    server one ONE",
        [
            "GET a.test/open/not",
            "GET a.test/closed",
            "GET a.test/open/never",
            "DELETE a.test/open/x",
            "DELETE a.test/x"
        ]
    ),
    case!(
        "a legacy redirect comes behind the rules",
        "frontend web
    bind 127.0.0.1:PORT0
    redirect location /there if { path_beg /x }
    http-request deny if { path_beg /x/closed }
    default_backend app
backend app
    server one ONE",
        ["GET a.test/x", "GET a.test/x/closed", "GET a.test/y"]
    ),
    // Listeners.
    case!(
        "a disabled frontend",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny if { path_beg /admin }
    default_backend app
frontend internal
    disabled
    bind 127.0.0.1:PORT1
    default_backend app
backend app
    server one ONE",
        ["GET a.test/", "GET a.test/admin"]
    ),
    case!(
        "a frontend for this machine, and a public one",
        "frontend web
    bind *:PORT0
    use_backend app if { hdr(host) -i a.test }
frontend internal
    bind 127.0.0.1:PORT1
    default_backend api
backend app
    server one ONE
backend api
    server two TWO",
        ["GET a.test/", "GET b.test/", "GET a.test/ at 1", "GET b.test/ at 1", "GET b.test/ from 127.0.0.9 at 1"]
    ),
    case!(
        "one frontend asks for certificates, another does not",
        "frontend web
    bind 127.0.0.1:PORT0 ssl crt BOTH
    default_backend app
frontend partners
    bind 127.0.0.1:PORT1 ssl crt BOTH ca-file CA verify required
    default_backend api
backend app
    server one ONE
backend api
    http-request set-header X-Client %[ssl_c_s_dn(cn)]
    server two TWO",
        [
            "GET a.test/",
            "GET a.test/ with certificate",
            "GET a.test/ at 1",
            "GET a.test/ at 1 with certificate",
            "GET a.test/ at 1 with certificate | x-client: root",
            "GET a.test/ | x-client: root"
        ]
    ),
    case!(
        "an optional certificate",
        "frontend web
    bind 127.0.0.1:PORT0 ssl crt BOTH ca-file CA verify optional
    http-request deny if { path_beg /partners } !{ ssl_c_used }
    http-request deny if { path_beg /acme } !{ ssl_c_s_dn(cn) acme }
    default_backend app
backend app
    server one ONE",
        [
            "GET a.test/",
            "GET a.test/partners",
            "GET a.test/partners with certificate",
            "GET a.test/acme",
            "GET a.test/acme with certificate"
        ]
    ),
    case!(
        "TLS and not",
        "frontend web
    bind 127.0.0.1:PORT0
    bind 127.0.0.1:PORT1 ssl crt BOTH
    http-request redirect scheme https code 301 unless { ssl_fc } || { path_beg /.well-known/ }
    http-response set-header Strict-Transport-Security max-age=31536000 if { ssl_fc }
    http-request set-header X-Forwarded-Proto https if { ssl_fc }
    default_backend app
backend app
    server one ONE",
        ["GET a.test/x?a=1", "GET a.test/.well-known/x", "GET a.test/x at 1", "GET b.test/ at 1", "POST a.test/x"]
    ),
    case!(
        "another port",
        "frontend web
    bind 127.0.0.1:PORT0
    bind 127.0.0.1:PORT1
    http-request deny if { path_beg /admin } !{ dst_port PORT1 }
    default_backend app
backend app
    server one ONE",
        ["GET a.test/admin", "GET a.test/admin at 1", "GET a.test/", "GET a.test/ at 1"]
    ),
    case!(
        "nobody named a backend",
        "frontend web
    bind 127.0.0.1:PORT0
    use_backend app if { path_beg /app }
backend app
    server one ONE",
        ["GET a.test/app", "GET a.test/"]
    ),
    case!(
        "a listen is another one's backend",
        "frontend web
    bind 127.0.0.1:PORT0
    use_backend service if { path_beg /x }
    default_backend app
listen service
    bind 127.0.0.1:PORT1
    http-request deny if { path_end .bak }
    server two TWO
backend app
    server one ONE",
        ["GET a.test/x", "GET a.test/x.bak", "GET a.test/y.bak", "GET a.test/y.bak at 1", "GET a.test/y at 1"]
    ),
    // Tests that must not become narrower or wider.
    case!(
        "tests of the whole URI",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny if { url_sub secret= }
    http-request deny if { url_beg /x?a }
    http-request deny if { url_end .bak }
    default_backend app
backend app
    server one ONE",
        ["GET a.test/?secret=1", "GET a.test/secret=", "GET a.test/x?ab=1", "GET a.test/x", "GET a.test/y?f=x.bak", "GET a.test/y.bak", "GET a.test/y.bak?a=1"]
    ),
    case!(
        "headers in any case, and lists",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny if { hdr(x-plan) -i blocked }
    http-request deny if { hdr(x-roles) guest }
    http-request deny if { path_beg /gold } !{ req.fhdr(x-plan) gold }
    default_backend app
backend app
    server one ONE",
        [
            "GET a.test/ | x-plan: BLOCKED",
            "GET a.test/ | x-plan: a, Blocked",
            "GET a.test/ | x-roles: admin,guest",
            "GET a.test/ | x-roles: Guest",
            "GET a.test/gold | x-plan: gold, a",
            "GET a.test/gold | x-plan: gold",
            "GET a.test/"
        ]
    ),
    case!(
        "a token that has to be there",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny deny_status 401 unless { hdr(authorization) -m found }
    http-request deny if { path_beg /admin } !{ hdr(x-token) -m str secret }
    default_backend app
backend app
    server one ONE",
        [
            "GET a.test/",
            "GET a.test/ | authorization: x",
            "GET a.test/admin | authorization: x",
            "GET a.test/admin | authorization: x | x-token: secret",
            "GET a.test/admin | authorization: x | x-token: secrets"
        ]
    ),
    case!(
        "cookies and queries",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny if { path_beg /member } !{ req.cook(session) -m found }
    http-request deny if { url_param(debug) 1 }
    use_backend api if { req.cook(beta) yes }
    default_backend app
backend app
    server one ONE
backend api
    server two TWO",
        [
            "GET a.test/member",
            "GET a.test/member | cookie: session=1",
            "GET a.test/?debug=1",
            "GET a.test/?a=2&debug=1&debug=2",
            "GET a.test/?debug=11",
            "GET a.test/ | cookie: beta=yes",
            "GET a.test/ | cookie: a=1; beta=yes; c=2",
            "GET a.test/ | cookie: beta=yess"
        ]
    ),
    case!(
        "an expression with several branches",
        r"frontend web
    bind 127.0.0.1:PORT0
    http-request deny if { path_reg -i ^/admin|\.bak$ }
    http-request deny if { path_reg ^/(x|y)/[a&&b]$ }
    http-request deny if { path_reg ^/z/(?=secret) }
    default_backend app
backend app
    server one ONE",
        [
            "GET a.test/ADMIN/x",
            "GET a.test/x/admin",
            "GET a.test/x.BAK",
            "GET a.test/x.bak/y",
            "GET a.test/x/&",
            "GET a.test/x/a",
            "GET a.test/z/secret",
            "GET a.test/z/open"
        ]
    ),
    case!(
        "directories",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny if { path_dir private }
    http-request deny if { path_sub ..x }
    default_backend app
backend app
    server one ONE",
        ["GET a.test/private", "GET a.test/a/private/b", "GET a.test/privates", "GET a.test/a..x", "GET a.test/x?private"]
    ),
    case!(
        "parts of hosts",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny if { hdr_dom(host) -i secret.test }
    http-request deny if { hdr_beg(host) -i admin. }
    http-request deny if { hdr_end(host) -i evil.test }
    use_backend api if { hdr_dom(host) -i api.test }
    default_backend app
backend app
    server one ONE
backend api
    server two TWO",
        [
            "GET secret.test/",
            "GET x.secret.test/",
            "GET secret.test.x.test/",
            "GET notsecret.test/",
            "GET admin.a.test/",
            "GET evil.test/",
            "GET notevil.test/",
            "GET api.test/",
            "GET x.api.test/",
            "GET a.test/"
        ]
    ),
    case!(
        "methods that are alike",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny if { method TRACE TRACK }
    http-request deny if { method -i delete }
    http-request deny if { path_beg /form } !METH_POST
    http-request deny if { path_beg /read } !METH_GET
    default_backend app
backend app
    server one ONE",
        [
            "TRACK a.test/",
            "TRACE a.test/",
            "DELETE a.test/",
            "GET a.test/form",
            "POST a.test/form",
            "HEAD a.test/read",
            "GET a.test/read",
            "OPTIONS a.test/read"
        ]
    ),
    case!(
        "an ACL that goes on behind its rule",
        "frontend web
    bind 127.0.0.1:PORT0
    acl closed path /x
    http-request deny if closed
    acl closed path /y
    acl closed src 127.0.0.9
    default_backend app
backend app
    server one ONE",
        ["GET a.test/x", "GET a.test/y", "GET a.test/z", "GET a.test/z from 127.0.0.9"]
    ),
    case!(
        "files of values",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny if !{ src -f networks.lst }
    use_backend api if { path_beg -f paths.lst }
    default_backend app
backend app
    server one ONE
backend api
    server two TWO",
        ["GET a.test/app", "GET a.test/", "GET a.test/ from 127.0.0.9", "GET a.test/api/x from 127.1.0.1", "GET a.test/api"]
    ),
    case!(
        "what is always, and never",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny if FALSE
    http-request deny if { path /x } TRUE
    http-request deny if { always_false } || { path /y }
    http-request deny if !HTTP_1.1 { path /z }
    default_backend app
backend app
    server one ONE",
        ["GET a.test/", "GET a.test/x", "GET a.test/y", "GET a.test/z"]
    ),
    // What a rule before has changed.
    case!(
        "a path that was edited",
        r"frontend web
    bind 127.0.0.1:PORT0
    http-request replace-path ^/v1/(.*) /\\1
    http-request deny if { path_beg /admin }
    use_backend api if { path_beg /api }
    default_backend app
backend app
    server one ONE
backend api
    server two TWO",
        ["GET a.test/v1/admin", "GET a.test/admin", "GET a.test/v1/api/x", "GET a.test/v1/x?a=1", "GET a.test/api"]
    ),
    case!(
        "fields that were edited",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request set-header X-Plan free unless { hdr(x-key) secret }
    http-request del-header X-Key
    http-request deny if { path_beg /gold } { hdr(x-plan) free }
    http-request deny if { path_beg /key } !{ hdr(x-key) -m found }
    http-request set-header Host internal.test if { path_beg /internal }
    http-request deny if { hdr(host) internal.test } { src 127.0.0.9 }
    default_backend app
backend app
    server one ONE",
        [
            "GET a.test/gold",
            "GET a.test/gold | x-key: secret",
            "GET a.test/key | x-key: secret",
            "GET a.test/ | x-plan: gold",
            "GET a.test/internal from 127.0.0.9",
            "GET internal.test/ from 127.0.0.9",
            "GET a.test/internal"
        ]
    ),
    // Fields.
    case!(
        "fields that nobody else may set",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request del-header x-internal- -m beg
    http-request set-header X-User guest
    http-request set-header X-Ip %[src]
    http-request del-header X-Admin
    http-request set-header X-Admin yes if { src 127.0.0.2 } { hdr(x-key) secret }
    default_backend app
backend app
    server one ONE",
        [
            "GET a.test/ | x-internal-a: 1 | x-internal: 2",
            "GET a.test/ | x-user: root",
            "GET a.test/ | x-admin: yes",
            "GET a.test/ from 127.0.0.2 | x-admin: yes | x-key: secret",
            "GET a.test/ from 127.0.0.2 | x-admin: yes"
        ]
    ),
    case!(
        "addresses in other fields",
        "frontend web
    bind 127.0.0.1:PORT0
    option forwardfor header X-Real-IP
    default_backend app
frontend other
    bind 127.0.0.1:PORT1
    option forwardfor except 127.0.0.0/8 header X-Client-IP
    default_backend app
backend app
    server one ONE",
        [
            "GET a.test/",
            "GET a.test/ from 127.0.0.2 | x-real-ip: 10.0.0.1",
            "GET a.test/ at 1",
            "GET a.test/ at 1 | x-client-ip: 10.0.0.1"
        ]
    ),
    case!(
        "an option of defaults that a frontend writes anew",
        "defaults
    mode http
    timeout connect 2s
    timeout client 10s
    timeout server 10s
    option forwardfor header X-Real-IP
frontend web
    bind 127.0.0.1:PORT0
    option forwardfor except 127.0.0.0/8
    default_backend app
frontend other
    bind 127.0.0.1:PORT1
    option forwardfor
    default_backend app
backend app
    option forwardfor
    server one ONE",
        ["GET a.test/ from 127.0.0.2", "GET a.test/ from 127.0.0.2 at 1", "GET a.test/ at 1 | x-real-ip: 10.0.0.1"]
    ),
    case!(
        "a scheme and a host that are set by hand",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request set-header X-Forwarded-Proto https
    http-request set-header X-Forwarded-Host shop.test
    http-request set-header X-Forwarded-Port 443
    default_backend app
backend app
    server one ONE",
        ["GET a.test/", "GET a.test/ | x-forwarded-proto: http | x-forwarded-host: evil.test"]
    ),
    case!(
        "fields of responses",
        "frontend web
    bind 127.0.0.1:PORT0
    http-response set-header X-Frame-Options DENY
    http-response set-header Content-Security-Policy \"default-src 'self'\"
    http-response del-header x-origin- -m beg
    http-response del-header X-Powered-By
    http-response add-header Set-Cookie \"proxy=1; Path=/\"
    http-after-response set-header X-Content-Type-Options nosniff
    http-request deny if { path /x }
    default_backend app
backend app
    http-response set-header Access-Control-Allow-Origin https://a.test
    server one ONE",
        ["GET a.test/", "GET a.test/x", "GET a.test/ | x-want: 404"]
    ),
    // What can be seen from outside.
    case!(
        "checks of a load balancer",
        "frontend web
    bind 127.0.0.1:PORT0
    monitor-uri /alive
    http-request deny if { src 127.0.0.9 }
    default_backend app
backend app
    server one ONE",
        ["GET a.test/alive", "HEAD a.test/alive", "GET a.test/alive from 127.0.0.9", "GET a.test/alive/x", "GET a.test/"]
    ),
    case!(
        "checks that fail",
        "frontend web
    bind 127.0.0.1:PORT0
    monitor-uri /alive
    monitor fail if { nbsrv(api) lt 1 }
    default_backend app
backend app
    server one ONE
backend api",
        ["GET a.test/alive", "GET a.test/"]
    ),
    case!(
        "statistics",
        "frontend web
    bind 127.0.0.1:PORT0
    stats enable
    stats uri /stats
    stats auth ann:secret
    default_backend app
listen admin
    bind 127.0.0.1:PORT1
    stats enable
    stats uri /
backend app
    server one ONE",
        ["GET a.test/", "GET a.test/stats", "GET a.test/stats;csv", "GET a.test/x at 1", "GET a.test/ at 1"],
        ["stats"]
    ),
    case!(
        "compression and errors of its own",
        "frontend web
    bind 127.0.0.1:PORT0
    errorfile 403 403.http
    compression algo gzip
    compression type text/html
    http-request deny if { path /x }
    default_backend app
backend app
    server one ONE",
        ["GET a.test/x", "GET a.test/", "GET a.test/ | accept-encoding: gzip"],
        ["compression", "errorfile"]
    ),
    case!(
        "servers that wait, and that are off",
        "frontend web
    bind 127.0.0.1:PORT0
    use_backend api if { path_beg /api }
    default_backend app
backend app
    server one ONE
    server spare TWO backup
    server off THREE disabled
backend api
    server spare TWO backup
    server off ONE disabled",
        ["GET a.test/", "GET a.test/x", "GET a.test/api", "GET a.test/api/x"],
        ["backup"]
    ),
    case!(
        "a backend without servers",
        "frontend web
    bind 127.0.0.1:PORT0
    use_backend none if { path_beg /none }
    use_backend weightless if { path_beg /weightless }
    default_backend app
backend app
    server one ONE
backend weightless
    server one ONE disabled
backend none",
        ["GET a.test/", "GET a.test/none", "GET a.test/weightless"]
    ),
    case!(
        "a server for some",
        "frontend web
    bind 127.0.0.1:PORT0
    default_backend app
backend app
    use-server two if { path_beg /two }
    use-server one unless { path_beg /two }
    server one ONE
    server two TWO",
        ["GET a.test/two", "GET a.test/", "GET a.test/", "GET a.test/two"]
    ),
    // What is not known closes.
    case!(
        "backends by a table",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny if { path_beg /closed }
    use_backend %[req.hdr(host),lower,map(hosts.map,app)] if { path_beg /map }
    default_backend app
backend app
    server one ONE
backend api
    server two TWO",
        ["GET a.test/map", "GET b.test/map", "GET a.test/closed", "GET a.test/"]
    ),
    case!(
        "branches of the configuration",
        "frontend web
    bind 127.0.0.1:PORT0
.if !defined(NOT_THERE)
    http-request deny if { path /x }
.else
    http-request deny if { path /y }
.endif
    default_backend app
backend app
    server one ONE",
        ["GET a.test/x", "GET a.test/y", "GET a.test/"]
    ),
    case!(
        "variables",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request set-var(txn.blocked) bool(true) if { path_beg /x }
    http-request set-var(txn.host) req.hdr(host),lower
    http-request deny if { var(txn.blocked) -m bool }
    use_backend api if { var(txn.host) -m str b.test }
    default_backend app
backend app
    server one ONE
backend api
    server two TWO",
        ["GET a.test/x", "GET a.test/", "GET b.test/", "GET b.test/x"]
    ),
    case!(
        "rules of the connection",
        "frontend web
    bind 127.0.0.1:PORT0
    tcp-request connection reject if { src 127.0.0.9 }
    tcp-request connection accept if { src 127.0.0.2 }
    tcp-request connection reject if !{ src 127.0.0.0/28 }
    tcp-request inspect-delay 1s
    tcp-request content reject if { src 127.0.0.3 }
    default_backend app
backend app
    server one ONE",
        [
            "GET a.test/",
            "GET a.test/ from 127.0.0.9",
            "GET a.test/ from 127.0.0.2",
            "GET a.test/ from 127.1.0.1",
            "GET a.test/ from 127.0.0.3"
        ]
    ),
    case!(
        "passwords",
        "userlist people
    group admins users ann
    user ann insecure-password secret
    user bob insecure-password secret
frontend web
    bind 127.0.0.1:PORT0
    http-request deny if { src 127.0.0.9 }
    http-request auth realm people if { path_beg /member } !{ http_auth(people) }
    http-request deny if { path_beg /admin } !{ http_auth_group(people) admins }
    default_backend app
backend app
    server one ONE",
        [
            "GET a.test/",
            "GET a.test/member",
            "GET a.test/member | authorization: Basic YW5uOnNlY3JldA==",
            "GET a.test/admin | authorization: Basic Ym9iOnNlY3JldA==",
            "GET a.test/admin | authorization: Basic YW5uOnNlY3JldA==",
            "GET a.test/member from 127.0.0.9"
        ]
    ),
    case!(
        "responses that are refused",
        "frontend web
    bind 127.0.0.1:PORT0
    http-response deny if { status 500 }
    http-response return status 503 content-type text/plain string text-1 if { status 404 }
    default_backend app
backend app
    server one ONE",
        ["GET a.test/", "GET a.test/ | x-want: 500", "GET a.test/ | x-want: 404"]
    ),
    case!(
        "not HTTP",
        "frontend web
    bind 127.0.0.1:PORT0
    default_backend app
listen raw
    bind 127.0.0.1:PORT1
    mode tcp
    server two TWO
backend app
    server one ONE",
        ["GET a.test/", "GET a.test/ at 1"]
    ),
    // Results that load.
    case!(
        "replies that Tollgate has not",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request return status 200 content-type text/plain lf-file page.txt if { path /file }
    http-request return status 204 if { path /empty }
    http-request return status 200 content-type text/plain lf-string \"text-2 %[req.hdr(host)]\" if { path /host }
    http-request return status 200 content-type text/plain string \"text-3 # %[src]\" if { path /text }
    http-request deny deny_status 425 if { path /early }
    default_backend app
backend app
    server one ONE",
        [
            "GET a.test/file",
            "GET a.test/empty",
            "GET a.test/host",
            "GET a.test/text",
            "GET a.test/early",
            "GET a.test/"
        ]
    ),
    case!(
        "paths that are no ASCII",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny if { path_beg /caf\u{e9} }
    http-request deny if { path_beg /{id} }
    http-request deny if { path /a*b }
    default_backend app
backend app
    server one ONE",
        ["GET a.test/", "GET a.test/x", "GET a.test/a*b", "GET a.test/axb"]
    ),
    case!(
        "quotes, escapes and comments",
        "frontend web # the first
    bind 127.0.0.1:PORT0
    http-request deny if { path \"/x\" } # not /y
    http-request deny if { hdr(x-key) 'a b' }
    http-request set-header X-Text a\\ b\\#c
    http-request set-header X-Percent \"100%%\"
    default_backend app
backend app
    server one ONE",
        ["GET a.test/x", "GET a.test/y", "GET a.test/ | x-key: a b", "GET a.test/ | x-key: a"]
    ),
    case!(
        "redirects",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request redirect location https://new.test/a?b=1 if { path /location }
    http-request redirect prefix https://new.test code 301 if { path_beg /prefix/ }
    http-request redirect prefix https://new.test/base drop-query if { path_beg /base/ }
    http-request redirect scheme https if { hdr(host) -i b.test }
    http-request redirect location https://%[req.hdr(host)]/x%[path] if { path_beg /format }
    http-request redirect prefix / code 308 append-slash if { path /slash }
    default_backend app
backend app
    server one ONE",
        [
            "GET a.test/location?c=1",
            "GET a.test/prefix/x?c=1",
            "GET a.test/base/x?c=1",
            "GET b.test/x?c=1",
            "GET a.test/format/y",
            "GET a.test/slash",
            "GET a.test/slash?a=1",
            "POST b.test/prefix/x"
        ]
    ),
    case!(
        "paths that are set",
        r"frontend web
    bind 127.0.0.1:PORT0
    use_backend strip if { path_beg /strip/ }
    use_backend prepend if { path_beg /prepend }
    use_backend whole if { path_beg /whole }
    use_backend part if { path_beg /part }
    default_backend app
backend strip
    http-request replace-path /strip/(.*) /\\1
    server one ONE
backend prepend
    http-request set-path /v2%[path]
    server one ONE
backend whole
    http-request set-path /one
    http-request set-query a=2 if { query -m found }
    server one ONE
backend part
    http-request replace-path (.*)/x(.*) \\1/y\\2
    server one ONE
backend app
    server one ONE",
        [
            "GET a.test/strip/a?b=1",
            "GET a.test/strip/strip/a",
            "GET a.test/strip/",
            "GET a.test/prepend/a?b=1",
            "GET a.test/whole/a?b=1",
            "GET a.test/whole/a",
            "GET a.test/part/x/x"
        ]
    ),
    case!(
        "paths that are set twice",
        r"frontend web
    bind 127.0.0.1:PORT0
    use_backend groups if { path_beg /user/ }
    use_backend strip if { path_beg /strip/ }
    use_backend whole if { path_beg /whole }
    default_backend app
backend groups
    http-request replace-path ^/user/([a-z]+)$ /people/\\1
    http-request set-path /v2%[path]
    server one ONE
backend strip
    http-request replace-path ^/strip/(.*) /\\1
    http-request replace-path ^/old/(.*) /new/\\1
    http-request set-path /v2%[path]
    server one ONE
backend whole
    http-request replace-path ^/whole/([a-z]+)$ /\\1
    http-request set-path /one
    server one ONE
backend app
    server one ONE",
        [
            "GET a.test/user/ann",
            "GET a.test/user/1",
            "GET a.test/strip/a?b=1",
            "GET a.test/strip/old/a",
            "GET a.test/whole/a?b=1",
            "GET a.test/whole/1"
        ]
    ),
    case!(
        "a redirect of a path that was set",
        r"frontend web
    bind 127.0.0.1:PORT0
    http-request set-path /there if { path /whole }
    http-request replace-path ^/old/(.*) /new/\\1
    http-request redirect prefix https://new.test if { hdr(host) -i b.test }
    http-request redirect scheme https if { hdr(host) -i c.test }
    http-request redirect location /fixed if { hdr(host) -i x.b.test }
    default_backend app
backend app
    redirect prefix https://new.test if { hdr(host) -i x.c.test }
    server one ONE",
        [
            "GET b.test/whole?a=1",
            "GET b.test/old/x",
            "GET b.test/x",
            "GET c.test/whole",
            "GET c.test/old/x",
            "GET c.test/x",
            "GET x.b.test/old/x",
            "GET x.c.test/old/x",
            "GET x.c.test/x",
            "GET a.test/old/x"
        ]
    ),
    case!(
        "what a rule has changed is what the others compare",
        r"frontend web
    bind 127.0.0.1:PORT0
    http-request set-method POST if { path /closed }
    http-request set-header Host c.test if { path /host }
    http-request set-uri /there if { path /uri }
    http-request set-path /there if { path_beg /c }
    use_backend web if { hdr(host) c.test }
    use_backend api if { path /there }
    default_backend app
backend web
    server one TWO
backend api
    http-request allow if { path /there }
    http-request set-path /x
    http-request deny if { hdr(host) b.test }
    server one TWO
backend app
    http-request deny if { path /host } or { path /uri } or { path_beg /a }
    http-request allow if { path /b }
    http-request set-path /b
    http-request deny if { hdr(host) b.test }
    server one ONE",
        [
            "GET a.test/closed",
            "GET a.test/closer",
            "GET a.test/host",
            "GET a.test/uri",
            "GET a.test/there",
            "GET b.test/there",
            "GET a.test/b",
            "GET b.test/b",
            "GET b.test/x",
            "GET a.test/x"
        ]
    ),
    case!(
        "statistics before a backend that refuses",
        "frontend web
    bind 127.0.0.1:PORT0
    stats enable
    stats uri /stats
    http-request deny if { path /stats/x }
    default_backend app
backend app
    http-request deny if { path_beg /s }
    server one ONE",
        ["POST a.test/stats", "GET a.test/stats", "GET a.test/stats/x", "GET a.test/s", "GET a.test/"]
    ),
    case!(
        "one header several times",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request add-header X-Plan one
    http-request set-header X-Plan two
    http-request add-header X-Plan three
    http-request set-header X-Kind one
    http-request del-header X-Kind
    http-request add-header X-Kind two
    http-request del-header X-User
    http-request add-header X-User one if { path /x }
    http-request add-header X-Forwarded-Host a.test
    http-request set-header X-Forwarded-Host %[req.hdr(host)]
    http-request set-header X-Forwarded-Proto https
    http-request set-header X-Forwarded-Proto http if !{ ssl_fc }
    http-response add-header X-Origin-A one
    http-response set-header X-Origin-A two
    http-response del-header X-Powered-By
    http-response add-header X-Powered-By one
    default_backend app
backend app
    server one ONE",
        [
            "GET a.test/ | x-plan: zero | x-user: root",
            "GET b.test/ | x-forwarded-host: c.test",
            "GET a.test/x | x-user: root | x-kind: zero"
        ]
    ),
    case!(
        "headers of all responses",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request return status 200 content-type text/plain string text-one if { path /reply }
    http-request redirect location /there if { path /redirect }
    http-request deny if { path /deny }
    http-response set-header X-Origin-A frontend
    http-after-response set-header X-Origin-A after
    http-after-response set-header X-Frame-Options DENY
    http-after-response add-header X-Added frontend
    use_backend api if { path_beg /api/ }
    default_backend app
backend api
    http-request return status 200 content-type text/plain string text-two if { path /api/reply }
    http-request redirect location /there if { path /api/redirect }
    http-after-response set-header X-Frame-Options SAMEORIGIN
    http-after-response set-header X-Backend api
    http-after-response add-header X-Added backend
    http-response add-header X-Added response
    server two TWO
backend app
    server one ONE",
        [
            "GET a.test/",
            "GET a.test/reply",
            "GET a.test/redirect",
            "GET a.test/deny",
            "GET a.test/api/",
            "GET a.test/api/reply",
            "GET a.test/api/redirect"
        ]
    ),
    case!(
        "compression that nothing gets to",
        "frontend web
    bind 127.0.0.1:PORT0
    http-request deny if { path_beg / }
    default_backend app
backend app
    compression algo gzip
    compression type text/plain
    server one ONE",
        ["GET a.test/"],
        ["compression"]
    ),
];
