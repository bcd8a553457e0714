//! `limit` and `limits`, of a policy or of an override.

use std::time::Duration;

use crate::config::{
    policies::{algorithm::Algorithm, cost::counts_bytes, foreign_limits, settings::PolicySettings},
    reader::{Cursor, MappingCursor},
    value::{
        Invalid, MAX_LIMIT, number, quota, quota_of_bytes,
        rate::{CalendarUnit, Quota, Window},
    },
};

/// The largest limit of `distinct`, which remembers each value.
const MAX_DISTINCT_VALUES: u64 = 10_000;

/// Reads `limit` or `limits` of `mapping`, which is a policy with these `settings`, or an override of it.
pub(in crate::config) fn tiers(
    mapping: &mut MappingCursor<'_>,
    limit: Option<Cursor<'_>>,
    limits: Option<Cursor<'_>>,
    settings: &PolicySettings<'_>,
) -> Option<Vec<Quota>> {
    let line = foreign_limits::explain(mapping);
    let line = line.as_deref();
    match (mapping.key_location("limit"), mapping.key_location("limits")) {
        (Some(_), Some(location)) => {
            mapping.report_at(location, "a policy takes either `limit` or `limits`", None);
            None
        }
        (None, None) => {
            if !mapping.has_or_misspells("limit") && !mapping.has_or_misspells("limits") {
                let expected = match settings.algorithm {
                    Some(Algorithm::Concurrency) => "such as `limit: 8`, for 8 requests at the same time",
                    _ => "such as `limit: 100/1s`",
                };
                mapping.report("`limit` is missing", expected.to_owned());
            }
            None
        }
        (Some(_), None) => Some(vec![one_tier(limit?, settings, line)?]),
        (None, Some(_)) => several_tiers(limits?, settings),
    }
}

/// The limits of a plan: a rate or a list of them.
pub(in crate::config) fn plan_tiers(value: Cursor<'_>, settings: &PolicySettings<'_>) -> Option<Vec<Quota>> {
    match value.is_list() {
        true => several_tiers(value, settings),
        false => Some(vec![one_tier(value, settings, None)?]),
    }
}

/// `limit`. `line`: the line that was probably meant by this setting together with others.
fn one_tier(value: Cursor<'_>, settings: &PolicySettings<'_>, line: Option<&str>) -> Option<Quota> {
    let help = if value.is_list() {
        Some("several limits are written `limits: [10/1s, 120/1m]`".to_owned())
    } else if value.is_mapping() {
        let line = value.mapping().and_then(|mut inner| foreign_limits::explain(&mut inner));
        Some(line.map_or("such as `limit: 100/1s`".to_owned(), |line| format!("did you mean `{line}`?")))
    } else {
        None
    };
    if let Some(help) = help {
        value.report("expected a number per window", help);
        return None;
    }
    let quota = value.parse(|text| {
        tier(text, settings).map_err(|invalid| match line {
            Some(line) if is_count(text) => invalid.suggestion(format!("did you mean `{line}`?")),
            _ => invalid,
        })
    })?;
    warn_of_few_bytes(value, &quota, settings);
    Some(quota)
}

/// The least limit of bytes that may be meant without a unit.
const FEW_BYTES: u64 = 1 << 20;
const DAY: Duration = Duration::from_hours(24);

/// Warns of a limit of a few bytes, written without a unit, where a number of requests or another unit may be meant.
fn warn_of_few_bytes(value: Cursor<'_>, quota: &Quota, settings: &PolicySettings<'_>) {
    let Some((number, window)) = value.scalar().and_then(|text| text.split_once('/')) else { return };
    let has_unit = number.contains(|c: char| c.is_ascii_alphabetic());
    if !counts_bytes(settings.cost) || has_unit || quota.limit >= FEW_BYTES {
        return;
    }
    let unit = match quota.window {
        Window::Length(length) if length < DAY => "MiB",
        Window::Length(_) | Window::Calendar(_) => "GiB",
    };
    let message =
        format!("the limit is {} bytes of responses in each window, because it has no unit", quota.limit);
    let help = match quota.limit {
        ..=9_999 => format!("did you mean `{}{unit}/{}`?", number.trim(), window.trim()),
        _ => "write a unit, such as `10MiB/1m` or `100GiB/month`".to_owned(),
    };
    value.warn(message, help);
}

fn is_count(text: &str) -> bool {
    number(0..=u64::MAX)(text).is_ok()
}

/// Of one policy. A store checks and writes all of them at once.
const MAX_LIMITS: usize = 32;

