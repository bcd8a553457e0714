//! Whether a request may go on: its checks, in one decision of the store, and what follows from that.

use std::{rc::Rc, time::Duration};

use http::header;
use smallvec::SmallVec;

use super::{
    ban::{address, strike},
    checks::{Asked, Checks, Supplies, Unidentified},
    client::Client,
    exchange::Exchange,
    quota::Said,
    record::Denied,
    reply::Reply,
    settle,
    worker::Worker,
};
use crate::{
    identity::Facts,
    limit::{Decision, Source, StoreAdmin},
    telemetry::metrics,
};

/// Whether a request may go on.
pub(super) enum Admission {
    /// It may.
    Admitted(Admitted),
    /// It may not.
    Denied {
        /// The index of the policy that decided.
        policy: usize,
        /// What the client is told.
        reply: Reply,
    },
    /// The store could not say.
    Undecided,
}

/// A request that may go on.
#[derive(Default)]
pub(super) struct Admitted {
    /// What the policies said that the client should know of.
    pub(super) said: SmallVec<[Said; 2]>,
    /// How long it has to wait for its place. Whoever waits has taken his place in the bucket already: as many wait of
    /// each as flow out of it within the policy's `delay`, and no more than there are connections.
    pub(super) delay: Duration,
}

/// Holds the request against all policies of its route, in one decision of the store. What is to be given back when the
/// request ends is the exchange's from then on.
pub(super) async fn admit<S: StoreAdmin + 'static>(
    worker: &Rc<Worker<S>>,
    client: &Client,
    exchange: &mut Exchange,
    asked: &Asked<'_>,
) -> Admission {
    if asked.route.policies.is_empty() {
        return Admission::Admitted(Admitted::default());
    }
    let address = address(worker, client, asked.address);
    let facts = asked.facts(&address);
    let supplies =
        Supplies { time: || exchange.time(), tokens: &worker.tokens, names: worker.recorder.names() };
    let checks = match Checks::of(&worker.rules, &supplies, asked, &facts, |_, _| ()) {
        Ok(checks) => checks,
        Err(Unidentified(policy)) => return unidentified(worker, exchange, asked, &facts, policy),
    };
    for &policy in &checks.denied_in_shadow {
        worker.metrics().decision(policy, metrics::Verdict::ShadowDenied, metrics::Source::Store);
        exchange.shadow_limited(policy);
    }
    if checks.all.is_empty() {
        return Admission::Admitted(Admitted::default());
    }

    exchange.deciding(checks.all.len());
    let decided = if checks.may_refund() {
        let (decided, held) = settle::decide(worker, &checks).await;
        exchange.hold(held);
        decided
    } else {
        worker.store.decide(&checks.all).await
    };
    exchange.decided(decided.as_ref().ok().map(|decision| counted(decision.source)));
    let Ok(decision) = decided else {
        let mut policies: SmallVec<[usize; 2]> = checks.limits.iter().map(|limits| limits.policy).collect();
        policies.dedup();
        for policy in policies {
            worker.metrics().decision(policy, metrics::Verdict::Error, metrics::Source::Fallback);
        }
        return Admission::Undecided;
    };
    let said = heed(worker, exchange, &checks, &decision);
    if decision.admitted {
        exchange.admitted();
        let delay = said.iter().map(|said| said.verdict.delay).max().unwrap_or(0);
        let delay = Duration::from_micros(u64::try_from(delay).unwrap_or(0));
        return Admission::Admitted(Admitted { said, delay });
    }
    let denied = Denied { exchange, asked, address: &address };
    let denying = checks.all.iter().zip(&checks.limits).zip(&decision.verdicts);
    let denying = denying.filter(|((check, _), verdict)| !verdict.admitted && !check.policy.is_shadow);
    for (nth, ((check, limits), verdict)) in denying.enumerate() {
        denied.record(worker, limits.policy, check, verdict.retry_after, decision.source, nth == 0);
    }
    strike(worker, exchange, asked, &facts);
    deny(worker, asked, &said)
}

/// Counts what each policy said, notes what a shadow policy would have done, and gives what clients may know of.
fn heed<S>(
    worker: &Worker<S>,
    exchange: &mut Exchange,
    checks: &Checks<'_>,
    decision: &Decision,
) -> SmallVec<[Said; 2]> {
    let source = counted(decision.source);
    let mut heeded = SmallVec::new();
    // Of shadow policies that would deny, the one that frees last.
    let mut shadow: Option<(i64, usize)> = None;
    for ((check, limits), verdict) in checks.all.iter().zip(&checks.limits).zip(&decision.verdicts) {
        let policy = limits.policy;
        let counted = match (verdict.admitted, check.policy.is_shadow) {
            // What admits a request that others deny has decided nothing.
            (true, _) => decision.admitted.then_some(metrics::Verdict::Allowed),
            (false, true) => Some(metrics::Verdict::ShadowDenied),
            (false, false) => Some(metrics::Verdict::Denied),
        };
        if let Some(counted) = counted {
            worker.metrics().decision(policy, counted, source);
        }
        if !check.policy.is_shadow {
            heeded.push(Said::of(check, *limits, *verdict));
        } else if !verdict.admitted {
            let frees = verdict.retry_after.unwrap_or(i64::MAX);
            shadow = shadow.max(Some((frees, policy)));
        }
    }
    if let Some((_, policy)) = shadow {
        exchange.shadow_limited(policy);
    }
    heeded
}

fn counted(source: Source) -> metrics::Source {
    match source {
        Source::Store => metrics::Source::Store,
        Source::Slice => metrics::Source::Lease,
        Source::LocalDenial => metrics::Source::LocalDenial,
        Source::Fallback => metrics::Source::Fallback,
    }
}

/// `missing: deny`, and something is missing: no quota is asked, and none will ever admit it.
fn unidentified<S>(
    worker: &Worker<S>,
    exchange: &Exchange,
    asked: &Asked<'_>,
    facts: &Facts<'_>,
    policy: usize,
) -> Admission {
    worker.metrics().decision(policy, metrics::Verdict::Denied, metrics::Source::Store);
    Denied { exchange, asked, address: facts.address }.record_unidentified(worker, policy);
    strike(worker, exchange, asked, facts);
    let said = Said::unidentified(policy, &worker.rules.policies[policy]);
    let reply = worker.rules.quotas.unidentified(said);
    Admission::Denied { policy, reply }
}

fn deny<S>(worker: &Worker<S>, asked: &Asked<'_>, said: &[Said]) -> Admission {
    let cross_origin = asked.request.headers.contains_key(header::ORIGIN);
    let (policy, reply) = worker.rules.quotas.denial(said, cross_origin);
    Admission::Denied { policy, reply }
}
