//! Times as text: RFC 3339 in UTC.

use jiff::Timestamp;

/// `2026-07-03T12:00:01.250Z` for microseconds since the Unix epoch, cut to milliseconds. Times that no
/// calendar holds are told as the epoch.
pub fn rfc3339(micros: i64) -> String {
    let time = Timestamp::from_microsecond(micros).unwrap_or_default();
    format!("{time:.3}")
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
}
