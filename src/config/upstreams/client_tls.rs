//! TLS to servers: Redis and upstreams.

use std::{path::PathBuf, time::SystemTime};

use serde::Serialize;
use tollgate_derive::Settings;

use crate::{
    config::{
        Purpose,
        listeners::checks,
        reader::{Cursor, MappingCursor},
        settings::{Read, ReadOver},
        value::{authorities, certificates, check_key_matches, private_key},
    },
    tls::CertificateInfo,
};

/// The trusted authorities of a server's certificate, and our own certificate. Files in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ClientTls {
    /// The only certificate authorities that are trusted. `None`: the authorities of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Our own certificate.
    #[serde(flatten)]
    pub certificate: Option<ClientCertificate>,
}

/// The files of a certificate that a server is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientCertificate {
    /// The certificate and its chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// TLS to a server. The files are read again when they change.
#[derive(Settings)]
#[settings(written, of = ClientTls, page = "tls.md", rules(With("cert", "key"), With("key", "cert")))]
struct ClientTlsSettings<'t> {
    /// The authorities that sign the certificate of the server, in PEM.
    #[setting(file, unset = "the authorities of the system", example = "tls/ca.pem")]
    ca: Option<Cursor<'t>>,
    /// The certificate that Tollgate shows to the server, in PEM.
    #[setting(file, unset = "no certificate", example = "tls/me.pem", beside = "key: tls/me.key")]
    cert: Option<Cursor<'t>>,
    /// The private key of `cert`, in PEM.
    #[setting(file, unset = "no certificate", example = "tls/me.key", beside = "cert: tls/me.pem")]
    key: Option<Cursor<'t>>,
}

impl<'t> Read<'t> for ClientTls {
    /// Reads `ca`, `cert` and `key`, and the files that they name.
    fn fields(mapping: &mut MappingCursor<'t>) -> Option<Self> {
        let ClientTlsSettings { ca, cert, key } = ClientTlsSettings::fields(mapping)?;
        let ca = ca.and_then(|value| value.file(authorities));
        for (one, other) in [("cert", "key"), ("key", "cert")] {
            if let Some(location) = mapping.key_location(one).filter(|_| !mapping.has_or_misspells(other)) {
                let help = format!("a certificate and its key go together: add `{other}: FILE`");
                mapping.report_at(location, format!("`{one}` is set without `{other}`"), help);
            }
        }
        Some(Self { ca: ca.map(|(path, ())| path), certificate: certificate(cert, key) })
    }
}

impl<'t> ReadOver<'t> for ClientTls {
    fn over(default: Self, mapping: &mut MappingCursor<'t>) -> Self {
        Self::fields(mapping).unwrap_or(default)
    }
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
            Ok(()) => checks::warn_of_expiry(cert_value, &cert, &info, now),
            // Servers will refuse it, but servers that do not request it must not keep Tollgate from starting.
            Err(_) if cert_value.purpose() == Purpose::Start => {}
            Err(error) => checks::report_certificate(cert_value, &cert, &error),
        }
    }
    Some(ClientCertificate { cert, key })
}
