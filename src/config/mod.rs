//! Configuration: reads `proxy.yaml`, checks and resolves it, or reports every error in it with its location.
//!
//! A file goes through four steps, a module each:
//!
//! - `yaml` parses the text into a tree in which every node has its location;
//! - `reader` walks that tree, interpolates `${…}`, and collects all errors;
//! - `value` parses scalars: a duration, a rate, an address, a pattern;
//! - `section` knows the settings, and builds the [`Config`].
//!
//! [`settings`] describes each setting for people and for editors.
//!
//! Outside of this module, only `convert` sees YAML; the rest of the crate knows [`model`] only.

pub mod argument;
mod checks;
mod errors;
mod foreign;
mod inserted;
mod interpolate;
mod load;
pub mod model;
mod nearest;
mod reader;
mod redact;
mod secret_places;
mod section;
pub mod settings;
mod value;
pub(crate) mod yaml;

pub use errors::{Errors, FileLocation, Problem, Warnings};
pub use foreign::{ForeignProxy, foreign_proxy};
pub use interpolate::{Lookup, SystemLookup};
pub use load::{load, load_from_stdin, load_with_warnings, parse, parse_with_warnings};
pub use model::Config;
pub use reader::Purpose;
