//! All limited clients, for the admin port.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use ipnet::IpNet;
use parking_lot::{Mutex, RwLock};

use super::{
    super::{
        Hint, UserNaming, address,
        incidents::{ClientCounts, Incidents, index_of},
        recording::{
            denial::{DenialTally, TickDenials},
            masking::{AddressDenials, DeniedUser, mask_denials},
            queue::QueuedBytes,
            response::ResponseTally,
        },
        traffic::{Suspects, WatchedAddresses, value_hash},
    },
    ClientQuery, DenyingLimit, LimitedClient, PageScan, RequestRecord, UserAddresses, UserDenials, active,
    entry::ClientEntry,
    event_throttle::EventThrottle,
    page,
    policies::{RecordPolicies, RecordedRoute, micros},
    sort_index::Sort,
    table::ClientTable,
    unblock::Unblock,
    user_addresses::{DeniedAddress, UserAddressIndex},
};
use crate::{
    limit::Policy,
    memory_budget::FreedBytes,
    telemetry::{Events, metrics::Metrics},
};

/// Clients changed before the lock is released for others.
pub(super) const CHUNK: usize = 256;
/// Pairs of a user and an address that a sweep removes at most: as many as a flood of names adds between two sweeps.
const SWEEP: usize = 8_192;

/// Limited clients by address, with this instance's records and the others'. Its lock is taken by the collector, the
/// publisher and the admin port, never by a worker.
#[derive(Debug)]
pub struct ClientRegistry {
    pub(super) settings: RwLock<RecordSettings>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clients: Mutex<ClientTable>,
    /// Locked by the same threads, never together with `clients`.
    pub(super) user_addresses: Mutex<UserAddressIndex>,
    event_throttle: Mutex<EventThrottle>,
    /// The addresses whose responses are recorded.
    pub(in crate::abuse) watched: Arc<WatchedAddresses>,
    incidents: Incidents,
    /// Locked by the collector and the admin port.
    suspects: Mutex<SuspectTable>,
    /// The maximum number of bytes, including denials that wait to be merged.
    max_bytes: AtomicUsize,
    /// Bytes of users and their addresses.
    user_bytes: AtomicUsize,
    /// Bytes of clients that may be limited soon.
    suspect_bytes: AtomicUsize,
    /// Bytes of denials that wait to be merged.
    queued: Arc<QueuedBytes>,
}

/// The memory use of the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvidenceUsage {
    /// Limited clients, including expired ones that are not swept yet.
    pub clients: usize,
    /// Bytes of clients, of users, and of denials that wait to be merged.
    pub bytes: usize,
    pub max_bytes: usize,
    /// Clients whose evidence was dropped since the start; they are still listed.
    pub dropped_evidence: u64,
}

/// Clients that may be limited soon.
#[derive(Debug)]
struct SuspectTable {
    suspects: Suspects,
    /// The minute of the last sweep.
    minute: i64,
}

/// Microseconds.
const MINUTE: i64 = 60_000_000;
/// Users and their addresses may take one in this many bytes, and denials that wait to be merged as much.
const SHARE: usize = 8;

/// The part of the configuration that applies to records.
#[derive(Debug, Clone)]
pub(super) struct RecordSettings {
    pub(super) policies: Arc<RecordPolicies>,
    pub(super) names: Arc<UserNaming>,
    /// Microseconds.
    pub(super) retain: i64,
}

impl ClientRegistry {
    /// `policies`: the ones that denials refer to by index. `retain`: how long a client is listed after its last
    /// denial. Users are recorded by their names, and records may be published.
    pub fn new(policies: &[Policy], retain: Duration, metrics: Arc<Metrics>) -> Self {
        let policies = Arc::new(RecordPolicies::new(policies, micros(retain)));
        let settings =
            RecordSettings { policies, names: Arc::new(UserNaming::default()), retain: micros(retain) };
        let incidents = Incidents::new(Arc::clone(&metrics));
        incidents.set_retain(micros(retain));
        Self {
            settings: RwLock::new(settings),
            metrics,
            clients: Mutex::new(ClientTable::new()),
            user_addresses: Mutex::new(UserAddressIndex::new()),
            event_throttle: Mutex::default(),
            watched: Arc::default(),
            incidents,
            suspects: Mutex::new(SuspectTable { suspects: Suspects::new(usize::MAX), minute: 0 }),
            max_bytes: AtomicUsize::new(usize::MAX),
            user_bytes: AtomicUsize::new(0),
            suspect_bytes: AtomicUsize::new(0),
            queued: Arc::default(),
        }
        .with_max_bytes(usize::MAX)
    }

