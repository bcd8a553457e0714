//! Parses YAML into a tree in which every key and value has its location.
//!
//! Scalars are not typed here. `off`, `1.10` and `"${PORT}"` are all text, until a section parses them.

mod duplicates;
mod listing;
mod node;
mod parse;
mod quoting;

pub(super) use listing::read_listing;
pub(crate) use node::{Key, Node, NodeKind};
pub(crate) use parse::{Document, parse};
