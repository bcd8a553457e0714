//! Numbers with or without a unit: durations, sizes, counts, percentages, factors and rates.

use std::{ops::RangeInclusive, time::Duration};

use super::{
    Invalid,
    quantity_suggestion::{suggest_count, suggest_duration, suggest_percentage, suggest_rate, suggest_size},
};
use crate::config::model::{Rate, format_duration, format_size};

/// The longest duration that a configuration may hold.
pub(in crate::config) const MAX_DURATION: Duration = Duration::from_secs(366 * DAY);

const DAY: u64 = 24 * 60 * 60;

/// Units of time in milliseconds, largest first.
const TIME_UNITS: [(&str, u64); 5] =
    [("d", DAY * 1000), ("h", 60 * 60 * 1000), ("m", 60 * 1000), ("s", 1000), ("ms", 1)];

const SIZE_UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Reads `250ms`, `1s`, `5m`, `1h`, `30d`: a whole number and a unit.
pub(in crate::config) fn duration(
    allowed: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, Invalid> {
    move |text| {
        let expected = "write durations such as 250ms, 1s, 5m, 1h, 30d";
        let invalid = || Invalid::new("is not a duration").expected(expected);
        let (number, unit) = split_number(text);
        if unit.is_empty() && !number.is_empty() {
            return Err(invalid().suggestion(format!("add a unit: {number}s, {number}ms")));
        }
        let length =
            duration_of(number, unit).ok_or_else(|| did_you_mean(invalid(), suggest_duration(text)))?;
        within_range(length, &allowed, |duration| format_duration(*duration))
    }
}

/// The duration of `number` of `unit`, if both are valid.
pub(super) fn duration_of(number: &str, unit: &str) -> Option<Duration> {
    let (_, millis) = TIME_UNITS.iter().find(|(name, _)| *name == unit)?;
    Some(Duration::from_millis(whole_number(number)?.saturating_mul(*millis)))
}

/// Splits `text` after its leading digits.
pub(super) fn split_number(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Reads `32KiB`, `10MiB`, `1GiB`, or bytes without a unit.
pub(in crate::config) fn size(allowed: RangeInclusive<usize>) -> impl Fn(&str) -> Result<usize, Invalid> {
    move |text| {
        let invalid =
            || Invalid::new("is not a size").expected("write sizes such as 16KiB, 10MiB, 1GiB, or in bytes");
        let (number, unit) = split_number(text);
        let factor = match SIZE_UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => *factor,
            None if unit.is_empty() => 1,
            None => return Err(did_you_mean(invalid(), suggest_size(text))),
        };
        let bytes = whole_number(number).ok_or_else(invalid)?.saturating_mul(factor);
        within_range(usize::try_from(bytes).unwrap_or(usize::MAX), &allowed, |bytes| format_size(*bytes))
    }
}

/// Reads the most bytes that a request's body may have. 0: any number.
pub(in crate::config) fn body_size(text: &str) -> Result<usize, Invalid> {
    let unlimited = ["unlimited", "none", "off", "-1"].contains(&text.to_ascii_lowercase().as_str());
    match unlimited {
        true => Err(Invalid::new("is not a size").suggestion("write 0 for bodies of any size")),
        false => size(0..=1 << 50)(text),
    }
}

/// Adds the form that was probably meant.
fn did_you_mean(invalid: Invalid, form: Option<String>) -> Invalid {
    match form {
        Some(form) => invalid.suggestion(format!("did you mean `{form}`?")),
        None => invalid,
    }
}

/// Reads a whole number.
pub(in crate::config) fn count(allowed: RangeInclusive<usize>) -> impl Fn(&str) -> Result<usize, Invalid> {
    move |text| {
        let number = whole_number(text).ok_or_else(|| no_whole_number(text))?;
        within_range(usize::try_from(number).unwrap_or(usize::MAX), &allowed, ToString::to_string)
    }
}

fn no_whole_number(text: &str) -> Invalid {
    did_you_mean(Invalid::new("is not a whole number"), suggest_count(text))
}

/// Reads a whole number of units.
pub(in crate::config) fn number(allowed: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, Invalid> {
    move |text| {
        let number = whole_number(text).ok_or_else(|| no_whole_number(text))?;
        within_range(number, &allowed, ToString::to_string)
    }
}

/// Reads `1%`, `0.5%`, 0 to 100, as a share of 1.
pub(in crate::config) fn percentage(text: &str) -> Result<f64, Invalid> {
    let invalid = || {
        let invalid =
            Invalid::new("is not a percentage").expected("write percentages such as 1%, 0.5%, 100%");
        did_you_mean(invalid, suggest_percentage(text))
    };
    let number = text.strip_suffix('%').ok_or_else(invalid)?;
    if !number.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return Err(invalid());
    }
    let percent: f64 = number.parse().map_err(|_| invalid())?;
    if percent > 100.0 { Err(Invalid::new("is more than 100%")) } else { Ok(percent / 100.0) }
}

/// A number of digits alone, saturating; no sign, no fraction, no separators.
pub(super) fn whole_number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

fn within_range<T: PartialOrd>(
    value: T,
    allowed: &RangeInclusive<T>,
    show: impl Fn(&T) -> String,
) -> Result<T, Invalid> {
    if allowed.contains(&value) {
        return Ok(value);
    }
    let (least, most) = (show(allowed.start()), show(allowed.end()));
    let reason = if value < *allowed.start() { "is too small" } else { "is too large" };
    Err(Invalid::new(reason).expected(format!("from {least} to {most}")))
}

/// The largest factor.
const MAX_FACTOR: f64 = 1_000.0;

/// Reads `2`, `1.5`: 1 to 1000.
pub(in crate::config) fn factor(text: &str) -> Result<f64, Invalid> {
    let invalid = || Invalid::new("is not a factor").expected("write factors such as 2 or 1.5");
    let (whole_number, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole_number) || !is_number(fraction) {
        return Err(invalid());
    }
    let factor: f64 = text.parse().map_err(|_| invalid())?;
    match (1.0..=MAX_FACTOR).contains(&factor) {
        true => Ok(factor),
        false => Err(Invalid::new("is out of range").expected("from 1 to 1000")),
    }
}

/// The largest limit.
pub(in crate::config) const MAX_LIMIT: u64 = 1_000_000_000;

/// Reads `100/1s`; `10/m` is `10/1m`.
pub(in crate::config) fn rate(text: &str) -> Result<Rate, Invalid> {
    let invalid = || {
        let invalid =
            Invalid::new("is not a rate").expected("a rate is a number per window, such as 100/1s or 10/m");
        did_you_mean(invalid, suggest_rate(text).map(|rate| rate.to_string()))
    };
    let (limit, window) = text.split_once('/').ok_or_else(invalid)?;
    let limit = whole_number(limit).ok_or_else(invalid)?;
    let (number, unit) = split_number(window);
    let window = duration_of(if number.is_empty() { "1" } else { number }, unit).ok_or_else(invalid)?;
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Invalid::new("has a limit that is out of range").expected("from 1 to 1000000000"));
    }
    if !(Duration::from_millis(1)..=MAX_DURATION).contains(&window) {
        return Err(Invalid::new("has a window that is out of range").expected("from 1ms to 366d"));
    }
    Ok(Rate { limit, window })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let read = duration(Duration::ZERO..=MAX_DURATION);
        for (text, millis) in [
            ("250ms", 250),
            ("1s", 1000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("30d", 2_592_000_000),
            ("0s", 0),
        ] {
            assert_eq!(read(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "1.5s", "-1s", "1 s", "1S", "1h30m", "1w", "5", "٣s"] {
            assert_eq!(read(text).unwrap_err().reason, "is not a duration", "{text}");
        }
        assert_eq!(read("30").unwrap_err().help(false).unwrap(), "add a unit: 30s, 30ms");
        let short = duration(Duration::from_millis(1)..=MAX_DURATION);
        assert_eq!(short("0s").unwrap_err().help(false).unwrap(), "from 1ms to 366d");
        assert_eq!(short("99999999999999999999d").unwrap_err().reason, "is too large");
    }

    #[test]
    fn sizes() {
        let read = size(1024..=1 << 20);
        assert_eq!(read("16KiB"), Ok(16 << 10));
        assert_eq!(read("1MiB"), Ok(1 << 20));
        assert_eq!(read("2000"), Ok(2000));
        assert_eq!(read("1GiB").unwrap_err().help(false).unwrap(), "from 1KiB to 1MiB");
        assert_eq!(read("16KB").unwrap_err().help(false).unwrap(), "did you mean `16KiB`?");
        assert_eq!(read("16k").unwrap_err().help(false).unwrap(), "did you mean `16KiB`?");
        assert_eq!(read("big").unwrap_err().reason, "is not a size");
    }

    #[test]
    fn counts_and_percentages() {
        let read = count(1..=10);
        assert_eq!(read("10"), Ok(10));
        for text in ["0", "11", "+1", "1_0", "0x1", "1.0", ""] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(percentage("100%"), Ok(1.0));
        assert_eq!(percentage("0.5%"), Ok(0.005));
        for text in ["1", "%", "-1%", "101%", "inf%", "NaN%", "1e1%", ".%"] {
            assert!(percentage(text).is_err(), "{text}");
        }
    }

    #[test]
    fn factors() {
        for (text, value) in [("1", 1.0), ("1.5", 1.5), ("2", 2.0), ("1000", 1_000.0)] {
            assert_eq!(factor(text), Ok(value));
        }
        for text in ["", ".", "1.", ".5", "-2", "+2", "2x", "1e2", "inf", "NaN", "1.5.1", "1,5"] {
            assert_eq!(factor(text).unwrap_err().reason, "is not a factor", "{text}");
        }
        for text in ["0", "0.99", "1000.1", "99999999999999999999999"] {
            assert_eq!(factor(text).unwrap_err().reason, "is out of range", "{text}");
        }
    }

    #[test]
    fn rates() {
        let secs = |limit, secs| Rate { limit, window: Duration::from_secs(secs) };
        assert_eq!(rate("100/1s"), Ok(secs(100, 1)));
        assert_eq!(rate("10/m"), Ok(secs(10, 60)));
        assert_eq!(rate("1000000000/366d"), Ok(secs(MAX_LIMIT, 366 * 86_400)));
        assert_eq!(rate("1/250ms"), Ok(Rate { limit: 1, window: Duration::from_millis(250) }));
        for text in ["", "/", "100", "100/", "/1s", "10x/s", "10/1", "10 / s", "-1/s", "1/1/s", "1/sec"] {
            assert_eq!(rate(text).unwrap_err().reason, "is not a rate", "{text}");
        }
        for text in ["0/s", "1000000001/s"] {
            assert_eq!(rate(text).unwrap_err().reason, "has a limit that is out of range");
        }
        for text in ["1/0s", "1/367d"] {
            assert_eq!(rate(text).unwrap_err().reason, "has a window that is out of range");
        }
    }
}
