//! Users from JSON Web Tokens (RFC 7519). An invalid or expired token names no user.

mod cache;
mod key_file;
mod token;
mod token_source;
mod verifier;

pub use key_file::UnusableKeys;
pub use token::{TokenClaims, TokenError};
pub use verifier::Verifier;
