//! All limited clients, as the admin port reads them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use parking_lot::Mutex;

use super::{
    Client, Limited, Record, address,
    client::Held,
    denial::{Batch, Evidence, Tally},
    evidence::Bounds,
};
use crate::{limit::Policy, telemetry::metrics::Metrics};

/// Addresses held; the one that was denied longest ago goes first.
const ADDRESSES: usize = 10_000;
/// About as much memory; likewise.
const BYTES: usize = 64 << 20;
/// Addresses looked at a sweep.
const SWEEP: usize = 256;
/// How long a worker may sit on a denial before it hands it over, amply.
const IN_FLIGHT: i64 = 2_000_000;

/// Limited clients, by address. Its lock is taken by the collector and by the admin port, never by a worker.
#[derive(Debug)]
pub struct Registry {
    bounds: Vec<Bounds>,
    /// Microseconds.
    retain: i64,
    metrics: Arc<Metrics>,
    held: Mutex<Clients>,
}

#[derive(Debug, Default)]
struct Clients {
    by_address: BTreeMap<IpNet, Held>,
    /// By the last denial.
    by_last: BTreeSet<(i64, IpNet)>,
    bytes: usize,
    /// When an address was forgotten on demand: what workers noted before does not bring it back.
    forgotten: BTreeMap<IpNet, i64>,
    /// Where the next sweep begins.
    swept: Option<IpNet>,
}

impl Registry {
    /// `policies`: those whose indexes denials name. `retain`: how long a client stays after its last denial.
    pub fn new(policies: &[Policy], retain: Duration, metrics: Arc<Metrics>) -> Self {
        let bounds = policies
            .iter()
            .map(|policy| Bounds { keep: policy.record.keep, retain: micros(policy.record.retain) });
        Self { bounds: bounds.collect(), retain: micros(retain), metrics, held: Mutex::default() }
    }

    /// Merges what a worker hands over.
    pub(super) fn record(&self, batch: Batch, now: i64) {
        let mut clients = self.held.lock();
        let mut dropped = 0;
        for (shown, tally) in batch.tallies {
            match address::parse(&shown) {
                Some(address) => clients.add(address, tally, &self.bounds, now),
                None => dropped += tally.denied,
            }
        }
        for evidence in &batch.evidence {
            clients.add_evidence(evidence, &self.bounds, now);
        }
        let evicted = clients.make_room();
        drop(clients);
        if dropped > 0 {
            self.metrics.add_abuse_dropped(dropped);
        }
        if evicted > 0 {
            self.metrics.add_abuse_evicted(evicted);
        }
    }

    /// Forgets some of what has expired. A few calls reach everything.
    pub(super) fn sweep(&self, now: i64) {
        self.held.lock().sweep(&self.bounds, self.retain, now);
    }

    /// All clients that `wanted` lets through, in order of their addresses.
    pub fn clients(&self, now: i64, wanted: impl Fn(&Client) -> bool) -> Vec<Client> {
        let clients = self.held.lock();
        let current = clients.by_address.values().filter(|held| !self.expired(held, now));
        current.map(Held::told).filter(wanted).collect()
    }

    /// One client with its records, newest first, and the limits that held it back.
    pub fn client(&self, address: IpNet, now: i64) -> Option<(Client, Vec<Record>, Vec<Limited>)> {
        let mut clients = self.held.lock();
        let told = clients.change(address, |held| {
            held.expire(&self.bounds, now);
            (!self.expired(held, now)).then(|| (held.told(), held.records(), held.limits()))
        });
        told.flatten()
    }

    /// Forgets a client. Gives the limits that held it back, `None` where it was not known.
    pub fn forget(&self, address: IpNet, now: i64) -> Option<Vec<Limited>> {
        let mut clients = self.held.lock();
        clients.forgotten.insert(address, now);
        let expired = clients.by_address.get(&address).is_none_or(|held| self.expired(held, now));
        let limits = clients.remove(address).map(|held| held.limits());
        limits.filter(|_| !expired)
    }

