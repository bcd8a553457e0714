//! The heartbeats: they tell other instances that this one lives, and this one whether Redis does.

use std::{
    cell::{Cell, RefCell},
    mem,
    sync::LazyLock,
    time::Duration,
};

use parking_lot::Mutex;
use redis::{Script, aio::MultiplexedConnection};
use tokio::time::{Instant, sleep, timeout};

use super::{Duties, introduction, subscription::jittered};
use crate::{
    limit::Clock,
    store::redis::{Failure, ServerCheck, check_server},
    telemetry::metrics::StoreFailure,
};

static HEARTBEAT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../lua/heartbeat.lua")));

/// How often an instance says that it lives.
const BEAT: Duration = Duration::from_secs(1);
/// For how long it counts as alive after that.
const ALIVE: Duration = Duration::from_secs(5);
/// How often the breaker is looked at.
const TICK: Duration = Duration::from_millis(50);
/// For finding out what a server is.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(2);
/// ServerChecks that must find nothing evicted before it is said no longer.
const QUIET: u32 = 10;
/// Heartbeats with which an instance says what it is, and asks what the others are: one in so many.
const INTRODUCTION: u32 = 5;
/// For saying good-bye.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What was seen of the server last.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) audit: ServerCheck,
    /// Of the last heartbeat, in microseconds.
    pub(super) latency: Option<u64>,
    /// Why it was not reached last time.
    pub(super) trouble: Option<String>,
    /// What instances said of themselves last.
    pub(super) fleet: introduction::Fleet,
    /// Until when it counts as evicting.
    evicting: Option<Instant>,
}

impl Seen {
    /// Says so, if keys were evicted lately.
    pub(super) fn evictions(&self) -> Option<String> {
        self.evicting.filter(|until| Instant::now() < *until).map(|_| EVICTIONS.to_owned())
    }

    /// Notes what the server is, and tells what has changed. `patience`: how long it is said that keys were evicted.
    fn learn(&mut self, audit: ServerCheck, patience: Duration) {
        let known = mem::replace(&mut self.audit, audit);
        // A server that was started anew counts from nothing.
        if known.evicted.zip(self.audit.evicted).is_some_and(|(then, now)| then < now) {
            if self.evictions().is_none() {
                tracing::warn!("Redis: {EVICTIONS}");
            }
            self.evicting = Some(Instant::now() + patience);
        }
        let ServerCheck { role, version, warnings, .. } = &self.audit;
        if (&known.role, &known.version) != (role, version) {
            tracing::info!(%version, %role, "connected to Redis");
        }
        for warning in warnings.iter().filter(|warning| !known.warnings.contains(warning)) {
            tracing::warn!("Redis: {warning}");
        }
        for warning in known.warnings.iter().filter(|warning| !warnings.contains(warning)) {
            tracing::info!("Redis, no longer: {warning}");
        }
    }
}

const EVICTIONS: &str = "Redis evicts keys: limits forget what they counted, and begin anew; it needs more memory, or fewer other keys";

/// The heartbeats, and what follows from them.
pub(super) struct Pulse<'a> {
    duties: &'a Duties,
    seen: &'a Mutex<Seen>,
    /// Of the last beat, if it went well.
    connection: RefCell<Option<MultiplexedConnection>>,
    audit_due: Cell<Instant>,
    beats: Cell<u32>,
}

impl<'a> Pulse<'a> {
    pub(super) fn new(duties: &'a Duties, seen: &'a Mutex<Seen>) -> Self {
        Self {
            duties,
            seen,
            connection: RefCell::new(None),
            audit_due: Cell::new(Instant::now()),
            beats: Cell::new(0),
        }
    }

    /// A connection that answered a moment ago, for others to ask on.
    pub(super) fn connection(&self) -> Option<MultiplexedConnection> {
        self.connection.borrow().clone()
    }

    /// Beats for as long as it is polled.
    pub(super) async fn beat_on(&self) {
        loop {
            let beat = self.beat().await;
            self.judge(beat);
            self.rest().await;
        }
    }

    /// Until the next heartbeat is due. While the breaker is open it is the probe, which comes `retry_after` after
    /// the breaker was seen to be open.
    async fn rest(&self) {
        let Duties { breaker, config, .. } = self.duties;
        let (beat, probe) = (jittered(BEAT), jittered(config.breaker.retry_after));
        let begun = Instant::now();
        let mut opened = None;
        loop {
            let now = Instant::now();
            if breaker.is_open() {
                opened.get_or_insert(now);
            }
            let due = opened.map_or(begun + beat, |opened| opened + probe);
            if due <= now {
                return;
            }
            sleep((due - now).min(TICK)).await;
        }
    }

