//! One limited client: its denials, and the users behind it.

use std::{borrow::Cow, sync::Arc};

use compact_str::CompactString;
use ipnet::IpNet;

use super::{
    super::{
        address,
        hint::{self, Behind, Hint},
        recording::{
            denial::DenialTally,
            masking::{DeniedUser, LimitEvidence},
            response::ResponseTally,
        },
        traffic::{Traffic, TrafficHistory, path_hash},
    },
    history::{DenialHistory, HistoryLimit},
    policies::RecordPolicies,
    publication::PublishState,
    unblock::Unblock,
};
use crate::{limit::algorithm::metadata_list::Entry, memory_budget::heap};

/// The registry's records of an address, with at least one history. Most of a million addresses have only one, so
/// they are boxed.
#[derive(Debug)]
pub(super) struct ClientEntry {
    /// This instance's records.
    own: Option<Box<DenialHistory>>,
    /// The combined records of all others, as of the last read.
    others: Option<Box<DenialHistory>>,
    /// The last unblock.
    unblocked: Option<Box<Unblock>>,
    /// `None` if there are no other instances.
    pub(super) publication: Option<Box<PublishState>>,
}

/// A limited client for the admin port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitedClient {
    pub address: IpNet,
    /// `203.0.113.7`, `2001:db8::/64`
    pub shown: CompactString,
    /// The first and the last denial, microseconds since the Unix epoch.
    pub first: i64,
    pub last: i64,
    /// The end of the last of its limits.
    pub until: i64,
    /// The last unblock. The client may have been denied again since.
    pub unblocked: Option<Unblock>,
    pub denied: u64,
    /// The policies that denied it. Other instances may have other policies.
    pub policies: Vec<Arc<str>>,
    /// Number of distinct users: exact up to about a hundred, an estimate beyond.
    pub users: u64,
    /// The kind of client that it seems to be.
    pub hint: Hint,
    /// The reasons for the hint, in a sentence.
    pub reasons: String,
}

/// A request of a limited client: one that filled a limit, or one that was denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    pub policy: Arc<str>,
    pub entry: Arc<Entry>,
}

/// One limit that denied a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenyingLimit {
    pub policy: Arc<str>,
    pub identifier: CompactString,
    /// Its end, unless it was reset meanwhile.
    pub until: i64,
}

impl ClientEntry {
    pub(super) fn new(is_shared: bool) -> Self {
        Self { own: None, others: None, unblocked: None, publication: is_shared.then(Box::default) }
    }

    /// Adds the tally of a worker.
    pub(super) fn add(
        &mut self,
        tally: DenialTally,
        users: &[DeniedUser],
        address_text: &str,
        policies: &RecordPolicies,
        now: i64,
    ) {
        let publication = &mut self.publication;
        let own = self.own.get_or_insert_with(|| Box::new(DenialHistory::new(tally.first)));
        own.add(tally, users, address_text, policies, now, |hash, slice| {
            if let Some(publication) = publication {
                publication.users.add(hash, slice);
            }
        });
        if let Some(publication) = publication {
            publication.change(now);
        }
    }

    /// Adds the requests that filled a limit.
    pub(super) fn add_evidence(&mut self, evidence: &LimitEvidence, policies: &RecordPolicies, now: i64) {
        // Its denials may have been evicted meanwhile.
        let (Some(own), publication) = (&mut self.own, &mut self.publication) else { return };
        let is_new = own.add_evidence(evidence, policies, now, |hash, slice| {
            if let Some(publication) = publication {
                publication.users.add(hash, slice);
            }
        });
        if let Some(publication) = publication.as_mut().filter(|_| is_new) {
            publication.change(now);
        }
    }

    /// Adds requests with a response. False if this instance has denied the client nothing.
    pub(super) fn add_responses(
        &mut self,
        tally: &ResponseTally,
        policies: &RecordPolicies,
        now: i64,
    ) -> bool {
        let Some(own) = &mut self.own else { return false };
        own.add_traffic(&tally.traffic, tally.last, policies);
        if let Some(publication) = &mut self.publication {
            publication.change_later(now);
        }
        true
    }

