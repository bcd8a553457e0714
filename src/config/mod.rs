//! Configuration: what `proxy.yaml` says, checked and resolved, or every error in it with its place.
//!
//! A file goes through four steps, a module each:
//!
//! - `yaml` reads the text into a tree that knows where each word stands;
//! - `reader` goes through that tree, inserts what `${…}` asks for, and collects errors without stopping;
//! - `value` types single words: a duration, a rate, an address, a pattern;
//! - `section` knows the settings, and makes the [`Config`] of them.
//!
//! Nothing outside this module sees YAML; the rest of the crate knows [`model`] only.

mod errors;
mod interpolate;
mod load;
pub mod model;
mod nearest;
mod reader;
mod redact;
mod section;
mod value;
mod yaml;

pub use errors::{Errors, Location, Problem, Warnings};
pub use interpolate::{Lookup, SystemLookup};
pub use load::{load, load_with_warnings, parse, parse_with_warnings};
pub use model::Config;
