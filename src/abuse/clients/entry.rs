//! One limited client: what was held back of it, and who was behind it.

use std::{borrow::Cow, sync::Arc};

use compact_str::CompactString;
use ipnet::IpNet;

use super::{
    super::{
        address,
        recording::{
            denial::Tally,
            prepare::{DeniedUser, LimitEvidence},
        },
    },
    history::{DenialHistory, HistoryLimit},
    policies::RecordPolicies,
    publication::PublishState,
};
use crate::limit::algorithm::metadata_list::Entry;

/// What the registry holds of an address. At least one of its accounts is there. Most of a million addresses have one:
/// what others lack lies elsewhere.
#[derive(Debug)]
pub(super) struct ClientEntry {
    /// What this instance knows.
    own: Option<Box<DenialHistory>>,
    /// What all others know, as it was read last.
    others: Option<Box<DenialHistory>>,
    /// Where instances share what they know.
    pub(super) publication: Option<Box<PublishState>>,
}

/// A limited client as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitedClient {
    pub address: IpNet,
    /// `203.0.113.7`, `2001:db8::/64`
    pub shown: CompactString,
    /// The first and the last denial, microseconds since the Unix epoch.
    pub first: i64,
    pub last: i64,
    /// When the last of its limits frees.
    pub until: i64,
    pub denied: u64,
    /// The policies that held it back. Other instances may have others.
    pub policies: Vec<Arc<str>>,
    /// How many users were behind it: exact up to about a hundred, an estimate beyond.
    pub users: u64,
}

/// A request of a limited client: one that filled a limit, or one that was held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    pub policy: Arc<str>,
    pub entry: Arc<Entry>,
}

/// One limit that held a client back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenyingLimit {
    pub policy: Arc<str>,
    pub identifier: CompactString,
}

impl ClientEntry {
    pub(super) fn new(is_shared: bool) -> Self {
        Self { own: None, others: None, publication: is_shared.then(Box::default) }
    }

    /// Adds what a worker counted.
    pub(super) fn add(
        &mut self,
        tally: Tally,
        users: &[DeniedUser],
        shown: &str,
        policies: &RecordPolicies,
        now: i64,
    ) {
        let publication = &mut self.publication;
        let own = self.own.get_or_insert_with(|| Box::new(DenialHistory::new(tally.first)));
        own.add(tally, users, shown, policies, now, |hash, slice| {
            if let Some(publication) = publication {
                publication.users.add(hash, slice);
            }
        });
        if let Some(publication) = publication {
            publication.change(now);
        }
    }

    /// Adds who filled a limit.
    pub(super) fn add_evidence(&mut self, filled: &LimitEvidence, policies: &RecordPolicies, now: i64) {
        // Evidence of a client that was forgotten meanwhile finds none, and goes.
        let (Some(own), publication) = (&mut self.own, &mut self.publication) else { return };
        let is_new = own.add_evidence(filled, policies, now, |hash, slice| {
            if let Some(publication) = publication {
                publication.users.add(hash, slice);
            }
        });
        if let Some(publication) = publication.as_mut().filter(|_| is_new) {
            publication.change(now);
        }
    }

    /// Puts what the others know in the place of what they knew. What was denied until `forgotten` is
    /// void, whoever knows it.
    pub(super) fn replace_peer_view(&mut self, others: Option<DenialHistory>, forgotten: Option<i64>) {
        self.others = others.map(Box::new);
        if self.own.as_ref().is_some_and(|own| forgotten.is_some_and(|since| own.last <= since)) {
            self.own = None;
            if let Some(publication) = &mut self.publication {
                publication.end();
            }
        }
    }

    /// All instances together have counted as many users.
    pub(super) fn count_users(&mut self, users: u64, slice: u32) {
        if let Some(account) = self.others.as_mut().or(self.own.as_mut()) {
            account.users.count(users, slice);
        }
    }

    pub(super) fn own(&self) -> Option<&DenialHistory> {
        self.own.as_deref()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.accounts().next().is_none()
    }

    /// The first and the last denial, wherever they were.
    pub(super) fn first(&self) -> i64 {
        self.accounts().map(|account| account.first).min().unwrap_or(i64::MIN)
    }

    pub(super) fn last(&self) -> i64 {
        self.accounts().map(|account| account.last).max().unwrap_or(i64::MIN)
    }

