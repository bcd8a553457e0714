//! A configured source of tokens: the field that carries them, and the keys that verify them.

use std::sync::Arc;

use http::HeaderName;
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use serde_json::{Map, Value};

use super::{
    key_file::{CurrentKeys, KeyFile, UnusableKeys},
    token::{TokenClaims, TokenError, TokenIdentity},
};
use crate::{config::model::Jwt, identity::header_fields::user_name};

/// How far clocks may differ, in seconds.
pub(super) const LEEWAY: u64 = 60;

/// A configured source of tokens.
pub(super) struct TokenSource {
    jwt: Jwt,
    file: KeyFile,
}

/// A token that was verified.
pub(super) struct VerifiedToken {
    pub(super) identity: TokenIdentity,
    /// The last second in which it is valid.
    pub(super) valid_until: u64,
}

impl TokenSource {
    pub(super) fn new(jwt: Jwt) -> Result<Self, UnusableKeys> {
        let file = KeyFile::open(jwt.key.clone(), jwt.algorithm)?;
        Ok(Self { jwt, file })
    }

    /// The field that carries tokens.
    pub(super) fn field(&self) -> &HeaderName {
        &self.jwt.header
    }

    /// The claim that has the user ID.
    pub(super) fn claim(&self) -> &str {
        &self.jwt.claim
    }

    /// The current keys.
    pub(super) fn keys(&self) -> CurrentKeys {
        self.file.current()
    }

    pub(super) fn reload_keys_if_changed(&self) {
        self.file.reload_if_changed();
    }

    /// Verifies that `token` was signed by one of `keys` and is valid now.
    ///
    /// # Errors
    /// The reason why the token is refused.
    pub(super) fn verify(&self, token: &[u8], keys: &CurrentKeys) -> Result<VerifiedToken, TokenError> {
        let header = decode_header(token).map_err(|_| TokenError::Malformed)?;
        // Extensions that must be understood are not supported (RFC 7515, 4.1.11).
        if header.crit.is_some() {
            return Err(TokenError::UnknownCritical);
        }
        let mut decoded = Err(TokenError::NoKey);
        for key in keys.keys.candidates(header.kid.as_deref(), header.alg) {
            decoded = decode::<Map<String, Value>>(token, &key.key, &self.validation(key.algorithm))
                .map_err(|error| TokenError::from_kind(error.kind()));
            // Any other error is independent of the key.
            if !matches!(decoded, Err(TokenError::Signature)) {
                break;
            }
        }
        let decoded = decoded?;
        let valid_until = decoded.claims.get("exp").and_then(seconds).unwrap_or(0).saturating_add(LEEWAY);
        let claims = Arc::new(TokenClaims::new(decoded.claims));
        let user = claims.get(&self.jwt.claim).and_then(|name| user_name(name.as_bytes()));
        Ok(VerifiedToken { identity: TokenIdentity { user, claims }, valid_until })
    }

    /// The checks of a token that was signed with this algorithm.
    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        // The library checks claims only if they are present. The configured ones are required.
        let mut required = vec!["exp"];
        if let Some(issuer) = &self.jwt.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        match &self.jwt.audience {
            Some(audience) => {
                validation.set_audience(&[audience]);
                required.push("aud");
            }
            // Without a configured audience, any is accepted.
            None => validation.validate_aud = false,
        }
        validation.set_required_spec_claims(&required);
        validation
    }
}

/// A NumericDate (RFC 7519, 2), rounded as the library does.
fn seconds(value: &Value) -> Option<u64> {
    value
        .as_u64()
        .or_else(|| value.as_f64().filter(|seconds| *seconds >= 0.0).map(|seconds| seconds.round() as u64))
}
