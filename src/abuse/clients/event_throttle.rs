//! Tells whoever listens which clients are limited. Floods are many denials a client, or many clients: neither may
//! drown everything else that happens.

use std::collections::HashMap;

use ipnet::IpNet;

use super::Client;
use crate::telemetry::{Event, Events};

/// Microseconds between two times that a client is told of.
const INTERVAL: i64 = 1_000_000;
/// Clients that are told of in that time.
const CLIENTS: usize = 200;

/// Belongs to the collector.
#[derive(Debug, Default)]
pub(super) struct Herald {
    events: Option<Events>,
    /// When each was told of in the last interval.
    told: HashMap<IpNet, i64, foldhash::fast::RandomState>,
    /// When what is over was looked for.
    tidied: i64,
}

impl Herald {
    pub(super) fn new(events: Events) -> Self {
        Self { events: Some(events), ..Self::default() }
    }

    /// Whether a client that is denied now is to be told of, which counts as if it were.
    pub(super) fn wants(&mut self, address: IpNet, now: i64) -> bool {
        if !self.events.as_ref().is_some_and(Events::has_subscribers) {
            return false;
        }
        let is_over = |at: i64| at.saturating_add(INTERVAL) <= now || now < at;
        if let Some(at) = self.told.get_mut(&address) {
            let wants = is_over(*at);
            *at = if wants { now } else { *at };
            return wants;
        }
        // Not at each of those that find no room.
        if self.told.len() >= CLIENTS
            && (self.tidied.saturating_add(INTERVAL / 10) <= now || now < self.tidied)
        {
            self.tidied = now;
            self.told.retain(|_, at| !is_over(*at));
        }
        let wants = self.told.len() < CLIENTS;
        if wants {
            self.told.insert(address, now);
        }
        wants
    }

    pub(super) fn tell(&self, client: Client) {
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
    fn a_client_is_told_of_once_a_second_where_somebody_listens() {
        let events = Events::new();
        let mut herald = Herald::new(events.clone());
        assert!(!herald.wants(client(1), 0), "nobody listens");
        let _listener = events.subscribe();
        assert!(herald.wants(client(1), 1) && !herald.wants(client(1), INTERVAL));
        assert!(herald.wants(client(2), INTERVAL) && herald.wants(client(1), INTERVAL + 1));
        assert!(!herald.wants(client(1), INTERVAL + 2));
    }

    #[test]
    fn of_many_clients_a_bounded_number_is_told_of_a_second() {
        let events = Events::new();
        let _listener = events.subscribe();
        let mut herald = Herald::new(events);
        let told = |herald: &mut Herald, from: usize, now| {
            (from..from + 1_000).filter(|&n| herald.wants(client(n), now)).count()
        };
        assert_eq!(told(&mut herald, 0, 5), CLIENTS);
        assert_eq!(told(&mut herald, 1_000, INTERVAL / 2), 0);
        assert_eq!(told(&mut herald, 2_000, INTERVAL + 5), CLIENTS);
    }
}
