//! Proxies in front of Tollgate and behind it: behind none of them, a client can choose its address, its user or its plan.

use std::{
    env, fs,
    net::{IpAddr, SocketAddr, TcpStream},
    path::Path,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use super::{Page, replace};
use crate::harness::{
    Authority, Client, Config, HttpsClient, Issued, Origin, Reply, Running, TlsConnector, Tollgate, caddy,
    eventually, file_name, get_from, haproxy, nginx, nobody, printed, program,
};

/// Where the clients come from; the proxy in front comes from 127.0.0.1.
const CLIENT: &str = "127.0.0.9";
const NEIGHBOR: &str = "127.0.0.10";
/// `ann:ann`, `bob:bob` and `gil:gil`, of whom gil has the plan gold.
const ANN: &str = "Basic YW5uOmFubg==";
const BOB: &str = "Basic Ym9iOmJvYg==";
const GIL: &str = "Basic Z2lsOmdpbA==";
/// What must not reach Tollgate or the service, in any field.
const FORGED: [&str; 4] = ["6.6.6.6", "mallory", "gold", "evil"];
/// Of the policies in the pages.
const LIMIT_OF_ANN: usize = 200;
const LIMIT_OF_AN_ADDRESS: usize = 600;

/// What a client may send, as lines of a request.
const CLAIMS: [&[(&str, &str)]; 59] = [
    &[("x-forwarded-for", "6.6.6.6")],
    &[("X-FORWARDED-FOR", "6.6.6.6, 127.0.0.1")],
    &[("x-forwarded-for", "127.0.0.1")],
    &[("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "127.0.0.1")],
    &[("x-forwarded-for", "")],
    &[("x-forwarded-for", ",")],
    &[("x-forwarded-for", "unknown")],
    &[("x-forwarded-for", "6.6.6.6:70000")],
    &[("x-forwarded-for", "\"6.6.6.6")],
    &[("x-forwarded-for", "6.6.6.6,")],
    &[("x_forwarded_for", "6.6.6.6")],
    &[("x-forwarded_for", "6.6.6.6")],
    &[("forwarded", "for=6.6.6.6;host=evil.example;proto=https")],
    &[("forwarded", "for=\"6.6.6.6")],
    &[("forwarded", "for=6.6.6.6"), ("forwarded", "for=127.0.0.1")],
    &[("x-forwarded", "for=6.6.6.6")],
    &[("x-real-ip", "6.6.6.6")],
    &[("x_real_ip", "6.6.6.6")],
    &[("client-ip", "6.6.6.6")],
    &[("x-client-ip", "6.6.6.6")],
    &[("x-cluster-client-ip", "6.6.6.6")],
    &[("true-client-ip", "6.6.6.6")],
    &[("cf-connecting-ip", "6.6.6.6")],
    &[("cf-connecting-ip", "6.6.6.6"), ("cf-connecting-ip", "6.6.6.6")],
    &[("fastly-client-ip", "6.6.6.6")],
    &[("proxy-client-ip", "6.6.6.6")],
    &[("wl-proxy-client-ip", "6.6.6.6")],
    &[("x-azure-clientip", "6.6.6.6")],
    &[("x-envoy-external-address", "6.6.6.6")],
    &[("x-original-forwarded-for", "6.6.6.6")],
    &[("x-user-id", "mallory")],
    &[("X-USER-ID", "mallory")],
    &[("x-user-id", "mallory"), ("x-user-id", "mallory")],
    &[("x-user-id", "")],
    &[("x_user_id", "mallory")],
    &[("x-user_id", "mallory")],
    &[("x-plan", "gold")],
    &[("x-plan", "gold"), ("x-plan", "gold")],
    &[("X_Plan", "gold")],
    &[("x.user.id", "mallory"), ("X~Plan", "gold")],
    &[("x.forwarded.for", "6.6.6.6"), ("x!real!ip", "6.6.6.6"), ("forwarded", "for=6.6.6.6")],
    &[("x.http.method.override", "evil"), ("x~original~url", "/evil"), ("x.forwarded.host", "evil.example")],
    &[("connection", "x-forwarded-for, x-user-id, x-plan, x-request-id")],
    &[("connection", "close, x-forwarded-for"), ("x-forwarded-for", "6.6.6.6")],
    &[("x-forwarded-host", "evil.example"), ("x-forwarded-proto", "evil")],
    &[("x-forwarded-port", "evil"), ("x-forwarded-prefix", "/evil"), ("x-forwarded-server", "evil.example")],
    &[("x-forwarded-scheme", "evil"), ("x_forwarded_host", "evil.example")],
    &[("x-forwarded-client-cert", "Subject=\"CN=mallory\"")],
    &[("client-cert", ":evil:"), ("client-cert-chain", ":evil:")],
    &[("x-http-method-override", "evil"), ("x-http-method", "evil"), ("x-method-override", "evil")],
    &[("x_http_method_override", "evil")],
    &[("x-original-url", "/evil"), ("x-rewrite-url", "/evil")],
    &[("x-original-uri", "/evil"), ("x-override-url", "/evil"), ("x-original-method", "evil")],
    &[("x-host", "evil.example"), ("x-original-host", "evil.example")],
    &[("x-http-host-override", "evil.example")],
    &[("proxy", "http://evil.example")],
    &[("x-request-id", "evil")],
    &[
        ("x-user-id", "mallory"),
        ("x-plan", "gold"),
        ("x-forwarded-for", "6.6.6.6"),
        ("forwarded", "for=6.6.6.6"),
    ],
    &[],
];

/// What no client should send over HTTP/1.1: lines that some programs read as another field than others.
const MALFORMED: [&str; 12] = [
    "x-user-id : mallory\r\n",
    "x-user-id\t: mallory\r\n",
    " x-user-id: mallory\r\n",
    "x-a: b\r\n x-user-id: mallory\r\n",
    "x-a: b\n x-user-id: mallory\r\n",
    "x-a: b\rx-user-id: mallory\r\n",
    "x-a: b\0\r\nx-user-id: mallory\r\n",
    "x-user-id:mallory\nx-plan:gold\n",
    "x-forwarded-for : 6.6.6.6\r\n",
    "x-user-id\u{b}: mallory\r\n",
    "authorization: Basic bWFsbG9yeTp4\r\n",
    "te: trailers\r\ntrailer: x-user-id\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-user-id: mallory\r\n",
];

/// An API behind a Tollgate with the configuration of a page, and what the proxy in front needs.
struct Api {
    origin: Origin,
    tollgate: Tollgate,
    authority: Authority,
    certificate: Issued,
    directory: TempDir,
}

impl Api {
    fn start(page: &Page) -> Self {
        let origin = Origin::ok();
        let yaml = page.block("yaml", "trusted_proxies: [10.0.0.2]");
        let address = origin.address.to_string();
        let changes =
            [("0.0.0.0:8080", "\"127.0.0.1:0\""), ("10.0.0.2", "127.0.0.1"), ("10.0.0.5:3000", &address)];
        let yaml = replace(&yaml, &changes) + "access_log: { format: json, to: stdout }\n";
        let tollgate = Tollgate::start(Config::yaml(yaml));
        let authority = Authority::new("Authority of the tests");
        let certificate = authority.issue("server", &["localhost"]);
        Self { origin, tollgate, authority, certificate, directory: TempDir::new().unwrap() }
    }

    /// A file in the directory of the proxy in front: its path.
    fn write(&self, name: &str, text: &str) -> String {
        let file = self.directory.path().join(name);
        fs::write(&file, text).unwrap();
        file_name(&file).to_owned()
    }

    /// The client and the user of each request that Tollgate has passed on so far.
    fn seen(&self) -> Vec<(String, String)> {
        let text = |line: &serde_json::Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let lines = self.tollgate.stdout();
        let lines = lines.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        // What HAProxy passes on and Tollgate refuses, such as a NUL in a value, has 400.
        let lines = lines.filter(|line| line["status"] == 200);
        lines.map(|line| (text(&line, "client"), text(&line, "user"))).collect()
    }

    /// A connection from `source` to the proxy in front.
    fn connect(&self, front: SocketAddr, source: &str) -> HttpsClient {
        let plain = Client::connect_from(source.parse::<IpAddr>().unwrap(), front);
        TlsConnector::new(&self.authority).over(plain.stream, "localhost").unwrap().into_http()
    }

    /// A request of its own connection, with these lines: its answer, unless the connection was closed without one.
    fn send(&self, front: SocketAddr, lines: &str) -> Option<Reply> {
        let mut client = self.connect(front, CLIENT);
        client.send(format!("GET / HTTP/1.1\r\nhost: localhost\r\nauthorization: {ANN}\r\n{lines}\r\n"));
        client.try_reply().ok()
    }

    /// A request by HTTP/2: its status.
    fn send_by_http2(&self, front: SocketAddr, fields: &[(&str, &str)]) -> u16 {
        let mut curl = program("curl", "curl");
        let authority = self.authority.file();
        curl.args(["-sS", "--http2", "--max-time", "60", "--cacert", file_name(&authority)]);
        curl.args(["--interface", CLIENT, "-4", "-H", &format!("authorization: {ANN}")]);
        for (name, value) in fields {
            let field = if value.is_empty() { format!("{name};") } else { format!("{name}: {value}") };
            curl.args(["-H", &field]);
        }
        curl.args(["-o", "/dev/null", "-w", "%{http_version} %{http_code}"]);
        let written = printed(curl.arg(format!("https://localhost:{}/", front.port())));
        written.strip_prefix("2 ").unwrap_or_else(|| panic!("{written}")).parse().unwrap()
    }

    /// The last request that reached Tollgate was ann's, and nothing in it was forged.
    #[track_caller]
    fn is_of_ann(&self, requests: usize, sent: &dyn std::fmt::Debug) {
        eventually("the request is logged", || self.seen().len() >= requests);
        let seen = self.seen();
        assert_eq!(seen.len(), requests, "{sent:?}");
        assert_eq!(seen[requests - 1], (CLIENT.to_owned(), "ann".to_owned()), "{sent:?}");
        let heads = self.origin.heads();
        assert_eq!(heads.len(), requests, "{sent:?}");
        // A folded line belongs to the field above it.
        let head = heads[requests - 1].to_lowercase().replace("\r\nx-a: b", "\r\n: ");
        let head: String = head.split_inclusive("\r\n").filter(|line| !line.starts_with(": ")).collect();
        for forged in FORGED {
            assert!(!head.contains(forged), "{sent:?} came as {head}");
        }
        assert!(head.contains("\r\nx-user-id: ann") && head.contains("\r\nx-plan: free"), "{head}");
        assert!(head.contains(&format!("\r\nx-forwarded-for: {CLIENT}, 127.0.0.1")), "{head}");
        assert!(head.contains("\r\nx-forwarded-proto: https"), "{head}");
    }

    /// No client of `front` chooses its address, its user or its plan, and the limits count the true ones.
    #[track_caller]
    fn clients_choose_nothing(&self, front: SocketAddr) {
        let mut requests = 0;
        for claims in CLAIMS {
            let lines: String = claims.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let reply = self.send(front, &lines).unwrap_or_else(|| panic!("no answer to {claims:?}"));
            let names_others = claims.iter().any(|(name, _)| *name == "connection");
            if names_others && reply.status == 400 {
                assert_eq!(self.origin.heads().len(), requests, "{claims:?}");
                continue;
            }
            assert_eq!(reply.status, 200, "{claims:?}: {}", reply.text());
            requests += 1;
            self.is_of_ann(requests, &claims);
            // HTTP/2 has no such field (RFC 9113, 8.2.2).
            if !names_others {
                assert_eq!(self.send_by_http2(front, claims), 200, "{claims:?}");
                requests += 1;
                self.is_of_ann(requests, &claims);
            }
        }
        for lines in MALFORMED {
            let before = self.origin.heads().len();
            match self.send(front, lines).map(|reply| reply.status) {
                Some(200) => {
                    requests += 1;
                    self.is_of_ann(requests, &lines);
                }
                Some(400..=499) | None => assert_eq!(self.origin.heads().len(), before, "{lines:?}"),
                status => panic!("{lines:?}: {status:?}"),
            }
        }
        self.limits_count_the_true_client(front, requests);
    }

    /// `sent` requests of ann have been counted.
    #[track_caller]
    fn limits_count_the_true_client(&self, front: SocketAddr, sent: usize) {
        fn forged(authorization: &str) -> [(&str, &str); 5] {
            [
                ("host", "localhost"),
                ("authorization", authorization),
                ("x-forwarded-for", "6.6.6.6"),
                ("x-user-id", "mallory"),
                ("x-plan", "gold"),
            ]
        }
        // How many requests of one connection are admitted until one is denied.
        let admitted = |source, authorization: &str| {
            let mut client = self.connect(front, source);
            (0..=LIMIT_OF_AN_ADDRESS)
                .map(|_| client.request("GET", "/", &forged(authorization), b"").status)
                .take_while(|status| *status == 200)
                .count()
        };
        assert!(sent < LIMIT_OF_ANN, "{sent}");
        assert_eq!(admitted(CLIENT, ANN), LIMIT_OF_ANN - sent, "ann has her own limit, with any claims");
        assert_eq!(admitted(NEIGHBOR, ANN), 0, "at any address");
        assert_eq!(admitted(CLIENT, GIL), LIMIT_OF_AN_ADDRESS - LIMIT_OF_ANN, "gold is the plan of gil");
        assert_eq!(admitted(CLIENT, BOB), 0, "the address is at its limit, whoever sends");
        assert_eq!(admitted(NEIGHBOR, BOB), LIMIT_OF_ANN, "another address is not");
        let wrong = self.connect(front, NEIGHBOR).request(
            "GET",
            "/",
            &[("host", "localhost"), ("authorization", "Basic bWFsbG9yeTp4"), ("x-user-id", "ann")],
            b"",
        );
        assert_eq!(wrong.status, 401);
    }
}

#[test]
fn behind_nginx_clients_choose_nothing() {
    let page = Page::open("fronts/nginx.md");
    let api = Api::start(&page);
    let front = nobody();
    let users = api.write("users", "ann:{PLAIN}ann\nbob:{PLAIN}bob\ngil:{PLAIN}gil\n");
    let changes = [
        ("listen 443 ssl", &*format!("listen {front} ssl")),
        ("10.0.0.3:8080", &api.tollgate.address.to_string()),
        ("/etc/ssl/api.pem", file_name(&api.certificate.cert)),
        ("/etc/ssl/api.key", file_name(&api.certificate.key)),
        ("/etc/nginx/users", &users),
    ];
    let block = replace(&page.block("nginx", "listen 443"), &changes);
    let (_nginx, _) = nginx(api.directory.path(), &block, "");
    api.clients_choose_nothing(front);
}

#[test]
fn behind_haproxy_clients_choose_nothing() {
    let page = Page::open("fronts/haproxy.md");
    let api = Api::start(&page);
    let front = nobody();
    let read = |file: &Path| fs::read_to_string(file).unwrap();
    // HAProxy takes certificate and key from one file.
    let both = api.write("both.pem", &(read(&api.certificate.cert) + &read(&api.certificate.key)));
    let plans = api.write("plans.map", "gil gold\n");
    let changes = [
        ("bind :443 ", &*format!("bind {front} ")),
        ("10.0.0.3:8080", &api.tollgate.address.to_string()),
        ("/etc/ssl/api.pem", &both),
        ("/etc/haproxy/plans.map", &plans),
    ];
    let block = replace(&page.block("haproxy", "bind :443"), &changes);
    let _haproxy = haproxy(api.directory.path(), &block, front);
    api.clients_choose_nothing(front);
}

#[test]
fn behind_caddy_clients_choose_nothing() {
    let page = Page::open("fronts/caddy.md");
    let api = Api::start(&page);
    let front = nobody();
    // bcrypt at its lowest cost, or the test would take minutes.
    let users = api.write(
        "users",
        "ann $2b$04$UiOrC6zzfu8TvEKJw7xOduhhGoHPur0WhfVIJVAMapDlYv5TXdraC\n\
         bob $2b$04$OwvWnnJhv7Wq86/ei8eFjO9MPHyZ4riT566.IQLmR3C3vF1nnlBtC\n\
         gil $2b$04$I1v/1zjCbLi9su5LNQRVXuDvCgEphW0gPxVN6zEtUXNvHHulaOA5S\n",
    );
    let (cert, key) = (file_name(&api.certificate.cert), file_name(&api.certificate.key));
    let changes = [
        ("api.example.com {", &*format!("https://localhost {{\n\ttls {cert} {key}")),
        ("10.0.0.3:8080", &api.tollgate.address.to_string()),
        ("/etc/caddy/users", &users),
    ];
    let block = replace(&page.block("caddyfile", "api.example.com"), &changes);
    let _caddy = caddy(api.directory.path(), &block, "https", front);
    api.clients_choose_nothing(front);
}

#[test]
fn behind_envoy_clients_choose_nothing() {
    let Ok(envoy) = env::var("ENVOY") else {
        eprintln!("left out: `scripts/test` installs Envoy, and says where in ENVOY");
        return;
    };
    let page = Page::open("fronts/envoy.md");
    let api = Api::start(&page);
    let front = nobody();
    let users = api.write(
        "users",
        "ann:{SHA}dEy5qfs9VYN0TqPs6bTYGdkL3uI=\nbob:{SHA}SBgazSKz7a68ikR4aKfffOYpkgo=\n\
         gil:{SHA}Jv0GvqU/cUbOD7OlxruG8E3PskQ=\n",
    );
    let [front_at, tollgate_at] = [front, api.tollgate.address]
        .map(|address| format!("address: {}, port_value: {}", address.ip(), address.port()));
    let changes = [
        ("address: 0.0.0.0, port_value: 443", &*front_at),
        ("address: 10.0.0.3, port_value: 8080", &tollgate_at),
        ("/etc/ssl/api.pem", file_name(&api.certificate.cert)),
        ("/etc/ssl/api.key", file_name(&api.certificate.key)),
        ("/etc/envoy/users", &users),
    ];
    let file = api.write("envoy.yaml", &replace(&page.block("yml", "static_resources"), &changes));
    let mut command = Command::new(envoy);
    command.args(["-c", &file, "--concurrency", "1", "--use-dynamic-base-id"]);
    let _envoy = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    eventually("Envoy listens", || TcpStream::connect(front).is_ok());
    api.clients_choose_nothing(front);
}

#[test]
fn every_page_removes_the_address_fields_of_other_fronts() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/fronts");
    let mut lists = 0;
    for page in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        let text = fs::read_to_string(&page).unwrap();
        for list in text.split("\n  remove: [").skip(1).map(|rest| rest.split(']').next().unwrap()) {
            lists += 1;
            let names: Vec<_> = list.split(',').map(str::trim).collect();
            for field in [
                "client-ip",
                "x-client-ip",
                "x-cluster-client-ip",
                "true-client-ip",
                "fastly-client-ip",
                "x-azure-clientip",
                "proxy-client-ip",
                "wl-proxy-client-ip",
                "x-original-forwarded-for",
                "x-envoy-external-address",
            ] {
                assert!(names.contains(&field), "{} does not remove {field}", page.display());
            }
        }
    }
    assert_eq!(lists, 12);
}

/// A Tollgate with every setting at its default in front of `behind`, as which a client asks with forged fields.
fn through_tollgate(behind: SocketAddr) -> Reply {
    let tollgate = Tollgate::start(Config::new(&[behind], ""));
    let forged =
        [("x-forwarded-for", "6.6.6.6"), ("forwarded", "for=6.6.6.6"), ("x-forwarded-proto", "evil")];
    get_from(CLIENT, tollgate.address, "/", &forged)
}

#[test]
fn nginx_behind_tollgate_knows_the_client() {
    let (directory, address) = (TempDir::new().unwrap(), nobody());
    let block = Page::open("fronts/nginx.md").block("nginx", "set_real_ip_from");
    let block = replace(&block, &[("listen 80", &format!("listen {address}")), ("10.0.0.3", "127.0.0.1")]);
    let (_nginx, _) = nginx(directory.path(), &block, "");
    assert_eq!(through_tollgate(address).text(), format!("{CLIENT} http\n"));
    // Nobody else is believed.
    let direct = get_from(CLIENT, address, "/", &[("x-forwarded-for", "6.6.6.6")]);
    assert_eq!(direct.text(), format!("{CLIENT} \n"));
}

#[test]
fn haproxy_behind_tollgate_knows_the_client() {
    let (directory, address) = (TempDir::new().unwrap(), nobody());
    let page = Page::open("fronts/haproxy.md");
    let defaults = "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n";
    let block = page.block("haproxy", "set-src");
    let block = replace(&block, &[("bind :80", &format!("bind {address}")), ("10.0.0.3", "127.0.0.1")]);
    let _haproxy = haproxy(directory.path(), &(defaults.to_owned() + &block), address);
    assert_eq!(through_tollgate(address).text(), format!("{CLIENT} http\n"));
    let direct = get_from(CLIENT, address, "/", &[("x-forwarded-for", "6.6.6.6")]);
    assert_eq!(direct.text(), format!("{CLIENT} \n"));
}

#[test]
fn caddy_behind_tollgate_passes_the_client_on() {
    let (directory, address, origin) = (TempDir::new().unwrap(), nobody(), Origin::echo());
    let block = Page::open("fronts/caddy.md").block("caddyfile", "trusted_proxies");
    let service = origin.address.to_string();
    let block =
        replace(&block, &[(":80 {", "http:// {"), ("10.0.0.5:3000", &service), ("10.0.0.3", "127.0.0.1")]);
    let _caddy = caddy(directory.path(), &block, "http", address);
    let addresses = |reply: &Reply| {
        let headers = reply.json()["headers"].clone();
        let field = headers.as_array().unwrap().iter().find(|field| field[0] == "X-Forwarded-For");
        field.unwrap()[1].as_str().unwrap().to_owned()
    };
    assert_eq!(addresses(&through_tollgate(address)), format!("{CLIENT}, 127.0.0.1"));
    let direct = get_from(CLIENT, address, "/", &[("x-forwarded-for", "6.6.6.6")]);
    assert_eq!(addresses(&direct), CLIENT);
}
