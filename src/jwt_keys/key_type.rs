//! The type of a key (`kty` of RFC 7517, with its curve), and the algorithms it fits.

use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};

use super::KeyError;

/// Bytes of the smallest RSA modulus that is accepted.
const MIN_RSA_BYTES: usize = 2048 / 8;

/// The type of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyType {
    Secret,
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl KeyType {
    /// The type that `algorithm` needs.
    pub(super) fn required_by(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => Self::Secret,
            Algorithm::ES256 => Self::P256,
            Algorithm::ES384 => Self::P384,
            Algorithm::EdDSA => Self::Ed25519,
            // RS and PS. The library may add more, but no configuration can name them.
            _ => Self::Rsa,
        }
    }

    /// The algorithm of this type, if there is only one.
    pub(super) fn sole_algorithm(self) -> Option<Algorithm> {
        match self {
            Self::P256 => Some(Algorithm::ES256),
            Self::P384 => Some(Algorithm::ES384),
            Self::Ed25519 => Some(Algorithm::EdDSA),
            Self::Secret | Self::Rsa => None,
        }
    }

    /// Returns `key` if its length fits the type. The library would check that only when it verifies.
    pub(super) fn validated(self, key: DecodingKey) -> Result<DecodingKey, KeyError> {
        let fits = match (self, key.kind()) {
            (Self::Rsa, DecodingKeyKind::RsaModulusExponent { n, .. }) => {
                let length = n.iter().skip_while(|&&byte| byte == 0).count();
                return if length < MIN_RSA_BYTES { Err(KeyError::ShortRsa) } else { Ok(key) };
            }
            (Self::P256, DecodingKeyKind::SecretOrDer(point)) => point.len() == 1 + 2 * 32,
            (Self::P384, DecodingKeyKind::SecretOrDer(point)) => point.len() == 1 + 2 * 48,
            (Self::Ed25519, DecodingKeyKind::SecretOrDer(point)) => point.len() == 32,
            (Self::Secret, DecodingKeyKind::SecretOrDer(_)) => true,
            _ => false,
        };
        if fits { Ok(key) } else { Err(KeyError::Damaged) }
    }
}

/// The secret of an HS algorithm: no shorter than its hash (RFC 7518, 3.2).
pub(super) fn secret(bytes: &[u8], algorithm: Algorithm) -> Result<DecodingKey, KeyError> {
    let least = match algorithm {
        Algorithm::HS256 => 32,
        Algorithm::HS384 => 48,
        _ => 64,
    };
    match bytes.len() < least {
        true => Err(KeyError::ShortSecret(name(algorithm))),
        false => Ok(DecodingKey::from_secret(bytes)),
    }
}

/// The algorithm's name in a configuration.
pub(super) fn name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::HS256 => "HS256",
        Algorithm::HS384 => "HS384",
        Algorithm::HS512 => "HS512",
        Algorithm::ES256 => "ES256",
        Algorithm::ES384 => "ES384",
        Algorithm::RS256 => "RS256",
        Algorithm::RS384 => "RS384",
        Algorithm::RS512 => "RS512",
        Algorithm::PS256 => "PS256",
        Algorithm::PS384 => "PS384",
        Algorithm::PS512 => "PS512",
        Algorithm::EdDSA => "EdDSA",
        _ => "this algorithm",
    }
}
