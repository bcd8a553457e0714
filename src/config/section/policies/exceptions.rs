//! `exempt` and `overrides`: whom a policy does not hold for, and for whom it has other limits.

use super::{
    algorithm::{Settings, burst, report_of_another},
    cost::never,
    limits::{most, tiers},
};
use crate::config::{
    model::{Algorithm, Condition, Cost, Override},
    reader::{Cursor, Mapping},
    section::user::Known,
    value::{condition, condition_of, field_name},
};

/// Kinds of conditions that name something.
const NAMING: [&str; 2] = ["jwt:", "header:"];

/// Whom the policy does not hold for.
pub(in crate::config::section) fn exempt(value: Option<Cursor<'_>>, known: Known) -> Vec<Condition> {
    let Some(list) = value else { return Vec::new() };
    list.distinct(|item| {
        let condition = item.parse(condition)?;
        report_vain(item, &condition, known);
        Some(condition)
    })
}

/// Other limits for some. `settings` and `cost` are the policy's own.
pub(super) fn overrides(
    value: Option<Cursor<'_>>,
    kind: Option<Algorithm>,
    settings: Settings,
    cost: &Cost,
    sliced: bool,
    known: Known,
) -> Vec<Override> {
    let Some(list) = value else { return Vec::new() };
    let mut all: Vec<Override> = Vec::new();
    for item in list.list().unwrap_or_default() {
        let Some(other) = item.mapping().and_then(|at| read(item, at, kind, settings, known)) else {
            continue;
        };
        if all.iter().any(|earlier| earlier.condition == other.condition) {
            item.report("an earlier override has the same condition, so that nobody gets these limits", None);
        }
        let most = most(other.algorithm, &other.tiers);
        if usual(cost) > most {
            let help = never(most).help(false);
            item.report(
                "the policy's cost is more than these limits, so that nothing would ever be admitted",
                help,
            );
        }
        if sliced && other.tiers.len() > 1 {
            item.report("`slice` is for a policy with one limit", "write one here as well".to_owned());
        }
        all.push(other);
    }
    all
}

/// What a request costs of which nobody says anything else.
fn usual(cost: &Cost) -> u64 {
    match cost {
        Cost::Fixed(units) => *units,
        Cost::Header { default, .. } => *default,
    }
}

fn read(
    item: Cursor<'_>,
    mut at: Mapping<'_>,
    kind: Option<Algorithm>,
    settings: Settings,
    known: Known,
) -> Option<Override> {
    let mut conditions: Vec<(&str, Cursor<'_>)> =
        ["ip", "user"].into_iter().filter_map(|key| Some((key, at.take(key)?))).collect();
    conditions.extend(at.naming(&NAMING).into_iter().map(|(_, key, value)| (key, value)));
    report_of_another(&at, "burst", "gcra", kind);
    let settings = settings.with_burst(burst(&mut at));
    let tiers = tiers(&mut at, kind, settings);
    let [(key, value)] = conditions.as_slice() else {
        if !conditions.is_empty() || !at.means("ip") && !at.means("user") {
            let help = "such as `{ user: acme, limit: 1000/1m }`; the first override that matches holds";
            at.report("an override is for exactly one of ip, user, jwt:CLAIM, header:NAME", help.to_owned());
        }
        at.finish_besides(is_naming);
        return None;
    };
    if let Some(name) = key.strip_prefix("header:")
        && let Err(invalid) = field_name(name)
    {
        let place = at.place_of(key).unwrap_or(item.place());
        at.report_at(place, format!("`{name}` {}", invalid.what), None);
        at.finish_besides(is_naming);
        return None;
    }
    at.finish_besides(is_naming);
    let condition = value.parse(|text| condition_of(key, text))?;
    report_vain(item, &condition, known);
    let (tiers, kind) = (tiers?, kind?);
    Some(Override { condition, algorithm: settings.complete(kind, &tiers), tiers })
}

fn is_naming(key: &str) -> bool {
    NAMING.iter().any(|kind| key.starts_with(kind))
}

/// Reports a condition that nobody vouches for. Nobody may choose his own limits, so it never holds.
fn report_vain(item: Cursor<'_>, condition: &Condition, known: Known) {
    let (message, help) = match condition {
        Condition::User(_) if !known.verifies => (
            "no user is verified, so this could never apply",
            "in `user`, name a `jwt`, or a header from trusted_proxies",
        ),
        Condition::Jwt { .. } if !known.tokens => (
            "no token is verified, so this could never apply",
            "name the token and its key in `user`: `- jwt: { key: { file: FILE }, algorithm: RS256 }`",
        ),
        Condition::Header { .. } if !known.trusts => (
            "there are no trusted_proxies, so this could never apply",
            "list the gateway that sets this header in `trusted_proxies`",
        ),
        _ => return,
    };
    item.report(message, help.to_owned());
}
