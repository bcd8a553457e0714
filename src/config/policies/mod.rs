//! `policies`: limits, what they count, and what a request costs.

pub(in crate::config) mod algorithm;
pub(in crate::config) mod calendar;
pub(in crate::config) mod checks;
pub(in crate::config) mod cost;
pub(in crate::config) mod denial_reply;
pub(in crate::config) mod foreign_limits;
pub(in crate::config) mod limits;
pub(in crate::config) mod overrides;
pub(in crate::config) mod resolve;
pub(in crate::config) mod resolve_cost;
pub(in crate::config) mod settings;
