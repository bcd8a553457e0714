//! Files of certificates and keys: PEM (RFC 7468), and the keys that verify tokens. Pure: the bytes of a file in, its
//! contents out.

use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Invalid;
use crate::{
    jwt_keys::JwtAlgorithm,
    jwt_keys::JwtKeys,
    tls::{self, CertificateError, PemError},
};

impl From<PemError> for Invalid {
    fn from(error: PemError) -> Self {
        let invalid = Self::new(error.to_string());
        match error.help() {
            Some(help) => invalid.expected(help),
            None => invalid,
        }
    }
}

/// Checks the certificates of authorities.
pub(in crate::config) fn authorities(bytes: &[u8]) -> Result<(), Invalid> {
    Ok(tls::authorities(bytes).map(drop)?)
}

/// Reads a chain of at least one certificate.
pub(in crate::config) fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, Invalid> {
    Ok(tls::certificates(bytes)?)
}

/// Reads the first private key.
pub(in crate::config) fn private_key(bytes: &[u8]) -> Result<PrivateKeyDer<'static>, Invalid> {
    Ok(tls::private_key(bytes)?)
}

/// Checks that `key` belongs to the first certificate of `chain`.
pub(in crate::config) fn check_key_matches(
    key: PrivateKeyDer<'static>,
    chain: Vec<CertificateDer<'static>>,
) -> Result<(), Invalid> {
    tls::certified_key(chain, key).map(drop).map_err(|error| match error {
        CertificateError::Damaged => Invalid::new("cannot be checked, because `cert` is damaged"),
        error => {
            let invalid = Invalid::new(error.to_string());
            match error.help() {
                Some(help) => invalid.expected(help),
                None => invalid,
            }
        }
    })
}

/// Reads a key file in the same way in which the verifier will read it.
pub(in crate::config) fn token_keys(
    algorithm: Option<JwtAlgorithm>,
) -> impl Fn(&[u8]) -> Result<JwtKeys, Invalid> {
    move |bytes| {
        JwtKeys::read(bytes, algorithm).map_err(|error| {
            let invalid = Invalid::new(error.to_string());
            match error.form() {
                Some(expected) => invalid.expected(expected),
                None => invalid,
            }
        })
    }
}
