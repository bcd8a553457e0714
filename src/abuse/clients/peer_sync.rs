//! The registry's exchange with other instances: the records it sends, and the records it gets.

use ipnet::IpNet;

use super::{
    super::address, ClientRegistry, PeerView, SharedClient, SharedUnblock, Unblock, entry::ClientEntry,
    history::DenialHistory, publication::PublishedCounts, registry::CHUNK, sort_index::Sort,
    user_addresses::PendingUpdate,
};

/// Approximate bytes of histories that are published per round.
const MAX_ROUND_BYTES: usize = 1 << 20;
/// Clients that instances share: the ones denied most recently. An instance may hold more itself.
pub const SHARED_CLIENTS: usize = 100_000;

/// Microseconds by which one time may differ when it is read via another clock.
const MAX_CLOCK_DRIFT: u64 = 1_000_000;

/// A client's records to be published.
#[derive(Debug, Clone)]
pub struct PendingClient {
    pub address: IpNet,
    pub(super) history: DenialHistory,
    /// The last unblock that this instance knows of.
    pub unblocked: Option<Unblock>,
    /// Hashes of users that are not published yet, and the time slice in which they were seen.
    pub users: Vec<u64>,
    pub slice: u32,
    /// The client's number of changes until then.
    changes: u64,
    /// The counts that the archive may have already.
    pub(super) published: Option<Box<PublishedCounts>>,
}

impl ClientRegistry {
    /// At most `max` addresses of users to be published. Each is returned again until
    /// [`ClientRegistry::ack_user_addresses`].
    pub fn pending_user_addresses(&self, max: usize) -> Vec<PendingUpdate> {
        self.user_addresses.lock().pending(max)
    }

    /// Acknowledges that these were published, in this incarnation of the user.
    pub fn ack_user_addresses(&self, given: &[PendingUpdate], incarnation: u32) {
        self.user_addresses.lock().ack(given, incarnation);
    }

    /// Whether anything is to be published, due or not.
    pub fn has_unpublished(&self) -> bool {
        !self.pending_clients(i64::MAX, 1).is_empty() || !self.pending_user_addresses(1).is_empty()
    }

    /// Clients that have changed since they were published and are due at `due`, the longest waiting first: at most
    /// `max`, or fewer if they are large. Each is returned again until [`ClientRegistry::ack_client`].
    pub fn pending_clients(&self, due: i64, max: usize) -> Vec<PendingClient> {
        let mut bytes_left = MAX_ROUND_BYTES;
        let clients = self.clients.lock();
        let due = clients.due(due).filter_map(|(address, entry)| Some((address, entry, entry.own()?)));
        let due = due.take(max).take_while(|(_, _, own)| {
            let first = bytes_left == MAX_ROUND_BYTES;
            let fits = first || own.bytes() <= bytes_left;
            bytes_left = bytes_left.saturating_sub(own.bytes());
            fits
        });
        let pending = due.filter_map(|(address, entry, own)| {
            let publication = entry.publication.as_ref()?;
            let (slice, users) = publication.users.next();
            Some(PendingClient {
                address,
                history: own.clone(),
                unblocked: entry.unblocked().cloned(),
                users,
                slice,
                changes: publication.changes,
                published: publication.published.clone(),
            })
        });
        pending.collect()
    }

    /// Acknowledges that these records were published, in this incarnation of the client.
    pub fn ack_client(&self, given: &PendingClient, incarnation: u32, now: i64) {
        let PendingClient { address, history, changes, users, .. } = given;
        let (denied, traffic) = (history.denied, history.traffic.clone().without_people());
        let published = PublishedCounts { incarnation, denied, traffic };
        self.clients.lock().change(*address, |entry| {
            entry.publication.as_mut().map(|publication| publication.ack(*changes, users, published, now))
        });
    }

    /// Applies an unblock found in the archive when this was published, in case this instance missed it.
    pub fn note_unblock(&self, given: &PendingClient, unblocked: &Unblock, now: i64) {
        let is_known = |known: &Unblock| known.time.abs_diff(unblocked.time) < MAX_CLOCK_DRIFT;
        if !given.unblocked.as_ref().is_some_and(is_known) {
            self.clients.lock().unblock(given.address, unblocked.clone(), now);
        }
    }

    /// Publishes everything again, up to [`SHARED_CLIENTS`], because the archive has lost it.
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

