//! Handshakes while the files of a context change.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, ServerConnection, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::tls;

/// Files of certificates.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes `NAME.pem` and `NAME.key`: a certificate for `hosts`, valid for `days` from yesterday on.
    fn issue(&self, name: &str, hosts: &[&str], days: u64) -> model::CertificateFiles {
        let key = KeyPair::generate().unwrap();
        let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        let day = Duration::from_secs(24 * 60 * 60);
        params.not_before = (SystemTime::now() - day * 2).into();
        params.not_after = (SystemTime::now() - day + day * u32::try_from(days).unwrap()).into();
        let path = |end: &str| self.0.path().join(format!("{name}.{end}"));
        fs::write(path("pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(path("key"), key.serialize_pem()).unwrap();
        model::CertificateFiles { cert: path("pem"), key: path("key"), names: Vec::new() }
    }

    /// Copies the file `from` to `to`.
    fn put(&self, from: &str, to: &str) {
        fs::copy(self.0.path().join(from), self.0.path().join(to)).unwrap();
    }
}

fn settings(certificates: Vec<model::CertificateFiles>) -> model::Tls {
    model::Tls { certificates, client_auth: None, min_version: TlsVersion::V1_2, hsts: None }
}

fn asking_for(ca: &model::CertificateFiles, settings: model::Tls) -> model::Tls {
    let client_auth = Some(model::ClientAuth { ca: ca.cert.clone(), required: None });
    model::Tls { client_auth, ..settings }
}

/// Clients without a certificate are refused.
fn requiring(settings: model::Tls) -> model::Tls {
    let client_auth = settings.client_auth.map(|asked| model::ClientAuth { required: Some(403), ..asked });
    model::Tls { client_auth, ..settings }
}

/// Accepts any certificate: the tests check which one it was.
#[derive(Debug)]
struct TakeAny;

impl ServerCertVerifier for TakeAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_tls12_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A client that resumes its sessions.
fn client(version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_protocol_versions(&[version]).unwrap().dangerous();
    Arc::new(builder.with_custom_certificate_verifier(Arc::new(TakeAny)).with_no_client_auth())
}

/// Does a handshake. Returns its kind, and the first name of the server's certificate.
fn connect(context: &TlsContext, client: &Arc<ClientConfig>, name: &str) -> (HandshakeKind, String) {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::clone(&context.current().config)).unwrap();
    while client.wants_write() || server.wants_write() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    let shown = client.peer_certificates().unwrap().to_vec();
    (client.handshake_kind().unwrap(), first_name(&shown[0]))
}

fn first_name(shown: &CertificateDer<'_>) -> String {
    tls::CertificateInfo::read(shown).unwrap().names[0].clone()
}

fn shown(context: &TlsContext, name: &str) -> String {
    connect(context, &client(&TLS13), name).1
}

/// As often as necessary until wrong files are an error.
fn reload(context: &TlsContext) {
    for _ in 0..3 {
        context.reload_changed_files();
    }
}

fn reload_errors(context: &TlsContext) -> Vec<String> {
    context.facts().reload_errors().map(|(_, error)| error.clone()).collect()
}

#[test]
fn a_client_is_shown_the_certificate_for_its_name() {
    let files = Files::new();
    let certificates = vec![
        files.issue("first", &["first.test"], 90),
        files.issue("wildcard", &["*.example.com"], 90),
        files.issue("exact", &["API.example.com", "192.0.2.7"], 90),
        files.issue("again", &["again.test", "first.test"], 90),
    ];
    let context = TlsContext::new(settings(certificates), true, None).unwrap();
    for (name, expected) in [
        ("api.example.com", "api.example.com"),
        ("Api.EXAMPLE.com", "api.example.com"),
        ("www.example.com", "*.example.com"),
        ("WWW.example.com", "*.example.com"),
        // A wildcard matches exactly one label.
        ("a.b.example.com", "first.test"),
        ("example.com", "first.test"),
        ("unknown.test", "first.test"),
        // The first certificate with a name is used for it.
        ("first.test", "first.test"),
        ("again.test", "again.test"),
        // Clients send no server name for an address (RFC 6066, 3).
        ("192.0.2.7", "first.test"),
    ] {
        assert_eq!(shown(&context, name), expected, "{name}");
    }
    let certificates = &context.current().certificates;
    assert!(certificates.cover("www.example.com") && !certificates.cover("example.com"));
}

