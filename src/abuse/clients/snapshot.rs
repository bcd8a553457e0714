//! The snapshot of a client that instances exchange: its denials, its limits, and its last requests.

use std::{cmp::Reverse, sync::Arc};

use super::{
    super::{UserNaming, traffic::TrafficHistory},
    history::{DenialHistory, HistoryLimit, LIMITS},
    policies::RecordPolicies,
    records::RecordBounds,
};
use crate::limit::algorithm::metadata_list::Entry;

/// Bytes of a name, an identifier or a path. More than any instance writes.
const MAX_TEXT_BYTES: usize = 1_024;
/// Microseconds that another instance's clock may be ahead of ours.
const MAX_CLOCK_SKEW: i64 = 60_000_000;

/// The records of a client from one instance, or from all together. Times are microseconds since the Unix epoch.
/// Policies are named, because each instance may have others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientSnapshot {
    /// The first and the last denial.
    pub first: i64,
    pub last: i64,
    /// When the last of its limits frees.
    pub until: i64,
    pub denied: u64,
    /// The number of users, without their identities.
    pub users: u64,
    pub traffic: TrafficHistory,
    pub policies: Vec<PolicySnapshot>,
    pub limits: Vec<LimitSnapshot>,
    /// By policy, oldest first.
    pub records: Vec<RequestSnapshot>,
}

/// A policy that denied the client, and the bounds of its records: instances without the policy keep them no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySnapshot {
    pub name: Arc<str>,
    pub keep: usize,
    /// Microseconds.
    pub retain: i64,
}

/// A limit that denied the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitSnapshot {
    /// An index into the snapshot's policies.
    pub policy: usize,
    pub identifier: String,
    pub until: i64,
    /// When it last denied.
    pub last: i64,
}

/// A request of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestSnapshot {
    /// An index into the snapshot's policies.
    pub policy: usize,
    pub entry: Arc<Entry>,
}

impl ClientSnapshot {
    pub(super) fn from_history(history: &DenialHistory, policies: &RecordPolicies) -> Self {
        let policy = |(name, _): &(Arc<str>, _)| {
            let RecordBounds { keep, retain } = policies.bounds(name);
            PolicySnapshot { name: Arc::clone(name), keep, retain }
        };
        let position = |name: &Arc<str>| history.policies.iter().position(|(known, _)| known == name);
        let limit = |limit: &HistoryLimit| {
            Some(LimitSnapshot {
                policy: position(&limit.policy)?,
                identifier: limit.identifier.to_string(),
                until: limit.until,
                last: limit.last,
            })
        };
        let records = history.policies.iter().enumerate().flat_map(|(policy, (_, buffer))| {
            buffer.iter().map(move |entry| RequestSnapshot { policy, entry: Arc::clone(entry) })
        });
        Self {
            first: history.first,
            last: history.last,
            until: history.until,
            denied: history.denied,
            users: history.users.len(),
            traffic: history.traffic.clone(),
            policies: history.policies.iter().map(policy).collect(),
            limits: history.limits.iter().filter_map(limit).collect(),
            records: records.collect(),
        }
    }

    /// Drops the older half of the records. False if there are none.
    pub fn shorten(&mut self) -> bool {
        self.records.sort_by_key(|record| Reverse(record.entry.time));
        let any = !self.records.is_empty();
        self.records.truncate(self.records.len() / 2);
        any
    }

    /// Converts the snapshot to a history. It is received from outside, so anything that no instance writes is left
    /// out. `address_text`: the client's address.
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
        let known: Vec<_> = self.policies.iter().map(|policy| intern(policy, policies)).collect();
        known.iter().flatten().for_each(|name| history.add_policy(name));
        let named = |policy: usize| known.get(policy).and_then(Option::as_ref);
        for limit in self.limits.into_iter().take(LIMITS) {
            let Some(policy) = named(limit.policy).filter(|_| is_short(&limit.identifier)) else { continue };
            let identifier = names.mask_key(&limit.identifier).into();
            let last = limit.last.min(latest);
            history.add_limit(
                HistoryLimit::new(Arc::clone(policy), identifier, limit.until, last),
                address_text,
            );
        }
        history.users.remember_count(self.users, policies.slice(now));
        history.traffic = self.traffic;
        for RequestSnapshot { policy, entry } in self.records {
            let texts = [entry.path.as_str(), entry.user.as_deref().unwrap_or_default()];
            let is_ours = entry.time <= latest && texts.into_iter().all(is_short);
            let Some(policy) = named(policy).filter(|_| is_ours) else { continue };
            if let Some(buffer) = history.records_mut(policy) {
                buffer.insert(&names.mask_entry(&entry).0, policies.bounds(policy), now);
            }
        }
        history.expire(policies, now);
        history.trim_records(policies);
        history
    }
}