    /// Sets the approximate maximum number of bytes.
    #[must_use]
    pub fn with_max_bytes(self, max_bytes: usize) -> Self {
        self.set_max_bytes(max_bytes);
        self
    }

    /// Sets the approximate maximum number of bytes from now on.
    pub fn set_max_bytes(&self, max_bytes: usize) {
        self.max_bytes.store(max_bytes, Relaxed);
        self.queued.set_max(max_bytes / SHARE);
        self.user_addresses.lock().max_bytes = max_bytes / SHARE;
        self.suspects.lock().suspects.set_max_bytes(max_bytes);
    }

    /// The current memory use.
    pub fn usage(&self) -> EvidenceUsage {
        let clients = self.clients.lock();
        EvidenceUsage {
            clients: clients.len(),
            bytes: clients.bytes() + self.other_bytes(),
            max_bytes: self.max_bytes.load(Relaxed),
            dropped_evidence: clients.dropped_evidence,
        }
    }

    /// The bytes that evictions free.
    pub fn freed_bytes(&self) -> FreedBytes {
        self.clients.lock().freed.clone()
    }

    /// The bytes of denials that wait to be merged.
    pub(in crate::abuse) fn queued_bytes(&self) -> Arc<QueuedBytes> {
        Arc::clone(&self.queued)
    }

    /// Bytes beside the clients.
    fn other_bytes(&self) -> usize {
        self.user_bytes.load(Relaxed)
            + self.suspect_bytes.load(Relaxed)
            + self.queued.held()
            + self.incidents.bytes()
    }

    /// Evicts clients and evidence beyond the budget. Returns the number of this instance's own clients that were
    /// evicted.
    pub(super) fn evict_excess(&self, clients: &mut ClientTable) -> u64 {
        clients.capacity.1 = self.max_bytes.load(Relaxed).saturating_sub(self.other_bytes());
        clients.evict_excess()
    }

    /// Applies another configuration, like [`ClientRegistry::new`] with [`ClientRegistry::with_ban_names`],
    /// [`ClientRegistry::with_routes`] and [`ClientRegistry::with_naming`]. Records made under the last one keep its names.
    pub fn reconfigure(
        &self,
        policies: &[Policy],
        denying: &[String],
        routes: &[RecordedRoute],
        names: UserNaming,
        retain: Duration,
    ) {
        let retain = micros(retain);
        self.incidents.set_retain(retain);
        let policies = RecordPolicies::new(policies, retain).with_ban_names(denying).with_routes(routes);
        let policies = Arc::new(policies);
        *self.settings.write() = RecordSettings { policies, names: Arc::new(names), retain };
    }

    /// Records users in the form that `names` gives.
    pub fn with_naming(self, names: UserNaming) -> Self {
        self.settings.write().names = Arc::new(names);
        self
    }

    /// Publishes events about clients that are limited.
    pub fn with_events(self, events: Events) -> Self {
        self.incidents.set_events(events.clone());
        Self { event_throttle: Mutex::new(EventThrottle::new(events)), ..self }
    }

    /// Without other instances: nothing is kept for publication.
    pub fn without_peers(self) -> Self {
        self.clients.lock().is_shared = false;
        self.user_addresses.lock().is_shared = false;
        self
    }

    /// The form in which users are recorded.
    pub fn names(&self) -> Arc<UserNaming> {
        Arc::clone(&self.settings.read().names)
    }

    /// The policies in force.
    pub(in crate::abuse) fn policies(&self) -> Arc<RecordPolicies> {
        Arc::clone(&self.settings.read().policies)
    }

    pub(super) fn retain(&self) -> i64 {
        self.settings.read().retain
    }

    /// Adds the names of ban rules, whose indexes follow those of the policies.
    #[must_use]
    pub fn with_ban_names(self, names: &[String]) -> Self {
        {
            let policies = &mut self.settings.write().policies;
            *policies = Arc::new(RecordPolicies::clone(policies).with_ban_names(names));
        }
        self
    }

    /// Adds the routes, in the order of their indexes.
    #[must_use]
    pub fn with_routes(self, routes: &[RecordedRoute]) -> Self {
        {
            let policies = &mut self.settings.write().policies;
            *policies = Arc::new(RecordPolicies::clone(policies).with_routes(routes));
        }
        self
    }

