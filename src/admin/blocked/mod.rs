//! `/v1/blocked`: who was limited, who was behind it, and letting them go.

mod cursor;
mod evidence;
mod list;
mod unblock;

pub(super) use evidence::evidence;
pub(super) use list::list;
pub(super) use unblock::unblock;