    /// Adds the client's traffic before its first denial.
    pub(super) fn add_earlier_traffic(&mut self, traffic: &TrafficHistory) {
        if let Some(own) = &mut self.own {
            own.traffic.merge(traffic);
        }
    }

    /// Replaces the records of the other instances.
    pub(super) fn replace_peer_view(&mut self, others: Option<DenialHistory>, unblocked: Option<Unblock>) {
        self.others = others.map(Box::new);
        if let (Some(others), Some(own)) = (&mut self.others, &self.own) {
            // All instances share one list of records.
            others.remove_known(own);
        }
        if let Some(unblocked) = unblocked {
            self.unblock(unblocked);
        }
    }

    /// Ends the limits of earlier denials.
    pub(super) fn unblock(&mut self, unblock: Unblock) {
        for history in self.own.iter_mut().chain(&mut self.others) {
            history.end_limits(unblock.time);
        }
        // An unblock whose author is not known yet is read from the archive soon.
        if !unblock.by.is_empty() || self.unblocked.is_none() {
            self.unblocked = Some(Box::new(unblock));
        }
    }

    pub(super) fn unblocked(&self) -> Option<&Unblock> {
        self.unblocked.as_deref()
    }

    /// Sets the number of users that all instances together have counted.
    pub(super) fn count_users(&mut self, users: u64, slice: u32) {
        if let Some(history) = self.others.as_mut().or(self.own.as_mut()) {
            history.users.remember_count(users, slice);
        }
    }

    pub(super) fn own(&self) -> Option<&DenialHistory> {
        self.own.as_deref()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.histories().next().is_none()
    }

    /// The first denial at any instance.
    pub(super) fn first(&self) -> i64 {
        self.histories().map(|history| history.first).min().unwrap_or(i64::MIN)
    }

    pub(super) fn last(&self) -> i64 {
        self.histories().map(|history| history.last).max().unwrap_or(i64::MIN)
    }

    /// The end of the last of its limits.
    pub(super) fn until(&self) -> i64 {
        self.histories().map(|history| history.until).max().unwrap_or(i64::MIN)
    }

    pub(super) fn denied(&self) -> u64 {
        self.histories().fold(0, |denied, history| denied.saturating_add(history.denied))
    }

    /// The larger of this instance's count and the count of all instances.
    pub(super) fn users(&self) -> u64 {
        self.histories().map(|history| history.users.len()).max().unwrap_or(0)
    }

    /// The kind of client that it seems to be, from the records of all instances.
    pub(super) fn hint(&self) -> Hint {
        hint::classify(self.users(), &self.traffic())
    }

    fn traffic(&self) -> Traffic {
        let mut histories = self.histories().map(|history| &history.traffic);
        let mut all = histories.next().cloned().unwrap_or_default();
        histories.for_each(|traffic| all.merge(traffic));
        all.total()
    }

    /// The path that it requests most, as long as a record has it.
    fn top_path(&self, traffic: &Traffic) -> Option<&str> {
        let (top, _) = traffic.top_path()?;
        let buffers = self.histories().flat_map(|history| &history.policies);
        let mut paths = buffers.flat_map(|(_, buffer)| buffer.iter()).map(|entry| entry.path.as_str());
        paths.find(|path| path_hash(path) == top)
    }

    pub(super) fn was_denied_by(&self, policy: &str) -> bool {
        self.histories().any(|history| history.policies.iter().any(|(name, _)| **name == *policy))
    }

    /// When it is due to be published.
    pub(super) fn due(&self) -> Option<i64> {
        self.publication.as_ref()?.due
    }

    /// Removes expired records, and users seen too long ago.
    pub(super) fn expire(&mut self, policies: &RecordPolicies, now: i64) {
        for history in self.own.iter_mut().chain(&mut self.others) {
            history.expire(policies, now);
        }
    }

    /// Drops records, limits and users' identities, but keeps the counts. True if there was anything to drop.
    pub(super) fn drop_evidence(&mut self) -> bool {
        self.own.iter_mut().chain(&mut self.others).fold(false, |any, history| history.drop_evidence() | any)
    }