    /// The incidents of all instances.
    pub fn incidents(&self) -> &Incidents {
        &self.incidents
    }

    /// What a listed client seems to be.
    pub fn hint(&self, address: IpNet, now: i64) -> Option<Hint> {
        let retain = self.retain();
        let clients = self.clients.lock();
        clients.get(address).filter(|entry| !expired(entry, retain, now)).map(ClientEntry::hint)
    }

    /// Whether a listed client was unblocked at this time or later, in microseconds since the Unix epoch.
    pub fn is_unblocked_since(&self, address: IpNet, time: i64) -> bool {
        let clients = self.clients.lock();
        clients.get(address).and_then(ClientEntry::unblocked).is_some_and(|unblock| unblock.time >= time)
    }

    /// Looks for incidents. Returns whether there is anything to look at.
    pub(in crate::abuse) fn look_for_incidents(&self, now: i64) -> bool {
        if self.incidents.is_round_due(now) {
            for chunk in self.incidents.denied_clients().chunks(CHUNK) {
                let clients = self.clients.lock();
                let hint = |client: &IpNet| Some((*client, index_of(clients.get(*client)?.hint())));
                let hints: Vec<_> = chunk.iter().filter_map(hint).collect();
                drop(clients);
                self.incidents.set_hints(&hints);
            }
            self.incidents.round(now);
        }
        self.incidents.has_evidence()
    }

    /// Merges the denials of a worker.
    pub(in crate::abuse) fn record(&self, batch: TickDenials, now: i64) {
        let (policies, retain) = (Arc::clone(&batch.policies), self.retain());
        let mut batch = batch;
        // First, so that a client that is refused and denied in the same tick counts as refused before.
        self.record_responses(&std::mem::take(&mut batch.responses), &policies, now);
        batch.notes.refused_clients().for_each(|client| self.watched.add(client.addr()));
        self.incidents.add_notes(std::mem::take(&mut batch.notes), &policies, now);
        let (tallies, evidence, lost) = mask_denials(batch, &self.names());
        let mut evicted = 0;
        let mut event_throttle = self.event_throttle.lock();
        for AddressDenials { address, tally, users } in &tallies {
            self.note_denials(*address, tally, users, &policies, now);
        }
        let mut tallies = tallies.into_iter();
        while tallies.len() > 0 {
            let mut clients = self.clients.lock();
            let mut recorded = Vec::new();
            for AddressDenials { address, tally, users } in tallies.by_ref().take(CHUNK) {
                // A name is kept for as long as the records of its requests.
                let kept = policies.longest(tally.limits.iter().map(|limit| limit.policy)).min(retain);
                let is_limited = clients.add(address, tally, &users, &policies, now);
                self.watched.add(address.addr());
                if let Some(earlier) = self.suspects.lock().suspects.take(address) {
                    clients.change(address, |entry| entry.add_earlier_traffic(&earlier));
                }
                if is_limited
                    && event_throttle.admits(address, now)
                    && let Some(entry) = clients.get(address)
                {
                    event_throttle.send(entry.to_client(address));
                }
                recorded.push((address, users, kept));
            }
            evicted += self.evict_excess(&mut clients);
            drop(clients);
            let mut user_addresses = self.user_addresses.lock();
            for (address, users, kept) in recorded {
                for who in &users {
                    user_addresses.add(address, who, who.last.saturating_add(kept));
                }
            }
            self.user_bytes.store(user_addresses.bytes(), Relaxed);
        }
        for evidence in evidence.chunks(CHUNK) {
            let mut clients = self.clients.lock();
            evidence.iter().for_each(|evidence| clients.add_evidence(evidence, &policies, now));
            evicted += self.evict_excess(&mut clients);
        }
        if lost > 0 {
            self.metrics.add_abuse_dropped(lost);
        }
        self.count_evicted(evicted);
    }

