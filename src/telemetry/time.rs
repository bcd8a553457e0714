//! Times and durations as text.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// Formats microseconds since the Unix epoch as `2026-07-03T12:00:01.250Z`, truncated to milliseconds. Times outside
/// the calendar's range become the epoch.
pub fn rfc3339(micros: i64) -> String {
    let time = Timestamp::from_microsecond(micros).unwrap_or_default();
    format!("{time:.3}")
}

/// Microseconds since the Unix epoch; 0 for earlier times.
pub fn unix_micros(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Formats microseconds as a duration in proxy.yaml, in the largest unit that is exact: `250ms`, `41s`, `90m`. Rounds
/// up to milliseconds, so that a client that waits this long does not retry too early.
pub fn format_duration(micros: i64) -> String {
    const UNITS: [(i64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let micros = micros.max(0);
    let millis = micros / 1_000 + i64::from(micros % 1_000 > 0);
    let exact = UNITS.into_iter().find(|(unit, _)| millis >= *unit && millis % unit == 0);
    match exact {
        _ if millis == 0 => "0s".to_owned(),
        Some((unit, name)) => format!("{}{name}", millis / unit),
        None => format!("{millis}ms"),
    }
}

/// Parses a duration in the format of proxy.yaml, an integer and a unit, into microseconds.
pub fn parse_duration(text: &str) -> Option<i64> {
    const UNITS: [(&str, i64); 5] =
        [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (_, millis) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    number.parse::<i64>().ok()?.checked_mul(millis)?.checked_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_always_there() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(1_783_080_001_250_999), "2026-07-03T12:00:01.250Z");
        assert_eq!(rfc3339(i64::MAX), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn durations_are_exact_and_never_too_short() {
        let texts: Vec<_> =
            [0, 1, 250_000, 41_000_000, 5_400_000_000, 86_400_000_000, -5].map(format_duration).into();
        assert_eq!(texts, ["0s", "1ms", "250ms", "41s", "90m", "1d", "0s"]);
    }

    #[test]
    fn durations_are_read_as_they_are_written() {
        for micros in [0, 1_000, 250_000, 41_000_000, 5_400_000_000, 86_400_000_000] {
            assert_eq!(parse_duration(&format_duration(micros)), Some(micros));
        }
        for text in ["", "1", "s", "1.5s", "-1s", " 1s", "1w", "9999999999999999d", "1h30m"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
