//! Times that differ from instance to instance.

use std::time::Duration;

/// Give or take a quarter, so that many instances do not come at once.
pub(super) fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(0.75 + fastrand::f64() / 2.0)
}
