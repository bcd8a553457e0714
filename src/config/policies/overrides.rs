//! `exempt` and `overrides`: clients without a limit, or with other limits.

use crate::config::{
    identity::settings::IdentitySources,
    policies::{
        checks::report_foreign_setting,
        cost::Cost,
        limits::{complete, max_admissible, tiers},
        resolve_cost::{never_admitted, warn_above},
        settings::{Override, OverrideSettings, PolicySettings},
    },
    reader::Cursor,
    request_values::resolve::ReadValues,
    settings::{Read, opened},
    value::{
        certificate_field, condition, condition_with_key, field_name,
        key::{Condition, KeyRecipe},
        printable_text,
    },
};

/// Clients that a policy or a ban does not apply to.
pub(in crate::config) fn exempt(value: Option<Cursor<'_>>, identity: IdentitySources) -> Vec<Condition> {
    let Some(list) = value else { return Vec::new() };
    list.unique_items(|item| {
        let condition = hidden_if(item, item.parse(condition)?);
        report_unverifiable(item, &condition, identity);
        Some(condition)
    })
}

/// Other limits for some clients. `settings`, `cost` and `keys`: of the policy.
pub(in crate::config) fn overrides(
    settings: &PolicySettings<'_>,
    cost: &Cost,
    keys: Option<&[KeyRecipe]>,
    known: (IdentitySources, &ReadValues<'_>),
) -> Vec<Override> {
    let Some(list) = settings.overrides else { return Vec::new() };
    let mut all: Vec<Override> = Vec::new();
    for item in list.list().unwrap_or_default() {
        let Some(other) = read_override(item, settings, keys, known) else { continue };
        if all.iter().any(|earlier| earlier.condition == other.condition) {
            item.report("an earlier override has the same condition, so this one never applies", None);
        } else if all.iter().any(|earlier| covers(&earlier.condition, &other.condition)) {
            let help = "put it before the wider one: the first that matches applies".to_owned();
            item.warn("an earlier override has all of these requests, so this one never applies", help);
        }
        check_limits(item, &other, settings, cost);
        all.push(other);
    }
    all
}

/// Reports limits that do not fit the rest of the policy.
pub(in crate::config) fn check_limits(
    item: Cursor<'_>,
    other: &Override,
    settings: &PolicySettings<'_>,
    cost: &Cost,
) {
    let most = max_admissible(other.algorithm, &other.tiers);
    if default_cost(cost) > most.0 {
        let help = never_admitted(most).help(false);
        let message =
            "the policy's cost is more than these limits allow, so no request would ever be admitted";
        item.report(message, help);
    }
    if let Cost::Header { max, .. } = cost {
        warn_above(item, *max, most);
    }
    if settings.slice > 0.0 && other.tiers.iter().any(|tier| tier.window.calendar().is_some()) {
        let help = "remove one of the two".to_owned();
        item.report("`slice` does not work with windows of the calendar", help);
    }
    if settings.slice > 0.0 && other.tiers.len() > 1 {
        let help = "set a single limit here as well".to_owned();
        item.report("`slice` works only for a policy with a single limit", help);
    }
}

/// Whether each request that meets `other` meets `one`, too, which is another condition.
fn covers(one: &Condition, other: &Condition) -> bool {
    match (one, other) {
        (Condition::Address(one), Condition::Address(other)) => one.contains(other),
        (Condition::Value { name, text, client: None }, Condition::Value { name: of, text: other, .. }) => {
            (name, text) == (of, other)
        }
        (one, Condition::Value { client: Some(other), .. }) => one == &**other || covers(one, other),
        _ => false,
    }
}

/// The cost of a request that does not state one.
fn default_cost(cost: &Cost) -> u64 {
    match cost {
        Cost::Fixed(units) => *units,
        Cost::Header { default, .. } => *default,
        // Never more than the limit is reserved.
        Cost::Response(_) => 1,
    }
}

fn read_override(
    item: Cursor<'_>,
    settings: &PolicySettings<'_>,
    keys: Option<&[KeyRecipe]>,
    (identity, values): (IdentitySources, &ReadValues<'_>),
) -> Option<Override> {
    let kind = settings.algorithm;
    let mut mapping = opened::<OverrideSettings<'_>>(item)?;
    let OverrideSettings { ip, user, customer, api_key, plan, jwt, header, tls, value, limit, limits, burst } =
        OverrideSettings::fields(&mut mapping)?;
    let mut conditions: Vec<(&str, Cursor<'_>)> =
        [("ip", ip), ("user", user), ("customer", customer), ("api_key", api_key), ("plan", plan)]
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect();
    conditions.extend([jwt, header, tls].into_iter().flatten().map(|(_, key, value)| (key, value)));
    report_foreign_setting(&mapping, "burst", "gcra", kind);
    let tiers = tiers(&mut mapping, limit, limits, settings);
    let (one, of_value) = match (conditions.as_slice(), value.as_slice()) {
        ([one], []) => (Some(*one), None),
        ([], [value]) => (None, Some(*value)),
        ([one], [value]) => (Some(*one), Some(*value)),
        _ => {
            let plain = ["ip", "user", "customer", "api_key", "plan"];
            let is_misspelt = plain.into_iter().any(|key| mapping.has_or_misspells(key));
            if !conditions.is_empty() || !value.is_empty() || !is_misspelt {
                let help =
                    "such as `{ user: acme, limit: 1000/1m }`; the first override that matches applies";
                let message = "an override needs exactly one of ip, user, customer, api_key, plan, jwt:CLAIM, header:NAME, tls:subject, \
                    tls:fingerprint; or one value:NAME, alone or beside it";
                mapping.report(message, help.to_owned());
            }
            mapping.finish();
            return None;
        }
    };
    let invalid = one.and_then(|(key, _)| match key.split_once(':') {
        Some(("header", name)) => field_name(name).err().map(|invalid| (name, invalid.reason, None)),
        Some(("tls", field)) => {
            certificate_field(field).err().map(|invalid| (key, invalid.reason.clone(), invalid.help(false)))
        }
        _ => None,
    });
    if let (Some((name, reason, help)), Some((key, _))) = (invalid, one) {
        let location = mapping.key_location(key).unwrap_or(item.location());
        mapping.report_at(location, format!("`{name}` {reason}"), help);
        mapping.finish();
        return None;
    }
    mapping.finish();
    let client = match one {
        Some((key, value)) => {
            let condition = hidden_if(value, value.parse(|text| condition_with_key(key, text))?);
            report_unverifiable(item, &condition, identity);
            Some(condition)
        }
        None => None,
    };
    let condition = match (client, of_value) {
        (client, Some((_, key, value))) => {
            let name = key.strip_prefix("value:").unwrap_or(key).to_owned();
            let text = value.parse(printable_text)?;
            let is_known = values.check_text(value, &name, &text);
            if is_known
                && keys.is_some_and(|keys| !keys.iter().all(|key| key.value_names().any(|of| of == name)))
            {
                let help = format!("such as `key: ip+value:{name}`: each value has a count of its own then");
                item.report(format!("the key of the policy lacks `value:{name}`"), help);
            }
            Condition::Value { name, text, client: client.map(Box::new) }
        }
        (Some(client), None) => client,
        (None, None) => return None,
    };
    let (tiers, kind) = (tiers?, kind?);
    Some(Override { condition, algorithm: complete(kind, settings, burst, &tiers), tiers })
}

/// The condition that was read from `value`, with a note where its header must not be shown.
fn hidden_if(value: Cursor<'_>, mut condition: Condition) -> Condition {
    if let Condition::Header { value: header, .. } = &mut condition {
        header.set_sensitive(value.is_hidden());
    }
    condition
}

/// Reports a condition that nothing verifies. It would never apply, because clients may not choose their own limits.
fn report_unverifiable(item: Cursor<'_>, condition: &Condition, identity: IdentitySources) {
    match condition {
        Condition::Tls { .. } => identity.warn_without_client_certificates(item),
        Condition::OfKey { .. } => identity.report_without_api_keys(item),
        _ => {}
    }
    let (message, help) = match condition {
        Condition::User(_) if !identity.has_verified_users => (
            "no user ID is verified, so this would never apply",
            "under `user`, configure a `jwt`, or a header from trusted_proxies",
        ),
        Condition::Jwt { .. } if !identity.has_tokens => (
            "no token is verified, so this would never apply",
            "configure the token and its key under `user`: `- jwt: { key: { file: FILE }, algorithm: RS256 }`",
        ),
        Condition::Header { .. } if !identity.has_trusted_proxies => (
            "no trusted_proxies are configured, so this would never apply",
            "add the gateway that sets this header to `trusted_proxies`",
        ),
        _ => return,
    };
    item.report(message, help.to_owned());
}