    fn expired(&self, held: &Held, now: i64) -> bool {
        held.last.saturating_add(self.retain) <= now
    }
}

impl Clients {
    fn add(&mut self, address: IpNet, tally: Tally, bounds: &[Bounds], now: i64) {
        if self.forgotten.get(&address).is_some_and(|&since| tally.last <= since) {
            return;
        }
        if !self.by_address.contains_key(&address) {
            let held = Held::new(address, tally.first);
            self.by_last.insert((held.last, address));
            self.bytes += held.bytes();
            self.by_address.insert(address, held);
        }
        self.change(address, |held| held.add(tally, bounds, now));
    }

    fn add_evidence(&mut self, evidence: &Evidence, bounds: &[Bounds], now: i64) {
        // Evidence of a client that was forgotten meanwhile finds none, and goes.
        if let Some(address) = address::parse(&evidence.address) {
            self.change(address, |held| held.add_evidence(evidence, bounds, now));
        }
    }

    /// Changes one client and keeps the accounts right.
    fn change<T>(&mut self, address: IpNet, change: impl FnOnce(&mut Held) -> T) -> Option<T> {
        let held = self.by_address.get_mut(&address)?;
        let (bytes, last) = (held.bytes(), held.last);
        let result = change(held);
        self.bytes = self.bytes - bytes + held.bytes();
        if held.last != last {
            self.by_last.remove(&(last, address));
            self.by_last.insert((held.last, address));
        }
        Some(result)
    }

    fn remove(&mut self, address: IpNet) -> Option<Held> {
        let held = self.by_address.remove(&address)?;
        self.by_last.remove(&(held.last, address));
        self.bytes -= held.bytes();
        Some(held)
    }

    /// How many had to go.
    fn make_room(&mut self) -> u64 {
        let mut evicted = 0;
        while self.by_address.len() > ADDRESSES || self.bytes > BYTES {
            let Some(&(_, address)) = self.by_last.first() else { break };
            self.remove(address);
            evicted += 1;
        }
        evicted
    }