    /// When the last of its limits frees.
    pub(super) fn until(&self) -> i64 {
        self.accounts().map(|account| account.until).max().unwrap_or(i64::MIN)
    }

    pub(super) fn denied(&self) -> u64 {
        self.accounts().fold(0, |denied, account| denied.saturating_add(account.denied))
    }

    /// The larger of what this instance knows and of what all have told.
    pub(super) fn users(&self) -> u64 {
        self.accounts().map(|account| account.users.len()).max().unwrap_or(0)
    }

    pub(super) fn was_denied_by(&self, policy: &str) -> bool {
        self.accounts().any(|account| account.policies.iter().any(|(of, _)| **of == *policy))
    }

    /// When it is to be published.
    pub(super) fn due(&self) -> Option<i64> {
        self.publication.as_ref()?.due
    }

    /// Forgets records that have expired, and users who were seen too long ago.
    pub(super) fn expire(&mut self, policies: &RecordPolicies, now: i64) {
        for account in self.own.iter_mut().chain(&mut self.others) {
            account.expire(policies, now);
        }
    }

    /// Forgets what can be done without. Says whether there was anything.
    pub(super) fn condense(&mut self) -> bool {
        self.own.iter_mut().chain(&mut self.others).fold(false, |any, account| account.condense() | any)
    }

    /// About how much memory it takes, itself left out.
    pub(super) fn bytes(&self) -> usize {
        let publication = self.publication.as_ref().map_or(0, |publication| publication.bytes());
        self.accounts().map(DenialHistory::bytes).sum::<usize>() + publication
    }

    pub(super) fn to_client(&self, address: IpNet) -> LimitedClient {
        let mut policies = Vec::new();
        for (policy, _) in self.accounts().flat_map(|account| &account.policies) {
            if !policies.contains(policy) {
                policies.push(Arc::clone(policy));
            }
        }
        LimitedClient {
            address,
            shown: address::shown(address),
            first: self.first(),
            last: self.last(),
            until: self.until(),
            denied: self.denied(),
            policies,
            users: self.users(),
        }
    }

    /// Its records, newest first, and the limits that held it back.
    pub(super) fn evidence(
        &self,
        shown: &str,
        policies: &RecordPolicies,
        now: i64,
    ) -> (Vec<RequestRecord>, Vec<DenyingLimit>) {
        let whole = self.whole(shown, policies, now);
        whole.map_or_else(Default::default, |whole| (records(&whole), limits(&whole)))
    }

    fn accounts(&self) -> impl Iterator<Item = &DenialHistory> {
        self.own.iter().chain(&self.others).map(Box::as_ref)
    }

    /// Both accounts as one.
    fn whole(&self, shown: &str, policies: &RecordPolicies, now: i64) -> Option<Cow<'_, DenialHistory>> {
        match (&self.own, &self.others) {
            (Some(own), Some(others)) => {
                let mut whole = DenialHistory::clone(own);
                whole.merge(others, shown, policies, now);
                Some(Cow::Owned(whole))
            }
            (own, others) => own.as_deref().or(others.as_deref()).map(Cow::Borrowed),
        }
    }
}

fn records(account: &DenialHistory) -> Vec<RequestRecord> {
    let kept = account.policies.iter();
    let record = |policy: &Arc<str>, entry: &Arc<Entry>| RequestRecord {
        policy: Arc::clone(policy),
        entry: Arc::clone(entry),
    };
    let records = kept.flat_map(|(policy, kept)| kept.iter().map(move |entry| record(policy, entry)));
    let mut records: Vec<_> = records.collect();
    records.sort_by_key(|record| std::cmp::Reverse(record.entry.time));
    records
}

