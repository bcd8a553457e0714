//! Shows clients their limits: the quota fields of every response, and the responses to denied requests.

mod headers;
mod replies;
mod texts;

pub(super) use replies::banned;
pub(super) use texts::QuotaTexts;

use bytes::Bytes;
use http::HeaderValue;

const MICROS: i64 = 1_000_000;

/// Whole seconds, rounded up, so that a client that waits this long does not come back too early.
fn seconds(micros: i64) -> i64 {
    micros.max(0).saturating_add(MICROS - 1) / MICROS
}

/// Seconds as a field value. Values below 100 are static.
fn seconds_value(seconds: i64) -> HeaderValue {
    let digits = usize::try_from(seconds).ok().and_then(|seconds| TWO_DIGITS.get(seconds));
    let digits = digits.map(|digits| Bytes::from_static(if seconds < 10 { &digits[1..] } else { digits }));
    let value = digits.and_then(|digits| HeaderValue::from_maybe_shared(digits).ok());
    value.unwrap_or_else(|| HeaderValue::from(seconds))
}

/// `00` to `99`.
static TWO_DIGITS: [[u8; 2]; 100] = {
    let mut table = [*b"00"; 100];
    let mut number = 0;
    while number < 100 {
        table[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_written_as_a_number() {
        for seconds in [0, 1, 9, 10, 42, 99, 100, 86_400, i64::MAX] {
            assert_eq!(seconds_value(seconds), seconds.to_string());
        }
    }
}
