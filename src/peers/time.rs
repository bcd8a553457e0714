//! Jitter, and the time of Redis.

use std::time::Duration;

/// Give or take a quarter, so that many instances do not come at once.
pub(super) fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(0.75 + fastrand::f64() / 2.0)
}

/// The answer to TIME, seconds and microseconds, as microseconds since the Unix epoch.
pub(super) fn unix_micros((seconds, micros): (i64, i64)) -> i64 {
    seconds.saturating_mul(1_000_000).saturating_add(micros)
}
