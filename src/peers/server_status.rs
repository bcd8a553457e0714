//! What the heartbeats have found out about the server, in words for operators.

use std::{mem, time::Duration};

use tokio::time::Instant;

use super::introduction::Peers;
use crate::store::redis::ServerCheck;

const EVICTION_WARNING: &str = "Redis evicts keys, so limits lose their counts and start over: give it more memory, or store fewer \
    other keys";

/// What is known of the server, and of the instances that share it.
#[derive(Debug, Default)]
pub(super) struct ServerStatus {
    pub(super) check: ServerCheck,
    /// Of the last heartbeat, in microseconds; `None` if that failed.
    pub(super) latency: Option<u64>,
    /// Why the last heartbeat failed.
    pub(super) failure: Option<String>,
    pub(super) peers: Peers,
    /// Until when the eviction of keys is warned of.
    evicting_until: Option<Instant>,
}

impl ServerStatus {
    /// Takes a new check, and logs what has changed since the last. `quiet_after`: for how long evicted keys are warned of.
    pub(super) fn update_check(&mut self, check: ServerCheck, quiet_after: Duration) {
        let last = mem::replace(&mut self.check, check);
        // A server that was started anew counts from nothing.
        if last.evicted.zip(self.check.evicted).is_some_and(|(then, now)| then < now) {
            if !self.is_evicting() {
                tracing::warn!("Redis: {EVICTION_WARNING}");
            }
            self.evicting_until = Some(Instant::now() + quiet_after);
        }
        let ServerCheck { role, version, warnings, .. } = &self.check;
        if (&last.role, &last.version) != (role, version) {
            tracing::info!(%version, %role, "connected to Redis");
        }
        for warning in warnings.iter().filter(|warning| !last.warnings.contains(warning)) {
            tracing::warn!("Redis: {warning}");
        }
        for warning in last.warnings.iter().filter(|warning| !warnings.contains(warning)) {
            tracing::info!("Redis, resolved: {warning}");
        }
    }

    /// All that an operator should know, where a decision may take `timeout`.
    pub(super) fn warnings(&self, timeout: Duration) -> Vec<String> {
        let failure = self.failure.iter().map(|why| format!("Redis check failed: {why}"));
        let latency = self.latency.and_then(|latency| latency_warning(latency, timeout));
        let eviction = self.is_evicting().then(|| EVICTION_WARNING.to_owned());
        failure.chain(latency).chain(eviction).chain(self.check.warnings.iter().cloned()).collect()
    }

    fn is_evicting(&self) -> bool {
        self.evicting_until.is_some_and(|until| Instant::now() < until)
    }
}

/// Under load a decision waits for the one before it: it takes two round trips, and some time besides.
fn latency_warning(latency: u64, timeout: Duration) -> Option<String> {
    let latency = Duration::from_micros(latency);
    (latency * 3 > timeout).then(|| {
        format!("a round trip takes {latency:.1?}, so decisions will time out under load: set store.redis.timeout \
            to at least three times that; it is {timeout:?}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_that_is_long_for_the_timeout_is_warned_of() {
        let timeout = Duration::from_millis(50);
        assert_eq!(latency_warning(16_000, timeout), None);
        let warning = latency_warning(17_000, timeout).unwrap();
        assert!(warning.contains("takes 17.0ms") && warning.contains("is 50ms"), "{warning}");
    }
}
