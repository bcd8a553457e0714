//! Builds a policy from its settings.

use std::{sync::Arc, time::Duration};

use http::StatusCode;

use super::{
    algorithm::{self, AlgorithmSettings},
    cost::{self, CostSettings},
    exceptions::{self, exempt},
    keys, limits,
    memory::{self, StoreMemory},
    reply::reply,
    unreachable_tiers,
};
use crate::config::{
    Location,
    model::{Missing, Mode, OnStoreError, Policy, Record},
    reader::{Cursor, MappingCursor, NameTable},
    section::{MIN_DURATION, user::IdentitySources},
    settings,
    value::{MAX_DURATION, boolean, choice, count, duration, resource_name},
};

/// All policies. `resolved` is `None` if one is invalid.
pub(in crate::config::section) struct Policies<'t> {
    pub(in crate::config::section) names: NameTable<'t>,
    pub(in crate::config::section) resolved: Option<Vec<Arc<Policy>>>,
    /// In the order of the names: where each is named, and what it consists of.
    pub(in crate::config::section) cursors: Vec<(Location, Cursor<'t>)>,
}

const ON_STORE_ERROR: [(&str, OnStoreError); 3] =
    [("local", OnStoreError::Local), ("allow", OnStoreError::Allow), ("deny", OnStoreError::Deny)];

/// Reads all policies.
pub(in crate::config::section) fn policies<'t>(
    value: Option<Cursor<'t>>,
    identity: IdentitySources,
    store: &StoreMemory,
) -> Policies<'t> {
    let entries = value.and_then(Cursor::named_entries).unwrap_or_default();
    let names = entries.iter().map(|(_, name, _)| *name).collect();
    let cursors = entries.iter().map(|(location, _, value)| (*location, *value)).collect();
    let mut all = Vec::new();
    for (location, name, value) in entries {
        if let Err(invalid) = resource_name(name) {
            value.report_at(location, format!("`{name}` {}", invalid.reason), invalid.help(false));
        }
        let mapping = value.mapping_such_as("{ algorithm: sliding_window, key: ip, limit: 100/1m }");
        let mapping = mapping.map(|mapping| mapping.of(&settings::POLICY).knowing("policies.*"));
        let limit = mapping.as_ref().and_then(|mapping| mapping.key_location("limit"));
        let policy = mapping.and_then(|mapping| policy(name, mapping, identity)).map(Arc::new);
        if let Some(policy) = &policy {
            memory::warn(value, limit, policy, store);
        }
        all.push(policy);
    }
    Policies { names: NameTable::new("policy", names), resolved: all.into_iter().collect(), cursors }
}

fn policy(name: &str, mut mapping: MappingCursor<'_>, identity: IdentitySources) -> Option<Policy> {
    let kind = algorithm::kind(&mut mapping);
    let keys = mapping
        .require("key", "what to limit by, such as `key: ip` or `key: [ip, user]`")
        .map(|value| keys::keys(value, identity));
    let missing = choice(&[("skip", Missing::Skip), ("ip", Missing::Ip), ("deny", Missing::Deny)]);
    let missing = mapping.parse_or("missing", Missing::Skip, missing);
    let settings = AlgorithmSettings::read(&mut mapping, kind);
    let value = keys::distinct_value(&mut mapping, kind, keys.as_deref(), identity);
    let tiers = limits::tiers(&mut mapping, kind, settings);
    let algorithm = kind.zip(tiers.as_deref()).map(|(kind, tiers)| settings.complete(kind, tiers));
    let limits = algorithm.zip(tiers.as_deref());
    let CostSettings { cost, count, count_denied, slice } =
        cost::cost_settings(&mut mapping, kind, settings, limits, identity);
    let mode = choice(&[("enforce", Mode::Enforce), ("shadow", Mode::Shadow)]);
    let mode = mapping.parse_or("mode", Mode::Enforce, mode);
    let preflight = mapping.parse_or("preflight", false, boolean);
    let exempt = exempt(mapping.take("exempt"), identity);
    let (limits_value, overrides_value) = (mapping.take("limits"), mapping.take("overrides"));
    let overrides = exceptions::overrides(overrides_value, kind, settings, &cost, slice > 0.0, identity);
    let on_store_error = mapping.parse_or("on_store_error", OnStoreError::Local, choice(&ON_STORE_ERROR));
    let record = record(mapping.take("record"));
    let reply = mapping.take("reply").and_then(|value| reply(value, StatusCode::TOO_MANY_REQUESTS));
    mapping.finish();
    let policy = Policy {
        missing,
        value: value?,
        count,
        on_store_error,
        record,
        cost,
        mode,
        count_denied,
        preflight,
        slice,
        exempt,
        overrides,
        reply,
        ..Policy::new(name, algorithm?, keys?, tiers?)
    };
    unreachable_tiers::warn(limits_value, overrides_value, &policy);
    Some(policy)
}

fn record(value: Option<Cursor<'_>>) -> Record {
    let default = Record { keep: 50, retain: Duration::from_secs(60 * 60) };
    let Some(mapping) = value.and_then(Cursor::mapping) else { return default };
    let mut mapping = mapping.of(&settings::RECORD);
    let record = Record {
        keep: mapping.parse_or("keep", default.keep, count(0..=1_000)),
        retain: mapping.parse_or("for", default.retain, duration(MIN_DURATION..=MAX_DURATION)),
    };
    mapping.finish();
    record
}
