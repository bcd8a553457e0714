//! Changes of the addresses that names have, and of the endpoints that files list, as events: one for each change, however many
//! addresses come and go.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, Instant},
};

use crate::telemetry::{EndpointsChange, Event, metrics::EndpointFacts};

/// Addresses that an event names.
const NAMED: usize = 5;

/// What has endpoints, or addresses, that come and go.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Source {
    upstream: String,
    is_file: bool,
    /// The path of the file, or the URL of the endpoint with the name.
    name: String,
}

/// What was last told of a source.
#[derive(Debug)]
struct Told {
    members: BTreeSet<String>,
    /// When the last event was published. `None`: there was none.
    at: Option<Instant>,
}

/// The addresses of each name, and the endpoints of each file, as subscribers know them.
#[derive(Debug)]
pub(super) struct EndpointChanges {
    /// Between two events about the same source. What changes in between is told at its end, unless it has changed back.
    pause: Duration,
    told: HashMap<Source, Told>,
}

impl EndpointChanges {
    pub(super) fn new(pause: Duration) -> Self {
        Self { pause, told: HashMap::new() }
    }

    /// Takes all endpoints as they are, and returns the events that are due. What is seen for the first time is no change.
    pub(super) fn update(&mut self, endpoints: &[EndpointFacts], now: Instant) -> Vec<Event> {
        let mut current: BTreeMap<Source, BTreeSet<String>> = BTreeMap::new();
        for endpoint in endpoints {
            let source = |is_file, name: &str| Source {
                upstream: endpoint.upstream.clone(),
                is_file,
                name: name.to_owned(),
            };
            if let Some(file) = &endpoint.file {
                current.entry(source(true, file)).or_default().insert(endpoint.url.clone());
            }
            if endpoint.resolution.is_some() && !endpoint.addresses.is_empty() {
                let addresses = endpoint.addresses.iter().map(|address| address.address.clone());
                current.entry(source(false, &endpoint.url)).or_default().extend(addresses);
            }
        }
        self.told.retain(|source, _| current.contains_key(source));
        let mut events = Vec::new();
        for (source, members) in current {
            let Some(told) = self.told.get_mut(&source) else {
                self.told.insert(source, Told { members, at: None });
                continue;
            };
            let is_too_soon = told.at.is_some_and(|at| now.duration_since(at) < self.pause);
            if is_too_soon || told.members == members {
                continue;
            }
            let added = members.difference(&told.members);
            events.push(Event::Endpoints(EndpointsChange {
                upstream: source.upstream,
                source: source.name,
                is_file: source.is_file,
                count: members.len(),
                added: added.clone().count(),
                removed: told.members.difference(&members).count(),
                first_added: added.take(NAMED).cloned().collect(),
            }));
            *told = Told { members, at: Some(now) };
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::{AddressFacts, ResolutionFacts};

    const PAUSE: Duration = Duration::from_secs(10);

    fn name(addresses: impl IntoIterator<Item = usize>) -> Vec<EndpointFacts> {
        let address = |n| AddressFacts { address: format!("10.0.0.{n:02}:80"), ..AddressFacts::default() };
        vec![EndpointFacts {
            upstream: "api".into(),
            url: "http://api.test".into(),
            addresses: addresses.into_iter().map(address).collect(),
            resolution: Some(ResolutionFacts::default()),
            ..EndpointFacts::default()
        }]
    }

    fn counts(events: Vec<Event>) -> Vec<[usize; 3]> {
        let each = events.into_iter().filter_map(|event| match event {
            Event::Endpoints(change) => Some([change.count, change.added, change.removed]),
            _ => None,
        });
        each.collect()
    }

    #[test]
    fn a_name_that_moves_is_one_event_and_one_that_flaps_is_told_rarely() {
        let (mut changes, now) = (EndpointChanges::new(PAUSE), Instant::now());
        assert_eq!(changes.update(&name([]), now), [], "it is not resolved yet");
        assert_eq!(changes.update(&name(0..50), now), [], "the first addresses");
        let moved = changes.update(&name(50..99), now);
        let Event::Endpoints(change) = &moved[0] else { panic!("{moved:?}") };
        assert_eq!((change.source.as_str(), change.first_added.len()), ("http://api.test", NAMED));
        assert_eq!(counts(moved), [[49, 49, 50]]);
        for second in 1..10 {
            let flapping = if second % 2 == 0 { name(50..99) } else { name(0..2) };
            assert_eq!(changes.update(&flapping, now + Duration::from_secs(second)), []);
        }
        assert_eq!(changes.update(&name(50..99), now + PAUSE), [], "it is as it was told");
        assert_eq!(counts(changes.update(&name(50..98), now + PAUSE)), [[48, 0, 1]]);
    }

    #[test]
    fn the_endpoints_of_a_file_are_told_together() {
        let (mut changes, now) = (EndpointChanges::new(PAUSE), Instant::now());
        let file = |urls: &[&str]| -> Vec<_> {
            let endpoint = |url: &&str| EndpointFacts {
                upstream: "api".into(),
                url: (*url).into(),
                file: Some("/endpoints.yaml".into()),
                addresses: vec![AddressFacts::default()],
                ..EndpointFacts::default()
            };
            urls.iter().map(endpoint).collect()
        };
        assert_eq!(changes.update(&file(&["http://a", "http://b"]), now), []);
        let events = changes.update(&file(&["http://b", "http://c", "http://d"]), now);
        let first_added = vec!["http://c".to_owned(), "http://d".to_owned()];
        assert!(
            matches!(&events[..], [Event::Endpoints(change)] if change.is_file && change.first_added == first_added),
            "{events:?}"
        );
        assert_eq!(counts(events), [[3, 2, 1]]);
    }
}
