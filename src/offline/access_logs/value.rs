//! The values of a log line: times, addresses, numbers, and escaped text.

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
    str,
};

use jiff::{civil::DateTime, tz::TimeZone};
use memchr::memchr;

/// A value as the log has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum LogValue<'l> {
    Text(Cow<'l, [u8]>),
    Integer(i64),
    Float(f64),
    /// JSON's `null`.
    Null,
}

impl<'l> LogValue<'l> {
    /// The text of a string, unless it stands for no value: an empty one or `-`.
    pub(super) fn into_text(self) -> Option<Cow<'l, [u8]>> {
        match self {
            Self::Text(text) => (!matches!(&*text, b"" | b"-")).then_some(text),
            Self::Integer(number) => Some(number.to_string().into_bytes().into()),
            Self::Float(number) => Some(number.to_string().into_bytes().into()),
            Self::Null => None,
        }
    }

    /// A number that is not negative.
    pub(super) fn number(&self) -> Option<f64> {
        let number = match self {
            // HAProxy marks a connection that it logged before its end.
            Self::Text(text) => str::from_utf8(text.strip_prefix(b"+").unwrap_or(text)).ok()?.parse().ok()?,
            Self::Integer(number) => *number as f64,
            Self::Float(number) => *number,
            Self::Null => return None,
        };
        (0.0..1e18).contains(&number).then_some(number)
    }

    pub(super) fn integer(&self) -> Option<i64> {
        match self {
            Self::Text(text) => str::from_utf8(text).ok()?.parse().ok(),
            Self::Integer(number) => Some(*number),
            Self::Float(_) | Self::Null => None,
        }
    }
}

/// Times before these numbers are seconds, milliseconds and microseconds: as seconds, they would be thousands of years away.
const SECONDS: u64 = 100_000_000_000;
const MILLIS: u64 = SECONDS * 1_000;
const MICROS: u64 = MILLIS * 1_000;

/// The arrival or completion time of a request, as logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogTime {
    /// Microseconds since the Unix epoch.
    pub(super) micros: i64,
    pub(super) is_whole_second: bool,
}

impl LogTime {
    /// A number since the Unix epoch, and the fraction of a second behind it, in microseconds.
    fn integer(number: i64, fraction: Option<i64>) -> Self {
        let fraction_of_second = fraction.unwrap_or(0);
        let micros = match number.unsigned_abs() {
            0..SECONDS => number * 1_000_000 + fraction_of_second,
            SECONDS..MILLIS => number * 1_000 + fraction_of_second / 1_000,
            MILLIS..MICROS => number,
            _ => number / 1_000,
        };
        let is_whole_second = fraction.is_none() && number.unsigned_abs() < SECONDS;
        Self { micros, is_whole_second }
    }

    fn float(number: f64) -> Option<Self> {
        let micros = number * if number.abs() < 1e11 { 1e6 } else { 1e3 };
        (micros.abs() < 1e17).then_some(Self { micros: micros.round() as i64, is_whole_second: false })
    }

    fn number(text: &[u8]) -> Option<Self> {
        let point = memchr(b'.', text);
        let integer = str::from_utf8(&text[..point.unwrap_or(text.len())]).ok()?.parse();
        match (integer, point.map(|point| fraction(&text[point..]))) {
            (Ok(integer), None) => Some(Self::integer(integer, None)),
            (Ok(integer), Some((Some(micros), []))) => Some(Self::integer(integer, Some(micros))),
            _ => Self::float(str::from_utf8(text).ok()?.parse().ok()?),
        }
    }
}

/// Reads times. It caches the second of the last one, since consecutive lines often have the same.
#[derive(Debug, Default)]
pub(super) struct TimeCache {
    /// The date, the time of day and the zone.
    text: Vec<u8>,
    micros: i64,
}

impl TimeCache {
    pub(super) fn of(&mut self, value: &LogValue<'_>) -> Option<LogTime> {
        match value {
            LogValue::Text(text) => self.read(text),
            LogValue::Integer(number) => Some(LogTime::integer(*number, None)),
            LogValue::Float(number) => LogTime::float(*number),
            LogValue::Null => None,
        }
    }