    /// Notes denials of an address for incidents. Those of customers are none.
    fn note_denials(
        &self,
        address: IpNet,
        tally: &DenialTally,
        users: &[DeniedUser],
        policies: &RecordPolicies,
        now: i64,
    ) {
        let Some(limit) = tally.limits.first() else { return };
        let Some(policy) = policies.name(limit.policy) else { return };
        let is_of_address = limit.identifier.starts_with("ip:");
        let is_of_key = ["customer:", "api_key:"].iter().any(|of| limit.identifier.starts_with(of));
        let verified = users.iter().filter(|user| user.verified > 0);
        if is_of_key {
            self.incidents.add_customer(policy, value_hash(limit.identifier.as_bytes()), now);
        } else if !is_of_address {
            let hashes = verified.map(|user| (user.named.hash >> 32) as u32);
            hashes.for_each(|hash| self.incidents.add_customer(policy, hash, now));
        }
        let second = |time: i64| u32::try_from(time.div_euclid(1_000_000)).unwrap_or(0);
        let counts = ClientCounts {
            denied: u32::try_from(tally.denied).unwrap_or(u32::MAX),
            first: second(tally.first),
            last: second(tally.last),
            is_customer: tally.customers > 0,
            ..ClientCounts::default()
        };
        self.incidents.add_denials(policy, address, &counts, now);
    }

    /// Adds responses to the limited clients, and remembers clients that may be limited soon.
    fn record_responses(&self, responses: &[(IpNet, ResponseTally)], policies: &RecordPolicies, now: i64) {
        for responses in responses.chunks(CHUNK) {
            let (mut clients, mut suspects) = (self.clients.lock(), self.suspects.lock());
            for (address, tally) in responses {
                if tally.traffic.refused > 0 {
                    self.watched.add(address.addr());
                }
                if !clients.add_responses(*address, tally, policies, now) {
                    let period = policies.period(tally.last);
                    suspects.suspects.add_tick(*address, &tally.traffic, tally.last, period);
                }
            }
            self.suspect_bytes.store(suspects.suspects.bytes(), Relaxed);
        }
    }

    /// Removes clients that were not refused anything for a while.
    fn sweep_suspects(&self, now: i64) {
        let table = &mut *self.suspects.lock();
        let minute = now.div_euclid(MINUTE);
        if table.minute != minute {
            table.minute = minute;
            self.watched.fade();
            table.suspects.expire(now);
            self.suspect_bytes.store(table.suspects.bytes(), Relaxed);
        }
    }

    /// Removes some of the expired records. A few calls cover all. Returns whether there were any.
    pub(in crate::abuse) fn sweep(&self, now: i64) -> bool {
        self.sweep_suspects(now);
        let RecordSettings { policies, retain, .. } = self.settings.read().clone();
        let mut clients = self.clients.lock();
        let before = clients.bytes();
        clients.sweep(&policies, retain, now);
        let has_removed = clients.bytes() < before;
        let evicted = self.evict_excess(&mut clients);
        drop(clients);
        self.count_evicted(evicted);
        let mut user_addresses = self.user_addresses.lock();
        let before = user_addresses.bytes();
        user_addresses.expire(now, SWEEP);
        self.user_bytes.store(user_addresses.bytes(), Relaxed);
        has_removed || user_addresses.bytes() < before
    }

    /// Advances the scan for a page by one chunk, and releases the lock after it. True while there are more chunks.
    pub fn advance(&self, scan: &mut PageScan, now: i64) -> bool {
        let retain = self.retain();
        scan.advance(&self.clients.lock(), |entry| expired(entry, retain, now), now)
    }

    /// All clients that `filter` accepts, in order of their addresses.
    pub fn clients(&self, now: i64, filter: impl Fn(&LimitedClient) -> bool) -> Vec<LimitedClient> {
        let all = ClientQuery { sort: Sort::Address, ..ClientQuery::default() };
        let mut scan = PageScan::new(all, usize::MAX);
        while self.advance(&mut scan, now) {}
        let (mut clients, _) = scan.page();
        clients.retain(filter);
        clients
    }

    /// The number of clients, including expired ones that are not swept yet, and their bytes.
    pub fn len_and_bytes(&self) -> (usize, usize) {
        let clients = self.clients.lock();
        (clients.len(), clients.bytes())
    }

    /// The number of clients that are limited at `now`, to the second.
    pub fn active_count(&self, now: i64) -> usize {
        self.clients.lock().active_count(now)
    }

