//! Adds a batch to the database, once.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use compact_str::CompactString;
use jiff::{Timestamp, civil::Date, tz};

use super::{
    batch::{Batch, Cause, Series, UsageRow},
    recorder::QUARTER,
    sql::{Dialect, Sql, SqlError, SqlRow, SqlValue, in_transaction},
};

/// Taken while months are closed, and shared by batches: any number of its own.
const MONTHS_LOCK: i64 = 0x7467_6d6f;
/// IDs that are known at once.
const MAX_KNOWN: usize = 200_000;

const INSERT_PROCESS: &str = include_str!("../../sql/insert_process.sql");
const ADVANCE_PROCESS: &str = include_str!("../../sql/advance_process.sql");
const INSERT_SERIES: &str = include_str!("../../sql/insert_series.sql");
const FIND_SERIES: &str = include_str!("../../sql/find_series.sql");
const INSERT_CAUSE: &str = include_str!("../../sql/insert_cause.sql");
const FIND_CAUSE: &str = include_str!("../../sql/find_cause.sql");
const ADD_USAGE_HOUR: &str = include_str!("../../sql/add_usage_hour.sql");
const ADD_UNIT_HOUR: &str = include_str!("../../sql/add_unit_hour.sql");
const ADD_USAGE_DAY: &str = include_str!("../../sql/add_usage_day.sql");
const ADD_UNIT_DAY: &str = include_str!("../../sql/add_unit_day.sql");
const ADD_LATE_USAGE: &str = include_str!("../../sql/add_late_usage.sql");
const ADD_LATE_UNITS: &str = include_str!("../../sql/add_late_units.sql");
const ADD_DENIAL: &str = include_str!("../../sql/add_denial.sql");
const INSERT_EVENT: &str = include_str!("../../sql/insert_event.sql");
const CLOSED_MONTHS: &str = include_str!("../../sql/closed_months.sql");

/// IDs of the rows that others refer to. Belongs to one connection: what a transaction has made is forgotten with it.
#[derive(Debug, Default)]
pub(super) struct KnownIds {
    series: HashMap<Series, i64>,
    causes: HashMap<Cause, i64>,
    policies: HashMap<CompactString, i64>,
    zones: HashMap<String, i64>,
}

impl KnownIds {
    /// Forgets all, as a transaction was rolled back.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    fn series(&mut self, sql: &mut dyn Sql, series: &Series) -> Result<i64, SqlError> {
        if let Some(known) = self.series.get(series) {
            return Ok(*known);
        }
        if self.series.len() >= MAX_KNOWN {
            self.series.clear();
        }
        let Series { customer, user, plan, route, value } = series;
        let texts = [customer, user, plan, route, value].map(|text| SqlValue::from(text.as_str()));
        let id = find_or_insert(sql, FIND_SERIES, INSERT_SERIES, &texts)?;
        self.series.insert(series.clone(), id);
        Ok(id)
    }

    fn cause(&mut self, sql: &mut dyn Sql, cause: &Cause) -> Result<i64, SqlError> {
        if let Some(known) = self.causes.get(cause) {
            return Ok(*known);
        }
        if self.causes.len() >= MAX_KNOWN {
            self.causes.clear();
        }
        let Cause { series, kind, policy, limit, method } = cause;
        let texts =
            [&series.customer, &series.user, &series.plan, kind, policy, limit, &series.route, method];
        let texts = texts.map(|text| SqlValue::from(text.as_str()));
        let id = find_or_insert(sql, FIND_CAUSE, INSERT_CAUSE, &texts)?;
        self.causes.insert(cause.clone(), id);
        Ok(id)
    }

    fn policy(&mut self, sql: &mut dyn Sql, name: &CompactString) -> Result<i64, SqlError> {
        if let Some(known) = self.policies.get(name) {
            return Ok(*known);
        }
        let id = named(sql, "policies", name)?;
        self.policies.insert(name.clone(), id);
        Ok(id)
    }

    pub(super) fn zone(&mut self, sql: &mut dyn Sql, name: &str) -> Result<i64, SqlError> {
        if let Some(known) = self.zones.get(name) {
            return Ok(*known);
        }
        let id = named(sql, "zones", name)?;
        self.zones.insert(name.to_owned(), id);
        Ok(id)
    }
}

fn named(sql: &mut dyn Sql, table: &str, name: &str) -> Result<i64, SqlError> {
    let find = format!("SELECT id FROM {table} WHERE name = $1");
    let insert = format!("INSERT INTO {table} (name) VALUES ($1) ON CONFLICT DO NOTHING");
    find_or_insert(sql, &find, &insert, &[name.into()])
}

