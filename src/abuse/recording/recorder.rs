//! A worker's record of denials. It is on the path of a request, so everything here has to be cheap, above all
//! repeated denials of the same address.

use std::{cell::RefCell, collections::HashMap, net::IpAddr, sync::Arc};

use compact_str::CompactString;
use indexmap::IndexMap;
use ipnet::IpNet;

use super::{
    super::{
        UserNaming, address,
        clients::policies::RecordPolicies,
        incidents::RouteNotes,
        names::shorten_name,
        traffic::{RequestLine, Signs, WatchedAddresses, is_refusal},
    },
    DenialReport, ObservedResponse,
    denial::{CapturedEvidence, DenialTally, RecordCounts, TalliedLimit, TickDenials, UserTally},
    queue::TickSender,
    response::ResponseTally,
};
use crate::{limit::algorithm::metadata_list::Entry, telemetry::metrics::Metrics};

/// Maximum number of addresses recorded per tick; denials of more are dropped.
const ADDRESSES: usize = 4_096;
/// Maximum number of different limits recorded per address and tick.
const LIMITS: usize = 16;
/// Maximum number of users, and of requests, recorded per tick over all addresses: more than a worker denies in one.
const CAPACITY: usize = 8_192;
/// Maximum number of denied requests recorded per address and tick once `record.keep` of its policies is used up for
/// the second, and of one user among them: a user who floods leaves room for the others behind the address.
const EXTRA_RECORDS: u32 = 16;
const EXTRA_RECORDS_PER_USER: u32 = 2;
/// A policy records `record.keep` requests per address and second: more would evict each other.
const TICKS_PER_SECOND: u32 = 10;
/// Up to this number of denials per address and tick, all requests are counted as traffic. Of more, one in [`SAMPLE`]
/// counts for all of them: a flood is uniform.
const SAMPLED_FROM: u64 = 32;
const SAMPLE: u32 = 16;
/// Up to this number of denials per address and tick, all heads are looked at for signs of people; then one in [`SAMPLE`].
const SIGNS_SAMPLED_FROM: u64 = 2;
/// How often evidence is requested per tick, because it is copied from the store.
const EVIDENCE: usize = 32;

/// Records denials. Belongs to one thread.
#[derive(Debug)]
pub struct Recorder {
    pending: RefCell<TickBuffer>,
    queue: TickSender,
    /// The policies that denials' indexes refer to.
    policies: Arc<RecordPolicies>,
    metrics: Arc<Metrics>,
    names: Arc<UserNaming>,
    watched: Arc<WatchedAddresses>,
}

#[derive(Debug, Default)]
struct TickBuffer {
    tallies: IndexMap<CompactString, DenialTally, foldhash::fast::RandomState>,
    /// The index of the address that was denied last: a flood has one address, and needs no look-up.
    last: usize,
    evidence: Vec<CapturedEvidence>,
    responses: IndexMap<IpNet, ResponseTally, foldhash::fast::RandomState>,
    notes: RouteNotes,
    capacity: TickCapacity,
    /// The numbers of records per address in the earlier ticks of this second.
    record_counts: HashMap<CompactString, RecordCounts, foldhash::fast::RandomState>,
    ticks: u32,
}

/// The remaining capacity of a tick, and the number of drops.
#[derive(Debug)]
struct TickCapacity {
    users: usize,
    records: usize,
    dropped: u64,
}

impl Default for TickCapacity {
    fn default() -> Self {
        Self { users: CAPACITY, records: CAPACITY, dropped: 0 }
    }
}

impl Recorder {
    pub(in crate::abuse) fn new(
        queue: TickSender,
        policies: Arc<RecordPolicies>,
        names: Arc<UserNaming>,
        watched: Arc<WatchedAddresses>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { pending: RefCell::default(), queue, policies, names, watched, metrics }
    }

