//! Walks over the tree that collect every error and go on.

mod cursor;
mod mapping;
mod names;
mod reader;

pub(super) use cursor::Cursor;
pub(super) use mapping::Mapping;
pub(super) use names::Names;
pub(super) use reader::Reader;
