//! A worker's notes of denials. On the way of a request: what is here has to be cheap, most of all where
//! the same address is denied again and again.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{Arc, mpsc::SyncSender},
};

use compact_str::CompactString;
use indexmap::IndexMap;

use super::{
    super::{UserNaming, address, clients::policies::RecordPolicies, names::truncate},
    Denial,
    denial::{Batch, Evidence, RecordCounts, TalliedLimit, Tally, UserTally},
};
use crate::{limit::algorithm::metadata_list::Entry, telemetry::metrics::Metrics};

/// Addresses noted a tick; denials of more are dropped.
const ADDRESSES: usize = 4_096;
/// Different limits noted of an address a tick.
const LIMITS: usize = 16;
/// Users noted and requests written down a tick, of all addresses: more than a worker denies in one.
const CAPACITY: usize = 8_192;
/// Denied requests written down of an address a tick once its policies' share of the second is used up, and of one
/// user among them: a user who floods leaves room for the others behind the address.
const OVER_SHARE: u32 = 16;
const OVER_SHARE_PER_USER: u32 = 2;
/// Ticks in which a policy keeps `record.keep` requests of an address: a second. More would push each other out.
const SHARE_TICKS: u32 = 10;
/// How often evidence is asked for a tick, since it is copied from the store.
const EVIDENCE: usize = 32;

/// Notes denials. Belongs to one thread.
#[derive(Debug)]
pub struct Recorder {
    pending: RefCell<TickBuffer>,
    queue: SyncSender<Batch>,
    /// Those whose indexes denials name.
    policies: Arc<RecordPolicies>,
    metrics: Arc<Metrics>,
    names: Arc<UserNaming>,
}

#[derive(Debug, Default)]
struct TickBuffer {
    tallies: IndexMap<CompactString, Tally, foldhash::fast::RandomState>,
    /// The place of the address that was denied last: a flood is of one, and need not be looked up.
    last: usize,
    evidence: Vec<Evidence>,
    room: TickCapacity,
    /// What was written down of each address in the ticks of this second before.
    written: HashMap<CompactString, RecordCounts, foldhash::fast::RandomState>,
    ticks: u32,
}

