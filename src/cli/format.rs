//! Short formats of numbers.

use super::terminal::span;
use crate::telemetry::time;
pub(super) use crate::text::{count, thousands};

/// A rate per second: `0`, `0.25`, `12.5`, `1250`; `-` if unknown.
pub(super) fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate < 0.005 => "0".to_owned(),
        Some(rate) if rate < 9.995 => format!("{rate:.2}"),
        Some(rate) if rate < 99.95 => format!("{rate:.1}"),
        Some(rate) => format!("{rate:.0}"),
    }
}

/// Formats seconds: `0.4ms`, `12ms`, `1.2s`; `-` for `None`.
pub(super) fn latency(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds < 0.01 => format!("{:.1}ms", seconds * 1e3),
        Some(seconds) if seconds < 1.0 => format!("{:.0}ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.1}s"),
    }
}

/// Formats the admin port's duration of a wait in two units, rounded up: `1m 5s`. Less than a second is kept as it is.
pub(super) fn wait(text: &str) -> String {
    match time::parse_duration(text) {
        Some(micros @ 1_000_000..) => span((micros - 1) / 1_000_000 + 1),
        _ => text.to_owned(),
    }
}

/// Formats the admin port's duration in two units: `3h 0m`.
pub(super) fn uptime(text: &str) -> String {
    time::parse_duration(text).map_or_else(|| text.to_owned(), |micros| span(micros / 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let texts = [None, Some(0.0), Some(0.25), Some(12.0), Some(99.96), Some(1_250.4)].map(rate);
        assert_eq!(texts, ["-", "0", "0.25", "12.0", "100", "1250"]);
        let texts = [None, Some(0.0004), Some(0.012), Some(1.25)].map(latency);
        assert_eq!(texts, ["-", "0.4ms", "12ms", "1.2s"]);
        let texts = ["64845ms", "1s", "1001ms", "250ms", "0s"].map(wait);
        assert_eq!(texts, ["1m 5s", "1s", "2s", "250ms", "0s"]);
        assert_eq!([uptime("90m"), uptime("59s"), uptime("long")], ["1h 30m", "59s", "long"]);
    }
}
