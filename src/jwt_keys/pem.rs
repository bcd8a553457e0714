//! A public key in PEM, alone or in a certificate.

use base64::{Engine, engine::general_purpose::STANDARD};
use jsonwebtoken::{DecodingKey, jwk::Jwk};
use rustls::{
    pki_types::{CertificateDer, SubjectPublicKeyInfoDer, alg_id, pem::PemObject},
    server::ParsedCertificate,
};

use super::{KeyError, key_type::KeyType};

/// The beginning of a PEM section (RFC 7468, 2).
pub(super) const BEGIN: &[u8] = b"-----BEGIN ";

/// The last offset of the algorithm identifier in a SubjectPublicKeyInfo: after the headers of two sequences.
const HEADS: usize = 2 * 4;

/// Whether any section is a private key.
pub(super) fn is_private(bytes: &[u8]) -> bool {
    labels(&String::from_utf8_lossy(bytes)).any(|label| label.ends_with("PRIVATE KEY"))
}

/// The labels of all sections.
fn labels(text: &str) -> impl Iterator<Item = &str> {
    text.split("-----BEGIN ").skip(1).filter_map(|from| Some(from.split_once("-----")?.0))
}

/// Reads the first public key, or that of the first certificate.
pub(super) fn read(bytes: &[u8]) -> Result<(KeyType, DecodingKey), KeyError> {
    let text = str::from_utf8(bytes).map_err(|_| KeyError::Damaged)?;
    let described = match labels(text).next() {
        Some("PUBLIC KEY") => {
            SubjectPublicKeyInfoDer::from_pem_slice(bytes).map_err(|_| KeyError::Damaged)?
        }
        Some("CERTIFICATE") => {
            let certificate = CertificateDer::from_pem_slice(bytes).map_err(|_| KeyError::Damaged)?;
            let parsed = ParsedCertificate::try_from(&certificate).map_err(|_| KeyError::Damaged)?;
            parsed.subject_public_key_info()
        }
        Some("RSA PUBLIC KEY") => {
            let key = DecodingKey::from_rsa_pem(bytes).map_err(|_| KeyError::Damaged)?;
            return Ok((KeyType::Rsa, long_enough(&key)?));
        }
        _ => return Err(KeyError::Unknown),
    };
    let key_type = key_type(&described).ok_or(KeyError::Kind)?;
    // Converted to PEM again, since the library reads a SubjectPublicKeyInfo only in PEM.
    let plain =
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(&described));
    let key = match key_type {
        KeyType::Rsa => DecodingKey::from_rsa_pem(plain.as_bytes()),
        KeyType::Ed25519 => DecodingKey::from_ed_pem(plain.as_bytes()),
        KeyType::P256 | KeyType::P384 | KeyType::Secret => DecodingKey::from_ec_pem(plain.as_bytes()),
    };
    let key = key.map_err(|_| KeyError::Damaged)?;
    let key = if key_type == KeyType::Rsa { long_enough(&key)? } else { key_type.validated(key)? };
    Ok((key_type, key))
}

/// The type of a key in a SubjectPublicKeyInfo (RFC 5280, 4.1.2.7).
fn key_type(described: &[u8]) -> Option<KeyType> {
    let known = [
        (alg_id::RSA_ENCRYPTION, KeyType::Rsa),
        (alg_id::ECDSA_P256, KeyType::P256),
        (alg_id::ECDSA_P384, KeyType::P384),
        (alg_id::ED25519, KeyType::Ed25519),
    ];
    let is = |id: &[u8]| (0..=HEADS).any(|at| described.get(at..).is_some_and(|from| from.starts_with(id)));
    known.into_iter().find(|(id, _)| is(id)).map(|(_, key_type)| key_type)
}

/// The RSA key, if its modulus is long enough.
fn long_enough(key: &DecodingKey) -> Result<DecodingKey, KeyError> {
    let parts = Jwk::from_decoding_key(key, None).map_err(|_| KeyError::Damaged)?;
    KeyType::Rsa.validated(DecodingKey::from_jwk(&parts).map_err(|_| KeyError::Damaged)?)
}
