//! The copy of a client that all instances share.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{
    super::address, ClientRegistry, ClientSnapshot, DeniedCounts, PendingSnapshot, TrafficCounts, Unblock,
    UserSample, distinct_users::oldest_slice, history::DenialHistory, registry::RecordSettings,
};

/// The copy of a client that instances share. Each merges its records into it; merging them twice makes no
/// difference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharedClient {
    /// The records of all instances. Its traffic and its numbers of denials and of users are not used.
    pub snapshot: ClientSnapshot,
    pub denied: DeniedCounts,
    pub traffic: TrafficCounts,
    pub users: UserSample,
    pub unblocked: Option<SharedUnblock>,
    /// Distinguishes this copy from a lost one, whose records have to be published again. 0 if an instance of an
    /// earlier version wrote it.
    pub incarnation: u32,
}

/// The last unblock of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedUnblock {
    /// By the archive's own clock.
    pub unblock: Unblock,
    /// Whether the client was denied again since. Times alone do not tell, because each instance's denials have its
    /// own clock.
    pub denied_since: bool,
}

/// A shared client to be stored, and its expiry. Times are microseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedClient {
    pub client: SharedClient,
    /// When the first of its records has to be removed.
    pub evidence_ends: Option<i64>,
    /// When it is no longer listed.
    pub ends: i64,
}

impl SharedClient {
    /// The records of all other instances; request records may include this one's. `None` if there are none.
    pub fn of_others(mut self, instance: u32) -> Option<ClientSnapshot> {
        self.snapshot.denied = self.denied.of_others(instance)?;
        self.snapshot.traffic = self.traffic.of_others(instance).unwrap_or_default();
        self.snapshot.users = 0;
        Some(self.snapshot)
    }
}

/// The incarnation of the copy `stored`. `is_known`: whether there is a copy. `published`: the incarnation in which
/// this instance last published.
pub fn incarnation(stored: u32, is_known: bool, published: Option<u32>) -> u32 {
    match stored {
        _ if !is_known => fastrand::u32(1..),
        0 => published.unwrap_or_else(|| fastrand::u32(1..)),
        stored => stored,
    }
}

