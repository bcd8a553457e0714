//! The certificate authorities that the system trusts, for servers without configured authorities.

use std::sync::{Arc, LazyLock};

use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::{RootCertStore, pki_types::CertificateDer};

/// Read once, on first use: there are more than a hundred, in as many files.
static SYSTEM: LazyLock<Authorities> = LazyLock::new(Authorities::read);

struct Authorities {
    /// Empty: the system has none.
    certificates: Vec<CertificateDer<'static>>,
    trusted: Arc<RootCertStore>,
}

/// The authorities that the system trusts: from `SSL_CERT_FILE` and `SSL_CERT_DIR` if one of them is set, or else from
/// the system's default place. A system without any, such as an empty container, gets Mozilla's, which are built in.
pub fn trusted() -> Arc<RootCertStore> {
    Arc::clone(&SYSTEM.trusted)
}

/// The same authorities as a PEM file. `None`: the system has none.
pub fn pem() -> Option<String> {
    let certificates = &SYSTEM.certificates;
    (!certificates.is_empty()).then(|| certificates.iter().map(|one| pem_of(one)).collect())
}

impl Authorities {
    fn read() -> Self {
        let found = rustls_native_certs::load_native_certs();
        if let Some(error) = found.errors.first() {
            tracing::warn!("some of the system's certificate authorities can't be read: {error}");
        }
        let mut trusted = RootCertStore::empty();
        let (usable, damaged): (Vec<_>, Vec<_>) =
            found.certs.into_iter().partition(|certificate| trusted.add(certificate.clone()).is_ok());
        if !damaged.is_empty() {
            let count = damaged.len();
            tracing::warn!("{count} of the system's certificate authorities are damaged, and not trusted");
        }
        if trusted.is_empty() {
            tracing::warn!(
                "the system has no certificate authorities: Mozilla's, which are built in, are trusted"
            );
            trusted.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        Self { certificates: usable, trusted: Arc::new(trusted) }
    }
}

/// A certificate in PEM (RFC 7468).
fn pem_of(certificate: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(certificate);
    let lines = text.as_bytes().chunks(64).map(|line| format!("{}\n", String::from_utf8_lossy(line)));
    format!("-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use rcgen::generate_simple_self_signed;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    #[test]
    fn certificates_are_written_as_they_are_read() {
        let der = generate_simple_self_signed(["a".to_owned()]).unwrap().cert.der().clone();
        let text = pem_of(&der).repeat(2);
        let read: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes()).map(Result::unwrap).collect();
        assert_eq!(read, [der.clone(), der]);
        assert!(text.lines().all(|line| line.len() <= 64));
    }
}
