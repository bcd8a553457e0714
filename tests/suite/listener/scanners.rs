//! sslscan: what is offered is Mozilla's intermediate profile, or less (<https://wiki.mozilla.org/Security/Server_Side_TLS>).

use std::collections::BTreeSet;

use rustls::{
    NamedGroup,
    crypto::{
        SupportedKxGroup,
        aws_lc_rs::kx_group::{X25519, X25519MLKEM768},
    },
};

use super::Https;
use crate::harness::{Origin, TlsConnector, printed, program};

/// The values of an attribute of all elements of this name.
fn attributes<'a>(xml: &'a str, element: &str, attribute: &str) -> Vec<&'a str> {
    let (begin, name) = (format!("<{element}"), format!(" {attribute}=\""));
    let elements = xml.split(&begin).skip(1).filter_map(|rest| rest.split('>').next());
    let elements = elements.filter(|attributes| attributes.starts_with(' '));
    elements.filter_map(|element| element.split_once(&name)?.1.split('"').next()).collect()
}

fn scanned(https: &Https) -> String {
    printed(program("sslscan", "sslscan").args([
        "--xml=-",
        "--no-colour",
        "--show-certificate",
        "--sni-name=localhost",
        &https.address().to_string(),
    ]))
}

#[test]
fn sslscan_finds_nothing_but_mozilla_s_intermediate_profile() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    let xml = scanned(&https);
    let protocols: Vec<_> = attributes(&xml, "protocol", "version")
        .into_iter()
        .zip(attributes(&xml, "protocol", "enabled"))
        .filter_map(|(version, enabled)| (enabled == "1").then_some(version))
        .collect();
    assert_eq!(protocols, ["1.2", "1.3"], "{xml}");
    let suites: BTreeSet<_> = attributes(&xml, "cipher", "cipher").into_iter().collect();
    let expected = [
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
    ];
    assert_eq!(suites, BTreeSet::from(expected), "{xml}");
    // `secp256r1 (NIST P-256)`
    let groups = attributes(&xml, "group", "name").into_iter().filter_map(|name| name.split(' ').next());
    assert_eq!(
        groups.collect::<BTreeSet<_>>(),
        BTreeSet::from(["x25519", "secp256r1", "secp384r1"]),
        "{xml}"
    );
    // Debian's sslscan can't offer any.
    assert!(!attributes(&xml, "compression", "supported").contains(&"1"), "{xml}");
    assert_eq!(attributes(&xml, "renegotiation", "supported"), ["0"], "{xml}");
    let heartbleed = attributes(&xml, "heartbleed", "vulnerable");
    assert!(heartbleed.iter().all(|vulnerable| *vulnerable == "0"), "{xml}");
}

#[test]
fn a_client_that_wants_the_hybrid_group_gets_it() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    let agreed = |offered: &[&'static dyn SupportedKxGroup]| {
        let connector = TlsConnector::offering(&https.authority, offered);
        let client = connector.connect(https.address(), "localhost").unwrap();
        client.0.conn.negotiated_key_exchange_group().unwrap().name()
    };
    assert_eq!(agreed(&[X25519MLKEM768]), NamedGroup::X25519MLKEM768);
    // The client's order decides.
    assert_eq!(agreed(&[X25519MLKEM768, X25519]), NamedGroup::X25519MLKEM768);
    assert_eq!(agreed(&[X25519, X25519MLKEM768]), NamedGroup::X25519);
}
