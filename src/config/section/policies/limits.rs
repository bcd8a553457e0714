//! `limit` and `limits`, of a policy or of an override.

use super::{
    algorithm::{AlgorithmSettings, algorithm_name},
    foreign_limits,
};
use crate::config::{
    model::{Algorithm, Rate},
    reader::{Cursor, MappingCursor},
    value::{Invalid, MAX_LIMIT, number, rate},
};

/// The largest limit of `distinct`, which remembers each value.
const MAX_DISTINCT_VALUES: u64 = 10_000;

/// `limit` or `limits`.
pub(super) fn tiers(
    mapping: &mut MappingCursor<'_>,
    kind: Option<Algorithm>,
    settings: AlgorithmSettings,
) -> Option<Vec<Rate>> {
    let line = foreign_limits::explain(mapping);
    let line = line.as_deref();
    let (limit, limits) = (mapping.take("limit"), mapping.take("limits"));
    match (mapping.key_location("limit"), mapping.key_location("limits")) {
        (Some(_), Some(location)) => {
            mapping.report_at(location, "a policy takes either `limit` or `limits`", None);
            None
        }
        (None, None) => {
            if !mapping.has_or_misspells("limit") && !mapping.has_or_misspells("limits") {
                let expected = match kind {
                    Some(Algorithm::Concurrency) => "such as `limit: 8`, for 8 requests at the same time",
                    _ => "such as `limit: 100/1s`",
                };
                mapping.report("`limit` is missing", expected.to_owned());
            }
            None
        }
        (Some(_), None) => Some(vec![one_tier(limit?, kind, settings, line)?]),
        (None, Some(_)) => several_tiers(limits?, kind, settings),
    }
}

/// `limit`. `line`: what was probably meant, by this setting together with others.
fn one_tier(
    value: Cursor<'_>,
    kind: Option<Algorithm>,
    settings: AlgorithmSettings,
    line: Option<&str>,
) -> Option<Rate> {
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
    value.parse(|text| {
        tier(text, kind, settings).map_err(|invalid| match line {
            Some(line) if is_count(text) => invalid.suggestion(format!("did you mean `{line}`?")),
            _ => invalid,
        })
    })
}

fn is_count(text: &str) -> bool {
    number(0..=u64::MAX)(text).is_ok()
}

/// Of one policy. A store checks and writes all of them at once.
const MAX_LIMITS: usize = 32;

fn several_tiers(
    value: Cursor<'_>,
    kind: Option<Algorithm>,
    settings: AlgorithmSettings,
) -> Option<Vec<Rate>> {
    let items = value.list()?;
    if items.is_empty() {
        value.report("a policy needs a limit", "such as `limits: [10/1s, 120/1m]`".to_owned());
    }
    if items.len() > MAX_LIMITS {
        value.report(format!("a policy takes at most {MAX_LIMITS} limits"), "remove some".to_owned());
    }
    let takes_several = matches!(kind, None | Some(Algorithm::FixedWindow | Algorithm::SlidingWindow { .. }));
    if items.len() > 1 && !takes_several {
        let help = "`fixed_window` and `sliding_window` take several; otherwise write one policy per limit";
        value.report("this algorithm takes only one limit", help.to_owned());
    }
    let mut tiers: Vec<Rate> = Vec::new();
    for item in items {
        let tier = item.parse(|text| {
            let tier = tier(text, kind, settings)?;
            if takes_several && tiers.iter().any(|other| other.window == tier.window) {
                return Err(Invalid::new("has the same window as another limit of this policy"));
            }
            Ok(tier)
        });
        tiers.extend(tier);
    }
    (!tiers.is_empty()).then_some(tiers)
}

/// One limit. For `concurrency`, its window is the lease.
fn tier(text: &str, kind: Option<Algorithm>, settings: AlgorithmSettings) -> Result<Rate, Invalid> {
    match kind {
        Some(Algorithm::Concurrency) if text.contains('/') => {
            Err(Invalid::new("is a rate, but concurrency limits requests in flight")
                .expected("write a plain number, such as `limit: 8`"))
        }
        Some(Algorithm::Concurrency) => {
            number(1..=MAX_LIMIT)(text).map(|limit| Rate { limit, window: settings.lease })
        }
        Some(kind) if is_count(text) => Err(Invalid::new(format!(
            "has no window: a plain number is for concurrency, not for {}",
            algorithm_name(kind)
        ))
        .expected("a rate is a number per window, such as 100/1s or 10/m")),
        Some(Algorithm::Distinct) => {
            let tier = rate(text)?;
            if tier.limit > MAX_DISTINCT_VALUES {
                return Err(Invalid::new("has a limit that is out of range")
                    .expected("from 1 to 10000, because every value is stored"));
            }
            Ok(tier)
        }
        _ => rate(text),
    }
}

/// The most units that can ever be admitted at once, and the setting that says so.
pub(super) fn max_admissible(algorithm: Algorithm, tiers: &[Rate]) -> (u64, &'static str) {
    let lowest = tiers.iter().map(|tier| tier.limit).min().unwrap_or(MAX_LIMIT);
    match algorithm {
        // If it is not set, it is the limit.
        Algorithm::Gcra { burst, .. } if burst != lowest => (burst, "`burst`"),
        _ => (lowest, "the limit"),
    }
}
