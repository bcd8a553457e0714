//! `/v1/bans`: who is shut out, shutting somebody out, and letting him in again.

pub(super) mod cursor;
pub(super) mod give;
pub(super) mod lift;
pub(super) mod list;
