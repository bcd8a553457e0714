//! All limited clients, as the admin port reads them.

use std::{sync::Arc, time::Duration};

use ipnet::IpNet;
use parking_lot::{Mutex, RwLock};

use super::{
    Client, Limited, Others, Record, Snapshot,
    account::Account,
    address,
    client::Held,
    clients::Clients,
    denial::Batch,
    policies::{Policies, micros},
};
use crate::{limit::Policy, telemetry::metrics::Metrics};

/// Bytes of accounts published at a time, about.
const PUBLISHED: usize = 1 << 20;

/// Limited clients, by address: what this instance knows of each, and what the others know. Its lock is
/// taken by the collector, by whoever publishes, and by the admin port, never by a worker.
#[derive(Debug)]
pub struct Registry {
    in_force: RwLock<InForce>,
    metrics: Arc<Metrics>,
    held: Mutex<Clients>,
}

/// What of the configuration its records go by.
#[derive(Debug, Clone)]
struct InForce {
    policies: Arc<Policies>,
    /// Microseconds.
    retain: i64,
}

/// What the archive is to be told of a client.
#[derive(Debug, Clone)]
pub struct Unpublished {
    pub address: IpNet,
    pub snapshot: Snapshot,
    /// How long it is retained from now.
    pub stays: Duration,
    /// How often the client had changed.
    changes: u64,
}

impl Registry {
    /// `policies`: those whose indexes denials name. `retain`: how long a client stays after its last denial.
    pub fn new(policies: &[Policy], retain: Duration, metrics: Arc<Metrics>) -> Self {
        let in_force = RwLock::new(InForce::new(policies, retain));
        Self { in_force, metrics, held: Mutex::default() }
    }

    /// Goes by another configuration from now on: as [`Registry::new`] with [`Registry::with_names`]. What was noted under
    /// the last one keeps its names.
    pub fn reconfigure(&self, policies: &[Policy], names: &[String], retain: Duration) {
        let policies = Arc::new(Policies::new(policies).with_names(names));
        *self.in_force.write() = InForce { policies, retain: micros(retain) };
    }

    /// Those that are in force.
    pub(super) fn policies(&self) -> Arc<Policies> {
        Arc::clone(&self.in_force.read().policies)
    }

    fn retain(&self) -> i64 {
        self.in_force.read().retain
    }

    /// The same with names of what else denies, whose indexes follow those of the policies.
    #[must_use]
    pub fn with_names(self, names: &[String]) -> Self {
        let Self { in_force, metrics, held } = self;
        let InForce { policies, retain } = in_force.into_inner();
        let policies = Arc::new(Arc::unwrap_or_clone(policies).with_names(names));
        Self { in_force: RwLock::new(InForce { policies, retain }), metrics, held }
    }

    /// Merges what a worker hands over.
    pub(super) fn record(&self, batch: Batch, now: i64) {
        let mut clients = self.held.lock();
        let mut dropped = 0;
        for (shown, tally) in batch.tallies {
            match address::parse(&shown) {
                Some(address) => clients.add(address, tally, &batch.policies, now),
                None => dropped += tally.denied,
            }
        }
        for evidence in &batch.evidence {
            clients.add_evidence(evidence, &batch.policies, now);
        }
        let evicted = clients.make_room();
        drop(clients);
        if dropped > 0 {
            self.metrics.add_abuse_dropped(dropped);
        }
        self.count(evicted);
    }

    /// Forgets some of what has expired. A few calls reach everything.
    pub(super) fn sweep(&self, now: i64) {
        let InForce { policies, retain } = self.in_force.read().clone();
        self.held.lock().sweep(&policies, retain, now);
    }

    /// All clients that `wanted` lets through, in order of their addresses.
    pub fn clients(&self, now: i64, wanted: impl Fn(&Client) -> bool) -> Vec<Client> {
        let retain = self.retain();
        let clients = self.held.lock();
        let current = clients.iter().filter(|(_, held)| !expired(held, retain, now));
        current.map(|(_, held)| held.told()).filter(wanted).collect()
    }

