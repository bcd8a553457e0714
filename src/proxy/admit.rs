//! Decides whether a request is admitted: one decision of the store for all its checks, then records and offenses.

use std::{rc::Rc, time::Duration};

use smallvec::SmallVec;

use super::{
    bans::record_offense,
    checks::{CheckInputs, Checks, Unidentified},
    client::ClientInfo,
    denial_record::DenialRecord,
    exchange::Exchange,
    outcome::{CheckOutcome, Outcomes, PolicyOutcome},
    request_context::{RequestContext, client_address},
    reservation::reserve,
    worker::Worker,
};
use crate::{
    limit::{Decision, DecisionSource, StoreAdmin},
    telemetry::metrics,
};

/// Whether a request is admitted. A denial carries no reply: replies are large, and each request would need room for
/// one.
pub(super) enum Admission {
    Admitted {
        /// How long the request has to wait for its GCRA slot. The slot is taken already, so the number of waiting
        /// requests is bounded: by the outflow of a bucket within the policy's `delay`, and by the number of
        /// connections.
        delay: Duration,
    },
    /// The denying policies are among the outcomes.
    Denied,
    /// The policy of this index denied it, because the request lacks the value that identifies it.
    Unidentified(usize),
    /// The store was not available.
    Undecided,
}

/// Checks the request against all policies of its route, in one decision of the store. `exchange` keeps the
/// request's reservation, and `outcomes` gets the outcomes of the enforced policies.
pub(super) async fn admit<S: StoreAdmin + 'static>(
    worker: &Rc<Worker<S>>,
    client: &ClientInfo,
    exchange: &mut Exchange,
    context: &RequestContext<'_>,
    outcomes: &mut Outcomes,
) -> Admission {
    if context.route.policies.is_empty() {
        return Admission::Admitted { delay: Duration::ZERO };
    }
    let address = client_address(worker, client, context.address);
    let attributes = context.attributes(&address);
    let (time, tokens) = (exchange.time(), &*worker.tokens);
    let inputs = CheckInputs { time, tokens };
    let checks = match Checks::new(&worker.rules, &inputs, context, &attributes, |_, _| ()) {
        Ok(checks) => checks,
        Err(Unidentified(policy)) => {
            worker.metrics().decision(policy, metrics::VerdictLabel::Denied, metrics::SourceLabel::Store);
            DenialRecord { exchange, context, address: address.address() }
                .record_unidentified(worker, policy);
            record_offense(worker, exchange, context, &attributes, || [(policy, "")].into_iter());
            return Admission::Unidentified(policy);
        }
    };
    for &policy in &checks.denied_in_shadow {
        worker.metrics().decision(policy, metrics::VerdictLabel::ShadowDenied, metrics::SourceLabel::Store);
        exchange.verdict.deny_in_shadow(policy);
    }
    if checks.as_slice().is_empty() {
        return Admission::Admitted { delay: Duration::ZERO };
    }

    client.timer().wait_for_store();
    exchange.decision_started(checks.as_slice().len());
    let decided = if checks.may_refund() || worker.store.must_finish(checks.as_slice()) {
        let (decided, reservation) = reserve(worker, &checks).await;
        exchange.set_reservation(reservation);
        decided
    } else {
        worker.store.decide(checks.as_slice()).await
    };
    exchange.decision_ended(decided.as_ref().ok().map(|decision| source_label(decision.source)));
    let Ok(decision) = decided else {
        let mut policies: SmallVec<[usize; 2]> = checks.iter().map(|(_, variant)| variant.policy).collect();
        policies.dedup();
        for policy in policies {
            worker.metrics().decision(policy, metrics::VerdictLabel::Error, metrics::SourceLabel::Fallback);
        }
        return Admission::Undecided;
    };
    record_outcomes(worker, exchange, &checks, &decision, outcomes);
    if decision.admitted {
        exchange.verdict.allow();
        let delay = outcomes.iter().map(|outcome| outcome.verdict.delay).max().unwrap_or(0);
        exchange.verdict.delay(delay);
        let delay = Duration::from_micros(u64::try_from(delay).unwrap_or(0));
        return Admission::Admitted { delay };
    }
    let denial = DenialRecord { exchange, context, address: address.address() };
    let denials = || checks.outcomes(&decision).filter(CheckOutcome::is_denial);
    for (nth, denied) in denials().enumerate() {
        denial.record(worker, &denied, decision.source, nth == 0);
    }
    record_offense(worker, exchange, context, &attributes, || {
        denials().map(|denied| (denied.variant.policy, &*denied.check.identifier))
    });
    Admission::Denied
}

/// Counts the outcome of each check, notes the verdicts of shadow policies, and adds the outcomes of enforced
/// policies to `enforced`.
fn record_outcomes<S>(
    worker: &Worker<S>,
    exchange: &mut Exchange,
    checks: &Checks<'_>,
    decision: &Decision,
    enforced: &mut Outcomes,
) {
    let source = source_label(decision.source);
    // The shadow policy with the longest wait among those that would deny.
    let mut shadow: Option<(i64, usize)> = None;
    for outcome in checks.outcomes(decision) {
        let (policy, verdict) = (outcome.variant.policy, outcome.verdict);
        let is_shadow = outcome.check.policy.is_shadow;
        let counted = match (verdict.admitted, is_shadow) {
            // If other checks deny the request, a check that admits it has decided nothing.
            (true, _) => decision.admitted.then_some(metrics::VerdictLabel::Allowed),
            (false, true) => Some(metrics::VerdictLabel::ShadowDenied),
            (false, false) => Some(metrics::VerdictLabel::Denied),
        };
        if let Some(counted) = counted {
            worker.metrics().decision(policy, counted, source);
        }
        if !is_shadow {
            enforced.push(PolicyOutcome::from(outcome));
        } else if !verdict.admitted {
            let retry_after = verdict.retry_after.unwrap_or(i64::MAX);
            shadow = shadow.max(Some((retry_after, policy)));
        } else if decision.admitted {
            exchange.verdict.delay_in_shadow(verdict.delay);
        }
    }
    if let Some((_, policy)) = shadow {
        exchange.verdict.deny_in_shadow(policy);
    }
}

fn source_label(source: DecisionSource) -> metrics::SourceLabel {
    match source {
        DecisionSource::Store => metrics::SourceLabel::Store,
        DecisionSource::Slice => metrics::SourceLabel::Slice,
        DecisionSource::LocalDenial => metrics::SourceLabel::LocalDenial,
        DecisionSource::Fallback => metrics::SourceLabel::Fallback,
    }
}