/// This instance's copy of the name.
fn intern(policy: &PolicySnapshot, policies: &RecordPolicies) -> Option<Arc<str>> {
    let PolicySnapshot { name, keep, retain } = policy;
    is_short(name).then(|| policies.intern(name, RecordBounds { keep: *keep, retain: *retain }))
}

fn is_short(text: &str) -> bool {
    text.len() <= MAX_TEXT_BYTES
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            super::{
                recording::masking::AddressDenials,
                testing::{entry, masked, names, policy, tally_of},
            },
            records::MAX_KEEP,
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

    fn snapshot(policies: &RecordPolicies) -> ClientSnapshot {
        ClientSnapshot::from_history(&history(policies), policies)
    }

    fn read(snapshot: ClientSnapshot, policies: &RecordPolicies) -> DenialHistory {
        snapshot.into_history("203.0.113.7", policies, &UserNaming::default(), NOW)
    }

    #[test]
    fn a_snapshot_survives_a_round_trip() {
        let policies = policies();
        let snapshot = snapshot(&policies);
        assert_eq!((snapshot.users, snapshot.records.len()), (2, 2));
        assert_eq!(history(&policies).ends(&policies), Some(NOW - 2 + 5_000_000));
        assert_eq!(ClientSnapshot::from_history(&read(snapshot.clone(), &policies), &policies), snapshot);
    }

    #[test]
    fn plain_names_of_another_instance_are_hashed() {
        let policies = policies();
        let mut snapshot = snapshot(&policies);
        snapshot.limits.push(LimitSnapshot {
            policy: 0,
            identifier: "user:acme".into(),
            until: NOW,
            last: NOW,
        });
        let history = snapshot.into_history("203.0.113.7", &policies, &names(Users::Hashed), NOW);
        let hashed = format!("{:?}", ClientSnapshot::from_history(&history, &policies));
        assert!(hashed.contains("hmac:") && !hashed.contains("acme") && !hashed.contains("bob"), "{hashed}");
    }

    #[test]
    fn what_a_policy_of_another_instance_keeps_is_kept_no_longer_here() {
        let (policies, elsewhere) = (policies(), RecordPolicies::new(&[], 60_000_000));
        let snapshot = snapshot(&policies);
        let mut history = read(snapshot, &elsewhere);
        assert_eq!(history.records_mut(&"per-ip".into()).map(|buffer| buffer.iter().count()), Some(2));
        history.expire(&elsewhere, NOW - 2 + 5_000_000);
        assert_eq!(history.records_mut(&"per-ip".into()).map(|buffer| buffer.iter().count()), Some(1));
    }

    #[test]
    fn invalid_parts_of_a_snapshot_are_left_out() {
        let policies = policies();
        let mut snapshot = snapshot(&policies);
        snapshot.last = i64::MAX;
        snapshot.denied = u64::MAX;
        snapshot.users = u64::MAX;
        let bounds = |name: String| PolicySnapshot { name: name.into(), keep: usize::MAX, retain: i64::MAX };
        snapshot.policies.extend((0..5_000).map(|policy| bounds(policy.to_string())));
        snapshot.policies.push(bounds("x".repeat(MAX_TEXT_BYTES + 1)));
        snapshot.limits = vec![snapshot.limits[0].clone(); 5_000];
        let good = snapshot.records[0].entry.clone();
        let with = |change: &dyn Fn(&mut Entry)| {
            let mut entry = Entry::clone(&good);
            change(&mut entry);
            RequestSnapshot { policy: 0, entry: Arc::new(entry) }
        };
        snapshot.records.push(with(&|entry| entry.time = i64::MAX));
        snapshot.records.push(with(&|entry| entry.time = i64::MIN));
        snapshot.records.push(with(&|entry| entry.path = "/".repeat(MAX_TEXT_BYTES + 1).into()));
        snapshot.records.push(with(&|entry| entry.user = Some("u".repeat(MAX_TEXT_BYTES + 1).into())));
        snapshot.records.extend(
            (0..6_000).map(|policy| RequestSnapshot { policy, entry: Arc::new(Entry::clone(&good)) }),
        );
        let history = read(snapshot, &policies);
        assert_eq!(history.last, NOW + MAX_CLOCK_SKEW);
        assert_eq!(
            (history.users.len(), history.policies.len(), history.limits.len()),
            (u32::MAX.into(), 256, 1)
        );
        let records = history.policies.iter().map(|(_, buffer)| buffer.iter().count());
        assert!(records.sum::<usize>() < 256 + MAX_KEEP);
        assert!(history.bytes() < 1 << 20);
    }

    #[test]
    fn the_oldest_records_go_where_it_is_too_long() {
        let mut snapshot = snapshot(&policies());
        assert!(snapshot.shorten());
        assert_eq!(
            snapshot.records.iter().map(|record| record.entry.user.as_deref()).collect::<Vec<_>>(),
            [Some("bob")]
        );
        assert!(snapshot.shorten() && snapshot.records.is_empty());
        assert!(!snapshot.shorten());
    }
}
