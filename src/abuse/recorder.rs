//! A worker's notes of denials. On the way of a request: what is here has to be cheap, most of all where
//! the same address is denied again and again.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{Arc, mpsc::SyncSender},
};

use compact_str::CompactString;

use super::{
    Denial, address,
    denial::{Batch, Evidence, Limit, Tally},
    policies::Policies,
};
use crate::{limit::algorithm::metadata_list::Entry, telemetry::metrics::Metrics};

/// Addresses noted a tick; denials of more are dropped.
const ADDRESSES: usize = 1_024;
/// Different limits noted of an address a tick.
const LIMITS: usize = 16;
/// Denied requests written down of an address a tick, and of one user among them: a user who floods
/// leaves room for the others behind the address.
const RECORDS: usize = 16;
const RECORDS_A_USER: usize = 2;
/// How often evidence is asked for a tick, since it is copied from the store.
const EVIDENCE: usize = 32;

/// Notes denials. Belongs to one thread.
#[derive(Debug)]
pub struct Recorder {
    pending: RefCell<Pending>,
    queue: SyncSender<Batch>,
    /// Those whose indexes denials name.
    policies: Arc<Policies>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct Pending {
    tallies: HashMap<CompactString, Tally, foldhash::fast::RandomState>,
    evidence: Vec<Evidence>,
    dropped: u64,
}

impl Recorder {
    pub(super) fn new(queue: SyncSender<Batch>, policies: Arc<Policies>, metrics: Arc<Metrics>) -> Self {
        Self { pending: RefCell::default(), queue, policies, metrics }
    }

    /// Notes that a request was held back, once a request. `entry` is called only where it is written
    /// down.
    ///
    /// True where this limit of the address is new in this tick: whoever knows that its policy is a
    /// `metadata_list` asks the store for its entries, and gives them to [`Recorder::evidence`].
    pub fn denied(&self, denial: &Denial<'_>, entry: impl FnOnce() -> Arc<Entry>) -> bool {
        self.note(denial, |tally| tally.count(denial, entry))
    }

    /// Notes another limit that held the same request back: the request is counted and written down once,
    /// by [`Recorder::denied`], whose answer this gives, too.
    pub fn also(&self, denial: &Denial<'_>) -> bool {
        self.note(denial, |_| {})
    }

    fn note(&self, denial: &Denial<'_>, count: impl FnOnce(&mut Tally)) -> bool {
        let pending = &mut *self.pending.borrow_mut();
        let new = if let Some(tally) = pending.tallies.get_mut(denial.address) {
            count(tally);
            tally.limit(denial)
        } else if pending.tallies.len() < ADDRESSES {
            let address = CompactString::from(denial.address);
            let tally = pending.tallies.entry(address).or_insert_with(|| Tally::new(denial));
            count(tally);
            tally.limit(denial)
        } else {
            pending.dropped += 1;
            false
        };
        new && pending.evidence.len() < EVIDENCE && address::is_of(denial.identifier, denial.address)
    }

