//! What the history of one configuration is told apart by: the names of its routes and policies, and its time zones.

use std::collections::BTreeSet;

use compact_str::CompactString;
use jiff::tz;

use crate::{
    abuse::bans::{LadderRule, MANUAL},
    config::model::{Config, History, TimeZone},
    limit::Policy,
};

/// The name under which values, and users who are not verified, are counted together.
pub(super) const OTHER: &str = "(other)";
/// Users who are not verified.
pub const UNVERIFIED: &str = "(unverified)";
/// A batch that names several values.
pub const SEVERAL: &str = "(several)";

/// What the history of one configuration is told apart by.
#[derive(Debug)]
pub struct HistoryPlan {
    /// In the configuration's order.
    pub(super) routes: Vec<CompactString>,
    /// In the configuration's order.
    pub(super) policies: Vec<NamedPolicy>,
    /// The rules of bans, in their order, and bans by operators.
    pub(super) bans: Vec<CompactString>,
    /// In which days are told apart. Never empty. The first is the one of questions that name none.
    pub(super) zones: Vec<Zone>,
    pub(super) counts_customers: bool,
    pub(super) counts_users: bool,
    /// The value that tells usage apart.
    pub(super) value: Option<String>,
}

/// A policy, and the texts of its limits.
#[derive(Debug)]
pub(super) struct NamedPolicy {
    pub(super) name: CompactString,
    /// Of each variant, each tier: `60/1m`.
    pub(super) limits: Vec<Vec<CompactString>>,
}

/// A time zone, by its name.
#[derive(Debug, Clone)]
pub(super) struct Zone {
    pub(super) name: String,
    pub(super) zone: tz::TimeZone,
}

impl HistoryPlan {
    /// `policies`: those of `config`, resolved.
    pub fn new(config: &Config, policies: &[Policy], history: &History) -> Self {
        let rules = LadderRule::from_config(config.bans.iter().map(AsRef::as_ref));
        let has_model = || config.values.iter().any(|value| value.name == "model");
        let limits = |policy: &Policy| {
            let of_variant = |variant: &Policy| variant.limits().map(Into::into).collect();
            policy.variants().map(of_variant).collect()
        };
        Self {
            routes: config.routes.iter().map(|route| route.name.as_str().into()).collect(),
            policies: policies
                .iter()
                .map(|policy| NamedPolicy { name: policy.name.as_str().into(), limits: limits(policy) })
                .collect(),
            bans: rules.iter().map(|rule| (*rule.name).into()).chain([MANUAL.into()]).collect(),
            zones: zones(config),
            counts_customers: history.counts_customers(),
            counts_users: history.counts_users(),
            value: history.value.clone().or_else(|| has_model().then(|| "model".to_owned())),
        }
    }

    /// The time zones in which days are told apart. The first is the one of questions that name none.
    pub fn zone_names(&self) -> impl Iterator<Item = &str> {
        self.zones.iter().map(|zone| &*zone.name)
    }

    /// Whether usage is told apart by users.
    pub fn counts_users(&self) -> bool {
        self.counts_users
    }

    /// The value that tells usage apart.
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }
}

/// The time zones of the policies' calendars; UTC if there are none.
fn zones(config: &Config) -> Vec<Zone> {
    let mut seen = BTreeSet::new();
    let with_calendar = config.policies.iter().filter(|policy| policy.has_calendar());
    let named =
        with_calendar.map(|policy| &policy.calendar.time_zone).filter(|zone| seen.insert(zone.name()));
    let mut zones: Vec<Zone> =
        named.map(|zone| Zone { name: zone.name().to_owned(), zone: zone.0.clone() }).collect();
    if zones.is_empty() {
        zones.push(Zone { name: TimeZone::UTC.name().to_owned(), zone: tz::TimeZone::UTC });
    }
    zones
}
