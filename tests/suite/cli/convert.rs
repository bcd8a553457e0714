//! `tollgate convert`: what it prints, how it ends, and that nginx and HAProxy give the same responses as a Tollgate
//! that runs the converted file.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::harness::{
    Client, Config, Origin, Reply, Running, Tollgate, eventually, get, haproxy, nginx, nobody, request,
    tollgate_in,
};

/// Another proxy, and a Tollgate that runs its configuration, converted.
struct Pair {
    theirs: SocketAddr,
    ours: SocketAddr,
    yaml: String,
    /// What `tollgate convert` says on stderr, and its exit code.
    said: (String, Option<i32>),
    _proxy: Running,
    _directory: TempDir,
    _tollgate: Tollgate,
}

impl Pair {
    /// nginx with these directives of `http` and of the first `server`.
    fn nginx(http: &str, server: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let (proxy, theirs) = nginx(directory.path(), http, server);
        Self::convert(directory, "nginx.conf", proxy, theirs)
    }

    /// HAProxy with this configuration, in which `LISTEN` is its address.
    fn haproxy(text: &str) -> Self {
        let (directory, theirs) = (TempDir::new().unwrap(), nobody());
        let timeouts = "timeout connect 5s\n timeout client 75s\n timeout server 75s\n";
        let text =
            format!("defaults\n mode http\n {timeouts}{}", text.replace("LISTEN", &theirs.to_string()));
        let proxy = haproxy(directory.path(), &text, theirs);
        Self::convert(directory, "haproxy.cfg", proxy, theirs)
    }

    fn convert(directory: TempDir, name: &str, proxy: Running, theirs: SocketAddr) -> Self {
        let ended = tollgate_in(directory.path(), &[], &["convert", name]);
        assert!(matches!(ended.code, Some(0 | 3)), "{ended:?}");
        assert!(!ended.stderr.contains("defect"), "{ended:?}");
        let yaml = ended.stdout.replacen(&format!("address: {theirs}"), "address: \"127.0.0.1:0\"", 1);
        let tollgate = Tollgate::start(Config::yaml(yaml.clone()));
        let ours = tollgate.address;
        let said = (ended.stderr, ended.code);
        Self { theirs, ours, yaml, said, _proxy: proxy, _directory: directory, _tollgate: tollgate }
    }

    /// Both give the same to `question`.
    #[track_caller]
    fn agree<T: PartialEq + std::fmt::Debug>(&self, what: &str, question: impl Fn(SocketAddr) -> T) -> T {
        let [theirs, ours] = [question(self.theirs), question(self.ours)];
        assert_eq!(theirs, ours, "{what}: theirs and ours\n{}", self.yaml);
        ours
    }
}

/// Status and body.
fn shown(reply: &Reply) -> (u16, String) {
    let body = String::from_utf8_lossy(&reply.body).into_owned();
    // Their error pages are their own.
    (reply.status, if reply.status == 200 { body } else { String::new() })
}

/// How many of `count` requests, one after another, have each status.
fn statuses(address: SocketAddr, path: &str, count: usize, headers: &[(&str, &str)]) -> Vec<(u16, usize)> {
    let mut client = Client::connect(address);
    let mut found: Vec<(u16, usize)> = Vec::new();
    for _ in 0..count {
        let status = client.request("GET", path, headers, b"").status;
        match found.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += 1,
            None => found.push((status, 1)),
        }
    }
    found.sort_unstable();
    found
}

fn convert(directory: &Path, arguments: &[&str]) -> crate::harness::Ended {
    tollgate_in(directory, &[], &[&["convert"], arguments].concat())
}

