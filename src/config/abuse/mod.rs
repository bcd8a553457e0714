//! `abuse`, `bans`: records of limited clients, and bans.

pub(in crate::config) mod checks;
pub(in crate::config) mod resolve;
pub(in crate::config) mod settings;
