//! The names by which metrics count: routes, policies, upstreams and bans of one configuration.

use crate::config::model::Config;

/// Maximum number of names of each kind that are kept although no longer configured; the oldest are dropped.
pub(super) const MAX_RETIRED_NAMES: usize = 1_000;

/// The name for bans that an operator issued.
const MANUAL_BAN: &str = "ban";

/// The names of a configuration, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MetricNames {
    pub(super) routes: Vec<String>,
    pub(super) policies: Vec<String>,
    pub(super) upstreams: Vec<String>,
    /// Rules, then the name for manual bans.
    pub(super) bans: Vec<String>,
}

impl MetricNames {
    pub(super) fn from_config(config: &Config) -> Self {
        let rules = config.bans.iter().map(|rule| format!("bans.{}", rule.name));
        Self {
            routes: config.routes.iter().map(|route| route.name.clone()).collect(),
            policies: config.policies.iter().map(|policy| policy.name.clone()).collect(),
            upstreams: config.upstreams.iter().map(|upstream| upstream.name.clone()).collect(),
            bans: rules.chain([MANUAL_BAN.to_owned()]).collect(),
        }
    }
}
