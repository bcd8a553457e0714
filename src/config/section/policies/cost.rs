//! `cost`: the units that a request takes.

use super::limits::most;
use crate::config::{
    model::{Algorithm, Cost, Rate},
    section::user::Known,
    value::{Invalid, LARGEST_LIMIT, field_name, number},
    walk::Cursor,
};

/// The units of one request that `sliding_log` writes down, each on its own.
const MOST_LOGGED: u64 = 1_000;

/// A number of units, or where it stands in a request.
pub(super) fn cost(
    value: Cursor<'_>,
    kind: Option<Algorithm>,
    limits: Option<(Algorithm, &[Rate])>,
    known: Known,
) -> Option<Cost> {
    let units = |text: &str| {
        let units = number(1..=LARGEST_LIMIT)(text)?;
        if units > MOST_LOGGED && kind == Some(Algorithm::SlidingLog) {
            return Err(Invalid::new("is more than sliding_log writes down at once")
                .form("from 1 to 1000; the other algorithms take more"));
        }
        Ok(units)
    };
    let admitted = |text: &str| {
        let units = units(text)?;
        match limits {
            Some((algorithm, tiers)) if units > most(algorithm, tiers) => Err(never(most(algorithm, tiers))),
            _ => Ok(units),
        }
    };
    if value.written().is_some() {
        return value.parse(admitted).map(Cost::Fixed);
    }
    let mut at = value.mapping()?;
    let header = at.require("header", "the field in which trusted_proxies tell the cost, such as x-cost");
    let default = at.take("default");
    let default = default.map_or(Some((None, 1)), |value| Some((Some(value), value.parse(admitted)?)));
    let max = at.require("max", "the largest cost that counts, such as `max: 100`");
    at.finish();
    let name = header?.parse(field_name);
    if !known.trusts {
        let help = "list the gateway that sets it in `trusted_proxies`, or write a number";
        value.report("there are no trusted_proxies, so this header is never believed", help.to_owned());
    }
    let (max, (place, default)) = (max?.parse(units)?, default?);
    if default > max {
        place.unwrap_or(value).report("the default is larger than `max`", None);
    }
    Some(Cost::Header { name: name?, default, max })
}

/// Why a cost of more than `most` units is an error.
pub(super) fn never(most: u64) -> Invalid {
    Invalid::new("is more than the limit, so that no request would ever be admitted")
        .form(format!("at most {most}, or a higher limit"))
}