    /// Replaces the other instances' records of a client. `read`: the archive's change at which they were read, if
    /// known. `now`: just before they were read.
    pub(super) fn replace_peer_view(&self, address: IpNet, found: PeerView, read: Option<i64>, now: i64) {
        let PeerView { client, instance, now: read_at } = found;
        let address_text = address::shown(address);
        let settings = self.settings.read().clone();
        let policies = &settings.policies;
        let mut others = client.counts.denied.of_others(instance).map(|denied| {
            let mut others = client.history(&address_text, &settings, now);
            others.denied = denied;
            others.traffic = client.counts.traffic.of_others(instance).unwrap_or_default();
            others.traffic.advance(policies.period(now));
            others.traffic.set_people(client.people_of_others(instance, policies.period(now)));
            others
        });
        // All instances have seen these users, this one among them.
        let users = others.as_ref().map_or(0, |_| client.counts.users.len());
        if others.is_some() {
            self.watched.add(address.addr());
        }
        let SharedClient { counts, incarnation, .. } = client;
        let unblocked =
            counts.unblocked.map(|SharedUnblock { unblock: Unblock { time, by }, denied_since }| {
                // Each instance has its own clock.
                let time = now.saturating_sub(read_at.saturating_sub(time).max(0));
                if let Some(others) = &mut others {
                    others.last =
                        if denied_since { others.last.max(time + 1) } else { others.last.min(time) };
                }
                Unblock { time, by }
            });
        let is_summed_up = counts.denied.is_summed_up(instance);
        let mut clients = self.clients.lock();
        let published = |entry: &ClientEntry| entry.publication.as_ref()?.published.clone();
        let published = clients.get(address).filter(|_| is_summed_up).and_then(published);
        if let (Some(others), Some(published)) = (&mut others, published)
            && incarnation == published.incarnation
        {
            others.denied = others.denied.saturating_sub(published.denied);
            others.traffic.subtract(&published.traffic);
        }
        clients.replace_peer_view(address, others, unblocked, read, now);
        clients.change(address, |entry| entry.count_users(users, policies.slice(now)));
        let evicted = self.evict_excess(&mut clients);
        drop(clients);
        self.count_evicted(evicted);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::testing::{SECOND, denied_once, entry, registry},
        *,
    };

    /// A client that another instance denied at these times.
    fn others(times: &[i64]) -> PeerView {
        let (other, address) = (registry(), address::parse("203.0.113.7").unwrap());
        times.iter().for_each(|&time| other.record(denied_once("203.0.113.7", time), time));
        let pending = other.pending_clients(times[0], 1).remove(0);
        let (client, _) =
            other.merge_shared(address, SharedClient::default(), Some((&pending, 2)), times[0], 0);
        PeerView { client, instance: 1, now: times[0] }
    }

    fn ack(registry: &ClientRegistry, given: &[PendingClient], now: i64) {
        given.iter().for_each(|given| registry.ack_client(given, 1, now));
    }

