//! Checks over several settings: one file for each.

pub(super) mod certificates;
pub(super) mod endpoint_schemes;
pub(super) mod redis;
