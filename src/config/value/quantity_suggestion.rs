//! What people write in place of our durations, sizes, rates and numbers, in the form that we read: `5 minutes`, `10MB`,
//! `100 per second`, nginx' `10r/s`.

use std::time::Duration;

use super::quantity::{MAX_DURATION, MAX_LIMIT};
use crate::config::model::{Rate, format_duration, format_size};

const SECOND: u64 = 1_000;
const DAY: u64 = 24 * 60 * 60 * SECOND;

/// Names of units of time, and their milliseconds. A month has 30 days, as for most price lists.
const TIME_UNITS: [(&[&str], u64); 8] = [
    (&["ms", "msec", "msecs", "millis", "millisecond", "milliseconds"], 1),
    (&["s", "sec", "secs", "second", "seconds"], SECOND),
    (&["m", "min", "mins", "minute", "minutes"], 60 * SECOND),
    (&["h", "hr", "hrs", "hour", "hours"], 60 * 60 * SECOND),
    (&["d", "day", "days"], DAY),
    (&["w", "week", "weeks"], 7 * DAY),
    (&["mo", "month", "months"], 30 * DAY),
    (&["y", "yr", "year", "years"], 365 * DAY),
];

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
    let name = name.to_ascii_lowercase();
    TIME_UNITS.iter().find(|(names, _)| names.contains(&&*name)).map(|(_, millis)| *millis)
}

/// `5 minutes` as `5m`, `1h30m` as `90m`.
pub(super) fn suggest_duration(text: &str) -> Option<String> {
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
pub(super) fn suggest_count(text: &str) -> Option<String> {
    let tokens = tokens(text)?;
    let (number, factor) = match &tokens[..] {
        [Token::Number(number)] => (number, 1),
        [Token::Number(number), Token::Word(unit)] if unit == "k" => (number, 1_000),
        _ => return None,
    };
    number.of(factor).map(|number| number.to_string())
}

/// `50`, `0.5` and `50 percent` as `50%`.
pub(super) fn suggest_percentage(text: &str) -> Option<String> {
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
    fn sizes_counts_and_percentages() {
        for (text, meant) in [
            ("10 MB", "10MiB"),
            ("10m", "10MiB"),
            ("1.5GiB", "1536MiB"),
            ("512 bytes", "512"),
            ("2Ti", "2048GiB"),
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
    fn rates() {
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
