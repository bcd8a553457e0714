//! Records the decision about a request: counters, verdicts, outcomes, and the denials behind it.

use http::{HeaderName, Method, StatusCode, header};

use super::{
    bans::record_offense,
    checks::Checks,
    client_request::ClientRequest,
    denial_record::DenialRecord,
    outcome::{CheckOutcome, PolicyOutcome, tightest},
    request_context::RequestContext,
    steps::RefusedBy,
};
use crate::{
    abuse::{masked, shown},
    alerts::{AlertWatch, DecidedLimit},
    history::{DenialSample, DeniedBy, DeniedRequest},
    limit::{Decision, DecisionSource, StoreAdmin},
    peaks::{DecidedCheck, SampleName},
    telemetry::metrics::{SourceLabel, VerdictLabel},
};

impl<S: StoreAdmin + 'static> ClientRequest<'_, S> {
    pub(super) fn count_decision(&self, policy: usize, verdict: VerdictLabel, source: SourceLabel) {
        self.worker.metrics().decision(policy, verdict, source);
    }

    pub(super) fn denial_record<'d, 'r, 'c>(
        &'d self,
        context: &'d RequestContext<'r, 'c>,
    ) -> DenialRecord<'d, 'r, 'c> {
        DenialRecord::new(&self.exchange, context)
    }

    /// Counts the outcome of each check, notes the verdicts of shadow policies, and keeps the outcomes of
    /// enforced policies.
    pub(super) fn record_outcomes(&mut self, route: usize, checks: &Checks<'_>, decision: &Decision) {
        let Self { worker, exchange, .. } = self;
        let source = SourceLabel::from(decision.source);
        // The shadow policy with the longest wait among those that would deny.
        let mut shadow: Option<(i64, usize)> = None;
        for outcome in checks.outcomes(decision) {
            let (policy, verdict) = (outcome.variant.policy, outcome.verdict);
            let is_shadow = outcome.check.policy.is_shadow;
            // A fallback has limits of its own.
            if decision.source != DecisionSource::Fallback {
                worker.peaks.record(DecidedCheck {
                    name: SampleName { route, policy, variant: outcome.variant.variant as usize },
                    check: outcome.check,
                    verdict: &outcome.verdict,
                    is_admitted: decision.admitted,
                    time: decision.time,
                });
            }
            let counted = match (verdict.admitted, is_shadow) {
                // If other checks deny the request, a check that admits it has decided nothing.
                (true, _) => decision.admitted.then_some(VerdictLabel::Allowed),
                (false, true) => Some(VerdictLabel::ShadowDenied),
                (false, false) => Some(VerdictLabel::Denied),
            };
            if let Some(counted) = counted {
                worker.metrics().decision(policy, counted, source);
            }
            if !is_shadow {
                exchange.outcomes.push(PolicyOutcome::from(outcome));
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
        if let Some(alerts) = &worker.alerts {
            self.compare_with_alerts(alerts, checks, decision);
        }
    }

    /// Out of line: most configurations have no alerts.
    #[inline(never)]
    fn compare_with_alerts(&self, alerts: &AlertWatch, checks: &Checks<'_>, decision: &Decision) {
        let exchange = &self.exchange;
        let client = || shown(masked(exchange.address(), self.worker.config().client_address.ipv6_prefix));
        for (nth, CheckOutcome { check, variant, verdict }) in checks.outcomes(decision).enumerate() {
            let (receipt, key) = (decision.receipt(nth), exchange.owner.key.as_deref());
            // Others do not know how much is used.
            if matches!(receipt.source, DecisionSource::Store | DecisionSource::Slice) {
                let policy = variant.policy;
                let decided = DecidedLimit { policy, check, verdict: &verdict, receipt, key };
                alerts.compare(decided, client);
            }
        }
    }

    /// Records a request that policies have denied.
    pub(super) fn denied(
        &mut self,
        checks: &Checks<'_>,
        decision: &Decision,
        context: &RequestContext<'_, '_>,
    ) -> RefusedBy {
        self.record_denials(checks, decision, context);
        let decisive = tightest(&self.exchange.outcomes).unwrap_or_default();
        let outcome = self.exchange.outcomes.get(decisive);
        let policy = outcome.map_or(0, |outcome| outcome.variant.policy);
        if self.exchange.history().is_some()
            && let Some(PolicyOutcome { variant, verdict, .. }) = outcome
        {
            let (variant, tier) = (variant.variant as u16, verdict.tier as u16);
            let by = DeniedBy::Limit { policy: policy as u32, variant, tier };
            self.keep_denial(by, self.status_of(policy), Some(context));
        }
        self.exchange.verdict.deny(policy);
        RefusedBy::Policies(decisive)
    }

    /// The status of a denial by the policy of this index.
    pub(super) fn status_of(&self, policy: usize) -> StatusCode {
        let policy = self.worker.config().policies.get(policy);
        let reply = policy.and_then(|policy| policy.reply.as_ref());
        reply.map_or(StatusCode::TOO_MANY_REQUESTS, |reply| reply.status)
    }

    /// Keeps a denial in the history. `context`: `None` if the route is not known.
    pub(super) fn keep_denial(
        &self,
        by: DeniedBy,
        status: StatusCode,
        context: Option<&RequestContext<'_, '_>>,
    ) {
        let Some(history) = self.exchange.history() else { return };
        let user = context.and_then(RequestContext::recorded_user);
        let request = context.map(RequestContext::request);
        let sample = || {
            let field = |name: &HeaderName| {
                let value = request.and_then(|request| request.headers.get(name)?.to_str().ok());
                value.unwrap_or_default()
            };
            let path = request.map(|request| request.uri.path()).unwrap_or_default();
            let authority = request.and_then(|request| request.uri.authority());
            let host = authority.map_or_else(|| field(&header::HOST), |authority| authority.as_str());
            let request_id = self.exchange.request_id().to_str().unwrap_or_default();
            DenialSample::new(path, host, field(&header::USER_AGENT), request_id, status)
        };
        let denied = DeniedRequest {
            address: self.exchange.address(),
            ipv6_prefix: self.worker.config().client_address.ipv6_prefix,
            owner: &self.exchange.owner,
            user: user.as_deref(),
            by,
            method: request.map_or(&Method::GET, |request| &request.method),
            time: self.exchange.time(),
        };
        history.record_denial(denied, sample);
    }

    /// Records the checks in `decision` that deny.
    pub(super) fn record_denials(
        &self,
        checks: &Checks<'_>,
        decision: &Decision,
        context: &RequestContext<'_, '_>,
    ) {
        let denials = || checks.outcomes(decision).filter(CheckOutcome::is_denial);
        for (nth, denied) in denials().enumerate() {
            self.denial_record(context).record(self.worker, &denied, decision.source, nth == 0);
        }
        record_offense(self.worker, &self.exchange, context, || {
            denials().map(|denied| (denied.variant.policy, &*denied.check.identifier))
        });
    }
}

impl From<DecisionSource> for SourceLabel {
    fn from(source: DecisionSource) -> Self {
        match source {
            DecisionSource::Store => Self::Store,
            DecisionSource::Slice => Self::Slice,
            DecisionSource::LocalDenial => Self::LocalDenial,
            DecisionSource::Fallback => Self::Fallback,
        }
    }
}
