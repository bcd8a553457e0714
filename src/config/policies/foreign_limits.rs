//! Limits as nginx, Kong, Envoy, Traefik and others write them, over several settings.

use crate::config::{reader::MappingCursor, value::suggest_rate};

/// Settings that hold a number of requests, or a rate.
const COUNTS: [&str; 14] = [
    "rate",
    "requests",
    "max",
    "max_requests",
    "average",
    "requests_per_unit",
    "max_events",
    "tokens_per_fill",
    "max_tokens",
    "quota",
    "threshold",
    "calls",
    "hits",
    "rate_limit",
];
/// Settings that hold the window of that number.
const WINDOWS: [&str; 12] = [
    "window",
    "period",
    "per",
    "unit",
    "interval",
    "fill_interval",
    "duration",
    "timeframe",
    "window_size",
    "time_window",
    "time_unit",
    "seconds",
];
/// Settings that are named after their window.
const NAMED: [(&str, &str); 14] = [
    ("second", "s"),
    ("minute", "m"),
    ("hour", "h"),
    ("day", "d"),
    ("month", "month"),
    ("rps", "s"),
    ("rpm", "m"),
    ("rph", "h"),
    ("per_second", "s"),
    ("per_minute", "m"),
    ("per_hour", "h"),
    ("requests_per_second", "s"),
    ("requests_per_minute", "m"),
    ("requests_per_hour", "h"),
];

/// Explains each such setting by the line to write. Returns this line if the settings are enough to know it.
pub(in crate::config) fn explain(mapping: &mut MappingCursor<'_>) -> Option<String> {
    let scalar = |key: &str| mapping.peek(key).and_then(|value| value.scalar()).map(str::to_owned);
    let named: Vec<(&str, String)> = NAMED
        .iter()
        .filter_map(|(key, unit)| {
            Some((*key, suggest_rate(&format!("{}/{unit}", scalar(key)?))?.to_string()))
        })
        .collect();
    let counts: Vec<(&str, String)> = COUNTS.iter().filter_map(|key| Some((*key, scalar(key)?))).collect();
    let windows: Vec<(&str, String)> = WINDOWS.iter().filter_map(|key| Some((*key, scalar(key)?))).collect();
    let count = scalar("limit").or_else(|| counts.first().map(|(_, count)| count.clone()));
    let together = count.as_ref().and_then(|count| {
        let with_window = windows.iter().find_map(|(_, window)| suggest_rate(&format!("{count}/{window}")));
        with_window.or_else(|| suggest_rate(count))
    });
    let line = match (&named[..], together) {
        ([], None) => None,
        ([], Some(rate)) => Some(format!("limit: {rate}")),
        ([(_, rate)], _) => Some(format!("limit: {rate}")),
        (several, _) => {
            let rates: Vec<&str> = several.iter().map(|(_, rate)| rate.as_str()).collect();
            Some(format!("limits: [{}]", rates.join(", ")))
        }
    };
    let help = match &line {
        Some(line) => format!("did you mean `{line}`?"),
        None => "a limit is a number per window: `limit: 100/1s`, or `limit: 100/1m`".to_owned(),
    };
    // `per: ip` is a key.
    let is_window = |(_, window): &&(&str, String)| suggest_rate(&format!("1/{window}")).is_some();
    let keys = windows.iter().filter(is_window).chain(&counts).chain(&named).map(|(key, _)| *key);
    for key in keys.collect::<Vec<_>>() {
        mapping.explain(key, "limit", help.clone());
    }
    line
}
