//! `/v1/blocked`: who was limited, who was behind it, and letting them go.

mod cursor;
mod evidence;
mod list;
mod unblock;

pub(super) use cursor::Sort;
pub(super) use evidence::{evidence, found};
pub(super) use list::{Wanted, list, listed};
pub(super) use unblock::unblock;