    /// Counts the listed clients within a prefix that no limit applies to at `now`, in a chunk after the client
    /// `after`. Returns the count, and the client after which the next chunk begins.
    pub fn count_unlimited(&self, within: IpNet, after: Option<IpNet>, now: i64) -> (usize, Option<IpNet>) {
        let retain = self.retain();
        let begin = after.map_or(Bound::Included(page::first(within)), Bound::Excluded);
        let clients = self.clients.lock();
        let (mut count, mut looked_at, mut last) = (0, 0, None);
        for (address, entry) in clients.range((begin, Bound::Included(page::last(within)))).take(CHUNK) {
            (looked_at, last) = (looked_at + 1, Some(address));
            count += usize::from(!active::is_active(entry.until(), now) && !expired(entry, retain, now));
        }
        (count, last.filter(|_| looked_at == CHUNK))
    }

    /// One client with its records, newest first, and the limits that denied it.
    pub fn find(
        &self,
        address: IpNet,
        now: i64,
    ) -> Option<(LimitedClient, Vec<RequestRecord>, Vec<DenyingLimit>)> {
        let RecordSettings { policies, retain, .. } = self.settings.read().clone();
        let mut clients = self.clients.lock();
        clients.change(address, |entry| entry.expire(&policies, now));
        let entry = clients.get(address).filter(|entry| !expired(entry, retain, now))?;
        let (records, limits) = entry.evidence(&address::shown(address), &policies, now);
        Some((entry.to_client(address), records, limits))
    }

    /// Ends the limits of denials before `unblock`, and keeps them as evidence.
    pub fn unblock(&self, address: IpNet, unblock: Unblock, now: i64) {
        self.clients.lock().unblock(address, unblock, now);
    }

    /// The addresses at which a user was denied, most recent first. `stored_name`: the user as recorded. `others`:
    /// the archive's addresses, which may lack the latest of this instance's own.
    pub fn addresses_of_user(
        &self,
        stored_name: &str,
        others: &UserAddresses,
        now: i64,
    ) -> Vec<DeniedAddress> {
        let mut found = BTreeMap::new();
        let mut add = |user_address: &DeniedAddress| {
            let DeniedAddress { address, denied, verified, last } = *user_address;
            let known =
                found.entry(address).or_insert(DeniedAddress { address, denied: 0, verified: 0, last });
            known.denied = known.denied.saturating_add(denied);
            known.verified = known.verified.saturating_add(verified);
            known.last = known.last.max(last);
        };
        let retain = self.retain();
        let index = self.user_addresses.lock();
        let own = index.addresses_of(stored_name, now);
        let without_own = |(seen, incarnation): &(DeniedAddress, u32)| {
            let own = index.published(stored_name, seen.address, *incarnation);
            let UserDenials { denied, verified } = own.unwrap_or_default();
            DeniedAddress {
                denied: seen.denied.saturating_sub(denied),
                verified: seen.verified.saturating_sub(verified),
                ..seen.clone()
            }
        };
        let summed_up: Vec<_> = others.summed_up.iter().map(without_own).collect();
        drop(index);
        let known: BTreeSet<_> = own.iter().map(|user_address| user_address.address).collect();
        own.iter().chain(&others.others).chain(&summed_up).for_each(&mut add);
        others.own.iter().filter(|user_address| !known.contains(&user_address.address)).for_each(add);
        let mut found: Vec<_> = found.into_values().collect();
        found.retain(|user_address| user_address.last.saturating_add(retain) > now);
        found.sort_by_key(|user_address| (Reverse(user_address.last), user_address.address));
        found
    }

    pub(super) fn count_evicted(&self, evicted: u64) {
        if evicted > 0 {
            self.metrics.add_abuse_evicted(evicted);
        }
    }
}

