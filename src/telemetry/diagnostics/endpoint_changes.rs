//! Events about changes of a name's addresses or a file's endpoints: one for each change, however many addresses were
//! added or removed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, Instant},
};

use crate::telemetry::{EndpointsChange, Event, metrics::EndpointFacts};

/// Maximum number of addresses that an event names.
const NAMED: usize = 5;

/// A file of endpoints, or an endpoint whose name has addresses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct EndpointSource {
    upstream: String,
    is_file: bool,
    /// The path of the file, or the URL of the endpoint.
    name: String,
}

/// The members of a source in its last event.
#[derive(Debug)]
struct ReportedMembers {
    members: BTreeSet<String>,
    /// When the last event was published. `None`: never.
    at: Option<Instant>,
}

/// The addresses of each name and the endpoints of each file, as last published.
#[derive(Debug)]
pub(super) struct EndpointChanges {
    /// Minimum time between two events about the same source. Changes in between are published afterwards, unless they
    /// were reverted.
    pause: Duration,
    reported: HashMap<EndpointSource, ReportedMembers>,
}

impl EndpointChanges {
    pub(super) fn new(pause: Duration) -> Self {
        Self { pause, reported: HashMap::new() }
    }

    /// Takes the current endpoints; returns the events that are due. A new source is not a change.
    pub(super) fn update(&mut self, endpoints: &[EndpointFacts], now: Instant) -> Vec<Event> {
        let mut current: BTreeMap<EndpointSource, BTreeSet<String>> = BTreeMap::new();
        for endpoint in endpoints {
            let source = |is_file, name: &str| EndpointSource {
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
        self.reported.retain(|source, _| current.contains_key(source));
        let mut events = Vec::new();
        for (source, members) in current {
            let Some(reported) = self.reported.get_mut(&source) else {
                self.reported.insert(source, ReportedMembers { members, at: None });
                continue;
            };
            let is_too_soon = reported.at.is_some_and(|at| now.duration_since(at) < self.pause);
            if is_too_soon || reported.members == members {
                continue;
            }
            let added = members.difference(&reported.members);
            events.push(Event::Endpoints(EndpointsChange {
                upstream: source.upstream,
                source: source.name,
                is_file: source.is_file,
                count: members.len(),
                added: added.clone().count(),
                removed: reported.members.difference(&members).count(),
                first_added: added.take(NAMED).cloned().collect(),
            }));
            *reported = ReportedMembers { members, at: Some(now) };
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
        assert_eq!(changes.update(&name(50..99), now + PAUSE), [], "it is as last published");
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
