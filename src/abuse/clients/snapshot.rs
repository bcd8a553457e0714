//! What one instance knows of a limited client, as sent to the others. It is the whole state, not a difference: a
//! repeated or lost snapshot does no harm.

use std::{cmp::Reverse, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    super::UserNaming,
    history::{DenialHistory, HistoryLimit, LIMITS},
    policies::RecordPolicies,
};
use crate::limit::algorithm::metadata_list::Entry;

/// The layout of snapshots. Other versions are not read.
const VERSION: u32 = 2;
/// Bytes of a name, an identifier or a path. More than any instance writes.
const MAX_TEXT_BYTES: usize = 1_024;
/// Microseconds that another instance's clock may be ahead of ours.
const MAX_CLOCK_SKEW: i64 = 60_000_000;

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
    /// How many this instance has counted. The sketches that all instances share hold their identities.
    pub users: u64,
    /// By policy, oldest first.
    pub records: Vec<RequestSnapshot>,
}

/// A limit that denied the client.
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
    pub(super) fn from_history(history: &DenialHistory) -> Self {
        let limit = |limit: &HistoryLimit| LimitSnapshot {
            policy: limit.policy.to_string(),
            identifier: limit.identifier.to_string(),
            until: limit.until,
        };
        let policies = history.policies.iter();
        let records = policies.flat_map(|(policy, buffer)| buffer.iter().map(|entry| record(policy, entry)));
        Self {
            version: VERSION,
            first: history.first,
            last: history.last,
            until: history.until,
            denied: history.denied,
            policies: history.policies.iter().map(|(policy, _)| policy.to_string()).collect(),
            limits: history.limits.iter().map(limit).collect(),
            users: history.users.len(),
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

    /// The history that it describes. It comes from outside: anything that no instance writes is left out.
    /// `address_text`: the client's address.
    pub(super) fn into_history(
        self,
        address_text: &str,
        policies: &RecordPolicies,
        names: &UserNaming,
        now: i64,
    ) -> DenialHistory {
        let latest = now.saturating_add(MAX_CLOCK_SKEW);
        let mut history = DenialHistory::new(self.first.min(latest));
        history.span(history.first, self.last.min(latest), self.until, self.denied);
        for policy in self.policies.iter().filter(|policy| is_short(policy)) {
            history.add_policy(&policies.intern(policy));
        }
        for limit in self.limits.into_iter().take(LIMITS) {
            if is_short(&limit.policy) && is_short(&limit.identifier) {
                let policy = policies.intern(&limit.policy);
                history.add_limit(
                    HistoryLimit::new(policy, names.mask_key(&limit.identifier).into(), limit.until),
                    address_text,
                );
            }
        }
        history.users.remember_count(self.users, policies.slice(now));
        for record in self.records.into_iter().filter(|record| record.time <= latest) {
            let Some((policy, entry)) = record.into_entry() else { continue };
            let policy = policies.intern(&policy);
            if let Some(buffer) = history.records_mut(&policy) {
                buffer.insert(&names.mask_entry(&Arc::new(entry)).0, policies.bounds(&policy), now);
            }
        }
        history.trim_records(policies);
        history
    }
}

impl RequestSnapshot {
    fn into_entry(self) -> Option<(String, Entry)> {
        let Self { policy, time, user, method, path } = self;
        let texts = [&policy, user.as_ref().unwrap_or(&path), &path, &method];
        let method = http::Method::from_bytes(method.as_bytes())
            .ok()
            .filter(|_| texts.into_iter().all(|text| is_short(text)))?;
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

fn is_short(text: &str) -> bool {
    text.len() <= MAX_TEXT_BYTES
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{
            recording::masking::AddressDenials,
            testing::{entry, masked, names, policy, tally_of},
        },
        *,
    };
    use crate::config::model::Users;

    const NOW: i64 = 1_783_080_001_000_000;

    fn policies() -> RecordPolicies {
        RecordPolicies::new(&[policy()], 60_000_000)
    }

    fn history(policies: &RecordPolicies) -> DenialHistory {
        let tally = tally_of(&[entry(NOW - 2, "acme"), entry(NOW - 1, "bob")], NOW + 9);
        let AddressDenials { tally, users, .. } = masked(tally);
        let mut history = DenialHistory::new(tally.first);
        history.add(tally, &users, "203.0.113.7", policies, NOW, |_, _| {});
        history
    }

    fn read(snapshot: ClientSnapshot, policies: &RecordPolicies) -> DenialHistory {
        snapshot.into_history("203.0.113.7", policies, &UserNaming::default(), NOW)
    }

    #[test]
    fn a_snapshot_survives_a_round_trip() {
        let policies = policies();
        let snapshot = ClientSnapshot::from_history(&history(&policies));
        assert_eq!(snapshot.users, 2);
        let json = serde_json::to_string(&snapshot).unwrap();
        let again: ClientSnapshot = serde_json::from_str(&json).unwrap();
        assert_eq!(again, snapshot);
        assert_eq!(ClientSnapshot::from_history(&read(again, &policies)), snapshot);
    }

    #[test]
    fn plain_names_of_another_instance_are_hashed() {
        let policies = policies();
        let mut snapshot = ClientSnapshot::from_history(&history(&policies));
        snapshot.limits.push(LimitSnapshot {
            policy: "x".into(),
            identifier: "user:acme".into(),
            until: NOW,
        });
        let history = snapshot.into_history("203.0.113.7", &policies, &names(Users::Hashed), NOW);
        let json = serde_json::to_string(&ClientSnapshot::from_history(&history)).unwrap();
        assert!(json.contains("hmac:") && !json.contains("acme") && !json.contains("bob"), "{json}");
    }

    #[test]
    fn invalid_parts_of_a_snapshot_are_left_out() {
        let policies = policies();
        let mut snapshot = ClientSnapshot::from_history(&history(&policies));
        snapshot.last = i64::MAX;
        snapshot.denied = u64::MAX;
        snapshot.users = u64::MAX;
        snapshot.policies = (0..5_000).map(|policy| policy.to_string()).collect();
        snapshot.limits = vec![snapshot.limits[0].clone(); 5_000];
        let good = snapshot.records[0].clone();
        snapshot.records.push(RequestSnapshot { time: i64::MAX, ..good.clone() });
        snapshot.records.push(RequestSnapshot { time: i64::MIN, ..good.clone() });
        snapshot.records.push(RequestSnapshot { method: "GET /".into(), ..good.clone() });
        snapshot.records.push(RequestSnapshot { path: "/".repeat(MAX_TEXT_BYTES + 1), ..good.clone() });
        snapshot.records.push(RequestSnapshot { user: Some("u".repeat(MAX_TEXT_BYTES + 1)), ..good.clone() });
        snapshot
            .records
            .extend((0..5_000).map(|n| RequestSnapshot { policy: n.to_string(), ..good.clone() }));
        let history = read(snapshot, &policies);
        assert_eq!(history.last, NOW + MAX_CLOCK_SKEW);
        assert_eq!(
            (history.users.len(), history.policies.len(), history.limits.len()),
            (u32::MAX.into(), 256, 1)
        );
        let records = history.policies.iter().map(|(_, buffer)| buffer.iter().count());
        assert_eq!(records.sum::<usize>(), 256, "one of each policy");
        assert!(history.bytes() < 1 << 20);
    }

    #[test]
    fn the_oldest_records_go_where_it_is_too_long() {
        let mut snapshot = ClientSnapshot::from_history(&history(&policies()));
        assert!(snapshot.shorten());
        assert_eq!(
            snapshot.records.iter().map(|record| record.user.as_deref()).collect::<Vec<_>>(),
            [Some("bob")]
        );
        assert!(snapshot.shorten() && snapshot.records.is_empty());
        assert!(!snapshot.shorten());
    }
}
