//! Changes of the health of the store and of endpoints, as events.

use std::collections::HashMap;

use crate::telemetry::{
    Event,
    metrics::{EndpointFacts, StoreFacts},
};

/// Whether the store and each endpoint were healthy in the last round, by their names in events. At first all are taken
/// to be healthy.
#[derive(Debug, Default)]
pub(super) struct HealthTracker(HashMap<String, bool>);

impl HealthTracker {
    /// Takes the health of all, and returns an event for each change.
    pub(super) fn update(&mut self, store: &Option<StoreFacts>, endpoints: Vec<EndpointFacts>) -> Vec<Event> {
        let store = store.iter().map(|store| {
            let why = if store.breaker_open { "its circuit breaker is open" } else { "it responds" };
            ("store".to_owned(), !store.breaker_open, why.to_owned())
        });
        // Whether a drained endpoint can be reached concerns no request: once it is undrained, its health is told.
        let endpoints = endpoints.into_iter().filter(|endpoint| endpoint.drain.is_none()).map(|endpoint| {
            let (is_healthy, state) = (!endpoint.is_failing(), endpoint.state().name());
            let why = match endpoint.error() {
                None => format!("it is {state}"),
                Some(error) => format!("it is {state}: {error}"),
            };
            (format!("upstream {} {}", endpoint.upstream, endpoint.url), is_healthy, why)
        });
        // Endpoints that are no more are forgotten.
        let before = std::mem::take(&mut self.0);
        let changed = store.chain(endpoints).filter_map(|(what, is_healthy, why)| {
            let was_healthy = before.get(&what).copied().unwrap_or(true);
            self.0.insert(what.clone(), is_healthy);
            (was_healthy != is_healthy).then_some(Event::Health { what, is_healthy, why })
        });
        changed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::{AddressFacts, EndpointState};

    #[test]
    fn each_change_is_reported_once() {
        let mut health = HealthTracker::default();
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
        assert_eq!(changes(health.update(&store(false), vec![endpoint(true)])), []);
        assert_eq!(changes(health.update(&store(true), vec![endpoint(true)])), [("store".into(), false)]);
        assert_eq!(changes(health.update(&store(true), vec![endpoint(true)])), []);
        let changed = changes(health.update(&store(false), vec![endpoint(false)]));
        assert_eq!(changed, [("store".into(), true), ("upstream api http://a:1".into(), false)]);
    }
}