    /// One client with its records, newest first, and the limits that held it back.
    pub fn client(&self, address: IpNet, now: i64) -> Option<(Client, Vec<Record>, Vec<Limited>)> {
        let InForce { policies, retain } = self.in_force.read().clone();
        let mut clients = self.held.lock();
        clients.change(address, |held| held.expire(&policies, now));
        let held = clients.get(address).filter(|held| !expired(held, retain, now))?;
        let (records, limits) = held.evidence(&policies, now);
        Some((held.told(), records, limits))
    }

    /// Forgets a client, and what was noted of it until `since`. Gives the limits that held it back, `None`
    /// where it was not known.
    pub fn forget(&self, address: IpNet, since: i64) -> Option<Vec<Limited>> {
        let InForce { policies, retain } = self.in_force.read().clone();
        let held = self.held.lock().forget(address, since).filter(|held| !expired(held, retain, since))?;
        Some(held.evidence(&policies, since).1)
    }

    /// Clients that have changed since they were published, those that wait longest first: `max` of them,
    /// or fewer where they are large. Each is there again until [`Registry::published`] is told of it.
    pub fn unpublished(&self, now: i64, max: usize) -> Vec<Unpublished> {
        let retain = self.retain();
        let mut room = PUBLISHED;
        let clients = self.held.lock();
        let due = clients.due(now).filter_map(|(address, held)| Some((address, held, held.own()?)));
        let due = due.take(max).take_while(|(_, _, own)| {
            let first = room == PUBLISHED;
            let fits = first || own.bytes() <= room;
            room = room.saturating_sub(own.bytes());
            fits
        });
        let unpublished = due.map(|(address, held, own)| {
            let left = own.last.saturating_add(retain).saturating_sub(now);
            Unpublished {
                address,
                snapshot: Snapshot::of(own),
                stays: Duration::from_micros(left.try_into().unwrap_or(0)),
                changes: held.publication.changes,
            }
        });
        unpublished.collect()
    }

    /// These were published as they were given.
    pub fn published<'a>(&self, given: impl IntoIterator<Item = &'a Unpublished>, now: i64) {
        let mut clients = self.held.lock();
        for Unpublished { address, changes, .. } in given {
            clients.change(*address, |held| held.publication.told(*changes, now));
        }
    }

    /// This was not published, since the client was forgotten elsewhere after its last denial.
    pub fn refused(&self, given: &Unpublished) {
        let mut clients = self.held.lock();
        let same = |held: &Held| held.publication.changes == given.changes;
        // What has come since is published the next time.
        if clients.get(given.address).is_some_and(same) {
            clients.forget(given.address, given.snapshot.last);
        }
    }

    /// Has everything published anew: the archive has lost it.
    pub fn publish_all(&self, now: i64) {
        let mut clients = self.held.lock();
        let own = clients.iter().filter(|(_, held)| held.own().is_some());
        let addresses: Vec<_> = own.map(|(address, _)| address).collect();
        for address in addresses {
            clients.change(address, |held| held.publication.change(now));
        }
    }

    /// Whether a client is not known as it is since this change of the archive.
    pub(super) fn lacks(&self, address: IpNet, change: i64) -> bool {
        self.held.lock().get(address).is_none_or(|held| held.read != Some(change))
    }

    /// Puts what the others know of a client in the place of what they knew, up to the change `read` of the
    /// archive where that is known. `now`: when it was found.
    pub(super) fn replace_others(&self, address: IpNet, found: Others, read: Option<i64>, now: i64) {
        let Others { forgotten, snapshots } = found;
        let shown = address::shown(address);
        let policies = self.policies();
        let accounts = snapshots.into_iter().map(|found| found.into_account(&shown, &policies, now));
        let others = accounts.reduce(|mut all: Account, account| {
            all.merge(&account, &shown, &policies, now);
            all
        });
        let mut clients = self.held.lock();
        let forgotten = forgotten.map(|ago| now.saturating_sub(ago));
        clients.replace_others(address, others, forgotten, read, now);
        let evicted = clients.make_room();
        drop(clients);
        self.count(evicted);
    }

    fn count(&self, evicted: u64) {
        if evicted > 0 {
            self.metrics.add_abuse_evicted(evicted);
        }
    }
}

