//! `api_keys`, `plans`.

pub(in crate::config) mod checks;
pub(in crate::config) mod keys_file;
pub(in crate::config) mod plans;
pub(in crate::config) mod settings;
