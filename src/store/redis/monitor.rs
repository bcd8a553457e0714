//! The thread that keeps in touch with Redis, so that no request has to: it says that this instance lives,
//! probes a server that was away, looks at what it is, and hears what other instances unblock.

use std::{
    io, mem,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use tokio::{
    runtime,
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{
    audit::{Audit, audit},
    connection::Server,
    failure::Failure,
    pardons::{self, jittered},
    script,
};
use crate::{
    config::model,
    limit::{Breaker, Fleet},
    telemetry::metrics::StoreFacts,
};

/// How often an instance says that it lives.
const BEAT: Duration = Duration::from_secs(1);
/// For how long it counts as alive after that.
const ALIVE: Duration = Duration::from_secs(5);
/// How often the breaker is looked at.
const TICK: Duration = Duration::from_millis(50);
/// For finding out what a server is.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(2);
/// For saying good-bye.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What the monitor works with.
pub struct Duties {
    pub server: Server,
    pub config: model::Redis,
    /// How this instance is told from others.
    pub instance: String,
    /// How often the server is looked at again: what an operator has mended there is not to be complained of.
    pub audit_every: Duration,
    pub breaker: Arc<Breaker>,
    pub fleet: Arc<Fleet>,
    /// Told the identifier whose limits were taken back, by whatever instance.
    pub unblocked: Box<dyn Fn(&str) + Send>,
}

/// The running monitor. Dropped, it ends by itself.
#[derive(Debug)]
pub struct Monitor {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
    seen: Arc<Mutex<Seen>>,
}

/// What was seen of the server last.
#[derive(Debug, Default)]
struct Seen {
    audit: Audit,
    /// Of the last heartbeat, in microseconds.
    latency: Option<u64>,
    /// Why it was not reached last time.
    trouble: Option<String>,
}

impl Seen {
    /// Notes what the server is, and tells what has changed.
    fn learn(&mut self, audit: Audit) {
        let known = mem::replace(&mut self.audit, audit);
        let Audit { role, version, warnings, .. } = &self.audit;
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

impl Monitor {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is no thread or runtime left.
    pub fn spawn(duties: Duties) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let watching = Arc::clone(&seen);
        let run = move || runtime.block_on(keep_in_touch(&duties, &watching, stopped));
        let thread = thread::Builder::new().name("redis".into()).spawn(run)?;
        Ok(Self { stop, thread, seen })
    }

    /// What is known of the server, to be asked at any time.
    pub fn facts(
        &self,
        breaker: Arc<Breaker>,
        fleet: Arc<Fleet>,
    ) -> impl Fn() -> StoreFacts + Send + Sync + use<> {
        let seen = Arc::clone(&self.seen);
        move || {
            let seen = seen.lock();
            let Audit { role, version, warnings, .. } = seen.audit.clone();
            let away = seen.trouble.iter().map(|why| format!("Redis can't be asked: {why}"));
            StoreFacts {
                breaker_open: breaker.is_open(),
                instances: fleet.instances(),
                role,
                version,
                latency: seen.latency,
                warnings: away.chain(warnings).collect(),
            }
        }
    }

    /// Says good-bye to the other instances and ends the thread.
    pub fn stop(self) {
        self.stop.send_replace(true);
        if self.thread.join().is_err() {
            tracing::error!("the monitor of Redis had crashed");
        }
    }
}

async fn keep_in_touch(duties: &Duties, seen: &Mutex<Seen>, mut stopped: watch::Receiver<bool>) {
    let Duties { server, config, fleet, unblocked, .. } = duties;
    let heard = |identifier: Option<&str>| {
        if let Some(identifier) = identifier {
            unblocked(identifier);
        }
        fleet.pardon();
    };
    let mut pulse = Pulse { duties, seen, connection: None, audit_due: Instant::now() };
    tokio::select! {
        () = pardons::listen(server, &config.prefix, heard) => {}
        () = pulse.beat_on() => {}
        _ = stopped.changed() => {}
    }
    pulse.say_goodbye().await;
}

/// The heartbeats, and what follows from them.
struct Pulse<'a> {
    duties: &'a Duties,
    seen: &'a Mutex<Seen>,
    connection: Option<MultiplexedConnection>,
    audit_due: Instant,
}

impl Pulse<'_> {
    async fn beat_on(&mut self) {
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

    /// One heartbeat, on a connection that may have to be made. It takes no longer than a decision may.
    async fn beat(&mut self) -> Result<Duration, Failure> {
        let (mut connection, is_new) = match self.connection.take() {
            Some(connection) => (connection, false),
            None => (self.duties.server.connect().await?, true),
        };
        // A new connection may be one to another server.
        if is_new || self.audit_due <= Instant::now() {
            self.look(&mut connection, is_new).await?;
        }
        let begun = Instant::now();
        let beat = heartbeat(self.duties, &mut connection, ALIVE);
        let instances = timeout(self.duties.config.timeout, beat).await.map_err(|_| Failure::timeout())??;
        self.connection = Some(connection);
        self.duties.fleet.set_instances(instances);
        Ok(begun.elapsed())
    }

    /// Finds out what the server is. `first`: nothing was asked on this connection before.
    async fn look(&mut self, connection: &mut MultiplexedConnection, first: bool) -> Result<(), Failure> {
        let Duties { server, config, audit_every, .. } = self.duties;
        let looked = timeout(AUDIT_TIMEOUT, audit(connection, &config.prefix)).await;
        let audit = looked.map_err(|_| Failure::silent())?.map_err(|error| {
            match first && !server.is_encrypted() {
                true => Failure::at_first(error),
                false => error.into(),
            }
        })?;
        self.seen.lock().learn(audit);
        self.audit_due = Instant::now() + jittered(*audit_every);
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

    async fn say_goodbye(mut self) {
        if let Some(connection) = &mut self.connection {
            let _late = timeout(LAST_WORDS, heartbeat(self.duties, connection, Duration::ZERO)).await;
        }
    }
}

/// Gives how many instances live.
async fn heartbeat(
    duties: &Duties,
    connection: &mut MultiplexedConnection,
    alive: Duration,
) -> Result<u32, Failure> {
    let mut call = script::HEARTBEAT.key(format!("{}:instances", duties.config.prefix));
    call.arg(&duties.instance).arg(u64::try_from(alive.as_micros()).unwrap_or(u64::MAX));
    Ok(call.invoke_async(connection).await?)
}