fn expired(entry: &ClientEntry, retain: i64, now: i64) -> bool {
    entry.last().saturating_add(retain) <= now
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::{
        super::{
            super::testing::{self, SECOND, denied_once, entry, listed, policy, registry, tally_of},
            table::SWEEP,
        },
        *,
    };
    use crate::telemetry::{Event, EventDelivery};

    #[test]
    fn denials_of_several_workers_are_merged() {
        let registry = registry();
        for time in [5, 3, 9] {
            registry.record(denied_once("203.0.113.7", time), 10);
        }
        let (client, records, limits) = registry.find(address::parse("203.0.113.7").unwrap(), 10).unwrap();
        assert_eq!((client.first, client.last, client.until), (3, 9, 9 + SECOND));
        assert_eq!((client.denied, client.users, client.policies), (3, 1, vec!["per-ip".into()]));
        assert_eq!(records.iter().map(|record| record.entry.time).collect::<Vec<_>>(), [9, 5, 3]);
        assert_eq!(limits.len(), 1);
    }

    #[test]
    fn clients_stay_for_as_long_as_they_are_retained() {
        let registry = registry();
        registry.record(denied_once("203.0.113.7", 0), 0);
        registry.record(denied_once("203.0.113.8", SECOND), SECOND);
        assert_eq!(listed(&registry, 10 * SECOND - 1), ["203.0.113.7", "203.0.113.8"]);
        assert_eq!(listed(&registry, 10 * SECOND), ["203.0.113.8"]);
        assert_eq!(registry.find(address::parse("203.0.113.7").unwrap(), 10 * SECOND), None);
        registry.sweep(10 * SECOND);
        assert_eq!(registry.len_and_bytes().0, 1);
    }

    #[test]
    fn a_full_registry_evicts_the_client_denied_longest_ago() {
        const ADDRESSES: usize = 1_000;
        let registry = registry();
        registry.clients.lock().capacity.0 = ADDRESSES;
        let name = |n: usize| format!("10.0.{}.{}", n / 256, n % 256);
        for n in 0..ADDRESSES {
            registry.record(denied_once(&name(n), n as i64), 0);
        }
        registry.record(denied_once(&name(0), 1_000_000), 0);
        registry.record(denied_once("203.0.113.7", 0), 0);
        assert_eq!(registry.metrics.abuse_evicted(), 1);
        assert!(!listed(&registry, 0).contains(&"203.0.113.7".to_owned()), "it was denied longest ago");
        registry.record(denied_once("203.0.113.7", 2_000_000), 0);
        let listed = listed(&registry, 0);
        assert!(listed.contains(&name(0)) && !listed.contains(&name(1)));
        assert_eq!(listed.len(), ADDRESSES);
    }

    #[test]
    fn the_evidence_of_the_one_denied_longest_ago_goes_before_itself() {
        let registry = registry();
        registry.set_max_bytes(246_000);
        let name = |n: i64| format!("10.0.{}.{}", n / 256, n % 256);
        let records = |n: i64| {
            let known = registry.find(address::parse(&name(n)).unwrap(), 0);
            known.map(|(client, records, _)| (client.denied, client.users, records.len()))
        };
        let evidence = |n: i64| {
            let entries: Vec<_> = (0..6).map(|of| entry(n, &of.to_string())).collect();
            registry.record(testing::batch(&name(n), tally_of(&entries, n + 1)), 0);
        };
        (0..150).for_each(evidence);
        assert_eq!(registry.metrics.abuse_evicted(), 0);
        assert_eq!(records(0), Some((6, 6, 0)));
        assert_eq!(records(149), Some((6, 6, 6)));
        evidence(0);
        assert_eq!(records(0), Some((12, 6, 6)), "new denials are recorded");
        (150..500).for_each(evidence);
        assert!(registry.metrics.abuse_evicted() > 0);
        assert!(registry.len_and_bytes().1 <= 246_000 && registry.clients.lock().add_up());
        assert_eq!(records(1), None);
    }

    /// A flood of ever new addresses, each denied once: none is examined more than a few times.
    #[test]
    fn a_flood_of_addresses_leaves_records_of_the_latest_and_takes_no_time() {
        const BUDGET: usize = 2 << 20;
        let registry = registry();
        registry.set_max_bytes(BUDGET);
        let name = |n: i64| format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255);
        for n in 0..40_000 {
            registry.record(denied_once(&name(n), n), n);
            if n % 1_000 == 0 {
                assert!(registry.usage().bytes <= BUDGET + BUDGET / 16, "{:?}", registry.usage());
            }
        }
        let usage = registry.usage();
        assert!(usage.bytes > BUDGET * 9 / 10 && usage.clients > 1_500, "{usage:?}");
        assert!(registry.clients.lock().add_up());
        let records = |n: i64| {
            let known = registry.find(address::parse(&name(n)).unwrap(), 40_000);
            known.map(|(_, records, _)| records.len())
        };
        assert_eq!((records(39_999), records(39_900), records(0)), (Some(1), Some(1), None));
    }

    #[test]
    fn an_unblock_ends_limits_and_keeps_the_evidence() {
        let registry = registry();
        let address = address::parse("203.0.113.7").unwrap();
        let unblock = |time| Unblock { time, by: "ann".into() };
        // Limited for 60 from then on.
        let denied = |time| {
            let mut batch = denied_once("203.0.113.7", time);
            batch.tallies[0].1.until = time + 60;
            batch
        };
        let found = |now| {
            let (client, records, _) = registry.find(address, now).unwrap();
            (client.until, client.denied, records.len(), client.unblocked.map(|unblocked| unblocked.time))
        };
        registry.record(denied(5), 5);
        assert_eq!((found(5), registry.active_count(5)), ((65, 1, 1, None), 1));
        registry.unblock(address, unblock(10), 10);
        assert_eq!(found(10), (10, 1, 1, Some(10)));
        registry.record(denied(9), 11);
        assert_eq!(found(11), (10, 2, 2, Some(10)), "denied before, handed over after");
        registry.record(denied(12), 13);
        assert_eq!(found(13), (72, 3, 3, Some(10)), "denied again");
        registry.record(denied(8), 14);
        assert_eq!(found(14), (72, 4, 4, Some(10)));
        assert!(registry.clients.lock().add_up());
    }

    #[test]
    fn denials_before_the_unblock_of_an_unknown_client_are_evidence_alone() {
        let registry = registry();
        let address = address::parse("203.0.113.7").unwrap();
        registry.unblock(address, Unblock { time: 10, by: String::new() }, 10);
        registry.unblock(address, Unblock { time: 9, by: "ann".into() }, 10);
        assert_eq!(registry.find(address, 10), None);
        let mut batch = denied_once("203.0.113.7", 8);
        batch.tallies[0].1.until = 68;
        registry.record(batch, 11);
        let (client, ..) = registry.find(address, 11).unwrap();
        assert_eq!((client.until, client.unblocked), (9, Some(Unblock { time: 9, by: "ann".into() })));
    }

    #[test]
    fn a_sweep_reaches_every_record() {
        let registry = registry();
        for n in 0..SWEEP * 2 {
            registry.record(denied_once(&format!("10.0.{}.{}", n / 256, n % 256), 0), 0);
            // Denied again later: the client is kept, and its first record expires.
            registry.record(denied_once(&format!("10.0.{}.{}", n / 256, n % 256), 9 * SECOND), 0);
        }
        for _ in 0..3 {
            registry.sweep(5 * SECOND);
        }
        let clients = registry.clients.lock();
        let records = |entry: &ClientEntry| entry.evidence("10.0.0.1", &registry.policies(), 0).0.len();
        assert!(clients.range((Bound::Unbounded, Bound::Unbounded)).all(|(_, entry)| records(entry) == 1));
    }

    #[test]
    fn subscribers_receive_events_of_limited_clients() {
        let events = Events::new();
        let registry = registry().with_events(events.clone());
        registry.record(denied_once("203.0.113.6", 5), 5);
        let mut listener = events.subscribe();
        registry.record(denied_once("203.0.113.7", 5), 5);
        registry.record(denied_once("203.0.113.7", 6), 6);
        let mut received = || {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            std::pin::pin!(listener.next()).poll(&mut context)
        };
        let std::task::Poll::Ready(EventDelivery::Event(event)) = received() else { panic!("no event") };
        let expected = Event::Limited {
            address: "203.0.113.7".into(),
            policies: vec!["per-ip".into()],
            denied: 1,
            distinct_users: 1,
            until: 5 + SECOND,
        };
        assert_eq!(*event, expected);
        assert!(received().is_pending(), "once a second");
    }

    #[test]
    fn records_of_the_last_configuration_keep_its_names() {
        let registry = registry();
        let recorded = denied_once("203.0.113.7", 5);
        let other = Policy { name: "other".into(), ..policy() };
        registry.reconfigure(&[other], &[], &[], UserNaming::default(), Duration::from_secs(20));
        registry.record(recorded, 6);
        let address = address::parse("203.0.113.7").unwrap();
        let named = |now| registry.find(address, now).map(|(client, ..)| client.policies);
        assert_eq!(named(6), Some(vec![Arc::from("per-ip")]));
        assert!(named(15 * SECOND).is_some(), "it is retained for longer now");
        assert_eq!(named(20 * SECOND + 5), None);
    }

    #[test]
    fn an_invalid_address_is_counted_as_dropped() {
        let registry = registry();
        registry.record(denied_once("unknown", 1), 1);
        assert_eq!(registry.metrics.abuse_dropped(), 1);
    }
}