    /// Records that a request was denied, once per request. `line` is called only if it is counted, and `entry` only
    /// if the request itself is recorded.
    ///
    /// True if this limit of the address is new in this tick: for a `metadata_list` policy, the caller then reads the
    /// limit's entries from the store and passes them to [`Recorder::record_evidence`].
    pub fn record<'a>(
        &self,
        denial: &DenialReport<'_>,
        line: impl FnOnce() -> RequestLine<'a>,
        entry: impl FnOnce() -> Arc<Entry>,
    ) -> bool {
        let user = denial.user.filter(|_| self.names.is_enabled()).map(shorten_name);
        let keep = self.policies.keep(denial.policy);
        self.note(denial, |tally, capacity| {
            if let Some(weight) = tally.next_weight() {
                let (line, sign_weight) = (line(), tally.next_sign_weight());
                tally.traffic.add_line(&RequestLine { headers: None, ..line }, weight);
                if let Some((headers, weight)) = line.headers.zip(sign_weight) {
                    tally.traffic.add_signs(Signs::of(headers, line.path, line.is_logged), weight);
                }
            }
            if tally.count_denial(denial, user.as_deref(), keep, capacity) {
                tally.records.push((denial.policy, entry()));
            }
        })
    }

    /// Records another limit that denied the same request, which is counted once, by [`Recorder::record`]. Returns
    /// the same as that.
    pub fn record_further_limit(&self, denial: &DenialReport<'_>) -> bool {
        self.note(denial, |_, _| {})
    }

    fn note(
        &self,
        denial: &DenialReport<'_>,
        count: impl FnOnce(&mut DenialTally, &mut TickCapacity),
    ) -> bool {
        let TickBuffer { tallies, last, evidence, capacity, record_counts, .. } =
            &mut *self.pending.borrow_mut();
        let is_last = tallies.get_index(*last).is_some_and(|(address, _)| address == denial.address);
        let index = if is_last { Some(*last) } else { tallies.get_index_of(denial.address) };
        let index = index.or_else(|| {
            (tallies.len() < ADDRESSES).then(|| {
                let address = CompactString::from(denial.address);
                let counts = record_counts.get(&address).cloned().unwrap_or_default();
                tallies.insert_full(address, DenialTally::new(denial, counts)).0
            })
        });
        let tally = index.and_then(|index| tallies.get_index_mut(index));
        let Some(((_, tally), index)) = tally.zip(index) else {
            capacity.dropped += 1;
            return false;
        };
        *last = index;
        count(tally, capacity);
        let is_new = tally.add_limit(denial);
        is_new && evidence.len() < EVIDENCE && address::is_identifier_of(denial.identifier, denial.address)
    }

    /// Records the requests that filled a limit of the address. `entries`: from the store, oldest first.
    pub fn record_evidence(&self, address: &str, policy: usize, identifier: &str, entries: Vec<Arc<Entry>>) {
        let pending = &mut *self.pending.borrow_mut();
        // The store may reply after other limits' evidence has filled the tick.
        if pending.evidence.len() < EVIDENCE && !entries.is_empty() {
            let (address, identifier) = (address.into(), identifier.into());
            pending.evidence.push(CapturedEvidence { address, policy, identifier, entries });
        }
    }

    /// Whether the client was limited or refused recently. Then all responses to it are recorded; of others, those with 401 and
    /// 403. `client`: the part of the address that identifies it. Called for every request.
    pub fn watches(&self, client: IpAddr) -> bool {
        self.watched.contains(client)
    }

    /// Notes a response for incidents, as [`Recorder::watches`] says.
    pub fn note_response(&self, response: &ObservedResponse<'_>) {
        let is_refused = is_refusal(response.status);
        if is_refused {
            // What the client asks for next may come before the tick ends.
            self.watched.add(response.client.addr());
        }
        let guards_logins = self.policies.route(response.route).is_some_and(|route| route.guards_logins);
        // Also the name that is let in, after another one was refused.
        let may_log_in = is_refused || !response.request.is_safe;
        let user = response.user.filter(|_| may_log_in).and_then(|user| self.names.identify(user));
        self.pending.borrow_mut().notes.add(
            response,
            user.map(|user| (user.hash >> 32) as u32),
            guards_logins,
        );
    }

    /// Records a response for the hint, as [`Recorder::watches`] says.
    pub fn record_response(&self, response: &ObservedResponse<'_>) {
        let responses = &mut self.pending.borrow_mut().responses;
        if responses.len() < ADDRESSES || responses.contains_key(&response.client) {
            responses.entry(response.client).or_default().add(response);
        }
    }

    /// Hands over the records. To be called with each tick of the worker; never waits.
    pub fn flush(&self) {
        let pending = &mut *self.pending.borrow_mut();
        let mut dropped = std::mem::take(&mut pending.capacity).dropped;
        pending.remember();
        let is_quiet = pending.tallies.is_empty()
            && pending.evidence.is_empty()
            && pending.responses.is_empty()
            && pending.notes.is_empty();
        if !is_quiet {
            let batch = TickDenials {
                tallies: pending.tallies.drain(..).collect(),
                evidence: std::mem::take(&mut pending.evidence),
                responses: pending.responses.drain(..).collect(),
                notes: std::mem::take(&mut pending.notes),
                policies: Arc::clone(&self.policies),
            };
            let denied = batch.denials();
            if !self.queue.try_send(batch) {
                dropped += denied;
            }
        }
        if dropped > 0 {
            self.metrics.add_abuse_dropped(dropped);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.flush();
    }
}

