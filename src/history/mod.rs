//! What was used, by whom, and who was denied: kept in SQLite or PostgreSQL, and asked later.
//!
//! A request's way into it:
//!
//! 1. A worker sums what its requests use, and who was denied (`HistoryRecorder`), and hands the sums over a few times a
//!    second.
//! 2. A thread merges the sums of all workers (`collector`), and makes a batch of them every few seconds. A batch is in the
//!    spool, on disk, until the database has it (`outbox`).
//! 3. Another thread adds the batches to the database (`writer`, `apply`). Each has the number that follows the one
//!    before, and the database knows the last number of each process: so it is added exactly once, whatever fails.
//!
//! No request waits for any of these. The admin port asks on a connection of its own (`questions`).

mod alerts;
mod apply;
mod batch;
mod collector;
mod months;
mod outbox;
mod plan;
mod questions;
mod recorder;
mod sql;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{sync::oneshot, time::timeout};

pub use self::{
    alerts::{AlertOutcome, AlertState, DueAlert, KeptAlert, NewAlert, TakenAlerts},
    batch::EventRow as NewEvent,
    months::{Closing, Month, PendingProcess},
    plan::{HistoryPlan, SEVERAL, UNVERIFIED},
    questions::{Denial, DenialQuestion, Dimension, HistoryEvent, UsageAnswer, UsageQuestion, UsageRow},
    recorder::{
        ChargedUnits, DenialSample, DeniedBy, DeniedRequest, HistoryRecorder, RequestCounts, UsageOwner,
    },
};
use self::{
    apply::KnownIds,
    collector::{Collector, Message},
    outbox::{Outbox, Spool},
    plan::Zone,
    recorder::TallySender,
    sql::{Dialect, Postgres, Sql, SqlError, Sqlite},
    writer::{Writer, WriterJob, WriterState},
};
use crate::{
    config::model::{self, HistoryStore},
    limit::{Clock, WallClock},
    telemetry::metrics::KeptHistoryFacts,
};

/// How long a question may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Questions that may wait.
const QUESTIONS: usize = 64;

/// The history of this process: its threads, and the questions to it.
pub struct History {
    messages: mpsc::Sender<Message>,
    queued: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
    outbox: Arc<Outbox>,
    state: Arc<Mutex<WriterState>>,
    zones: Arc<Mutex<Vec<Zone>>>,
    questions: mpsc::SyncSender<Question>,
    jobs: mpsc::Sender<WriterJob>,
    process: String,
    clock: WallClock,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// It may have one later.
    #[error("the history can't be read: {0}")]
    Unavailable(String),
    #[error("{0}")]
    Refused(String),
    /// The database can't take these values, and never will.
    #[error("{0}")]
    Unfit(String),
}

impl From<SqlError> for HistoryError {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Away(reason) | SqlError::Full(reason) => Self::Unavailable(reason),
            SqlError::Refused(reason) => Self::Refused(reason),
            SqlError::Unfit(reason) => Self::Unfit(reason),
        }
    }
}

type Question = Box<dyn FnOnce(&mut Reader) + Send>;

