//! The certificate authorities that the system trusts, for servers without configured authorities.

use std::sync::{Arc, LazyLock};

use rustls::RootCertStore;

/// Read once, on first use: there are more than a hundred, in as many files.
static SYSTEM: LazyLock<Arc<RootCertStore>> = LazyLock::new(read);

/// The authorities that the system trusts: from `SSL_CERT_FILE` and `SSL_CERT_DIR` if one of them is set, or else from
/// the system's default place. A system without any, such as an empty container, gets Mozilla's, which are built in.
pub fn trusted() -> Arc<RootCertStore> {
    Arc::clone(&SYSTEM)
}

fn read() -> Arc<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    if let Some(error) = found.errors.first() {
        tracing::warn!("some of the system's certificate authorities can't be read: {error}");
    }
    let mut trusted = RootCertStore::empty();
    let (_, damaged) = trusted.add_parsable_certificates(found.certs);
    if damaged > 0 {
        tracing::warn!("{damaged} of the system's certificate authorities are damaged, and not trusted");
    }
    if trusted.is_empty() {
        tracing::warn!(
            "the system has no certificate authorities: Mozilla's, which are built in, are trusted"
        );
        trusted.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    Arc::new(trusted)
}
