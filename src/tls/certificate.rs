//! A server's certificate with its private key: what it is good for, and until when.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustls::{
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer},
    sign::CertifiedKey,
};
use x509_cert::{
    certificate::{CertificateInner, Raw},
    der::Decode,
    ext::pkix::{SubjectAltName, name::GeneralName},
};

const DAY: u64 = 24 * 60 * 60;

/// Why a certificate can't be served: the end of a sentence that begins with its file, or with the file of the key where
/// the error is the key's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// Of the key.
    #[error("is not the private key of `cert`")]
    KeyMismatch,
    /// Of the key.
    #[error("contains a private key of an unsupported type")]
    UnsupportedKey,
    #[error("contains a damaged certificate")]
    Damaged,
    #[error("is not valid before {0}")]
    NotYetValid(String),
    #[error("expired on {0}")]
    Expired(String),
    #[error("names no host: it has no subjectAltName with a DNS name or an IP address")]
    NoNames,
    /// The name, and those that the certificate has.
    #[error("is not for {0}, but for {1}")]
    MissingName(String, String),
}

impl CertificateError {
    /// What to do about it.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::UnsupportedKey => Some("supported types: RSA, ECDSA, Ed25519"),
            Self::Expired(_) => Some("renew the certificate"),
            Self::NoNames => {
                Some("browsers and other clients ignore the common name: ask for a certificate with names")
            }
            Self::KeyMismatch | Self::Damaged | Self::NotYetValid(_) | Self::MissingName(..) => None,
        }
    }

    /// Whether the error is of the private key, not of the certificate.
    pub fn is_of_key(&self) -> bool {
        matches!(self, Self::KeyMismatch | Self::UnsupportedKey)
    }
}

/// A certificate that can be served: it is valid now, names a host, and the key is its own.
#[derive(Debug, Clone)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    names: Vec<String>,
    not_after: SystemTime,
}

impl Certificate {
    /// Warnings begin this many days before a certificate expires.
    pub const RENEWAL_DAYS: u64 = 14;

    /// Checks a `chain`, the server's own certificate first, and its private `key`. The certificate must have all of
    /// `names`.
    ///
    /// # Errors
    /// It can't be served.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        names: &[String],
    ) -> Result<Self, CertificateError> {
        let own = chain.first().ok_or(CertificateError::Damaged)?;
        let (found, not_before, not_after) = read(own).ok_or(CertificateError::Damaged)?;
        let now = SystemTime::now();
        if now < not_before {
            return Err(CertificateError::NotYetValid(date(not_before)));
        }
        if now > not_after {
            return Err(CertificateError::Expired(date(not_after)));
        }
        if found.is_empty() {
            return Err(CertificateError::NoNames);
        }
        if let Some(missing) = names.iter().find(|name| !covers(&found, name)) {
            return Err(CertificateError::MissingName(missing.clone(), found.join(", ")));
        }
        Ok(Self { key: Arc::new(certified_key(chain, key)?), names: found, not_after })
    }

    /// The certificate, its chain and its key, for a handshake.
    pub fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }

    /// The hosts that it is for, in lower case: DNS names, of which the first label may be `*`, and IP addresses. At
    /// least one.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.names.iter()
    }

    /// When it expires.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Whole days until it expires. `None`: it has expired.
    pub fn days_left(&self) -> Option<u64> {
        let left = self.not_after.duration_since(SystemTime::now()).ok()?;
        Some(left.as_secs() / DAY)
    }
}

/// A `chain` with the private `key` of its first certificate.
///
/// # Errors
/// The key is another's or of an unsupported type, or the certificate is damaged.
pub fn certified_key(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, CertificateError> {
    CertifiedKey::from_der(chain, key, &default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => CertificateError::KeyMismatch,
        rustls::Error::InvalidCertificate(_) => CertificateError::Damaged,
        _ => CertificateError::UnsupportedKey,
    })
}

/// Whether the present time is within the validity of `certificate`.
pub fn is_valid_now(certificate: &CertificateDer<'_>) -> bool {
    let now = SystemTime::now();
    read(certificate).is_some_and(|(_, not_before, not_after)| (not_before..=not_after).contains(&now))
}

/// Names, begin and end of validity.
fn read(certificate: &CertificateDer<'_>) -> Option<(Vec<String>, SystemTime, SystemTime)> {
    let certificate = CertificateInner::<Raw>::from_der(certificate).ok()?;
    let certificate = certificate.tbs_certificate();
    let names = certificate.get_extension::<SubjectAltName>().ok()?;
    let names = names.map_or_else(Vec::new, |(_, names)| names.0.iter().filter_map(host).collect());
    let validity = certificate.validity();
    let time = |since: Duration| SystemTime::UNIX_EPOCH.checked_add(since);
    let (begin, end) = (validity.not_before.to_unix_duration(), validity.not_after.to_unix_duration());
    Some((names, time(begin)?, time(end)?))
}

fn host(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_ascii_lowercase()),
        GeneralName::IpAddress(octets) => {
            let octets = octets.as_bytes();
            let address = <[u8; 4]>::try_from(octets)
                .map(IpAddr::from)
                .or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

/// Whether one of `names` is `host`, or a wildcard for it. `host` may itself be a wildcard.
fn covers(names: &[String], host: &str) -> bool {
    let wildcard = host.split_once('.').map(|(_, parent)| format!("*.{parent}"));
    names.iter().any(|name| name == host || wildcard.as_ref() == Some(name))
}

/// The time, as `2026-11-22 07:30:00 UTC`.
fn date(time: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(time).map(|time| time.strftime("%F %T UTC").to_string());
    // Beyond the year 9999.
    time.unwrap_or_else(|_| "a date beyond the year 9999".to_owned())
}