impl History {
    /// Starts its threads. The database need not be there. `other_clock`: the microseconds by which `clock` is ahead of that of
    /// the limits.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn start(
        settings: &model::History,
        clock: WallClock,
        other_clock: impl Fn() -> Option<i64> + Send + 'static,
    ) -> io::Result<Arc<Self>> {
        let process = format!("{:032x}", fastrand::u128(..));
        let started = clock.now().div_euclid(1_000_000);
        let spool = spool_directory(settings);
        let opened = spool.as_ref().filter(|_| settings.spool > 0).and_then(|path| {
            let opened = Spool::create(path, &process, settings.spool as u64);
            opened
                .inspect_err(|error| {
                    tracing::warn!("the spool of the history can't be used: {}: {error}", path.display());
                })
                .ok()
        });
        let outbox = Arc::new(Outbox::new(opened, settings.store.file.is_none()));
        let (messages, received) = mpsc::channel();
        let (jobs, received_jobs) = mpsc::channel();
        let (questions, received_questions) = mpsc::sync_channel::<Question>(QUESTIONS);
        let (queued, state) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(Mutex::new(WriterState { written_until: started, ..WriterState::default() })),
        );
        let zones = Arc::new(Mutex::new(Vec::new()));
        let collector = Collector {
            messages: received,
            queued: Arc::clone(&queued),
            outbox: Arc::clone(&outbox),
            zones: Arc::clone(&zones),
            clock,
            started,
        };
        let writer = Writer {
            settings: settings.clone(),
            process: process.clone(),
            spool,
            outbox: Arc::clone(&outbox),
            state: Arc::clone(&state),
            zones: Arc::clone(&zones),
            jobs: received_jobs,
            other_clock: Box::new(other_clock),
            clock,
        };
        let mut reader = Reader { store: settings.store.clone(), sql: None };
        let threads = vec![
            thread::Builder::new().name("history".into()).spawn(move || collector.run())?,
            thread::Builder::new().name("history-write".into()).spawn(move || writer.run())?,
        ];
        // It ends with the last sender of questions.
        thread::Builder::new().name("history-read".into()).spawn(move || {
            while let Ok(question) = received_questions.recv() {
                question(&mut reader);
            }
        })?;
        Ok(Arc::new(Self {
            messages,
            queued,
            dropped: Arc::default(),
            outbox,
            state,
            zones,
            questions,
            jobs,
            process,
            clock,
            threads: Mutex::new(threads),
        }))
    }

    /// A recorder for one worker under the configuration of `plan`.
    pub fn recorder(&self, plan: &Arc<HistoryPlan>) -> HistoryRecorder {
        let sender = TallySender {
            queue: self.messages.clone(),
            queued: Arc::clone(&self.queued),
            dropped: Arc::clone(&self.dropped),
        };
        let mut zones = self.zones.lock();
        for zone in &plan.zones {
            if !zones.iter().any(|known| known.name == zone.name) {
                zones.push(zone.clone());
            }
        }
        HistoryRecorder::new(Arc::clone(plan), sender, self.clock)
    }

    /// Keeps an event.
    pub fn record_event(&self, event: NewEvent) {
        // The threads end with the process.
        let _ended = self.messages.send(Message::Event(event));
    }

    /// The ID of this process in the history.
    pub fn process(&self) -> &str {
        &self.process
    }

    /// The state of its threads, for metrics and warnings.
    pub fn facts(&self) -> KeptHistoryFacts {
        let (waiting, state) = (self.outbox.facts(), self.state.lock().clone());
        let now = self.now();
        KeptHistoryFacts {
            is_kept: true,
            fault: state.fault,
            lag_seconds: if waiting.batches == 0 {
                0
            } else {
                (now - state.written_until).max(0).unsigned_abs()
            },
            waiting_batches: waiting.batches,
            waiting_bytes: waiting.bytes,
            spooled_bytes: waiting.on_disk,
            spool_fault: waiting.fault,
            dropped: waiting.dropped + self.dropped.load(Relaxed),
            clock_offset: state.clock_offset.filter(|offset| offset.abs() > writer::MAX_CLOCK_OFFSET),
            waits: state.waits.map(|(month, pending)| {
                let name = |process: &PendingProcess| (process.id.clone(), process.seen);
                (month.to_string(), pending.iter().map(name).collect())
            }),
        }
    }

    /// Answers a question about usage.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn usage(&self, question: UsageQuestion) -> Result<UsageAnswer, HistoryError> {
        self.ask(move |sql| questions::usage(sql, &question)).await
    }

    /// The denials that match a question, newest first.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn denials(&self, question: DenialQuestion) -> Result<Vec<Denial>, HistoryError> {
        self.ask(move |sql| questions::denials(sql, &question)).await
    }

    /// The events between two times, in microseconds since the Unix epoch, both included; newest first. `text`: only those
    /// whose target or detail has it.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn events(
        &self,
        between: [i64; 2],
        text: Option<String>,
        limit: usize,
    ) -> Result<Vec<HistoryEvent>, HistoryError> {
        self.ask(move |sql| questions::events(sql, between, text.as_deref(), limit)).await
    }

    /// When each customer was denied last, since this minute: in microseconds since the Unix epoch.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn last_denials(&self, minute: i64) -> Result<HashMap<String, i64>, HistoryError> {
        self.ask(move |sql| questions::last_denials(sql, minute)).await
    }

    /// The processes that have not reported all that they served before `end`, in seconds since the Unix epoch.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn pending(&self, end: i64) -> Result<Vec<PendingProcess>, HistoryError> {
        self.ask(move |sql| months::pending(sql, end)).await
    }

    /// Closes a month in the zone of this name, also without processes that have not reported all of it.
    ///
    /// # Errors
    /// The database can't be written.
    pub async fn close_month(
        &self,
        zone: (String, jiff::tz::TimeZone),
        month: Month,
    ) -> Result<Closing, HistoryError> {
        let now = self.now();
        self.write(move |sql, known| months::close(sql, known, (&zone.0, &zone.1), month, now, true)).await
    }

    /// Notes new messages to webhooks, and takes those that this instance is to send now: to each of these webhooks at most as
    /// many as stand beside it.
    ///
    /// # Errors
    /// The database can't be written.
    pub async fn take_alerts(
        &self,
        new: Vec<NewAlert>,
        webhooks: Vec<(String, usize)>,
    ) -> Result<TakenAlerts, HistoryError> {
        let clock = self.clock;
        let now = move || clock.now().div_euclid(1_000_000);
        self.write(move |sql, _| alerts::note_and_take(sql, &new, &webhooks, now())).await
    }

    /// Notes the outcome of an attempt to send a message.
    ///
    /// # Errors
    /// The database can't be written.
    pub async fn settle_alert(&self, alert: DueAlert, outcome: AlertOutcome) -> Result<(), HistoryError> {
        self.write(move |sql, _| alerts::settle(sql, &alert, &outcome)).await
    }

    /// The messages to webhooks, newest first. `after`: when the last one that is known was noted, in seconds since the Unix
    /// epoch, its ID and its webhook.
    ///
    /// # Errors
    /// The database can't be read.
    pub async fn alerts(
        &self,
        after: Option<(i64, String, String)>,
        limit: usize,
    ) -> Result<Vec<KeptAlert>, HistoryError> {
        self.ask(move |sql| alerts::recent(sql, after, limit)).await
    }

    /// Seconds since the Unix epoch.
    fn now(&self) -> i64 {
        self.clock.now().div_euclid(1_000_000)
    }

    /// Runs `job` on the connection that writes.
    async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut dyn Sql, &mut KnownIds) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, HistoryError> {
        let away = || HistoryError::Unavailable(self.state.lock().fault.clone().unwrap_or_else(too_slow));
        // Nothing piles up while the database is away.
        if self.state.lock().fault.is_some() {
            return Err(away());
        }
        let (done, result) = oneshot::channel();
        let job: WriterJob = Box::new(move |sql, known| {
            if done.is_closed() {
                // Nobody waits for it any longer, and was told that it is not done.
                return Ok(());
            }
            let result = job(sql, known);
            // The connection may be gone.
            let lost = match &result {
                Err(error @ SqlError::Away(_)) => Err(error.clone()),
                _ => Ok(()),
            };
            let _gone = done.send(result);
            lost
        });
        self.jobs.send(job).map_err(|_| away())?;
        self.outbox.wake();
        let result = timeout(PATIENCE, result).await.map_err(|_| away())?.map_err(|_| away())?;
        Ok(result?)
    }

    /// Makes a batch of what was summed, and waits until the database has it, at most for `limit`. Returns whether it has.
    pub fn flush(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let _ended = self.messages.send(Message::Flush);
        loop {
            thread::sleep(Duration::from_millis(10));
            if self.queued.load(Relaxed) == 0 && self.outbox.facts().batches == 0 {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
        }
    }

    /// Writes what is left, at most for `limit`. Returns whether all of it is in the database or in the spool. To be called
    /// when the last request has ended.
    pub fn finish(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let _ended = self.messages.send(Message::End);
        let threads = std::mem::take(&mut *self.threads.lock());
        while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
        let left = self.outbox.facts();
        self.outbox.is_closed() && left.bytes == left.on_disk
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn Sql) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, HistoryError> {
        let (done, answer) = oneshot::channel();
        let question: Question = Box::new(move |reader| {
            let _gone = done.send(reader.answer(question));
        });
        let busy = || HistoryError::Unavailable("too many questions at once".to_owned());
        self.questions.try_send(question).map_err(|_| busy())?;
        let late = || HistoryError::Unavailable(too_slow());
        timeout(PATIENCE, answer).await.map_err(|_| late())?.map_err(|_| late())?
    }
}

