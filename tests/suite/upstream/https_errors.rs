//! Upstreams that can't be asked over TLS: the log says why, the client learns nothing of it.

use std::net::SocketAddr;

use rustls::{
    ServerConfig,
    crypto::aws_lc_rs::{cipher_suite, default_provider},
    server::WebPkiClientVerifier,
    version::{TLS12, TLS13},
};

use super::{before, trusting};
use crate::harness::{Authority, Client, Issued, Origin, Tollgate, eventually, get, roots, server_config};

/// The client gets `status`, and the log names the endpoint and has all of `words`.
#[track_caller]
fn assert_fails(tollgate: &Tollgate, origin: SocketAddr, status: u16, words: &[&str]) {
    let reply = get(tollgate.address, "/", &[]);
    assert_eq!(reply.status, status, "{reply:?}");
    let told = reply.text().to_ascii_lowercase();
    for secret in ["tls", "certificate", "127.0.0.1", "rustls", &origin.port().to_string()] {
        assert!(!told.contains(secret), "tells {secret:?}: {told}");
    }
    let url = format!("endpoint https://{origin} ");
    eventually(&format!("the log has {words:?}"), || {
        let log = tollgate.log();
        log.iter().any(|line| line.contains(&url) && words.iter().all(|word| line.contains(word)))
    });
    // The admin port says the same of it, but for who says it.
    let words: Vec<_> = words.iter().filter(|word| !word.starts_with("could not")).collect();
    let upstreams = tollgate.admin("GET", "/v1/upstreams").json();
    let endpoint = &upstreams["upstreams"][0]["endpoints"][0];
    assert_eq!(
        (endpoint["healthy"].as_bool(), endpoint["url"].as_str()),
        (Some(false), Some(&*format!("https://{origin}")))
    );
    let why = endpoint["error"].as_str().unwrap();
    assert!(words.iter().all(|word| why.contains(**word)), "{why}");
    eventually("it is an outage", || {
        let outages = tollgate.admin("GET", "/v1/status").json()["outages"].to_string();
        words.iter().all(|word| outages.replace("\\\"", "\"").contains(**word))
    });
}

#[test]
fn certificates_that_are_not_good() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    for (issued, more, words) in [
        (
            authority.issue("a", &["orders.internal"]),
            "",
            "does not match the host in its URL (invalid peer certificate: certificate not valid for name \"127.0.0.1\"; certificate is only valid for",
        ),
        (
            authority.issue("b", &["127.0.0.1"]),
            ", server_name: orders.internal",
            "does not match upstreams.origin.tls.server_name (orders.internal) (",
        ),
        (authority.issue_expired("c", &["127.0.0.1"]), "", "certificate has expired ("),
        (
            other.issue("d", &["127.0.0.1"]),
            "",
            "is not from a trusted authority: set upstreams.origin.tls.ca to the one that issued it (",
        ),
    ] {
        let origin = Origin::ok_tls(server_config(&issued));
        let tollgate = before(origin.address, &authority, more);
        assert_fails(&tollgate, origin.address, 502, &["could not be reached: ", words]);
        assert_eq!(origin.heads().len(), 0);
    }
}

#[test]
fn a_port_without_tls() {
    let authority = Authority::new("ca");
    let plain = Origin::saying("HTTP/1.1 400 Bad Request\r\n\r\n");
    let tollgate = before(plain.address, &authority, "");
    // Origins that see no line wait for one.
    let silent = Origin::sink();
    let waiting = before(silent.address, &authority, "");
    let answers = Origin::start(|conn| {
        conn.take(1)?;
        conn.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    });
    let answered = before(answers.address, &authority, "");
    assert_fails(&answered, answers.address, 502, &["does not use TLS on this port: write http:// ("]);
    assert_fails(&waiting, silent.address, 504, &["did not finish the TLS handshake in time"]);
    drop(tollgate);
}

#[test]
fn a_port_that_refuses_and_one_that_closes_get_502() {
    let authority = Authority::new("ca");
    let nobody = crate::harness::nobody();
    let tollgate = before(nobody, &authority, "");
    assert_fails(&tollgate, nobody, 502, &["could not be reached: ", "refused"]);
    let closing = Origin::start(|_| Ok(()));
    let tollgate = before(closing.address, &authority, "");
    assert_fails(&tollgate, closing.address, 502, &["could not be reached: "]);
}

fn asking_for_certificates(own: &Issued, clients: &Authority, old: bool) -> ServerConfig {
    let versions = if old { [&TLS12] } else { [&TLS13] };
    let verifier = WebPkiClientVerifier::builder(roots(clients).into()).build().unwrap();
    let (chain, key) = own.read();
    ServerConfig::builder_with_protocol_versions(&versions)
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap()
}

#[test]
fn a_server_that_wants_a_certificate() {
    let (authority, clients, other) = (Authority::new("ca"), Authority::new("clients"), Authority::new("x"));
    let own = authority.issue("origin", &["127.0.0.1"]);
    for old in [true, false] {
        let origin = Origin::ok_tls(asking_for_certificates(&own, &clients, old));
        let showing = |issued: &Issued| {
            let more = format!(", cert: {}, key: {}", issued.cert.display(), issued.key.display());
            Tollgate::start(trusting(&[origin.address], &authority, &more))
        };
        let words = ["client certificate", "upstreams.origin.tls.cert and key"];
        assert_fails(&before(origin.address, &authority, ""), origin.address, 502, &words);
        let wrong = showing(&other.issue("me", &[]));
        let words = "the server rejects the certificate in upstreams.origin.tls.cert";
        assert_fails(&wrong, origin.address, 502, &[words]);
        let right = showing(&clients.issue("me", &[]));
        let mut client = Client::connect(right.address);
        for _ in 0..2 {
            assert_eq!(client.request("GET", "/", &[], b"").status, 200);
        }
    }
}

#[test]
fn a_handshake_without_common_parameters_gets_502() {
    let authority = Authority::new("ca");
    let (chain, key) = authority.issue("origin", &["127.0.0.1"]).read();
    let mut provider = default_provider();
    // The certificates' keys are ECDSA.
    provider.cipher_suites = vec![cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256];
    provider.kx_groups.clear();
    provider.kx_groups.push(rustls::crypto::aws_lc_rs::kx_group::SECP384R1);
    let mut config = ServerConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let origin = Origin::ok_tls(config);
    let tollgate = before(origin.address, &authority, "");
    assert_fails(&tollgate, origin.address, 502, &["does not offer HTTP/1.1"]);
}