#[test]
fn each_directive_is_converted_or_noted() {
    let directory = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write(
        "nginx.conf",
        "limit_req_zone $binary_remote_addr zone=requests:10m rate=10r/s;
        server {
            listen 80;
            location / {
                limit_req zone=requests burst=20 nodelay;
                limit_req_status 429;
                proxy_pass http://10.0.0.5:3000;
                proxy_set_header Host $host;
            }
        }",
    );
    let ended = convert(directory.path(), &["nginx.conf"]);
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(0), "converted 2 routes, 1 policy; everything has an equal\n")
    );
    for line in [
        "  requests: { algorithm: gcra, key: ip, limit: 10/1s, burst: 21 }\n",
        "  - { address: 0.0.0.0:80 }\n",
        // nginx itself refuses these methods.
        "  - { path: /*, methods: [CONNECT, TRACE], reply: { status: 405 } }\n",
        "  - { path: /*, upstream: 10.0.0.5, policies: [requests] }\n",
    ] {
        assert!(ended.stdout.contains(line), "{line}: {}", ended.stdout);
    }
    // A file is written once, and is loaded.
    let written = convert(directory.path(), &["nginx.conf", "--output", "proxy.yaml"]);
    assert_eq!((written.code, written.stdout.as_str()), (Some(0), ""));
    assert_eq!(fs::read_to_string(directory.path().join("proxy.yaml")).unwrap(), ended.stdout);
    assert_eq!(tollgate_in(directory.path(), &[], &["check"]).code, Some(0));
    assert_eq!(convert(directory.path(), &["nginx.conf", "--output", "proxy.yaml"]).code, Some(1));

    write(
        "odd.conf",
        "server {\n listen 80;\n location / {\n  limit_rate 100k;\n  proxy_pass http://a;\n }\n}",
    );
    let ended = convert(directory.path(), &["odd.conf"]);
    assert_eq!(ended.code, Some(3));
    let note = "odd.conf:4: `limit_rate 100k`: Tollgate does not limit bandwidth\n";
    assert_eq!(ended.stderr, format!("converted 2 routes, 0 policies; 1 thing has no equal:\n  {note}"));
    assert!(ended.stdout.contains(&format!("  # {note}")), "{}", ended.stdout);

    write("zones.conf", "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;");
    let ended = convert(directory.path(), &["zones.conf"]);
    assert!(
        ended.stdout.contains("a: { algorithm: gcra, key: ip, limit: 1/1s, burst: 1 }"),
        "{}",
        ended.stdout
    );
    assert!(ended.stderr.contains("nothing to proxy"), "{}", ended.stderr);
}

