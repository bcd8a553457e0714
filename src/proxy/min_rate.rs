//! The minimum rate at which a client has to send a request's body or read a response (`client_limits.min_rate`).

use std::time::Duration;

use crate::config::model::MinRate;

/// Longer than any body takes, but short enough to be added to any time.
const UNLIMITED: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The time that a client has left before it is too slow: a token bucket of time. Waiting for the client spends time,
/// and each byte earns the time that it takes at the minimum rate.
///
/// The budget starts with the grace period. Bytes that arrive fast make up for a later silence, but not for one
/// longer than the idle timeout.
#[derive(Debug, Clone, Copy)]
pub struct RateBudget {
    left: Duration,
    most: Duration,
    /// 0: there is no minimum.
    bytes_per_second: u64,
}

impl RateBudget {
    /// The budget at the start of a body.
    pub fn new(rate: MinRate, idle_timeout: Duration) -> Self {
        let left = if rate.bytes == 0 { UNLIMITED } else { rate.grace };
        Self { left, most: rate.grace.max(idle_timeout), bytes_per_second: rate.bytes }
    }

    /// How long the client may be waited for now.
    pub fn left(&self) -> Duration {
        self.left
    }

    /// Spends the time that the client was waited for.
    pub fn spend(&mut self, waited: Duration) {
        if self.bytes_per_second > 0 {
            self.left = self.left.saturating_sub(waited);
        }
    }

    /// Earns the time for `bytes` that the client sent or read.
    pub fn earn(&mut self, bytes: u64) {
        if self.bytes_per_second > 0 {
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
            let earned = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            self.left = self.left.saturating_add(earned).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn budget() -> RateBudget {
        RateBudget::new(MinRate { bytes: 240, grace: secs(20) }, secs(75))
    }

    #[test]
    fn a_client_at_the_rate_never_runs_out_and_one_below_it_does() {
        for (bytes_per_second, survives) in [(240, true), (239, false), (1_000, true), (1, false), (0, false)]
        {
            let mut budget = budget();
            let mut lasted = 0;
            while lasted < 100_000 {
                budget.spend(secs(1));
                if budget.left().is_zero() {
                    break;
                }
                budget.earn(bytes_per_second);
                lasted += 1;
            }
            assert_eq!(lasted == 100_000, survives, "{bytes_per_second} bytes a second lasted {lasted} s");
        }
    }

    #[test]
    fn a_client_that_sends_nothing_has_the_grace() {
        assert_eq!(budget().left(), secs(20));
    }

    #[test]
    fn bytes_that_came_fast_allow_one_silence_as_long_as_the_idle_timeout() {
        let mut budget = budget();
        budget.earn(1 << 40);
        assert_eq!(budget.left(), secs(75));
        budget.spend(secs(75));
        assert!(budget.left().is_zero());
    }

    #[test]
    fn a_grace_longer_than_the_idle_timeout_is_kept() {
        let mut budget = RateBudget::new(MinRate { bytes: 240, grace: secs(90) }, secs(75));
        budget.earn(1 << 20);
        assert_eq!(budget.left(), secs(90));
    }

    #[test]
    fn without_a_rate_time_is_never_short() {
        let mut budget = RateBudget::new(MinRate { bytes: 0, grace: secs(20) }, secs(75));
        budget.spend(secs(1_000_000));
        budget.earn(u64::MAX);
        assert_eq!(budget.left(), UNLIMITED);
    }
}
