//! `/v1/blocked`: who was limited, who was behind it, and letting them go.

pub(super) mod evidence;
pub(super) mod list;
pub(super) mod unblock;

mod cursor;
