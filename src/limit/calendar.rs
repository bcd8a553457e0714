//! Windows of the calendar: when the hours, days, weeks and months of a time zone begin.

use std::{fmt, sync::Arc};

use jiff::{
    Timestamp, ToSpan,
    civil::{Date, Weekday},
    tz::{AmbiguousOffset, Offset, TimeZone},
};
use parking_lot::RwLock;

use super::algorithm::WindowBounds;
use crate::config::model::{self, CalendarUnit};

/// The years since 1970 whose dates are computed. Within them, no calculation overflows.
const YEARS: std::ops::RangeInclusive<i64> = -9_000..=7_000;
const YEAR: i64 = 31_556_952_000_000;
const HOUR: i64 = 3_600_000_000;

/// The windows of one tier. Clones share what was computed last.
#[derive(Debug, Clone)]
pub struct Calendar(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    unit: CalendarUnit,
    zone: model::TimeZone,
    reset_day: i8,
    /// Of the latest time that was asked about.
    latest: RwLock<WindowBounds>,
}

impl Calendar {
    /// The windows of `unit` by this policy's time zone and reset day.
    pub fn new(unit: CalendarUnit, calendar: &model::Calendar) -> Self {
        let reset_day = i8::try_from(calendar.reset_day).unwrap_or(1).clamp(1, 28);
        let latest = RwLock::new(WindowBounds([i64::MIN; 5]));
        Self(Arc::new(Inner { unit, zone: calendar.time_zone.clone(), reset_day, latest }))
    }

    /// `month`
    pub fn unit(&self) -> impl fmt::Display {
        model::Window::Calendar(self.0.unit)
    }

    /// The name of its time zone.
    pub fn time_zone(&self) -> &str {
        self.0.zone.name()
    }

    /// The beginnings of five windows. `now`, in microseconds since the Unix epoch, is in the second.
    pub fn bounds(&self, now: i64) -> WindowBounds {
        let latest = *self.0.latest.read();
        let [_, start, end, ..] = latest.0;
        if start <= now && now < end {
            return latest;
        }
        let bounds = self.0.bounds(now);
        *self.0.latest.write() = bounds;
        bounds
    }

    /// When the window that holds `now` ends, in the time zone (RFC 9557): `2026-12-01T00:00:00+01:00[Europe/Berlin]`
    pub fn end(&self, now: i64) -> String {
        let [_, _, end, ..] = self.bounds(now).0;
        timestamp(end).to_zoned(self.0.zone.0.clone()).to_string()
    }
}

/// `month (Europe/Berlin, from day 15)`
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { unit, zone, reset_day, .. } = &*self.0;
        write!(f, "{} ({zone}", self.unit())?;
        if *unit == CalendarUnit::Month && *reset_day > 1 {
            write!(f, ", from day {reset_day}")?;
        }
        f.write_str(")")
    }
}

impl Inner {
    fn bounds(&self, now: i64) -> WindowBounds {
        let now = timestamp(now.clamp(YEARS.start() * YEAR, YEARS.end() * YEAR));
        match self.unit {
            CalendarUnit::Hour => self.hours(now),
            CalendarUnit::Day | CalendarUnit::Week | CalendarUnit::Month => self.dates(now),
        }
    }

    /// Windows that begin at the beginning of a date. A day that a zone has skipped has no window.
    fn dates(&self, now: Timestamp) -> WindowBounds {
        let first = self.first_date(self.zone.0.to_datetime(now).date());
        let mut starts: Vec<i64> = (-2..=5).map(|nth| self.start_of(self.date(first, nth))).collect();
        starts.dedup();
        let now = now.as_microsecond();
        let holds = starts.iter().rposition(|&start| start <= now).unwrap_or(1).max(1);
        let start = |offset: usize| starts.get(holds + offset - 1).copied().unwrap_or(i64::MAX);
        WindowBounds([0, 1, 2, 3, 4].map(start))
    }

    /// The date on which the window of `date` begins.
    fn first_date(&self, date: Date) -> Date {
        match self.unit {
            CalendarUnit::Hour | CalendarUnit::Day => date,
            CalendarUnit::Week => {
                date.saturating_sub(i64::from(date.weekday().since(Weekday::Monday)).days())
            }
            CalendarUnit::Month => {
                let months = i32::from(date.day() < self.reset_day);
                let month = date.first_of_month().saturating_sub(months.months());
                month.saturating_add((i32::from(self.reset_day) - 1).days())
            }
        }
    }

