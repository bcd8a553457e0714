//! What a request costs, and whether it is requests that count: `cost`, `count`, `count_denied`, `slice`.

use super::{
    algorithm::{Settings, counts_members, name, report_of_another},
    limits::most,
};
use crate::config::{
    model::{Algorithm, Cost, Rate, Statuses},
    reader::{Cursor, Mapping},
    section::user::Known,
    value::{Invalid, LARGEST_LIMIT, field_name, number, percentage, statuses, switch},
};

/// What a request takes, and when.
pub(super) struct Charge {
    pub(super) cost: Cost,
    pub(super) count: Option<Statuses>,
    pub(super) count_denied: bool,
    pub(super) slice: f64,
}

/// Reads them all, and reports what contradicts the algorithm, its `limits`, or one another.
pub(super) fn charge(
    at: &mut Mapping<'_>,
    kind: Option<Algorithm>,
    settings: Settings,
    limits: Option<(Algorithm, &[Rate])>,
    known: Known,
) -> Charge {
    let of_units = !counts_members(kind);
    let cost = at.take("cost");
    let count = at.take("count");
    if !of_units {
        for key in ["cost", "count"] {
            report_of_units(at, key, kind);
        }
    }
    let cost = cost.filter(|_| of_units).and_then(|value| request_cost(value, kind, limits, known));
    let count = count.filter(|_| of_units).and_then(counted);
    let count_denied = at.parse_or("count_denied", false, switch);
    if count_denied && !of_units {
        report_of_units(at, "count_denied", kind);
    }
    let slice = at.parse_or("slice", 0.0, share);
    if slice > 0.0 {
        report_of_another(at, "slice", "fixed_window", kind);
    }
    if of_units {
        report_contradictions(at, count_denied, settings.has_delay(), slice, limits);
    }
    Charge { cost: cost.unwrap_or(Cost::Fixed(1)), count, count_denied, slice }
}

fn report_of_units(at: &Mapping<'_>, key: &str, kind: Option<Algorithm>) {
    let (Some(place), Some(kind)) = (at.place_of(key), kind) else { return };
    let why = match kind {
        Algorithm::Distinct => "it counts different values, however many requests have them",
        _ => "it counts what is under way, and a request is under way once",
    };
    at.report_at(place, format!("{} takes no `{key}`", name(kind)), why.to_owned());
}

fn report_contradictions(
    at: &Mapping<'_>,
    count_denied: bool,
    delay: bool,
    share: f64,
    limits: Option<(Algorithm, &[Rate])>,
) {
    let slice = share > 0.0;
    let report = |key: &str, message: &str, help: &str| {
        if let Some(place) = at.place_of(key) {
            at.report_at(place, message, help.to_owned());
        }
    };
    if at.place_of("count").is_some() {
        if count_denied {
            report(
                "count_denied",
                "`count_denied` contradicts `count`",
                "a denied request never reaches the upstream whose answers count; leave one of them out",
            );
        }
        if delay {
            report(
                "delay",
                "`delay` contradicts `count`",
                "nobody knows yet whether the answers of those before will count; leave one of them out",
            );
        }
        if slice {
            report(
                "slice",
                "`slice` contradicts `count`",
                "an instance cannot give back to others what it took for itself; leave one of them out",
            );
        }
    }
    if slice && count_denied {
        report(
            "slice",
            "`slice` contradicts `count_denied`",
            "what an instance denies on its own it counts nowhere; leave one of them out",
        );
    }
    if slice && limits.is_some_and(|(_, tiers)| tiers.len() > 1) {
        report("slice", "`slice` is for a policy with one limit", "write a policy for each limit");
    } else if slice
        && !count_denied
        && at.place_of("count").is_none()
        && limits.is_some_and(|(of, tiers)| {
            of == Algorithm::FixedWindow && tiers.iter().any(|tier| share * (tier.limit as f64) < 2.0)
        })
    {
        report(
            "slice",
            "a slice of this limit is less than two units, and spares nothing",
            "take a larger share of a limit that is as small, or leave it out",
        );
    }
}

fn counted(value: Cursor<'_>) -> Option<Statuses> {
    let mut at = value.mapping()?;
    let list = at.require("statuses", "the answers that count, such as `statuses: [401, 403]`");
    at.finish();
    let list = list?;
    if list.is_empty_list() {
        list.report("an empty list counts no answer", "leave `count` out to count every request".to_owned());
    }
    Some(Statuses(list.distinct(|item| item.parse(statuses))))
}

/// At most half: with more, two instances would leave nothing for a third.
fn share(text: &str) -> Result<f64, Invalid> {
    let share = percentage(text)?;
    match share <= 0.5 {
        true => Ok(share),
        false => Err(Invalid::new("is too large").form("from 0% to 50%")),
    }
}

/// The units of one request that `sliding_log` writes down, each on its own.
const MOST_LOGGED: u64 = 1_000;

/// A number of units, or where it stands in a request.
fn request_cost(
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
