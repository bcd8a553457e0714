//! The heartbeats: they tell other instances that this one lives, and this one whether Redis does.

use std::{
    cell::{Cell, RefCell},
    sync::LazyLock,
    time::Duration,
};

use bb8_redis::redis::{Script, aio::MultiplexedConnection};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::{
    MonitorConfig,
    introduction::{Introduction, Peers},
    server_status::ServerStatus,
    time::jittered,
};
use crate::{
    limit::Clock,
    store::redis::{Failure, check_server},
    telemetry::metrics::StoreFailure,
};

static HEARTBEAT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../lua/heartbeat.lua")));

/// From one heartbeat to the next.
const INTERVAL: Duration = Duration::from_secs(1);
/// For how long an instance counts as alive after a heartbeat.
const ALIVE_FOR: Duration = Duration::from_secs(5);
/// How often the breaker is looked at.
const BREAKER_POLL: Duration = Duration::from_millis(50);
/// For finding out what a server is.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// Checks that must find no key evicted before that is no longer warned of.
const QUIET_CHECKS: u32 = 10;
/// One heartbeat in so many introduces the instance, and asks what the others are.
const INTRODUCE_EVERY: u32 = 5;
/// For saying good-bye.
const GOODBYE_TIMEOUT: Duration = Duration::from_millis(500);

/// The heartbeats, and what follows from them.
pub(super) struct Heartbeat<'a> {
    config: &'a MonitorConfig,
    status: &'a Mutex<ServerStatus>,
    /// Of the last heartbeat, if it went well.
    connection: RefCell<Option<MultiplexedConnection>>,
    check_at: Cell<Instant>,
    count: Cell<u32>,
}

impl<'a> Heartbeat<'a> {
    pub(super) fn new(config: &'a MonitorConfig, status: &'a Mutex<ServerStatus>) -> Self {
        Self {
            config,
            status,
            connection: RefCell::new(None),
            check_at: Cell::new(Instant::now()),
            count: Cell::new(0),
        }
    }

    /// A connection that answered a moment ago, for others to ask on.
    pub(super) fn connection(&self) -> Option<MultiplexedConnection> {
        self.connection.borrow().clone()
    }

    /// Goes on for as long as it is polled.
    pub(super) async fn run(&self) {
        loop {
            let result = self.beat().await;
            self.record(result);
            self.wait_for_next().await;
        }
    }

    /// Waits until the next heartbeat is due. While the circuit breaker is open that is the probe, which comes `retry_after`
    /// after the breaker was seen to be open.
    async fn wait_for_next(&self) {
        let MonitorConfig { breaker, redis, .. } = self.config;
        let (interval, probe) = (jittered(INTERVAL), jittered(redis.breaker.retry_after));
        let begun = Instant::now();
        let mut opened = None;
        loop {
            let now = Instant::now();
            if breaker.is_open() {
                opened.get_or_insert(now);
            }
            let due = opened.map_or(begun + interval, |opened| opened + probe);
            if due <= now {
                return;
            }
            sleep((due - now).min(BREAKER_POLL)).await;
        }
    }

    /// One heartbeat, on a connection that may have to be made. Gives how long it took.
    async fn beat(&self) -> Result<Duration, Failure> {
        // Others ask on it meanwhile.
        let known = self.connection.borrow().clone();
        if let Some(connection) = known {
            match self.beat_on(connection).await {
                // It ended meanwhile, as it does when the server is started anew: that says nothing of the server.
                Err(failure) if failure.kind == StoreFailure::Connection => {}
                result => return result,
            }
        }
        let connection = self.connect().await?;
        self.beat_on(connection).await
    }

    /// One heartbeat. The connection is kept if it serves.
    async fn beat_on(&self, connection: MultiplexedConnection) -> Result<Duration, Failure> {
        let result = self.exchange(connection.clone()).await;
        // A server that has no memory answers all the same: another connection would not help.
        let serves = result.as_ref().err().is_none_or(|failure| failure.kind == StoreFailure::OutOfMemory);
        self.connection.replace(serves.then_some(connection));
        result
    }