    /// Bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        let publication = self.publication.as_ref().map_or(0, |publication| publication.bytes());
        let unblocked = self
            .unblocked
            .as_ref()
            .map_or(0, |unblocked| heap::array::<Unblock>(1) + heap::block(unblocked.by.capacity()));
        self.histories().map(DenialHistory::bytes).sum::<usize>() + publication + unblocked
    }

    pub(super) fn to_client(&self, address: IpNet) -> LimitedClient {
        let mut policies = Vec::new();
        for (policy, _) in self.histories().flat_map(|history| &history.policies) {
            if !policies.contains(policy) {
                policies.push(Arc::clone(policy));
            }
        }
        let (users, traffic) = (self.users(), self.traffic());
        let hint = hint::classify(users, &traffic);
        LimitedClient {
            address,
            shown: address::shown(address),
            first: self.first(),
            last: self.last(),
            until: self.until(),
            unblocked: self.unblocked().cloned(),
            denied: self.denied(),
            policies,
            users,
            hint,
            reasons: hint::reasons(
                hint,
                Behind { count: users, noun: "user" },
                &traffic,
                self.top_path(&traffic),
            ),
        }
    }

    /// Its records, newest first, and the limits that denied it.
    pub(super) fn evidence(
        &self,
        address_text: &str,
        policies: &RecordPolicies,
        now: i64,
    ) -> (Vec<RequestRecord>, Vec<DenyingLimit>) {
        let merged = self.merged_history(address_text, policies, now);
        merged.map_or_else(Default::default, |merged| (records(&merged), limits(&merged)))
    }

    fn histories(&self) -> impl Iterator<Item = &DenialHistory> {
        self.own.iter().chain(&self.others).map(Box::as_ref)
    }

    /// Both histories merged into one.
    fn merged_history(
        &self,
        address_text: &str,
        policies: &RecordPolicies,
        now: i64,
    ) -> Option<Cow<'_, DenialHistory>> {
        match (&self.own, &self.others) {
            (Some(own), Some(others)) => {
                let mut merged = DenialHistory::clone(own);
                merged.merge(others, address_text, policies, now);
                Some(Cow::Owned(merged))
            }
            (own, others) => own.as_deref().or(others.as_deref()).map(Cow::Borrowed),
        }
    }
}

fn records(history: &DenialHistory) -> Vec<RequestRecord> {
    let record = |policy: &Arc<str>, entry: &Arc<Entry>| RequestRecord {
        policy: Arc::clone(policy),
        entry: Arc::clone(entry),
    };
    let records = history
        .policies
        .iter()
        .flat_map(|(policy, buffer)| buffer.iter().map(move |entry| record(policy, entry)));
    let mut records: Vec<_> = records.collect();
    records.sort_by_key(|record| std::cmp::Reverse(record.entry.time));
    records
}

