//! The report of a replay.

use std::{cmp::Reverse, collections::HashMap};

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    access_logs::{ReadingNotes, UnreadableLines},
    limit::Policy,
    proxy::replay::{ReplayedCheck, ReplayedVerdict},
    telemetry::time::rfc3339,
};

/// The decisions that the policies would have made on all requests of the logs.
#[derive(Debug, Serialize)]
pub struct Report {
    pub requests: u64,
    /// Times of the first and the last request (RFC 3339).
    pub first: String,
    pub last: String,
    /// Requests that enforced policies would have denied.
    pub denied: u64,
    /// Requests that only shadow policies would have denied.
    pub shadow_denied: u64,
    /// Requests that `deny` or `allow` would have refused.
    pub forbidden: u64,
    /// Requests without a matching route, malformed requests, and lines that are not HTTP.
    pub refused: u64,
    /// Requests that Tollgate refused before the policies, according to the log: for a ban, or because of a too long
    /// body.
    pub unchecked: u64,
    /// Lines that can't be read.
    pub unreadable: UnreadableLines,
    /// Logs without a request.
    pub without_requests: Vec<String>,
    /// Logs that could not be decompressed to their end, each with the error.
    pub broken_off: Vec<String>,
    /// Requests replayed at a later time than logged, because their lines were too far out of order.
    pub late: u64,
    /// Requests without a host in the log: the host of the first matching route was assumed. 0 if no route has `hosts`.
    pub without_host: u64,
    /// Whether requests with whole seconds were spread over their second.
    pub spread: bool,
    /// In the configuration's order.
    pub policies: Vec<PolicyReport>,
    /// The most often denied first.
    pub keys: Vec<LimitedKey>,
}

/// The decisions of one policy.
#[derive(Debug, Serialize)]
pub struct PolicyReport {
    pub policy: String,
    /// `enforce` or `shadow`. A shadow policy is replayed as one: requests that it denies are admitted.
    pub mode: &'static str,
    /// Checks; one for each request and key of the policy.
    pub checked: u64,
    pub denied: u64,
    /// Checks that would have waited for their slot (`delay`).
    pub delayed: u64,
    /// Number of distinct denied keys.
    pub denied_keys: u64,
    /// Requests that were not checked by all keys, because the log lacks parts of them.
    pub not_in_log: u64,
    /// Conditions of its `exempt` and `overrides` that were taken as false, because the log lacks the information.
    pub unknown_conditions: Vec<String>,
}

/// A key that a policy would have denied.
#[derive(Debug, Clone, Serialize)]
pub struct LimitedKey {
    /// `ip:203.0.113.7`
    pub key: String,
    pub policy: String,
    pub mode: &'static str,
    pub requests: u64,
    pub denied: u64,
    /// Times of the first and the last denial (RFC 3339).
    pub first: String,
    pub last: String,
}

/// The counts of a replay in progress.
#[derive(Debug)]
pub(super) struct ReplayCounts {
    first: Option<i64>,
    last: i64,
    requests: u64,
    denied: u64,
    shadow_denied: u64,
    forbidden: u64,
    refused: u64,
    unchecked: u64,
    /// Each with the denied keys.
    policies: Vec<(PolicyReport, HashMap<String, DeniedKey>)>,
    /// Requests by the hash of key and policy, since there may be many millions of keys, of which few are denied.
    requests_of: HashMap<u64, u32>,
}

#[derive(Debug)]
struct DeniedKey {
    denied: u64,
    first: i64,
    last: i64,
}

impl ReplayCounts {
    pub(super) fn new(policies: &[Policy]) -> Self {
        let report = |policy: &Policy| PolicyReport {
            policy: policy.name.clone(),
            mode: if policy.is_shadow { "shadow" } else { "enforce" },
            checked: 0,
            denied: 0,
            delayed: 0,
            denied_keys: 0,
            not_in_log: 0,
            unknown_conditions: Vec::new(),
        };
        Self {
            first: None,
            last: 0,
            requests: 0,
            denied: 0,
            shadow_denied: 0,
            forbidden: 0,
            refused: 0,
            unchecked: 0,
            policies: policies.iter().map(|policy| (report(policy), HashMap::new())).collect(),
            requests_of: HashMap::new(),
        }
    }

    /// Counts the decision of one policy on a request at `time`.
    pub(super) fn count_check(&mut self, ReplayedCheck { policy, decided }: ReplayedCheck<'_>, time: i64) {
        let Some((counts, denied_keys)) = self.policies.get_mut(policy) else { return };
        let Some(decided) = decided else {
            counts.not_in_log += 1;
            return;
        };
        counts.checked += 1;
        counts.delayed += u64::from(decided.is_delayed);
        let requests = self.requests_of.entry(hash(policy, decided.key)).or_insert(0);
        *requests = requests.saturating_add(1);
        if decided.is_admitted {
            return;
        }
        counts.denied += 1;
        match denied_keys.get_mut(decided.key) {
            Some(key) => (key.denied, key.last) = (key.denied + 1, time),
            None => {
                counts.denied_keys += 1;
                denied_keys.insert(decided.key.to_owned(), DeniedKey { denied: 1, first: time, last: time });
            }
        }
    }

    /// Counts the verdict on a request at `time`. Returns the number of requests so far.
    pub(super) fn count_request(&mut self, time: i64, verdict: ReplayedVerdict) -> u64 {
        self.first.get_or_insert(time);
        self.last = time;
        self.requests += 1;
        match verdict {
            ReplayedVerdict::Admitted => {}
            ReplayedVerdict::ShadowDenied => self.shadow_denied += 1,
            ReplayedVerdict::Denied => self.denied += 1,
            ReplayedVerdict::Forbidden => self.forbidden += 1,
            ReplayedVerdict::Refused => self.refused += 1,
            ReplayedVerdict::Unchecked => self.unchecked += 1,
        }
        self.requests
    }

    /// The report. `unknown_conditions`: those of a policy, by its index.
    pub(super) fn report(
        self,
        notes: ReadingNotes,
        without_host: u64,
        unknown_conditions: impl Fn(usize) -> Vec<String>,
    ) -> Report {
        let ReadingNotes { unreadable, without_requests, broken_off, not_http, late, is_spread } = notes;
        let (mut policies, mut keys) = (Vec::new(), Vec::new());
        for (index, (mut policy, denied_keys)) in self.policies.into_iter().enumerate() {
            keys.extend(denied_keys.into_iter().map(|(key, DeniedKey { denied, first, last })| LimitedKey {
                requests: self.requests_of.get(&hash(index, &key)).copied().unwrap_or_default().into(),
                policy: policy.policy.clone(),
                mode: policy.mode,
                denied,
                first: rfc3339(first),
                last: rfc3339(last),
                key,
            }));
            policy.unknown_conditions = unknown_conditions(index);
            policies.push(policy);
        }
        keys.sort_by(|a, b| {
            (Reverse(a.denied), &a.key, &a.policy).cmp(&(Reverse(b.denied), &b.key, &b.policy))
        });
        Report {
            requests: self.requests + not_http,
            first: rfc3339(self.first.unwrap_or_default()),
            last: rfc3339(self.last),
            denied: self.denied,
            shadow_denied: self.shadow_denied,
            forbidden: self.forbidden,
            refused: self.refused + not_http,
            unchecked: self.unchecked,
            unreadable,
            without_requests,
            broken_off,
            late,
            without_host,
            spread: is_spread,
            policies,
            keys,
        }
    }
}

fn hash(policy: usize, key: &str) -> u64 {
    xxh3_64_with_seed(key.as_bytes(), policy as u64)
}
