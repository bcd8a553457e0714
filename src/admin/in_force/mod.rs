//! What is in force: routes, upstreams, policies, and the configuration that they come from.

pub(super) mod config;
pub(super) mod policies;
pub(super) mod routes;
pub(super) mod upstreams;

use crate::config::model::Config;

/// The names of the policies with these indexes.
fn named(config: &Config, policies: &[usize]) -> Vec<String> {
    policies
        .iter()
        .filter_map(|&index| config.policies.get(index))
        .map(|policy| policy.name.clone())
        .collect()
}
