//! A configured source of tokens: the field that carries them, and the keys that verify them.

use std::sync::Arc;

use http::HeaderName;
use jsonwebtoken::{Algorithm, Validation, dangerous::insecure_decode_claims, decode, decode_header};
use serde_json::{Map, Value};

use super::{
    CurrentKeys,
    key_file::{KeyFile, UnusableKeys},
    key_set::KeySet,
    token::{TokenClaims, TokenError, TokenIdentity},
    unix_seconds,
};
use crate::{config::model::Jwt, identity::header_fields::user_name};

/// How far clocks may differ, in seconds.
pub(super) const LEEWAY: u64 = 60;

/// A configured source of tokens.
pub(super) struct TokenSource {
    jwt: Jwt,
    keys: TokenKeys,
}

/// Where the keys are from.
enum TokenKeys {
    File(KeyFile),
    Set(Arc<KeySet>),
}

/// A token that was verified.
pub(super) struct VerifiedToken {
    pub(super) identity: TokenIdentity,
    /// The last second in which it is valid.
    pub(super) valid_until: u64,
}

impl TokenSource {
    /// A source whose keys are in a file.
    ///
    /// # Errors
    /// The file can't be used.
    pub(super) fn with_file(jwt: Jwt) -> Result<Self, UnusableKeys> {
        let file = jwt.key.clone().ok_or(UnusableKeys::None)?;
        let keys = TokenKeys::File(KeyFile::open(file, jwt.algorithm)?);
        Ok(Self { jwt, keys })
    }

    /// A source whose keys are in `set`.
    pub(super) fn with_set(jwt: Jwt, set: Arc<KeySet>) -> Self {
        Self { jwt, keys: TokenKeys::Set(set) }
    }

    /// The key set of a provider. `None`: the keys are in a file.
    pub(super) fn key_set(&self) -> Option<&Arc<KeySet>> {
        match &self.keys {
            TokenKeys::Set(set) => Some(set),
            TokenKeys::File(_) => None,
        }
    }

    /// The field that carries tokens.
    pub(super) fn field(&self) -> &HeaderName {
        &self.jwt.header
    }

    /// The claim that has the user ID.
    pub(super) fn claim(&self) -> &str {
        &self.jwt.claim
    }

    /// The current keys. `None`: no key set of the provider was read so far, or the last one is too old.
    pub(super) fn keys(&self) -> Option<CurrentKeys> {
        match &self.keys {
            TokenKeys::File(file) => Some(file.current()),
            TokenKeys::Set(set) => set.current(),
        }
    }

    /// Rereads a file if it has changed.
    pub(super) fn reload_keys_if_changed(&self) {
        if let TokenKeys::File(file) = &self.keys {
            file.reload_if_changed();
        }
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
        let decoded = decoded.map_err(|error| match error {
            TokenError::NoKey | TokenError::Signature if self.may_be_of_new_key(token) => {
                let is_known = header.kid.as_deref().is_some_and(|id| keys.keys.has_id(id));
                if is_known { TokenError::OtherKey } else { TokenError::UnknownKey }
            }
            error => error,
        })?;
        let valid_until = decoded.claims.get("exp").and_then(seconds).unwrap_or(0).saturating_add(LEEWAY);
        let claims = Arc::new(TokenClaims::new(decoded.claims));
        let user = claims.get(&self.jwt.claim).and_then(|name| user_name(name.as_bytes()));
        Ok(VerifiedToken { identity: TokenIdentity { user, claims }, valid_until })
    }

    /// Whether a key that the provider has added since could verify `token`, which none of the known ones does. Tokens of
    /// other providers, for other services, and expired ones are no reason to fetch the keys.
    fn may_be_of_new_key(&self, token: &[u8]) -> bool {
        if self.key_set().is_none() {
            return false;
        }
        let Ok(claims) = insecure_decode_claims::<Map<String, Value>>(token) else { return false };
        let is_in_time = claims
            .get("exp")
            .and_then(seconds)
            .is_some_and(|expiry| expiry.saturating_add(LEEWAY) > unix_seconds());
        let issuer = claims.get("iss").and_then(Value::as_str);
        let is_for = |audience: &str| match claims.get("aud") {
            Some(Value::String(only)) => only == audience,
            Some(Value::Array(all)) => all.iter().any(|each| each.as_str() == Some(audience)),
            _ => false,
        };
        is_in_time
            && self.jwt.issuer.as_deref().is_none_or(|expected| issuer == Some(expected))
            && self.jwt.audience.as_deref().is_none_or(is_for)
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
