//! The certificate authorities that the system trusts.

use rustls::RootCertStore;

/// Reads the authorities that the system trusts: `SSL_CERT_FILE` and `SSL_CERT_DIR` if one of them is set, or else where the
/// system keeps them. A system without any, as in an empty container, gets Mozilla's, which are built in.
pub fn read() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    let mut trusted = RootCertStore::empty();
    let (_, unusable) = trusted.add_parsable_certificates(found.certs);
    if let Some(error) = found.errors.first() {
        tracing::warn!("some of the system's certificate authorities can't be read: {error}");
    }
    if unusable > 0 {
        tracing::warn!("{unusable} of the system's certificate authorities are damaged, and not trusted");
    }
    if trusted.is_empty() {
        tracing::warn!(
            "the system has no certificate authorities: Mozilla's, which are built in, are trusted"
        );
        trusted.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    trusted
}