impl InForce {
    fn new(policies: &[Policy], retain: Duration) -> Self {
        Self { policies: Arc::new(Policies::new(policies)), retain: micros(retain) }
    }
}

fn expired(held: &Held, retain: i64, now: i64) -> bool {
    held.last().saturating_add(retain) <= now
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            clients::{ADDRESSES, SWEEP},
            denial::{Limit, Tally},
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
        Batch {
            tallies: vec![(address.into(), tally)],
            evidence: Vec::new(),
            policies: Arc::new(Policies::new(&[policy()])),
        }
    }

    /// As another instance tells of a client that it denied once.
    fn snapshot(time: i64) -> Snapshot {
        let other = Registry::new(&[policy()], Duration::from_secs(10), Metrics::new(&testing::config(), 1));
        other.record(batch("203.0.113.7", time), time);
        other.unpublished(time, 1).remove(0).snapshot
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
        assert_eq!((client.denied, client.users, client.policies), (3, 1, vec!["per-ip".into()]));
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
        assert_eq!(registry.held.lock().iter().count(), 1);
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
        let found = Others { forgotten: None, snapshots: vec![snapshot(2_000)] };
        for address in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
            registry.replace_others(address::parse(address).unwrap(), found.clone(), Some(1), 0);
        }
        registry.published(&registry.unpublished(10, 20), 10);
        registry.replace_others(address::parse("10.0.0.2").unwrap(), Others::default(), Some(1), 0);
        registry.forget(address::parse("10.0.0.3").unwrap(), 0);
        assert!(registry.held.lock().add_up());
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
        let records = |held: &Held| held.evidence(&registry.policies(), 0).0.len();
        assert!(clients.iter().all(|(_, held)| records(held) == 1));
    }

    #[test]
    fn what_was_noted_under_the_last_configuration_keeps_its_name() {
        let registry = registry();
        let noted = batch("203.0.113.7", 5);
        let other = Policy { name: "other".into(), ..policy() };
        registry.reconfigure(&[other], &[], Duration::from_secs(20));
        registry.record(noted, 6);
        let address = address::parse("203.0.113.7").unwrap();
        let named = |now| registry.client(address, now).map(|(client, ..)| client.policies);
        assert_eq!(named(6), Some(vec![Arc::from("per-ip")]));
        assert!(named(15 * SECOND).is_some(), "it is retained for longer now");
        assert_eq!(named(20 * SECOND + 5), None);
    }

    #[test]
    fn an_address_that_is_none_is_counted() {
        let registry = registry();
        registry.record(batch("unknown", 1), 1);
        assert_eq!(registry.metrics.abuse_dropped(), 1);
    }

    #[test]
    fn what_has_changed_is_published_until_it_was() {
        let registry = registry();
        let unpublished = |now| {
            let unpublished = registry.unpublished(now, 2);
            unpublished.iter().map(|given| given.address.addr().to_string()).collect::<Vec<_>>()
        };
        for (time, address) in ["203.0.113.9", "203.0.113.8", "203.0.113.7"].into_iter().enumerate() {
            registry.record(batch(address, time as i64), time as i64);
        }
        assert_eq!(unpublished(2), ["203.0.113.9", "203.0.113.8"], "who waits longest comes first");
        assert_eq!(unpublished(2), ["203.0.113.9", "203.0.113.8"], "nobody was told");
        let given = registry.unpublished(2, 2);
        assert_eq!(given[0].stays, Duration::from_micros(10_000_000 - 2));
        registry.record(batch("203.0.113.8", 3), 3);
        registry.published(&given, 4);
        assert_eq!(unpublished(5), ["203.0.113.7"]);
        registry.published(&registry.unpublished(5, 2), 5);
        assert_eq!(
            unpublished(5 + SECOND),
            ["203.0.113.8"],
            "it changed meanwhile, and is told a second later"
        );
        registry.published(&registry.unpublished(5 + SECOND, 2), 5 + SECOND);
        assert_eq!(unpublished(9 * SECOND), [""; 0]);
        registry.publish_all(9 * SECOND);
        assert_eq!(unpublished(9 * SECOND).len(), 2);
    }

    #[test]
    fn a_round_is_bounded_in_bytes() {
        let registry = registry();
        for n in 0..100_u32 {
            let mut batch = batch(&format!("10.0.0.{n}"), 1);
            batch.tallies[0].1.records = (0..1_000).map(|user| (0, entry(1, &user.to_string()))).collect();
            registry.record(batch, 1);
        }
        let given = registry.unpublished(1, 256);
        assert!((10..90).contains(&given.len()), "{}", given.len());
    }

    #[test]
    fn what_others_know_is_told_with_what_is_known_here() {
        let registry = registry();
        let address = address::parse("203.0.113.7").unwrap();
        let others = |times: &[i64]| Others {
            forgotten: None,
            snapshots: times.iter().map(|&time| snapshot(time)).collect(),
        };
        assert!(registry.lacks(address, 1));
        registry.replace_others(address, others(&[5, 7]), Some(1), 10);
        assert!(!registry.lacks(address, 1) && registry.lacks(address, 2));
        let denied =
            || registry.client(address, 10).map(|(client, records, _)| (client.denied, records.len()));
        assert_eq!(denied(), Some((2, 2)));
        assert!(registry.unpublished(10, 9).is_empty(), "it is theirs to tell");
        registry.record(batch("203.0.113.7", 6), 10);
        assert_eq!(denied(), Some((3, 3)));
        registry.replace_others(address, others(&[5, 7]), Some(1), 10);
        assert_eq!(denied(), Some((3, 3)), "read twice");
        assert_eq!(registry.unpublished(10, 9)[0].snapshot.denied, 1, "each tells its own alone");
        registry.replace_others(address, Others::default(), Some(2), 10);
        assert_eq!(denied(), Some((1, 1)), "what they have no more, goes");
    }

    #[test]
    fn an_unblock_elsewhere_voids_what_was_denied_before() {
        let registry = registry();
        let address = address::parse("203.0.113.7").unwrap();
        registry.record(batch("203.0.113.7", 5), 10);
        let forgotten = |ago| Others { forgotten: Some(ago), ..Others::default() };
        let theirs = Others { snapshots: vec![snapshot(7)], ..forgotten(6) };
        registry.replace_others(address, theirs.clone(), Some(1), 10);
        assert_eq!(registry.client(address, 10).unwrap().0.denied, 2);
        registry.replace_others(address, Others { forgotten: Some(4), ..theirs }, Some(2), 10);
        assert_eq!(registry.client(address, 10).unwrap().0.denied, 1);
        registry.replace_others(address, forgotten(2), Some(3), 10);
        assert_eq!(registry.client(address, 10), None);
        assert!(registry.unpublished(10, 9).is_empty());
        registry.record(batch("203.0.113.7", 8), 11);
        assert!(listed(&registry, 11).is_empty(), "noted before, handed over after");
        registry.record(batch("203.0.113.7", 9), 11);
        assert_eq!(listed(&registry, 11), ["203.0.113.7"]);

        let given = registry.unpublished(11, 9).remove(0);
        registry.record(batch("203.0.113.7", 10), 11);
        registry.refused(&given);
        assert_eq!(listed(&registry, 11), ["203.0.113.7"], "it was denied again meanwhile");
        registry.refused(&registry.unpublished(11, 9)[0]);
        assert!(listed(&registry, 11).is_empty());
    }
}
