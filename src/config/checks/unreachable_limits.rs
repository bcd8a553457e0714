//! Limits that never deny a request, because another limit of the policy always denies it first.

use std::collections::HashMap;

use crate::config::{
    policies::{algorithm::Algorithm, cost::Cost, settings::Policy},
    reader::Cursor,
    routes::coverage::DraftRoute,
    value::rate::{Quota, Window},
};

/// Warns of them. `policies`: their settings and themselves, in the configuration's order; `None` if one is invalid.
pub(in crate::config) fn warn<'t, 'p>(
    policies: impl Iterator<Item = (Cursor<'t>, Option<&'p Policy>)>,
    drafts: &[DraftRoute<'_>],
) {
    let mut uses: HashMap<usize, Vec<Option<u64>>> = HashMap::new();
    for of in drafts.iter().flat_map(|draft| draft.route.variants()).flat_map(|route| &route.policies) {
        let prices = uses.entry(of.policy).or_default();
        if !prices.contains(&of.price) {
            prices.push(of.price);
        }
    }
    for (index, (value, policy)) in policies.enumerate() {
        let Some(policy) = policy else { continue };
        let step = step(policy, uses.get(&index).map_or(&[None], Vec::as_slice));
        if let Some(limits) = value.entry("limits") {
            warn_of_tiers(limits, &policy.tiers, policy, step);
        }
        let overrides = value.entry("overrides").and_then(Cursor::list).unwrap_or_default();
        for (item, other) in overrides.into_iter().zip(&policy.overrides) {
            if let Some(limits) = item.entry("limits") {
                warn_of_tiers(limits, &other.tiers, policy, step);
            }
        }
    }
}

/// The largest number of units that divides the cost of each request: requests use a limit up in whole steps. `prices`:
/// those of the routes; `None` on routes without one.
fn step(policy: &Policy, prices: &[Option<u64>]) -> u64 {
    let own = if let Cost::Fixed(units) = policy.cost { units } else { 1 };
    let costs = prices.iter().map(|price| u128::from(price.unwrap_or(own)));
    costs.reduce(gcd).and_then(|step| u64::try_from(step).ok()).unwrap_or(1).max(1)
}

fn warn_of_tiers(limits: Cursor<'_>, tiers: &[Quota], policy: &Policy, step: u64) {
    let Some(buckets) = counted_buckets(policy.algorithm) else { return };
    let items = limits.list().unwrap_or_default();
    // With `count_denied`, a tier also counts requests that another one has denied.
    if policy.count_denied || items.len() != tiers.len() {
        return;
    }
    // Windows of the calendar have no constant length.
    let lengths = || tiers.iter().filter_map(|tier| Some((tier, length(tier)?)));
    for (item, tier) in items.into_iter().zip(tiers) {
        let Some(window) = length(tier) else { continue };
        let admitted = |other: &Quota, length| {
            (other.limit / step * step).saturating_mul(spans(window, length, buckets))
        };
        let others = lengths().filter(|(_, other)| *other != window);
        let others = others.map(|(other, length)| (admitted(other, length), other));
        let Some((most, other)) = others.min_by_key(|(most, _)| *most) else {
            continue;
        };
        if most <= tier.limit {
            let window = tier.window;
            let message = format!("this limit is never reached: `{other}` admits at most {most} in {window}");
            item.warn(message, format!("set less than {most}/{window}, or remove it"));
        }
    }
}

/// How many buckets of a window count together. `None`: the algorithm has a single tier.
fn counted_buckets(algorithm: Algorithm) -> Option<u128> {
    match algorithm {
        Algorithm::FixedWindow => Some(1),
        // The bucket of now, and all of the window before it.
        Algorithm::SlidingWindow { buckets } => Some(u128::from(buckets) + 1),
        _ => None,
    }
}

/// The length of a tier's window, in microseconds.
fn length(tier: &Quota) -> Option<u128> {
    match tier.window {
        Window::Length(length) => Some(length.as_micros()),
        Window::Calendar(_) => None,
    }
}

/// How many times a tier with windows of the length `other_bucket` can be used up within the time that a tier with
/// `bucket` counts together.
///
/// Both divide time from the Unix epoch on. A bucket is a window divided by the number of buckets, so all lengths here are
/// multiplied by that number. The time of the one begins at a multiple of its bucket, and the other is used up at most once
/// in as many of its own buckets as count together.
fn spans(bucket: u128, other_bucket: u128, buckets: u128) -> u64 {
    let begins_within = other_bucket - gcd(bucket, other_bucket);
    let touched = (begins_within + bucket * buckets).div_ceil(other_bucket);
    u64::try_from(touched.div_ceil(buckets)).unwrap_or(u64::MAX)
}

fn gcd(one: u128, other: u128) -> u128 {
    if other == 0 { one } else { gcd(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many bursts, each `buckets` buckets of `other_window` after the previous one, fit into the time that a tier of
    /// `window` counts together, wherever it begins. All times are in units of which a bucket has `window`.
    fn most_bursts(window: u64, other_window: u64, buckets: u64) -> u64 {
        (0..window * other_window)
            .step_by(usize::try_from(window).unwrap())
            .map(|begin| {
                let last = begin + window * buckets - 1;
                (last / other_window - begin / other_window + 1).div_ceil(buckets)
            })
            .max()
            .unwrap()
    }

    #[test]
    fn the_worst_begin_is_found() {
        for buckets in [1, 5, 11] {
            for (window, other) in (1..24).flat_map(|window| (1..24).map(move |other| (window, other))) {
                let found = spans(u128::from(window), u128::from(other), u128::from(buckets));
                assert_eq!(found, most_bursts(window, other, buckets), "{window} {other} {buckets}");
            }
        }
    }

    #[test]
    fn a_minute_has_sixty_seconds_of_the_calendar() {
        assert_eq!((spans(60_000, 1_000, 1), spans(60_000, 1_000, 11)), (60, 60));
        assert_eq!((spans(1_000, 60_000, 1), spans(1_000, 60_000, 11)), (1, 1));
        // A window of 90 s touches three minutes of the calendar.
        assert_eq!((spans(90_000, 60_000, 1), spans(100_000, 60_000, 1)), (2, 3));
    }
}
