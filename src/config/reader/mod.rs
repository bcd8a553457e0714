//! Reads the values of the tree, and collects every error on the way.

mod cursor;
mod mapping;

pub(super) use cursor::{Cursor, Reader};
pub(super) use mapping::{Mapping, Names};
