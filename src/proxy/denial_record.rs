//! Records of denied requests, for the admin port.

use std::{borrow::Cow, rc::Rc, sync::Arc};

use compact_str::CompactString;
use tokio::task;

use super::{exchange::Exchange, outcome::CheckOutcome, request_context::RequestContext, worker::Worker};
use crate::{
    abuse::{DenialReport, bans::Ban},
    limit::{DecisionSource, StoreAdmin, algorithm::metadata_list::Entry},
};

/// A denied request, to be recorded.
pub(super) struct DenialRecord<'d, 'r, 'a> {
    pub(super) exchange: &'d Exchange,
    pub(super) context: &'d RequestContext<'r, 'a>,
    /// See [`RequestContext::recorded_user`].
    user: Option<Cow<'d, str>>,
}

impl<'d, 'r, 'a> DenialRecord<'d, 'r, 'a> {
    pub(super) fn new(exchange: &'d Exchange, context: &'d RequestContext<'r, 'a>) -> Self {
        Self { exchange, context, user: context.recorded_user() }
    }

    /// Records the check that `denied` the request. `first`: whether it is the first check that did. The request is
    /// counted, and kept as evidence, once for all of them.
    pub(super) fn record<S: StoreAdmin + 'static>(
        &self,
        worker: &Rc<Worker<S>>,
        denied: &CheckOutcome<'_>,
        source: DecisionSource,
        first: bool,
    ) {
        if !self.context.facts.has_address() {
            // It would be recorded as the address of the proxy that asks.
            return;
        }
        let CheckOutcome { check, variant, verdict } = denied;
        let denial = self.denial(variant.policy, &check.identifier, verdict.retry_after);
        let new = if first {
            let entry = || check.detail.entry().cloned().unwrap_or_else(|| self.evidence());
            worker.recorder.record(&denial, || self.context.request_line(), entry)
        } else {
            worker.recorder.record_further_limit(&denial)
        };
        // Only the store's own denial can show new entries of a full list.
        if new && check.policy.keeps_entries() && source == DecisionSource::Store {
            record_evidence(worker, &denial);
        }
    }

    /// Records that the request lacks the value that identifies it for a policy.
    pub(super) fn record_unidentified<S>(&self, worker: &Worker<S>, policy: usize) {
        if !self.context.facts.has_address() {
            return;
        }
        let denial = self.denial(policy, "", None);
        worker.recorder.record(&denial, || self.context.request_line(), || self.evidence());
    }

    /// Records that a ban denied the request. `policy`: the index of the ban's rule, which follows the policies.
    pub(super) fn record_banned<S>(&self, worker: &Worker<S>, policy: usize, ban: &Ban) {
        if !self.context.facts.has_address() {
            return;
        }
        let identifier = ban.key.to_string();
        // The end of the ban is read from the ban itself, which may be lifted or replaced.
        let denial = self.denial(policy, &identifier, None);
        worker.recorder.record(&denial, || self.context.request_line(), || self.evidence());
    }

    fn evidence(&self) -> Arc<Entry> {
        self.context.evidence(self.exchange.time())
    }

    fn denial<'s>(
        &'s self,
        policy: usize,
        identifier: &'s str,
        retry_after: Option<i64>,
    ) -> DenialReport<'s> {
        let (now, identity) = (self.exchange.time(), &self.context.found.identity);
        let until = now.saturating_add(retry_after.unwrap_or(0));
        DenialReport {
            address: self.context.attributes().address.address(),
            policy,
            identifier,
            user: self.user.as_deref(),
            is_user_verified: identity.is_verified,
            is_customer: identity.is_verified || identity.valid_key().is_some(),
            now,
            until,
        }
    }
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
