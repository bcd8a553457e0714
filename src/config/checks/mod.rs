//! Checks over several settings: one file for each.

pub(super) mod api_keys_file;
pub(super) mod ban_rules;
pub(super) mod calendar_windows;
pub(super) mod certificates;
pub(super) mod denied_addresses;
pub(super) mod doubtful_paths;
pub(super) mod endpoint_schemes;
pub(super) mod foreign_limits;
pub(super) mod ineffective_limits;
pub(super) mod key_limits;
pub(super) mod large_keys;
pub(super) mod policy_contradictions;
pub(super) mod redis;
pub(super) mod route_actions;
pub(super) mod route_coverage;
pub(super) mod spoofable_headers;
pub(super) mod unreachable_limits;
pub(super) mod unreachable_routes;
pub(super) mod unserved_listeners;
