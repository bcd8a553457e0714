//! Clients that got 401 or 403 and were denied nothing so far: their behaviour once they are limited shows the
//! meaning of these responses.

use indexmap::IndexMap;
use ipnet::IpNet;

use super::{Traffic, TrafficHistory};
use crate::memory_budget::heap;

/// Number of clients that are remembered.
const CLIENTS: usize = 4_096;
/// They may take one in this many bytes of the memory of limited clients.
const SHARE: usize = 32;
/// How long a client is remembered after its last response, in microseconds.
const RETAIN: i64 = 600_000_000;
/// Bytes of one suspect.
const BYTES: usize = size_of::<(IpNet, Suspect)>() + 2 * size_of::<usize>();

/// Their traffic by address.
#[derive(Debug)]
pub(in crate::abuse) struct Suspects {
    clients: IndexMap<IpNet, Suspect, foldhash::fast::RandomState>,
    max: usize,
    /// The index of the next one to be removed.
    next: usize,
}

#[derive(Debug, Default)]
struct Suspect {
    traffic: TrafficHistory,
    last: i64,
}

impl Suspects {
    pub(in crate::abuse) fn new(max_bytes: usize) -> Self {
        let mut suspects = Self { clients: IndexMap::default(), max: 0, next: 0 };
        suspects.set_max_bytes(max_bytes);
        suspects
    }

    /// Sets the memory of all limited clients.
    pub(in crate::abuse) fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max = (max_bytes / SHARE / BYTES).min(CLIENTS);
        self.clients.truncate(self.max);
    }

    /// Adds the traffic of a tick, whose last request was received at `time`.
    pub(in crate::abuse) fn add_tick(&mut self, address: IpNet, traffic: &Traffic, time: i64, period: u32) {
        let is_known = self.clients.contains_key(&address);
        // A client that was never refused is only watched because another one shares its slot.
        if self.max == 0 || !is_known && traffic.refused == 0 {
            return;
        }
        if !is_known && self.clients.len() >= self.max {
            self.next = (self.next + 1) % self.clients.len();
            self.clients.swap_remove_index(self.next);
        }
        let suspect = self.clients.entry(address).or_default();
        suspect.traffic.add_tick(traffic, time, period);
        suspect.last = suspect.last.max(time);
    }

    /// Takes the traffic of a client that was denied now.
    pub(in crate::abuse) fn take(&mut self, address: IpNet) -> Option<TrafficHistory> {
        self.clients.swap_remove(&address).map(|suspect| suspect.traffic)
    }

    pub(in crate::abuse) fn expire(&mut self, now: i64) {
        self.clients.retain(|_, suspect| suspect.last.saturating_add(RETAIN) > now);
        if self.clients.is_empty() {
            self.clients.shrink_to_fit();
        }
    }

    pub(in crate::abuse) fn bytes(&self) -> usize {
        let paths = self.clients.values().map(|suspect| suspect.traffic.bytes()).sum::<usize>();
        heap::block(self.clients.capacity() * BYTES) + paths
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::testing::client, *};

    fn refused(refused: u32) -> Traffic {
        Traffic { answered: 1, refused, ..Traffic::default() }
    }

    #[test]
    fn who_was_refused_is_remembered_until_it_is_denied_or_a_while_has_passed() {
        let mut suspects = Suspects::new(usize::MAX);
        suspects.add_tick(client(1), &refused(0), 1, 1);
        suspects.add_tick(client(2), &refused(1), 1, 1);
        suspects.add_tick(client(2), &refused(0), 2, 1);
        suspects.add_tick(client(3), &refused(1), 1, 1);
        assert!(suspects.take(client(1)).is_none());
        let traffic = suspects.take(client(2)).unwrap().total();
        assert_eq!((traffic.answered, traffic.refused), (2, 1));
        suspects.expire(1 + RETAIN);
        assert!(suspects.take(client(3)).is_none());
    }

    #[test]
    fn their_number_and_their_memory_are_bounded() {
        let mut suspects = Suspects::new(usize::MAX);
        (0..3 * CLIENTS).for_each(|n| suspects.add_tick(client(n), &refused(1), 1, 1));
        assert!(suspects.clients.len() == CLIENTS && suspects.bytes() < 3 << 20, "{}", suspects.bytes());
        let mut few = Suspects::new(100 * SHARE * BYTES);
        (0..CLIENTS).for_each(|n| few.add_tick(client(n), &refused(1), 1, 1));
        assert_eq!(few.clients.len(), 100);
        few.set_max_bytes(0);
        few.add_tick(client(1), &refused(1), 1, 1);
        assert_eq!(few.clients.len(), 0);
    }
}
