//! A server's certificate with its private key.

use std::sync::Arc;

use rustls::{
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer},
    sign::CertifiedKey,
};

use super::certificate_info::{CertificateInfo, covers};

/// Why a certificate can't be served, as the end of a sentence that begins with its file, or with the key's file for
/// errors of the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// An error of the key.
    #[error("is not the private key of `cert`")]
    KeyMismatch,
    /// An error of the key.
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
    /// The missing name, and the certificate's names.
    #[error("is not for {0}, but for {1}")]
    MissingName(String, String),
}

impl CertificateError {
    /// A suggestion to correct the error.
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

    /// Whether the error concerns the private key, not the certificate.
    pub fn is_of_key(&self) -> bool {
        matches!(self, Self::KeyMismatch | Self::UnsupportedKey)
    }
}

/// A certificate with a name and a matching key. It may have expired: see [`CertificateInfo::check_validity`].
#[derive(Debug, Clone)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    info: Arc<CertificateInfo>,
}

impl Certificate {
    /// Checks a `chain`, the server's own certificate first, and its private `key`. The certificate must have all of
    /// `names`.
    ///
    /// # Errors
    /// The certificate can't be served.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        names: &[String],
    ) -> Result<Self, CertificateError> {
        let own = chain.first().ok_or(CertificateError::Damaged)?;
        let info = CertificateInfo::read(own).ok_or(CertificateError::Damaged)?;
        if info.names.is_empty() {
            return Err(CertificateError::NoNames);
        }
        if let Some(missing) = names.iter().find(|name| !covers(&info.names, name)) {
            return Err(CertificateError::MissingName(missing.clone(), info.names.join(", ")));
        }
        Ok(Self { key: Arc::new(certified_key(chain, key)?), info: Arc::new(info) })
    }

    /// The certificate, its chain and its key, for a handshake.
    pub fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }

    /// The certificate's fields. It has at least one name.
    pub fn info(&self) -> &Arc<CertificateInfo> {
        &self.info
    }
}

/// A `chain` with the private `key` of its first certificate.
///
/// # Errors
/// The key does not match or has an unsupported type, or the certificate is damaged.
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

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn issue(names: &[&str]) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    fn error(names: &[&str], wanted: &[&str]) -> Option<CertificateError> {
        let (chain, key) = issue(names);
        let wanted: Vec<_> = wanted.iter().map(|&name| name.to_owned()).collect();
        Certificate::new(chain, key, &wanted).err()
    }

    #[test]
    fn it_must_have_the_names_that_are_wanted() {
        let names = ["*.example.com", "192.0.2.7"];
        assert_eq!(error(&names, &["a.example.com", "*.example.com", "192.0.2.7"]), None);
        let missing = error(&names, &["a.example.com", "example.com"]);
        let expected = ("example.com".to_owned(), "*.example.com, 192.0.2.7".to_owned());
        assert_eq!(missing, Some(CertificateError::MissingName(expected.0, expected.1)));
        assert_eq!(error(&[], &[]), Some(CertificateError::NoNames));
    }

    #[test]
    fn its_key_must_be_its_own() {
        let ((chain, _), (_, other)) = (issue(&["a"]), issue(&["a"]));
        assert_eq!(Certificate::new(chain, other, &[]).err(), Some(CertificateError::KeyMismatch));
        assert!(CertificateError::KeyMismatch.is_of_key() && !CertificateError::Damaged.is_of_key());
    }

    #[test]
    fn invalid_certificates_are_damaged() {
        let (_, key) = issue(&["a"]);
        let no_chain = Certificate::new(Vec::new(), key.clone_key(), &[]).err();
        assert_eq!(no_chain, Some(CertificateError::Damaged));
        let nonsense = vec![CertificateDer::from(vec![0x30, 0x00])];
        assert_eq!(Certificate::new(nonsense, key, &[]).err(), Some(CertificateError::Damaged));
    }
}