    fn sweep(&mut self, bounds: &[Bounds], retain: i64, now: i64) {
        for _ in 0..SWEEP {
            match self.by_last.first() {
                Some(&(last, address)) if last.saturating_add(retain) <= now => self.remove(address),
                _ => break,
            };
        }
        let after = match self.swept {
            Some(address) => (std::ops::Bound::Excluded(address), std::ops::Bound::Unbounded),
            None => (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded),
        };
        let next: Vec<_> = self.by_address.range(after).take(SWEEP).map(|(&address, _)| address).collect();
        for &address in &next {
            self.change(address, |held| held.expire(bounds, now));
        }
        // Short of the end goes on there; at the end it begins anew.
        self.swept = next.last().copied().filter(|_| next.len() == SWEEP);
        self.forgotten.retain(|_, since| since.saturating_add(IN_FLIGHT) > now);
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            denial::Limit,
            testing::{entry, policy},
        },
        *,
    };
    use crate::telemetry::testing;

    const SECOND: i64 = 1_000_000;

    fn registry() -> Registry {
        Registry::new(&[policy()], Duration::from_secs(10), Metrics::new(&testing::config(), 1))
    }

    fn batch(address: &str, time: i64) -> Batch {
        let limit = Limit { policy: 0, identifier: address::identifier(address), until: time + SECOND };
        let tally = Tally {
            first: time,
            last: time,
            until: limit.until,
            denied: 1,
            limits: vec![limit],
            records: vec![(0, entry(time, "acme"))],
        };
        Batch { tallies: vec![(address.into(), tally)], evidence: Vec::new() }
    }

    fn listed(registry: &Registry, now: i64) -> Vec<String> {
        registry.clients(now, |_| true).iter().map(|client| client.shown.to_string()).collect()
    }

    #[test]
    fn workers_are_merged() {
        let registry = registry();
        for time in [5, 3, 9] {
            registry.record(batch("203.0.113.7", time), 10);
        }
        let (client, records, limits) = registry.client(address::parse("203.0.113.7").unwrap(), 10).unwrap();
        assert_eq!((client.first, client.last, client.until), (3, 9, 9 + SECOND));
        assert_eq!((client.denied, client.users, client.policies), (3, 1, vec![0]));
        assert_eq!(records.iter().map(|record| record.entry.time).collect::<Vec<_>>(), [9, 5, 3]);
        assert_eq!(limits.len(), 1);
    }

    #[test]
    fn clients_stay_for_as_long_as_they_are_retained() {
        let registry = registry();
        registry.record(batch("203.0.113.7", 0), 0);
        registry.record(batch("203.0.113.8", SECOND), SECOND);
        assert_eq!(listed(&registry, 10 * SECOND - 1), ["203.0.113.7", "203.0.113.8"]);
        assert_eq!(listed(&registry, 10 * SECOND), ["203.0.113.8"]);
        assert_eq!(registry.client(address::parse("203.0.113.7").unwrap(), 10 * SECOND), None);
        registry.sweep(10 * SECOND);
        assert_eq!(registry.held.lock().by_address.len(), 1);
    }

    #[test]
    fn full_means_that_the_one_denied_longest_ago_goes() {
        let registry = registry();
        let name = |n: usize| format!("10.0.{}.{}", n / 256, n % 256);
        for n in 0..ADDRESSES {
            registry.record(batch(&name(n), n as i64), 0);
        }
        registry.record(batch(&name(0), 1_000_000), 0);
        registry.record(batch("203.0.113.7", 0), 0);
        assert_eq!(registry.metrics.abuse_evicted(), 1);
        assert!(!listed(&registry, 0).contains(&"203.0.113.7".to_owned()), "it was denied longest ago");
        registry.record(batch("203.0.113.7", 2_000_000), 0);
        let listed = listed(&registry, 0);
        assert!(listed.contains(&name(0)) && !listed.contains(&name(1)));
        assert_eq!(listed.len(), ADDRESSES);
    }

    #[test]
    fn memory_is_accounted_for() {
        let registry = registry();
        for n in 0..1_000 {
            registry.record(batch(&format!("10.0.0.{}", n % 50), n), 0);
        }
        registry.forget(address::parse("10.0.0.1").unwrap(), 0);
        let clients = registry.held.lock();
        assert_eq!(clients.bytes, clients.by_address.values().map(Held::bytes).sum::<usize>());
        assert_eq!(clients.by_last.len(), clients.by_address.len());
    }

    #[test]
    fn what_was_noted_before_an_unblock_does_not_undo_it() {
        let registry = registry();
        let address = address::parse("203.0.113.7").unwrap();
        registry.record(batch("203.0.113.7", 5), 5);
        assert_eq!(registry.forget(address, 10).map(|limits| limits.len()), Some(1));
        assert_eq!(registry.forget(address, 10), None);
        registry.record(batch("203.0.113.7", 9), 11);
        assert!(listed(&registry, 11).is_empty());
        registry.record(batch("203.0.113.7", 11), 12);
        assert_eq!(listed(&registry, 12), ["203.0.113.7"]);
    }

    #[test]
    fn a_sweep_reaches_every_record() {
        let registry = registry();
        for n in 0..SWEEP * 2 {
            registry.record(batch(&format!("10.0.{}.{}", n / 256, n % 256), 0), 0);
            // Denied again later: the client stays, its first record expires.
            registry.record(batch(&format!("10.0.{}.{}", n / 256, n % 256), 9 * SECOND), 0);
        }
        for _ in 0..3 {
            registry.sweep(5 * SECOND);
        }
        let clients = registry.held.lock();
        assert!(clients.by_address.values().all(|held| held.records().len() == 1));
    }

    #[test]
    fn an_address_that_is_none_is_counted() {
        let registry = registry();
        registry.record(batch("unknown", 1), 1);
        assert_eq!(registry.metrics.abuse_dropped(), 1);
    }
}
