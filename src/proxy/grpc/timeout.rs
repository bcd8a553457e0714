//! `grpc-timeout`: how long the client of a call waits.

use std::time::Duration;

use http::{HeaderName, HeaderValue};

pub(super) static GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The duration in `grpc-timeout`: at most eight digits, and a unit. `None`: it is invalid, and passed on to the
/// upstream, which may refuse it.
pub(super) fn parse(value: &HeaderValue) -> Option<Duration> {
    let (unit, digits) = value.as_bytes().split_last()?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let number = digits.iter().try_fold(0_u64, |number, digit| match digit {
        b'0'..=b'9' => Some(number * 10 + u64::from(digit - b'0')),
        _ => None,
    })?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 3_600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_at_most_eight_digits_and_a_unit() {
        let parsed = |value| parse(&HeaderValue::from_static(value));
        for (value, nanos) in [
            ("0n", 0),
            ("1n", 1),
            ("20u", 20_000),
            ("300m", 300_000_000),
            ("5S", 5_000_000_000),
            ("2M", 120_000_000_000),
            ("1H", 3_600_000_000_000),
            ("99999999H", 359_999_996_400_000_000_000),
            ("00000001S", 1_000_000_000),
        ] {
            assert_eq!(parsed(value).map(|timeout| timeout.as_nanos()), Some(nanos), "{value}");
        }
        for value in
            ["", "S", "1", "1s", "1h", "-1S", "+1S", "1.5S", " 1S", "1 S", "1S ", "123456789n", "1SS"]
        {
            assert_eq!(parsed(value), None, "{value:?}");
        }
    }
}
