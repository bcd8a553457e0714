//! `history`: what was used, and who was refused, kept for later.

pub(in crate::config) mod checks;
pub(in crate::config) mod settings;
