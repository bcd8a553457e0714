//! Files of certificates and authorities of upstreams that change, and settings that do.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use rustls::{ServerConfig, server::WebPkiClientVerifier};
use tempfile::TempDir;

use super::{PATIENT, trusting, upstream};
use crate::harness::{
    Authority, Config, Issued, Origin, Tollgate, becomes, eventually, get, roots, server_config, tollgate_in,
};

#[track_caller]
fn assert_logged(tollgate: &Tollgate, text: &str) {
    eventually(text, || tollgate.has_logged(&[text]));
}

#[test]
fn neither_a_kept_connection_nor_a_session_outlives_the_authorities() {
    let (one, other) = (Authority::new("one"), Authority::new("other"));
    let origin = Origin::ok_tls(server_config(&one.issue("origin", &["127.0.0.1"])));
    let directory = TempDir::new().unwrap();
    let ca = directory.path().join("ca.pem");
    fs::copy(one.file(), &ca).unwrap();
    let tls = format!("tls: {{ ca: {} }}, {PATIENT}", ca.display());
    let tollgate = Tollgate::start(upstream(&[format!("https://{}", origin.address)], &tls));
    for _ in 0..2 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    assert_eq!(origin.connections(), 1);
    fs::copy(other.file(), &ca).unwrap();
    assert_logged(&tollgate, "the authorities of upstream origin were reloaded: no session is resumed");
    assert_eq!(get(tollgate.address, "/", &[]).status, 502);
    assert_logged(&tollgate, "is not from a trusted authority");
    fs::copy(one.file(), &ca).unwrap();
    eventually("it is trusted again", || get(tollgate.address, "/", &[]).status == 200);
}

#[test]
fn a_reload_gives_up_connections_of_other_settings() {
    let (one, other) = (Authority::new("one"), Authority::new("other"));
    let origin = Origin::ok_tls(server_config(&one.issue("origin", &["127.0.0.1"])));
    let config = |authority| trusting(&[origin.address], authority, "");
    let tollgate = Tollgate::start(config(&one));
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let file = tollgate.directory().join("proxy.yaml");
    let yaml = fs::read_to_string(&file).unwrap();
    fs::write(&file, yaml.replace(&one.file().display().to_string(), &other.file().display().to_string()))
        .unwrap();
    let reloaded = tollgate.command(&["reload"]);
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    assert_eq!(get(tollgate.address, "/", &[]).status, 502);
    assert_logged(&tollgate, "is not from a trusted authority");
}

/// An origin that asks for certificates of `clients`, and whom it was shown on each connection: by the last byte of the
/// certificate's serial number, which is random.
fn asking(own: &Issued, clients: &Authority) -> (Origin, Arc<Mutex<Vec<Vec<u8>>>>) {
    let (chain, key) = own.read();
    let verifier = WebPkiClientVerifier::builder(roots(clients).into()).build().unwrap();
    let config = ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(chain, key);
    let shown = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let notes = Arc::clone(&shown);
    let origin = Origin::start_tls(config.unwrap(), move |conn| {
        while let Some(head) = conn.head()? {
            conn.body(&head)?;
            let chain = conn.tls.as_ref().unwrap().peer_certificates().unwrap_or_default();
            notes.lock().unwrap().push(chain[0].to_vec());
            conn.answer("200 OK", &[], b"ok")?;
        }
        Ok(())
    });
    (origin, shown)
}

struct ClientFiles {
    directory: TempDir,
    config: Config,
}

fn with_certificate(origin: &Origin, authority: &Authority, own: &Issued) -> ClientFiles {
    let directory = TempDir::new().unwrap();
    let (cert, key) = (directory.path().join("me.pem"), directory.path().join("me.key"));
    fs::copy(&own.cert, &cert).unwrap();
    fs::copy(&own.key, &key).unwrap();
    let more = format!(", cert: {}, key: {}", cert.display(), key.display());
    ClientFiles { directory, config: trusting(&[origin.address], authority, &more) }
}

#[test]
fn a_renewed_certificate_is_shown_to_the_next_connection() {
    let authority = Authority::new("ca");
    let (origin, shown) = asking(&authority.issue("origin", &["127.0.0.1"]), &authority);
    let own = authority.issue("me", &[]);
    let ClientFiles { directory, config } = with_certificate(&origin, &authority, &own);
    let tollgate = Tollgate::start(config);
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let successful = "tollgate_upstream_tls_last_reload_successful{upstream=\"origin\"}";
    becomes(1.0, || tollgate.metric(successful));
    // Written one after the other, as renewals do; in between the pair does not match, which is an error if it lasts.
    let renewed = authority.issue("renewed", &[]);
    fs::copy(&renewed.cert, directory.path().join("me.pem")).unwrap();
    eventually("the pair does not match", || tollgate.metric(successful) < 1.0);
    let mismatch = "me.key is not the private key of `cert`";
    assert_logged(&tollgate, mismatch);
    eventually("it is a warning", || {
        tollgate.admin("GET", "/v1/status").json()["warnings"].to_string().contains(mismatch)
    });
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    fs::copy(&renewed.key, directory.path().join("me.key")).unwrap();
    assert_logged(&tollgate, "the client certificate for upstream origin was reloaded");
    becomes(1.0, || tollgate.metric(successful));
    assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    let shown = shown.lock().unwrap();
    assert_eq!(shown.len(), 3);
    assert_eq!(shown[0], shown[1]);
    assert_ne!(shown[1], shown[2]);
    assert_eq!(origin.connections(), 2);
}

#[test]
fn a_certificate_that_expires_is_warned_of() {
    let authority = Authority::new("ca");
    let (origin, _) = asking(&authority.issue("origin", &["127.0.0.1"]), &authority);
    let own = authority.issue_for_days("me", &[], 4);
    let ClientFiles { directory: _kept, config } = with_certificate(&origin, &authority, &own);
    let tollgate = Tollgate::start(config);
    let warning = "the client certificate for upstream origin in ";
    assert_logged(&tollgate, warning);
    assert_logged(&tollgate, "me.pem expires in 3 days, on ");
    let status = tollgate.admin("GET", "/v1/status").json();
    assert!(status["warnings"].to_string().contains(warning), "{status}");
    let expiry =
        tollgate.metric("tollgate_upstream_tls_certificate_expiry_timestamp_seconds{upstream=\"origin\"}");
    assert!(expiry > 1.7e9, "{expiry}");
    let checked = tollgate_in(tollgate.directory(), &[], &["check", "--config", "proxy.yaml"]);
    let said = format!("{checked:?}");
    assert!(said.contains("me.pem` expires in 3 days"), "{said}");
}
