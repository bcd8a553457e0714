//! Timestamps, formatted once per second instead of once per line.

use std::fmt::Write;

use jiff::Timestamp;

/// The text of the last second.
#[derive(Debug)]
pub(super) struct TimestampCache {
    second: Option<i64>,
    /// `2026-07-03T12:00:01`
    rfc3339: String,
    /// `03/Jul/2026:12:00:01 +0000`
    common: String,
}

impl TimestampCache {
    pub(super) fn new() -> Self {
        Self { second: None, rfc3339: String::new(), common: String::new() }
    }

    /// `2026-07-03T12:00:01.250Z` (RFC 3339) for microseconds since the Unix epoch.
    pub(super) fn rfc3339(&mut self, out: &mut Vec<u8>, micros: i64) {
        self.update(micros);
        out.extend_from_slice(self.rfc3339.as_bytes());
        let millis = micros.rem_euclid(1_000_000) / 1_000;
        let digit = |unit: i64| b'0' + (millis / unit % 10) as u8;
        out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1), b'Z']);
    }

    /// `03/Jul/2026:12:00:01 +0000`, Apache's format.
    pub(super) fn common(&mut self, out: &mut Vec<u8>, micros: i64) {
        self.update(micros);
        out.extend_from_slice(self.common.as_bytes());
    }

    fn update(&mut self, micros: i64) {
        let second = micros.div_euclid(1_000_000);
        if self.second == Some(second) {
            return;
        }
        let time = Timestamp::from_second(second).unwrap_or_default();
        self.second = Some(second);
        self.rfc3339.clear();
        self.common.clear();
        // Writing to a string can't fail, and these formats suit every time.
        let _ok = write!(self.rfc3339, "{}", time.strftime("%Y-%m-%dT%H:%M:%S"));
        let _ok = write!(self.common, "{}", time.strftime("%d/%b/%Y:%H:%M:%S +0000"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_is_formatted_anew() {
        let mut timestamps = TimestampCache::new();
        let mut out = Vec::new();
        for micros in [1_783_080_001_250_999, 1_783_080_001_007_000, 1_783_080_002_000_000] {
            timestamps.rfc3339(&mut out, micros);
            out.push(b' ');
        }
        timestamps.common(&mut out, 0);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "2026-07-03T12:00:01.250Z 2026-07-03T12:00:01.007Z 2026-07-03T12:00:02.000Z \
             01/Jan/1970:00:00:00 +0000"
        );
    }
}
