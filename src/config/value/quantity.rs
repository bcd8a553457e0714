//! Durations, sizes, counts and percentages.

use std::{ops::RangeInclusive, time::Duration};

use super::Invalid;

/// The longest duration that a configuration may hold.
pub(in crate::config) const LONGEST: Duration = Duration::from_secs(366 * DAY);

const DAY: u64 = 24 * 60 * 60;

/// Units of time in milliseconds, largest first.
const TIMES: [(&str, u64); 5] =
    [("d", DAY * 1000), ("h", 60 * 60 * 1000), ("m", 60 * 1000), ("s", 1000), ("ms", 1)];

const SIZES: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Reads `250ms`, `1s`, `5m`, `1h`, `30d`: a whole number and a unit.
pub(in crate::config) fn duration(
    allowed: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, Invalid> {
    move |text| {
        let form = "durations are written 250ms, 1s, 5m, 1h, 30d";
        let invalid = || Invalid::new("is not a duration").form(form);
        let (number, unit) = split(text);
        if unit.is_empty() && !number.is_empty() {
            return Err(invalid().guess(format!("a duration has a unit: {number}s, {number}ms")));
        }
        let length = time(number, unit).ok_or_else(invalid)?;
        within(length, &allowed, show_duration)
    }
}

/// `number` of `unit`, where both are right.
pub(super) fn time(number: &str, unit: &str) -> Option<Duration> {
    let (_, millis) = TIMES.iter().find(|(name, _)| *name == unit)?;
    Some(Duration::from_millis(whole(number)?.saturating_mul(*millis)))
}

/// `text` after the digits with which it begins.
pub(super) fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// In the largest unit that gives a whole number.
pub(super) fn show_duration(duration: &Duration) -> String {
    let millis = duration.as_millis();
    match TIMES.iter().find(|(_, unit)| millis > 0 && millis.is_multiple_of(u128::from(*unit))) {
        Some((name, unit)) => format!("{}{name}", millis / u128::from(*unit)),
        None => "0s".to_owned(),
    }
}

/// Reads `32KiB`, `10MiB`, `1GiB`, or bytes without a unit.
pub(in crate::config) fn size(allowed: RangeInclusive<usize>) -> impl Fn(&str) -> Result<usize, Invalid> {
    move |text| {
        let invalid =
            || Invalid::new("is not a size").form("sizes are written 16KiB, 10MiB, 1GiB, or in bytes");
        let (number, unit) = split(text);
        let factor = match SIZES.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => *factor,
            None if unit.is_empty() => 1,
            None => return Err(near_size(number, unit).map_or_else(invalid, |near| invalid().guess(near))),
        };
        let bytes = whole(number).ok_or_else(invalid)?.saturating_mul(factor);
        within(usize::try_from(bytes).unwrap_or(usize::MAX), &allowed, |bytes| show_size(*bytes))
    }
}

fn near_size(number: &str, unit: &str) -> Option<String> {
    let first = unit.chars().next()?.to_ascii_uppercase();
    let (name, _) = SIZES.iter().find(|(name, _)| name.starts_with(first))?;
    whole(number).map(|number| format!("did you mean `{number}{name}`?"))
}

fn show_size(bytes: usize) -> String {
    let bytes = bytes as u64;
    match SIZES.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// Reads a whole number.
pub(in crate::config) fn count(allowed: RangeInclusive<usize>) -> impl Fn(&str) -> Result<usize, Invalid> {
    move |text| {
        let number = whole(text).ok_or_else(|| Invalid::new("is not a whole number"))?;
        within(usize::try_from(number).unwrap_or(usize::MAX), &allowed, ToString::to_string)
    }
}

/// Reads a whole number of units.
pub(in crate::config) fn number(allowed: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, Invalid> {
    move |text| {
        let number = whole(text).ok_or_else(|| Invalid::new("is not a whole number"))?;
        within(number, &allowed, ToString::to_string)
    }
}

/// Reads `1%`, `0.5%`, 0 to 100, as a share of 1.
pub(in crate::config) fn percentage(text: &str) -> Result<f64, Invalid> {
    let invalid = || Invalid::new("is not a percentage").form("percentages are written 1%, 0.5%, 100%");
    let number = text.strip_suffix('%').ok_or_else(invalid)?;
    if !number.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return Err(invalid());
    }
    let percent: f64 = number.parse().map_err(|_| invalid())?;
    if percent > 100.0 { Err(Invalid::new("is more than 100%")) } else { Ok(percent / 100.0) }
}

/// A number of digits only, saturating; no sign, no fraction, no separators.
pub(super) fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

fn within<T: PartialOrd>(
    value: T,
    allowed: &RangeInclusive<T>,
    show: impl Fn(&T) -> String,
) -> Result<T, Invalid> {
    if allowed.contains(&value) {
        return Ok(value);
    }
    let (least, most) = (show(allowed.start()), show(allowed.end()));
    let what = if value < *allowed.start() { "is too small" } else { "is too large" };
    Err(Invalid::new(what).form(format!("from {least} to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let read = duration(Duration::ZERO..=LONGEST);
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
            assert_eq!(read(text).unwrap_err().what, "is not a duration", "{text}");
        }
        assert_eq!(read("30").unwrap_err().help(false).unwrap(), "a duration has a unit: 30s, 30ms");
        let short = duration(Duration::from_millis(1)..=LONGEST);
        assert_eq!(short("0s").unwrap_err().help(false).unwrap(), "from 1ms to 366d");
        assert_eq!(short("99999999999999999999d").unwrap_err().what, "is too large");
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
        assert_eq!(read("big").unwrap_err().what, "is not a size");
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
}
