//! Months that are closed: their sums stay as they are, and what comes later is shown apart.

use jiff::civil::Date;

use super::{
    apply::{KnownIds, day_of_date, lock_months},
    sql::{Sql, SqlError, SqlValue, in_transaction},
};

/// How long after its end a month is not closed: batches are on their way.
const GRACE: i64 = 300;
/// From then on, a process is called silent; and from then on, a month is closed without it.
pub(super) const SILENT: i64 = 15 * 60;
const GIVEN_UP: i64 = 48 * 3_600;

const INSERT_MONTH: &str = include_str!("../../sql/insert_month.sql");
const SUM_USAGE: &str = include_str!("../../sql/sum_month_usage.sql");
const SUM_UNITS: &str = include_str!("../../sql/sum_month_units.sql");
const FIRST_DAY: &str = include_str!("../../sql/first_day.sql");
const DIED: &str = include_str!("../../sql/died_processes.sql");
const PENDING: &str = include_str!("../../sql/pending_processes.sql");

/// A month of a year.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month {
    pub year: i16,
    /// 1 to 12.
    pub month: i8,
}

impl Month {
    /// `2026-11`
    pub fn parse(text: &str) -> Option<Self> {
        let (year, month) = text.split_once('-')?;
        let is_written = year.len() == 4 && month.len() == 2;
        let month = Self { year: year.parse().ok()?, month: month.parse().ok()? };
        (is_written && (1..=12).contains(&month.month) && (1970..=9998).contains(&month.year))
            .then_some(month)
    }

    /// The month of a date.
    pub fn of(date: Date) -> Self {
        Self { year: date.year(), month: date.month() }
    }

    /// Its first day.
    pub fn first_day(self) -> Date {
        Date::new(self.year, self.month, 1).unwrap_or(Date::MAX)
    }

    /// The month after it.
    #[must_use]
    pub fn next(self) -> Self {
        match self.month {
            12 => Self { year: self.year + 1, month: 1 },
            month => Self { month: month + 1, ..self },
        }
    }

    pub(super) fn number(self) -> i64 {
        i64::from(self.year) * 12 + i64::from(self.month) - 1
    }

    /// When it begins in `zone`, in seconds since the Unix epoch.
    pub(super) fn begins(self, zone: &jiff::tz::TimeZone) -> i64 {
        let begins = zone.to_ambiguous_zoned(self.first_day().at(0, 0, 0, 0)).compatible();
        begins.map_or(i64::MAX, |begins| begins.timestamp().as_second())
    }
}

impl std::fmt::Display for Month {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

/// A process that may still have usage of a month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingProcess {
    pub id: String,
    /// When it was last heard of, in seconds since the Unix epoch.
    pub seen: i64,
}

/// Whether a month could be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closing {
    /// It is closed, now or before. `complete`: whether every process has reported all of it.
    Closed { complete: bool },
    /// It has not ended, or only just.
    TooEarly,
    /// These processes may still have usage of it.
    Waits(Vec<PendingProcess>),
}

/// The processes that have not reported all that they served before `end`.
pub(super) fn pending(sql: &mut dyn Sql, end: i64) -> Result<Vec<PendingProcess>, SqlError> {
    let rows = sql.rows(PENDING, &[end.into()], 1_000)?;
    Ok(rows
        .iter()
        .map(|row| PendingProcess { id: row[0].text().to_owned(), seen: row[1].integer() })
        .collect())
}

/// Closes `month` in the zone called `name`, if every process has reported all of it, or is given up. `is_forced`: also if not.
pub(super) fn close(
    sql: &mut dyn Sql,
    known: &mut KnownIds,
    (name, zone_rules): (&str, &jiff::tz::TimeZone),
    month: Month,
    now: i64,
    is_forced: bool,
) -> Result<Closing, SqlError> {
    let end = month.next().begins(zone_rules);
    if now < end.saturating_add(GRACE) {
        return Ok(Closing::TooEarly);
    }
    let closed = in_transaction(sql, |sql| {
        lock_months(sql, true)?;
        let zone = known.zone(sql, name)?;
        let key = [SqlValue::from(zone), month.number().into()];
        let is_closed = sql.rows("SELECT complete FROM months WHERE zone = $1 AND month = $2", &key, 1)?;
        if let Some(row) = is_closed.first() {
            return Ok(Closing::Closed { complete: row[0].integer() != 0 });
        }
        let pending = pending(sql, end)?;
        let died = sql.rows(DIED, &[end.into(), month.begins(zone_rules).into()], 1)?;
        let has_died = died.first().is_some_and(|row| row[0].integer() > 0);
        let is_waiting = pending.iter().any(|process| now - process.seen < GIVEN_UP);
        if is_waiting && !is_forced {
            return Ok(Closing::Waits(pending));
        }
        let complete = pending.is_empty() && !has_died;
        // Those that are given up are not waited for in the next month. If one is heard of again, it is there again.
        for process in &pending {
            sql.run("UPDATE processes SET ended = 2 WHERE id = $1", &[process.id.as_str().into()])?;
        }
        let [zone, number] = key;
        sql.run(INSERT_MONTH, &[zone.clone(), number.clone(), i64::from(complete).into(), now.into()])?;
        let [from, to] = [month, month.next()].map(|month| SqlValue::from(day_of_date(month.first_day())));
        for sum in [SUM_USAGE, SUM_UNITS] {
            sql.run(sum, &[number.clone(), zone.clone(), from.clone(), to.clone()])?;
        }
        Ok(Closing::Closed { complete })
    });
    if closed.is_err() {
        known.forget();
    }
    closed
}

/// The months in the zone called `name` that have ended and are not closed, oldest first.
pub(super) fn open_months(
    sql: &mut dyn Sql,
    (name, zone): (&str, &jiff::tz::TimeZone),
    now: i64,
) -> Result<Vec<Month>, SqlError> {
    let first = sql.rows(FIRST_DAY, &[name.into()], 1)?;
    let Some(day) = first.first().map(|row| row[0].integer()).filter(|day| *day > 0) else {
        return Ok(Vec::new());
    };
    let closed = sql.rows(
        "SELECT m.month FROM months m JOIN zones z ON z.id = m.zone WHERE z.name = $1",
        &[name.into()],
        usize::MAX,
    )?;
    let closed: Vec<i64> = closed.iter().map(|row| row[0].integer()).collect();
    let mut months = Vec::new();
    let mut month = Month::of(super::apply::date_of_day(day));
    while month.next().begins(zone).saturating_add(GRACE) <= now {
        if !closed.contains(&month.number()) {
            months.push(month);
        }
        month = month.next();
    }
    Ok(months)
}
