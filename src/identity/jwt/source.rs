//! One place in which tokens are found, and by what they are verified.

use std::sync::Arc;

use http::HeaderName;
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use serde_json::{Map, Value};

use super::{
    Verified,
    doubt::Doubt,
    file::{Current, KeyFile, UnusableKeys},
};
use crate::{
    config::model::Jwt,
    identity::{claims::Claims, field::user_name},
};

/// How far clocks may differ, in seconds.
pub(super) const LEEWAY: u64 = 60;

/// A configured source of tokens.
pub(super) struct Source {
    jwt: Jwt,
    file: KeyFile,
}

/// A token that was verified.
pub(super) struct Found {
    pub(super) verified: Verified,
    /// The last second in which it counts.
    pub(super) until: u64,
}

impl Source {
    pub(super) fn new(jwt: Jwt) -> Result<Self, UnusableKeys> {
        let file = KeyFile::open(jwt.key.clone(), jwt.algorithm)?;
        Ok(Self { jwt, file })
    }

    /// Where tokens stand.
    pub(super) fn field(&self) -> &HeaderName {
        &self.jwt.header
    }

    /// The claim that is the user ID.
    pub(super) fn claim(&self) -> &str {
        &self.jwt.claim
    }

    /// The keys that hold now.
    pub(super) fn keys(&self) -> Current {
        self.file.current()
    }

    pub(super) fn look_at_file(&self) {
        self.file.look();
    }

    /// What `token` says, if one of `keys` has signed it and it counts now.
    ///
    /// # Errors
    /// Why it does not count.
    pub(super) fn verify(&self, token: &[u8], keys: &Current) -> Result<Found, Doubt> {
        let header = decode_header(token).map_err(|_| Doubt::Malformed)?;
        // What must be understood is not (RFC 7515, 4.1.11).
        if header.crit.is_some() {
            return Err(Doubt::Critical);
        }
        let mut doubt = Doubt::NoKey;
        let said = keys.keys.named(header.kid.as_deref()).filter(|key| key.algorithm == header.alg).find_map(
            |key| match decode::<Map<String, Value>>(token, &key.key, &self.validation(key.algorithm)) {
                Ok(said) => Some(said),
                Err(error) => {
                    doubt = Doubt::of(error.kind());
                    None
                }
            },
        );
        let said = said.ok_or(doubt)?;
        let until = said.claims.get("exp").and_then(seconds).unwrap_or(0).saturating_add(LEEWAY);
        let claims = Arc::new(Claims::new(said.claims));
        let user = claims.get(&self.jwt.claim).and_then(|name| user_name(name.as_bytes()));
        Ok(Found { verified: Verified { user, claims }, until })
    }

    /// What must hold of a token that this algorithm has signed.
    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        // The library looks at what is there; what is asked for must be.
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
            // Nobody said who we are, so that it may be meant for us.
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
