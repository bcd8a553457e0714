//! One limited client: what was held back of it, and who was behind it.

use std::{borrow::Cow, sync::Arc};

use compact_str::CompactString;
use ipnet::IpNet;

use super::{
    account::{Account, HeldLimit},
    address,
    denial::{Evidence, Tally},
    policies::Policies,
};
use crate::limit::algorithm::metadata_list::Entry;

/// What an address takes without its accounts: an estimate.
const BASE: usize = 256;

/// What the registry holds of an address. At least one of its accounts is there.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) shown: CompactString,
    address: IpNet,
    /// What this instance knows.
    own: Option<Account>,
    /// What all others know, as it was read last.
    others: Option<Account>,
    /// The change of the archive up to which they were read.
    pub(super) read: Option<i64>,
    pub(super) publication: Publication,
}

/// What the archive is still to be told of the own account.
#[derive(Debug, Default)]
pub(super) struct Publication {
    /// Changes so far: which of them were told can be said later.
    pub(super) changes: u64,
    /// When it was told last.
    pub(super) told: Option<i64>,
    /// When it is to be told, where there is anything to tell.
    pub(super) due: Option<i64>,
}

/// A limited client as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
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
    /// How many users were behind it; [`USERS`](super::USERS) stands for at least as many.
    pub users: usize,
}

/// A request of a limited client: one that filled a limit, or one that was held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub policy: Arc<str>,
    pub entry: Arc<Entry>,
}

/// One limit that held a client back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limited {
    pub policy: Arc<str>,
    pub identifier: CompactString,
}

impl Held {
    pub(super) fn new(address: IpNet) -> Self {
        Self {
            shown: address::shown(address),
            address,
            own: None,
            others: None,
            read: None,
            publication: Publication::default(),
        }
    }

    /// Adds what a worker counted.
    pub(super) fn add(&mut self, tally: Tally, policies: &Policies, now: i64) {
        let own = self.own.get_or_insert_with(|| Account::new(tally.first));
        own.add(tally, &self.shown, policies, now);
        self.publication.change(now);
    }

    /// Adds who filled a limit.
    pub(super) fn add_evidence(&mut self, evidence: &Evidence, policies: &Policies, now: i64) {
        // Evidence of a client that was forgotten meanwhile finds none, and goes.
        if let Some(own) = &mut self.own
            && own.add_evidence(evidence, policies, now)
        {
            self.publication.change(now);
        }
    }

    /// Puts what the others know in the place of what they knew. What was denied until `forgotten` is
    /// void, whoever knows it.
    pub(super) fn replace_others(&mut self, others: Option<Account>, forgotten: Option<i64>) {
        self.others = others;
        if self.own.as_ref().is_some_and(|own| forgotten.is_some_and(|since| own.last <= since)) {
            self.own = None;
            self.publication.due = None;
        }
    }

    pub(super) fn own(&self) -> Option<&Account> {
        self.own.as_ref()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.accounts().next().is_none()
    }

    /// The last denial, wherever it was.
    pub(super) fn last(&self) -> i64 {
        self.accounts().map(|account| account.last).max().unwrap_or(i64::MIN)
    }

    /// Forgets the records that have expired.
    pub(super) fn expire(&mut self, policies: &Policies, now: i64) {
        for account in self.own.iter_mut().chain(&mut self.others) {
            account.expire(policies, now);
        }
    }

    /// About how much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        BASE + self.accounts().map(Account::bytes).sum::<usize>()
    }

    pub(super) fn told(&self) -> Client {
        let mut policies = Vec::new();
        for policy in self.accounts().flat_map(|account| &account.policies) {
            if !policies.contains(policy) {
                policies.push(Arc::clone(policy));
            }
        }
        let users = match (&self.own, &self.others) {
            (Some(own), Some(others)) => own.users.len_with(&others.users),
            _ => self.accounts().map(|account| account.users.len()).sum(),
        };
        Client {
            address: self.address,
            shown: self.shown.clone(),
            first: self.accounts().map(|account| account.first).min().unwrap_or(i64::MIN),
            last: self.last(),
            until: self.accounts().map(|account| account.until).max().unwrap_or(i64::MIN),
            denied: self.accounts().fold(0, |denied, account| denied.saturating_add(account.denied)),
            policies,
            users,
        }
    }

    /// Its records, newest first, and the limits that held it back.
    pub(super) fn evidence(&self, policies: &Policies, now: i64) -> (Vec<Record>, Vec<Limited>) {
        self.whole(policies, now).map_or_else(Default::default, |whole| (records(&whole), limits(&whole)))
    }

    fn accounts(&self) -> impl Iterator<Item = &Account> {
        self.own.iter().chain(&self.others)
    }

    /// Both accounts as one.
    fn whole(&self, policies: &Policies, now: i64) -> Option<Cow<'_, Account>> {
        match (&self.own, &self.others) {
            (Some(own), Some(others)) => {
                let mut whole = own.clone();
                whole.merge(others, &self.shown, policies, now);
                Some(Cow::Owned(whole))
            }
            (own, others) => own.as_ref().or(others.as_ref()).map(Cow::Borrowed),
        }
    }
}

impl Publication {
    /// Microseconds between two times that a client is told.
    const INTERVAL: i64 = 1_000_000;

    /// There is something to tell: at once, or when the last time is long enough ago.
    pub(super) fn change(&mut self, now: i64) {
        self.changes += 1;
        let due = self.told.map_or(now, |told| now.max(told.saturating_add(Self::INTERVAL)));
        self.due.get_or_insert(due);
    }

    /// The account was told as it was after so many `changes`.
    pub(super) fn told(&mut self, changes: u64, now: i64) {
        self.told = Some(now);
        self.due = (self.changes != changes).then(|| now.saturating_add(Self::INTERVAL));
    }
}

