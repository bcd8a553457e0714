//! Makes the policies of their settings.

use std::sync::Arc;

use http::StatusCode;

use crate::config::{
    FileLocation,
    checks::{
        key_limits,
        large_keys::{self, StoreMemory},
    },
    identity::settings::IdentitySources,
    keys::{
        plans,
        plans::PlanLimits,
        settings::{ATTEMPTS_POLICY, ApiKeySettings, DEFAULT_ATTEMPTS},
    },
    policies::{
        algorithm::Algorithm,
        calendar::Calendar,
        checks,
        cost::Cost,
        denial_reply::DenialReply,
        limits::{self, complete},
        overrides::{exempt, overrides},
        resolve_cost::cost,
        settings::{CountedResponses, Policy, PolicySettings, ReadPolicies},
    },
    reader::{Cursor, MappingCursor, NameTable},
    request_values::resolve::ReadValues,
    settings::{Read, opened},
    store::settings::StoreSettings,
    value::{
        key::{KeyPart, KeyRecipe},
        key_recipe, resource_name, suggest_key,
    },
};

/// Reads all policies. If `limits_attempts`, the one that limits failed credentials comes last.
pub(in crate::config) fn policies<'t>(
    value: Option<Cursor<'t>>,
    (identity, values): (IdentitySources, &ReadValues<'_>),
    plans: &[PlanLimits<'t>],
    api_keys: Option<&ApiKeySettings>,
    limits_attempts: bool,
    store: &StoreSettings,
) -> ReadPolicies<'t> {
    let entries = value.and_then(Cursor::named_entries).unwrap_or_default();
    let configured: Vec<&str> = entries.iter().map(|(_, name, _)| *name).collect();
    let cursors: Vec<_> = entries.iter().map(|(location, _, value)| (*location, *value)).collect();
    let memory = StoreMemory::new(store);
    let mut all = Vec::new();
    for (location, name, value) in entries {
        if let Err(invalid) = resource_name(name) {
            value.report_at(location, format!("`{name}` {}", invalid.reason), invalid.help(false));
        }
        if name == plans::ALLOW_VALUES {
            let message = "`allow_values` is a setting of plans, which name policies, too";
            value.report_at(location, message, "choose another name".to_owned());
        }
        let mapping = opened::<PolicySettings<'_>>(value);
        let limit = mapping.as_ref().and_then(|mapping| mapping.key_location("limit"));
        let policy =
            mapping.and_then(|mapping| policy(name, mapping, (identity, values), plans)).map(Arc::new);
        if let Some(policy) = &policy {
            large_keys::warn(value, limit, policy, &memory);
            if let Some(api_keys) = api_keys {
                key_limits::warn(value, policy, api_keys);
            }
            checks::warn_of_calendar_windows(value, policy, store);
        }
        all.push(policy);
    }
    let (mut names, mut counted) = (NameTable::new("policy", configured.clone()), configured);
    if limits_attempts {
        if let Some(nth) = counted.iter().position(|name| *name == ATTEMPTS_POLICY) {
            let (location, value): (FileLocation, Cursor<'_>) = cursors[nth];
            let message = "`api_keys` is the policy that limits wrong API keys and tokens";
            value.report_at(location, message, "choose another name".to_owned());
        } else {
            let reason = "limits wrong API keys and tokens by itself, and only `bans` may name it";
            names = names.except(ATTEMPTS_POLICY, reason);
            counted.push(ATTEMPTS_POLICY);
            all.push(Some(attempts_policy(api_keys)));
        }
    }
    let counted = NameTable::new("policy", counted);
    ReadPolicies { names, counted, resolved: all.iter().cloned().collect(), read: all, cursors }
}

fn policy(
    name: &str,
    mut mapping: MappingCursor<'_>,
    (identity, values): (IdentitySources, &ReadValues<'_>),
    plans: &[PlanLimits<'_>],
) -> Option<Policy> {
    let settings = PolicySettings::fields(&mut mapping)?;
    let kind = settings.algorithm;
    let keys = settings.key.map(|value| keys(value, identity, values));
    let value = distinct_value(&mapping, &settings, keys.as_deref(), (identity, values));
    let tiers = limits::tiers(&mut mapping, settings.limit, settings.limits, &settings);
    checks::report_contradictions(&mapping, &settings, tiers.as_deref());
    let algorithm =
        kind.zip(tiers.as_deref()).map(|(kind, tiers)| complete(kind, &settings, settings.burst, tiers));
    let limits = algorithm.zip(tiers.as_deref());
    let counts_units = !kind.is_some_and(Algorithm::counts_members);
    let cost = settings.cost.filter(|_| counts_units).and_then(|value| cost(value, kind, limits, identity));
    let cost = cost.unwrap_or(Cost::Fixed(1));
    let count = settings.count.filter(|_| counts_units).and_then(CountedResponses::read);
    let exempt = exempt(settings.exempt.exempt, identity);
    let mut overrides = overrides(&settings, &cost, keys.as_deref(), (identity, values));
    let (of_plans, unlimited) = plans::limits(name, plans, &settings, &cost, tiers.as_deref());
    overrides.extend(of_plans);
    let reply = settings.reply.and_then(|value| DenialReply::read(value, StatusCode::TOO_MANY_REQUESTS));
    mapping.finish();
    Some(Policy {
        missing: settings.missing,
        value: value?,
        count,
        on_store_error: settings.on_store_error,
        record: settings.record,
        cost,
        mode: settings.mode,
        count_denied: settings.count_denied,
        preflight: settings.preflight,
        overdraw: settings.overdraw,
        slice: settings.slice,
        exempt,
        overrides,
        unlimited,
        reply,
        calendar: Calendar { time_zone: settings.time_zone, reset_day: settings.reset_day },
        ..Policy::new(name, algorithm?, keys?, tiers?)
    })
}

/// One key, or a list of keys that are limited independently.
fn keys(value: Cursor<'_>, identity: IdentitySources, values: &ReadValues<'_>) -> Vec<KeyRecipe> {
    let key = |item| known_key(item, (identity, values));
    if value.scalar().is_some() || value.is_mapping() {
        return key(value).into_iter().collect();
    }
    let keys = value.unique_items(key);
    if value.is_empty_list() {
        value
            .report("a policy needs a key", "to limit all requests together, write `key: global`".to_owned());
    }
    keys
}

/// One key of a policy.
fn known_key(item: Cursor<'_>, (identity, values): (IdentitySources, &ReadValues<'_>)) -> Option<KeyRecipe> {
    let key = key(item, identity)?;
    values.check_key(item, &key);
    Some(key)
}

/// One key, of a policy, of `balance` or of `split_by`. Reports parts that no request can have.
pub(in crate::config) fn key(item: Cursor<'_>, identity: IdentitySources) -> Option<KeyRecipe> {
    if let Some((kind, name)) = item.only_entry().filter(|(_, value)| !value.is_null()) {
        let written = format!("{kind}:{}", name.scalar().unwrap_or("NAME"));
        let help = suggest_key(&written).map(|key| format!("did you mean `\"{key}\"`?"));
        item.report("expected a single value, not a mapping", help);
        return None;
    }
    let key = item.parse(key_recipe)?;
    if !identity.has_users && key.0.contains(&KeyPart::User) {
        let help = "set where the user ID comes from: `user` at the top level";
        item.report("no request has a user ID, because `user` is not configured", help.to_owned());
    }
    if !identity.has_tokens && key.0.iter().any(|part| matches!(part, KeyPart::Jwt(_))) {
        let help = "configure the token and its key under `user`: `- jwt: { key: { file: FILE }, algorithm: RS256 }`";
        item.report("no request has claims, because no token is verified", help.to_owned());
    }
    if key.0.iter().any(|part| matches!(part, KeyPart::OfKey(_))) {
        identity.report_without_api_keys(item);
    }
    if key.0.iter().any(|part| matches!(part, KeyPart::Tls(_))) {
        identity.warn_without_client_certificates(item);
    }
    Some(key)
}

/// The value of a request that `distinct` counts. The outer `None`: it is missing or wrong.
fn distinct_value(
    mapping: &MappingCursor<'_>,
    settings: &PolicySettings<'_>,
    keys: Option<&[KeyRecipe]>,
    known: (IdentitySources, &ReadValues<'_>),
) -> Option<Option<KeyRecipe>> {
    let kind = settings.algorithm;
    if kind.is_some_and(|kind| kind != Algorithm::Distinct) {
        return Some(None);
    }
    if kind.is_some() {
        mapping.report_if_missing("value", "the part of a request to count, such as `value: user`");
    }
    let value = settings.value?;
    let recipe = known_key(value, known)?;
    if keys.is_some_and(|keys| keys.contains(&recipe)) {
        let help = "with `key: ip`, `value: user` counts the users behind an address".to_owned();
        value.report("this is also the key, so there would only ever be one value", help);
    }
    Some(Some(recipe))
}

/// The policy that limits failed credentials, by address. `None`: only tokens may fail.
pub(in crate::config) fn attempts_policy(settings: Option<&ApiKeySettings>) -> Arc<Policy> {
    let attempts = settings.map_or(DEFAULT_ATTEMPTS, |settings| settings.attempts);
    let keys = vec![KeyRecipe(vec![KeyPart::Ip])];
    let algorithm = Algorithm::SlidingWindow { buckets: 10 };
    Arc::new(Policy::new(ATTEMPTS_POLICY, algorithm, keys, vec![attempts]))
}
