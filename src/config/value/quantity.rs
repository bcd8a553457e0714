//! Numbers with or without a unit: durations, sizes, counts, percentages, factors and rates. Where people write them in
//! another form, such as `5 minutes`, `10MB`, `100 per second` or nginx' `10r/s`, the error suggests ours.

use std::{ops::RangeInclusive, time::Duration};

use super::Invalid;
use crate::config::{
    nearest::nearest,
    value::rate::{CalendarUnit, Quota, Rate, Window},
    written::format::{format_duration, format_size},
};

/// The longest duration that a configuration may hold.
pub(in crate::config) const MAX_DURATION: Duration = Duration::from_millis(366 * DAY);

const SECOND: u64 = 1_000;
const DAY: u64 = 24 * 60 * 60 * SECOND;

/// Units of time, each with its milliseconds and what people call it.
const TIME_UNITS: [(&str, u64, &[&str]); 5] = [
    ("ms", 1, &["msec", "msecs", "millis", "millisecond", "milliseconds"]),
    ("s", SECOND, &["sec", "secs", "second", "seconds"]),
    ("m", 60 * SECOND, &["min", "mins", "minute", "minutes"]),
    ("h", 60 * 60 * SECOND, &["hr", "hrs", "hour", "hours"]),
    ("d", DAY, &["day", "days"]),
];
/// Units that we do not read. A month has 30 days, as for most price lists.
const FOREIGN_TIME_UNITS: [(&[&str], u64); 3] = [
    (&["w", "week", "weeks"], 7 * DAY),
    (&["mo", "month", "months"], 30 * DAY),
    (&["y", "yr", "year", "years"], 365 * DAY),
];