    /// The first date of the window that is `nth` windows after the one that begins on `first`.
    fn date(&self, first: Date, nth: i32) -> Date {
        match self.unit {
            CalendarUnit::Hour | CalendarUnit::Day => first.saturating_add(nth.days()),
            CalendarUnit::Week => first.saturating_add(nth.weeks()),
            // No reset day is later than the last day of February.
            CalendarUnit::Month => first.saturating_add(nth.months()),
        }
    }

    /// The first instant of a date: midnight, and the first one if there are two. If a clock skips midnight, the instant
    /// at which it does.
    fn start_of(&self, date: Date) -> i64 {
        let midnight = date.at(0, 0, 0, 0);
        let instant = |offset: Offset| offset.to_timestamp(midnight).unwrap_or(Timestamp::MAX);
        let start = match self.zone.0.to_ambiguous_timestamp(midnight).offset() {
            AmbiguousOffset::Unambiguous { offset } => instant(offset),
            AmbiguousOffset::Fold { before, .. } => instant(before),
            // Read by the clock of before, midnight is within a gap's length after the change.
            AmbiguousOffset::Gap { before, .. } => {
                transition_before(&self.zone.0, timestamp(instant(before).as_microsecond() + 1))
            }
        };
        start.as_microsecond()
    }

    /// Hours begin when a clock shows a full hour, and when it skips to another hour.
    fn hours(&self, now: Timestamp) -> WindowBounds {
        let start = self.hour_start(now);
        let before = self.hour_start(timestamp(start - 1));
        let end = self.hour_end(start);
        let next = self.hour_end(end);
        WindowBounds([before, start, end, next, self.hour_end(next)])
    }

    fn hour_start(&self, at: Timestamp) -> i64 {
        let shown = self.shown(at);
        let start = at.as_microsecond() - shown.rem_euclid(HOUR);
        let changed = transition_before(&self.zone.0, timestamp(at.as_microsecond() + 1)).as_microsecond();
        if changed <= start {
            return start;
        }
        // The clock was changed within this hour. If it showed the same hour before, the window goes on.
        let before = timestamp(changed - 1);
        let is_same = self.shown(before).div_euclid(HOUR) == shown.div_euclid(HOUR);
        if is_same { self.hour_start(before) } else { changed }
    }

    fn hour_end(&self, start: i64) -> i64 {
        let shown = self.shown(timestamp(start));
        let end = start - shown.rem_euclid(HOUR) + HOUR;
        let changed = self.zone.0.following(timestamp(start)).next().map(|change| change.timestamp());
        match changed {
            Some(changed) if changed.as_microsecond() <= end => {
                let same = self.shown(changed).div_euclid(HOUR) == shown.div_euclid(HOUR)
                    && self.shown(changed).rem_euclid(HOUR) != 0;
                if same { self.hour_end(changed.as_microsecond()) } else { changed.as_microsecond() }
            }
            _ => end,
        }
    }

    /// The time that a clock in the zone shows, in microseconds since 1970-01-01 00:00.
    fn shown(&self, at: Timestamp) -> i64 {
        at.as_microsecond() + i64::from(self.zone.0.to_offset(at).seconds()) * 1_000_000
    }
}

/// The latest change of the zone's clocks before `at`; the beginning of time if there is none.
fn transition_before(zone: &TimeZone, at: Timestamp) -> Timestamp {
    zone.preceding(at).next().map_or(Timestamp::MIN, |change| change.timestamp())
}

fn timestamp(micros: i64) -> Timestamp {
    let edge = if micros < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_microsecond(micros).unwrap_or(edge)
}

#[cfg(test)]
mod tests {
    use jiff::{Unit, Zoned, ZonedRound};
    use proptest::prelude::*;

    use super::*;

    /// With summer time, with half an hour of it, with summer time that begins and ends at midnight, and without.
    const ZONES: [&str; 5] =
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Asia/Kathmandu"];
    const UNITS: [CalendarUnit; 4] =
        [CalendarUnit::Hour, CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month];

