//! `/v1/blocked`: who was limited, who was behind it, and letting them go.

pub(super) mod evidence;
pub(super) mod list;
pub(super) mod unblock;

mod cursor;

pub(super) use evidence::found;
pub(super) use list::{Wanted, listed};

pub(super) use crate::abuse::Sort;
