//! What the registry sends to other instances, and what they hold of its clients.

use ipnet::IpNet;

use super::{
    super::address,
    ClientRegistry, ClientSnapshot, PeerView,
    entry::ClientEntry,
    registry::{CHUNK, Settings},
    sort_index::Sort,
    user_addresses::PendingUpdate,
};

/// About how many bytes of histories are published in one round.
const MAX_ROUND_BYTES: usize = 1 << 20;
/// Clients that instances share: those denied most recently. An instance may hold more itself.
pub const SHARED_CLIENTS: usize = 100_000;

/// A client's snapshot that is to be published.
#[derive(Debug, Clone)]
pub struct PendingSnapshot {
    pub address: IpNet,
    pub snapshot: ClientSnapshot,
    /// Hashes of users who are not published yet, and the slice of time in which they were seen.
    pub users: Vec<u64>,
    pub slice: u32,
    /// The client's number of changes when this was taken.
    changes: u64,
}

impl ClientRegistry {
    /// At most `max` addresses of users that are to be published. Each is returned again until
    /// [`ClientRegistry::ack_user_addresses`].
    pub fn pending_user_addresses(&self, max: usize) -> Vec<PendingUpdate> {
        self.user_addresses.lock().pending(max)
    }

    /// These were published.
    pub fn ack_user_addresses(&self, given: &[PendingUpdate]) {
        self.user_addresses.lock().ack(given);
    }

    /// Clients that have changed since they were published, the longest waiting first: at most `max`, or fewer where
    /// they are large. Each is returned again until [`ClientRegistry::ack_snapshots`].
    pub fn pending_snapshots(&self, now: i64, max: usize) -> Vec<PendingSnapshot> {
        let policies = self.policies();
        let mut bytes_left = MAX_ROUND_BYTES;
        let clients = self.clients.lock();
        let due = clients.due(now).filter_map(|(address, entry)| Some((address, entry, entry.own()?)));
        let due = due.take(max).take_while(|(_, _, own)| {
            let first = bytes_left == MAX_ROUND_BYTES;
            let fits = first || own.bytes() <= bytes_left;
            bytes_left = bytes_left.saturating_sub(own.bytes());
            fits
        });
        let pending = due.filter_map(|(address, entry, own)| {
            let publication = entry.publication.as_ref()?;
            let (slice, users) = publication.users.next();
            Some(PendingSnapshot {
                address,
                snapshot: ClientSnapshot::from_history(own, &policies),
                users,
                slice,
                changes: publication.changes,
            })
        });
        pending.collect()
    }

