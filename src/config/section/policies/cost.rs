//! What a request costs, and which requests count: `cost`, `count`, `count_denied`, `slice`.

use super::{
    algorithm::{AlgorithmSettings, algorithm_name, counts_members, report_foreign_setting},
    limits::max_admissible,
};
use crate::config::{
    model::{Algorithm, Cost, CountedResponses, Rate, Statuses},
    reader::{Cursor, MappingCursor},
    section::user::IdentitySources,
    settings,
    value::{Invalid, MAX_LIMIT, boolean, field_name, grpc_status, number, percentage, status_range},
};

/// The settings about what a request takes, and when.
pub(super) struct CostSettings {
    pub(super) cost: Cost,
    pub(super) count: Option<CountedResponses>,
    pub(super) count_denied: bool,
    pub(super) slice: f64,
}

/// Reads the settings, and reports those that contradict the algorithm, its `limits`, or each other.
pub(super) fn cost_settings(
    mapping: &mut MappingCursor<'_>,
    kind: Option<Algorithm>,
    settings: AlgorithmSettings,
    limits: Option<(Algorithm, &[Rate])>,
    identity: IdentitySources,
) -> CostSettings {
    let counts_units = !counts_members(kind);
    let cost = mapping.take("cost");
    let count = mapping.take("count");
    if !counts_units {
        for key in ["cost", "count"] {
            report_unit_setting(mapping, key, kind);
        }
    }
    let cost = cost.filter(|_| counts_units).and_then(|value| request_cost(value, kind, limits, identity));
    let count = count.filter(|_| counts_units).and_then(counted_responses);
    let count_denied = mapping.parse_or("count_denied", false, boolean);
    if count_denied && !counts_units {
        report_unit_setting(mapping, "count_denied", kind);
    }
    let slice = mapping.parse_or("slice", 0.0, share);
    if slice > 0.0 {
        report_foreign_setting(mapping, "slice", "fixed_window", kind);
    }
    if counts_units {
        report_contradictions(mapping, count_denied, settings.has_delay(), slice, limits);
    }
    CostSettings { cost: cost.unwrap_or(Cost::Fixed(1)), count, count_denied, slice }
}

fn report_unit_setting(mapping: &MappingCursor<'_>, key: &str, kind: Option<Algorithm>) {
    let (Some(location), Some(kind)) = (mapping.key_location(key), kind) else { return };
    let why = match kind {
        Algorithm::Distinct => "it counts distinct values, however many requests carry them",
        _ => "it counts requests in flight, each of them once",
    };
    mapping.report_at(location, format!("{} does not take `{key}`", algorithm_name(kind)), why.to_owned());
}

fn report_contradictions(
    mapping: &MappingCursor<'_>,
    count_denied: bool,
    delay: bool,
    share: f64,
    limits: Option<(Algorithm, &[Rate])>,
) {
    let slice = share > 0.0;
    let report = |key: &str, message: &str, help: &str| {
        if let Some(location) = mapping.key_location(key) {
            mapping.report_at(location, message, help.to_owned());
        }
    };
    if mapping.key_location("count").is_some() {
        if count_denied {
            report(
                "count_denied",
                "`count_denied` cannot be combined with `count`",
                "a denied request never gets the upstream response that `count` needs; remove one of the two",
            );
        }
        if delay {
            report(
                "delay",
                "`delay` cannot be combined with `count`",
                "while a request is delayed, the responses that `count` needs are still unknown; remove one of the \
                    two",
            );
        }
        if slice {
            report(
                "slice",
                "`slice` cannot be combined with `count`",
                "an instance cannot return what it took in its slice; remove one of the two",
            );
        }
    }
    if slice && count_denied {
        report(
            "slice",
            "`slice` cannot be combined with `count_denied`",
            "requests that an instance denies without the store are not counted; remove one of the two",
        );
    }
    if slice && limits.is_some_and(|(_, tiers)| tiers.len() > 1) {
        report("slice", "`slice` works only for a policy with a single limit", "write one policy per limit");
    } else if slice
        && !count_denied
        && mapping.key_location("count").is_none()
        && limits.is_some_and(|(of, tiers)| {
            of == Algorithm::FixedWindow && tiers.iter().any(|tier| share * (tier.limit as f64) < 2.0)
        })
    {
        report(
            "slice",
            "a slice of this limit is less than two units and saves no round trips",
            "set a larger slice, or remove it",
        );
    }
}

