//! Settings of a policy that contradict each other, or have no effect.

use crate::config::{
    policies::{
        algorithm::Algorithm,
        cost::DEFAULT_MAX_REQUEST,
        settings::{Mode, OnStoreError, Policy, PolicySettings},
    },
    reader::{Cursor, MappingCursor},
    resolved::Config,
    store::settings::StoreSettings,
    value::rate::{CalendarUnit, Quota, Window},
    written::format::format_size,
};

/// Warns of settings that have no effect without windows of the calendar, and of counts that start anew while Redis is away.
/// `value`: the settings of `policy`.
pub(in crate::config) fn warn_of_calendar_windows(value: Cursor<'_>, policy: &Policy, store: &StoreSettings) {
    let of_overrides = policy.overrides.iter().flat_map(|other| &other.tiers);
    let windows: Vec<Window> = policy.tiers.iter().chain(of_overrides).map(|tier| tier.window).collect();
    let has_calendar = policy.has_calendar();
    let has_months = windows.contains(&Window::Calendar(CalendarUnit::Month));
    if let Some(zone) = value.entry("time_zone").filter(|_| !has_calendar) {
        let help =
            "a limit such as `1000/month` or `100/day` follows the zone; `1d` is 24 hours from midnight UTC";
        zone.warn(
            "no limit of this policy is the calendar's, so the time zone has no effect",
            help.to_owned(),
        );
    }
    if let Some(day) = value.entry("reset_day").filter(|_| !has_months) {
        day.warn(
            "no limit of this policy is by month, so the reset day has no effect",
            "a limit by month is written `1000/month`".to_owned(),
        );
    }
    let is_local = policy.on_store_error == OnStoreError::Local && policy.mode == Mode::Enforce;
    if has_calendar && is_local && store.redis.is_some() {
        let of = value.entry("on_store_error").unwrap_or(value);
        let message =
            "while Redis is away, each instance counts this limit in memory, from zero at each outage";
        let help = "write `on_store_error: deny` to admit nothing meanwhile, or `on_store_error: allow` to admit all";
        of.warn(message, help.to_owned());
    }
}

/// Settings that only one algorithm has, and its name.
const OWNERS: [(&str, &str); 4] =
    [("buckets", "sliding_window"), ("burst", "gcra"), ("lease", "concurrency"), ("value", "distinct")];

/// Reports settings that the algorithm does not take, or that do not go together. `tiers`: `None` if the limits are wrong.
pub(in crate::config) fn report_contradictions(
    mapping: &MappingCursor<'_>,
    policy: &PolicySettings<'_>,
    tiers: Option<&[Quota]>,
) {
    let kind = policy.algorithm;
    for (key, owner) in OWNERS {
        report_foreign_setting(mapping, key, owner, kind);
    }
    if !policy.delay.is_zero() {
        report_foreign_setting(mapping, "delay", "gcra", kind);
    }
    if policy.slice > 0.0 {
        report_foreign_setting(mapping, "slice", "fixed_window", kind);
    }
    for key in ["time_zone", "reset_day"] {
        report_foreign_setting(mapping, key, "fixed_window", kind);
    }
    if let Some(kind) = kind {
        report_overdraw(mapping, policy, kind);
    }
    match kind.and_then(|kind| Some((kind, why_one_unit(kind)?))) {
        Some((kind, why)) => report_unit_settings(mapping, policy, kind, why),
        None => report_combinations(mapping, policy, kind.and(tiers)),
    }
    if let Some(response) = policy.cost.and_then(|cost| cost.entry("response")) {
        report_beside_response(mapping, policy, response);
    }
}

/// Whether `response` counts the tokens of a provider, whose responses take long.
fn is_preset(response: Cursor<'_>) -> bool {
    let word = response.scalar().or_else(|| response.entry("preset")?.scalar());
    word.is_some_and(|word| word != "bytes")
}

/// Reports settings that exclude a cost that the `response` tells.
fn report_beside_response(mapping: &MappingCursor<'_>, policy: &PolicySettings<'_>, response: Cursor<'_>) {
    let report = |key: &str, help: &str| {
        if let Some(location) = mapping.key_location(key) {
            let message = format!("`{key}` cannot be combined with a cost that the response tells");
            mapping.report_at(location, message, help.to_owned());
        }
    };
    if mapping.key_location("count").is_some() {
        report("count", "a response that costs nothing says so; remove one of the two");
    }
    if policy.count_denied {
        report("count_denied", "a denied request has no response; remove one of the two");
    }
    if policy.slice > 0.0 {
        report("slice", "an instance cannot return what it took in its slice; remove one of the two");
    }
    if !policy.delay.is_zero() {
        report(
            "delay",
            "how long a request has to wait depends on what the others cost after all; remove one of the two",
        );
    }
    let Some(kind) = policy.algorithm else { return };
    let counts_bytes = response.scalar() == Some("bytes");
    match kind {
        Algorithm::FixedWindow | Algorithm::SingleCounter => {}
        Algorithm::Gcra { .. } if is_preset(response) => {
            let help =
                "for streams, `algorithm: sliding_window` gives back what a response did not cost".to_owned();
            response.warn(
                "gcra refunds little after a long response: what has drained meanwhile stays charged",
                help,
            );
        }
        Algorithm::SlidingWindow { .. } | Algorithm::SlidingCounter | Algorithm::Gcra { .. }
            if !counts_bytes => {}
        Algorithm::Concurrency | Algorithm::Distinct => {}
        _ if counts_bytes => {
            let message = format!("{} does not count the bytes of responses", kind.name());
            response.report(message, "set `algorithm: fixed_window` or `single_counter`".to_owned());
        }
        _ => {
            let message = format!(
                "{} stores what it counts one by one, so the response can't tell the cost",
                kind.name()
            );
            let help = "set `algorithm: sliding_window`, `sliding_counter`, `fixed_window`, `single_counter` or `gcra`";
            response.report(message, help.to_owned());
        }
    }
}