    /// These were published as they were returned.
    pub fn ack_snapshots<'a>(&self, given: impl IntoIterator<Item = &'a PendingSnapshot>, now: i64) {
        let mut clients = self.clients.lock();
        for PendingSnapshot { address, changes, users, .. } in given {
            clients.change(*address, |entry| {
                entry.publication.as_mut().map(|publication| publication.ack(*changes, users, now))
            });
        }
    }

    /// This was not published: the client was unblocked elsewhere after its last denial.
    pub fn reject_snapshot(&self, given: &PendingSnapshot) {
        let mut clients = self.clients.lock();
        let changes = |entry: &ClientEntry| entry.publication.as_ref().map(|publication| publication.changes);
        // What has come since is published the next time.
        if clients.get(given.address).and_then(changes) == Some(given.changes) {
            clients.forget(given.address, given.snapshot.last);
        }
    }

    /// Publishes everything again, up to [`SHARED_CLIENTS`]: the archive has lost it.
    pub fn republish_all(&self, now: i64) {
        self.user_addresses.lock().resend_all();
        let (mut at, mut rest) = (None, SHARED_CLIENTS);
        while rest > 0 {
            let mut clients = self.clients.lock();
            let positions: Vec<_> = clients.orders().after(Sort::Last, at).take(CHUNK.min(rest)).collect();
            for position in &positions {
                clients.change(position.address(), |entry| {
                    let is_own = entry.own().is_some();
                    entry.publication.as_mut().filter(|_| is_own).map(|publication| publication.change(now))
                });
            }
            rest -= positions.len();
            at = match positions.last() {
                Some(&last) => Some(last),
                None => return,
            };
        }
    }

    /// Whether this change of a client in the archive has not been read yet.
    pub(super) fn is_outdated(&self, address: IpNet, change: i64) -> bool {
        let clients = self.clients.lock();
        let read = |entry: &ClientEntry| entry.publication.as_ref()?.read;
        clients.get(address).and_then(read) != Some(change)
    }

    /// Replaces what the other instances know of a client. `read`: the archive's change that it was read at, where
    /// known. `now`: when it was read.
    pub(super) fn replace_peer_view(&self, address: IpNet, found: PeerView, read: Option<i64>, now: i64) {
        let PeerView { forgotten, snapshot, users } = found;
        let address_text = address::shown(address);
        let Settings { policies, names, .. } = self.settings.read().clone();
        let others = snapshot.map(|found| found.into_history(&address_text, &policies, &names, now));
        let forgotten = forgotten.map(|ago| now.saturating_sub(ago));
        let mut clients = self.clients.lock();
        clients.replace_peer_view(address, others, forgotten, read, now);
        clients.change(address, |entry| entry.count_users(users, policies.slice(now)));
        let evicted = self.evict_excess(&mut clients);
        drop(clients);
        self.count_evicted(evicted);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::testing::{SECOND, denied_once, entry, listed, registry},
        *,
    };

    /// What another instance knows of a client that it denied at these times.
    fn snapshot(times: &[i64]) -> ClientSnapshot {
        let other = registry();
        times.iter().for_each(|&time| other.record(denied_once("203.0.113.7", time), time));
        other.pending_snapshots(times[0], 1).remove(0).snapshot
    }

    #[test]
    fn memory_accounting_adds_up() {
        let registry = registry();
        for n in 0..1_000 {
            registry.record(denied_once(&format!("10.0.0.{}", n % 50), n), 0);
        }
        registry.forget(address::parse("10.0.0.1").unwrap(), 0);
        let found = PeerView { snapshot: Some(snapshot(&[2_000])), users: 7, forgotten: None };
        for address in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
            registry.replace_peer_view(address::parse(address).unwrap(), found.clone(), Some(1), 0);
        }
        registry.ack_snapshots(&registry.pending_snapshots(10, 20), 10);
        registry.replace_peer_view(address::parse("10.0.0.2").unwrap(), PeerView::default(), Some(1), 0);
        registry.forget(address::parse("10.0.0.3").unwrap(), 0);
        assert!(registry.clients.lock().add_up());
    }

    #[test]
    fn a_changed_client_is_pending_until_acknowledged() {
        let registry = registry();
        let pending = |now| {
            let pending = registry.pending_snapshots(now, 2);
            pending.iter().map(|given| given.address.addr().to_string()).collect::<Vec<_>>()
        };
        for (time, address) in ["203.0.113.9", "203.0.113.8", "203.0.113.7"].into_iter().enumerate() {
            registry.record(denied_once(address, time as i64), time as i64);
        }
        assert_eq!(pending(2), ["203.0.113.9", "203.0.113.8"], "the longest waiting comes first");
        assert_eq!(pending(2), ["203.0.113.9", "203.0.113.8"], "not acknowledged yet");
        let given = registry.pending_snapshots(2, 2);
        registry.record(denied_once("203.0.113.8", 3), 3);
        registry.ack_snapshots(&given, 4);
        assert_eq!(pending(5), ["203.0.113.7"]);
        registry.ack_snapshots(&registry.pending_snapshots(5, 2), 5);
        assert_eq!(
            pending(5 + SECOND),
            ["203.0.113.8"],
            "it changed meanwhile, and is published a second later"
        );
        registry.ack_snapshots(&registry.pending_snapshots(5 + SECOND, 2), 5 + SECOND);
        assert_eq!(pending(9 * SECOND), [""; 0]);
        registry.republish_all(9 * SECOND);
        assert_eq!(pending(9 * SECOND).len(), 2);
    }

    #[test]
    fn a_round_is_bounded_in_bytes() {
        let registry = registry();
        for n in 0..400_u32 {
            let mut batch = denied_once(&format!("10.0.{}.{}", n / 256, n % 256), 1);
            batch.tallies[0].1.records = (0..1_000).map(|user| (0, entry(1, &user.to_string()))).collect();
            registry.record(batch, 1);
        }
        let given = registry.pending_snapshots(1, 512);
        assert!((10..390).contains(&given.len()), "{}", given.len());
    }

    #[test]
    fn peers_views_and_own_records_are_combined() {
        let registry = registry();
        let address = address::parse("203.0.113.7").unwrap();
        let others = |times: &[i64]| PeerView { forgotten: None, snapshot: Some(snapshot(times)), users: 0 };
        assert!(registry.is_outdated(address, 1));
        registry.replace_peer_view(address, others(&[5, 7]), Some(1), 10);
        assert!(!registry.is_outdated(address, 1) && registry.is_outdated(address, 2));
        let denied = || registry.find(address, 10).map(|(client, records, _)| (client.denied, records.len()));
        assert_eq!(denied(), Some((2, 2)));
        assert!(registry.pending_snapshots(10, 9).is_empty(), "the others publish it");
        registry.record(denied_once("203.0.113.7", 6), 10);
        assert_eq!(denied(), Some((3, 3)));
        registry.replace_peer_view(address, others(&[5, 7]), Some(1), 10);
        assert_eq!(denied(), Some((3, 3)), "read twice");
        assert_eq!(registry.pending_snapshots(10, 9)[0].snapshot.denied, 1, "each publishes its own alone");
        registry.replace_peer_view(address, PeerView::default(), Some(2), 10);
        assert_eq!(denied(), Some((1, 1)), "what they no longer have is removed");
    }

    #[test]
    fn an_unblock_elsewhere_voids_what_was_denied_before() {
        let registry = registry();
        let address = address::parse("203.0.113.7").unwrap();
        registry.record(denied_once("203.0.113.7", 5), 10);
        let forgotten = |ago| PeerView { forgotten: Some(ago), ..PeerView::default() };
        let theirs = PeerView { snapshot: Some(snapshot(&[7])), ..forgotten(6) };
        registry.replace_peer_view(address, theirs.clone(), Some(1), 10);
        assert_eq!(registry.find(address, 10).unwrap().0.denied, 2);
        registry.replace_peer_view(address, PeerView { forgotten: Some(4), ..theirs }, Some(2), 10);
        assert_eq!(registry.find(address, 10).unwrap().0.denied, 1);
        registry.replace_peer_view(address, forgotten(2), Some(3), 10);
        assert_eq!(registry.find(address, 10), None);
        assert!(registry.pending_snapshots(10, 9).is_empty());
        registry.record(denied_once("203.0.113.7", 8), 11);
        assert!(listed(&registry, 11).is_empty(), "denied before, handed over after");
        registry.record(denied_once("203.0.113.7", 9), 11);
        assert_eq!(listed(&registry, 11), ["203.0.113.7"]);

        let given = registry.pending_snapshots(11, 9).remove(0);
        registry.record(denied_once("203.0.113.7", 10), 11);
        registry.reject_snapshot(&given);
        assert_eq!(listed(&registry, 11), ["203.0.113.7"], "it was denied again meanwhile");
        registry.reject_snapshot(&registry.pending_snapshots(11, 9)[0]);
        assert!(listed(&registry, 11).is_empty());
    }
}
