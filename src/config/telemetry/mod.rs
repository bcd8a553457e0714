//! `access_log`, `log`, `tracing`.

pub(in crate::config) mod settings;
