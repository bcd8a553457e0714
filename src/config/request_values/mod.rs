//! `values`: parts of a request that have names; and `allow_values` of routes and plans.

pub(in crate::config) mod checks;
pub(in crate::config) mod resolve;
pub(in crate::config) mod settings;