    /// Reads `03/Jul/2026:14:00:01 +0200`, `2026-07-03T12:00:01.250Z` or a number since the Unix epoch. A time without a
    /// zone is UTC.
    pub(super) fn read(&mut self, text: &[u8]) -> Option<LogTime> {
        let length = match text {
            [_, _, b'/', ..] => "03/Jul/2026:14:00:01".len(),
            [_, _, _, _, b'-', ..] => "2026-07-03T12:00:01".len(),
            _ => return LogTime::number(text),
        };
        let (second, rest) = text.split_at_checked(length)?;
        let (fraction, zone) = fraction(rest);
        let is_cached = self.text.strip_prefix(second) == Some(zone);
        if !is_cached {
            self.micros = micros(second, zone)?;
            self.text.clear();
            self.text.extend_from_slice(second);
            self.text.extend_from_slice(zone);
        }
        Some(LogTime { micros: self.micros + fraction.unwrap_or(0), is_whole_second: fraction.is_none() })
    }
}

/// Splits a fraction of a second, in microseconds, from the text that follows it.
fn fraction(text: &[u8]) -> (Option<i64>, &[u8]) {
    let [b'.' | b',', rest @ ..] = text else { return (None, text) };
    let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 {
        return (None, text);
    }
    let digits = rest[..count].iter().chain([b'0'; 6].iter()).take(6);
    (Some(digits.fold(0, |micros, digit| micros * 10 + i64::from(digit - b'0'))), &rest[count..])
}

/// A time without a fraction, in microseconds since the Unix epoch.
fn micros(second: &[u8], zone: &[u8]) -> Option<i64> {
    let format = match second.get(2)? {
        b'/' => "%d/%b/%Y:%H:%M:%S",
        _ if second.get(10) == Some(&b'T') => "%Y-%m-%dT%H:%M:%S",
        _ => "%Y-%m-%d %H:%M:%S",
    };
    let time = DateTime::strptime(format, second).ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
    Some(time.as_microsecond() - offset(zone.trim_ascii())? * 1_000_000)
}

/// The seconds east of UTC: `Z`, `+0200`, `-02:00`.
fn offset(zone: &[u8]) -> Option<i64> {
    let (sign, digits) = match zone {
        b"" | b"Z" | b"z" => return Some(0),
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits {
        [h, hh, b':', m, mm] | [h, hh, m, mm] => ([*h, *hh], [*m, *mm]),
        _ => return None,
    };
    let number = |digits: [u8; 2]| str::from_utf8(&digits).ok()?.parse::<u8>().ok();
    Some(sign * (i64::from(number(hours)?) * 3_600 + i64::from(number(minutes)?) * 60))
}

/// Parses an address as in logs: possibly with a port, and IPv6 in brackets.
pub(super) fn address(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    let without_port = || Some(text.parse::<SocketAddr>().ok()?.ip());
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let address: IpAddr = text.parse().ok().or_else(without_port).or_else(in_brackets)?;
    Some(address.to_canonical())
}

/// Parses an address and a port, with IPv6 in brackets or without: `2001:db8::1:33317`.
pub(super) fn address_with_port(text: &[u8]) -> Option<IpAddr> {
    let port = memchr::memrchr(b':', text)?;
    address(&text[..port])
}

/// How a server writes quotes and control characters in a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escape {
    /// `\"`, `\\`, `\n`, `\xHH`, `\uHHHH`: Apache, nginx, JSON.
    Backslash,
    /// `#HH`: HAProxy.
    Hash,
    /// As they are.
    None,
}

impl Escape {
    /// The position of the quote that ends a text.
    pub(super) fn closing_quote(self, text: &[u8]) -> Option<usize> {
        if self != Self::Backslash {
            return memchr(b'"', text);
        }
        let mut from = 0;
        loop {
            let at = from + memchr::memchr2(b'"', b'\\', text.get(from..)?)?;
            if text[at] == b'"' {
                return Some(at);
            }
            from = at + 2;
        }
    }

    pub(super) fn decode(self, text: &[u8]) -> Cow<'_, [u8]> {
        let sign = match self {
            Self::Backslash => b'\\',
            Self::Hash => b'#',
            Self::None => return text.into(),
        };
        let Some(first) = memchr(sign, text) else { return text.into() };
        let mut out = text[..first].to_vec();
        let mut rest = &text[first..];
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            if byte != sign {
                out.push(byte);
                continue;
            }
            let used = match self {
                Self::Backslash => decode_backslash(behind, &mut out),
                _ => hex(behind, 0, 2).and_then(|code| u8::try_from(code).ok()).map(|byte| {
                    out.push(byte);
                    2
                }),
            };
            match used {
                Some(used) => rest = &behind[used..],
                None => out.push(sign),
            }
        }
        out.into()
    }
}