#[test]
fn a_renewed_certificate_is_served_and_sessions_go_on() {
    let files = Files::new();
    let old = files.issue("served", &["old.test"], 90);
    files.issue("new", &["new.test"], 90);
    for version in [&TLS12, &TLS13] {
        files.issue("served", &["old.test"], 90);
        let context = TlsContext::new(settings(vec![old.clone()]), true, None).unwrap();
        let client = client(version);
        assert_eq!(connect(&context, &client, "a.test"), (HandshakeKind::Full, "old.test".to_owned()));
        assert_eq!(connect(&context, &client, "a.test").0, HandshakeKind::Resumed);
        files.put("new.pem", "served.pem");
        context.reload_changed_files();
        assert_eq!((shown(&context, "b.test"), reload_errors(&context)), ("old.test".to_owned(), vec![]));
        files.put("new.key", "served.key");
        context.reload_changed_files();
        assert_eq!((shown(&context, "b.test"), reload_errors(&context)), ("new.test".to_owned(), vec![]));
        assert_eq!(connect(&context, &client, "a.test").0, HandshakeKind::Resumed, "{version:?}");
    }
}

#[test]
fn a_wrong_pair_is_not_served_and_delays_no_other() {
    let files = Files::new();
    let certificates = vec![files.issue("one", &["one.test"], 90), files.issue("two", &["two.test"], 90)];
    let context = TlsContext::new(settings(certificates), true, None).unwrap();
    let loaded = context.facts().certificates[0].loaded;
    files.issue("other", &["other.test"], 90);
    files.put("other.pem", "one.pem");
    files.issue("two", &["renewed.test"], 90);
    reload(&context);
    assert_eq!([shown(&context, "one.test"), shown(&context, "renewed.test")], ["one.test", "renewed.test"]);
    let errors = reload_errors(&context);
    assert!(
        errors.len() == 1 && errors[0].ends_with("one.key is not the private key of `cert`"),
        "{errors:?}"
    );
    let facts = context.facts();
    assert_eq!(
        (&*facts.certificates[0].info.names, facts.certificates[0].loaded),
        (&["one.test".to_owned()][..], loaded)
    );
    assert!(facts.certificates[1].loaded > loaded);
    files.put("other.key", "one.key");
    reload(&context);
    assert_eq!((shown(&context, "one.test"), reload_errors(&context)), ("other.test".to_owned(), vec![]));
}

#[test]
fn a_certificate_that_has_expired_is_served_from_the_start_but_replaces_none() {
    let files = Files::new();
    let served = files.issue("served", &["served.test"], 0);
    let context = TlsContext::new(settings(vec![served]), true, None).unwrap();
    assert_eq!(shown(&context, "a.test"), "served.test");
    files.issue("served", &["renewed.test"], 90);
    reload(&context);
    assert_eq!(shown(&context, "a.test"), "renewed.test");
    files.issue("served", &["expired.test"], 0);
    reload(&context);
    assert_eq!(shown(&context, "a.test"), "renewed.test");
    let errors = reload_errors(&context);
    assert!(errors.len() == 1 && errors[0].contains("served.pem expired on "), "{errors:?}");
}

#[test]
fn a_certificate_without_a_wanted_name_is_not_served() {
    let files = Files::new();
    let served = model::CertificateFiles {
        names: vec!["api.test".to_owned()],
        ..files.issue("served", &["api.test", "www.test"], 90)
    };
    let context = TlsContext::new(settings(vec![served.clone()]), true, None).unwrap();
    files.issue("served", &["www.test"], 90);
    reload(&context);
    assert_eq!(shown(&context, "a.test"), "api.test");
    let error = format!("{} is not for api.test, but for www.test", served.cert.display());
    assert_eq!(reload_errors(&context), [error]);
}

