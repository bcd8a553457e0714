//! Jitter, and the time of Redis.

use std::time::{Duration, Instant};

/// Give or take a quarter, so that many instances do not come at once.
pub(super) fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(0.75 + fastrand::f64() / 2.0)
}

/// The answer to TIME, seconds and microseconds, as microseconds since the Unix epoch.
pub(super) fn unix_micros((seconds, micros): (i64, i64)) -> i64 {
    seconds.saturating_mul(1_000_000).saturating_add(micros)
}

/// The time of the clock that stamps denials, read once: it goes on from there. Comparing that clock with Redis' takes the
/// time of each call, not that of the first of many.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunningTime {
    read: Instant,
    /// What was read, in microseconds since the Unix epoch.
    time: i64,
}

impl RunningTime {
    /// The clock has just said `time`.
    pub(super) fn from(time: i64) -> Self {
        Self { read: Instant::now(), time }
    }

    pub(super) fn now(self) -> i64 {
        self.time.saturating_add(i64::try_from(self.read.elapsed().as_micros()).unwrap_or(i64::MAX))
    }
}

/// The clocks of Redis and of this instance, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clocks {
    pub(super) redis: i64,
    pub(super) own: i64,
}

impl Clocks {
    /// By how many microseconds Redis' clock is ahead.
    pub(super) fn lag(self) -> i64 {
        self.redis.saturating_sub(self.own)
    }

    /// A time of this instance, by Redis' clock.
    pub(super) fn to_redis(self, time: i64) -> i64 {
        time.saturating_add(self.lag())
    }

    /// A time of Redis, by the clock of this instance: never in the future.
    pub(super) fn to_own(self, time: i64) -> i64 {
        time.saturating_sub(self.lag()).min(self.own)
    }
}
