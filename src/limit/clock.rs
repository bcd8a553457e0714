//! The clock, which is injected where time matters.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Instant,
};

use nix::time::{ClockId, clock_gettime};

/// Gives the time in microseconds since the Unix epoch.
///
/// Durations, such as windows, go by a clock that nobody sets. Dates, such as ends of keys and bans, and windows of the
/// calendar go by wall time as it is now.
pub trait Clock: Send + Sync {
    /// Microseconds since the Unix epoch.
    fn now(&self) -> i64;

    /// Wall time, for windows of the calendar.
    fn wall(&self) -> i64 {
        self.now()
    }
}

/// Wall time, for dates. It moves when somebody sets the machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct WallClock;

impl WallClock {
    /// The time of `instant` on this clock.
    pub fn at(self, instant: Instant) -> i64 {
        self.now().saturating_sub(i64::try_from(instant.elapsed().as_micros()).unwrap_or(i64::MAX))
    }
}

impl Clock for WallClock {
    fn now(&self) -> i64 {
        read(ClockId::CLOCK_REALTIME)
    }
}

/// The monotonic clock, for durations, anchored to wall time when it was made. It includes the time in which the machine
/// was suspended, where the system tells it.
#[derive(Debug, Clone, Copy)]
pub struct SteadyClock {
    /// Wall time when the machine was started.
    anchor: i64,
}

impl SteadyClock {
    /// A clock anchored to the current wall time.
    pub fn new() -> Self {
        Self { anchor: WallClock.now().saturating_sub(uptime()) }
    }
}

impl Default for SteadyClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> i64 {
        self.anchor.saturating_add(uptime())
    }

    fn wall(&self) -> i64 {
        WallClock.now()
    }
}

/// Microseconds since some moment, by the monotonic clock.
fn uptime() -> i64 {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;
    read(CLOCK)
}

/// Microseconds by this clock, which exists on each system for which it is named here.
fn read(clock: ClockId) -> i64 {
    clock_gettime(clock)
        .map_or(0, |time| time.tv_sec().saturating_mul(1_000_000).saturating_add(time.tv_nsec() / 1_000))
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

    fn wall(&self) -> i64 {
        (**self).wall()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_clock_begins_with_wall_time_and_goes_on_by_itself() {
        let (clock, before) = (SteadyClock::new(), WallClock.now());
        let first = clock.now();
        assert!((first - before).abs() < 60_000_000, "{first} {before}");
        assert!(clock.now() >= first);
        let ahead = SteadyClock { anchor: clock.anchor + 3_600_000_000 };
        assert!(ahead.now() - ahead.wall() > 3_000_000_000, "wall time was set back by an hour since");
        assert!(ahead.now() >= first + 3_600_000_000);
    }
}