#[test]
fn no_session_outlives_the_authorities_that_it_began_with() {
    let files = Files::new();
    let (served, ca) = (files.issue("served", &["a.test"], 90), files.issue("ca", &["ca.test"], 90));
    files.issue("ca2", &["ca.test"], 90);
    let settings = asking_for(&ca, settings(vec![served]));
    for version in [&TLS12, &TLS13] {
        let context = TlsContext::new(settings.clone(), true, None).unwrap();
        let client = client(version);
        let kind = |context: &TlsContext| connect(context, &client, "a.test").0;
        assert_eq!([kind(&context), kind(&context)], [HandshakeKind::Full, HandshakeKind::Resumed]);
        // A changed file.
        files.put("ca.pem", "ca1.pem");
        files.put("ca2.pem", "ca.pem");
        context.reload_changed_files();
        assert_eq!([kind(&context), kind(&context)], [HandshakeKind::Full, HandshakeKind::Resumed]);
        // A reload of the configuration, with the same authorities and with others.
        let same = TlsContext::new(settings.clone(), true, Some(&context)).unwrap();
        assert_eq!(kind(&same), HandshakeKind::Resumed);
        files.put("ca1.pem", "ca.pem");
        let other = TlsContext::new(settings.clone(), true, Some(&same)).unwrap();
        assert_eq!(kind(&other), HandshakeKind::Full);
        let required = TlsContext::new(requiring(settings.clone()), true, Some(&other)).unwrap();
        assert_eq!(kind(&required), HandshakeKind::Full);
        let none = model::Tls { client_auth: None, ..settings.clone() };
        assert_eq!(kind(&TlsContext::new(none, true, Some(&required)).unwrap()), HandshakeKind::Full);
    }
}

#[test]
fn a_new_process_resumes_sessions_only_where_clients_are_asked_for_the_same() {
    let files = Files::new();
    let (served, ca) = (files.issue("served", &["a.test"], 90), files.issue("ca", &["ca.test"], 90));
    let none = settings(vec![served]);
    let optional = asking_for(&ca, none.clone());
    let other = asking_for(&files.issue("ca2", &["ca.test"], 90), none.clone());
    let all = [&none, &optional, &requiring(optional.clone()), &other, &requiring(other.clone())];
    let listener = Listener::plain(([127, 0, 0, 1], 443).into());
    // The kind of handshake with `new`, after the process with `old` has sent its keys.
    let kind = |version, old: &model::Tls, new: &model::Tls, sent: &dyn Fn(&mut Value)| {
        let [old, new] = [old, new].map(|of| TlsContext::new(of.clone(), true, None).unwrap());
        let client = client(version);
        assert_eq!(connect(&old, &client, "a.test").0, HandshakeKind::Full);
        let mut keys = serde_json::to_value([old.session_keys(&listener)]).unwrap();
        sent(&mut keys[0]);
        new.continue_sessions(&listener, &serde_json::from_value::<Vec<SessionKeys>>(keys).unwrap());
        connect(&new, &client, "a.test").0
    };
    for version in [&TLS12, &TLS13] {
        for (before, old) in all.iter().enumerate() {
            for (after, new) in all.iter().enumerate() {
                let expected = if before == after { HandshakeKind::Resumed } else { HandshakeKind::Full };
                let found = kind(version, old, new, &|_| ());
                assert_eq!(found, expected, "{version:?}: {:?}, {:?}", old.client_auth, new.client_auth);
            }
        }
        // As sent by previous versions.
        for (settings, expected) in
            [(&none, HandshakeKind::Resumed), (&optional, HandshakeKind::Full), (all[2], HandshakeKind::Full)]
        {
            let authorities = TlsFiles::open(settings).unwrap().client_ca_digest();
            let found = kind(version, settings, settings, &|keys| keys["client_ca"] = json!(authorities));
            assert_eq!(found, expected, "{version:?}: {:?}", settings.client_auth);
        }
    }
}

#[test]
fn authorities_that_are_wrong_change_nothing() {
    let files = Files::new();
    let (served, ca) = (files.issue("served", &["a.test"], 90), files.issue("ca", &["ca.test"], 90));
    let context = TlsContext::new(asking_for(&ca, settings(vec![served])), true, None).unwrap();
    let client = client(&TLS13);
    connect(&context, &client, "a.test");
    fs::write(&ca.cert, "").unwrap();
    reload(&context);
    assert_eq!(reload_errors(&context), [format!("{} contains no certificate", ca.cert.display())]);
    assert_eq!(connect(&context, &client, "a.test").0, HandshakeKind::Resumed);
}
