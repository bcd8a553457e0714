//! Walks the tree, reads its values, and collects every error on the way.

mod cursor;
mod mapping;
mod other_name;
mod slips;

pub(super) use cursor::{Cursor, Findings, NamedEntry, ReadContext};
pub(super) use mapping::{MappingCursor, NameTable};
pub(super) use other_name::OtherName;