    /// One heartbeat, on a connection that may have to be made.
    async fn beat(&self) -> Result<Duration, Failure> {
        // Others ask on it meanwhile.
        let held = self.connection.borrow().clone();
        if let Some(connection) = held {
            match self.beat_over(connection).await {
                // It ended meanwhile, as it does when the server is started anew: that says nothing of the server.
                Err(failure) if failure.kind == StoreFailure::Connection => {}
                beat => return beat,
            }
        }
        let connection = self.connect().await?;
        self.beat_over(connection).await
    }

    /// One heartbeat. The connection is kept if it serves.
    async fn beat_over(&self, connection: MultiplexedConnection) -> Result<Duration, Failure> {
        let beat = self.heartbeat(connection.clone()).await;
        // One that has no memory answers all the same: another connection would not help.
        let serves = beat.as_ref().err().is_none_or(|failure| failure.kind == StoreFailure::OutOfMemory);
        self.connection.replace(serves.then_some(connection));
        beat
    }

    /// Takes no longer than a decision may.
    async fn heartbeat(&self, mut connection: MultiplexedConnection) -> Result<Duration, Failure> {
        if self.audit_due.get() <= Instant::now() {
            self.look(&mut connection, false).await?;
        }
        let begun = Instant::now();
        let beats = self.beats.replace(self.beats.get().wrapping_add(1));
        let introduction =
            beats.is_multiple_of(INTRODUCTION).then(|| introduction::Introduction::of(self.duties));
        let beat = heartbeat(self.duties, &mut connection, ALIVE, introduction.as_ref());
        let beat = timeout(self.duties.config.timeout, beat).await.map_err(|_| Failure::timeout())?;
        let Heard { instances, offset, others } = beat?;
        self.duties.fleet.set_instances(instances);
        if let Some(introduction) = introduction {
            self.seen.lock().fleet = introduction::Fleet::of(&introduction, offset, &others);
        }
        Ok(begun.elapsed())
    }

    /// A new connection, to a server that is looked at anew: it may be another one.
    async fn connect(&self) -> Result<MultiplexedConnection, Failure> {
        let mut connection = self.duties.server.connect().await?;
        self.look(&mut connection, true).await?;
        // It may have come back empty.
        self.duties.registry.publish_all(self.duties.clock.now());
        Ok(connection)
    }

    /// Finds out what the server is. `first`: nothing was asked on this connection before.
    async fn look(&self, connection: &mut MultiplexedConnection, first: bool) -> Result<(), Failure> {
        let Duties { server, config, audit_every, .. } = self.duties;
        let looked = timeout(AUDIT_TIMEOUT, check_server(connection, &config.prefix)).await;
        let audit = looked.map_err(|_| Failure::silent())?.map_err(|error| {
            match first && !server.is_encrypted() {
                true => Failure::at_first(error),
                false => error.into(),
            }
        })?;
        self.seen.lock().learn(audit, *audit_every * QUIET);
        self.audit_due.set(Instant::now() + jittered(*audit_every));
        Ok(())
    }

    fn judge(&self, beat: Result<Duration, Failure>) {
        let breaker = &self.duties.breaker;
        let mut seen = self.seen.lock();
        match beat {
            Ok(latency) => {
                seen.latency = u64::try_from(latency.as_micros()).ok();
                if seen.trouble.take().is_some() | breaker.close() {
                    tracing::info!("Redis answers");
                }
            }
            Err(failure) => {
                if seen.trouble.is_none() {
                    tracing::warn!(error = %failure.why, "Redis can't be asked");
                }
                seen.latency = None;
                seen.trouble = Some(failure.why.clone());
                if !failure.trips_the_breaker() {
                    breaker.close();
                } else if breaker.failed() {
                    tracing::warn!("Redis is away: policies do what on_store_error says");
                }
            }
        }
    }

    /// Tells the other instances that this one ends.
    pub(super) async fn say_goodbye(self) {
        if let Some(mut connection) = self.connection.take() {
            let _late =
                timeout(LAST_WORDS, heartbeat(self.duties, &mut connection, Duration::ZERO, None)).await;
        }
    }
}

/// What an instance hears when it says that it lives.
struct Heard {
    /// How many do.
    instances: u32,
    /// By how many microseconds its clock is ahead; 0 if it did not introduce itself.
    offset: i64,
    /// What the others say of themselves.
    others: Vec<String>,
}

async fn heartbeat(
    duties: &Duties,
    connection: &mut MultiplexedConnection,
    alive: Duration,
    introduction: Option<&introduction::Introduction>,
) -> Result<Heard, Failure> {
    let instances = format!("{}:instances", duties.config.prefix);
    let mut call = HEARTBEAT.key(&instances);
    // In a cluster, in the slot of the other.
    call.key(format!("{}:{{{instances}}}:introductions", duties.config.prefix));
    call.arg(&duties.instance).arg(u64::try_from(alive.as_micros()).unwrap_or(u64::MAX));
    if let Some(introduction) = introduction {
        call.arg(duties.clock.now()).arg(introduction.text());
    }
    let (instances, offset, others) = call.invoke_async(connection).await?;
    Ok(Heard { instances, offset, others })
}
