//! Where two configurations decide differently: who would be newly denied, and who freed.

use std::{cmp::Reverse, collections::HashMap};

use compact_str::{CompactString, format_compact};
use foldhash::fast::FixedState;
use serde::Serialize;

use super::{
    Decided,
    decide::ReplayedVerdict,
    report::{PolicyReport, Report},
};
use crate::{
    offline::access_logs::{LoggedRequest, LoggedUser},
    telemetry::time::rfc3339,
};

/// The decisions of a second configuration, and how they differ from those of the first.
#[derive(Debug, Serialize)]
pub struct ReplayComparison {
    /// The file of the second configuration.
    pub config: String,
    /// As in [`Report`].
    pub denied: u64,
    pub shadow_denied: u64,
    pub forbidden: u64,
    pub refused: u64,
    /// Requests that only the second configuration refuses, and those that only the first one does.
    pub newly_denied: u64,
    pub freed: u64,
    pub policies: Vec<PolicyReport>,
    /// Those with the most changed requests first.
    pub clients: Vec<ChangedClient>,
}

/// A client on whose requests the configurations decide differently.
#[derive(Debug, Serialize)]
pub struct ChangedClient {
    /// `user:acme` if the log names the user, `customer:acme` if it names the customer of an API key, or else
    /// `ip:203.0.113.7`.
    pub client: String,
    pub newly_denied: u64,
    pub freed: u64,
    /// The policies of the second configuration that newly deny its requests, and those of the first that denied the
    /// freed ones.
    pub denied_by: Vec<String>,
    pub freed_from: Vec<String>,
    /// Times of the first and the last such request (RFC 3339).
    pub first: String,
    pub last: String,
}

/// The differences so far.
#[derive(Debug, Default)]
pub(super) struct VerdictChanges {
    clients: HashMap<CompactString, VerdictChange, FixedState>,
}

#[derive(Debug, Default)]
struct VerdictChange {
    newly_denied: u64,
    freed: u64,
    /// Indices of policies.
    denied_by: Vec<usize>,
    freed_from: Vec<usize>,
    first: i64,
    last: i64,
}

impl VerdictChanges {
    /// Adds the verdicts of both configurations on a request.
    pub(super) fn add(&mut self, request: &LoggedRequest, first: Decided, second: Decided) {
        let (Some(before), Some(after)) = (passes(first.verdict), passes(second.verdict)) else { return };
        if before == after {
            return;
        }
        let new = || VerdictChange { first: request.time, ..VerdictChange::default() };
        let changed = self.clients.entry(client(request)).or_insert_with(new);
        changed.last = request.time;
        let (count, policies, policy) = if before {
            (&mut changed.newly_denied, &mut changed.denied_by, second.denied_by)
        } else {
            (&mut changed.freed, &mut changed.freed_from, first.denied_by)
        };
        *count += 1;
        if let Some(policy) = policy.filter(|policy| !policies.contains(policy)) {
            policies.push(policy);
        }
    }

    /// The comparison with the second configuration, named `config`.
    pub(super) fn comparison(self, config: &str, first: &Report, second: Report) -> ReplayComparison {
        let names = |of: &[PolicyReport], indices: Vec<usize>| {
            let name = |index| of.get(index).map(|policy: &PolicyReport| policy.policy.clone());
            indices.into_iter().filter_map(name).collect()
        };
        let client = |(client, changed): (CompactString, VerdictChange)| ChangedClient {
            client: client.into(),
            newly_denied: changed.newly_denied,
            freed: changed.freed,
            denied_by: names(&second.policies, changed.denied_by),
            freed_from: names(&first.policies, changed.freed_from),
            first: rfc3339(changed.first),
            last: rfc3339(changed.last),
        };
        let mut clients: Vec<ChangedClient> = self.clients.into_iter().map(client).collect();
        clients.sort_by(|a, b| {
            let changed = |client: &ChangedClient| Reverse(client.newly_denied + client.freed);
            (changed(a), &a.client).cmp(&(changed(b), &b.client))
        });
        ReplayComparison {
            config: config.to_owned(),
            denied: second.denied,
            shadow_denied: second.shadow_denied,
            forbidden: second.forbidden,
            refused: second.refused,
            newly_denied: clients.iter().map(|client| client.newly_denied).sum(),
            freed: clients.iter().map(|client| client.freed).sum(),
            policies: second.policies,
            clients,
        }
    }
}

/// Whether the request reaches its upstream. `None`: it was not decided.
fn passes(verdict: ReplayedVerdict) -> Option<bool> {
    match verdict {
        ReplayedVerdict::Admitted | ReplayedVerdict::ShadowDenied => Some(true),
        ReplayedVerdict::Denied | ReplayedVerdict::Forbidden | ReplayedVerdict::Refused => Some(false),
        ReplayedVerdict::Unchecked | ReplayedVerdict::Unknown => None,
    }
}

/// The name of the client that sent the request.
fn client(request: &LoggedRequest) -> CompactString {
    match (&request.user, &request.key) {
        (LoggedUser::Named(user), _) => format_compact!("user:{user}"),
        (_, Some(key)) => format_compact!("customer:{}", key.customer),
        _ => format_compact!("ip:{}", request.client),
    }
}
