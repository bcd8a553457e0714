//! Who was denied, noted for the admin port.

use std::{rc::Rc, sync::Arc};

use compact_str::CompactString;
use tokio::task;

use super::{checks::Asked, exchange::Exchange, worker::Worker};
use crate::{
    abuse::{Denial, Names, bans::Ban},
    limit::{Check, Source, StoreAdmin, algorithm::metadata_list::Entry},
};

/// Bytes of a path that evidence keeps.
const LONGEST_PATH: usize = 512;

/// A request that was denied.
pub(super) struct Denied<'a> {
    pub(super) exchange: &'a Exchange,
    pub(super) asked: &'a Asked<'a>,
    /// The client's address as it identifies a client.
    pub(super) address: &'a str,
}

impl Denied<'_> {
    /// Notes the check that denied it, which said when to come back. `first`: of those that denied this request. It is
    /// counted and written down once, however many they are.
    pub(super) fn record<S: StoreAdmin + 'static>(
        &self,
        worker: &Rc<Worker<S>>,
        policy: usize,
        check: &Check<'_>,
        retry_after: Option<i64>,
        source: Source,
        first: bool,
    ) {
        let denial = self.denial(policy, &check.identifier, retry_after);
        let new = if first {
            let entry = || {
                check.detail.entry().cloned().unwrap_or_else(|| {
                    written_down(self.exchange.time(), self.asked, worker.recorder.names())
                })
            };
            worker.recorder.denied(&denial, entry)
        } else {
            worker.recorder.also(&denial)
        };
        // What is remembered, or said in the store's place, tells nothing new of who filled a list.
        if new && check.policy.keeps_entries() && source == Source::Store {
            record_evidence(worker, &denial);
        }
    }

    /// Notes that it lacks what a policy demands.
    pub(super) fn record_unidentified<S>(&self, worker: &Worker<S>, policy: usize) {
        let denial = self.denial(policy, "", None);
        let names = worker.recorder.names();
        worker.recorder.denied(&denial, || written_down(self.exchange.time(), self.asked, names));
    }

    /// Notes that it is shut out. `policy`: the index of the ban's rule behind those of the policies.
    pub(super) fn record_banned<S>(&self, worker: &Worker<S>, policy: usize, ban: &Ban) {
        let identifier = ban.key.to_string();
        let retry_after = ban.until.saturating_sub(self.exchange.time());
        let denial = self.denial(policy, &identifier, Some(retry_after));
        let names = worker.recorder.names();
        worker.recorder.denied(&denial, || written_down(self.exchange.time(), self.asked, names));
    }

    fn denial<'a>(&'a self, policy: usize, identifier: &'a str, retry_after: Option<i64>) -> Denial<'a> {
        let now = self.exchange.time();
        let until = now.saturating_add(retry_after.unwrap_or(0));
        Denial {
            address: self.address,
            policy,
            identifier,
            user: self.asked.identity.user.as_deref(),
            now,
            until,
        }
    }
}

/// The request, which came at `time`, as evidence, with the user as he may be written down. What clients make long is cut: it is kept for a while.
pub(super) fn written_down(time: i64, asked: &Asked<'_>, names: &Names) -> Arc<Entry> {
    let user = asked.identity.user.as_deref().and_then(|user| names.written(user));
    Arc::new(Entry {
        time,
        user: user.map(Into::into),
        method: asked.request.method.clone(),
        path: cut(asked.target.path(), LONGEST_PATH).into(),
    })
}

fn cut(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
}

/// Notes who filled the list that denied, once the store has told. Nobody waits for it.
fn record_evidence<S: StoreAdmin + 'static>(worker: &Rc<Worker<S>>, denial: &Denial<'_>) {
    let worker = Rc::clone(worker);
    let Denial { policy, now, until, .. } = *denial;
    let (address, identifier) = (CompactString::from(denial.address), CompactString::from(denial.identifier));
    task::spawn_local(async move {
        let Some(of) = worker.rules.policies.get(policy) else { return };
        if let Ok(entries) = worker.store.entries(of, &identifier).await {
            let (address, identifier) = (address.as_str(), identifier.as_str());
            worker
                .recorder
                .evidence(&Denial { address, policy, identifier, user: None, now, until }, entries);
        }
    });
}
