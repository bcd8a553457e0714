//! A JSON Web Key set (RFC 7517).

use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    IgnoredKey, JwtKey, JwtKeys, KeyError, MAX_PROVIDER_KEYS,
    key_type::{self, KeyType},
};

/// Reads the keys of a set that verify tokens of `algorithm`, or of each key's own algorithm if `None`. Keys for other
/// uses and of unknown types are left out. Unusable keys are ignored as long as another one is usable (RFC 7517, 5).
pub(super) fn read(bytes: &[u8], algorithm: Option<Algorithm>) -> Result<JwtKeys, KeyError> {
    usable(&members(bytes)?, |jwk| key(jwk, algorithm))
}

/// As [`read`], for a set that everybody can read.
pub(super) fn read_published(bytes: &[u8], algorithm: Option<Algorithm>) -> Result<JwtKeys, KeyError> {
    let all = members(bytes)?;
    if all.len() > MAX_PROVIDER_KEYS {
        return Err(KeyError::TooMany);
    }
    usable(&all, |jwk| match key_type(jwk) {
        Some(KeyType::Secret) => Err(KeyError::PublishedSecret),
        Some(KeyType::Rsa) if jwk.common.key_algorithm.is_none() => {
            key(jwk, algorithm.or(Some(Algorithm::RS256)))
        }
        _ => key(jwk, algorithm),
    })
}

/// The keys of a set, of whatever type.
fn members(bytes: &[u8]) -> Result<Vec<Value>, KeyError> {
    let mut set: Value = serde_json::from_slice(bytes).map_err(|_| KeyError::NoSet)?;
    if set.get("d").is_some() {
        return Err(KeyError::Private);
    }
    let Some(Value::Array(all)) = set.get_mut("keys").map(Value::take) else { return Err(KeyError::NoSet) };
    match all.iter().any(|key| key.get("d").is_some()) {
        true => Err(KeyError::Private),
        false => Ok(all),
    }
}

fn usable(
    all: &[Value],
    key: impl Fn(&Jwk) -> Result<Option<JwtKey>, KeyError>,
) -> Result<JwtKeys, KeyError> {
    let (mut keys, mut ignored) = (Vec::new(), Vec::new());
    for value in all {
        let known = Jwk::deserialize(value).map_err(|_| KeyError::Damaged);
        match known.and_then(|known| key(&known)) {
            Ok(usable) => keys.extend(usable),
            Err(reason) => {
                let id = value.get("kid").and_then(Value::as_str).map(str::to_owned);
                ignored.push(IgnoredKey { id, reason });
            }
        }
    }
    match (keys.is_empty(), ignored.first()) {
        (false, _) => Ok(JwtKeys { keys, ignored }),
        (true, Some(first)) => Err(first.reason),
        (true, None) => Err(KeyError::NoneUsable),
    }
}

fn key(jwk: &Jwk, wanted: Option<Algorithm>) -> Result<Option<JwtKey>, KeyError> {
    let Some(key_type) = key_type(jwk).filter(|_| verifies(jwk)) else { return Ok(None) };
    let algorithm = match (jwk.common.key_algorithm, wanted) {
        (Some(own), wanted) => match Algorithm::try_from(own) {
            Ok(own) if wanted.is_none_or(|wanted| wanted == own) => own,
            _ => return Ok(None),
        },
        (None, Some(wanted)) => wanted,
        (None, None) => key_type.sole_algorithm().ok_or(KeyError::NoKeyAlgorithm)?,
    };
    if KeyType::required_by(algorithm) != key_type {
        // A key that contradicts its own algorithm is damaged; one that does not fit the wanted algorithm is skipped.
        return if jwk.common.key_algorithm.is_some() { Err(KeyError::Damaged) } else { Ok(None) };
    }
    let key = DecodingKey::from_jwk(jwk).map_err(|_| KeyError::Damaged)?;
    let key = match key_type {
        KeyType::Secret => {
            key_type::secret(key.try_get_as_bytes().map_err(|_| KeyError::Damaged)?, algorithm)?
        }
        _ => key_type.validated(key)?,
    };
    Ok(Some(JwtKey { id: jwk.common.key_id.clone(), algorithm, key }))
}

fn key_type(jwk: &Jwk) -> Option<KeyType> {
    match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Some(KeyType::Rsa),
        AlgorithmParameters::OctetKey(_) => Some(KeyType::Secret),
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => Some(KeyType::P256),
            EllipticCurve::P384 => Some(KeyType::P384),
            _ => None,
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            Some(KeyType::Ed25519)
        }
        _ => None,
    }
}

/// Whether the key is for verifying signatures (RFC 7517, 4.2 and 4.3).
fn verifies(jwk: &Jwk) -> bool {
    let of_signatures = jwk.common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature);
    let operations = jwk.common.key_operations.as_ref();
    of_signatures && operations.is_none_or(|all| all.contains(&KeyOperations::Verify))
}
