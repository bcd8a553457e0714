//! Small configurations, one of each kind that a conversion is likely to get wrong, with the requests that tell.
//!
//! `PORT0` … are ports, `ONE`, `TWO`, `THREE` services, `CERT`, `KEY`, `CA` files.

use super::{
    super::{
        agreement::{self, Run},
        sent::Sent,
        source::{Generated, Listener, Places},
    },
    Nginx,
};

struct Case {
    name: &'static str,
    text: &'static str,
    requests: &'static [&'static str],
}

#[test]
fn small_configurations_of_nginx_agree() {
    let mut run = Run::new();
    let only = std::env::var("TOLLGATE_TEST_CASE").ok();
    for case in CASES.iter().filter(|case| only.as_ref().is_none_or(|only| case.name.contains(only.as_str())))
    {
        run.check::<Nginx>(case.name, |places| generated(case, places));
    }
    agreement::finish::<Nginx>(run);
}

fn generated(case: &Case, places: &Places<'_>) -> Generated {
    let head = "access_log off; client_body_temp_path body; proxy_temp_path proxy;\n\
                fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;";
    let mut text = format!("events {{ }}\nhttp {{\n{head}\n{}\n}}\n", case.text.trim_end());
    for (name, origin) in ["ONE", "TWO", "THREE"].iter().zip(places.origins) {
        text = text.replace(name, &origin.to_string());
    }
    for (name, file) in [("CERT", &places.tls.cert), ("KEY", &places.tls.key), ("CA", &places.tls.ca)] {
        text = text.replace(name, file);
    }
    // The first with TLS is told by its line.
    let listeners: Vec<Listener> = (0..places.ports.len())
        .filter_map(|nth| {
            let mark = format!("PORT{nth}");
            let line = text
                .lines()
                .find(|line| line.contains(&format!("{mark};")) || line.contains(&format!("{mark} ")))?;
            let (before, after) = line.split_once(&mark)?;
            let address = before.trim_end_matches(':').rsplit(' ').next()?.trim();
            let address = if address.is_empty() { "0.0.0.0" } else { address };
            let address = format!("{address}:{}", places.ports[nth]).parse().unwrap();
            Some(Listener { address, is_tls: after.trim_start().starts_with("ssl") })
        })
        .collect();
    for (nth, port) in places.ports.iter().enumerate() {
        text = text.replace(&format!("PORT{nth}"), &port.to_string());
    }
    let mut files = vec![("nginx.conf".to_owned(), text)];
    files.push(("htpasswd".to_owned(), "ann:{PLAIN}secret\n".to_owned()));
    Generated {
        files,
        listeners,
        requests: case.requests.iter().map(|request| Sent::parse(request)).collect(),
        trusted: match case.text.contains("set_real_ip_from 127.0.0.1") {
            true => vec!["127.0.0.1".parse().unwrap()],
            false => Vec::new(),
        },
        ..Generated::default()
    }
}

