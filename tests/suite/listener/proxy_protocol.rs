//! PROXY headers, before HTTP, before TLS and within.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
};

use crate::harness::{
    Authority, Client, Config, Origin, Reply, TlsConnector, Tollgate, eventually, file_name,
};

const V1: &[u8] = b"PROXY TCP4 192.0.2.7 10.0.0.1 56324 443\r\n";
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\x0a\x00\x00\x01\xdc\x04\x01\xbb";
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";

/// Tollgate behind a load balancer at 127.0.0.1; `listener` is more of the only listener.
fn behind_balancer(origin: &Origin, listener: &str) -> Tollgate {
    behind_balancer_with(origin, listener, "30s")
}

/// The same where a header and a head may take so long.
fn behind_balancer_with(origin: &Origin, listener: &str, header_timeout: &str) -> Tollgate {
    let rest = format!(
        "listeners: [{{ address: \"127.0.0.1:0\", proxy_protocol: true, {listener} }}]
trusted_proxies: [127.0.0.1, 198.51.100.0/24]
client_limits: {{ header_timeout: {header_timeout} }}
access_log: {{ format: json, to: stdout }}
policies: {{ two: {{ algorithm: sliding_log, key: ip, limit: 2/1h }} }}"
    );
    Tollgate::start(Config::new(&[origin.address], &rest).with_policy("two"))
}