    /// Notes who filled the limit that `denial` was about; `entries` as the store gives them, oldest first.
    pub fn evidence(&self, denial: &Denial<'_>, entries: Vec<Arc<Entry>>) {
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
        let mut dropped = std::mem::take(&mut pending.dropped);
        if !pending.tallies.is_empty() || !pending.evidence.is_empty() {
            let batch = Batch {
                tallies: pending.tallies.drain().collect(),
                evidence: std::mem::take(&mut pending.evidence),
                policies: Arc::clone(&self.policies),
            };
            let denied = batch.denied();
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

impl Tally {
    fn new(denial: &Denial<'_>) -> Self {
        Self {
            first: denial.now,
            last: denial.now,
            until: denial.until,
            denied: 0,
            limits: Vec::new(),
            records: Vec::new(),
        }
    }

    fn count(&mut self, denial: &Denial<'_>, entry: impl FnOnce() -> Arc<Entry>) {
        self.denied += 1;
        if self.wants_record(denial.user) {
            self.records.push((denial.policy, entry()));
        }
    }

    /// True where the limit is new.
    fn limit(&mut self, denial: &Denial<'_>) -> bool {
        self.last = self.last.max(denial.now);
        self.until = self.until.max(denial.until);
        let same = |limit: &&mut Limit| {
            limit.policy == denial.policy && limit.identifier.as_str() == denial.identifier
        };
        if let Some(limit) = self.limits.iter_mut().find(same) {
            limit.until = limit.until.max(denial.until);
            return false;
        }
        // However many users are held back behind the address, its own limits find room.
        let own = address::is_of(denial.identifier, denial.address);
        if self.limits.len() >= if own { LIMITS } else { LIMITS / 2 } {
            return false;
        }
        let Denial { policy, until, .. } = *denial;
        self.limits.push(Limit { policy, identifier: denial.identifier.into(), until });
        true
    }

    fn wants_record(&self, user: Option<&str>) -> bool {
        let of_user = |(_, entry): &&(usize, Arc<Entry>)| entry.user.as_deref() == user;
        self.records.len() < RECORDS && self.records.iter().filter(of_user).count() < RECORDS_A_USER
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};

    use super::{super::testing::entry, *};
    use crate::telemetry::testing;

    fn recorder() -> (Recorder, Receiver<Batch>, Arc<Metrics>) {
        let metrics = Metrics::new(&testing::config(), 1);
        let (queue, batches) = sync_channel(1);
        (Recorder::new(queue, Arc::default(), Arc::clone(&metrics)), batches, metrics)
    }

    fn denial<'a>(address: &'a str, identifier: &'a str, user: &'a str) -> Denial<'a> {
        Denial { address, policy: 0, identifier, user: Some(user), now: 5, until: 9 }
    }

    #[test]
    fn repeats_are_counted_and_cost_no_record() {
        let (recorder, batches, metrics) = recorder();
        let mut built = 0;
        let mut asked = 0;
        for _ in 0..100 {
            let denial = denial("203.0.113.7", "ip:203.0.113.7", "acme");
            asked += usize::from(recorder.denied(&denial, || {
                built += 1;
                entry(5, "acme")
            }));
        }
        assert_eq!((built, asked), (RECORDS_A_USER, 1));
        recorder.flush();
        let batch = batches.try_recv().unwrap();
        assert_eq!(batch.denied(), 100);
        assert_eq!(batch.tallies[0].1.limits.len(), 1);
        assert_eq!(metrics.abuse_dropped(), 0);
    }

    #[test]
    fn a_flooding_user_leaves_room_for_others() {
        let (recorder, batches, _) = recorder();
        for user in ["acme"; 1_000].into_iter().chain(["bob"]) {
            recorder.denied(&denial("203.0.113.7", "ip:203.0.113.7", user), || entry(5, user));
        }
        recorder.flush();
        let batch = batches.try_recv().unwrap();
        let users = batch.tallies[0].1.records.iter().map(|(_, entry)| entry.user.as_deref());
        assert_eq!(users.collect::<Vec<_>>(), [Some("acme"), Some("acme"), Some("bob")]);
    }

    #[test]
    fn evidence_is_asked_for_limits_of_the_address_alone() {
        let (recorder, batches, _) = recorder();
        let other = denial("203.0.113.7", "user:acme", "acme");
        assert!(!recorder.denied(&other, || entry(5, "acme")));
        let own = denial("203.0.113.7", "ip:203.0.113.7+path:/a", "acme");
        assert!(recorder.denied(&own, || entry(5, "acme")));
        recorder.evidence(&own, vec![entry(1, "bob")]);
        recorder.flush();
        assert_eq!(batches.try_recv().unwrap().evidence.len(), 1);
        assert!(recorder.denied(&own, || entry(5, "acme")), "a new tick asks anew");
    }

    #[test]
    fn a_request_that_two_limits_hold_back_counts_once() {
        let (recorder, batches, _) = recorder();
        recorder.denied(&denial("203.0.113.7", "user:acme", "acme"), || entry(5, "acme"));
        let own = denial("203.0.113.7", "ip:203.0.113.7", "acme");
        assert!(recorder.also(&own) && !recorder.also(&own));
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
            assert!(!recorder.denied(&other, || entry(5, &user)));
        }
        assert!(recorder.denied(&denial("203.0.113.7", "ip:203.0.113.7", "a"), || entry(5, "a")));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let (recorder, batches, metrics) = recorder();
        let addresses: Vec<_> = (0..ADDRESSES + 5).map(|n| format!("10.0.{}.{}", n / 256, n % 256)).collect();
        for address in &addresses {
            recorder.denied(&denial(address, "user:acme", "acme"), || entry(5, "acme"));
        }
        recorder.flush();
        assert_eq!(metrics.abuse_dropped(), 5);
        // Nobody took the batch: the next finds the queue full.
        recorder.denied(&denial("10.0.0.1", "user:acme", "acme"), || entry(5, "acme"));
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
