//! Users from JSON Web Tokens (RFC 7519). An invalid or expired token names no user.

mod cache;
mod key_file;
mod key_set;
mod token;
mod token_source;
mod verifier;

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

pub use key_file::UnusableKeys;
pub use key_set::KeySetTiming;
pub use token::{TokenClaims, TokenError, TokenRefusal};
pub use verifier::Verifier;

use crate::jwt_keys::JwtKeys;

/// The keys that verify tokens now, and how often they were replaced.
#[derive(Clone)]
struct CurrentKeys {
    keys: Arc<JwtKeys>,
    generation: u64,
}

/// The system time, which tokens refer to.
fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