/// The reply to a request behind these bytes.
fn behind(address: SocketAddr, header: &[u8]) -> Reply {
    let mut client = Client::sending(address, [header, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"].concat());
    client.reply()
}

#[test]
fn the_client_is_whom_the_header_names() {
    let origin = Origin::ok();
    let tollgate = behind_balancer(&origin, "");
    assert_eq!(behind(tollgate.address, V1).status, 200);
    assert_eq!(behind(tollgate.address, V2).status, 200);
    assert_eq!(behind(tollgate.address, V1).status, 429, "both versions name one client");
    let head = origin.heads().pop().unwrap().to_lowercase();
    assert!(head.contains("x-forwarded-for: 192.0.2.7\r\n"), "{head}");
    let other = b"PROXY TCP6 2001:db8::9 ::1 56324 443\r\n";
    assert_eq!(behind(tollgate.address, other).status, 200);
    // The balancer's own check of our health names nobody.
    assert_eq!(behind(tollgate.address, LOCAL).status, 200);
    let logged = |client: &str| {
        let client = format!("\"client\":\"{client}\"");
        eventually("the line is written", || tollgate.stdout().iter().any(|line| line.contains(&client)));
    };
    logged("192.0.2.7");
    logged("2001:db8::9");
    logged("127.0.0.1");
}

#[test]
fn the_address_in_a_proxy_header_may_itself_be_a_trusted_proxy() {
    let origin = Origin::ok();
    let tollgate = behind_balancer(&origin, "");
    let mut client = Client::sending(tollgate.address, "PROXY TCP4 198.51.100.3 10.0.0.1 1 2\r\n");
    assert_eq!(client.request("GET", "/", &[("x-forwarded-for", "203.0.113.5")], b"").status, 200);
    let mut client = Client::sending(tollgate.address, "PROXY TCP4 192.0.2.8 10.0.0.1 1 2\r\n");
    assert_eq!(client.request("GET", "/", &[("x-forwarded-for", "203.0.113.5")], b"").status, 200);
    let told: Vec<_> = origin.heads().iter().map(|head| head.to_lowercase()).collect();
    assert!(told[0].contains("x-forwarded-for: 203.0.113.5, 198.51.100.3"), "{told:?}");
    assert!(told[1].contains("x-forwarded-for: 192.0.2.8\r\n"), "{told:?}");
}

#[test]
fn a_header_that_names_nobody_makes_no_trusted_proxy_of_the_client() {
    let origin = Origin::ok();
    let rest = "listeners: [{ address: \"127.0.0.1:0\", proxy_protocol: true }]
trusted_proxies: [127.0.0.1]
user: [{ header: x-user-id }]
access_log: { format: json, to: stdout }
policies: { two: { algorithm: sliding_log, key: ip, limit: 2/1h } }";
    let tollgate = Tollgate::start(Config::new(&[origin.address], rest).with_policy("two"));
    let unix = [b"\r\n\r\n\0\r\nQUIT\n\x21\x31\x00\xd8", &[0; 216][..]].concat();
    let headers = [LOCAL, b"PROXY UNKNOWN\r\n", &unix];
    let replies = headers.each_ref().map(|header| {
        let mut client = Client::sending(tollgate.address, header);
        let forged = [("x-forwarded-for", "203.0.113.5"), ("x-user-id", "mallory")];
        client.request("GET", "/", &forged, b"").status
    });
    assert_eq!(replies, [200, 200, 429], "what the client writes is not believed");
    for head in origin.heads() {
        let head = head.to_lowercase();
        assert!(head.contains("x-forwarded-for: 127.0.0.1\r\n") && !head.contains("mallory"), "{head}");
    }
    let told = || tollgate.stdout().iter().filter(|line| line.contains("\"client\":\"127.0.0.1\"")).count();
    eventually("the lines are written", || told() == 3);
    assert!(!tollgate.stdout().join("\n").contains("mallory"));
}

#[test]
fn a_header_may_come_in_pieces_and_the_connection_is_kept() {
    let origin = Origin::ok();
    let tollgate = behind_balancer(&origin, "");
    for header in [V1, V2] {
        let mut client = Client::connect(tollgate.address);
        for piece in header.chunks(5) {
            client.send(piece);
            client.wait_until_read();
        }
        let statuses = [(); 2].map(|()| client.request("GET", "/", &[], b"").status);
        assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    }
}

#[test]
fn other_peers_and_other_beginnings_are_closed_and_counted() {
    let origin = Origin::ok();
    let tollgate = behind_balancer_with(&origin, "", "3s");
    let failures = |reason: &str| {
        tollgate.metric(&format!("tollgate_proxy_header_failures_total{{reason=\"{reason}\"}}"))
    };
    let mut stranger = Client::connect_from("127.0.0.9".parse().unwrap(), tollgate.address);
    assert!(stranger.closed(), "before it has sent anything");
    eventually("the failure is counted", || failures("untrusted") > 0.0);
    assert_eq!(failures("untrusted"), 1.0);
    for (bytes, reason) in [
        (&b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..], "missing"),
        (b"POST / HTTP/1.1\r\nhost: a\r\n\r\n", "missing"),
        (b"PROXY TCP4 192.0.2.300 10.0.0.1 1 2\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n", "malformed"),
        // It takes too long.
        (b"PROXY TCP4 192.0", "incomplete"),
    ] {
        let before = failures(reason);
        let mut client = Client::sending(tollgate.address, bytes);
        client.broken_off();
        // Counted just after the connection is closed.
        eventually("the failure is counted", || failures(reason) > before);
        assert_eq!(failures(reason), before + 1.0, "{bytes:?}");
    }
    assert!(origin.heads().is_empty(), "nothing was forwarded");
    let log = tollgate.log().join("\n");
    assert!(log.contains("expects PROXY headers, and this address is not one of trusted_proxies"), "{log}");
    eventually("all slots are free", || tollgate.metric("tollgate_connections") == 0.0);
}

#[test]
fn the_header_stands_before_tls_or_within() {
    let (origin, authority) = (Origin::ok(), Authority::new("us"));
    let issued = authority.issue("api", &["localhost"]);
    let tls = format!(
        "tls: {{ certificates: [{{ cert: {}, key: {} }}] }}",
        file_name(&issued.cert),
        file_name(&issued.key)
    );
    let tollgate = behind_balancer(&origin, &tls);
    let connector = TlsConnector::new(&authority);

    let mut stream = TcpStream::connect(tollgate.address).unwrap();
    stream.write_all(V2).unwrap();
    let answer = connector.over(stream, "localhost").unwrap().get("/", "").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");

    let mut client = connector.connect(tollgate.address, "localhost").unwrap();
    client.0.write_all(V1).unwrap();
    let answer = client.get("/", "").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    for head in origin.heads() {
        assert!(head.to_lowercase().contains("x-forwarded-for: 192.0.2.7\r\n"), "{head}");
    }

    // A client that sends it neither before nor within is closed.
    let client = connector.connect(tollgate.address, "localhost").unwrap();
    assert!(client.get("/", "").is_err());
    eventually("the failure is counted", || {
        tollgate.metric("tollgate_proxy_header_failures_total{reason=\"missing\"}") == 1.0
    });
    // The second header is no request.
    let mut stream = TcpStream::connect(tollgate.address).unwrap();
    stream.write_all(V1).unwrap();
    let mut client = connector.over(stream, "localhost").unwrap();
    client.0.write_all(V1).unwrap();
    let answer = client.get("/", "").unwrap_or_default();
    assert!(!answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