/// Decodes what follows a backslash. Returns the number of bytes that it has. `None`: the backslash is just that.
fn decode_backslash(text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let escaped = *text.first()?;
    match escaped {
        b'x' => {
            out.push(u8::try_from(hex(text, 1, 2)?).ok()?);
            return Some(3);
        }
        b'u' => {
            let character = char::from_u32(hex(text, 1, 4)?).unwrap_or(char::REPLACEMENT_CHARACTER);
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(5);
        }
        b'n' => out.push(b'\n'),
        b'r' => out.push(b'\r'),
        b't' => out.push(b'\t'),
        b'v' => out.push(0x0b),
        b'b' => out.push(0x08),
        b'f' => out.push(0x0c),
        other => out.push(other),
    }
    Some(1)
}

fn hex(text: &[u8], from: usize, count: usize) -> Option<u32> {
    u32::from_str_radix(str::from_utf8(text.get(from..from + count)?).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-07-03T12:00:01Z
    const SECOND: i64 = 1_783_080_001_000_000;

    #[test]
    fn times_are_read_in_each_notation() {
        let mut times = TimeCache::default();
        for (text, micros, is_whole_second) in [
            ("03/Jul/2026:14:00:01 +0200", SECOND, true),
            ("03/Jul/2026:12:00:01.655", SECOND + 655_000, false),
            ("2026-07-03T12:00:01Z", SECOND, true),
            ("2026-07-03T14:00:01+02:00", SECOND, true),
            ("2026-07-03T10:30:01-0130", SECOND, true),
            ("2026-07-03 12:00:01", SECOND, true),
            ("2026-07-03T12:00:01.25Z", SECOND + 250_000, false),
            ("2026-07-03T12:00:01.123456789Z", SECOND + 123_456, false),
            ("1783080001", SECOND, true),
            ("1783080001.250", SECOND + 250_000, false),
            ("1783080001250", SECOND + 250_000, false),
            ("1783080001250000", SECOND + 250_000, false),
            ("1783080001250000123", SECOND + 250_000, false),
            ("1.783080001e9", SECOND, false),
        ] {
            assert_eq!(times.read(text.as_bytes()), Some(LogTime { micros, is_whole_second }), "{text}");
        }
        for text in [
            "",
            "-",
            "noon",
            "03/Jul/2026",
            "03/Foo/2026:12:00:01 +0000",
            "2026-07-03T12:00:01.Z",
            "nan",
            "inf",
        ] {
            assert_eq!(times.read(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn addresses_are_read_with_and_without_ports() {
        for (text, expected) in [
            ("203.0.113.7", "203.0.113.7"),
            ("203.0.113.7:80", "203.0.113.7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
        ] {
            assert_eq!(address(text.as_bytes()).map(|found| found.to_string()).as_deref(), Some(expected));
        }
        assert_eq!(address_with_port(b"2001:db8::1:33317"), address(b"2001:db8::1"));
        assert_eq!(address_with_port(b"unix:1"), None);
    }

    #[test]
    fn escapes_are_those_of_each_server() {
        for (text, bytes) in [
            (r"plain", &b"plain"[..]),
            (r#"a\"b\\c"#, br#"a"b\c"#),
            (r"\x22\xC3\xa9", b"\"\xc3\xa9"),
            (r"\n\t", b"\n\t"),
            (r"\u00e9\/", "é/".as_bytes()),
            (r"\xzz\", br"\xzz\"),
            (r"\u12", br"\u12"),
        ] {
            assert_eq!(&*Escape::Backslash.decode(text.as_bytes()), bytes, "{text}");
        }
        assert_eq!(&*Escape::Hash.decode(b"a#22b#zz#"), b"a\"b#zz#");
        assert_eq!(Escape::Backslash.closing_quote(br#"a\"b\\" c"#), Some(6));
        assert_eq!(Escape::Backslash.closing_quote(br#"a\""#), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(text: Vec<u8>) {
            TimeCache::default().read(&text);
            address(&text);
            address_with_port(&text);
            for escape in [Escape::Backslash, Escape::Hash, Escape::None] {
                escape.decode(&text);
                escape.closing_quote(&text);
            }
        }
    }
}
