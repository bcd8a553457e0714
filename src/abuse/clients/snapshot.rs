//! What one instance holds of a limited client, as it is told to the others. Whole, not a difference: told
//! twice or never, it does no harm.

use std::{cmp::Reverse, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    super::UserNaming,
    history::{DenialHistory, HistoryLimit, LIMITS},
    policies::RecordPolicies,
};
use crate::limit::algorithm::metadata_list::Entry;

/// The layout of snapshots. Another one's are not read.
const VERSION: u32 = 2;
/// Bytes of a name, an identifier or a path. More than any instance writes.
const LONGEST: usize = 1_024;
/// Microseconds that another instance's clock may be ahead of ours.
const AHEAD: i64 = 60_000_000;

/// A client as one instance knows it. Times are microseconds since the Unix epoch. Policies have their
/// names, since each instance may have others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSnapshot {
    version: u32,
    /// The first and the last denial.
    pub first: i64,
    pub last: i64,
    /// When the last of its limits frees.
    pub until: i64,
    pub denied: u64,
    pub policies: Vec<String>,
    pub limits: Vec<LimitSnapshot>,
    /// How many this instance has counted. Who they are is in sketches that all instances share.
    pub users: u64,
    /// By policy, oldest first.
    pub records: Vec<RequestSnapshot>,
}

/// A limit that held the client back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitSnapshot {
    pub policy: String,
    pub identifier: String,
    pub until: i64,
}

/// A request of the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestSnapshot {
    pub policy: String,
    pub time: i64,
    pub user: Option<String>,
    pub method: String,
    pub path: String,
}

impl ClientSnapshot {
    pub(super) fn of(account: &DenialHistory) -> Self {
        let limit = |held: &HistoryLimit| LimitSnapshot {
            policy: held.policy.to_string(),
            identifier: held.identifier.to_string(),
            until: held.until,
        };
        let kept = account.policies.iter();
        let records = kept.flat_map(|(policy, kept)| kept.iter().map(|entry| record(policy, entry)));
        Self {
            version: VERSION,
            first: account.first,
            last: account.last,
            until: account.until,
            denied: account.denied,
            policies: account.policies.iter().map(|(policy, _)| policy.to_string()).collect(),
            limits: account.limits.iter().map(limit).collect(),
            users: account.users.len(),
            records: records.collect(),
        }
    }

    /// Whether it is of the layout that is read here.
    pub fn is_current(&self) -> bool {
        self.version == VERSION
    }

    /// Drops the older half of the records. False where there is none.
    pub fn shorten(&mut self) -> bool {
        self.records.sort_by_key(|record| Reverse(record.time));
        let any = !self.records.is_empty();
        self.records.truncate(self.records.len() / 2);
        any
    }

    /// The account that it is of. It comes from outside: whatever in it no instance writes is left out.
    /// `shown`: the client's address.
    pub(super) fn into_account(
        self,
        shown: &str,
        policies: &RecordPolicies,
        names: &UserNaming,
        now: i64,
    ) -> DenialHistory {
        let latest = now.saturating_add(AHEAD);
        let mut account = DenialHistory::new(self.first.min(latest));
        account.span(account.first, self.last.min(latest), self.until, self.denied);
        for policy in self.policies.iter().filter(|policy| short(policy)) {
            account.add_policy(&policies.intern(policy));
        }
        for limit in self.limits.into_iter().take(LIMITS) {
            if short(&limit.policy) && short(&limit.identifier) {
                let policy = policies.intern(&limit.policy);
                account.add_limit(
                    HistoryLimit::new(policy, names.mask_key(&limit.identifier).into(), limit.until),
                    shown,
                );
            }
        }
        account.users.count(self.users, policies.slice(now));
        for record in self.records.into_iter().filter(|record| record.time <= latest) {
            let Some((policy, entry)) = record.into_entry() else { continue };
            let policy = policies.intern(&policy);
            if let Some(kept) = account.kept(&policy) {
                kept.insert(&names.mask_entry(&Arc::new(entry)).0, policies.bounds(&policy), now);
            }
        }
        account.settle(policies);
        account
    }
}

impl RequestSnapshot {
    fn into_entry(self) -> Option<(String, Entry)> {
        let Self { policy, time, user, method, path } = self;
        let texts = [&policy, user.as_ref().unwrap_or(&path), &path, &method];
        let method = http::Method::from_bytes(method.as_bytes())
            .ok()
            .filter(|_| texts.into_iter().all(|text| short(text)))?;
        Some((policy, Entry { time, user: user.map(Into::into), method, path: path.into() }))
    }
}

