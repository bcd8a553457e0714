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