impl ClientRegistry {
    /// The shared client with this instance's records, or, without them, the shared client without expired records.
    /// `instance`: a number of this instance, not 0. `clock_lag`: microseconds by which the archive's clock is ahead.
    pub fn merge_shared(
        &self,
        address: IpNet,
        shared: SharedClient,
        own: Option<(&PendingSnapshot, u32)>,
        now: i64,
        clock_lag: i64,
    ) -> MergedClient {
        let RecordSettings { policies, names, retain } = self.settings.read().clone();
        let text = address::shown(address);
        let mut merged = shared;
        let snapshot = std::mem::take(&mut merged.snapshot);
        let is_known = !merged.denied.is_empty();
        let mut history = is_known.then(|| snapshot.into_history(&text, &policies, &names, now));
        if let Some((pending, instance)) = own {
            let before = pending.published.as_deref();
            merged.incarnation =
                incarnation(merged.incarnation, is_known, before.map(|before| before.incarnation));
            let before = before.filter(|before| before.incarnation == merged.incarnation);
            merged.denied.report(instance, pending.snapshot.denied, before.map(|before| &before.denied));
            let traffic = pending.snapshot.traffic.clone();
            merged.traffic.report(instance, traffic, before.map(|before| &before.traffic));
            merged.users.add(&pending.users, pending.slice);
            let mut own = pending.snapshot.clone().into_history(&text, &policies, &names, now);
            // The archive may have lost the unblock.
            let known = || pending.unblocked.as_ref().map(|unblock| unblock.shifted(clock_lag));
            let known = || known().map(|unblock| SharedUnblock { unblock, denied_since: false });
            merged.unblocked = merged.unblocked.or_else(known);
            if let Some(SharedUnblock { unblock, denied_since }) = &mut merged.unblocked {
                let time = unblock.time.saturating_sub(clock_lag);
                *denied_since |= own.last > time;
                // This instance may have missed the unblock.
                own.end_limits(time);
            }
            history = Some(match history {
                Some(mut history) => {
                    history.merge(&own, &text, &policies, now);
                    history
                }
                None => own,
            });
        }
        merged.users.expire(oldest_slice(policies.slice(now)));
        let known_until = history.as_ref().map(|history| history.last);
        let unblocked = merged.unblocked.as_ref();
        let unblocked = unblocked.map(|known| known.unblock.time.saturating_sub(clock_lag));
        let history = history.unwrap_or_else(|| DenialHistory::new(now));
        merged.snapshot = ClientSnapshot::from_history(&history, &policies);
        MergedClient {
            client: merged,
            evidence_ends: history.ends(&policies),
            ends: known_until.or(unblocked).unwrap_or(now).saturating_add(retain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            super::testing::{SECOND, denied_once, registry},
            PeerView,
        },
        *,
    };

    const ADDRESS: &str = "203.0.113.7";

    fn client() -> IpNet {
        address::parse(ADDRESS).unwrap()
    }

    /// The snapshot to publish by an instance that denied a request at each of these times.
    fn pending(times: &[i64]) -> PendingSnapshot {
        let registry = registry();
        times.iter().for_each(|&time| registry.record(denied_once(ADDRESS, time), time));
        registry.pending_snapshots(*times.last().unwrap(), 1).remove(0)
    }

    fn merge(shared: SharedClient, own: Option<(&PendingSnapshot, u32)>, now: i64) -> MergedClient {
        registry().merge_shared(client(), shared, own, now, 0)
    }

    /// Publishes this instance's records into `shared`.
    fn publish(registry: &ClientRegistry, number: u32, shared: &mut SharedClient, now: i64) {
        for pending in registry.pending_snapshots(now, 1) {
            let own = Some((&pending, number));
            *shared = registry.merge_shared(client(), std::mem::take(shared), own, now, 0).client;
            registry.ack_snapshot(&pending, shared.incarnation, now);
        }
    }

    #[test]
    fn of_a_client_that_many_instances_deny_each_denial_counts_once() {
        let instances: Vec<_> = (0..20).map(|_| registry()).collect();
        let mut shared = SharedClient::default();
        let denied = |shared: &SharedClient| {
            (shared.denied.total(), shared.traffic.total().map(|traffic| traffic.total().denied))
        };
        for round in 1..=60 {
            let now = round * SECOND;
            for (number, instance) in (1..).zip(&instances) {
                instance.record(denied_once(ADDRESS, now), now);
                publish(instance, number, &mut shared, now);
            }
            let expected = u32::try_from(round).unwrap() * 20;
            assert_eq!(shared.denied.total(), Some(expected.into()), "round {round}");
        }
        // The archive loses it, and returns.
        let lost = std::mem::take(&mut shared);
        let now = 61 * SECOND;
        for (number, instance) in (1..21).zip(&instances).rev() {
            instance.republish_all(now);
            publish(instance, number, &mut shared, now);
            instance.republish_all(now);
        }
        assert_eq!(denied(&shared), denied(&lost));
        // Each publishes again, even if it does not have to.
        for (number, instance) in (1..).zip(&instances) {
            publish(instance, number, &mut shared, now + SECOND);
        }
        assert_eq!(denied(&shared), denied(&lost));
        // Counts of this instance that were summed up with others do not count as theirs.
        let first = instances.iter().zip(1..).find(|&(_, number)| shared.denied.is_summed_up(number));
        let (instance, number) = first.unwrap();
        let view = PeerView {
            own_summed_up: Some(shared.incarnation),
            snapshot: shared.clone().of_others(number),
            ..PeerView::default()
        };
        instance.replace_peer_view(client(), view, Some(1), now);
        assert_eq!(instance.find(client(), now).map(|(client, ..)| client.denied), Some(1_200));
    }

    #[test]
    fn each_instance_adds_its_own_and_twice_is_once() {
        let (one, other) = (pending(&[1, 3]), pending(&[2]));
        let first = merge(SharedClient::default(), Some((&one, 7)), 5);
        assert_eq!((first.ends, first.evidence_ends), (3 + 10 * SECOND, Some(1 + 5 * SECOND)));
        let both = merge(first.client.clone(), Some((&other, 8)), 5).client;
        assert_eq!((both.denied.reported(), both.users.len()), ([(7, 2), (8, 1)].as_slice(), 1));
        let times = |client: &SharedClient| {
            client.snapshot.records.iter().map(|record| record.entry.time).collect::<Vec<_>>()
        };
        assert_eq!(times(&both), [1, 2, 3]);
        let again = merge(both.clone(), Some((&one, 7)), 5).client;
        assert_eq!((again.denied.reported(), times(&again)), ([(8, 1), (7, 2)].as_slice(), vec![1, 2, 3]));
        assert_eq!(both.clone().of_others(7).map(|others| others.denied), Some(1));
        assert_eq!(first.client.of_others(7), None);
        assert_eq!(both.of_others(9).map(|others| others.denied), Some(3));
    }

    #[test]
    fn what_has_expired_leaves_and_counts_stay() {
        let both = merge(SharedClient::default(), Some((&pending(&[0, SECOND]), 7)), SECOND).client;
        let later = merge(both.clone(), None, 5 * SECOND);
        assert_eq!((later.client.snapshot.records.len(), later.evidence_ends), (1, Some(6 * SECOND)));
        let later = merge(both, None, 6 * SECOND);
        assert_eq!((later.client.snapshot.records.len(), later.evidence_ends), (0, None));
        assert_eq!(later.client.denied.reported(), [(7, 2)]);
    }
}