    fn calendar(unit: CalendarUnit, zone: &str, reset_day: u8) -> Calendar {
        Calendar::new(unit, &model::Calendar { time_zone: model::TimeZone::named(zone).unwrap(), reset_day })
    }

    fn micros(time: &str) -> i64 {
        time.parse::<Zoned>().unwrap().timestamp().as_microsecond()
    }

    /// The window that holds `now`, by the calendar of jiff.
    fn window(unit: CalendarUnit, zone: &str, reset_day: u8, now: i64) -> (i64, i64) {
        let now = Timestamp::from_microsecond(now).unwrap().in_tz(zone).unwrap();
        let begins = |date: Date| date.in_tz(zone).unwrap().timestamp().as_microsecond();
        match unit {
            CalendarUnit::Hour => hour(&now),
            CalendarUnit::Day => (begins(now.date()), begins(now.date().tomorrow().unwrap())),
            CalendarUnit::Week => {
                let sunday_before = now.date().tomorrow().unwrap().nth_weekday(-1, Weekday::Monday).unwrap();
                (begins(sunday_before), begins(now.date().nth_weekday(1, Weekday::Monday).unwrap()))
            }
            CalendarUnit::Month => {
                let reset = now.date().with().day(i8::try_from(reset_day).unwrap()).build().unwrap();
                let month = 1.month();
                if reset <= now.date() {
                    (begins(reset), begins(reset.checked_add(month).unwrap()))
                } else {
                    (begins(reset.checked_sub(month).unwrap()), begins(reset))
                }
            }
        }
    }

    /// The minutes around `now` in which a clock shows the same hour, without a break.
    fn hour(now: &Zoned) -> (i64, i64) {
        let minute =
            now.round(ZonedRound::new().smallest(Unit::Minute).mode(jiff::RoundMode::Trunc)).unwrap();
        let begins = |minute: &Zoned| {
            let before = minute.checked_sub(1.minute()).unwrap();
            minute.minute() == 0 || (before.date(), before.hour()) != (minute.date(), minute.hour())
        };
        let (mut start, mut end) = (minute.clone(), minute.checked_add(1.minute()).unwrap());
        while !begins(&start) {
            start = start.checked_sub(1.minute()).unwrap();
        }
        while !begins(&end) {
            end = end.checked_add(1.minute()).unwrap();
        }
        (start.timestamp().as_microsecond(), end.timestamp().as_microsecond())
    }

    /// Within ten years, often near a change of the clocks.
    fn times() -> impl Strategy<Value = i64> {
        let (from, to) = (micros("2025-01-01T00:00:00[UTC]"), micros("2035-01-01T00:00:00[UTC]"));
        let near =
            (0..ZONES.len(), from..to, -7_300_000_000_i64..7_300_000_000).prop_map(|(zone, at, off)| {
                let zone = TimeZone::get(ZONES[zone]).unwrap();
                let change = zone.following(timestamp(at)).next().map(|change| change.timestamp());
                change.map_or(at, Timestamp::as_microsecond) + off
            });
        let edge = (0..ZONES.len(), 0..4_usize, from..to, -1..2_i64)
            .prop_map(|(zone, unit, at, off)| calendar(UNITS[unit], ZONES[zone], 1).bounds(at).0[2] + off);
        prop_oneof![from..to, near, edge]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn windows_are_those_of_jiff(now in times(), zone in 0..5_usize, unit in 0..4_usize, day in 1..29_u8) {
            let (zone, unit) = (ZONES[zone], UNITS[unit]);
            let bounds = calendar(unit, zone, day).bounds(now);
            let (start, end) = window(unit, zone, day, now);
            let (before, same) = window(unit, zone, day, start - 1);
            let (_, next) = window(unit, zone, day, end);
            let (_, last) = window(unit, zone, day, next);
            prop_assert_eq!(same, start);
            prop_assert_eq!(bounds.0, [before, start, end, next, last]);
        }

        #[test]
        fn a_remembered_window_is_the_same(times in proptest::collection::vec(times(), 1..20), unit in 0..4_usize) {
            let one = calendar(UNITS[unit], "America/Havana", 15);
            for now in times {
                prop_assert_eq!(one.bounds(now), calendar(UNITS[unit], "America/Havana", 15).bounds(now));
            }
        }
    }