/// What conversions look like. `UPDATE_GOLDEN=1` rewrites them.
#[test]
fn conversions_are_as_shown() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/convert");
    for (file, name) in [("nginx.conf", "nginx"), ("haproxy.cfg", "haproxy")] {
        let ended = convert(&directory, &[file]);
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(!ended.stderr.contains("defect"), "{ended:?}");
        let expected = directory.join(format!("{name}.converted"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&expected, &ended.stdout).unwrap();
        }
        assert_eq!(ended.stdout, fs::read_to_string(&expected).unwrap(), "{name}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_with_its_place() {
    let directory = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("open.conf", "server {\n  listen 80;\n");
    write("Caddyfile", "example.com\nreverse_proxy localhost:3000");
    write("proxy.yaml", "listeners: [{ address: 127.0.0.1:8080 }]\nroutes: []");
    write("other.yaml", "a: 1");
    for (name, message) in [
        ("open.conf", "tollgate: open.conf:1:1: this block is not closed\n"),
        ("none.conf", "tollgate: none.conf: cannot be read: "),
        (
            "Caddyfile",
            "tollgate: Caddyfile: this is a Caddyfile. tollgate convert reads configurations of nginx",
        ),
        ("proxy.yaml", "tollgate: proxy.yaml: this is a configuration of Tollgate already"),
        (
            "other.yaml",
            "tollgate: other.yaml: tollgate convert reads nginx, HAProxy, Traefik and Kong, and this looks",
        ),
    ] {
        let ended = convert(directory.path(), &[name]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
        assert!(ended.stderr.starts_with(message), "{ended:?}");
    }
    assert_eq!(convert(directory.path(), &["open.conf", "--from", "caddy"]).code, Some(2));
    assert!(
        convert(directory.path(), &["Caddyfile", "--from", "haproxy"]).stderr.contains("is in no section")
    );
}

#[test]
fn certificates_that_are_elsewhere_are_no_errors() {
    let directory = TempDir::new().unwrap();
    let text = "server { listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; location / { proxy_pass http://a; } }";
    fs::write(directory.path().join("nginx.conf"), text).unwrap();
    let ended = convert(directory.path(), &["nginx.conf"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("not on this machine: a.pem\n"), "{ended:?}");
    assert!(!ended.stdout.contains("defect"), "{ended:?}");
}

#[test]
fn nginx_chooses_the_same_locations() {
    let locations = [
        "location / { return 200 root; }",
        "location = /exact { return 200 exact; }",
        "location /a { return 200 a; }",
        "location /a/b/ { return 200 a-b; location /a/b/c { return 200 a-b-c; } location ~ \\.txt$ { return 200 inner-txt; } }",
        "location ^~ /static/ { return 200 static; location ~ \\.gif$ { return 200 static-gif; } }",
        "location ~ \\.php$ { return 200 php; }",
        "location ~* \\.(jpg|png)$ { return 200 image; }",
        "location ~ ^/users/[0-9]+/ { return 200 user; }",
        "location /long/er/path { return 200 long; }",
        "location = / { return 200 home; }",
        "location ~ /\\.git { return 403; }",
        "location /gone { return 410; }",
        "location ~ ^/(v1|v2)/x { return 200 versions; }",
    ];
    let pair = Pair::nginx("", &format!("default_type text/plain; {}", locations.join("\n")));
    assert_eq!(pair.said.1, Some(0), "{}", pair.said.0);
    for path in [
        "/",
        "/x",
        "/exact",
        "/exact/",
        "/exact/x",
        "/EXACT",
        "/a",
        "/a/",
        "/ab",
        "/a/b",
        "/a/b/",
        "/a/b/x",
        "/a/b/c",
        "/a/b/cd",
        "/a/b/x.txt",
        "/a/b/c.txt",
        "/a/x.txt",
        "/a/b.php",
        "/a/b/x.php",
        "/static/x",
        "/static/x.php",
        "/static/x.gif",
        "/static/x.png",
        "/static",
        "/x.php",
        "/x.PHP",
        "/x.jpg",
        "/x.JPG",
        "/x.php/",
        "/users/1/x",
        "/users/a/x",
        "/users/1",
        "/long/er/path",
        "/long/er",
        "/long/er/paths",
        "/.git/config",
        "/a/.git",
        "/gone",
        "/gone/x",
        "/v1/x",
        "/v3/x",
        "/a?b=/exact",
        "/%61",
        "/users/1/x.php",
    ] {
        pair.agree(path, |address| shown(&get(address, path, &[])));
    }
}

#[test]
fn nginx_chooses_the_same_servers() {
    let server = |name: &str, body: &str| {
        format!(
            "server {{ listen LISTEN; server_name {name}; default_type text/plain; location / {{ return 200 {body}; }} }}"
        )
    };
    // The first server is the harness' own.
    let others = [
        server("a.example.com", "exact"),
        server("*.example.com", "wildcard"),
        server("*.deep.example.com", "deep"),
        server(".example.org", "both"),
        server("b.example.com c.example.com", "several"),
        "server { listen LISTEN; server_name old.example.net; return 301 https://new.example.net$request_uri; }".into(),
        "server { listen LISTEN; server_name api.example.net; location /only/ { return 200 only; } }".into(),
    ];
    let directory = TempDir::new().unwrap();
    let theirs = nobody();
    let text = format!(
        "daemon off; master_process off; pid nginx.pid; error_log stderr; events {{}} http {{ access_log off; \
         client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; \
         scgi_temp_path scgi; {} server {{ listen LISTEN default_server; server_name _; default_type text/plain; location / {{ return 200 default; }} }} }}",
        others.join("\n")
    );
    fs::write(directory.path().join("nginx.conf"), text.replace("LISTEN", &theirs.to_string())).unwrap();
    let proxy = crate::harness::start_nginx(directory.path(), theirs);
    let pair = Pair::convert(directory, "nginx.conf", proxy, theirs);
    assert_eq!(pair.said.1, Some(0), "{}", pair.said.0);
    for host in [
        "a.example.com",
        "A.EXAMPLE.COM",
        "a.example.com:8080",
        "b.example.com",
        "c.example.com",
        "x.example.com",
        "x.y.example.com",
        "x.deep.example.com",
        "deep.example.com",
        "example.com",
        "example.org",
        "x.example.org",
        "x.y.example.org",
        "other.test",
        "old.example.net",
        "api.example.net",
    ] {
        for path in ["/", "/only/x"] {
            pair.agree(&format!("{host}{path}"), |address| {
                let reply = get(address, path, &[("host", host)]);
                // nginx answers 404 for files that are not there.
                let location =
                    reply.headers.iter().find(|(name, _)| name == "location").map(|(_, value)| value.clone());
                (shown(&reply), location)
            });
        }
    }
}

#[test]
fn nginx_sends_the_same_paths_to_services() {
    let origin = Origin::echo();
    let to = origin.address;
    let locations = format!(
        "location /as-it-is/ {{ proxy_pass http://{to}; }}
         location /api/ {{ proxy_pass http://{to}/; }}
         location /old/ {{ proxy_pass http://{to}/new/; }}
         location /glued {{ proxy_pass http://{to}/x; }}
         location = /one {{ proxy_pass http://{to}/other; }}
         location /strip/ {{ rewrite ^/strip/(.*)$ /$1 break; proxy_pass http://{to}; }}
         location /part/ {{ rewrite ^/part/v([0-9]+)/(.*)$ /$2/v$1 break; proxy_pass http://{to}; }}
         location ~ ^/users/([0-9]+)$ {{ proxy_pass http://{to}; }}
         location = /single {{ rewrite ^/sing(.*)$ /$1-$1 break; proxy_pass http://{to}; }}
         location / {{ proxy_pass http://{to}/base/; proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-None ''; \
           proxy_set_header X-Text 'a {{b}}'; proxy_hide_header x-target; add_header X-Added yes always; }}"
    );
    let pair = Pair::nginx("", &locations);
    assert_eq!(pair.said.1, Some(0), "{}", pair.said.0);
    for path in [
        "/as-it-is/a?b=c",
        "/api/users?page=2",
        "/api/",
        "/old/a/b",
        "/old/",
        "/glued/y",
        "/gluedy",
        "/one?a=b",
        "/strip/a/b?c",
        "/strip/",
        "/part/v2/x/y",
        "/part/x",
        "/users/7",
        "/single",
        "/",
        "/x/y?z",
    ] {
        pair.agree(path, |address| {
            let reply = get(address, path, &[("x-none", "sent")]);
            let json: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
            let headers = json["headers"].as_array().unwrap().clone();
            let mut kept: Vec<_> = headers
                .iter()
                .map(|pair| (pair[0].as_str().unwrap().to_lowercase(), pair[1].as_str().unwrap().to_owned()))
                .filter(|(name, _)| matches!(name.as_str(), "x-real-ip" | "x-none" | "x-text" | "host"))
                .collect();
            kept.sort();
            let added = reply.headers.iter().any(|(name, value)| name == "x-added" && value == "yes");
            (reply.status, json["target"].clone(), kept, added)
        });
    }
}

#[test]
fn nginx_admits_the_same_bursts() {
    let origin = Origin::ok();
    let to = origin.address;
    let pair = Pair::nginx(
        "limit_req_zone $binary_remote_addr zone=slow:1m rate=1r/m;
         limit_req_zone $binary_remote_addr$uri zone=paths:1m rate=1r/m;
         limit_req_zone $host zone=all:1m rate=2r/m;
         limit_req_zone $http_x_key zone=keys:1m rate=1r/m;
         limit_req_zone $binary_remote_addr zone=tried:1m rate=1r/m;
         limit_req_zone $binary_remote_addr zone=outer:1m rate=1r/m;",
        &format!(
            "limit_req zone=outer burst=2 nodelay; limit_req_status 429;
             location /burst {{ limit_req zone=slow burst=5 nodelay; proxy_pass http://{to}; }}
             location /paths/ {{ limit_req zone=paths; proxy_pass http://{to}; }}
             location /two {{ limit_req zone=all burst=3 nodelay; limit_req_status 503; proxy_pass http://{to}; }}
             location /keys {{ limit_req zone=keys burst=1 nodelay; proxy_pass http://{to}; }}
             location /dry {{ limit_req zone=tried; limit_req_dry_run on; proxy_pass http://{to}; }}
             location /free {{ return 204; }}
             location / {{ proxy_pass http://{to}; }}"
        ),
    );
    // Requests without a key are limited.
    assert_eq!(pair.said.1, Some(3), "{}", pair.said.0);
    assert_eq!(pair.agree("burst", |to| statuses(to, "/burst", 12, &[])), [(200, 6), (429, 6)]);
    assert_eq!(pair.agree("one path", |to| statuses(to, "/paths/a", 3, &[])), [(200, 1), (429, 2)]);
    assert_eq!(pair.agree("another", |to| statuses(to, "/paths/b", 3, &[])), [(200, 1), (429, 2)]);
    assert_eq!(pair.agree("all", |to| statuses(to, "/two", 9, &[])), [(200, 4), (503, 5)]);
    assert_eq!(pair.agree("key a", |to| statuses(to, "/keys", 5, &[("x-key", "a")])), [(200, 2), (429, 3)]);
    assert_eq!(pair.agree("key b", |to| statuses(to, "/keys", 5, &[("x-key", "b")])), [(200, 2), (429, 3)]);
    assert_eq!(pair.agree("dry run", |to| statuses(to, "/dry", 5, &[])), [(200, 5)]);
    assert_eq!(pair.agree("return comes before limits", |to| statuses(to, "/free", 9, &[])), [(204, 9)]);
    assert_eq!(pair.agree("inherited", |to| statuses(to, "/x", 9, &[])), [(200, 3), (429, 6)]);
}

#[test]
fn nginx_delays_as_long() {
    let origin = Origin::ok();
    let to = origin.address;
    let pair = Pair::nginx(
        "limit_req_zone $binary_remote_addr zone=a:1m rate=5r/s; limit_req_zone $binary_remote_addr zone=b:1m rate=5r/s;",
        &format!(
            "location /all {{ limit_req zone=a burst=3; proxy_pass http://{to}; }}
             location /some {{ limit_req zone=b burst=4 delay=2; proxy_pass http://{to}; }}
             location / {{ return 404; }}"
        ),
    );
    assert_eq!(pair.said.1, Some(0), "{}", pair.said.0);
    for (path, waits) in [("/all", [0, 1, 2, 3].as_slice()), ("/some", &[0, 0, 0, 1, 2])] {
        pair.agree(path, |address| {
            let mut clients: Vec<_> = (0..waits.len()).map(|_| Client::connect(address)).collect();
            let begin = Instant::now();
            for client in &mut clients {
                client.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n"));
            }
            let mut steps: Vec<u128> = Vec::new();
            let readers = clients
                .into_iter()
                .map(|mut client| std::thread::spawn(move || (client.reply().status, begin.elapsed())));
            for reader in readers.collect::<Vec<_>>() {
                let (status, elapsed) = reader.join().unwrap();
                assert_eq!(status, 200);
                steps.push((elapsed + Duration::from_millis(20)).as_millis() / 200);
            }
            steps.sort_unstable();
            let expected: Vec<u128> = waits.iter().map(|steps| *steps as u128).collect();
            // A busy machine makes a response later, never earlier.
            assert!(steps.iter().zip(&expected).all(|(step, least)| step >= least), "{path}: {steps:?}");
            true
        });
    }
}

#[test]
fn nginx_limits_as_many_at_once() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            conn.pause()?;
            conn.answer("200 OK", &[], b"")?;
        }
        Ok(())
    });
    let pair = Pair::nginx(
        "limit_conn_zone $binary_remote_addr zone=addr:1m;",
        &format!("location / {{ limit_conn addr 2; proxy_pass http://{}; }}", origin.address),
    );
    assert_eq!(pair.said.1, Some(0), "{}", pair.said.0);
    for address in [pair.theirs, pair.ours] {
        let mut clients: Vec<_> = (0..5).map(|_| Client::connect(address)).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        }
        let denied = |clients: &[Client]| clients.iter().filter(|one| one.has_something_to_read()).count();
        eventually("three are denied", || denied(&clients) == 3);
        for _ in 0..2 {
            origin.resume();
        }
        let mut found: Vec<_> = clients.iter_mut().map(|client| client.reply().status).collect();
        found.sort_unstable();
        assert_eq!(found, [200, 200, 503, 503, 503]);
    }
}

#[test]
fn nginx_knows_the_same_clients_and_exempts_them() {
    let origin = Origin::ok();
    let to = origin.address;
    let pair = Pair::nginx(
        "set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For; real_ip_recursive on;
         geo $limit { default 1; 10.0.0.0/8 0; 192.0.2.7 0; }
         map $limit $limit_key { 0 \"\"; 1 $binary_remote_addr; }
         map $request_method $post_key { default \"\"; POST $binary_remote_addr; }
         limit_req_zone $limit_key zone=a:1m rate=1r/m;
         limit_req_zone $post_key zone=posts:1m rate=1r/m;
         limit_req_status 429;",
        &format!(
            "location /limited {{ limit_req zone=a burst=1 nodelay; proxy_pass http://{to}; }}
             location /posts {{ limit_req zone=posts; proxy_pass http://{to}; }}
             location /inside {{ allow 10.0.0.0/8; deny all; proxy_pass http://{to}; }}
             location /outside {{ deny 10.0.0.0/8; allow all; proxy_pass http://{to}; }}
             location /closed {{ deny all; proxy_pass http://{to}; }}
             location / {{ return 404; }}"
        ),
    );
    assert_eq!(pair.said.1, Some(0), "{}", pair.said.0);
    for (client, expected) in [
        ("203.0.113.7", vec![(200, 2), (429, 3)]),
        ("203.0.113.8", vec![(200, 2), (429, 3)]),
        ("10.1.2.3", vec![(200, 5)]),
        ("192.0.2.7", vec![(200, 5)]),
        ("192.0.2.8", vec![(200, 2), (429, 3)]),
        ("203.0.113.9, 127.0.0.1", vec![(200, 2), (429, 3)]),
    ] {
        let headers = [("x-forwarded-for", client)];
        assert_eq!(pair.agree(client, |to| statuses(to, "/limited", 5, &headers)), expected, "{client}");
    }
    for client in ["203.0.113.7", "10.1.2.3"] {
        let headers = [("x-forwarded-for", client)];
        for path in ["/inside", "/outside", "/closed"] {
            pair.agree(&format!("{client} {path}"), |to| get(to, path, &headers).status);
        }
        for (method, expected) in [("GET", [200, 200]), ("POST", [200, 429])] {
            let found = pair.agree(method, |to| {
                [(); 2].map(|()| {
                    request(to, method, "/posts", &headers, if method == "POST" { b"x" } else { b"" }).status
                })
            });
            assert_eq!(found, expected, "{method}");
        }
    }
}

#[test]
fn haproxy_chooses_the_same_backends_and_denies_the_same() {
    let service = |name: &'static str| {
        Origin::start(move |conn| {
            while let Some(head) = conn.head()? {
                conn.body(&head)?;
                conn.answer("200 OK", &[], name.as_bytes())?;
            }
            Ok(())
        })
    };
    let [api, files, shop] = ["api", "files", "shop"].map(service);
    let pair = Pair::haproxy(&format!(
        "frontend web
            bind LISTEN
            stick-table type ip size 1m expire 1m store http_req_rate(1m)
            acl is_login path /login
            acl is_shop hdr(host) -i shop.example.com
            acl inside src 10.0.0.0/8
            http-request track-sc0 src if is_login
            http-request deny deny_status 429 if is_login {{ sc_http_req_rate(0) gt 3 }}
            http-request deny if {{ path_beg /admin/ }} !inside
            http-request deny deny_status 405 if {{ method DELETE }}
            http-request return status 200 content-type text/plain string \"healthy\" if {{ path /health }}
            http-request redirect location https://new.example.com/ code 301 if {{ path_beg /old }}
            use_backend files if {{ path_beg /static/ }} || {{ path_end .png }}
            use_backend shop if is_shop
            default_backend api
        backend files
            server a {}
        backend shop
            server a {}
        backend api
            balance leastconn
            server a {}
",
        files.address, shop.address, api.address
    ));
    // All addresses get 405, where HAProxy tells them apart.
    assert_eq!(pair.said.1, Some(3), "{}", pair.said.0);
    for (method, path, host) in [
        ("GET", "/", "a"),
        ("GET", "/static/x", "a"),
        ("GET", "/static", "a"),
        ("GET", "/x.png", "a"),
        ("GET", "/x.PNG", "a"),
        ("GET", "/", "shop.example.com"),
        ("GET", "/", "SHOP.example.com"),
        ("GET", "/static/x", "shop.example.com"),
        ("GET", "/health", "a"),
        ("GET", "/health/", "a"),
        ("GET", "/old/x", "a"),
        ("GET", "/older", "a"),
        ("DELETE", "/x", "a"),
        ("GET", "/admin/x", "a"),
        ("GET", "/admin", "a"),
        ("GET", "/admin/x", "shop.example.com"),
    ] {
        pair.agree(&format!("{method} {host}{path}"), |to| {
            shown(&request(to, method, path, &[("host", host)], b""))
        });
    }
    assert_eq!(pair.agree("logins", |to| statuses(to, "/login", 8, &[])), [(200, 3), (429, 5)]);
    assert_eq!(pair.agree("others", |to| statuses(to, "/other", 8, &[])), [(200, 8)]);
}
