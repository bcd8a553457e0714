//! Checks over several settings: one file for each.

pub(super) mod ban_rules;
pub(super) mod certificates;
pub(super) mod foreign_limits;
pub(super) mod large_keys;
pub(super) mod policy_contradictions;
pub(super) mod redis;
pub(super) mod unreachable_limits;
