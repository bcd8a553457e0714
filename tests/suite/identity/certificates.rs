//! Clients that are known by their certificates: over the wire, and as `explain` foretells it.

use std::fs;

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tollgate::tls::{TlsIdentity, canonical_subject, read_fingerprint};

use crate::harness::{
    Authority, Config, Issued, Origin, Reply, TlsConnector, Tollgate, eventually, file_name, printed,
    program, request,
};

/// Tollgate on a port where clients may show certificates of `authority`. `policy`: the settings of the policy of all
/// routes; `rest`: more of the top level.
fn serving(origin: &Origin, authority: &Authority, policy: &str, rest: &str) -> Tollgate {
    let server = authority.issue("server", &["localhost"]);
    let tls = format!(
        "certificates: [{{ cert: {}, key: {} }}], client_ca: {}, client_auth: optional",
        file_name(&server.cert),
        file_name(&server.key),
        file_name(&authority.file())
    );
    let rest = format!(
        "listeners: [{{ address: \"127.0.0.1:0\", tls: {{ {tls} }} }}]\npolicies: {{ tls: {{ algorithm: sliding_log, \
         {policy} }} }}\n{rest}"
    );
    Tollgate::start(Config::new(&[origin.address], &rest).with_policy("tls"))
}

/// Clients of one authority, each on its own connections.
struct Clients<'a> {
    tollgate: &'a Tollgate,
    authority: &'a Authority,
}

impl Clients<'_> {
    fn connector(&self, own: Option<&Issued>) -> TlsConnector {
        match own {
            Some(own) => TlsConnector::with_certificate(self.authority, own),
            None => TlsConnector::new(self.authority),
        }
    }

    /// The status that a client with this certificate gets on a new connection.
    fn status(&self, own: Option<&Issued>) -> u16 {
        status(self.tollgate, &self.connector(own), "")
    }
}

/// The status of one request on a new connection.
#[track_caller]
fn status(tollgate: &Tollgate, connector: &TlsConnector, headers: &str) -> u16 {
    let answer = connector.connect(tollgate.address, "localhost").unwrap().get("/", headers).unwrap();
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
}

fn der(issued: &Issued) -> Vec<u8> {
    CertificateDer::from_pem_slice(&fs::read(&issued.cert).unwrap()).unwrap().to_vec()
}

