//! Load balancers that send PROXY headers, as their users set them up: HAProxy, and nginx' stream module.

use std::{
    fs,
    io::{Read, Write},
    net::{IpAddr, SocketAddr},
    os::unix::net::UnixStream,
    path::Path,
};

use tempfile::TempDir;

use super::pair;
use crate::harness::{
    Authority, Client, Config, Issued, Origin, TlsConnector, Tollgate, eventually, file_name, haproxy,
    installed, nobody, start_nginx,
};

/// Where the client comes from; the load balancer comes from 127.0.0.1.
const CLIENT: &str = "127.0.0.9";

/// Two instances behind load balancers: with TLS, and without.
struct Behind {
    origin: Origin,
    authority: Authority,
    certificate: Issued,
    https: Tollgate,
    http: Tollgate,
}

impl Behind {
    fn start() -> Self {
        let origin = Origin::ok();
        let authority = Authority::new("Authority of the tests");
        let certificate = authority.issue("server", &["localhost"]);
        let start = |tls: &str| {
            let listeners = format!(
                "listeners: [{{ address: \"127.0.0.1:0\", proxy_protocol: true{tls} }}]\n\
                 trusted_proxies: [127.0.0.1]\n"
            );
            Tollgate::start(Config::new(&[origin.address], &listeners))
        };
        let https = start(&format!(", tls: {{ certificates: [{}] }}", pair(&certificate)));
        let http = start("");
        Self { origin, authority, certificate, https, http }
    }

    /// A request through the load balancer at `address`, over TLS or not: the origin hears who has sent it.
    #[track_caller]
    fn names_the_client(&self, address: SocketAddr, over_tls: bool) {
        let seen = self.origin.heads().len();
        let client: IpAddr = CLIENT.parse().unwrap();
        let mut plain = Client::connect_from(client, address);
        let status = if over_tls {
            let connector = TlsConnector::new(&self.authority);
            let mut client = connector.over(plain.stream, "localhost").unwrap().into_http();
            client.request("GET", "/", &[], b"").status
        } else {
            plain.request("GET", "/", &[], b"").status
        };
        assert_eq!(status, 200);
        let heads = self.origin.heads();
        assert_eq!(heads.len(), seen + 1);
        assert!(heads[seen].contains(&format!("x-forwarded-for: {CLIENT}")), "{}", heads[seen]);
    }

    /// Nothing was refused.
    fn is_content(&self) {
        for tollgate in [&self.https, &self.http] {
            let metrics = tollgate.admin("GET", "/metrics").text();
            let failures = metrics.lines().filter(|line| line.starts_with("tollgate_proxy_header_failures"));
            let failures: Vec<_> = failures.filter(|line| !line.ends_with(" 0")).collect();
            assert!(failures.is_empty(), "{failures:?}");
        }
    }
}

#[test]
fn haproxy_names_its_clients() {
    let behind = Behind::start();
    let directory = TempDir::new().unwrap();
    let (https, http) = (behind.https.address, behind.http.address);
    let ca = behind.authority.file();
    // HAProxy takes certificate and key from one file.
    let both =
        [&behind.certificate.cert, &behind.certificate.key].map(|file| fs::read_to_string(file).unwrap());
    fs::write(directory.path().join("both.pem"), both.concat()).unwrap();
    let verify = format!("ssl verify required ca-file {} sni str(localhost)", file_name(&ca));
    // What stands behind `bind ADDRESS`, the mode, what stands behind `server NAME ADDRESS`, over TLS or not.
    let cases = [
        ("", "tcp", format!("{http} send-proxy"), false),
        ("", "tcp", format!("{http} send-proxy-v2"), false),
        ("", "tcp", format!("{https} send-proxy"), true),
        ("", "tcp", format!("{https} send-proxy-v2"), true),
        // With fields behind the addresses, some of which say what TLS there was.
        (
            "ssl crt both.pem",
            "tcp",
            format!("{http} send-proxy-v2-ssl-cn proxy-v2-options ssl,crc32c,authority,unique-id"),
            true,
        ),
        // It ends TLS, and begins another.
        ("ssl crt both.pem", "http", format!("{https} {verify} send-proxy-v2"), true),
        // It asks whether the server is well, which names no client.
        ("", "tcp", format!("{http} send-proxy-v2 check check-send-proxy inter 100ms"), false),
    ];
    let addresses = cases.each_ref().map(|_| nobody());
    let mut configuration =
        "defaults\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n unique-id-format %ci:%cp\n"
            .to_owned();
    for (number, ((bind, mode, server, _), address)) in cases.iter().zip(addresses).enumerate() {
        configuration +=
            &format!("listen l{number}\n mode {mode}\n bind {address} {bind}\n server s {server}\n");
    }
    let _haproxy = haproxy(directory.path(), &configuration, addresses[0]);
    for ((.., over_tls), address) in cases.iter().zip(addresses) {
        behind.names_the_client(address, *over_tls);
    }
    behind.is_content();
}

#[test]
fn haproxy_names_no_client_of_a_unix_socket_and_makes_none_a_trusted_proxy() {
    let behind = Behind::start();
    let directory = TempDir::new().unwrap();
    let address = nobody();
    // It listens at `address` only so that its start can be awaited.
    let configuration = format!(
        "defaults\n mode tcp\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
         listen l\n bind {address}\n bind {}\n server s {} send-proxy-v2\n",
        file_name(&directory.path().join("front.sock")),
        behind.http.address
    );
    let _haproxy = haproxy(directory.path(), &configuration, address);
    // It listens there a moment later.
    let mut client = None;
    eventually("it listens at the socket", || {
        client = UnixStream::connect(directory.path().join("front.sock")).ok();
        client.is_some()
    });
    let mut client = client.unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 192.0.2.66\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    let head = behind.origin.heads().pop().unwrap();
    assert!(head.contains("x-forwarded-for: 127.0.0.1\r\n"), "{head}");
}

#[test]
fn nginx_names_its_clients() {
    const MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";
    if installed("nginx").is_none() || !Path::new(MODULE).is_file() {
        eprintln!("left out: this nginx has no stream module (libnginx-mod-stream)");
        return;
    }
    let behind = Behind::start();
    let directory = TempDir::new().unwrap();
    let addresses = [nobody(), nobody()];
    let server = |listen: SocketAddr, to: SocketAddr| {
        format!("server {{ listen {listen}; proxy_pass {to}; proxy_protocol on; }}\n")
    };
    let configuration = format!(
        "load_module {MODULE}; daemon off; master_process off; pid nginx.pid; events {{ }}\nstream {{\n{}{}}}\n",
        server(addresses[0], behind.http.address),
        server(addresses[1], behind.https.address),
    );
    fs::write(directory.path().join("nginx.conf"), configuration).unwrap();
    let _nginx = start_nginx(directory.path(), addresses[0]);
    for (address, over_tls) in addresses.into_iter().zip([false, true]) {
        behind.names_the_client(address, over_tls);
    }
    behind.is_content();
}
