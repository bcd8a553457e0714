//! Users from JSON Web Tokens (RFC 7519). A token that is not valid now names no user.

mod cache;
mod key_file;
mod token;
mod token_source;
mod verifier;

pub use key_file::UnusableKeys;
pub use token::{Claims, TokenError};
pub use verifier::Verifier;
