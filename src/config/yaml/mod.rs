//! YAML text as a tree in which every key and value knows its place.
//!
//! Nothing is typed here: a word is what stands in the file, quoted or not, so that `off`, `1.10` and
//! `"${PORT}"` are all text until something knows what they should be.

mod duplicates;
mod node;
mod parse;
mod quoting;

pub(super) use node::{Key, Node, NodeKind};
pub(super) use parse::parse;
