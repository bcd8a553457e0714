//! The client and the user of a request, and the identifiers that it is counted by.
//!
//! [`TrustedProxies`] finds the client's address, and [`identify`] the user. [`RequestAttributes`] has both and all
//! other identifying attributes of a request, and [`identifiers`] derives from them the keys that a policy limits:
//! `ip:203.0.113.7`, `user:acme`, `ip:203.0.113.7+path:/login`.

mod access;
mod address;
mod condition;
mod encode;
mod forwarded_fields;
mod header_fields;
mod identifier;
mod jwt;
mod request_key;
mod trusted_proxies;
mod user;

pub use access::{AccessDenial, AccessRule, AccessRules, UnusableAddresses};
pub use address::AddressIdentifier;
pub use condition::condition_matches;
pub use header_fields::single_value;
pub use identifier::{
    Identifiers, MissingIdentifier, RequestAttributes, distinct_value, identifier, identifiers,
    user_identifier,
};
pub use jwt::{KeySetTiming, TokenClaims, TokenError, TokenRefusal, UnusableKeys, Verifier};
pub use request_key::RequestKeys;
pub use trusted_proxies::{ClientIp, ForwardedHop, TrustedProxies};
pub use user::{Credentials, Identity, RequestKeyFault, explain_failure, identify, identify_with};
