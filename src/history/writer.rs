//! The thread that writes batches to the database, and keeps it in order. No request waits for it.

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    alerts,
    apply::{KnownIds, add_batch, month_of_day},
    batch::Batch,
    months::{self, Closing, Month, PendingProcess, SILENT},
    outbox::{Outbox, Spool},
    plan::Zone,
    sql::{Postgres, Sql, SqlError, Sqlite, migrate},
};
use crate::{
    config::model::{History, HistoryStore},
    limit::{Clock, WallClock},
};

/// How long a statement of the writer may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The pause after a failure; it doubles with each, up to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How often old rows are dropped, months are closed and abandoned spools are looked for.
const UPKEEP: Duration = Duration::from_secs(60);
/// How often rows that nothing refers to are dropped, and denials counted.
const CLEANING: Duration = Duration::from_secs(6 * 3_600);
/// How long IDs are remembered. Rows that nothing refers to are dropped only where nothing has for longer.
const REMEMBERED: Duration = Duration::from_secs(1_800);
/// Tolerated difference of the clocks, in microseconds.
pub(super) const MAX_CLOCK_OFFSET: i64 = 300_000_000;
/// Hours of usage that are kept.
const KEPT_HOURS: i64 = 35 * 24;
/// The most rows of denials.
const MAX_DENIALS: i64 = 5_000_000;
/// How long processes that have ended are remembered, in seconds.
const FORGOTTEN: i64 = 400 * 86_400;
/// The share of its largest size from which the oldest denials of a file are dropped, in percent.
const NEARLY_FULL: i64 = 90;
/// Minutes of denials that are dropped at once.
const CHUNK: i64 = 6 * 60;

/// It has ended, and was not able to say so. Its month lacks some seconds.
const DIED: &str = "UPDATE processes SET ended = 2 WHERE ended = 0 AND id = $1";

/// What the writer tells of its work.
#[derive(Debug, Clone, Default)]
pub(super) struct WriterState {
    /// Why batches can't be written.
    pub(super) fault: Option<String>,
    /// What was served before was written. In seconds since the Unix epoch.
    pub(super) written_until: i64,
    /// Microseconds that this clock is ahead of the database's, or of Redis': whichever differs more.
    pub(super) clock_offset: Option<i64>,
    /// The oldest month that waits for processes, and these.
    pub(super) waits: Option<(Month, Vec<PendingProcess>)>,
}

/// Something to be done on the connection that writes. If it fails, the connection is opened again.
pub(super) type WriterJob = Box<dyn FnOnce(&mut dyn Sql, &mut KnownIds) -> Result<(), SqlError> + Send>;

pub(super) struct Writer {
    pub(super) settings: History,
    pub(super) process: String,
    pub(super) spool: Option<PathBuf>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) state: Arc<Mutex<WriterState>>,
    /// In which months are told apart.
    pub(super) zones: Arc<Mutex<Vec<Zone>>>,
    pub(super) jobs: mpsc::Receiver<WriterJob>,
    /// The microseconds by which `clock` is ahead of that of the limits.
    pub(super) other_clock: Box<dyn Fn() -> Option<i64> + Send>,
    pub(super) clock: WallClock,
}

/// A connection of the writer.
struct Connection {
    sql: Box<dyn Sql>,
    known: KnownIds,
    remembered: Instant,
}

/// Opens the database of `store`, which may grow to `size` bytes, and makes its tables.
///
/// # Errors
/// It can't be reached, or refuses.
pub(super) fn open(store: &HistoryStore, size: usize) -> Result<Box<dyn Sql>, SqlError> {
    let mut sql: Box<dyn Sql> = match &store.file {
        Some(file) => Box::new(Sqlite::open(file, size)?),
        None => Box::new(Postgres::connect(store, PATIENCE)?),
    };
    migrate(&mut *sql)?;
    Ok(sql)
}

