//! Warnings and log messages about a server, from the results of its probes.

use std::{fmt::Display, mem, time::Duration};

use tokio::time::Instant;

use crate::store::redis::{NodeSeen, ServerCheck, ServerMemory};

const EVICTION_WARNING: &str = "Redis evicts keys, so limits lose their counts and start over: give it more memory, or store fewer \
    other keys";

/// Stores the server's memory, and logs when it begins to evict keys. `node`: the server, if it is one of several.
/// `quiet_after`: how long after an eviction the warning lasts.
pub(super) fn update_memory(
    seen: &mut NodeSeen,
    node: Option<&impl Display>,
    memory: ServerMemory,
    quiet_after: Duration,
) {
    let last = mem::replace(&mut seen.memory, memory);
    // A restarted server counts from 0.
    if last.evicted.zip(memory.evicted).is_some_and(|(then, now)| then < now) {
        if !is_evicting(seen) {
            tracing::warn!("{}: {EVICTION_WARNING}", name(node));
        }
        seen.evicting_until = Some(Instant::now() + quiet_after);
    }
}

/// Stores a new check, and logs the changes since the last. `node`: as above.
pub(super) fn update_check(seen: &mut NodeSeen, node: Option<&impl Display>, check: ServerCheck) {
    let name = name(node);
    let last = mem::replace(&mut seen.check, check);
    let ServerCheck { role, version, warnings, .. } = &seen.check;
    if (&last.role, &last.version) != (role, version) {
        tracing::info!(%version, %role, "Tollgate is connected to {name}");
    }
    for warning in warnings.iter().filter(|warning| !last.warnings.contains(warning)) {
        tracing::warn!("{name}: {warning}");
    }
    for warning in last.warnings.iter().filter(|warning| !warnings.contains(warning)) {
        tracing::info!("{name} no longer has this problem: {warning}");
    }
}

/// All warnings about a server that is up. `timeout`: of a decision.
pub(super) fn warnings(seen: &NodeSeen, timeout: Duration) -> Vec<String> {
    let latency = seen.latency.and_then(|latency| latency_warning(latency, timeout));
    let eviction = is_evicting(seen).then(|| EVICTION_WARNING.to_owned());
    latency.into_iter().chain(eviction).chain(seen.check.warnings.iter().cloned()).collect()
}

fn name(node: Option<&impl Display>) -> String {
    node.map_or("Redis".to_owned(), |node| format!("Redis {node}"))
}

/// Whether the server has evicted keys lately.
pub(super) fn is_evicting(seen: &NodeSeen) -> bool {
    seen.evicting_until.is_some_and(|until| Instant::now() < until)
}

/// A decision spends a part of the timeout waiting for the previous one and for the machine: the round trip may take
/// most of the rest.
fn latency_warning(latency: u64, timeout: Duration) -> Option<String> {
    let latency = Duration::from_micros(latency);
    (latency * 10 > timeout * 8).then(|| {
        format!("a round trip takes {latency:.1?}, so decisions will time out under load: set store.redis.timeout \
            to at least 1.25 times that; it is {timeout:?}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_that_is_long_for_the_timeout_is_warned_of() {
        let timeout = Duration::from_millis(50);
        assert_eq!(latency_warning(40_000, timeout), None);
        let warning = latency_warning(41_000, timeout).unwrap();
        assert!(warning.contains("takes 41.0ms") && warning.contains("is 50ms"), "{warning}");
    }
}