    #[test]
    fn months_and_days_end_by_the_clock_of_their_zone() {
        for (unit, zone, day, now, end) in [
            (
                CalendarUnit::Month,
                "Europe/Berlin",
                1,
                "2026-03-29T12:00:00[Europe/Berlin]",
                "2026-04-01T00:00:00+02:00[Europe/Berlin]",
            ),
            (
                CalendarUnit::Month,
                "Europe/Berlin",
                1,
                "2026-11-27T07:35:00[UTC]",
                "2026-12-01T00:00:00+01:00[Europe/Berlin]",
            ),
            (
                CalendarUnit::Month,
                "America/New_York",
                1,
                "2026-10-31T23:59:59[America/New_York]",
                "2026-11-01T00:00:00-04:00[America/New_York]",
            ),
            (
                CalendarUnit::Month,
                "America/New_York",
                1,
                "2026-11-01T00:00:00[America/New_York]",
                "2026-12-01T00:00:00-05:00[America/New_York]",
            ),
            (CalendarUnit::Month, "UTC", 28, "2024-02-27T23:59:59[UTC]", "2024-02-28T00:00:00+00:00[UTC]"),
            (CalendarUnit::Month, "UTC", 28, "2024-02-28T00:00:00[UTC]", "2024-03-28T00:00:00+00:00[UTC]"),
            (
                CalendarUnit::Day,
                "Europe/Berlin",
                1,
                "2026-03-29T00:00:00[Europe/Berlin]",
                "2026-03-30T00:00:00+02:00[Europe/Berlin]",
            ),
            (
                CalendarUnit::Day,
                "America/Havana",
                1,
                "2026-03-08T01:00:00[America/Havana]",
                "2026-03-09T00:00:00-04:00[America/Havana]",
            ),
            (
                CalendarUnit::Week,
                "Asia/Kathmandu",
                1,
                "2026-11-29T23:59:59[Asia/Kathmandu]",
                "2026-11-30T00:00:00+05:45[Asia/Kathmandu]",
            ),
        ] {
            assert_eq!(calendar(unit, zone, day).end(micros(now)), end, "{now}");
        }
    }

    #[test]
    fn a_day_has_twenty_three_hours_or_twenty_five() {
        let length = |unit, now: &str| {
            let [_, start, end, ..] = calendar(unit, "Europe/Berlin", 1).bounds(micros(now)).0;
            (end - start) / HOUR
        };
        assert_eq!(length(CalendarUnit::Day, "2026-03-29T12:00:00[Europe/Berlin]"), 23);
        assert_eq!(length(CalendarUnit::Day, "2026-10-25T12:00:00[Europe/Berlin]"), 25);
        assert_eq!(length(CalendarUnit::Week, "2026-03-29T12:00:00[Europe/Berlin]"), 7 * 24 - 1);
        assert_eq!(length(CalendarUnit::Hour, "2026-10-25T02:30:00+02:00[Europe/Berlin]"), 1);
    }

    #[test]
    fn a_day_that_a_zone_has_skipped_has_no_window() {
        // Samoa went from 29 to 31 December.
        let bounds = calendar(CalendarUnit::Day, "Pacific/Apia", 1)
            .bounds(micros("2011-12-29T12:00:00[Pacific/Apia]"));
        let days = ["2011-12-28", "2011-12-29", "2011-12-31", "2012-01-01", "2012-01-02"];
        assert_eq!(bounds.0, days.map(|day| micros(&format!("{day}T00:00:00[Pacific/Apia]"))));
    }

    #[test]
    fn no_time_is_out_of_range() {
        for now in [i64::MIN, -1, 0, i64::MAX] {
            for (zone, unit) in ZONES.into_iter().flat_map(|zone| UNITS.map(|unit| (zone, unit))) {
                let bounds = calendar(unit, zone, 28).bounds(now);
                assert!(bounds.0.is_sorted(), "{now} {bounds:?}");
                let clamped = now.clamp(YEARS.start() * YEAR, YEARS.end() * YEAR);
                assert!(bounds.ends(clamped).is_some(), "{zone} {unit:?} {clamped} {bounds:?}");
            }
        }
    }
}
