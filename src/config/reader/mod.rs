//! Walks the tree, reads its values, and collects every error on the way.

mod context;
mod cursor;
mod foreign_name;
mod mapping;
mod slips;

pub use context::Purpose;
pub(super) use context::{Findings, ReadContext};
pub(super) use cursor::{Cursor, NamedEntry};
pub(super) use mapping::{MappingCursor, NameTable};
