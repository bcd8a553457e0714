//! TLS: certificates by name, their files, sessions, and what clients are asked for.

use std::fs;

use crate::harness::{Authority, Config, Issued, Origin, TlsConnector, Tollgate, eventually, file_name};

/// Tollgate with these certificates; `tls` is more of the listener's `tls`.
fn serving(origin: &Origin, certificates: &[&Issued], tls: &str) -> Tollgate {
    let pair = |issued: &&Issued| {
        format!("{{ cert: {}, key: {} }}", file_name(&issued.cert), file_name(&issued.key))
    };
    let certificates: Vec<_> = certificates.iter().map(pair).collect();
    let rest = format!(
        "listeners: [{{ address: \"127.0.0.1:0\", tls: {{ certificates: [{}], {tls} }} }}]",
        certificates.join(", ")
    );
    Tollgate::start(Config::new(&[origin.address], &rest))
}

/// The name of the certificate that a client is shown who asks for `name`.
fn shown(tollgate: &Tollgate, connector: &TlsConnector, name: &str) -> Vec<u8> {
    let client = connector.connect(tollgate.address, name).unwrap();
    client.0.conn.peer_certificates().unwrap()[0].to_vec()
}

fn der(issued: &Issued) -> Vec<u8> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    CertificateDer::from_pem_slice(&fs::read(&issued.cert).unwrap()).unwrap().to_vec()
}

#[test]
fn a_client_is_shown_the_certificate_for_the_name_it_asks_for() {
    let (origin, authority) = (Origin::ok(), Authority::new("us"));
    let all = ["localhost", "a.example.org", "x.a.example.org", "b.example.org", "127.0.0.1"];
    let first = authority.issue("first", &all);
    let wild = authority.issue("wild", &["*.example.org"]);
    let exact = authority.issue("exact", &["b.example.org", "a.b.example.org"]);
    let tollgate = serving(&origin, &[&first, &wild, &exact], "");
    let connector = TlsConnector::new(&authority);
    for (name, issued) in [
        ("localhost", &first),
        // An exact name counts before a wildcard, and the first certificate with it before another.
        ("a.example.org", &first),
        ("A.Example.ORG", &first),
        ("c.example.org", &wild),
        ("b.example.org", &first),
        ("a.b.example.org", &exact),
        // A wildcard stands for one label.
        ("x.a.example.org", &first),
        // No name is asked for.
        ("127.0.0.1", &first),
    ] {
        assert!(shown(&tollgate, &connector, name) == der(issued), "{name}");
    }
    assert!(connector.connect(tollgate.address, "elsewhere.net").is_err());
    let failures = || tollgate.metric("tollgate_tls_handshake_failures_total{reason=\"unknown_name\"}");
    eventually("the refusal is counted", || failures() == 1.0);
    let log = tollgate.log().join("\n");
    assert!(log.contains("the client asked for \"elsewhere.net\", which no certificate is for"), "{log}");
}

#[test]
fn sessions_are_resumed_and_changed_files_are_served_without_losing_them() {
    let (origin, authority) = (Origin::ok(), Authority::new("us"));
    let issued = authority.issue("api", &["localhost"]);
    let tollgate = serving(&origin, &[&issued], "");
    let connector = TlsConnector::new(&authority);
    let get = || {
        let client = connector.connect(tollgate.address, "localhost").unwrap();
        let is_resumed = client.is_resumed();
        let answer = client.get("/", "").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        is_resumed
    };
    assert!(!get());
    assert!(get());
    let resumed = "tollgate_tls_handshakes_total{version=\"1.3\",resumed=\"yes\"}";
    assert_eq!(tollgate.metric(resumed), 1.0);

    let next = authority.issue("next", &["localhost"]);
    let fresh = || shown(&tollgate, &TlsConnector::new(&authority), "localhost");
    // The certificate alone does not fit, and changes nothing.
    fs::copy(&next.cert, &issued.cert).unwrap();
    let refused = || tollgate.log().iter().any(|line| line.contains("keeping the previous certificates"));
    eventually("the pair is refused", refused);
    assert!(fresh() != der(&next));
    fs::copy(&next.key, &issued.key).unwrap();
    eventually("the new certificate is served", || fresh() == der(&next));
    assert!(get(), "the session goes on");
}