    /// Takes no longer than a decision may.
    async fn exchange(&self, mut connection: MultiplexedConnection) -> Result<Duration, Failure> {
        if self.check_at.get() <= Instant::now() {
            self.check(&mut connection, false).await?;
        }
        let begun = Instant::now();
        let count = self.count.replace(self.count.get().wrapping_add(1));
        let introduction = count.is_multiple_of(INTRODUCE_EVERY).then(|| Introduction::new(self.config));
        let reply = send(self.config, &mut connection, ALIVE_FOR, introduction.as_ref());
        let reply = timeout(self.config.redis.timeout, reply).await.map_err(|_| Failure::timeout())?;
        let Reply { instances, clock_offset, introductions } = reply?;
        self.config.instances.set_count(instances);
        if let Some(introduction) = introduction {
            self.status.lock().peers = Peers::new(&introduction, clock_offset, &introductions);
        }
        Ok(begun.elapsed())
    }

    /// A new connection, to a server that is checked anew: it may be another one.
    async fn connect(&self) -> Result<MultiplexedConnection, Failure> {
        let mut connection = self.config.server.connect().await?;
        self.check(&mut connection, true).await?;
        // It may have come back empty.
        self.config.registry.republish_all(self.config.clock.now());
        Ok(connection)
    }

    /// Finds out what the server is. `is_first`: nothing was asked on this connection before.
    async fn check(&self, connection: &mut MultiplexedConnection, is_first: bool) -> Result<(), Failure> {
        let MonitorConfig { server, redis, check_every, .. } = self.config;
        let check = timeout(CHECK_TIMEOUT, check_server(connection, &redis.prefix)).await;
        let check = check.map_err(|_| Failure::silent())?.map_err(|error| {
            match is_first && !server.is_encrypted() {
                true => Failure::at_first(&error),
                false => error.into(),
            }
        })?;
        self.status.lock().update_check(check, *check_every * QUIET_CHECKS);
        self.check_at.set(Instant::now() + jittered(*check_every));
        Ok(())
    }

    fn record(&self, result: Result<Duration, Failure>) {
        let breaker = &self.config.breaker;
        let mut status = self.status.lock();
        match result {
            Ok(latency) => {
                status.latency = u64::try_from(latency.as_micros()).ok();
                if status.failure.take().is_some() | breaker.close() {
                    tracing::info!("Redis is available again");
                }
            }
            Err(failure) => {
                if status.failure.is_none() {
                    tracing::warn!(error = %failure.reason(), "Redis check failed");
                }
                status.latency = None;
                status.failure = Some(failure.reason().to_owned());
                if !failure.trips_the_breaker() {
                    breaker.close();
                } else if breaker.failed() {
                    tracing::warn!("Redis is unavailable: policies follow their on_store_error");
                }
            }
        }
    }

    /// Tells the other instances that this one ends.
    pub(super) async fn say_goodbye(self) {
        if let Some(mut connection) = self.connection.take() {
            let goodbye = send(self.config, &mut connection, Duration::ZERO, None);
            let _late = timeout(GOODBYE_TIMEOUT, goodbye).await;
        }
    }
}

/// What the script answers.
struct Reply {
    /// How many instances live.
    instances: u32,
    /// By how many microseconds this one's clock is ahead; 0 if it did not introduce itself.
    clock_offset: i64,
    /// Of the others; none if this one did not introduce itself.
    introductions: Vec<String>,
}

async fn send(
    config: &MonitorConfig,
    connection: &mut MultiplexedConnection,
    alive_for: Duration,
    introduction: Option<&Introduction>,
) -> Result<Reply, Failure> {
    let prefix = &config.redis.prefix;
    let instances = format!("{prefix}:instances");
    let mut call = HEARTBEAT.key(&instances);
    // In a cluster, in the slot of the other.
    call.key(format!("{prefix}:{{{instances}}}:introductions"));
    call.arg(&config.instance).arg(u64::try_from(alive_for.as_micros()).unwrap_or(u64::MAX));
    if let Some(introduction) = introduction {
        call.arg(config.clock.now()).arg(introduction.to_string());
    }
    let (instances, clock_offset, introductions) = call.invoke_async(connection).await?;
    Ok(Reply { instances, clock_offset, introductions })
}
