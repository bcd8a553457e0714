//! PEM files (RFC 7468) of certificates, private keys and authorities.

use rustls::{
    RootCertStore,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{Error, PemObject},
    },
};

/// The error of a PEM file, as the end of a sentence that begins with the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    #[error("contains no certificate")]
    NoCertificate,
    #[error("contains no private key")]
    NoPrivateKey,
    #[error("is damaged: not all of it is valid PEM")]
    DamagedCertificates,
    #[error("is damaged: not all of it is valid PEM")]
    DamagedPrivateKey,
    #[error("contains a damaged certificate")]
    DamagedAuthority,
}

impl PemError {
    /// A suggestion to correct the error.
    pub fn help(self) -> Option<&'static str> {
        match self {
            Self::NoCertificate | Self::DamagedCertificates => {
                Some("use a PEM file with -----BEGIN CERTIFICATE-----")
            }
            Self::NoPrivateKey | Self::DamagedPrivateKey => {
                Some("use an unencrypted PEM file with -----BEGIN PRIVATE KEY-----")
            }
            Self::DamagedAuthority => None,
        }
    }
}

/// Reads a chain of at least one certificate.
///
/// # Errors
/// The file has none, or is damaged.
pub fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err(PemError::NoCertificate),
        Ok(chain) => Ok(chain),
        Err(_) => Err(PemError::DamagedCertificates),
    }
}

/// Reads the first private key.
///
/// # Errors
/// The file has none, or is damaged.
pub fn private_key(bytes: &[u8]) -> Result<PrivateKeyDer<'static>, PemError> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
        Error::NoItemsFound => PemError::NoPrivateKey,
        _ => PemError::DamagedPrivateKey,
    })
}

/// Reads the certificates of authorities.
///
/// # Errors
/// The file has none, or one is damaged.
pub fn authorities(bytes: &[u8]) -> Result<RootCertStore, PemError> {
    let mut trusted = RootCertStore::empty();
    for certificate in certificates(bytes)? {
        trusted.add(certificate).map_err(|_| PemError::DamagedAuthority)?;
    }
    Ok(trusted)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    fn pair() -> (String, String) {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["a".to_owned()]).unwrap();
        (cert.pem(), signing_key.serialize_pem())
    }

    #[test]
    fn a_chain_may_stand_among_other_things() {
        let ((one, key), (two, _)) = (pair(), pair());
        let text = format!("a comment\n{one}{key}{two}");
        assert_eq!(certificates(text.as_bytes()).unwrap().len(), 2);
        assert!(private_key(text.as_bytes()).is_ok());
        assert_eq!(authorities(text.as_bytes()).unwrap().len(), 2);
    }

    #[test]
    fn a_missing_certificate_and_a_damaged_one_are_different_errors() {
        let (cert, key) = pair();
        for text in ["", "no PEM", &key] {
            assert_eq!(certificates(text.as_bytes()).err(), Some(PemError::NoCertificate), "{text}");
        }
        for text in ["", "no PEM", &cert] {
            assert_eq!(private_key(text.as_bytes()).err(), Some(PemError::NoPrivateKey), "{text}");
        }
        // The second certificate is cut in half.
        let cut = format!("{cert}{}", &cert[..cert.len() / 2]);
        assert_eq!(certificates(cut.as_bytes()).err(), Some(PemError::DamagedCertificates));
        assert_eq!(authorities(cut.as_bytes()).err(), Some(PemError::DamagedCertificates));
        let cut = &key[..key.len() / 2];
        assert_eq!(private_key(cut.as_bytes()).err(), Some(PemError::DamagedPrivateKey));
    }

    #[test]
    fn an_authority_that_is_no_certificate_is_damaged() {
        let text = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        assert_eq!(certificates(text.as_bytes()).map(|chain| chain.len()), Ok(1));
        assert_eq!(authorities(text.as_bytes()).err(), Some(PemError::DamagedAuthority));
    }
}
