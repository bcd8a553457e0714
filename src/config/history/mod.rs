//! `history`: what was used, and who was refused, kept for later. `alerts`: who is told of it at once.

pub(in crate::config) mod alerts;
pub(in crate::config) mod checks;
pub(in crate::config) mod settings;
