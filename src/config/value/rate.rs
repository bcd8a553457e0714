//! Rates of requests, and the quotas of policies.

use std::{fmt, time::Duration};

use crate::config::written::format::format_duration;

/// A limit per window: `100/1s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// 1 to 10⁹.
    pub limit: u64,
    /// 1 ms to 366 days.
    pub window: Duration,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.limit, format_duration(self.window))
    }
}

/// A limit of a policy: `100/1s`, or `1000/month`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// 1 to 10⁹.
    pub limit: u64,
    pub window: Window,
}

/// The time in which a quota may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// 1 ms to 366 days.
    Length(Duration),
    Calendar(CalendarUnit),
}

/// A window that begins when the calendar says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalendarUnit {
    Hour,
    Day,
    /// From Monday.
    Week,
    Month,
}

impl CalendarUnit {
    /// The name of each in `proxy.yaml`.
    pub const ALL: [(&'static str, Self); 4] =
        [("hour", Self::Hour), ("day", Self::Day), ("week", Self::Week), ("month", Self::Month)];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, unit)| *unit == self).map_or("", |(name, _)| name)
    }
}

impl Window {
    /// Its length. Of a calendar window: the longest one, unless the clocks are changed in it.
    pub fn length(self) -> Duration {
        let days = |days: u64| Duration::from_secs(days * 86_400);
        match self {
            Self::Length(length) => length,
            Self::Calendar(CalendarUnit::Hour) => Duration::from_secs(3_600),
            Self::Calendar(CalendarUnit::Day) => days(1),
            Self::Calendar(CalendarUnit::Week) => days(7),
            Self::Calendar(CalendarUnit::Month) => days(31),
        }
    }

    /// Its unit, if it is a window of the calendar.
    pub fn calendar(self) -> Option<CalendarUnit> {
        match self {
            Self::Length(_) => None,
            Self::Calendar(unit) => Some(unit),
        }
    }
}

impl From<Rate> for Quota {
    fn from(Rate { limit, window }: Rate) -> Self {
        Self { limit, window: Window::Length(window) }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.limit, self.window)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => f.write_str(&format_duration(*length)),
            Self::Calendar(unit) => f.write_str(unit.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_displayed_as_it_was_written() {
        assert_eq!(Rate { limit: 5, window: Duration::from_secs(90) }.to_string(), "5/90s");
        assert_eq!(Quota::from(Rate { limit: 5, window: Duration::from_secs(90) }).to_string(), "5/90s");
        let month = Window::Calendar(CalendarUnit::Month);
        assert_eq!(Quota { limit: 1_000, window: month }.to_string(), "1000/month");
    }
}
