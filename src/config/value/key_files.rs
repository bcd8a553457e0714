//! Files of certificates and keys: PEM (RFC 7468), and the keys that verify tokens. Pure: the bytes of a file in, its
//! contents out.

use rustls::{
    RootCertStore,
    crypto::aws_lc_rs::default_provider,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{Error, PemObject},
    },
    sign::CertifiedKey,
};

use super::Invalid;
use crate::{config::model::JwtAlgorithm, identity::keys::Keys};

/// Checks the certificates of authorities.
pub(in crate::config) fn authorities(bytes: &[u8]) -> Result<(), Invalid> {
    let mut trusted = RootCertStore::empty();
    for certificate in certificates(bytes)? {
        trusted.add(certificate).map_err(|_| Invalid::new("contains a damaged certificate"))?;
    }
    Ok(())
}

/// Reads a chain of at least one certificate.
pub(in crate::config) fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, Invalid> {
    let expected = "use a PEM file with -----BEGIN CERTIFICATE-----";
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err(Invalid::new("contains no certificate").expected(expected)),
        Ok(chain) => Ok(chain),
        Err(_) => Err(Invalid::new("is damaged: not all of it is valid PEM").expected(expected)),
    }
}

/// Reads the first private key.
pub(in crate::config) fn private_key(bytes: &[u8]) -> Result<PrivateKeyDer<'static>, Invalid> {
    let expected = "use an unencrypted PEM file with -----BEGIN PRIVATE KEY-----";
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
        Error::NoItemsFound => Invalid::new("contains no private key").expected(expected),
        _ => Invalid::new("is damaged: not all of it is valid PEM").expected(expected),
    })
}

/// Checks that `key` belongs to the first certificate of `chain`.
pub(in crate::config) fn check_key_matches(
    key: PrivateKeyDer<'static>,
    chain: Vec<CertificateDer<'static>>,
) -> Result<(), Invalid> {
    match CertifiedKey::from_der(chain, key, &default_provider()) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => Err(Invalid::new("is not the private key of `cert`")),
        Err(rustls::Error::InvalidCertificate(_)) => {
            Err(Invalid::new("cannot be checked, because `cert` is damaged"))
        }
        Err(_) => Err(Invalid::new("contains a private key of an unsupported type")
            .expected("supported types: RSA, ECDSA, Ed25519")),
    }
}

/// Checks a key file in the same way in which the verifier will read it.
pub(in crate::config) fn token_key(algorithm: Option<JwtAlgorithm>) -> impl Fn(&[u8]) -> Result<(), Invalid> {
    move |bytes| match Keys::read(bytes, algorithm) {
        Ok(_) => Ok(()),
        Err(error) => {
            let invalid = Invalid::new(error.to_string());
            Err(match error.form() {
                Some(expected) => invalid.expected(expected),
                None => invalid,
            })
        }
    }
}
