//! Configuration: reads `proxy.yaml`, checks and resolves it, or reports every error in it with its location.
//!
//! A file goes through four steps:
//!
//! - `yaml` parses the text into a tree in which every node has its location;
//! - `reader` walks that tree, interpolates `${…}`, and collects all errors;
//! - `value` parses single values: a duration, a rate, an address, a pattern;
//! - the topics know the settings, and `root` builds the [`Config`] of them.
//!
//! | topic | settings |
//! | --- | --- |
//! | `routes` | `routes`, and their defaults at the top level |
//! | `upstreams` | `upstreams` |
//! | `policies` | `policies` |
//! | `request_values` | `values`, and `allow_values` of routes and plans |
//! | `listeners` | `listeners`, `admin`, `client_limits`, and the fields that clients and upstreams get |
//! | `identity` | `user`, and which addresses may send requests |
//! | `keys` | `api_keys`, `plans` |
//! | `store` | `store` |
//! | `abuse` | `abuse`, `bans` |
//! | `history` | `history`, `alerts` |
//! | `telemetry` | `access_log`, `log`, `tracing` |
//!
//! In each, `settings` declares the settings of the file and the types that the crate reads, `resolve` converts the first to
//! the second where they differ, and `checks` reports contradictions. The module `checks` compares topics with each other.
//!
//! [`settings`] describes each setting for people and for editors.
//!
//! Outside of this module, only `convert` sees YAML; the rest of the crate knows [`model`] only.

mod abuse;
pub mod argument;
mod checks;
mod errors;
mod foreign;
mod history;
mod identity;
mod inserted;
mod interpolate;
mod keys;
mod listeners;
mod load;
pub mod model;
mod nearest;
mod policies;
mod reader;
mod redact;
mod request_values;
mod resolved;
mod root;
mod routes;
mod secret_places;
pub mod settings;
mod store;
mod telemetry;
mod upstreams;
mod value;
mod written;
pub(crate) mod yaml;

pub use errors::{Errors, FileLocation, Problem, Warnings};
pub use foreign::{ForeignProxy, foreign_proxy, is_of_tollgate};
pub use interpolate::{Lookup, SystemLookup};
pub use load::{load, load_from_stdin, load_with_warnings, parse, parse_with_warnings};
pub use model::Config;
pub use reader::Purpose;