fn record(policy: &str, entry: &Entry) -> RequestSnapshot {
    RequestSnapshot {
        policy: policy.to_owned(),
        time: entry.time,
        user: entry.user.as_deref().map(str::to_owned),
        method: entry.method.to_string(),
        path: entry.path.to_string(),
    }
}

fn short(text: &str) -> bool {
    text.len() <= LONGEST
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{
            recording::prepare::AddressDenials,
            testing::{entry, names, policy, prepared, tally_of},
        },
        *,
    };
    use crate::config::model::Users;

    const NOW: i64 = 1_783_080_001_000_000;

    fn policies() -> RecordPolicies {
        RecordPolicies::new(&[policy()], 60_000_000)
    }

    fn account(policies: &RecordPolicies) -> DenialHistory {
        let tally = tally_of(&[entry(NOW - 2, "acme"), entry(NOW - 1, "bob")], NOW + 9);
        let AddressDenials { tally, users, .. } = prepared(tally);
        let mut account = DenialHistory::new(tally.first);
        account.add(tally, &users, "203.0.113.7", policies, NOW, |_, _| {});
        account
    }

    fn read(snapshot: ClientSnapshot, policies: &RecordPolicies) -> DenialHistory {
        snapshot.into_account("203.0.113.7", policies, &UserNaming::default(), NOW)
    }

    #[test]
    fn an_account_is_read_as_it_was_told() {
        let policies = policies();
        let told = ClientSnapshot::of(&account(&policies));
        assert_eq!(told.users, 2);
        let json = serde_json::to_string(&told).unwrap();
        let again: ClientSnapshot = serde_json::from_str(&json).unwrap();
        assert_eq!(again, told);
        assert_eq!(ClientSnapshot::of(&read(again, &policies)), told);
    }

    #[test]
    fn what_another_instance_wrote_in_the_clear_is_hashed() {
        let policies = policies();
        let mut told = ClientSnapshot::of(&account(&policies));
        told.limits.push(LimitSnapshot { policy: "x".into(), identifier: "user:acme".into(), until: NOW });
        let account = told.into_account("203.0.113.7", &policies, &names(Users::Hashed), NOW);
        let json = serde_json::to_string(&ClientSnapshot::of(&account)).unwrap();
        assert!(json.contains("hmac:") && !json.contains("acme") && !json.contains("bob"), "{json}");
    }

    #[test]
    fn what_no_instance_writes_is_left_out() {
        let policies = policies();
        let mut told = ClientSnapshot::of(&account(&policies));
        told.last = i64::MAX;
        told.denied = u64::MAX;
        told.users = u64::MAX;
        told.policies = (0..5_000).map(|policy| policy.to_string()).collect();
        told.limits = vec![told.limits[0].clone(); 5_000];
        let good = told.records[0].clone();
        told.records.push(RequestSnapshot { time: i64::MAX, ..good.clone() });
        told.records.push(RequestSnapshot { time: i64::MIN, ..good.clone() });
        told.records.push(RequestSnapshot { method: "GET /".into(), ..good.clone() });
        told.records.push(RequestSnapshot { path: "/".repeat(LONGEST + 1), ..good.clone() });
        told.records.push(RequestSnapshot { user: Some("u".repeat(LONGEST + 1)), ..good.clone() });
        told.records.extend((0..5_000).map(|n| RequestSnapshot { policy: n.to_string(), ..good.clone() }));
        let account = read(told, &policies);
        assert_eq!(account.last, NOW + AHEAD);
        assert_eq!(
            (account.users.len(), account.policies.len(), account.limits.len()),
            (u32::MAX.into(), 256, 1)
        );
        let records = account.policies.iter().map(|(_, kept)| kept.iter().count());
        assert_eq!(records.sum::<usize>(), 256, "one of each policy");
        assert!(account.bytes() < 1 << 20);
    }

    #[test]
    fn the_oldest_records_go_where_it_is_too_long() {
        let mut told = ClientSnapshot::of(&account(&policies()));
        assert!(told.shorten());
        assert_eq!(
            told.records.iter().map(|record| record.user.as_deref()).collect::<Vec<_>>(),
            [Some("bob")]
        );
        assert!(told.shorten() && told.records.is_empty());
        assert!(!told.shorten());
    }
}