/// Reports `key` if it is there, and `kind` is not the algorithm named `owner`.
pub(in crate::config) fn report_foreign_setting(
    mapping: &MappingCursor<'_>,
    key: &str,
    owner: &str,
    kind: Option<Algorithm>,
) {
    let (Some(location), Some(kind)) = (mapping.key_location(key), kind) else { return };
    if kind.name() != owner {
        let message = format!("`{key}` is a setting of {owner}, not of {}", kind.name());
        mapping.report_at(location, message, format!("remove it, or set `algorithm: {owner}`"));
    }
}

/// Why each request costs one unit with `kind`. `None`: it may cost more.
pub(in crate::config) fn why_one_unit(kind: Algorithm) -> Option<&'static str> {
    match kind {
        Algorithm::Distinct => Some("it counts distinct values, however many requests carry them"),
        Algorithm::Concurrency => Some("it counts requests in flight, each of them once"),
        _ => None,
    }
}

/// Reports settings about units, which `kind` does not count.
fn report_unit_settings(
    mapping: &MappingCursor<'_>,
    policy: &PolicySettings<'_>,
    kind: Algorithm,
    why: &str,
) {
    for (key, is_set) in [
        ("cost", true),
        ("count", true),
        ("count_denied", policy.count_denied),
        ("overdraw", policy.overdraw),
    ] {
        if let Some(location) = mapping.key_location(key).filter(|_| is_set) {
            mapping.report_at(location, format!("{} does not take `{key}`", kind.name()), why.to_owned());
        }
    }
}

/// Reports `overdraw` where each unit is kept for itself.
fn report_overdraw(mapping: &MappingCursor<'_>, policy: &PolicySettings<'_>, kind: Algorithm) {
    if matches!(kind, Algorithm::SlidingLog | Algorithm::MetadataList)
        && policy.overdraw
        && let Some(location) = mapping.key_location("overdraw")
    {
        let help = "use sliding_window, or fixed_window: it would keep each of the units".to_owned();
        mapping.report_at(location, format!("{} does not take `overdraw`", kind.name()), help);
    }
}

fn report_combinations(mapping: &MappingCursor<'_>, policy: &PolicySettings<'_>, tiers: Option<&[Quota]>) {
    let report = |key: &str, message: &str, help: &str| {
        if let Some(location) = mapping.key_location(key) {
            mapping.report_at(location, message, help.to_owned());
        }
    };
    let has_count = mapping.key_location("count").is_some();
    let has_slice = policy.slice > 0.0;
    if has_count && policy.count_denied {
        report(
            "count_denied",
            "`count_denied` cannot be combined with `count`",
            "a denied request never gets the upstream response that `count` needs; remove one of the two",
        );
    }
    if has_count && !policy.delay.is_zero() {
        report(
            "delay",
            "`delay` cannot be combined with `count`",
            "while a request is delayed, the responses that `count` needs are still unknown; remove one of the two",
        );
    }
    if has_count && has_slice {
        report(
            "slice",
            "`slice` cannot be combined with `count`",
            "an instance cannot return what it took in its slice; remove one of the two",
        );
    }
    if has_slice && policy.count_denied {
        report(
            "slice",
            "`slice` cannot be combined with `count_denied`",
            "requests that an instance denies without the store are not counted; remove one of the two",
        );
    }
    let Some(tiers) = tiers.filter(|_| has_slice) else { return };
    let is_small = |tier: &Quota| policy.slice * (tier.limit as f64) < 2.0;
    if tiers.iter().any(|tier| tier.window.calendar().is_some()) {
        report(
            "slice",
            "`slice` does not work with windows of the calendar",
            "each request of a month asks the store; remove one of the two",
        );
    } else if tiers.len() > 1 {
        report("slice", "`slice` works only for a policy with a single limit", "write one policy per limit");
    } else if !policy.count_denied
        && !has_count
        && policy.algorithm == Some(Algorithm::FixedWindow)
        && tiers.iter().any(is_small)
    {
        report(
            "slice",
            "a slice of this limit is less than two units and saves no round trips",
            "set a larger slice, or remove it",
        );
    }
}

/// Reports that `body_memory`, at `value`, can't hold the longest body that a policy reads.
pub(in crate::config) fn check_body_memory(value: Cursor<'_>, config: &Config) {
    let read = config.policies.iter().filter_map(|policy| Some((policy, policy.cost.of_response()?)));
    let longest = read.filter(|(_, cost)| cost.reads_request()).max_by_key(|(_, cost)| cost.max_request);
    if let Some((policy, cost)) = longest
        && cost.max_request > config.body_memory / 2
    {
        let (name, max) = (&policy.name, format_size(cost.max_request));
        let message =
            format!("a client gets at most half of it, which is less than `max_request` of {name}, {max}");
        let help =
            format!("write at least {}, or a smaller `max_request`", format_size(cost.max_request * 2));
        value.report(message, help);
    } else if !config.values.is_empty() && DEFAULT_MAX_REQUEST > config.body_memory / 2 {
        let max = format_size(DEFAULT_MAX_REQUEST);
        let message =
            format!("a client gets at most half of it, and bodies of up to {max} are read for `values`");
        value.report(message, format!("write at least {}", format_size(DEFAULT_MAX_REQUEST * 2)));
    }
}