fn limits(account: &DenialHistory) -> Vec<DenyingLimit> {
    let limited = |held: &HistoryLimit| DenyingLimit {
        policy: Arc::clone(&held.policy),
        identifier: held.identifier.clone(),
    };
    account.limits.iter().map(limited).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::{
            super::{
                recording::prepare::AddressDenials,
                testing::{entry, policy, prepared, tally, tally_of},
            },
            history::LIMITS,
        },
        *,
    };
    use crate::{config::model, limit::Policy};

    const SHOWN: &str = "203.0.113.7";

    /// One that keeps two records.
    fn policies() -> RecordPolicies {
        let record = model::Record { keep: 2, retain: Duration::from_millis(1) };
        RecordPolicies::new(&[Policy { record, ..policy() }], 60_000_000)
    }

    fn add(held: &mut ClientEntry, tally: Tally) {
        let AddressDenials { tally, users, .. } = prepared(tally);
        held.add(tally, &users, SHOWN, &policies(), 10);
    }

    fn told(held: &ClientEntry) -> LimitedClient {
        held.to_client(address::parse(SHOWN).unwrap())
    }

    fn users(held: &ClientEntry) -> Vec<String> {
        let (records, _) = held.evidence(SHOWN, &policies(), 10);
        records.iter().filter_map(|record| record.entry.user.as_deref().map(str::to_owned)).collect()
    }

    #[test]
    fn evidence_sent_twice_adds_nothing() {
        let mut held = ClientEntry::new(true);
        add(&mut held, tally("ip:203.0.113.7", 1, 9));
        let names = crate::abuse::UserNaming::default();
        let named = |entries: &[Arc<Entry>]| entries.iter().map(|entry| names.mask_entry(entry)).collect();
        let mut filled = LimitEvidence {
            address: address::parse(SHOWN).unwrap(),
            policy: 0,
            identifier: "ip:203.0.113.7".into(),
            entries: named(&[entry(1, "a"), entry(2, "b"), entry(3, "c"), entry(4, "c")]),
        };
        held.add_evidence(&filled, &policies(), 10);
        let once = users(&held);
        held.add_evidence(&filled, &policies(), 10);
        assert_eq!(users(&held), once);
        assert_eq!(held.users(), 3, "those whose records are gone count too");
        filled.entries.extend::<Vec<_>>(named(&[entry(5, "d")]));
        held.add_evidence(&filled, &policies(), 10);
        assert_eq!(users(&held), ["d", "c"]);
    }

    #[test]
    fn many_users_behind_an_address_never_push_out_its_own_limits() {
        let mut held = ClientEntry::new(true);
        add(&mut held, tally("ip:203.0.113.7", 1, 2));
        for user in 0..100 {
            add(&mut held, tally(&format!("user:{user}"), 1, 100 + user));
        }
        let (_, limits) = held.evidence(SHOWN, &policies(), 10);
        assert_eq!(limits.len(), LIMITS);
        assert!(limits.iter().any(|limit| limit.identifier == "ip:203.0.113.7"));
        assert!(limits.iter().any(|limit| limit.identifier == "user:99"));
        assert_eq!(held.denied(), 101);
    }

    #[test]
    fn both_accounts_are_told_as_one() {
        let mut held = ClientEntry::new(true);
        add(&mut held, tally_of(&[entry(3, "acme"), entry(4, "acme")], 9));
        let AddressDenials { tally, users: theirs, .. } =
            prepared(tally_of(&[entry(1, "bob"), entry(6, "acme")], 11));
        let mut others = DenialHistory::new(1);
        others.add(tally, &theirs, SHOWN, &policies(), 10, |_, _| {});
        held.replace_peer_view(Some(others.clone()), None);
        let client = told(&held);
        assert_eq!((client.first, client.last, client.until, client.denied, client.users), (1, 6, 11, 4, 2));
        assert_eq!(client.policies, [Arc::from("per-ip")]);
        assert_eq!(users(&held), ["acme", "bob"], "two are kept, and the user with the most makes room");
        let (_, limits) = held.evidence(SHOWN, &policies(), 10);
        assert_eq!(limits.len(), 1);

        held.replace_peer_view(Some(others), Some(4));
        assert_eq!((held.first(), held.denied()), (1, 2), "only theirs were denied after 4");
        held.replace_peer_view(None, Some(4));
        assert!(held.is_empty());
    }

    #[test]
    fn without_its_evidence_an_address_is_small_and_as_it_was() {
        let mut held = ClientEntry::new(false);
        let entries: Vec<_> = (0..200).map(|n| entry(n, &n.to_string())).collect();
        add(&mut held, tally_of(&entries, 300));
        let (before, bytes) = (told(&held), held.bytes());
        assert!(held.condense() && !held.condense());
        assert_eq!(told(&held), before);
        assert!(bytes > 12_000 && held.bytes() < 200, "{bytes} {}", held.bytes());
        add(&mut held, tally_of(&[entry(300, "acme")], 400));
        assert_eq!((users(&held), held.denied()), (vec!["acme".to_owned()], 201));
    }
}