fn several_tiers(value: Cursor<'_>, settings: &PolicySettings<'_>) -> Option<Vec<Quota>> {
    let items = value.list()?;
    if items.is_empty() {
        value.report("a policy needs a limit", "such as `limits: [10/1s, 120/1m]`".to_owned());
    }
    if items.len() > MAX_LIMITS {
        value.report(format!("a policy takes at most {MAX_LIMITS} limits"), "remove some".to_owned());
    }
    let takes_several =
        matches!(settings.algorithm, None | Some(Algorithm::FixedWindow | Algorithm::SlidingWindow { .. }));
    if items.len() > 1 && !takes_several {
        let help = "`fixed_window` and `sliding_window` take several; otherwise write one policy per limit";
        value.report("this algorithm takes only one limit", help.to_owned());
    }
    let mut tiers: Vec<Quota> = Vec::new();
    for item in items {
        let tier = item.parse(|text| {
            let tier = tier(text, settings)?;
            if takes_several && tiers.iter().any(|other| other.window == tier.window) {
                return Err(Invalid::new("has the same window as another limit of this policy"));
            }
            Ok(tier)
        });
        tier.inspect(|tier| warn_of_few_bytes(item, tier, settings));
        tiers.extend(tier);
    }
    (!tiers.is_empty()).then_some(tiers)
}

/// One limit. For `concurrency`, its window is the lease.
fn tier(text: &str, settings: &PolicySettings<'_>) -> Result<Quota, Invalid> {
    match settings.algorithm {
        Some(Algorithm::Concurrency) if text.contains('/') => {
            Err(Invalid::new("is a rate, but concurrency limits requests in flight")
                .expected("write a plain number, such as `limit: 8`"))
        }
        Some(Algorithm::Concurrency) => {
            number(1..=MAX_LIMIT)(text).map(|limit| Quota { limit, window: Window::Length(settings.lease) })
        }
        Some(kind) if is_count(text) => Err(Invalid::new(format!(
            "has no window: a plain number is for concurrency, not for {}",
            kind.name()
        ))
        .expected("a rate is a number per window, such as 100/1s or 10/m")),
        Some(Algorithm::Distinct) => {
            let tier = of_length(text, Algorithm::Distinct, settings)?;
            if tier.limit > MAX_DISTINCT_VALUES {
                return Err(Invalid::new("has a limit that is out of range")
                    .expected("from 1 to 10000, because every value is stored"));
            }
            Ok(tier)
        }
        Some(kind) if kind != Algorithm::FixedWindow => of_length(text, kind, settings),
        _ => of_units(text, settings),
    }
}

/// A limit of requests, or of bytes if the responses' bytes are the cost.
fn of_units(text: &str, settings: &PolicySettings<'_>) -> Result<Quota, Invalid> {
    match counts_bytes(settings.cost) {
        true => quota_of_bytes(text),
        false => quota(text).map_err(|invalid| match quota_of_bytes(text) {
            Ok(_) if text.contains("iB/") => {
                Invalid::new("is a size per window, but this policy does not count bytes")
                    .expected("set `cost: { response: bytes, reserve: 1MiB }`, or write a number")
            }
            _ => invalid,
        }),
    }
}

/// A limit of an algorithm that has no windows of the calendar.
fn of_length(text: &str, kind: Algorithm, settings: &PolicySettings<'_>) -> Result<Quota, Invalid> {
    let quota = of_units(text, settings)?;
    match quota.window {
        Window::Length(_) => Ok(quota),
        Window::Calendar(unit) => {
            let length = match unit {
                CalendarUnit::Hour => "1h",
                CalendarUnit::Day => "1d",
                CalendarUnit::Week => "7d",
                CalendarUnit::Month => "30d",
            };
            let help = format!("set `algorithm: fixed_window`, or write a length: {}/{length}", quota.limit);
            let reason = format!("has a window of the calendar, which {} does not take", kind.name());
            Err(Invalid::new(reason).suggestion(help))
        }
    }
}

/// The algorithm `kind` with its settings. `burst`: of the policy or of an override; the default is the limit.
pub(in crate::config) fn complete(
    kind: Algorithm,
    settings: &PolicySettings<'_>,
    burst: Option<u64>,
    tiers: &[Quota],
) -> Algorithm {
    let limit = tiers.first().map_or(1, |tier| tier.limit);
    match kind {
        Algorithm::SlidingWindow { .. } => Algorithm::SlidingWindow { buckets: settings.buckets },
        Algorithm::Gcra { .. } => Algorithm::Gcra { burst: burst.unwrap_or(limit), delay: settings.delay },
        other => other,
    }
}

/// The most units that can ever be admitted at once, and the setting that bounds them.
pub(in crate::config) fn max_admissible(algorithm: Algorithm, tiers: &[Quota]) -> (u64, &'static str) {
    let lowest = tiers.iter().map(|tier| tier.limit).min().unwrap_or(MAX_LIMIT);
    match algorithm {
        // If it is not set, it is the limit.
        Algorithm::Gcra { burst, .. } if burst != lowest => (burst, "`burst`"),
        _ => (lowest, "the limit"),
    }
}