fn find_or_insert(
    sql: &mut dyn Sql,
    find: &str,
    insert: &str,
    parameters: &[SqlValue],
) -> Result<i64, SqlError> {
    let id = |rows: &[SqlRow]| rows.first().map(|row| row[0].integer());
    if let Some(id) = id(&sql.rows(find, parameters, 1)?) {
        return Ok(id);
    }
    sql.run(insert, parameters)?;
    id(&sql.rows(find, parameters, 1)?)
        .ok_or_else(|| SqlError::Away("another instance has not committed a name yet".to_owned()))
}

/// Adds the batch of this `number` of a process, unless it was added before. Returns the number of the last batch that was added.
///
/// # Errors
/// The database has failed: nothing is added, or it is not known whether all of it is. The batch is to be added again.
pub(super) fn add_batch(
    sql: &mut dyn Sql,
    known: &mut KnownIds,
    process: &str,
    number: u64,
    batch: &Batch,
    now: i64,
) -> Result<(), SqlError> {
    let added = in_transaction(sql, |sql| {
        let started = [process.into(), batch.started.into(), now.into()];
        sql.run(INSERT_PROCESS, &started)?;
        // This also waits for a commit of the same batch that is in flight.
        let moved = [
            number.into(),
            batch.watermark.into(),
            now.into(),
            i64::from(batch.has_ended).into(),
            process.into(),
        ];
        if sql.run(ADVANCE_PROCESS, &moved)? == 0 {
            return Ok(());
        }
        lock_months(sql, false)?;
        add_usage(sql, known, batch)?;
        add_denials(sql, known, batch)?;
        let mut events = Vec::new();
        for event in &batch.events {
            events.push(SqlValue::from(event.time));
            let texts = [&event.id, &event.instance, &event.by, &event.action, &event.target, &event.detail];
            events.extend(texts.map(|text| SqlValue::from(text.as_str())));
        }
        sql.run_each(INSERT_EVENT, 7, &events)
    });
    if added.is_err() {
        known.forget();
    }
    added
}

/// Keeps months from being closed until the end of the transaction; or, if `is_to_close`, batches from being added.
pub(super) fn lock_months(sql: &mut dyn Sql, is_to_close: bool) -> Result<(), SqlError> {
    if sql.dialect() == Dialect::Sqlite {
        // A transaction that writes is alone.
        return Ok(());
    }
    let lock = match is_to_close {
        true => "SELECT 1::BIGINT FROM pg_advisory_xact_lock($1)",
        false => "SELECT 1::BIGINT FROM pg_advisory_xact_lock_shared($1)",
    };
    sql.rows(lock, &[MONTHS_LOCK.into()], 1).map(|_| ())
}

/// What is added to a row.
#[derive(Default)]
struct Added {
    /// Requests, denied ones, and those by status: 1xx, 3xx, 4xx, 5xx.
    counts: [i64; 6],
    /// By policy.
    units: BTreeMap<i64, i64>,
}

impl Added {
    fn add(&mut self, row: &UsageRow, policies: &HashMap<CompactString, i64>) {
        let counts = &row.counts;
        let [c1, _, c3, c4, c5] = counts.classes;
        let more = [counts.requests, counts.denied, c1, c3, c4, c5];
        for (sum, more) in self.counts.iter_mut().zip(more) {
            *sum = sum.saturating_add(i64::try_from(more).unwrap_or(i64::MAX));
        }
        for (policy, more) in &row.units {
            let Some(policy) = policies.get(policy) else { continue };
            let sum = self.units.entry(*policy).or_default();
            *sum = sum.saturating_add(i64::try_from(*more).unwrap_or(i64::MAX));
        }
    }
}

