//! TLS: certificates by name, their files, sessions, and what clients are asked for.

use std::fs;

use crate::harness::{
    Authority, Config, Issued, Origin, TlsConnector, Tollgate, becomes, eventually, file_name,
};

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
    let words = "the client asked for \"elsewhere.net\", which no certificate is for";
    eventually("it is logged", || tollgate.has_logged(&[words]));
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
    becomes(1.0, || tollgate.metric(resumed));

    let next = authority.issue("next", &["localhost"]);
    let fresh = || shown(&tollgate, &TlsConnector::new(&authority), "localhost");
    // The certificate alone does not fit, and changes nothing.
    fs::copy(&next.cert, &issued.cert).unwrap();
    let refused = || tollgate.has_logged(&["the previous contents stay in use"]);
    eventually("the pair is refused", refused);
    assert!(fresh() != der(&next));
    fs::copy(&next.key, &issued.key).unwrap();
    eventually("the new certificate is served", || fresh() == der(&next));
    assert!(get(), "the session goes on");
}

/// The settings for clients whose certificates `authority` has signed.
fn asking(authority: &Authority, client_auth: &str) -> String {
    format!("client_ca: {}, client_auth: {client_auth}", file_name(&authority.file()))
}

#[test]
fn a_client_without_a_certificate_is_told_so_with_the_status_that_is_set() {
    let (origin, authority) = (Origin::ok(), Authority::new("us"));
    let issued = authority.issue("api", &["localhost"]);
    let known = TlsConnector::with_certificate(&authority, &authority.issue("client", &["client"]));
    let nobody = TlsConnector::new(&authority);
    for (client_auth, answer) in
        [("required", "HTTP/1.1 403 "), ("{ required: 401 }", "HTTP/1.1 401 "), ("optional", "HTTP/1.1 200 ")]
    {
        let tollgate = serving(&origin, &[&issued], &asking(&authority, client_auth));
        let get = |connector: &TlsConnector| {
            connector.connect(tollgate.address, "localhost").unwrap().get("/", "").unwrap()
        };
        let refused = get(&nobody);
        assert!(refused.starts_with(answer), "{refused}");
        let says = "requires a valid client certificate";
        assert_eq!(refused.contains(says), client_auth != "optional", "{refused}");
        assert!(get(&nobody).starts_with(answer), "resumed");
        assert!(get(&known).starts_with("HTTP/1.1 200 "));
        assert!(get(&known).starts_with("HTTP/1.1 200 "), "resumed");
    }
}

#[test]
fn a_certificate_of_another_authority_is_refused_and_counted() {
    let (origin, authority) = (Origin::ok(), Authority::new("us"));
    let issued = authority.issue("api", &["localhost"]);
    let tollgate = serving(&origin, &[&issued], &asking(&authority, "optional"));
    for own in
        [Authority::new("them").issue("client", &["client"]), authority.issue_expired("expired", &["client"])]
    {
        let connector = TlsConnector::with_certificate(&authority, &own);
        // In TLS 1.3 the client is done before the server has seen its certificate.
        let client = connector.connect(tollgate.address, "localhost");
        assert!(client.and_then(|client| client.get("/", "")).is_err());
    }
    let failures = "tollgate_tls_handshake_failures_total{reason=\"client_certificate\"}";
    becomes(2.0, || tollgate.metric(failures));
    assert!(origin.heads().is_empty());
    eventually("the log says why", || {
        let why = "failed: the client's certificate is not from an authority in client_ca (invalid peer certificate: ";
        tollgate.has_logged(&[why])
    });
}