    #[test]
    fn memory_accounting_adds_up() {
        let registry = registry();
        for n in 0..1_000 {
            registry.record(denied_once(&format!("10.0.0.{}", n % 50), n), 0);
        }
        let unblock = || Unblock { time: 0, by: "operator at 127.0.0.1".into() };
        registry.unblock(address::parse("10.0.0.1").unwrap(), unblock(), 0);
        let found = others(&[2_000]);
        for address in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
            registry.replace_peer_view(address::parse(address).unwrap(), found.clone(), Some(1), 0);
        }
        ack(&registry, &registry.pending_clients(10, 20), 10);
        registry.replace_peer_view(address::parse("10.0.0.2").unwrap(), PeerView::default(), Some(1), 0);
        registry.unblock(address::parse("10.0.0.3").unwrap(), unblock(), 0);
        assert!(registry.clients.lock().add_up());
    }

    #[test]
    fn a_changed_client_is_pending_until_acknowledged() {
        let registry = registry();
        let pending = |now| {
            let pending = registry.pending_clients(now, 2);
            pending.iter().map(|given| given.address.addr().to_string()).collect::<Vec<_>>()
        };
        for (time, address) in ["203.0.113.9", "203.0.113.8", "203.0.113.7"].into_iter().enumerate() {
            registry.record(denied_once(address, time as i64), time as i64);
        }
        assert_eq!(pending(2), ["203.0.113.9", "203.0.113.8"], "the longest waiting comes first");
        assert_eq!(pending(2), ["203.0.113.9", "203.0.113.8"], "not acknowledged yet");
        let given = registry.pending_clients(2, 2);
        registry.record(denied_once("203.0.113.8", 3), 3);
        ack(&registry, &given, 4);
        assert_eq!(pending(5), ["203.0.113.7"]);
        ack(&registry, &registry.pending_clients(5, 2), 5);
        assert_eq!(
            pending(5 + SECOND),
            ["203.0.113.8"],
            "it changed meanwhile, and is published a second later"
        );
        ack(&registry, &registry.pending_clients(5 + SECOND, 2), 5 + SECOND);
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
        let given = registry.pending_clients(1, 512);
        assert!((10..390).contains(&given.len()), "{}", given.len());
    }

    #[test]
    fn peers_views_and_own_records_are_combined() {
        let registry = registry();
        let address = address::parse("203.0.113.7").unwrap();
        assert!(registry.is_outdated(address, 1));
        registry.replace_peer_view(address, others(&[5, 7]), Some(1), 10);
        assert!(!registry.is_outdated(address, 1) && registry.is_outdated(address, 2));
        let denied = || registry.find(address, 10).map(|(client, records, _)| (client.denied, records.len()));
        assert_eq!(denied(), Some((2, 2)));
        assert!(registry.pending_clients(10, 9).is_empty(), "the others publish it");
        registry.record(denied_once("203.0.113.7", 6), 10);
        assert_eq!(denied(), Some((3, 3)));
        registry.replace_peer_view(address, others(&[5, 7]), Some(1), 10);
        assert_eq!(denied(), Some((3, 3)), "read twice");
        assert_eq!(registry.pending_clients(10, 9)[0].history.denied, 1, "each publishes its own alone");
        registry.replace_peer_view(address, PeerView::default(), Some(2), 10);
        assert_eq!(denied(), Some((1, 1)), "what they no longer have is removed");
    }

    #[test]
    fn an_unblock_elsewhere_ends_limits_and_keeps_the_evidence() {
        let registry = registry();
        let address = address::parse("203.0.113.7").unwrap();
        let mut denied = denied_once("203.0.113.7", 5);
        denied.tallies[0].1.until = 65;
        registry.record(denied, 10);
        let unblocked = |ago, denied_since| {
            let mut found = others(&[7]);
            // By a clock that is ahead.
            (found.client.counts.last, found.client.counts.until) = (40, 40);
            let unblock = Unblock { time: found.now - ago, by: "ann".into() };
            found.client.counts.unblocked = Some(SharedUnblock { unblock, denied_since });
            found
        };
        let found = || {
            let (client, records, _) = registry.find(address, 10).unwrap();
            (client.last, client.until, records.len(), client.unblocked.map(|unblocked| unblocked.time))
        };
        registry.replace_peer_view(address, unblocked(6, true), Some(1), 10);
        assert_eq!(found(), (40, 65, 2, Some(4)), "both were denied since");
        registry.replace_peer_view(address, unblocked(4, true), Some(2), 10);
        assert_eq!(found(), (40, 40, 2, Some(6)), "the others were denied since");
        registry.replace_peer_view(address, unblocked(2, false), Some(3), 10);
        assert_eq!(found(), (8, 8, 2, Some(8)));
        assert!(registry.clients.lock().add_up());
    }

    #[test]
    fn an_instance_that_did_not_hear_of_an_unblock_learns_of_it_when_it_publishes() {
        let registry = registry();
        let address = address::parse("203.0.113.7").unwrap();
        let mut denied = denied_once("203.0.113.7", 5);
        denied.tallies[0].1.until = 65;
        registry.record(denied, 5);
        let given = registry.pending_clients(6, 1).remove(0);
        let unblock = Unblock { time: 6, by: "ann".into() };
        let mut shared = SharedClient::default();
        shared.counts.unblocked = Some(SharedUnblock { unblock: unblock.shifted(100), denied_since: false });
        let (merged, _) = registry.merge_shared(address, shared, Some((&given, 7)), 6, 100);
        assert_eq!((merged.counts.until, merged.evidence.records.len()), (6, 1));
        assert!(!merged.counts.unblocked.unwrap().denied_since);
        registry.note_unblock(&given, &unblock, 7);
        let until = || registry.find(address, 7).unwrap().0.until;
        assert_eq!(until(), 6);

        registry.record(denied_once("203.0.113.7", 9), 9);
        let given = registry.pending_clients(9 + SECOND, 1).remove(0);
        let (lost, _) = registry.merge_shared(address, SharedClient::default(), Some((&given, 7)), 9, 100);
        let expected = SharedUnblock { unblock: unblock.shifted(100), denied_since: true };
        assert_eq!(lost.counts.unblocked, Some(expected), "the archive has lost it");
    }
}
