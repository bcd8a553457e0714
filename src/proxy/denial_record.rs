//! Records of denied requests, for the admin port.

use std::{rc::Rc, sync::Arc};

use compact_str::CompactString;
use tokio::task;

use super::{
    exchange::Exchange, outcome::CheckOutcome, request_context::RequestContext, rules::Rules, worker::Worker,
};
use crate::{
    abuse::{self, DenialReport, bans::Ban},
    limit::{DecisionSource, StoreAdmin, algorithm::metadata_list::Entry},
};

/// A denied request, to be recorded.
pub(super) struct DenialRecord<'a> {
    pub(super) exchange: &'a Exchange,
    pub(super) context: &'a RequestContext<'a>,
    /// The client's address in the form that records use.
    pub(super) address: &'a str,
}

impl DenialRecord<'_> {
    /// Records the check that `denied` the request. `first`: whether it is the first check that did. The request is
    /// counted, and kept as evidence, once for all of them.
    pub(super) fn record<S: StoreAdmin + 'static>(
        &self,
        worker: &Rc<Worker<S>>,
        denied: &CheckOutcome<'_>,
        source: DecisionSource,
        first: bool,
    ) {
        let CheckOutcome { check, variant, verdict } = denied;
        let denial = self.denial(worker, variant.policy, &check.identifier, verdict.retry_after);
        let new = if first {
            let entry = || {
                let entry = || evidence_entry(self.exchange.time(), self.context, &worker.rules);
                check.detail.entry().cloned().unwrap_or_else(entry)
            };
            worker.recorder.record(&denial, || self.context.request_line(), entry)
        } else {
            worker.recorder.record_further_limit(&denial)
        };
        // Only a denial by the store can bring news about who filled a list.
        if new && check.policy.keeps_entries() && source == DecisionSource::Store {
            record_evidence(worker, &denial);
        }
    }

    /// Records that the request lacks the value that identifies it for a policy.
    pub(super) fn record_unidentified<S>(&self, worker: &Worker<S>, policy: usize) {
        let denial = self.denial(worker, policy, "", None);
        let entry = || evidence_entry(self.exchange.time(), self.context, &worker.rules);
        worker.recorder.record(&denial, || self.context.request_line(), entry);
    }

    /// Records that a ban denied the request. `policy`: the index of the ban's rule, which follows the policies.
    pub(super) fn record_banned<S>(&self, worker: &Worker<S>, policy: usize, ban: &Ban) {
        let identifier = ban.key.to_string();
        // The end of the ban is read from the ban itself, which may be lifted or replaced.
        let denial = self.denial(worker, policy, &identifier, None);
        let entry = || evidence_entry(self.exchange.time(), self.context, &worker.rules);
        worker.recorder.record(&denial, || self.context.request_line(), entry);
    }

    fn denial<'a, S>(
        &'a self,
        worker: &Worker<S>,
        policy: usize,
        identifier: &'a str,
        retry_after: Option<i64>,
    ) -> DenialReport<'a> {
        let now = self.exchange.time();
        let until = now.saturating_add(retry_after.unwrap_or(0));
        DenialReport {
            address: self.address,
            policy,
            identifier,
            user: worker.rules.written_user(self.context.identity),
            is_user_verified: self.context.identity.is_verified,
            now,
            until,
        }
    }
}

/// The request, received at `time`, as evidence, with the user in the form that may be stored. Names and paths are
/// cut, because clients can make them long and evidence is kept for a while.
pub(super) fn evidence_entry(time: i64, context: &RequestContext<'_>, rules: &Rules) -> Arc<Entry> {
    let user = rules.written_user(context.identity).map(abuse::shorten_name);
    Arc::new(Entry {
        time,
        user: user.map(Into::into),
        method: context.request.method.clone(),
        path: context.request_line().recorded_path().into(),
    })
}

/// Records who filled the list that denied, once the store has listed its entries. The request does not wait for
/// this.
fn record_evidence<S: StoreAdmin + 'static>(worker: &Rc<Worker<S>>, denial: &DenialReport<'_>) {
    let worker = Rc::clone(worker);
    let policy = denial.policy;
    let (address, identifier) = (CompactString::from(denial.address), CompactString::from(denial.identifier));
    task::spawn_local(async move {
        let Some(list) = worker.rules.policies.get(policy) else { return };
        if let Ok(entries) = worker.store.entries(list, &identifier).await {
            worker.recorder.record_evidence(&address, policy, &identifier, entries);
        }
    });
}
