//! The keys by which tokens are verified.

use super::Invalid;
use crate::{config::model::JwtAlgorithm, identity::keys::Keys};

/// Checks a file of keys as whoever verifies by it will read it.
pub(in crate::config) fn token_key(algorithm: Option<JwtAlgorithm>) -> impl Fn(&[u8]) -> Result<(), Invalid> {
    move |bytes| match Keys::read(bytes, algorithm) {
        Ok(_) => Ok(()),
        Err(error) => {
            let invalid = Invalid::new(error.to_string());
            Err(match error.form() {
                Some(form) => invalid.form(form),
                None => invalid,
            })
        }
    }
}