fn fingerprint(issued: &Issued) -> String {
    Sha256::digest(der(issued)).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn explain(tollgate: &Tollgate, body: &Value) -> Reply {
    let headers = [("content-type", "application/json")];
    request(tollgate.admin, "POST", "/v1/explain", &headers, body.to_string().as_bytes())
}

/// What stands in the field `name` of the request that came last; all its lines.
fn received(origin: &Origin, name: &str) -> Vec<String> {
    let heads = origin.heads();
    let lines = heads.last().unwrap().lines().skip(1).filter_map(|line| line.split_once(':'));
    lines
        .filter(|(field, _)| field.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim().to_owned())
        .collect()
}

#[test]
fn each_subject_has_a_limit_of_its_own_on_resumed_sessions_too() {
    let (origin, authority) = (Origin::ok(), Authority::new("us"));
    let tollgate = serving(&origin, &authority, "key: tls:subject, missing: deny, limit: 2/1h", "");
    let clients = Clients { tollgate: &tollgate, authority: &authority };
    let [acme, other] = ["acme", "other"].map(|name| authority.issue(name, &[]));
    let connector = clients.connector(Some(&acme));
    assert_eq!(status(&tollgate, &connector, ""), 200);
    let resumed = connector.connect(tollgate.address, "localhost").unwrap();
    assert!(resumed.is_resumed());
    assert!(resumed.get("/", "").unwrap().starts_with("HTTP/1.1 200 "));
    let resumed = connector.connect(tollgate.address, "localhost").unwrap();
    assert!(resumed.is_resumed());
    assert!(resumed.get("/", "").unwrap().starts_with("HTTP/1.1 429 "), "the third of one client");
    assert_eq!(clients.status(Some(&other)), 200);
    assert_eq!(clients.status(None), 429, "without a certificate, which the policy asks for");

    let limit = |key: &str| tollgate.admin("GET", &format!("/v1/limits?policy=tls&key={key}")).json();
    assert_eq!(limit("tls:subject=CN=acme")["limits"][0]["used"], 2, "{}", limit("tls:subject=CN=acme"));
    assert_eq!(tollgate.admin("DELETE", "/v1/limits?policy=tls&key=tls:subject=CN=acme").status, 200);
    assert_eq!(clients.status(Some(&acme)), 200);
}

#[test]
fn fingerprints_tell_clients_of_one_name_apart() {
    let (origin, authority) = (Origin::ok(), Authority::new("us"));
    let tollgate = serving(&origin, &authority, "key: tls:fingerprint, limit: 1/1h", "");
    let clients = Clients { tollgate: &tollgate, authority: &authority };
    let first = authority.issue("acme", &[]);
    assert_eq!(clients.status(Some(&first)), 200);
    assert_eq!(clients.status(Some(&first)), 429);
    let renewed = authority.issue("acme", &[]);
    assert_eq!(clients.status(Some(&renewed)), 200);
    assert_eq!(clients.status(None), 200, "limited by its address");
    assert_eq!(clients.status(None), 429);
    let key = format!("tls:fingerprint={}", fingerprint(&renewed));
    let limits = tollgate.admin("GET", &format!("/v1/limits?policy=tls&key={key}")).json();
    assert_eq!(limits["limits"][0]["used"], 1, "{limits}");
}

#[test]
fn certificates_exempt_and_override_because_they_are_verified() {
    let (origin, authority) = (Origin::ok(), Authority::new("us"));
    let [monitor, acme, other] = ["monitor", "acme", "other"].map(|name| authority.issue(name, &[]));
    let policy = format!(
        "key: tls:subject, limit: 1/1h, exempt: [\"tls:subject=cn=monitor\"], \
         overrides: [{{ \"tls:fingerprint\": \"{}\", limit: 1000/1h }}]",
        fingerprint(&acme).to_uppercase()
    );
    let tollgate = serving(&origin, &authority, &policy, "");
    let clients = Clients { tollgate: &tollgate, authority: &authority };
    for _ in 0..3 {
        assert_eq!(clients.status(Some(&monitor)), 200);
        assert_eq!(clients.status(Some(&acme)), 200);
    }
    assert_eq!(clients.status(Some(&other)), 200);
    assert_eq!(clients.status(Some(&other)), 429);
}

#[test]
fn the_subject_is_a_verified_user_and_is_logged() {
    let (origin, authority) = (Origin::ok(), Authority::new("us"));
    let rest = "user: [{ tls: subject }, { header: x-user-id, from: anyone }]\n\
                access_log: { format: json, to: access.log }\n";
    let policy = "key: user, limit: 1/1h, overrides: [{ user: \"CN=acme\", limit: 2/1h }, \
                  { user: \"CN=acme2\", limit: 2/1h }]";
    let tollgate = serving(&origin, &authority, policy, rest);
    let acme = authority.issue("acme", &[]);
    let connector = TlsConnector::with_certificate(&authority, &acme);
    for expected in [200, 200, 429] {
        assert_eq!(status(&tollgate, &connector, "x-user-id: other\r\n"), expected);
    }
    let nobody = TlsConnector::new(&authority);
    for expected in [200, 429] {
        // The name alone does not make it verified.
        assert_eq!(status(&tollgate, &nobody, "x-user-id: CN=acme2\r\n"), expected);
    }
    let log = tollgate.directory().join("access.log");
    let lines = || -> Vec<Value> {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    eventually("all requests are logged", || lines().len() == 5);
    let (with, without): (Vec<_>, Vec<_>) =
        lines().into_iter().partition(|line| line.get("tls_subject").is_some());
    assert_eq!((with.len(), without.len()), (3, 2));
    for line in with {
        assert_eq!(line["user"], "CN=acme");
        assert_eq!((&line["tls_version"], &line["tls_subject"]), (&json!("TLSv1.3"), &json!("CN=acme")));
    }
    assert!(without.iter().all(|line| line["tls_version"] == "TLSv1.3" && line["user"] == "CN=acme2"));
    eventually("the evidence names the user", || {
        let user = tollgate.admin("GET", "/v1/users/CN=acme");
        user.status == 200 && user.text().contains("127.0.0.1")
    });
    let banned = tollgate.command(&["ban", "user:CN=acme", "--for", "1h"]);
    assert_eq!(banned.code, Some(0), "{}", banned.stderr);
    eventually("the user is banned", || status(&tollgate, &connector, "") == 403);
}

/// What a client may make up to pass for another.
const FORGED: &str = "x-forwarded-client-cert: Hash=forged\r\nX_Forwarded_Client_Cert: Hash=forged\r\n\
                      client-cert: :Zm9yZ2Vk:\r\nClient_Cert: :Zm9yZ2Vk:\r\nclient-cert-chain: :Zm9yZ2Vk:\r\n\
                      x-forwarded-proto: http\r\n";

#[test]
fn origins_are_told_what_was_verified_and_nothing_that_was_not() {
    let (origin, authority) = (Origin::ok(), Authority::new("us"));
    let acme = authority.issue("acme", &["a.example"]);
    let with = TlsConnector::with_certificate(&authority, &acme);
    let without = TlsConnector::new(&authority);
    let xfcc = format!("Hash={};Subject=\"CN=acme\";DNS=a.example", fingerprint(&acme));
    let sequence = format!(":{}:", STANDARD.encode(der(&acme)));
    for (form, fields) in [
        ("off", vec![]),
        ("xfcc", vec![("x-forwarded-client-cert", xfcc)]),
        ("client-cert", vec![("client-cert", sequence)]),
    ] {
        let rest = format!("forward_client_certificate: {form}\nforwarded: both\n");
        let tollgate = serving(&origin, &authority, "key: ip, limit: 100/1h", &rest);
        for (connector, expected) in [(&with, fields), (&without, vec![])] {
            assert_eq!(status(&tollgate, connector, FORGED), 200);
            for name in ["x-forwarded-client-cert", "client-cert", "client-cert-chain"] {
                let of = expected.iter().filter(|(field, _)| *field == name).map(|(_, value)| value.clone());
                assert_eq!(received(&origin, name), of.collect::<Vec<_>>(), "{form}: {name}");
                assert_eq!(received(&origin, &name.replace('-', "_")), [""; 0], "{form}: {name}");
            }
            assert!(!origin.heads().last().unwrap().to_lowercase().contains("forged"));
            assert_eq!(received(&origin, "x-forwarded-proto"), ["https"]);
            let forwarded = received(&origin, "forwarded");
            assert!(forwarded[0].ends_with(";proto=https"), "{forwarded:?}");
        }
    }
}

#[test]
fn certificate_fields_of_trusted_proxies_pass_on() {
    let (origin, authority) = (Origin::ok(), Authority::new("us"));
    let said = "x-forwarded-client-cert: Hash=1;Subject=\"CN=far\"\r\nclient-cert: :AA==:\r\n\
                client-cert-chain: :AB==:\r\nx-forwarded-proto: http\r\n";
    let proxy = authority.issue("proxy", &[]);
    let own = format!("Hash={};Subject=\"CN=proxy\"", fingerprint(&proxy));
    let [with, without] = [TlsConnector::with_certificate(&authority, &proxy), TlsConnector::new(&authority)];
    let far = "Hash=1;Subject=\"CN=far\"";
    for (form, connector, xfcc) in [
        ("off", &with, far.to_owned()),
        ("xfcc", &without, far.to_owned()),
        ("xfcc", &with, format!("{far}, {own}")),
        ("client-cert", &with, far.to_owned()),
    ] {
        let rest = format!("forward_client_certificate: {form}\ntrusted_proxies: [127.0.0.1]\n");
        let tollgate = serving(&origin, &authority, "key: ip, limit: 100/1h", &rest);
        assert_eq!(status(&tollgate, connector, said), 200);
        assert_eq!(received(&origin, "x-forwarded-client-cert"), [xfcc], "{form}");
        assert_eq!(received(&origin, "client-cert"), [":AA==:"], "{form}");
        assert_eq!(received(&origin, "client-cert-chain"), [":AB==:"], "{form}");
        assert_eq!(received(&origin, "x-forwarded-proto"), ["http"], "as the first proxy saw it");
    }
}

/// What operators copy into `proxy.yaml`.
#[test]
fn subjects_and_fingerprints_are_those_that_openssl_prints() {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in [
        (DnType::CountryName, "FR"),
        (DnType::OrganizationName, "Acm\u{e9}, Inc. \\ \"1\""),
        (DnType::OrganizationalUnitName, " #1+2 "),
        (DnType::CustomDnType(vec![1, 2, 840, 113549, 1, 9, 1]), "a@b.example"),
        (DnType::CommonName, "acme"),
    ] {
        params.distinguished_name.push(kind, value);
    }
    let pem = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
    let identity = TlsIdentity::from_pem(pem.as_bytes()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("client.pem");
    fs::write(&file, pem).unwrap();
    let print = |arguments: &[&str]| {
        let mut openssl = program("openssl", "openssl");
        let text = printed(openssl.args(["x509", "-noout", "-in", file_name(&file)]).args(arguments));
        text.trim_end_matches('\n').split_once('=').unwrap().1.to_owned()
    };
    let subject = print(&["-subject", "-nameopt", "RFC2253"]);
    assert_eq!(canonical_subject(&subject).as_deref(), Some(identity.subject()), "{subject}");
    let fingerprint = print(&["-fingerprint", "-sha256"]);
    assert_eq!(read_fingerprint(&fingerprint).as_deref(), Some(identity.fingerprint()), "{fingerprint}");
}

#[test]
fn explain_foretells_what_a_certificate_changes() {
    let (origin, authority) = (Origin::ok(), Authority::new("us"));
    let policy = "key: tls:subject, missing: deny, limit: 1/1h, exempt: [\"tls:subject=CN=monitor\"], \
                  overrides: [{ \"tls:subject\": \"CN=big\", limit: 9/1h }]";
    let tollgate = serving(&origin, &authority, policy, "user: [\"tls:subject\"]\n");
    let acme = authority.issue("acme", &[]);
    let pem = fs::read_to_string(&acme.cert).unwrap();
    let with = |certificate: Value| {
        explain(&tollgate, &json!({ "url": "https://localhost/", "client_certificate": certificate })).json()
    };
    let told = with(json!({ "pem": pem }));
    assert_eq!(told["verdict"], "allowed", "{told}");
    assert_eq!(told["user"]["user"], "CN=acme");
    assert_eq!(told["user"]["because"], "subject of the client certificate, verified");
    assert_eq!(told["client_certificate"]["fingerprint"], json!(fingerprint(&acme)));
    let because = told["client_certificate"]["because"].as_str().unwrap();
    assert!(because.starts_with("assumed, not verified"), "{because}");
    assert_eq!(told["checks"][0]["key"], "tls:subject=CN=acme");

    let real = TlsConnector::with_certificate(&authority, &acme);
    assert_eq!(status(&tollgate, &real, ""), 200);
    let told = with(json!({ "subject": "cn=acme" }));
    assert_eq!((&told["verdict"], &told["status"]), (&json!("denied"), &json!(429)), "{told}");
    assert_eq!(status(&tollgate, &real, ""), 429);

    assert_eq!(with(json!({ "subject": "CN=monitor" }))["checks"][0]["verdict"], "exempt");
    assert_eq!(with(json!({ "subject": "CN=big" }))["checks"][0]["limit"], 9);
    let told = with(json!(null));
    assert_eq!(told["verdict"], "denied", "{told}");
    assert_eq!(told["client_certificate"], json!(null));
    assert_eq!(told["user"]["because"], "tls subject: no client certificate");
    for wrong in [json!({}), json!({ "subject": "acme" }), json!({ "pem": "x" }), json!({ "cn": "acme" })] {
        let body = json!({ "url": "/", "client_certificate": wrong });
        let reply = explain(&tollgate, &body);
        assert!(matches!(reply.status, 400 | 422), "{body}: {}", reply.status);
    }
}

#[test]
fn the_command_takes_a_certificate_and_leaves_its_key_at_home() {
    let (origin, authority) = (Origin::ok(), Authority::new("us"));
    let tollgate = serving(&origin, &authority, "key: tls:fingerprint, missing: deny, limit: 1/1h", "");
    let acme = authority.issue("acme", &[]);
    let both = tollgate.directory().join("both.pem");
    let [key, cert] = [&acme.key, &acme.cert].map(|file| fs::read_to_string(file).unwrap());
    fs::write(&both, format!("{key}{cert}")).unwrap();
    let url = "https://localhost/";
    let ended = tollgate.command(&["explain", "--client-cert", file_name(&both), url]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("cert      CN=acme: assumed, not verified"), "{}", ended.stdout);
    assert!(ended.stdout.contains(&format!("tls:fingerprint={}", fingerprint(&acme))), "{}", ended.stdout);
    assert_eq!(tollgate.command(&["explain", url]).code, Some(1));
    let ended = tollgate.command(&["explain", "--client-cert", file_name(&acme.key), url]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("it has no certificate in PEM"), "{}", ended.stderr);
}
