//! Origins over TLS that none of us wrote.

use std::{
    fs,
    net::TcpStream,
    path::Path,
    process::{Child, Stdio},
};

use tempfile::TempDir;

use super::{PATIENT, before, trusting, upstream};
use crate::harness::{
    Authority, Client, Issued, Running, Tollgate, eventually, file_name, get, nginx, nobody, program,
};

fn own() -> (Authority, Issued) {
    let authority = Authority::new("ca");
    let issued = authority.issue("origin", &["127.0.0.1", "localhost"]);
    (authority, issued)
}

#[test]
fn nginx_keeps_connections_and_resumes_sessions() {
    let (authority, issued) = own();
    let directory = TempDir::new().unwrap();
    let server = format!(
        "ssl_certificate {}; ssl_certificate_key {}; ssl_session_cache shared:a:1m;
         client_max_body_size 0; location /put/ {{ dav_methods PUT; create_full_put_path on; client_body_temp_path body; }}
         location / {{ add_header connection-number $connection; add_header session $ssl_session_reused;
                       add_header sni $ssl_server_name; }}",
        issued.cert.display(),
        issued.key.display()
    );
    fs::write(directory.path().join("file"), vec![b'x'; 3 << 20]).unwrap();
    let tls_port = nobody();
    let server = format!("listen {tls_port} ssl; {server}");
    let (_nginx, _plain) = nginx(directory.path(), "", &server);
    let ca = format!("tls: {{ ca: {} }}, {PATIENT}", authority.file().display());
    let tollgate = Tollgate::start(upstream(&[format!("https://localhost:{}", tls_port.port())], &ca));
    let mut client = Client::connect(tollgate.address);
    let mut numbers = Vec::new();
    for _ in 0..3 {
        let reply = client.request("GET", "/file", &[], b"");
        assert_eq!((reply.status, reply.body.len()), (200, 3 << 20));
        assert_eq!(reply.header("sni"), Some("localhost"));
        numbers.push(reply.header("connection-number").map(str::to_owned));
    }
    assert!(numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
    // New connections of the same upstream.
    let unkept = format!("{ca}, idle_connections: 0");
    let tollgate = Tollgate::start(upstream(&[format!("https://localhost:{}", tls_port.port())], &unkept));
    let sessions: Vec<_> =
        (0..4).map(|_| get(tollgate.address, "/file", &[]).header("session").map(str::to_owned)).collect();
    let reused: Vec<_> = sessions.iter().map(Option::as_deref).collect();
    assert_eq!(reused, [Some("."), Some("r"), Some("r"), Some("r")]);
}

/// A program that serves this directory at `address`, once it does.
fn serving(mut command: std::process::Command, directory: &Path, address: std::net::SocketAddr) -> Running {
    let child: Child =
        command.current_dir(directory).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let running = Running(child);
    eventually("it listens", || TcpStream::connect(address).is_ok());
    running
}

#[test]
fn openssl_serves_a_file_on_each_connection() {
    let (authority, issued) = own();
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("file"), vec![b'x'; 100_000]).unwrap();
    for version in ["-tls1_2", "-tls1_3"] {
        let address = nobody();
        let mut command = program("openssl", "openssl");
        command.args(["s_server", "-WWW", "-quiet", version, "-accept", &address.to_string()]);
        command.args(["-cert", file_name(&issued.cert), "-key", file_name(&issued.key)]);
        let _server = serving(command, directory.path(), address);
        let tollgate = before(address, &authority, "");
        for _ in 0..3 {
            let reply = get(tollgate.address, "/file", &[]);
            assert_eq!((reply.status, reply.body.len()), (200, 100_000), "{version}");
        }
    }
}

const PYTHON: &str = r#"
import http.server, ssl, sys
class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
host, port = sys.argv[1].split(":")
server = http.server.ThreadingHTTPServer((host, int(port)), Echo)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;

#[test]
fn python_echoes_bodies_and_its_death_is_noticed() {
    let (authority, issued) = own();
    let directory = TempDir::new().unwrap();
    let start = |address: std::net::SocketAddr| {
        let mut command = program("python3", "python3");
        command.args(["-c", PYTHON, &address.to_string(), file_name(&issued.cert), file_name(&issued.key)]);
        serving(command, directory.path(), address)
    };
    let [one, other] = [nobody(), nobody()];
    let (first, _second) = (start(one), start(other));
    let tollgate = Tollgate::start(trusting(&[one, other], &authority, ""));
    let mut client = Client::connect(tollgate.address);
    let body = vec![b'y'; 200_000];
    for _ in 0..4 {
        let reply = client.request("POST", "/", &[], &body);
        assert_eq!((reply.status, reply.body == body), (200, true));
    }
    // SIGKILL: the kernel ends its connections without a word of TLS.
    drop(first);
    eventually("all go to the other", || {
        (0..4).all(|_| client.request("POST", "/", &[], &body).status == 200)
    });
}

#[test]
fn nghttpd_speaks_http2_and_echoes_uploads() {
    let (authority, issued) = own();
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("file"), vec![b'x'; 3 << 20]).unwrap();
    let body = vec![b'y'; 1 << 20];
    for is_tls in [true, false] {
        let address = nobody();
        let mut command = program("nghttpd", "nghttp2-server");
        command.args(["--address=127.0.0.1", "--echo-upload", "--trailer=x-end: yes", "--htdocs=."]);
        command.arg(address.port().to_string());
        match is_tls {
            true => command.args([&issued.key, &issued.cert]),
            false => command.arg("--no-tls"),
        };
        let _server = serving(command, directory.path(), address);
        let (settings, scheme) = match is_tls {
            true => {
                (format!("tls: {{ ca: {} }}, protocol: auto, {PATIENT}", authority.file().display()), "https")
            }
            false => ("protocol: h2".to_owned(), "http"),
        };
        let tollgate = Tollgate::start(upstream(&[format!("{scheme}://{address}")], &settings));
        let mut client = Client::connect(tollgate.address);
        for _ in 0..3 {
            let file = client.request("GET", "/file", &[], b"");
            assert_eq!((file.status, file.body.len()), (200, 3 << 20));
            let echo = client.request("POST", "/echo", &[], &body);
            assert!(echo.status == 200 && echo.body == body, "{}", echo.status);
            assert_eq!(client.request("GET", "/missing", &[], b"").status, 404);
        }
        let connections = |state: &str| {
            tollgate
                .metric(&format!("tollgate_upstream_connections{{upstream=\"origin\",state=\"{state}\"}}"))
        };
        eventually("one connection served all", || connections("idle") + connections("active") == 1.0);
    }
}
