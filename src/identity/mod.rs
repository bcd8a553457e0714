//! Who a request comes from, and what it is counted under.
//!
//! [`TrustedProxies`] tells the client's address, [`identify`] the user; [`Facts`] gathers these and the
//! rest of what identifies a request, and [`identifiers`] makes of them what a policy limits:
//! `ip:203.0.113.7`, `user:acme`, `ip:203.0.113.7+path:/login`.

mod address;
mod address_field;
mod claims;
mod condition;
mod cookie;
mod doubt;
mod encode;
mod field;
mod identifier;
mod identifiers;
mod jwt;
pub mod keys;
mod trusted_proxies;
mod user;

pub use address::address_text;
pub use claims::Claims;
pub use condition::applies;
pub use doubt::doubt;
pub use identifier::{Facts, identifier};
pub use identifiers::{Identifiers, MissingIdentifier, identifiers, value};
pub use jwt::{Doubt, UnusableKeys, Verifier};
pub use trusted_proxies::{Hop, TrustedProxies};
pub use user::{Identity, identify, identify_telling};