impl TickBuffer {
    /// Remembers the numbers of records until the second is over.
    fn remember(&mut self) {
        self.ticks += 1;
        if self.ticks >= TICKS_PER_SECOND {
            (self.ticks, self.record_counts) = (0, HashMap::default());
            return;
        }
        for (address, tally) in self.tallies.iter().filter(|(_, tally)| !tally.records.is_empty()) {
            if self.record_counts.len() >= ADDRESSES {
                return;
            }
            self.record_counts.insert(address.clone(), tally.record_counts.clone());
        }
    }
}

impl DenialTally {
    /// The number of requests that the next one counts for, if it is examined.
    fn next_weight(&self) -> Option<u32> {
        match self.denied {
            0..SAMPLED_FROM => Some(1),
            denied if denied % u64::from(SAMPLE) == 0 => Some(SAMPLE),
            _ => None,
        }
    }

    /// The number of requests that the signs in the head of the next one count for, if it is looked at.
    fn next_sign_weight(&self) -> Option<u32> {
        match self.denied {
            0..SIGNS_SAMPLED_FROM => Some(1),
            denied if denied % u64::from(SAMPLE) == 0 => Some(SAMPLE),
            _ => None,
        }
    }

    /// Counts a denial. True if the request is to be recorded; the policy keeps `keep` of them.
    ///
    /// Up to that number, every request of an address is recorded; of a flood, only a few more per tick.
    fn count_denial(
        &mut self,
        denial: &DenialReport<'_>,
        user: Option<&str>,
        keep: usize,
        capacity: &mut TickCapacity,
    ) -> bool {
        self.denied += 1;
        self.customers += u64::from(denial.is_customer);
        let index = user.and_then(|user| self.users.get_index_of(user));
        let index = index.or_else(|| {
            let user = user?;
            if capacity.users == 0 {
                capacity.dropped += 1;
                return None;
            }
            capacity.users -= 1;
            Some(self.users.insert_full(user.into(), UserTally::default()).0)
        });
        let user_tally = index.and_then(|index| self.users.get_index_mut(index));
        let user_tally = user_tally.map_or(&mut self.others, |(_, tally)| tally);
        user_tally.denied += 1;
        user_tally.verified += u64::from(denial.is_user_verified);
        user_tally.last = user_tally.last.max(denial.now);
        if keep == 0 {
            return false;
        }
        let recorded = record_count(&mut self.record_counts, denial.policy);
        let is_beyond = *recorded >= keep;
        if is_beyond
            && (self.extra_records >= EXTRA_RECORDS || user_tally.extra_records >= EXTRA_RECORDS_PER_USER)
        {
            return false;
        }
        if capacity.records == 0 {
            capacity.dropped += u64::from(!is_beyond);
            return false;
        }
        self.extra_records += u32::from(is_beyond);
        user_tally.extra_records += u32::from(is_beyond);
        *recorded += 1;
        capacity.records -= 1;
        true
    }

    /// True if the limit is new.
    fn add_limit(&mut self, denial: &DenialReport<'_>) -> bool {
        self.last = self.last.max(denial.now);
        self.until = self.until.max(denial.until);
        let same = |limit: &&mut TalliedLimit| {
            limit.policy == denial.policy && limit.identifier.as_str() == denial.identifier
        };
        if let Some(limit) = self.limits.iter_mut().find(same) {
            limit.until = limit.until.max(denial.until);
            return false;
        }
        // Reserve half of the limits for those of the address itself.
        let own = address::is_identifier_of(denial.identifier, denial.address);
        if self.limits.len() >= if own { LIMITS } else { LIMITS / 2 } {
            return false;
        }
        let DenialReport { policy, until, .. } = *denial;
        self.limits.push(TalliedLimit { policy, identifier: denial.identifier.into(), until });
        true
    }
}