const CASES: &[Case] = &[
    Case {
        name: "a negated condition",
        text: "server { listen 127.0.0.1:PORT0;
          if ($cookie_beta != yes) { return 403; }
          location / { proxy_pass http://ONE; } }",
        requests: &["GET a.test/", "GET a.test/ | cookie: beta=yes", "GET a.test/ | cookie: beta=no"],
    },
    Case {
        name: "a condition on the address",
        text: "server { listen 127.0.0.1:PORT0;
          if ($remote_addr = 127.0.0.2) { return 403; }
          location / { proxy_pass http://ONE; }
          location /x { if ($remote_addr ~ ^127\\.1\\.) { return 403; } proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/",
            "GET a.test/ from 127.0.0.2",
            "GET a.test/x from 127.1.0.1",
            "GET a.test/x from 127.0.0.2",
        ],
    },
    Case {
        name: "a condition on the path",
        text: "server { listen 127.0.0.1:PORT0;
          if ($uri ~ ^/app/admin) { return 403; }
          if ($request_uri ~* debug) { return 403; }
          location / { proxy_pass http://ONE; } }",
        requests: &["GET a.test/", "GET a.test/app/admin/x", "GET a.test/x?debug=1", "GET a.test/x?DEBUG"],
    },
    Case {
        name: "a condition on the host",
        text: "server { listen 127.0.0.1:PORT0; server_name a.test *.a.test;
          if ($host != a.test) { return 301 https://a.test$request_uri; }
          location / { proxy_pass http://ONE; } }",
        requests: &["GET a.test/x", "GET x.a.test/x", "GET b.test/x"],
    },
    Case {
        name: "a condition on several methods",
        text: "server { listen 127.0.0.1:PORT0;
          if ($request_method !~ ^(GET|HEAD)$) { return 405; }
          location / { proxy_pass http://ONE; } }",
        requests: &["GET a.test/", "HEAD a.test/", "POST a.test/", "PURGE a.test/", "OPTIONS a.test/"],
    },
    Case {
        name: "GET is not HEAD",
        text: "server { listen 127.0.0.1:PORT0;
          if ($request_method = HEAD) { return 403; }
          location / { if ($request_method = GET) { return 200 text-1; } proxy_pass http://ONE; } }",
        requests: &["GET a.test/", "HEAD a.test/", "POST a.test/"],
    },
    Case {
        name: "a condition on a missing or empty value",
        text: "server { listen 127.0.0.1:PORT0;
          if ($http_x_key = \"\") { return 401; }
          if ($arg_token = \"\") { return 403; }
          location / { proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/",
            "GET a.test/?token=t | x-key: k",
            "GET a.test/?token= | x-key: k",
            "GET a.test/?token=t",
        ],
    },
    Case {
        name: "an expression on a field",
        text: "server { listen 127.0.0.1:PORT0;
          if ($http_user_agent ~* (bot|crawl)) { return 403; }
          location / { proxy_pass http://ONE; } }",
        requests: &["GET a.test/ | user-agent: GoodBot/1", "GET a.test/ | user-agent: curl", "GET a.test/"],
    },
    Case {
        name: "names of arguments and cookies in any case",
        text: "server { listen 127.0.0.1:PORT0;
          if ($arg_debug = 1) { return 403; }
          if ($cookie_beta = yes) { return 403; }
          location / { proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/?debug=1",
            "GET a.test/?DEBUG=1",
            "GET a.test/?debug=%31",
            "GET a.test/?debug=2&debug=1",
            "GET a.test/ | cookie: beta=yes",
            "GET a.test/ | cookie: BETA=yes",
            "GET a.test/ | cookie: a=1; beta=yes",
        ],
    },
    Case {
        name: "what has to be there, spelled otherwise",
        text: "server { listen 127.0.0.1:PORT0;
          location /a { if ($arg_debug != 1) { return 403; } proxy_pass http://ONE; }
          location /b { if ($cookie_beta != yes) { return 403; } proxy_pass http://ONE; }
          location /c { if ($http_x_key != secret) { return 403; } proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/a?debug=1",
            "GET a.test/a?debug=%31",
            "GET a.test/a?debug=2&debug=1",
            "GET a.test/b | cookie: beta=yes",
            "GET a.test/b | cookie: beta=no; beta=yes",
            "GET a.test/b | cookie: beta=\"yes\"",
            "GET a.test/c | x-key: secret",
            "GET a.test/c | x-key: SECRET",
            "GET a.test/c | x-key: secret, other",
        ],
    },
    Case {
        name: "paths that are spelled otherwise",
        text: "server { listen 127.0.0.1:PORT0;
          location / { proxy_pass http://ONE; }
          location /app/admin/ { deny all; proxy_pass http://ONE; }
          location = /only { deny all; proxy_pass http://ONE; }
          location ~ \\.php$ { deny all; proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/app/admin/x",
            "GET a.test/app//admin/x",
            "GET a.test/app/%61dmin/x",
            "GET a.test/app%2fadmin/x",
            "GET a.test/x/../app/admin/x",
            "GET a.test/x/%2e%2e/app/admin/x",
            "GET a.test/app/admin;x/y",
            "GET a.test/APP/ADMIN/x",
            "GET a.test//only",
            "GET a.test/only/",
            "GET a.test/%6fnly",
            "GET a.test/x.ph%70",
            "GET a.test/x.php%00",
            "GET a.test/x.php/y",
        ],
    },
    Case {
        name: "a condition by a table",
        text: "geo $inside { default 0; 127.0.0.0/28 1; }
        map $http_x_plan $plan { default free; gold gold; }
        server { listen 127.0.0.1:PORT0;
          if ($inside = 0) { return 403; }
          location / { proxy_pass http://ONE; }
          location /gold/ { if ($plan != gold) { return 402; } proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/",
            "GET a.test/ from 127.0.0.99",
            "GET a.test/gold/",
            "GET a.test/gold/ | x-plan: gold",
            "GET a.test/gold/ | x-plan: golden",
        ],
    },
    Case {
        name: "a condition in two steps",
        text: "server { listen 127.0.0.1:PORT0;
          set $blocked 0;
          if ($http_x_key = bad) { set $blocked 1; }
          if ($blocked = 1) { return 403; }
          location / { proxy_pass http://ONE; } }",
        requests: &["GET a.test/", "GET a.test/ | x-key: bad"],
    },
    Case {
        name: "proxy_pass under a condition",
        text: "server { listen 127.0.0.1:PORT0;
          location / { if ($cookie_beta = yes) { proxy_pass http://TWO; } proxy_pass http://ONE; } }",
        requests: &["GET a.test/", "GET a.test/ | cookie: beta=yes"],
    },
    Case {
        name: "fields under a condition",
        text: "server { listen 127.0.0.1:PORT0;
          location / { add_header X-Added outer always;
            if ($arg_debug = 1) { add_header X-Added inner always; }
            proxy_pass http://ONE; } }",
        requests: &["GET a.test/", "GET a.test/?debug=1"],
    },
    Case {
        name: "limit_except",
        text: "server { listen 127.0.0.1:PORT0;
          location / { limit_except GET { allow 127.0.0.2; deny all; } proxy_pass http://ONE; }
          location /x { limit_except POST OPTIONS { deny all; } proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/",
            "HEAD a.test/",
            "POST a.test/",
            "POST a.test/ from 127.0.0.2",
            "GET a.test/x",
            "POST a.test/x",
            "OPTIONS a.test/x",
        ],
    },
    Case {
        name: "allow before deny",
        text: "server { listen 127.0.0.1:PORT0;
          location / { allow 127.0.0.1; deny 127.0.0.0/24; proxy_pass http://ONE; }
          location /x { deny 127.0.0.2; allow 127.0.0.0/24; deny all; proxy_pass http://ONE; }
          location /y { allow 127.0.0.0/28; deny 127.0.0.0/24; allow 127.0.0.0/8; deny all; proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/ from 127.0.0.1",
            "GET a.test/ from 127.0.0.9",
            "GET a.test/ from 127.1.0.1",
            "GET a.test/x from 127.0.0.2",
            "GET a.test/x from 127.0.0.9",
            "GET a.test/x from 127.1.0.1",
            "GET a.test/y from 127.0.0.9",
            "GET a.test/y from 127.0.0.99",
            "GET a.test/y from 127.1.0.1",
        ],
    },
    Case {
        name: "addresses that are none",
        text: "server { listen 127.0.0.1:PORT0;
          location / { allow 127.0.0.9; deny all; return 200 text-1; }
          location /x { deny all; proxy_pass http://ONE; }
          location /y { allow unix:; deny all; proxy_pass http://ONE; } }",
        requests: &["GET a.test/", "GET a.test/x", "GET a.test/y"],
    },
    Case {
        name: "inherited rules for addresses",
        text: "deny 127.0.0.2;
        server { listen 127.0.0.1:PORT0;
          location / { proxy_pass http://ONE; }
          location /own/ { deny 127.0.0.9; proxy_pass http://ONE; }
          location /open/ { allow all; proxy_pass http://ONE; location /open/x { proxy_pass http://TWO; } } }",
        requests: &[
            "GET a.test/ from 127.0.0.2",
            "GET a.test/ from 127.0.0.9",
            "GET a.test/own/ from 127.0.0.2",
            "GET a.test/own/ from 127.0.0.9",
            "GET a.test/open/ from 127.0.0.2",
            "GET a.test/open/x from 127.0.0.2",
        ],
    },
    Case {
        name: "satisfy any",
        text: "server { listen 127.0.0.1:PORT0;
          location / { satisfy any; allow 127.0.0.2; deny all; auth_basic realm; auth_basic_user_file htpasswd;
            proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/",
            "GET a.test/ from 127.0.0.2",
            "GET a.test/ | authorization: Basic YW5uOnNlY3JldA==",
        ],
    },
    Case {
        name: "a password, and a location without",
        text: "server { listen 127.0.0.1:PORT0;
          auth_basic realm; auth_basic_user_file htpasswd;
          location / { proxy_pass http://ONE; }
          location /health { auth_basic off; return 200 text-1; } }",
        requests: &[
            "GET a.test/",
            "GET a.test/ | authorization: Basic YW5uOnNlY3JldA==",
            "GET a.test/health",
        ],
    },
    Case {
        name: "internal",
        text: "server { listen 127.0.0.1:PORT0;
          location /x { internal; proxy_pass http://ONE; }
          location / { proxy_pass http://TWO; }
          location /app/ { rewrite ^/app/(.*)$ /x/$1 last; } }",
        requests: &["GET a.test/x", "GET a.test/", "GET a.test/app/a"],
    },
    Case {
        name: "a server that listens elsewhere",
        text: "server { listen 127.0.0.1:PORT0; server_name a.test; location / { proxy_pass http://ONE; } }
        server { listen 127.0.0.1:PORT1; location / { proxy_pass http://TWO; } location /admin { proxy_pass http://THREE; } }",
        requests: &[
            "GET a.test/",
            "GET a.test/admin",
            "GET b.test/admin",
            "GET a.test/ at 1",
            "GET a.test/admin at 1",
            "GET b.test/ at 1",
        ],
    },
    Case {
        name: "one host on two listeners",
        text: "server { listen 127.0.0.1:PORT0; server_name a.test; location / { proxy_pass http://ONE; } }
        server { listen 127.0.0.1:PORT1; server_name a.test; location / { deny all; proxy_pass http://TWO; } }",
        requests: &["GET a.test/", "GET a.test/ at 1", "GET b.test/", "GET b.test/ at 1"],
    },
    Case {
        name: "an address beside all addresses",
        text: "server { listen PORT0; location / { proxy_pass http://ONE; } }
        server { listen 127.0.0.1:PORT0; location / { deny all; proxy_pass http://TWO; } }",
        requests: &["GET a.test/"],
    },
    Case {
        name: "redirect to https",
        text: "server { listen 127.0.0.1:PORT0; server_name a.test; return 301 https://$host$request_uri; }
        server { listen 127.0.0.1:PORT0; server_name b.test; location / { proxy_pass http://TWO; } }
        server { listen 127.0.0.1:PORT1 ssl; ssl_certificate CERT; ssl_certificate_key KEY; server_name a.test;
          add_header Strict-Transport-Security \"max-age=3600\" always;
          location / { proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/x?a=1",
            "POST a.test/x",
            "GET b.test/x",
            "GET c.test/x",
            "GET a.test/x at 1",
            "GET b.test/x at 1",
        ],
    },
    Case {
        name: "a condition on the scheme",
        text: "server { listen 127.0.0.1:PORT0;
          listen 127.0.0.1:PORT1 ssl; ssl_certificate CERT; ssl_certificate_key KEY;
          if ($scheme = http) { return 301 https://$host$request_uri; }
          location / { proxy_pass http://ONE; } }",
        requests: &["GET a.test/x", "GET a.test/x at 1"],
    },
    Case {
        name: "clients with a certificate",
        text: "server { listen 127.0.0.1:PORT0 ssl; ssl_certificate CERT; ssl_certificate_key KEY;
          ssl_client_certificate CA; ssl_verify_client on; server_name a.test;
          location / { proxy_set_header X-Client $ssl_client_s_dn; proxy_pass http://ONE; } }
        server { listen 127.0.0.1:PORT1; server_name b.test; location / { proxy_pass http://TWO; } }",
        requests: &[
            "GET a.test/",
            "GET a.test/ with certificate",
            "GET a.test/ with certificate | x-client: CN=admin",
            "GET a.test/ at 1",
            "GET b.test/ at 1",
        ],
    },
    Case {
        name: "clients with or without a certificate",
        text: "server { listen 127.0.0.1:PORT0 ssl; ssl_certificate CERT; ssl_certificate_key KEY;
          ssl_client_certificate CA; ssl_verify_client optional;
          location / { proxy_pass http://ONE; }
          location /private/ { if ($ssl_client_verify != SUCCESS) { return 403; } proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/",
            "GET a.test/ with certificate",
            "GET a.test/private/",
            "GET a.test/private/ with certificate",
        ],
    },
    Case {
        name: "names of servers that meet",
        text: "server { listen 127.0.0.1:PORT0; server_name *.a.test; location / { proxy_pass http://ONE; } }
        server { listen 127.0.0.1:PORT0; server_name x.a.test; location /x { proxy_pass http://TWO; } }
        server { listen 127.0.0.1:PORT0 default_server; server_name _; return 404; }",
        requests: &[
            "GET x.a.test/",
            "GET x.a.test/x",
            "GET y.a.test/x",
            "GET y.x.a.test/x",
            "GET a.test/",
            "GET X.A.test:80/x",
        ],
    },
    Case {
        name: "names of servers as expressions",
        text: "server { listen 127.0.0.1:PORT0; return 404; }
        server { listen 127.0.0.1:PORT0; server_name ~^(?<sub>.+)\\.a\\.test$; location / { proxy_pass http://ONE; } }
        server { listen 127.0.0.1:PORT0; server_name b.*; location / { deny all; proxy_pass http://TWO; } }",
        requests: &["GET x.a.test/", "GET a.test/", "GET b.example/", "GET b.test/", "GET c.test/"],
    },
    Case {
        name: "the default server of each address",
        text: "server { listen 127.0.0.1:PORT0 default_server; listen 127.0.0.1:PORT1; server_name a.test; location / { proxy_pass http://ONE; } }
        server { listen 127.0.0.1:PORT0; listen 127.0.0.1:PORT1 default_server; server_name b.test; return 403; }",
        requests: &[
            "GET c.test/",
            "GET c.test/ at 1",
            "GET a.test/ at 1",
            "GET b.test/",
        ],
    },
    Case {
        name: "a server without a location for everything",
        text: "server { listen 127.0.0.1:PORT0; location /app/ { proxy_pass http://ONE; } location = /only { proxy_pass http://ONE; } }",
        requests: &["GET a.test/", "GET a.test/app", "GET a.test/app/x", "GET a.test/only/", "GET a.test/only", "POST a.test/app"],
    },
    Case {
        name: "redirect of a prefix without its slash",
        text: "server { listen 127.0.0.1:PORT0;
          location /app/ { allow 127.0.0.2; deny all; proxy_pass http://ONE; }
          location = /api { return 200 text-1; }
          location /api/ { proxy_pass http://ONE; }
          location /text/ { return 200 text-2; }
          location / { proxy_pass http://TWO; } }",
        requests: &[
            "GET a.test/app",
            "GET a.test/app?a=1",
            "POST a.test/app",
            "GET a.test/app from 127.0.0.2",
            "GET a.test/api",
            "GET a.test/text",
            "GET a.test/appx",
        ],
    },
    Case {
        name: "locations in nginx' order",
        text: "server { listen 127.0.0.1:PORT0;
          location / { proxy_pass http://ONE; }
          location ^~ /static/ { proxy_pass http://TWO; }
          location ~ \\.php$ { deny all; proxy_pass http://ONE; }
          location ~* \\.(PNG|css)$ { proxy_pass http://THREE; }
          location /app/ { proxy_pass http://TWO; location ~ admin { deny all; proxy_pass http://TWO; } location /app/open/ { proxy_pass http://THREE; }
            location ^~ /app/final/ { proxy_pass http://THREE; } } }",
        requests: &[
            "GET a.test/app/final/x.php",
            "GET a.test/app/final/admin",
            "GET a.test/static/x.php",
            "GET a.test/x.php",
            "GET a.test/x.Css",
            "GET a.test/app/x.png",
            "GET a.test/app/admin.php",
            "GET a.test/app/open/admin",
            "GET a.test/app/open/x",
            "GET a.test/app/x.php",
            "GET a.test/x.php/",
        ],
    },
    Case {
        name: "expressions of locations",
        text: "server { listen 127.0.0.1:PORT0;
          location ~ ^/(?!public)[a-z]+/secret { deny all; proxy_pass http://ONE; }
          location ~ ^/[[:digit:]]+$ { proxy_pass http://TWO; }
          location ~ (?i)^/MIXED { proxy_pass http://THREE; }
          location / { proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/app/secret",
            "GET a.test/public/secret",
            "GET a.test/123",
            "GET a.test/123a",
            "GET a.test/mixed",
            "GET a.test/xmixed",
        ],
    },
    Case {
        name: "return comes before allow and deny",
        text: "server { listen 127.0.0.1:PORT0; deny all;
          location / { return 200 text-1; }
          location /x { proxy_pass http://ONE; }
          location /y { if ($arg_a = 1) { return 302 /z; } proxy_pass http://ONE; } }",
        requests: &["GET a.test/", "GET a.test/x", "GET a.test/y", "GET a.test/y?a=1"],
    },
    Case {
        name: "a rewrite, and what stands behind it",
        text: "server { listen 127.0.0.1:PORT0;
          location /a/ { rewrite ^/a/(.*)$ /base/$1 break; return 200 text-1; }
          location /b/ { rewrite ^/b/x$ /y break; proxy_pass http://ONE; }
          location /c/ { rewrite ^/c/(.*)$ /d/$1 last; return 403; }
          location /d/ { deny 127.0.0.2; proxy_pass http://TWO; }
          location / { proxy_pass http://THREE; } }",
        requests: &[
            "GET a.test/a/x",
            "GET a.test/b/x",
            "GET a.test/b/y",
            "GET a.test/c/x",
            "GET a.test/c/x from 127.0.0.2",
            "GET a.test/d/x",
        ],
    },
    Case {
        name: "a rewrite of a server",
        text: "server { listen 127.0.0.1:PORT0;
          rewrite ^/old/(.*)$ /new/$1 last;
          rewrite ^/go/(.*)$ https://new.test/$1 permanent;
          location /new/ { deny 127.0.0.2; proxy_pass http://ONE; }
          location /old/ { return 403; }
          location / { proxy_pass http://TWO; } }",
        requests: &[
            "GET a.test/old/x?a=1",
            "GET a.test/old/x from 127.0.0.2",
            "GET a.test/new/x",
            "GET a.test/go/x?a=1",
            "GET a.test/x",
        ],
    },
    Case {
        name: "a rewrite with a query",
        text: "server { listen 127.0.0.1:PORT0;
          location /user/ { rewrite ^/user/([a-z]+)$ /show?name=$1 break; proxy_pass http://ONE; }
          location /drop/ { rewrite ^/drop/(.*)$ /$1? break; proxy_pass http://ONE; }
          location /fixed/ { proxy_pass http://ONE/base/?a=1; } }",
        requests: &["GET a.test/user/ann", "GET a.test/user/ann?b=2", "GET a.test/drop/x?b=2", "GET a.test/fixed/x?b=2"],
    },
    Case {
        name: "proxy_pass with a path",
        text: "server { listen 127.0.0.1:PORT0;
          location /a/ { proxy_pass http://ONE/; }
          location /b { proxy_pass http://ONE/base; }
          location /c/ { proxy_pass http://ONE/base; }
          location /d { proxy_pass http://ONE/base/; }
          location = /e { proxy_pass http://ONE/other; }
          location / { proxy_pass http://TWO/base/; } }",
        requests: &[
            "GET a.test/a/x?b=1",
            "GET a.test/a",
            "GET a.test/b",
            "GET a.test/bx",
            "GET a.test/b/x",
            "GET a.test/c/x",
            "GET a.test/d",
            "GET a.test/dx",
            "GET a.test/d/x",
            "GET a.test/e",
            "GET a.test/",
            "GET a.test/x/y%20z",
        ],
    },
    Case {
        name: "proxy_pass with variables",
        text: "server { listen 127.0.0.1:PORT0;
          location / { set $to ONE; proxy_pass http://$to; }
          location ~ ^/x/(.*)$ { proxy_pass http://TWO/y/$1; } }",
        requests: &["GET a.test/", "GET a.test/x/a?b=1"],
    },
    Case {
        name: "redirects",
        text: "server { listen 127.0.0.1:PORT0;
          location /a { return 301 https://$host$request_uri; }
          location /b { return 302 /c; }
          location /d { return 302 https://new.test$uri?x=1; }
          location /e { rewrite ^/e/(.*)$ /f/$1 permanent; return 403; }
          location /g { return https://new.test/; }
          location /h { return 307 https://new.test/$args; } }",
        requests: &[
            "GET a.test/a/x?b=1",
            "GET a.test:8080/a/x?b=1",
            "GET a.test/b?x=1",
            "GET a.test/d/x?b=1",
            "GET a.test/e/x?b=1",
            "GET a.test/e",
            "GET a.test/g/x?a",
            "GET a.test/h?a",
        ],
    },
    Case {
        name: "texts",
        text: "server { listen 127.0.0.1:PORT0;
          location /a { return 200 text-1; }
          location /b { default_type application/json; return 200 '{\"a\": \"text-2\"}'; }
          location /c { return 200 \"text-3 $host\"; }
          location /d { return 404 text-4; }
          location /e.html { return 200 text-5; }
          location /f { return 204; }
          location /g { return 444; }
          location /h { default_type text/html; add_after_body /a; return 200 text-6; } }",
        requests: &[
            "GET a.test/a",
            "HEAD a.test/a",
            "POST a.test/a body 5",
            "GET a.test/b",
            "GET a.test/c",
            "GET a.test/d",
            "GET a.test/e.html",
            "GET a.test/f",
            "GET a.test/g",
            "GET a.test/h",
        ],
    },
    Case {
        name: "the size of bodies",
        text: "client_max_body_size 100;
        server { listen 127.0.0.1:PORT0;
          location / { proxy_pass http://ONE; }
          location /large { client_max_body_size 0; proxy_pass http://ONE; }
          location /small { client_max_body_size 10; proxy_pass http://ONE; }
          location /text { client_max_body_size 10; return 200 text-1; } }
        server { listen 127.0.0.1:PORT1; client_max_body_size 5; location / { proxy_pass http://TWO; } }",
        requests: &[
            "POST a.test/ body 100",
            "POST a.test/ body 101",
            "POST a.test/ chunked 101",
            "POST a.test/large body 2000",
            "POST a.test/small body 11",
            "POST a.test/small body 10",
            "POST a.test/small chunked 11",
            "POST a.test/text body 11",
            "POST a.test/ at 1 body 6",
            "POST a.test/ at 1 body 5",
        ],
    },
    Case {
        name: "fields for services",
        text: "proxy_set_header X-Outer outer;
        server { listen 127.0.0.1:PORT0;
          location / { proxy_pass http://ONE; }
          location /a/ { proxy_set_header Host $host; proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_pass http://ONE; }
          location /b/ { proxy_set_header X-User \"\"; proxy_set_header Authorization \"\"; proxy_pass http://ONE; }
          location /c/ { proxy_set_header X-User $remote_user; proxy_set_header X-Key $http_x_other; proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/ | x-outer: own | x-user: admin | x-real-ip: 1.2.3.4 | x-forwarded-for: 1.2.3.4",
            "GET a.test/a/ | x-outer: own | x-real-ip: 1.2.3.4 | x-forwarded-for: 1.2.3.4",
            "GET a.test/b/ | x-user: admin | x_user: admin | authorization: Basic YTpi",
            "GET a.test/c/ | x-user: admin | x_user: admin | x-key: own | authorization: Basic YTpi",
            "GET a.test/c/ | x-key: own | x-other: other",
        ],
    },
    Case {
        name: "fields for clients",
        text: "add_header X-Outer outer; add_header Strict-Transport-Security max-age=60 always; proxy_hide_header X-Powered-By;
        server { listen 127.0.0.1:PORT0;
          location / { proxy_pass http://ONE; }
          location /own/ { add_header X-Added own always; proxy_hide_header X-Origin-A; proxy_pass http://ONE; }
          location /cors/ { add_header Access-Control-Allow-Origin $http_origin; proxy_pass http://ONE; }
          location /cookie/ { add_header Set-Cookie \"a=1; Secure\"; proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/",
            "GET a.test/ | x-want: 404",
            "GET a.test/own/",
            "GET a.test/own/ | x-want: 500",
            "GET a.test/cors/ | origin: https://a.test",
            "GET a.test/cors/ | origin: https://a.test | x-want: 404",
            "GET a.test/cookie/",
        ],
    },
    Case {
        name: "CORS as pages of others show it",
        text: "server { listen 127.0.0.1:PORT0;
          location / {
            if ($request_method = OPTIONS) {
              add_header Access-Control-Allow-Origin https://a.test;
              add_header Access-Control-Allow-Methods \"GET, POST\";
              return 204;
            }
            add_header Access-Control-Allow-Origin https://a.test always;
            proxy_pass http://ONE; } }",
        requests: &["OPTIONS a.test/ | origin: https://a.test", "GET a.test/ | origin: https://evil.test", "POST a.test/"],
    },
    Case {
        name: "pages for errors",
        text: "server { listen 127.0.0.1:PORT0;
          location / { error_page 403 = @open; deny 127.0.0.2; proxy_pass http://ONE; }
          location /page/ { error_page 404 /sorry; proxy_intercept_errors on; proxy_pass http://ONE; }
          location = /sorry { return 200 text-1; }
          location /ok/ { error_page 404 =200 /sorry; return 404; }
          location @open { proxy_pass http://TWO; } }",
        requests: &["GET a.test/", "GET a.test/ from 127.0.0.2", "GET a.test/page/ | x-want: 404", "GET a.test/ok/"],
    },
    Case {
        name: "try_files",
        text: "server { listen 127.0.0.1:PORT0;
          location / { deny 127.0.0.2; try_files $uri @app; }
          location @app { deny 127.0.0.9; proxy_pass http://ONE; }
          location /x/ { try_files $uri /index.html; } }",
        requests: &["GET a.test/", "GET a.test/ from 127.0.0.2", "GET a.test/ from 127.0.0.9", "GET a.test/x/"],
    },
    Case {
        name: "servers that are down or spare",
        text: "upstream spare { server ONE; server TWO backup; }
        upstream down { server ONE; server TWO down; }
        server { listen 127.0.0.1:PORT0;
          location / { proxy_pass http://spare; } location /x { proxy_pass http://down; } }",
        requests: &["GET a.test/", "GET a.test/", "GET a.test/x", "GET a.test/x"],
    },
    Case {
        name: "trusted proxies",
        text: "set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For; real_ip_recursive on;
        server { listen 127.0.0.1:PORT0;
          location / { allow 10.0.0.0/8; deny all; proxy_set_header X-Real-IP $remote_addr; proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/",
            "GET a.test/ | x-forwarded-for: 10.0.0.1",
            "GET a.test/ | x-forwarded-for: 10.0.0.1, 192.0.2.1",
            "GET a.test/ | x-forwarded-for: 10.0.0.1, 127.0.0.1",
            "GET a.test/ from 127.0.0.2 | x-forwarded-for: 10.0.0.1",
        ],
    },
    Case {
        name: "trusted proxies, and the last address",
        text: "set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;
        server { listen 127.0.0.1:PORT0; location / { allow 10.0.0.0/8; deny all; proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/ | x-forwarded-for: 10.0.0.1",
            "GET a.test/ | x-forwarded-for: 10.0.0.1, 127.0.0.1",
            "GET a.test/ | x-forwarded-for: 10.0.0.1, 192.0.2.1",
        ],
    },
    Case {
        name: "redirects by a table",
        text: "map $uri $new { default \"\"; /old /new; /moved https://new.test/; }
        server { listen 127.0.0.1:PORT0;
          if ($new) { return 301 $new; }
          location / { proxy_pass http://ONE; } }",
        requests: &["GET a.test/old", "GET a.test/moved", "GET a.test/x"],
    },
    Case {
        name: "an expression that looks around",
        text: "server { listen 127.0.0.1:PORT0;
          location ~ /\\.(?!well-known) { deny all; proxy_pass http://ONE; }
          location / { proxy_pass http://ONE; } }",
        requests: &["GET a.test/.git/config", "GET a.test/.well-known/x", "GET a.test/x"],
    },
    Case {
        name: "TRACE and CONNECT",
        text: "server { listen 127.0.0.1:PORT0; location / { proxy_pass http://ONE; } location /x { return 200 text-1; } }",
        requests: &["TRACE a.test/", "TRACE a.test/x", "CONNECT a.test/"],
    },
    Case {
        name: "a word that nobody knows closes",
        text: "server { listen 127.0.0.1:PORT0;
          location /a { auth_request /check; proxy_pass http://ONE; }
          location /b { secure_link $arg_md5; secure_link_md5 x; if ($secure_link = \"\") { return 403; } proxy_pass http://ONE; }
          location /c { valid_referers a.test; if ($invalid_referer) { return 403; } proxy_pass http://ONE; }
          location = /check { internal; return 403; }
          location / { proxy_pass http://ONE; } }",
        requests: &[
            "GET a.test/a",
            "GET a.test/b",
            "GET a.test/c",
            "GET a.test/c | referer: https://a.test/",
            "GET a.test/",
        ],
    },
];