fn counted_responses(value: Cursor<'_>) -> Option<CountedResponses> {
    let mut mapping = value.mapping()?.of(&settings::COUNT);
    let grpc_statuses = mapping.take("grpc_statuses");
    let statuses = match grpc_statuses {
        Some(_) => mapping.take("statuses"),
        None => {
            let what =
                "the responses that count, such as `statuses: [401, 403]`; of gRPC, `grpc_statuses: [16]`";
            Some(mapping.require("statuses", what)?)
        }
    };
    mapping.finish();
    for list in statuses.iter().chain(&grpc_statuses) {
        if list.is_empty_list() {
            list.report(
                "an empty list would count no responses",
                "remove `count` to count every request".to_owned(),
            );
        }
    }
    Some(CountedResponses {
        statuses: Statuses(
            statuses.map_or_else(Vec::new, |list| list.unique_items(|item| item.parse(status_range))),
        ),
        grpc_statuses: grpc_statuses
            .map_or_else(Vec::new, |list| list.unique_items(|item| item.parse(grpc_status))),
    })
}

/// At most half: with more, two instances would leave nothing for a third one.
fn share(text: &str) -> Result<f64, Invalid> {
    let share = percentage(text)?;
    match share <= 0.5 {
        true => Ok(share),
        false => Err(Invalid::new("is too large").expected("from 0% to 50%")),
    }
}

/// The largest cost with `sliding_log`, which stores each unit by itself.
const MAX_LOGGED_UNITS: u64 = 1_000;

/// The cost: a number of units, or a header field that has it.
fn request_cost(
    value: Cursor<'_>,
    kind: Option<Algorithm>,
    limits: Option<(Algorithm, &[Rate])>,
    identity: IdentitySources,
) -> Option<Cost> {
    let units = |text: &str| {
        let units = number(1..=MAX_LIMIT)(text)?;
        if units > MAX_LOGGED_UNITS && kind == Some(Algorithm::SlidingLog) {
            return Err(Invalid::new("is more than sliding_log can record at once")
                .expected("from 1 to 1000; other algorithms allow more"));
        }
        Ok(units)
    };
    let admitted = |text: &str| {
        let units = units(text)?;
        match limits {
            Some((algorithm, tiers)) if units > max_admissible(algorithm, tiers).0 => {
                Err(never_admitted(max_admissible(algorithm, tiers)))
            }
            _ => Ok(units),
        }
    };
    if value.scalar().is_some() {
        return value.parse(admitted).map(Cost::Fixed);
    }
    let mut mapping = value.mapping()?.of(&settings::COST);
    let header =
        mapping.require("header", "the header in which trusted proxies send the cost, such as x-cost");
    let default = mapping.take("default");
    let default = default.map_or(Some((None, 1)), |value| Some((Some(value), value.parse(admitted)?)));
    let max_value = mapping.require("max", "the highest cost to accept, such as `max: 100`");
    mapping.finish();
    let name = header?.parse(field_name);
    if !identity.has_trusted_proxies {
        let help = "add the gateway that sets it to `trusted_proxies`, or write a number";
        value.report("no trusted_proxies are configured, so this header is never trusted", help.to_owned());
    }
    let (max, (default_value, default)) = (max_value?.parse(units)?, default?);
    if let (Some(value), Some((algorithm, tiers))) = (max_value, limits) {
        warn_above(value, max, max_admissible(algorithm, tiers));
    }
    if default > max {
        default_value.unwrap_or(value).report("`default` is larger than `max`", None);
    }
    Some(Cost::Header { name: name?, default, max })
}

/// Warns if a request may cost more than `most`, the highest cost that this setting admits: it would be denied at any time.
pub(super) fn warn_above(value: Cursor<'_>, max: u64, (most, setting): (u64, &str)) {
    if max > most {
        let message = format!(
            "requests may cost up to {max}, but {setting} is {most}: one that costs more is always denied"
        );
        value.warn(message, format!("set `max: {most}`, or raise {setting}"));
    }
}

/// The error for a cost of more than `most` units, the highest that this setting admits: no request could ever pay it.
pub(super) fn never_admitted((most, setting): (u64, &str)) -> Invalid {
    Invalid::new(format!("is more than {setting}, so no request would ever be admitted"))
        .expected(format!("set at most {most}, or raise {setting}"))
}