fn too_slow() -> String {
    "the database does not respond in time".to_owned()
}

/// Writes a copy of the SQLite database at `file` to `path`, in which nothing must be. It may be in use.
///
/// # Errors
/// The file can't be read, or the copy can't be written.
pub fn back_up(file: &Path, path: &Path) -> Result<(), HistoryError> {
    Ok(Sqlite::open_to_read(file)?.back_up(path)?)
}

/// The directory of the spool; `None` if there is none.
fn spool_directory(settings: &model::History) -> Option<PathBuf> {
    let beside = |file: &Path| {
        let mut name = file.as_os_str().to_owned();
        name.push(".spool");
        PathBuf::from(name)
    };
    settings.spool_directory.clone().or_else(|| settings.store.file.as_deref().map(beside))
}

/// The connection that questions are asked on.
struct Reader {
    store: HistoryStore,
    sql: Option<Box<dyn Sql>>,
}

impl Reader {
    fn answer<T>(
        &mut self,
        question: impl FnOnce(&mut dyn Sql) -> Result<T, SqlError>,
    ) -> Result<T, HistoryError> {
        // All parts of an answer are of one moment.
        let begin = |sql: &mut dyn Sql| match sql.dialect() {
            Dialect::Sqlite => sql.script("BEGIN"),
            Dialect::Postgres => sql.script("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
        };
        // A database that was restarted has ended the connection.
        let kept = self.sql.take().and_then(|mut sql| begin(&mut *sql).is_ok().then_some(sql));
        let mut sql = match kept {
            Some(sql) => sql,
            None => {
                let mut opened: Box<dyn Sql> = match &self.store.file {
                    Some(file) => Box::new(Sqlite::open_to_read(file)?),
                    None => Box::new(Postgres::connect(&self.store, PATIENCE)?),
                };
                begin(&mut *opened)?;
                opened
            }
        };
        let mut answer = question(&mut *sql);
        if let Err(error) = sql.script("COMMIT") {
            answer = answer.and(Err(error));
        }
        if answer.is_ok() {
            self.sql = Some(sql);
        }
        Ok(answer?)
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("History").field("process", &self.process).finish_non_exhaustive()
    }
}