fn limits(history: &DenialHistory) -> Vec<DenyingLimit> {
    let limited = |limit: &HistoryLimit| DenyingLimit {
        policy: Arc::clone(&limit.policy),
        identifier: limit.identifier.clone(),
        until: limit.until,
    };
    history.limits.iter().map(limited).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::{
            super::{
                recording::masking::AddressDenials,
                testing::{entry, masked, policy, tally, tally_of},
            },
            history::LIMITS,
        },
        *,
    };
    use crate::{config::model, limit::Policy};

    const SHOWN: &str = "203.0.113.7";

    /// With a policy that keeps two records.
    fn policies() -> RecordPolicies {
        let record = model::RecordedFields { keep: 2, retain: Duration::from_millis(1) };
        RecordPolicies::new(&[Policy { record, ..policy() }], 60_000_000)
    }

    fn add(address_entry: &mut ClientEntry, tally: DenialTally) {
        let AddressDenials { tally, users, .. } = masked(tally);
        address_entry.add(tally, &users, SHOWN, &policies(), 10);
    }

    fn to_client(address_entry: &ClientEntry) -> LimitedClient {
        address_entry.to_client(address::parse(SHOWN).unwrap())
    }

    fn users(address_entry: &ClientEntry) -> Vec<String> {
        let (records, _) = address_entry.evidence(SHOWN, &policies(), 10);
        records.iter().filter_map(|record| record.entry.user.as_deref().map(str::to_owned)).collect()
    }

    #[test]
    fn evidence_sent_twice_adds_nothing() {
        let mut address_entry = ClientEntry::new(true);
        add(&mut address_entry, tally("ip:203.0.113.7", 1, 9));
        let names = crate::abuse::UserNaming::default();
        let named = |entries: &[Arc<Entry>]| entries.iter().map(|entry| names.mask_entry(entry)).collect();
        let mut evidence = LimitEvidence {
            address: address::parse(SHOWN).unwrap(),
            policy: 0,
            identifier: "ip:203.0.113.7".into(),
            entries: named(&[entry(1, "a"), entry(2, "b"), entry(3, "c"), entry(4, "c")]),
        };
        address_entry.add_evidence(&evidence, &policies(), 10);
        let once = users(&address_entry);
        address_entry.add_evidence(&evidence, &policies(), 10);
        assert_eq!(users(&address_entry), once);
        assert_eq!(address_entry.users(), 3, "those whose records are gone count too");
        evidence.entries.extend::<Vec<_>>(named(&[entry(5, "d")]));
        address_entry.add_evidence(&evidence, &policies(), 10);
        assert_eq!(users(&address_entry), ["d", "c"]);
    }

    #[test]
    fn many_users_behind_an_address_never_push_out_its_own_limits() {
        let mut address_entry = ClientEntry::new(true);
        add(&mut address_entry, tally("ip:203.0.113.7", 1, 2));
        for user in 0..100 {
            add(&mut address_entry, tally(&format!("user:{user}"), 1, 100 + user));
        }
        let (_, limits) = address_entry.evidence(SHOWN, &policies(), 10);
        assert_eq!(limits.len(), LIMITS);
        assert!(limits.iter().any(|limit| limit.identifier == "ip:203.0.113.7"));
        assert!(limits.iter().any(|limit| limit.identifier == "user:99"));
        assert_eq!(address_entry.denied(), 101);
    }

    #[test]
    fn both_histories_are_shown_as_one() {
        let mut address_entry = ClientEntry::new(true);
        add(&mut address_entry, tally_of(&[entry(3, "acme"), entry(4, "acme")], 9));
        let AddressDenials { tally, users: theirs, .. } =
            masked(tally_of(&[entry(1, "bob"), entry(6, "acme")], 11));
        let mut others = DenialHistory::new(1);
        others.add(tally, &theirs, SHOWN, &policies(), 10, |_, _| {});
        address_entry.replace_peer_view(Some(others.clone()), None);
        let client = to_client(&address_entry);
        assert_eq!((client.first, client.last, client.until, client.denied, client.users), (1, 6, 11, 4, 2));
        assert_eq!(client.policies, [Arc::from("per-ip")]);
        assert_eq!(
            users(&address_entry),
            ["acme", "bob"],
            "two are kept, and the user with the most makes room"
        );
        let (_, limits) = address_entry.evidence(SHOWN, &policies(), 10);
        assert_eq!(limits.len(), 1);

        let unblock = |time, by: &str| Some(Unblock { time, by: by.to_owned() });
        address_entry.replace_peer_view(Some(others), unblock(4, "ann"));
        assert_eq!(address_entry.until(), 11, "they denied after 4");
        address_entry.replace_peer_view(None, unblock(5, ""));
        let client = to_client(&address_entry);
        assert_eq!((client.until, client.denied, client.unblocked), (4, 2, unblock(4, "ann")));
    }

    #[test]
    fn dropping_evidence_shrinks_an_entry_and_keeps_its_counts() {
        let mut address_entry = ClientEntry::new(false);
        let entries: Vec<_> = (0..200).map(|n| entry(n, &n.to_string())).collect();
        add(&mut address_entry, tally_of(&entries, 300));
        let (before, bytes) = (to_client(&address_entry), address_entry.bytes());
        assert!(address_entry.drop_evidence() && !address_entry.drop_evidence());
        assert_eq!(to_client(&address_entry), before);
        assert!(bytes > 12_000 && address_entry.bytes() < 330, "{bytes} {}", address_entry.bytes());
        add(&mut address_entry, tally_of(&[entry(300, "acme")], 400));
        assert_eq!((users(&address_entry), address_entry.denied()), (vec!["acme".to_owned()], 201));
    }
}
