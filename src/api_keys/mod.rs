//! API keys: their format, their records, and the registry in which a request's key is looked up.
//!
//! Keys come from a file, and from the store, where operators make and change them. Only the SHA-256 of a key is kept.

mod key;
mod registry;
mod secret;

pub use key::{ApiKey, KeyField, KeySecret, KeyState};
pub use registry::{ApiKeys, KeyFault};
pub use secret::{KeyHash, MAX_KEY_LENGTH, MIN_KEY_LENGTH, NewKey, is_mistyped};
