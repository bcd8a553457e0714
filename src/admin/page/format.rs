//! Formats numbers, times and client-chosen text for display.

use std::borrow::Cow;

use jiff::Timestamp;

use crate::text::is_invisible;

/// Microseconds since the Unix epoch of an RFC 3339 time; 0 if it is not one.
pub(super) fn parse_micros(rfc3339: &str) -> i64 {
    rfc3339.parse::<Timestamp>().map_or(0, Timestamp::as_microsecond)
}

/// `12,480`
pub(super) fn format_count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Events per second: `0`, `0.4`, `12.5`, `1,250`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is rounded, and not below 0")]
pub(super) fn format_rate(number: f64) -> String {
    let tenths = (number * 10.0).round().max(0.0) as u64;
    match tenths {
        1000.. => format_count(number.round() as u64),
        tenths if tenths % 10 == 0 => format_count(tenths / 10),
        tenths => format!("{}.{}", tenths / 10, tenths % 10),
    }
}

/// `0.4 ms`, `12 ms`, `1.3 s`
pub(super) fn format_latency(seconds: f64) -> String {
    match seconds * 1_000.0 {
        millis if millis < 9.95 => format!("{millis:.1} ms"),
        millis if millis < 999.5 => format!("{millis:.0} ms"),
        _ => format!("{seconds:.1} s"),
    }
}

/// A duration in its two largest units: `41 s`, `12 min`, `3 h 5 min`, `2 d 4 h`.
pub(super) fn format_duration(micros: i64) -> String {
    let seconds = micros.max(0) / 1_000_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, of: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {of}"),
    };
    match seconds {
        ..60 => format!("{seconds} s"),
        60..3_600 => two(minutes, "min", if minutes < 10 { seconds % 60 } else { 0 }, "s"),
        3_600..86_400 => two(hours, "h", minutes % 60, "min"),
        _ => two(days, "d", hours % 24, "h"),
    }
}

/// The time since an event: `just now`, `41 s ago`.
pub(super) fn format_age(micros: i64) -> String {
    if micros < 2_000_000 { "just now".to_owned() } else { format!("{} ago", format_duration(micros)) }
}

/// Rewrites a duration of the API: `113s` as `1 min 53 s`. Other text is returned unchanged.
pub(super) fn humanize_duration(duration: &str) -> String {
    let digits = duration.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &duration[digits.len()..] {
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        // A second or more is rounded up to seconds, so that a client that waits this long is not too early.
        "ms" if digits.len() > 3 => {
            return digits.parse().map_or_else(
                |_| duration.to_owned(),
                |ms: i64| format_duration(ms.saturating_add(999).saturating_mul(1_000)),
            );
        }
        "ms" => return format!("{digits} ms"),
        _ => return duration.to_owned(),
    };
    digits
        .parse::<i64>()
        .map_or_else(|_| duration.to_owned(), |number| format_duration(number.saturating_mul(unit)))
}

/// Escapes characters that are invisible, control a terminal or change the direction of text.
pub(super) fn escape_invisible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_invisible) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| match c {
        // The symbols for control characters have the same order (U+2400 and on).
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).map_or_else(String::new, String::from),
        c if is_invisible(c) => c.escape_unicode().to_string(),
        c => c.to_string(),
    };
    Cow::Owned(text.chars().map(shown).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(format_count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0.0, 0.04, 0.4, 12.0, 12.54, 1_249.6].map(format_rate),
            ["0", "0", "0.4", "12", "12.5", "1,250"]
        );
        assert_eq!([0.0004, 0.0123, 0.9996, 1.26].map(format_latency), ["0.4 ms", "12 ms", "1.0 s", "1.3 s"]);
        let spans = [-5, 41, 61, 600, 3_600, 11_100, 86_400, 187_200].map(|s| format_duration(s * 1_000_000));
        assert_eq!(spans, ["0 s", "41 s", "1 min 1 s", "10 min", "1 h", "3 h 5 min", "1 d", "2 d 4 h"]);
    }

    #[test]
    fn durations_are_humanized() {
        assert_eq!(
            ["113s", "250ms", "3242ms", "90m", "0s", "soon", ""].map(humanize_duration),
            ["1 min 53 s", "250 ms", "4 s", "1 h 30 min", "0 s", "soon", ""]
        );
    }

    #[test]
    fn invisible_characters_are_escaped() {
        assert_eq!(escape_invisible("Zoë <b>"), "Zoë <b>");
        assert_eq!(escape_invisible("a\n\u{202e}b\u{85}"), "a␊\\u{202e}b\\u{85}");
    }

    #[test]
    fn rfc_3339_times_are_parsed() {
        assert_eq!(parse_micros("2026-07-03T12:00:01.250Z"), 1_783_080_001_250_000);
        assert_eq!(parse_micros("yesterday"), 0);
    }
}