#[test]
fn a_ticket_of_a_client_whose_authority_was_taken_out_does_not_get_in() {
    let (origin, authority, theirs) = (Origin::ok(), Authority::new("us"), Authority::new("them"));
    let issued = authority.issue("api", &["localhost"]);
    let ca = theirs.file().with_file_name("trusted.pem");
    fs::copy(theirs.file(), &ca).unwrap();
    let settings = format!("client_ca: {}", file_name(&ca));
    let tollgate = serving(&origin, &[&issued], &settings);
    let connector = TlsConnector::with_certificate(&authority, &theirs.issue("client", &["client"]));
    let get = || {
        let client = connector.connect(tollgate.address, "localhost")?;
        let is_resumed = client.is_resumed();
        client.get("/", "").map(|answer| (is_resumed, answer[..12].to_owned()))
    };
    assert_eq!(get().unwrap(), (false, "HTTP/1.1 200".to_owned()));
    assert_eq!(get().unwrap(), (true, "HTTP/1.1 200".to_owned()));
    // Nothing else changes: the certificates that are served, and the configuration, stay.
    fs::copy(authority.file(), &ca).unwrap();
    eventually("the ticket is void, and so is the certificate", || get().is_err());
    assert!(get().is_err());
}

/// The load balancer ends TLS: to redirect what came by HTTPS would never end.
#[test]
fn requests_that_a_trusted_proxy_got_by_https_are_not_redirected() {
    let origin = Origin::ok();
    let rest = "trusted_proxies: [127.0.0.1]\nlisteners: [{ address: \"127.0.0.1:0\", redirect: https }]";
    let tollgate = Tollgate::start(Config::new(&[origin.address], rest));
    for (proto, status) in [
        (Some("https"), 200),
        (Some("HTTPS"), 200),
        (Some("http"), 308),
        (Some("http, https"), 308),
        (None, 308),
    ] {
        let fields: Vec<_> = proto.map(|proto| ("x-forwarded-proto", proto)).into_iter().collect();
        assert_eq!(crate::harness::get(tollgate.address, "/", &fields).status, status, "{proto:?}");
    }
}

#[test]
fn plain_requests_are_redirected_and_browsers_told_to_begin_with_https() {
    let (origin, authority) = (Origin::ok(), Authority::new("us"));
    let issued = authority.issue("api", &["localhost"]);
    let rest = |redirect: &str, hsts: &str| {
        format!(
            "listeners:
  - {{ address: \"127.0.0.1:0\", redirect: {redirect} }}
  - {{ address: \"127.0.0.2:0\", tls: {{ certificates: [{{ cert: {}, key: {} }}]{hsts} }} }}",
            file_name(&issued.cert),
            file_name(&issued.key)
        )
    };
    let yaml = rest("{ to: https, port: 8443, hsts: 365d }", "");
    let tollgate = Tollgate::start(Config::new(&[origin.address], &yaml));
    let reply = crate::harness::request(
        tollgate.address,
        "POST",
        "/a?b=c",
        &[("host", "api.example.com:80")],
        b"body",
    );
    assert_eq!((reply.status, reply.header("location")), (308, Some("https://api.example.com:8443/a?b=c")));
    assert_eq!(reply.header("strict-transport-security"), None, "over TLS only");
    assert!(origin.heads().is_empty());
    // Who sends this is no proxy that is trusted.
    let reply = crate::harness::get(tollgate.address, "/", &[("x-forwarded-proto", "https")]);
    assert_eq!(reply.status, 308);
    let tls = |tollgate: &Tollgate| {
        let lines = tollgate.log();
        let line = lines.iter().find(|line| line.contains("address=127.0.0.2")).unwrap();
        line.split("address=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    };
    let get = |tollgate: &Tollgate| {
        TlsConnector::new(&authority).connect(tls(tollgate), "localhost").unwrap().get("/", "").unwrap()
    };
    assert!(get(&tollgate).contains("\r\nstrict-transport-security: max-age=31536000\r\n"));

    let yaml = rest("https", ", hsts: { max_age: 1d, include_subdomains: true }");
    let tollgate = Tollgate::start(Config::new(&[origin.address], &yaml));
    let reply = crate::harness::get(tollgate.address, "/", &[("host", "api.example.com")]);
    assert_eq!(reply.header("location"), Some("https://api.example.com/"));
    let answer = get(&tollgate);
    assert!(
        answer.contains("\r\nstrict-transport-security: max-age=86400; includeSubDomains\r\n"),
        "{answer}"
    );
}
