//! Publishes events about limited clients, at a bounded rate: a flood of denials of one client, or of many clients,
//! must not crowd out other events.

use std::collections::HashMap;

use ipnet::IpNet;

use super::LimitedClient;
use crate::telemetry::{Event, Events};

/// Microseconds between two events of one client.
const INTERVAL: i64 = 1_000_000;
/// Number of clients with an event within that interval.
const CLIENTS: usize = 200;

/// Owned by the collector.
#[derive(Debug, Default)]
pub(super) struct EventThrottle {
    events: Option<Events>,
    /// When each client had its last event, within the last interval.
    last_sent: HashMap<IpNet, i64, foldhash::fast::RandomState>,
    /// When expired entries were last removed.
    last_pruned: i64,
}

impl EventThrottle {
    pub(super) fn new(events: Events) -> Self {
        Self { events: Some(events), ..Self::default() }
    }

    /// Whether to send an event for a client that is denied now. True counts as sent.
    pub(super) fn admits(&mut self, address: IpNet, now: i64) -> bool {
        if !self.events.as_ref().is_some_and(Events::has_subscribers) {
            return false;
        }
        let is_over = |at: i64| at.saturating_add(INTERVAL) <= now || now < at;
        if let Some(at) = self.last_sent.get_mut(&address) {
            let admits = is_over(*at);
            *at = if admits { now } else { *at };
            return admits;
        }
        // Do not prune on every denial while it is full.
        if self.last_sent.len() >= CLIENTS
            && (self.last_pruned.saturating_add(INTERVAL / 10) <= now || now < self.last_pruned)
        {
            self.last_pruned = now;
            self.last_sent.retain(|_, at| !is_over(*at));
        }
        let admits = self.last_sent.len() < CLIENTS;
        if admits {
            self.last_sent.insert(address, now);
        }
        admits
    }

    pub(super) fn send(&self, client: LimitedClient) {
        let Some(events) = &self.events else { return };
        events.publish(|| Event::Limited {
            address: client.shown.into(),
            policies: client.policies.iter().map(ToString::to_string).collect(),
            denied: client.denied,
            distinct_users: usize::try_from(client.users).unwrap_or(usize::MAX),
            until: client.until,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::address, *};

    fn client(n: usize) -> IpNet {
        address::parse(&format!("10.0.{}.{}", n / 256, n % 256)).unwrap()
    }

    #[test]
    fn a_client_has_one_event_a_second_where_there_are_subscribers() {
        let events = Events::new();
        let mut event_throttle = EventThrottle::new(events.clone());
        assert!(!event_throttle.admits(client(1), 0), "no subscribers");
        let _listener = events.subscribe();
        assert!(event_throttle.admits(client(1), 1) && !event_throttle.admits(client(1), INTERVAL));
        assert!(event_throttle.admits(client(2), INTERVAL) && event_throttle.admits(client(1), INTERVAL + 1));
        assert!(!event_throttle.admits(client(1), INTERVAL + 2));
    }

    #[test]
    fn events_a_second_are_bounded() {
        let events = Events::new();
        let _listener = events.subscribe();
        let mut event_throttle = EventThrottle::new(events);
        let admitted = |event_throttle: &mut EventThrottle, from: usize, now| {
            (from..from + 1_000).filter(|&n| event_throttle.admits(client(n), now)).count()
        };
        assert_eq!(admitted(&mut event_throttle, 0, 5), CLIENTS);
        assert_eq!(admitted(&mut event_throttle, 1_000, INTERVAL / 2), 0);
        assert_eq!(admitted(&mut event_throttle, 2_000, INTERVAL + 5), CLIENTS);
    }
}
