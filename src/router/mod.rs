//! The route of a request: [`Target`] parses the request target (RFC 9112, 3.2), [`Router`] finds its route.
//!
//! The upstream gets the path as the client wrote it, since clients may sign it. Only dot segments are resolved first,
//! unless the route passes them on. Origins differ in their interpretation of a path: some take `%2F` or `\` for a
//! slash, some merge `//`, some drop `;parameters`. A request whose route would depend on that is rejected, so that no
//! spelling of a path bypasses the policies of its route.

mod conditions;
mod host;
mod interpretation;
mod normalization;
mod path_rewrite;
mod pattern;
mod rejection;
mod request_values;
mod route_table;
mod target;

pub use conditions::{Mismatch, RequestParts, RoutedDescriptor};
pub use host::Host;
pub use path_rewrite::{Captures, assembled_path};
pub use rejection::Rejection;
pub use request_values::{cookies, preflight_method, query_values};
pub use route_table::{IgnoredDifferences, RouteExplanation, Router};
pub use target::{Target, encode_target};
