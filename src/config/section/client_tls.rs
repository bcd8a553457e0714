//! `tls` of a server that Tollgate connects to: Redis, or an upstream.

use std::time::SystemTime;

use super::tls::{report_certificate, warn_of_expiry};
use crate::{
    config::{
        Purpose,
        model::{ClientCertificate, ClientTls},
        reader::{Cursor, MappingCursor},
        value::{authorities, certificates, check_key_matches, private_key},
    },
    tls::CertificateInfo,
};

/// Reads `ca`, `cert` and `key`, and the files that they name.
pub(super) fn client_tls(mapping: &mut MappingCursor<'_>) -> ClientTls {
    let ca = mapping.take("ca").and_then(|value| value.file(authorities));
    let (cert, key) = (mapping.take("cert"), mapping.take("key"));
    for (one, other) in [("cert", "key"), ("key", "cert")] {
        if let Some(location) = mapping.key_location(one).filter(|_| !mapping.has_or_misspells(other)) {
            let help = format!("a certificate and its key go together: add `{other}: FILE`");
            mapping.report_at(location, format!("`{one}` is set without `{other}`"), help);
        }
    }
    ClientTls { ca: ca.map(|(path, ())| path), certificate: certificate(cert, key) }
}

fn certificate(cert: Option<Cursor<'_>>, key: Option<Cursor<'_>>) -> Option<ClientCertificate> {
    let chain = cert.and_then(|value| Some((value, value.file(certificates)?)));
    let Some((cert_value, (cert, chain))) = chain else {
        // Report the errors of the key as well.
        return key.and_then(|value| value.file(private_key)).and(None);
    };
    let info = chain.first().and_then(CertificateInfo::read);
    let (key, ()) = key?.file(|bytes| check_key_matches(private_key(bytes)?, chain))?;
    if let Some(info) = info {
        let now = SystemTime::now();
        match info.check_validity(now) {
            Ok(()) => warn_of_expiry(cert_value, &cert, &info, now),
            // Servers will refuse it, but those that do not ask for it must not wait for that.
            Err(_) if cert_value.purpose() == Purpose::Start => {}
            Err(error) => report_certificate(cert_value, &cert, &error),
        }
    }
    Some(ClientCertificate { cert, key })
}