fn records(account: &Account) -> Vec<Record> {
    let kept = account.kept.iter();
    let record = |policy: &Arc<str>, entry: &Arc<Entry>| Record {
        policy: Arc::clone(policy),
        entry: Arc::clone(entry),
    };
    let records = kept.flat_map(|(policy, kept)| kept.iter().map(move |entry| record(policy, entry)));
    let mut records: Vec<_> = records.collect();
    records.sort_by_key(|record| std::cmp::Reverse(record.entry.time));
    records
}

fn limits(account: &Account) -> Vec<Limited> {
    let limited =
        |held: &HeldLimit| Limited { policy: Arc::clone(&held.policy), identifier: held.identifier.clone() };
    account.limits.iter().map(limited).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::{
            USERS,
            account::LIMITS,
            denial::Limit,
            testing::{entry, policy},
        },
        *,
    };
    use crate::{config::model, limit::Policy};

    /// One that keeps two records.
    fn policies() -> Policies {
        let record = model::Record { keep: 2, retain: Duration::from_millis(1) };
        Policies::new(&[Policy { record, ..policy() }])
    }

    fn tally(identifier: &str, until: i64) -> Tally {
        let limits = vec![Limit { policy: 0, identifier: identifier.into(), until }];
        Tally { first: 1, last: 1, until, denied: 1, limits, records: Vec::new() }
    }

    fn held() -> Held {
        Held::new(address::parse("203.0.113.7").unwrap())
    }

    fn users(held: &Held) -> Vec<String> {
        let (records, _) = held.evidence(&policies(), 10);
        records.iter().filter_map(|record| record.entry.user.as_deref().map(str::to_owned)).collect()
    }

    #[test]
    fn evidence_sent_twice_adds_nothing() {
        let mut held = held();
        held.add(tally("ip:203.0.113.7", 9), &policies(), 10);
        let mut evidence = Evidence {
            address: "203.0.113.7".into(),
            policy: 0,
            identifier: "ip:203.0.113.7".into(),
            entries: vec![entry(1, "a"), entry(2, "b"), entry(3, "c"), entry(4, "c")],
        };
        held.add_evidence(&evidence, &policies(), 10);
        let once = users(&held);
        held.add_evidence(&evidence, &policies(), 10);
        assert_eq!(users(&held), once);
        assert_eq!(held.told().users, 3, "those whose records are gone count too");
        evidence.entries.push(entry(5, "d"));
        held.add_evidence(&evidence, &policies(), 10);
        assert_eq!(users(&held), ["d", "c"]);
    }

    #[test]
    fn many_users_behind_an_address_never_push_out_its_own_limits() {
        let mut held = held();
        held.add(tally("ip:203.0.113.7", 2), &policies(), 10);
        for user in 0..100 {
            held.add(tally(&format!("user:{user}"), 100 + user), &policies(), 10);
        }
        let (_, limits) = held.evidence(&policies(), 10);
        assert_eq!(limits.len(), LIMITS);
        assert!(limits.iter().any(|limit| limit.identifier == "ip:203.0.113.7"));
        assert!(limits.iter().any(|limit| limit.identifier == "user:99"));
        assert_eq!(held.told().denied, 101);
    }

    #[test]
    fn users_are_counted_up_to_a_bound() {
        let mut held = held();
        let users = (0..USERS + 10).map(|user| (0, entry(1, &user.to_string())));
        let tally = Tally { records: users.collect(), ..tally("ip:203.0.113.7", 9) };
        held.add(tally, &policies(), 10);
        assert_eq!(held.told().users, USERS);
    }

    #[test]
    fn both_accounts_are_told_as_one() {
        let mut held = held();
        let tally =
            |first, last, records| Tally { first, last, records, ..tally("ip:203.0.113.7", last + 5) };
        held.add(tally(3, 4, vec![(0, entry(3, "acme")), (0, entry(4, "acme"))]), &policies(), 10);
        let mut others = Account::new(1);
        let theirs = vec![(0, entry(1, "bob")), (0, entry(6, "acme"))];
        others.add(tally(1, 6, theirs), &held.shown, &policies(), 10);
        held.replace_others(Some(others.clone()), None);
        let told = held.told();
        assert_eq!((told.first, told.last, told.until, told.denied, told.users), (1, 6, 11, 2, 2));
        assert_eq!(told.policies, [Arc::from("per-ip")]);
        assert_eq!(users(&held), ["acme", "bob"], "two are kept, and the user with the most makes room");
        let (_, limits) = held.evidence(&policies(), 10);
        assert_eq!(limits.len(), 1);

        held.replace_others(Some(others), Some(4));
        assert_eq!((held.told().first, held.told().denied), (1, 1), "only theirs were denied after 4");
        held.replace_others(None, Some(4));
        assert!(held.is_empty());
    }

    #[test]
    fn an_account_is_told_at_once_and_then_once_a_second() {
        const SECOND: i64 = Publication::INTERVAL;
        let mut publication = Publication::default();
        publication.change(5);
        assert_eq!(publication.due, Some(5));
        publication.change(7);
        assert_eq!(publication.due, Some(5));
        publication.told(2, 9);
        assert_eq!(publication.due, None);
        publication.change(10);
        assert_eq!(publication.due, Some(9 + SECOND));
        publication.change(11);
        publication.told(3, SECOND * 2);
        assert_eq!(publication.due, Some(SECOND * 3), "what came meanwhile");
        publication.told(4, SECOND * 3);
        publication.change(SECOND * 9);
        assert_eq!(publication.due, Some(SECOND * 9));
    }
}