/// The number of recorded requests of a policy.
fn record_count(counts: &mut RecordCounts, policy: usize) -> &mut usize {
    let index = counts.iter().position(|&(known, _)| known == policy).unwrap_or_else(|| {
        counts.push((policy, 0));
        counts.len() - 1
    });
    &mut counts[index].1
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            super::testing::{LINE, entry, policy},
            queue::{TickReceiver, tick_queue},
        },
        *,
    };
    use crate::telemetry::testing;

    /// The number that the test's policy keeps.
    const KEEP: usize = 5;

    fn recorder() -> (Recorder, TickReceiver, Arc<Metrics>) {
        let metrics = Metrics::new(&testing::config(), 1);
        // One tick at a time.
        let (queue, batches) = tick_queue(Arc::default());
        let names = Arc::new(UserNaming::default());
        let mut policy = policy();
        policy.record.keep = KEEP;
        let policies = Arc::new(RecordPolicies::new(&[policy], 1));
        (Recorder::new(queue, policies, names, Arc::default(), Arc::clone(&metrics)), batches, metrics)
    }

    fn denial<'a>(address: &'a str, identifier: &'a str, user: &'a str) -> DenialReport<'a> {
        DenialReport {
            address,
            policy: 0,
            identifier,
            user: Some(user),
            is_user_verified: false,
            is_customer: false,
            now: 5,
            until: 9,
        }
    }

    /// The tally of a tick in which each of `users` is denied at one address.
    fn tick(recorder: &Recorder, batches: &TickReceiver, users: &[&str]) -> DenialTally {
        for user in users {
            recorder.record(&denial("203.0.113.7", "ip:203.0.113.7", user), || LINE, || entry(5, user));
        }
        recorder.flush();
        batches.try_recv().unwrap().tallies.remove(0).1
    }

    fn recorded_users(tally: &DenialTally) -> Vec<&str> {
        tally.records.iter().filter_map(|(_, entry)| entry.user.as_deref()).collect()
    }

    #[test]
    fn repeats_are_counted_and_cost_no_record() {
        let (recorder, batches, metrics) = recorder();
        let mut built = 0;
        let mut evidence_requests = 0;
        for _ in 0..100 {
            let denial = denial("203.0.113.7", "ip:203.0.113.7", "acme");
            evidence_requests += usize::from(recorder.record(
                &denial,
                || LINE,
                || {
                    built += 1;
                    entry(5, "acme")
                },
            ));
        }
        assert_eq!((built, evidence_requests), (KEEP + EXTRA_RECORDS_PER_USER as usize, 1));
        recorder.flush();
        let batch = batches.try_recv().unwrap();
        assert_eq!(batch.denials(), 100);
        let tally = &batch.tallies[0].1;
        assert_eq!((tally.limits.len(), tally.users["acme"].denied), (1, 100));
        assert_eq!(metrics.abuse_dropped(), 0);
    }

    #[test]
    fn every_request_up_to_keep_is_recorded() {
        let (recorder, batches, _) = recorder();
        let first = tick(&recorder, &batches, &["acme", "acme"]);
        assert_eq!(recorded_users(&first), ["acme", "acme"]);
        let second = tick(&recorder, &batches, &["acme", "bob", "acme"]);
        assert_eq!(recorded_users(&second), ["acme", "bob", "acme"]);
    }

    #[test]
    fn a_flood_is_recorded_up_to_keep_a_second_and_leaves_space_for_others() {
        let (recorder, batches, _) = recorder();
        let flood: Vec<_> = ["acme"; 1_000].into_iter().chain(["bob"]).collect();
        let first = tick(&recorder, &batches, &flood);
        assert_eq!(recorded_users(&first), ["acme", "acme", "acme", "acme", "acme", "acme", "acme", "bob"]);
        for _ in 2..TICKS_PER_SECOND {
            assert_eq!(recorded_users(&tick(&recorder, &batches, &flood)), ["acme", "acme", "bob"]);
        }
        tick(&recorder, &batches, &flood);
        assert_eq!(recorded_users(&tick(&recorder, &batches, &flood)).len(), 8, "a new second");
        let crowd: Vec<_> = (0..1_000).map(|user| user.to_string()).collect();
        let crowd: Vec<_> = crowd.iter().map(String::as_str).collect();
        assert_eq!(recorded_users(&tick(&recorder, &batches, &crowd)).len(), EXTRA_RECORDS as usize);
    }

    #[test]
    fn users_are_counted_up_to_the_capacity() {
        let (recorder, batches, metrics) = recorder();
        let crowd: Vec<_> = (0..CAPACITY + 3).map(|user| user.to_string()).collect();
        let crowd: Vec<_> = crowd.iter().map(String::as_str).collect();
        let tally = tick(&recorder, &batches, &crowd);
        assert_eq!(
            (tally.denied, tally.users.len(), tally.others.denied),
            (CAPACITY as u64 + 3, CAPACITY, 3)
        );
        assert_eq!(metrics.abuse_dropped(), 3);
        assert_eq!(tick(&recorder, &batches, &crowd[..9]).users.len(), 9);
    }

    #[test]
    fn evidence_is_asked_for_limits_of_the_address_alone() {
        let (recorder, batches, _) = recorder();
        let other = denial("203.0.113.7", "user:acme", "acme");
        assert!(!recorder.record(&other, || LINE, || entry(5, "acme")));
        let own = denial("203.0.113.7", "ip:203.0.113.7+path:/a", "acme");
        assert!(recorder.record(&own, || LINE, || entry(5, "acme")));
        recorder.record_evidence(own.address, 0, own.identifier, vec![entry(1, "bob")]);
        recorder.flush();
        assert_eq!(batches.try_recv().unwrap().evidence.len(), 1);
        assert!(recorder.record(&own, || LINE, || entry(5, "acme")), "a new tick asks anew");
    }

    #[test]
    fn a_request_denied_by_two_limits_counts_once() {
        let (recorder, batches, _) = recorder();
        recorder.record(&denial("203.0.113.7", "user:acme", "acme"), || LINE, || entry(5, "acme"));
        let own = denial("203.0.113.7", "ip:203.0.113.7", "acme");
        assert!(recorder.record_further_limit(&own) && !recorder.record_further_limit(&own));
        recorder.flush();
        let batch = batches.try_recv().unwrap();
        let tally = &batch.tallies[0].1;
        assert_eq!((tally.denied, tally.records.len(), tally.limits.len()), (1, 1, 2));
    }

    #[test]
    fn many_denied_users_leave_space_for_the_address_s_own_limit() {
        let (recorder, _batches, _) = recorder();
        for user in 0..1_000 {
            let user = user.to_string();
            let other = denial("203.0.113.7", &user, &user);
            assert!(!recorder.record(&other, || LINE, || entry(5, &user)));
        }
        assert!(recorder.record(&denial("203.0.113.7", "ip:203.0.113.7", "a"), || LINE, || entry(5, "a")));
    }

    #[test]
    fn denials_beyond_the_capacity_are_counted_as_dropped() {
        let (recorder, batches, metrics) = recorder();
        let addresses: Vec<_> = (0..ADDRESSES + 5).map(|n| format!("10.0.{}.{}", n / 256, n % 256)).collect();
        for address in &addresses {
            recorder.record(&denial(address, "user:acme", "acme"), || LINE, || entry(5, "acme"));
        }
        recorder.flush();
        assert_eq!(metrics.abuse_dropped(), 5);
        // The first tick is still queued, so the next finds the queue full.
        recorder.record(&denial("10.0.0.1", "user:acme", "acme"), || LINE, || entry(5, "acme"));
        recorder.flush();
        assert_eq!(metrics.abuse_dropped(), 6);
        assert_eq!(batches.try_recv().unwrap().tallies.len(), ADDRESSES);
    }

    #[test]
    fn a_quiet_tick_sends_nothing() {
        let (recorder, batches, _) = recorder();
        recorder.flush();
        assert!(batches.try_recv().is_none());
    }
}
