//! Walks the tree, reads its values, and collects every error on the way.

mod cursor;
mod foreign_name;
mod mapping;
mod slips;

pub(super) use cursor::{Cursor, Findings, ReadContext};
pub(super) use mapping::{MappingCursor, NameTable};