const SIZE_UNITS: [(&str, u64); 5] =
    [("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

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
fn duration_of(number: &str, unit: &str) -> Option<Duration> {
    let (_, millis, _) = TIME_UNITS.iter().find(|(name, ..)| *name == unit)?;
    Some(Duration::from_millis(whole_number(number)?.saturating_mul(*millis)))
}

/// Splits `text` after its leading digits.
fn split_number(text: &str) -> (&str, &str) {
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

/// Reads a limit of a policy: a rate, or `1000/month`.
pub(in crate::config) fn quota(text: &str) -> Result<Quota, Invalid> {
    let Some((limit, name)) = text.split_once('/') else { return rate(text).map(Quota::from) };
    let Some((_, unit)) = CalendarUnit::ALL.into_iter().find(|(unit, _)| *unit == name) else {
        return rate(text).map(Quota::from).map_err(|invalid| {
            // Other units may be meant as lengths. A month is no length.
            let is_month = nearest(name, ["month"]).is_some() || ["mo", "1mo", "1month"].contains(&name);
            let is_month = is_month && whole_number(limit).is_some();
            did_you_mean(invalid, is_month.then(|| format!("{limit}/month")))
        });
    };
    // The limit is checked as that of any rate.
    let Rate { limit, .. } = rate(&format!("{limit}/1s"))?;
    Ok(Quota { limit, window: Window::Calendar(unit) })
}

/// Reads a limit of bytes: `100GiB/month`. Without a unit, it is a number of bytes.
pub(in crate::config) fn quota_of_bytes(text: &str) -> Result<Quota, Invalid> {
    let (limit, window) = text.split_once('/').ok_or_else(|| {
        Invalid::new("is not a rate")
            .expected("a rate is a size per window, such as 100GiB/month or 10MiB/1m")
    })?;
    let limit = size(1..=MAX_BYTES)(limit)?;
    Ok(Quota { limit: limit as u64, ..quota(&format!("1/{window}"))? })
}

/// The largest limit of bytes.
pub(in crate::config) const MAX_BYTES: usize = 1 << 50;

/// A number with a fraction, as it was written: `1.5` is 15 of 10.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Decimal {
    digits: u64,
    scale: u64,
}

impl Decimal {
    /// Reads `10`, `1.5`, `10_000`, `10,000`.
    fn read(text: &str) -> Option<Self> {
        let groups: Vec<&str> = text.split(['_', ',', '\'']).collect();
        let are_groups =
            groups.iter().skip(1).all(|group| group.split('.').next().is_some_and(|group| group.len() == 3));
        let text = if are_groups { groups.concat() } else { return None };
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        if whole.is_empty() || fraction.len() > 3 {
            return None;
        }
        let scale = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
        Some(Self { digits: format!("{whole}{fraction}").parse().ok()?, scale })
    }

    /// So many of a unit, if they are whole.
    fn of(self, unit: u64) -> Option<u64> {
        let all = self.digits.checked_mul(unit)?;
        all.is_multiple_of(self.scale).then(|| all / self.scale)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Number(Decimal),
    /// In lower case.
    Word(String),
    Sign(char),
}

/// The numbers, words and signs of `text`.
fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut all = Vec::new();
    let mut rest = text.trim();
    while let Some(first) = rest.chars().next() {
        let is_one: fn(char) -> bool = match first {
            c if c.is_ascii_digit() => |c| c.is_ascii_digit() || matches!(c, '.' | ',' | '_' | '\''),
            c if c.is_ascii_alphabetic() => |c| c.is_ascii_alphabetic(),
            _ => |_| false,
        };
        let length = rest.find(|c| !is_one(c)).unwrap_or(rest.len()).max(first.len_utf8());
        let (token, after) = rest.split_at(length);
        all.push(match first {
            c if c.is_ascii_digit() => Token::Number(Decimal::read(token.trim_end_matches([',', '.']))?),
            c if c.is_ascii_alphabetic() => Token::Word(token.to_ascii_lowercase()),
            sign => Token::Sign(sign),
        });
        rest = after.trim_start();
    }
    Some(all)
}

/// Milliseconds of the unit of this name.
fn time_unit(name: &str) -> Option<u64> {
    let name = &*name.to_ascii_lowercase();
    let ours = TIME_UNITS.iter().find(|(unit, _, others)| *unit == name || others.contains(&name));
    let foreign = || FOREIGN_TIME_UNITS.iter().find(|(names, _)| names.contains(&name));
    ours.map(|(_, millis, _)| *millis).or_else(|| Some(foreign()?.1))
}

/// `5 minutes` as `5m`, `1h30m` as `90m`.
fn suggest_duration(text: &str) -> Option<String> {
    // ISO 8601: PT1H30M.
    let text = text.strip_prefix("PT").or(text.strip_prefix('P')).unwrap_or(text);
    let tokens = tokens(text)?;
    let mut millis = 0_u64;
    for pair in tokens.chunks(2) {
        let [Token::Number(number), Token::Word(unit)] = pair else { return None };
        millis = millis.checked_add(number.of(time_unit(unit)?)?)?;
    }
    let length = Duration::from_millis(millis);
    (millis > 0 && length <= MAX_DURATION).then(|| format_duration(length))
}

/// `10 MB` as `10MiB`, `1.5g` as `1536MiB`.
pub(in crate::config) fn suggest_size(text: &str) -> Option<String> {
    let tokens = tokens(text)?;
    let [Token::Number(number), Token::Word(unit)] = &tokens[..] else { return None };
    let factor = match unit.as_str() {
        "b" | "byte" | "bytes" => 1,
        "k" | "kb" | "ki" | "kib" | "kilobyte" | "kilobytes" => 1 << 10,
        "m" | "mb" | "mi" | "mib" | "megabyte" | "megabytes" => 1 << 20,
        "g" | "gb" | "gi" | "gib" | "gigabyte" | "gigabytes" => 1 << 30,
        "t" | "tb" | "ti" | "tib" | "terabyte" | "terabytes" => 1 << 40,
        _ => return None,
    };
    Some(format_size(usize::try_from(number.of(factor)?).ok()?))
}

/// `10,000` and `10k` as `10000`.
fn suggest_count(text: &str) -> Option<String> {
    let tokens = tokens(text)?;
    let (number, factor) = match &tokens[..] {
        [Token::Number(number)] => (number, 1),
        [Token::Number(number), Token::Word(unit)] if unit == "k" => (number, 1_000),
        _ => return None,
    };
    number.of(factor).map(|number| number.to_string())
}

/// `50`, `0.5` and `50 percent` as `50%`.
fn suggest_percentage(text: &str) -> Option<String> {
    let tokens = tokens(text)?;
    let percent = match &tokens[..] {
        // It may be a share of 1, or 1 %.
        [Token::Number(Decimal { digits: 1, scale: 1 })] => return None,
        [Token::Number(share)] if share.digits <= share.scale => share.of(100)?,
        [Token::Number(number)] | [Token::Number(number), Token::Sign('%')] => number.of(1)?,
        [Token::Number(number), Token::Word(word)] if word == "percent" => number.of(1)?,
        _ => return None,
    };
    (percent <= 100).then(|| format!("{percent}%"))
}

/// `100/minute`, `100 requests per minute`, `100rpm`, nginx' `rate=10r/s burst=20` as `100/1m`.
pub(in crate::config) fn suggest_rate(text: &str) -> Option<Rate> {
    let tokens = tokens(text.strip_prefix("rate=").unwrap_or(text))?;
    let (Token::Number(limit), mut rest) = tokens.split_first()? else { return None };
    let mut limit = *limit;
    if let [Token::Word(word), after @ ..] = rest
        && word == "k"
    {
        limit.digits = limit.digits.checked_mul(1_000)?;
        rest = after;
    }
    let mut unit = None;
    if let [Token::Word(word), after @ ..] = rest {
        unit = match word.as_str() {
            "rps" | "qps" => Some(SECOND),
            "rpm" | "qpm" => Some(60 * SECOND),
            "rph" => Some(60 * 60 * SECOND),
            "rpd" => Some(DAY),
            _ => None,
        };
        let is_what =
            ["r", "req", "reqs", "request", "requests", "hit", "hits", "call", "calls", "token", "tokens"];
        if unit.is_some() || is_what.contains(&word.as_str()) {
            rest = after;
        }
    }
    let millis = match unit {
        Some(unit) => unit,
        None => {
            let count = rest.iter().take_while(|token| is_between(token)).count();
            rest = rest.get(count..).filter(|_| count > 0)?;
            let number = match rest {
                [Token::Number(number), after @ ..] => {
                    rest = after;
                    *number
                }
                _ => Decimal { digits: 1, scale: 1 },
            };
            match rest {
                [Token::Word(word), after @ ..] => {
                    rest = after;
                    number.of(time_unit(word)?)?
                }
                // Without a unit, a number of seconds.
                [] if tokens.len() > 2 => number.of(SECOND)?,
                _ => return None,
            }
        }
    };
    // nginx has further settings behind the rate.
    let is_over = match rest.first() {
        None => true,
        Some(Token::Word(word)) => ["burst", "nodelay", "delay"].contains(&word.as_str()),
        Some(_) => false,
    };
    // Half a request a second is one in two seconds.
    let divisor = gcd(limit.digits, limit.scale).max(1);
    let limit = Decimal { digits: limit.digits / divisor, scale: limit.scale / divisor };
    let window = Duration::from_millis(millis.checked_mul(limit.scale)?);
    let is_valid = (1..=MAX_LIMIT).contains(&limit.digits) && !window.is_zero() && window <= MAX_DURATION;
    (is_over && is_valid).then_some(Rate { limit: limit.digits, window })
}

/// Whether this stands between a number of requests and the time for which they are.
fn is_between(token: &Token) -> bool {
    match token {
        Token::Word(word) => ["per", "a", "an", "each", "every", "in"].contains(&word.as_str()),
        Token::Sign(sign) => matches!(sign, '/' | ':' | '@' | '-'),
        Token::Number(_) => false,
    }
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
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

    #[test]
    fn quotas_of_the_calendar() {
        let calendar = |limit, unit| Ok(Quota { limit, window: Window::Calendar(unit) });
        assert_eq!(quota("1000/month"), calendar(1_000, CalendarUnit::Month));
        assert_eq!(quota("1/hour"), calendar(1, CalendarUnit::Hour));
        assert_eq!(quota("7/day"), calendar(7, CalendarUnit::Day));
        assert_eq!(quota("7/week"), calendar(7, CalendarUnit::Week));
        assert_eq!(quota("7/1d"), rate("7/1d").map(Quota::from));
        assert_eq!(quota("0/month").unwrap_err().reason, "has a limit that is out of range");
        for text in ["/month", "x/month", "1/2month", "1/Month", "1/months", "1/year", "1/", "-1/month"] {
            assert_eq!(quota(text).unwrap_err().reason, "is not a rate", "{text}");
        }
        for text in ["1000/months", "1000/Month", "1000/mont"] {
            assert_eq!(quota(text).unwrap_err().help(false).unwrap(), "did you mean `1000/month`?", "{text}");
        }
    }

    #[test]
    fn other_forms_of_durations() {
        for (text, meant) in [
            ("5 minutes", "5m"),
            ("1hour", "1h"),
            ("1h30m", "90m"),
            ("1 s", "1s"),
            ("1.5s", "1500ms"),
            ("2w", "14d"),
            ("PT1H", "1h"),
            ("30S", "30s"),
            ("1d 12h", "36h"),
            ("500 millis", "500ms"),
        ] {
            assert_eq!(suggest_duration(text).as_deref(), Some(meant), "{text}");
        }
        for text in ["", "minutes", "5", "5 apples", "-1s", "1.0001s", "9999y", "0s", "99999999999999999999s"]
        {
            assert_eq!(suggest_duration(text), None, "{text}");
        }
    }

    #[test]
    fn other_forms_of_sizes_counts_and_percentages() {
        for (text, meant) in [
            ("10 MB", "10MiB"),
            ("10m", "10MiB"),
            ("1.5GiB", "1536MiB"),
            ("512 bytes", "512"),
            ("2Ti", "2TiB"),
        ] {
            assert_eq!(suggest_size(text).as_deref(), Some(meant), "{text}");
        }
        for (text, meant) in [("10,000", "10000"), ("10_000", "10000"), ("10k", "10000"), ("1.5k", "1500")] {
            assert_eq!(suggest_count(text).as_deref(), Some(meant), "{text}");
        }
        for (text, meant) in
            [("50", "50%"), ("0.25", "25%"), ("1.0", "100%"), ("5 %", "5%"), ("5 percent", "5%")]
        {
            assert_eq!(suggest_percentage(text).as_deref(), Some(meant), "{text}");
        }
        assert_eq!(
            (suggest_percentage("1"), suggest_percentage("200"), suggest_count("ten")),
            (None, None, None)
        );
        assert_eq!((suggest_count("1,5"), suggest_size("10 apples")), (None, None));
    }

    #[test]
    fn other_forms_of_rates() {
        for (text, meant) in [
            ("100/minute", "100/1m"),
            ("100 per second", "100/1s"),
            ("100 requests per 5 minutes", "100/5m"),
            ("10r/s", "10/1s"),
            ("30r/m", "30/1m"),
            ("rate=10r/s burst=20 nodelay", "10/1s"),
            ("100/60", "100/1m"),
            ("100 / s", "100/1s"),
            ("100rpm", "100/1m"),
            ("100 req/s", "100/1s"),
            ("1,000/hour", "1000/1h"),
            ("10k/day", "10000/1d"),
            ("0.5/s", "1/2s"),
            ("1 every 10 seconds", "1/10s"),
            ("100:1m", "100/1m"),
            ("5 a minute", "5/1m"),
        ] {
            assert_eq!(suggest_rate(text).map(|rate| rate.to_string()).as_deref(), Some(meant), "{text}");
        }
        for text in
            ["", "fast", "100", "100 apples", "10x/s", "-1/s", "/s", "0/s", "100 s", "1/2/s", "unlimited"]
        {
            assert_eq!(suggest_rate(text), None, "{text}");
        }
    }
}