impl Writer {
    /// Writes until there will be no more batches, and none waits.
    pub(super) fn run(self) {
        let (mut connection, mut acknowledged) = (None::<Connection>, 0);
        let (mut pause, mut retry) = (FIRST_PAUSE, Instant::now());
        let (mut upkeep, mut cleaning) = (Instant::now(), Instant::now() + UPKEEP);
        while !self.outbox.is_over() {
            if Instant::now() < retry {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
            let done = self.turn(&mut connection, &mut acknowledged, &mut upkeep, &mut cleaning);
            match done {
                Ok(()) => {
                    pause = FIRST_PAUSE;
                    self.report(None);
                    self.outbox.wait(Duration::from_secs(1));
                }
                Err(error) => {
                    self.report(Some(&error));
                    connection = None;
                    retry = Instant::now() + pause;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        self.outbox.finish();
    }

    /// Notes a failure, or that there is none.
    fn report(&self, error: Option<&SqlError>) {
        let mut state = self.state.lock();
        let fault = error.map(ToString::to_string);
        match (&state.fault, &fault) {
            (None, Some(fault)) => tracing::warn!("the history can't be written: {fault}"),
            (Some(_), None) => tracing::info!("the history is written again"),
            _ => {}
        }
        state.fault = fault;
    }

    /// Writes what waits, and does the upkeep that is due.
    fn turn(
        &self,
        connection: &mut Option<Connection>,
        acknowledged: &mut u64,
        upkeep: &mut Instant,
        cleaning: &mut Instant,
    ) -> Result<(), SqlError> {
        let connection = match connection {
            Some(connection) => connection,
            None => {
                let sql = open(&self.settings.store, self.settings.size)?;
                let opened = connection.insert(Connection {
                    sql,
                    known: KnownIds::default(),
                    remembered: Instant::now(),
                });
                self.send_again(opened, *acknowledged)?;
                opened
            }
        };
        if connection.remembered.elapsed() > REMEMBERED {
            connection.known.forget();
            connection.remembered = Instant::now();
        }
        while let Some((number, bytes)) = self.outbox.first() {
            if let Some(batch) = Batch::decode(&bytes) {
                match self.add(connection, &self.process, number, &batch) {
                    Err(SqlError::Unfit(reason)) => {
                        warn_unfit(number, &self.process, &reason);
                        self.outbox.put_aside(number);
                        continue;
                    }
                    added => added?,
                }
                self.state.lock().written_until = batch.watermark;
            }
            *acknowledged = number;
            self.outbox.acknowledged(number, bytes);
        }
        while let Ok(job) = self.jobs.try_recv() {
            job(&mut *connection.sql, &mut connection.known)?;
        }
        if Instant::now() >= *upkeep && !self.outbox.is_closed() {
            *upkeep = Instant::now() + UPKEEP;
            self.keep_up(connection)?;
            if Instant::now() >= *cleaning {
                *cleaning = Instant::now() + CLEANING;
                clean(&mut *connection.sql, self.now())?;
                connection.known.forget();
            }
        }
        Ok(())
    }

    /// Adds a batch. If there is no space left, makes some of old denials first.
    fn add(
        &self,
        connection: &mut Connection,
        process: &str,
        number: u64,
        batch: &Batch,
    ) -> Result<(), SqlError> {
        let Connection { sql, known, .. } = connection;
        let now = self.now();
        match add_batch(&mut **sql, known, process, number, batch, now) {
            Err(SqlError::Full(_)) if drop_oldest_denials(&mut **sql)? => {
                add_batch(&mut **sql, known, process, number, batch, now)
            }
            added => added,
        }
    }

    /// Sends what the database has acknowledged and lost: it has failed over to a copy that lagged behind.
    fn send_again(&self, connection: &mut Connection, acknowledged: u64) -> Result<(), SqlError> {
        if acknowledged == 0 {
            return Ok(());
        }
        let last = "SELECT last FROM processes WHERE id = $1";
        let rows = connection.sql.rows(last, &[self.process.as_str().into()], 1)?;
        let last = rows.first().map_or(0, |row| row[0].integer().unsigned_abs());
        if last >= acknowledged {
            return Ok(());
        }
        let lost = self.outbox.sent_after(last);
        tracing::warn!(
            "the database of the history has lost {} batches that it had, perhaps in a failover: {} of them are sent again",
            acknowledged - last,
            lost.len()
        );
        for (number, bytes) in lost {
            if let Some(batch) = Batch::decode(&bytes) {
                self.add(connection, &self.process, number, &batch)?;
            }
        }
        Ok(())
    }

    fn now(&self) -> i64 {
        self.clock.now().div_euclid(1_000_000)
    }

    fn keep_up(&self, connection: &mut Connection) -> Result<(), SqlError> {
        self.send_abandoned(connection)?;
        let others = [self.clock_offset()?, (self.other_clock)()];
        let offset = others.into_iter().flatten().max_by_key(|offset| offset.abs());
        self.state.lock().clock_offset = offset;
        let Connection { sql, known, .. } = connection;
        drop_old(&mut **sql, &self.settings, self.now())?;
        if offset.is_none_or(|offset| offset.abs() <= MAX_CLOCK_OFFSET) {
            self.close_months(&mut **sql, known)?;
        }
        Ok(())
    }

    fn clock_offset(&self) -> Result<Option<i64>, SqlError> {
        if self.settings.store.file.is_some() {
            return Ok(None);
        }
        // Its own connection: the one that writes is known by its trait only.
        let mut postgres = Postgres::connect(&self.settings.store, PATIENCE)?;
        postgres.clock_offset(|| self.clock.now()).map(Some)
    }

    /// Closes the months that have ended, in each zone.
    fn close_months(&self, sql: &mut dyn Sql, known: &mut KnownIds) -> Result<(), SqlError> {
        let zones = self.zones.lock().clone();
        let (now, mut waits) = (self.now(), None);
        for Zone { name, zone } in &zones {
            let zone = (name.as_str(), zone);
            for month in months::open_months(sql, zone, now)? {
                match months::close(sql, known, zone, month, now, false)? {
                    Closing::Closed { complete } => {
                        let how = if complete { "complete" } else { "without a process that was given up" };
                        tracing::info!("usage of {month} is closed ({}): {how}", zone.0);
                    }
                    Closing::Waits(mut pending) if waits.is_none() => {
                        pending.retain(|process| now - process.seen >= SILENT);
                        waits = (!pending.is_empty()).then_some((month, pending));
                    }
                    Closing::Waits(_) | Closing::TooEarly => {}
                }
            }
        }
        self.state.lock().waits = waits;
        Ok(())
    }

    /// Sends the batches of processes that have ended without, under their names.
    fn send_abandoned(&self, connection: &mut Connection) -> Result<(), SqlError> {
        let Some(path) = &self.spool else { return Ok(()) };
        for (process, spool) in Spool::abandoned(path) {
            let numbers = spool.numbers();
            if !numbers.is_empty() {
                tracing::info!(
                    "the history of process {process}, which has ended, is written: {} batches",
                    numbers.len()
                );
            }
            for number in numbers {
                let Ok(bytes) = spool.read(number) else { continue };
                match Batch::decode(&bytes) {
                    Some(batch) => match self.add(connection, &process, number, &batch) {
                        Err(SqlError::Unfit(reason)) => {
                            warn_unfit(number, &process, &reason);
                            spool.put_aside(number);
                        }
                        added => {
                            added?;
                            spool.remove(number);
                        }
                    },
                    None => {
                        tracing::warn!("batch {number} of process {process} can't be read, and is put aside");
                        spool.put_aside(number);
                    }
                }
            }
            connection.sql.run(DIED, &[process.as_str().into()])?;
            spool.finish();
        }
        Ok(())
    }
}

fn warn_unfit(number: u64, process: &str, reason: &str) {
    tracing::error!(
        "the database does not take batch {number} of process {process}, which is put aside: {reason}"
    );
}

/// Drops rows that are older than `settings` keep them.
fn drop_old(sql: &mut dyn Sql, settings: &History, now: i64) -> Result<(), SqlError> {
    let hour = now.div_euclid(3_600) - KEPT_HOURS;
    let kept = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    let day = (now - kept(settings.keep.usage)).div_euclid(86_400);
    for (statement, limit) in [
        ("DELETE FROM usage_hours WHERE hour < $1", hour),
        ("DELETE FROM unit_hours WHERE hour < $1", hour),
        ("DELETE FROM usage_days WHERE zone IN (SELECT id FROM zones) AND day < $1", day),
        ("DELETE FROM unit_days WHERE zone IN (SELECT id FROM zones) AND day < $1", day),
        ("DELETE FROM usage_months WHERE zone IN (SELECT id FROM zones) AND month < $1", month_of_day(day)),
        ("DELETE FROM unit_months WHERE zone IN (SELECT id FROM zones) AND month < $1", month_of_day(day)),
        ("DELETE FROM months WHERE zone IN (SELECT id FROM zones) AND month < $1", month_of_day(day)),
        ("DELETE FROM events WHERE time < $1", (now - kept(settings.keep.events)) * 1_000_000),
    ] {
        sql.run(statement, &[limit.into()])?;
    }
    alerts::drop_old(sql, now)?;
    let minute = (now - kept(settings.keep.denials)).div_euclid(60);
    while let Some(oldest) = oldest_denial(sql)?.filter(|oldest| *oldest < minute) {
        drop_denials_before(sql, (oldest + CHUNK).min(minute))?;
    }
    if sql.dialect() == super::sql::Dialect::Sqlite {
        while fullness(sql)? >= NEARLY_FULL && drop_oldest_denials(sql)? {}
        sql.script("PRAGMA incremental_vacuum(2000)")?;
    }
    Ok(())
}

/// The share of a file's largest size that is in use, in percent.
fn fullness(sql: &mut dyn Sql) -> Result<i64, SqlError> {
    let mut number = |name: &str| {
        let rows = sql.rows(&format!("PRAGMA {name}"), &[], 1)?;
        Ok::<_, SqlError>(rows.first().map_or(0, |row| row[0].integer()))
    };
    let (pages, free, most) = (number("page_count")?, number("freelist_count")?, number("max_page_count")?);
    Ok((pages - free) * 100 / most.max(1))
}

fn oldest_denial(sql: &mut dyn Sql) -> Result<Option<i64>, SqlError> {
    let rows = sql.rows("SELECT minute FROM denials ORDER BY minute LIMIT 1", &[], 1)?;
    Ok(rows.first().map(|row| row[0].integer()))
}

fn drop_denials_before(sql: &mut dyn Sql, minute: i64) -> Result<(), SqlError> {
    sql.run("DELETE FROM denials WHERE minute < $1", &[minute.into()]).map(|_| ())
}

/// Drops the oldest denials. Returns whether there were any.
fn drop_oldest_denials(sql: &mut dyn Sql) -> Result<bool, SqlError> {
    let Some(oldest) = oldest_denial(sql)? else { return Ok(false) };
    drop_denials_before(sql, oldest + CHUNK)?;
    Ok(true)
}

/// Drops rows that nothing refers to, and the oldest denials if there are too many.
fn clean(sql: &mut dyn Sql, now: i64) -> Result<(), SqlError> {
    loop {
        let count = sql.rows("SELECT COUNT(*) FROM denials", &[], 1)?;
        let is_full = count.first().is_some_and(|row| row[0].integer() > MAX_DENIALS);
        if !is_full || !drop_oldest_denials(sql)? {
            break;
        }
    }
    sql.run("DELETE FROM causes WHERE NOT EXISTS (SELECT 1 FROM denials d WHERE d.cause = causes.id)", &[])?;
    let used = ["usage_days", "usage_hours", "usage_months", "unit_days", "unit_months"]
        .map(|table| format!("NOT EXISTS (SELECT 1 FROM {table} t WHERE t.series = series.id)"));
    sql.run(&format!("DELETE FROM series WHERE {}", used.join(" AND ")), &[])?;
    sql.run("DELETE FROM processes WHERE ended > 0 AND seen < $1", &[(now - FORGOTTEN).into()])?;
    Ok(())
}
