//! The clock, which is injected where time matters.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// Gives the time in microseconds since the Unix epoch.
pub trait Clock: Send + Sync {
    /// Microseconds since the Unix epoch.
    fn now(&self) -> i64;

    /// Compares the clock with wall time, if it follows that.
    fn follow(&self) {}
}

/// The monotonic clock, anchored to wall time when it was made. It never runs backward, even if the machine's clock is
/// set back.
#[derive(Debug, Clone)]
pub struct SystemClock {
    wall: i64,
    monotonic: Instant,
}

impl SystemClock {
    /// A clock anchored to the current wall time.
    pub fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall: micros(wall), monotonic: Instant::now() }
    }

    /// The time of `instant` on this clock.
    pub fn at(&self, instant: Instant) -> i64 {
        self.wall + micros(instant.saturating_duration_since(self.monotonic))
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> i64 {
        self.at(Instant::now())
    }
}

fn micros(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Wall time, forward only. It is the monotonic clock, and moves forward where wall time is ahead of it: the machine's
/// clock was set, or the machine was suspended. So a month ends when it should, however long the process runs.
#[derive(Debug, Default)]
pub struct WallClock {
    clock: SystemClock,
    /// Microseconds by which wall time was ahead at most.
    ahead: AtomicI64,
}

impl Clock for WallClock {
    fn now(&self) -> i64 {
        self.clock.now() + self.ahead.load(Ordering::Relaxed)
    }

    fn follow(&self) {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.ahead.fetch_max(micros(wall).saturating_sub(self.clock.now()), Ordering::Relaxed);
    }
}

/// A clock that is stopped until it is set: for tests, and for requests of the past.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that reads `now`, in microseconds.
    pub fn new(now: i64) -> Self {
        Self(AtomicI64::new(now))
    }

    /// Sets the time, forward or back.
    pub fn set(&self, now: i64) {
        self.0.store(now, Ordering::SeqCst);
    }

    /// Moves the time by `micros`.
    pub fn advance(&self, micros: i64) {
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> i64 {
        (**self).now()
    }

    fn follow(&self) {
        (**self).follow();
    }
}