/// What fits into a tick, and what did not.
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
    pub(super) fn new(
        queue: SyncSender<Batch>,
        policies: Arc<RecordPolicies>,
        names: Arc<UserNaming>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { pending: RefCell::default(), queue, policies, names, metrics }
    }

    /// How users are written down.
    pub fn names(&self) -> &UserNaming {
        &self.names
    }

    /// Notes that a request was held back, once a request. `entry` is called only where it is written
    /// down.
    ///
    /// True where this limit of the address is new in this tick: whoever knows that its policy is a
    /// `metadata_list` asks the store for its entries, and gives them to [`Recorder::record_evidence`].
    pub fn record(&self, denial: &Denial<'_>, entry: impl FnOnce() -> Arc<Entry>) -> bool {
        let user = denial.user.filter(|_| self.names.is_enabled()).map(truncate);
        let keep = self.policies.keep(denial.policy);
        self.note(denial, |tally, room| {
            if tally.count(denial, user, keep, room) {
                tally.records.push((denial.policy, entry()));
            }
        })
    }

    /// Notes another limit that held the same request back: the request is counted and written down once,
    /// by [`Recorder::record`], whose answer this gives, too.
    pub fn record_also(&self, denial: &Denial<'_>) -> bool {
        self.note(denial, |_, _| {})
    }

    fn note(&self, denial: &Denial<'_>, count: impl FnOnce(&mut Tally, &mut TickCapacity)) -> bool {
        let TickBuffer { tallies, last, evidence, room, written, .. } = &mut *self.pending.borrow_mut();
        let is_last = tallies.get_index(*last).is_some_and(|(address, _)| address == denial.address);
        let place = if is_last { Some(*last) } else { tallies.get_index_of(denial.address) };
        let place = place.or_else(|| {
            (tallies.len() < ADDRESSES).then(|| {
                let address = CompactString::from(denial.address);
                let written = written.get(&address).cloned().unwrap_or_default();
                tallies.insert_full(address, Tally::new(denial, written)).0
            })
        });
        let tally = place.and_then(|place| tallies.get_index_mut(place));
        let Some(((_, tally), place)) = tally.zip(place) else {
            room.dropped += 1;
            return false;
        };
        *last = place;
        count(tally, room);
        let new = tally.limit(denial);
        new && evidence.len() < EVIDENCE && address::is_identifier_of(denial.identifier, denial.address)
    }

    /// Notes who filled the limit that `denial` was about; `entries` as the store gives them, oldest first.
    pub fn record_evidence(&self, denial: &Denial<'_>, entries: Vec<Arc<Entry>>) {
        let pending = &mut *self.pending.borrow_mut();
        // Asked for before, and answered after others were.
        if pending.evidence.len() < EVIDENCE && !entries.is_empty() {
            pending.evidence.push(Evidence {
                address: denial.address.into(),
                policy: denial.policy,
                identifier: denial.identifier.into(),
                entries,
            });
        }
    }

    /// Hands over what was noted. To be called every 100 ms; never waits.
    pub fn flush(&self) {
        let pending = &mut *self.pending.borrow_mut();
        let mut dropped = std::mem::take(&mut pending.room).dropped;
        pending.remember();
        if !pending.tallies.is_empty() || !pending.evidence.is_empty() {
            let batch = Batch {
                tallies: pending.tallies.drain(..).collect(),
                evidence: std::mem::take(&mut pending.evidence),
                policies: Arc::clone(&self.policies),
            };
            let denied = batch.record();
            if self.queue.try_send(batch).is_err() {
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
    /// Remembers what was written down until the second is over.
    fn remember(&mut self) {
        self.ticks += 1;
        if self.ticks >= SHARE_TICKS {
            (self.ticks, self.written) = (0, HashMap::default());
            return;
        }
        for (address, tally) in self.tallies.iter().filter(|(_, tally)| !tally.records.is_empty()) {
            if self.written.len() >= ADDRESSES {
                return;
            }
            self.written.insert(address.clone(), tally.written.clone());
        }
    }
}

impl Tally {
    /// Whether the request is to be written down, of which the policy keeps `keep`.
    ///
    /// Of an address that was denied no more than that, every request is; of one that floods, those that may stay.
    fn count(
        &mut self,
        denial: &Denial<'_>,
        user: Option<&str>,
        keep: usize,
        room: &mut TickCapacity,
    ) -> bool {
        self.denied += 1;
        let place = user.and_then(|user| self.users.get_index_of(user));
        let place = place.or_else(|| {
            let user = user?;
            if room.users == 0 {
                room.dropped += 1;
                return None;
            }
            room.users -= 1;
            Some(self.users.insert_full(user.into(), UserTally::default()).0)
        });
        let asked = place.and_then(|place| self.users.get_index_mut(place));
        let asked = asked.map_or(&mut self.others, |(_, asked)| asked);
        asked.denied += 1;
        asked.last = asked.last.max(denial.now);
        if keep == 0 {
            return false;
        }
        let written = written(&mut self.written, denial.policy);
        let is_beyond = *written >= keep;
        if is_beyond && (self.over_share >= OVER_SHARE || asked.over_share >= OVER_SHARE_PER_USER) {
            return false;
        }
        if room.records == 0 {
            room.dropped += u64::from(!is_beyond);
            return false;
        }
        self.over_share += u32::from(is_beyond);
        asked.over_share += u32::from(is_beyond);
        *written += 1;
        room.records -= 1;
        true
    }

    /// True where the limit is new.
    fn limit(&mut self, denial: &Denial<'_>) -> bool {
        self.last = self.last.max(denial.now);
        self.until = self.until.max(denial.until);
        let same = |limit: &&mut TalliedLimit| {
            limit.policy == denial.policy && limit.identifier.as_str() == denial.identifier
        };
        if let Some(limit) = self.limits.iter_mut().find(same) {
            limit.until = limit.until.max(denial.until);
            return false;
        }
        // However many users are held back behind the address, its own limits find room.
        let own = address::is_identifier_of(denial.identifier, denial.address);
        if self.limits.len() >= if own { LIMITS } else { LIMITS / 2 } {
            return false;
        }
        let Denial { policy, until, .. } = *denial;
        self.limits.push(TalliedLimit { policy, identifier: denial.identifier.into(), until });
        true
    }
}

/// How many requests of a policy were written down.
fn written(written: &mut RecordCounts, policy: usize) -> &mut usize {
    let place = written.iter().position(|&(of, _)| of == policy).unwrap_or_else(|| {
        written.push((policy, 0));
        written.len() - 1
    });
    &mut written[place].1
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};

    use super::{
        super::super::testing::{entry, policy},
        *,
    };
    use crate::telemetry::testing;

    /// Of the one policy.
    const KEEP: usize = 5;

    fn recorder() -> (Recorder, Receiver<Batch>, Arc<Metrics>) {
        let metrics = Metrics::new(&testing::config(), 1);
        let (queue, batches) = sync_channel(1);
        let names = Arc::new(UserNaming::default());
        let mut policy = policy();
        policy.record.keep = KEEP;
        let policies = Arc::new(RecordPolicies::new(&[policy], 1));
        (Recorder::new(queue, policies, names, Arc::clone(&metrics)), batches, metrics)
    }

    fn denial<'a>(address: &'a str, identifier: &'a str, user: &'a str) -> Denial<'a> {
        Denial { address, policy: 0, identifier, user: Some(user), now: 5, until: 9 }
    }

    /// A tick in which each of `users` is denied at one address: what is handed over of it.
    fn tick(recorder: &Recorder, batches: &Receiver<Batch>, users: &[&str]) -> Tally {
        for user in users {
            recorder.record(&denial("203.0.113.7", "ip:203.0.113.7", user), || entry(5, user));
        }
        recorder.flush();
        batches.try_recv().unwrap().tallies.remove(0).1
    }

    fn written(tally: &Tally) -> Vec<&str> {
        tally.records.iter().filter_map(|(_, entry)| entry.user.as_deref()).collect()
    }

    #[test]
    fn repeats_are_counted_and_cost_no_record() {
        let (recorder, batches, metrics) = recorder();
        let mut built = 0;
        let mut asked = 0;
        for _ in 0..100 {
            let denial = denial("203.0.113.7", "ip:203.0.113.7", "acme");
            asked += usize::from(recorder.record(&denial, || {
                built += 1;
                entry(5, "acme")
            }));
        }
        assert_eq!((built, asked), (KEEP + OVER_SHARE_PER_USER as usize, 1));
        recorder.flush();
        let batch = batches.try_recv().unwrap();
        assert_eq!(batch.record(), 100);
        let tally = &batch.tallies[0].1;
        assert_eq!((tally.limits.len(), tally.users["acme"].denied), (1, 100));
        assert_eq!(metrics.abuse_dropped(), 0);
    }

    #[test]
    fn of_an_address_that_is_denied_no_more_than_is_kept_everything_is_written_down() {
        let (recorder, batches, _) = recorder();
        let first = tick(&recorder, &batches, &["acme", "acme"]);
        assert_eq!(written(&first), ["acme", "acme"]);
        let second = tick(&recorder, &batches, &["acme", "bob", "acme"]);
        assert_eq!(written(&second), ["acme", "bob", "acme"]);
    }

    #[test]
    fn a_flood_is_written_down_once_a_second_and_leaves_room_for_others() {
        let (recorder, batches, _) = recorder();
        let flood: Vec<_> = ["acme"; 1_000].into_iter().chain(["bob"]).collect();
        let first = tick(&recorder, &batches, &flood);
        assert_eq!(written(&first), ["acme", "acme", "acme", "acme", "acme", "acme", "acme", "bob"]);
        for _ in 2..SHARE_TICKS {
            assert_eq!(written(&tick(&recorder, &batches, &flood)), ["acme", "acme", "bob"]);
        }
        tick(&recorder, &batches, &flood);
        assert_eq!(written(&tick(&recorder, &batches, &flood)).len(), 8, "a new second");
        let crowd: Vec<_> = (0..1_000).map(|user| user.to_string()).collect();
        let crowd: Vec<_> = crowd.iter().map(String::as_str).collect();
        assert_eq!(written(&tick(&recorder, &batches, &crowd)).len(), OVER_SHARE as usize);
    }

    #[test]
    fn everybody_is_counted_and_none_beyond_what_there_is_room_for() {
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
        assert!(!recorder.record(&other, || entry(5, "acme")));
        let own = denial("203.0.113.7", "ip:203.0.113.7+path:/a", "acme");
        assert!(recorder.record(&own, || entry(5, "acme")));
        recorder.record_evidence(&own, vec![entry(1, "bob")]);
        recorder.flush();
        assert_eq!(batches.try_recv().unwrap().evidence.len(), 1);
        assert!(recorder.record(&own, || entry(5, "acme")), "a new tick asks anew");
    }

    #[test]
    fn a_request_that_two_limits_hold_back_counts_once() {
        let (recorder, batches, _) = recorder();
        recorder.record(&denial("203.0.113.7", "user:acme", "acme"), || entry(5, "acme"));
        let own = denial("203.0.113.7", "ip:203.0.113.7", "acme");
        assert!(recorder.record_also(&own) && !recorder.record_also(&own));
        recorder.flush();
        let batch = batches.try_recv().unwrap();
        let tally = &batch.tallies[0].1;
        assert_eq!((tally.denied, tally.records.len(), tally.limits.len()), (1, 1, 2));
    }

    #[test]
    fn many_users_held_back_leave_room_for_the_address_s_own_limit() {
        let (recorder, _batches, _) = recorder();
        for user in 0..1_000 {
            let user = user.to_string();
            let other = denial("203.0.113.7", &user, &user);
            assert!(!recorder.record(&other, || entry(5, &user)));
        }
        assert!(recorder.record(&denial("203.0.113.7", "ip:203.0.113.7", "a"), || entry(5, "a")));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let (recorder, batches, metrics) = recorder();
        let addresses: Vec<_> = (0..ADDRESSES + 5).map(|n| format!("10.0.{}.{}", n / 256, n % 256)).collect();
        for address in &addresses {
            recorder.record(&denial(address, "user:acme", "acme"), || entry(5, "acme"));
        }
        recorder.flush();
        assert_eq!(metrics.abuse_dropped(), 5);
        // Nobody took the batch: the next finds the queue full.
        recorder.record(&denial("10.0.0.1", "user:acme", "acme"), || entry(5, "acme"));
        recorder.flush();
        assert_eq!(metrics.abuse_dropped(), 6);
        assert_eq!(batches.try_recv().unwrap().tallies.len(), ADDRESSES);
    }

    #[test]
    fn a_quiet_tick_sends_nothing() {
        let (recorder, batches, _) = recorder();
        recorder.flush();
        assert!(batches.try_recv().is_err());
    }
}