fn add_usage(sql: &mut dyn Sql, known: &mut KnownIds, batch: &Batch) -> Result<(), SqlError> {
    if batch.usage.is_empty() {
        return Ok(());
    }
    let mut zones = Vec::new();
    for name in &batch.zones {
        let Ok(zone) = tz::TimeZone::get(name) else { continue };
        zones.push((known.zone(sql, name)?, zone));
    }
    // Sorted, so that instances which add to the same rows wait for each other, and not in a circle.
    let mut hours: BTreeMap<[i64; 2], Added> = BTreeMap::new();
    let mut days: BTreeMap<[i64; 3], Added> = BTreeMap::new();
    let mut policies: HashMap<CompactString, i64> = HashMap::new();
    let names: BTreeSet<&CompactString> =
        batch.usage.iter().flat_map(|row| &row.units).map(|(policy, _)| policy).collect();
    for name in names {
        policies.insert(name.clone(), known.policy(sql, name)?);
    }
    for row in &batch.usage {
        let series = known.series(sql, &row.series)?;
        let seconds = row.quarter * QUARTER;
        hours.entry([seconds.div_euclid(3_600), series]).or_default().add(row, &policies);
        for (id, zone) in &zones {
            days.entry([*id, day_at(zone, seconds), series]).or_default().add(row, &policies);
        }
    }
    add_rows(sql, ADD_USAGE_HOUR, ADD_UNIT_HOUR, &hours)?;
    add_rows(sql, ADD_USAGE_DAY, ADD_UNIT_DAY, &days)?;

    let closed = sql.rows(CLOSED_MONTHS, &[], usize::MAX)?;
    let closed: BTreeSet<[i64; 2]> = closed.iter().map(|row| [row[0].integer(), row[1].integer()]).collect();
    if closed.is_empty() {
        return Ok(());
    }
    let mut late: BTreeMap<[i64; 3], Added> = BTreeMap::new();
    for ([zone, day, series], added) in days {
        let month = month_of_day(day);
        if closed.contains(&[zone, month]) {
            let sums = late.entry([zone, month, series]).or_default();
            for (sum, more) in sums.counts.iter_mut().zip(added.counts) {
                *sum += more;
            }
            for (policy, more) in added.units {
                *sums.units.entry(policy).or_default() += more;
            }
        }
    }
    add_rows(sql, ADD_LATE_USAGE, ADD_LATE_UNITS, &late)
}

fn add_rows<const N: usize>(
    sql: &mut dyn Sql,
    usage: &str,
    units: &str,
    rows: &BTreeMap<[i64; N], Added>,
) -> Result<(), SqlError> {
    let values = |key: &[i64; N]| key.map(SqlValue::Integer).into_iter();
    let of_requests = rows.iter().filter(|(_, added)| added.counts != [0; 6]);
    let of_requests =
        of_requests.flat_map(|(key, added)| values(key).chain(added.counts.map(SqlValue::Integer)));
    sql.run_each(usage, N + 6, &of_requests.collect::<Vec<_>>())?;
    let of_units = rows.iter().flat_map(|(key, added)| added.units.iter().map(move |units| (key, units)));
    let of_units =
        of_units.flat_map(|(key, (policy, sum))| values(key).chain([(*policy).into(), (*sum).into()]));
    sql.run_each(units, N + 2, &of_units.collect::<Vec<_>>())
}

fn add_denials(sql: &mut dyn Sql, known: &mut KnownIds, batch: &Batch) -> Result<(), SqlError> {
    let mut rows = Vec::new();
    for denial in &batch.denials {
        let cause = known.cause(sql, &denial.cause)?;
        let key = (denial.minute, denial.address.clone(), cause);
        rows.push((key, denial));
    }
    rows.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let mut values = Vec::with_capacity(rows.len() * 11);
    for ((minute, address, cause), denial) in rows {
        let sample = &denial.sample;
        values.extend([
            SqlValue::from(minute),
            address.as_str().into(),
            cause.into(),
            denial.count.into(),
            denial.first.into(),
            denial.last.into(),
            i64::from(sample.status).into(),
            sample.path.as_str().into(),
            sample.host.as_str().into(),
            sample.user_agent.as_str().into(),
            sample.request_id.as_str().into(),
        ]);
    }
    sql.run_each(ADD_DENIAL, 11, &values)
}

/// The day in `zone` at a time in seconds since the Unix epoch, as days since 1970-01-01.
pub(super) fn day_at(zone: &tz::TimeZone, seconds: i64) -> i64 {
    let Ok(time) = Timestamp::from_second(seconds) else { return seconds.div_euclid(86_400) };
    let offset = i64::from(zone.to_offset(time).seconds());
    (seconds + offset).div_euclid(86_400)
}

/// The month of a day: year * 12 + month - 1.
pub(super) fn month_of_day(day: i64) -> i64 {
    let date = date_of_day(day);
    i64::from(date.year()) * 12 + i64::from(date.month()) - 1
}

/// The date of a day since 1970-01-01.
pub(super) fn date_of_day(day: i64) -> Date {
    let span = jiff::Span::new().try_days(day).unwrap_or_default();
    Date::new(1970, 1, 1).and_then(|first| first.checked_add(span)).unwrap_or(Date::MAX)
}

/// Days from 1970-01-01 to `date`.
pub(super) fn day_of_date(date: Date) -> i64 {
    let since = Date::new(1970, 1, 1).and_then(|first| date.since(first));
    since.map_or(0, |span| i64::from(span.get_days()))
}
