//! Replays suggested policies over the logs that they come from.

use std::{collections::HashMap, sync::Arc};

use compact_str::CompactString;

use super::{
    SuggestError,
    draft::PolicyDraft,
    evidence::{Attributes, KeyEvidence},
    measure::set_policies,
    suggestion::ReplayedSuggestion,
    walk::{Visitor, walk},
};
use crate::{
    config::model::Config,
    limit::ManualClock,
    offline::{
        access_logs::{LogReader, LoggedRequest},
        replay::{ReplayedCheck, ReplayedVerdict, SWEEP_BUDGET, SWEEP_EVERY},
    },
    store::memory::MemoryStore,
};

/// The clients of each policy whose evidence is kept.
pub(super) const MAX_WATCHED: usize = 1_000;

/// The decisions of one policy.
#[derive(Debug, Default)]
pub(super) struct Verified {
    /// The requests that it denied, by key.
    pub(super) denied: HashMap<CompactString, u64>,
    /// About the clients above its limits, as far as they are watched.
    pub(super) evidence: HashMap<CompactString, KeyEvidence>,
}

/// Replays the policies of `drafts` on the routes of `config`, which have no others.
///
/// # Errors
/// A log can't be read again.
pub(super) async fn verify(
    mut config: Config,
    drafts: &[PolicyDraft],
    mut logs: LogReader,
) -> Result<(Vec<Verified>, ReplayedSuggestion), SuggestError> {
    let uses: Vec<_> = drafts.iter().map(|draft| draft.uses.clone()).collect();
    set_policies(&mut config, drafts.iter().map(PolicyDraft::shared_policy).collect(), &uses);
    let watched = |draft: &PolicyDraft| {
        let overridden = draft.overrides.iter().map(|other| &other.key);
        let above = draft.above();
        let keys = above.iter().map(|(key, _)| *key).take(MAX_WATCHED).chain(overridden);
        let evidence = keys.map(|key| (key.clone(), KeyEvidence::default())).collect();
        Verified { evidence, ..Verified::default() }
    };
    let clock = Arc::new(ManualClock::default());
    let store = MemoryStore::new(usize::MAX, Arc::clone(&clock) as _);
    let mut verifying = Verifying {
        store: &store,
        policies: drafts.iter().map(watched).collect(),
        attributes: Attributes::default(),
        requests: 0,
        denied: 0,
    };
    walk(config, &store, &clock, &mut logs, &mut verifying).await?;
    let Verifying { policies, requests, denied, .. } = verifying;
    let mut keys: Vec<_> = policies.iter().flat_map(|policy| policy.denied.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let replayed = ReplayedSuggestion { requests, denied, denied_clients: keys.len() };
    Ok((policies, replayed))
}

struct Verifying<'s> {
    store: &'s MemoryStore,
    policies: Vec<Verified>,
    /// Of the request.
    attributes: Attributes,
    requests: u64,
    denied: u64,
}

impl Visitor for Verifying<'_> {
    fn begin(&mut self, request: &LoggedRequest) {
        self.attributes = Attributes::of(request);
    }

    fn check(&mut self, ReplayedCheck { policy, decided, .. }: ReplayedCheck<'_>) {
        let (Some(policy), Some(decided)) = (self.policies.get_mut(policy), decided) else { return };
        if let Some(evidence) = policy.evidence.get_mut(decided.key) {
            evidence.add(self.attributes);
        }
        if !decided.is_admitted {
            match policy.denied.get_mut(decided.key) {
                Some(denied) => *denied += 1,
                None => drop(policy.denied.insert(decided.key.into(), 1)),
            }
        }
    }

    fn end(&mut self, verdict: ReplayedVerdict) -> Result<(), SuggestError> {
        match verdict {
            ReplayedVerdict::Denied => self.denied += 1,
            ReplayedVerdict::Admitted | ReplayedVerdict::ShadowDenied => {}
            ReplayedVerdict::Forbidden
            | ReplayedVerdict::Refused
            | ReplayedVerdict::Unchecked
            | ReplayedVerdict::Unknown => return Ok(()),
        }
        self.requests += 1;
        if self.requests.is_multiple_of(SWEEP_EVERY) {
            self.store.sweep(SWEEP_BUDGET);
        }
        Ok(())
    }
}
