//! Jitter, and conversions between the clocks of Redis and of this instance.

use std::time::{Duration, Instant};

/// The duration plus or minus a quarter, so that instances do not act all at once.
pub(super) fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(0.75 + fastrand::f64() / 2.0)
}

/// Converts the reply of TIME, seconds and microseconds, to microseconds since the Unix epoch.
pub(super) fn unix_micros((seconds, micros): (i64, i64)) -> i64 {
    seconds.saturating_mul(1_000_000).saturating_add(micros)
}

/// Milliseconds from `now` until `time`, both in microseconds, rounded up; 0 if that is past.
pub(super) fn millis_until(time: i64, now: i64) -> u64 {
    u64::try_from(time.saturating_sub(now)).map_or(0, |micros| micros.div_ceil(1_000))
}

/// A clock that continues from one reading of the clock that stamps denials. A comparison with Redis' clock needs the
/// time of each call, not that of the first of many.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunningTime {
    read: Instant,
    /// The reading, in microseconds since the Unix epoch.
    time: i64,
}

impl RunningTime {
    /// A clock that reads `time` now.
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
    /// Microseconds by which Redis' clock is ahead.
    pub(super) fn lag(self) -> i64 {
        self.redis.saturating_sub(self.own)
    }

    /// Converts a time of this instance to Redis' clock.
    pub(super) fn to_redis(self, time: i64) -> i64 {
        time.saturating_add(self.lag())
    }

    /// Converts a time of Redis to this instance's clock; never in the future.
    pub(super) fn to_own(self, time: i64) -> i64 {
        time.saturating_sub(self.lag()).min(self.own)
    }
}
