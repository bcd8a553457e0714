//! `cost`: the units that a request takes.

use super::{limits::max_admissible, user::IdentitySources};
use crate::config::{
    model::{Algorithm, Cost, CostSettings, Quota},
    reader::Cursor,
    settings::Read,
    value::{Invalid, MAX_LIMIT, field_name, number},
};

/// The largest cost with `sliding_log`, which stores each unit by itself.
const MAX_LOGGED_UNITS: u64 = 1_000;

/// Reads a number of units, or the header that holds it. `limits`: the algorithm and the limits of the policy, unless they
/// are wrong.
pub(super) fn cost(
    value: Cursor<'_>,
    kind: Option<Algorithm>,
    limits: Option<(Algorithm, &[Quota])>,
    identity: IdentitySources,
) -> Option<Cost> {
    let admitted = |text: &str| admitted(text, kind, limits);
    if value.scalar().is_some() {
        return value.parse(admitted).map(Cost::Fixed);
    }
    let CostSettings { header, default: default_value, max: max_value } = CostSettings::read(value)?;
    let default = default_value.map_or(Some(1), |value| value.parse(admitted));
    let name = header?.parse(field_name);
    if !identity.has_trusted_proxies {
        let help = "add the gateway that sets it to `trusted_proxies`, or write a number";
        value.report("no trusted_proxies are configured, so this header is never trusted", help.to_owned());
    }
    let (max, default) = (max_value?.parse(|text| units(text, kind))?, default?);
    if let (Some(value), Some((algorithm, tiers))) = (max_value, limits) {
        warn_above(value, max, max_admissible(algorithm, tiers));
    }
    if default > max {
        default_value.unwrap_or(value).report("`default` is larger than `max`", None);
    }
    Some(Cost::Header { name: name?, default, max })
}

/// Reads a number of units.
fn units(text: &str, kind: Option<Algorithm>) -> Result<u64, Invalid> {
    let units = number(1..=MAX_LIMIT)(text)?;
    if units > MAX_LOGGED_UNITS && kind == Some(Algorithm::SlidingLog) {
        return Err(Invalid::new("is more than sliding_log can record at once")
            .expected("from 1 to 1000; other algorithms allow more"));
    }
    Ok(units)
}

/// Reads a number of units that these limits can admit. The arguments are those of [`cost`].
pub(super) fn admitted(
    text: &str,
    kind: Option<Algorithm>,
    limits: Option<(Algorithm, &[Quota])>,
) -> Result<u64, Invalid> {
    let units = units(text, kind)?;
    match limits {
        Some((algorithm, tiers)) if units > max_admissible(algorithm, tiers).0 => {
            Err(never_admitted(max_admissible(algorithm, tiers)))
        }
        _ => Ok(units),
    }
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
