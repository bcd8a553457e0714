//! Events about changes of the health of the store and of endpoints.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::telemetry::{
    Event,
    metrics::{EndpointFacts, StoreFacts},
};

/// The last published health of the store and of each endpoint, by their names in events. Initially all are healthy.
#[derive(Debug)]
pub(super) struct HealthTracker {
    /// Minimum time between two events about the same endpoint. Changes in between are published afterwards, unless
    /// they were reverted.
    pause: Duration,
    reported: HashMap<String, ReportedHealth>,
}

#[derive(Debug, Clone, Copy)]
struct ReportedHealth {
    is_healthy: bool,
    /// When the last event was published. `None`: never.
    at: Option<Instant>,
}

impl HealthTracker {
    pub(super) fn new(pause: Duration) -> Self {
        Self { pause, reported: HashMap::new() }
    }

    /// Takes the current health; returns the events that are due.
    pub(super) fn update(
        &mut self,
        store: &Option<StoreFacts>,
        endpoints: Vec<EndpointFacts>,
        now: Instant,
    ) -> Vec<Event> {
        let store = store.iter().map(|store| {
            let why = if store.breaker_open { "its circuit breaker is open" } else { "it responds" };
            ("store".to_owned(), !store.breaker_open, why.to_owned())
        });
        // The health of a drained endpoint affects no request; it is published once the endpoint is undrained.
        let endpoints = endpoints.into_iter().filter(|endpoint| endpoint.drain.is_none()).map(|endpoint| {
            let (is_healthy, state) = (!endpoint.is_failing(), endpoint.state().name());
            let why = match endpoint.error() {
                None => format!("it is {state}"),
                Some(error) => format!("it is {state}: {error}"),
            };
            (format!("upstream {} {}", endpoint.upstream, endpoint.url), is_healthy, why)
        });
        // Removed endpoints are dropped.
        let before = std::mem::take(&mut self.reported);
        let changed = store.chain(endpoints).filter_map(|(what, is_healthy, why)| {
            let last = before.get(&what).copied().unwrap_or(ReportedHealth { is_healthy: true, at: None });
            let is_too_soon = last.at.is_some_and(|at| now.duration_since(at) < self.pause);
            if is_too_soon || last.is_healthy == is_healthy {
                self.reported.insert(what, last);
                return None;
            }
            self.reported.insert(what.clone(), ReportedHealth { is_healthy, at: Some(now) });
            Some(Event::Health { what, is_healthy, why })
        });
        changed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::{AddressFacts, EndpointState};

    const PAUSE: Duration = Duration::from_secs(10);

    #[test]
    fn each_change_is_reported_once_and_one_that_flaps_rarely() {
        let (mut health, pause, now) = (HealthTracker::new(PAUSE), PAUSE, Instant::now());
        let store = |breaker_open| Some(StoreFacts { breaker_open, ..StoreFacts::default() });
        let endpoint = |is_healthy| EndpointFacts {
            upstream: "api".into(),
            url: "http://a:1".into(),
            addresses: vec![AddressFacts {
                state: if is_healthy { EndpointState::Healthy } else { EndpointState::Unhealthy },
                ..AddressFacts::default()
            }],
            ..EndpointFacts::default()
        };
        let changes = |events: Vec<Event>| -> Vec<(String, bool)> {
            let each = events.into_iter().filter_map(|event| match event {
                Event::Health { what, is_healthy, .. } => Some((what, is_healthy)),
                _ => None,
            });
            each.collect()
        };
        let mut update = |breaker_open, is_healthy, now| {
            changes(health.update(&store(breaker_open), vec![endpoint(is_healthy)], now))
        };
        assert_eq!(update(false, true, now), []);
        assert_eq!(update(true, true, now), [("store".into(), false)]);
        assert_eq!(update(true, true, now), []);
        let named = |is_healthy| ("upstream api http://a:1".to_owned(), is_healthy);
        assert_eq!(update(false, false, now + pause), [("store".into(), true), named(false)]);
        // It flaps.
        for second in 1..10 {
            assert_eq!(update(false, second % 2 == 0, now + pause + Duration::from_secs(second)), []);
        }
        assert_eq!(update(false, false, now + pause * 2), [], "as last published");
        assert_eq!(update(false, true, now + pause * 2), [named(true)]);
    }
}
