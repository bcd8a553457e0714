//! Whether a request is sent to the upstream again, and how.

use std::{rc::Rc, sync::Arc, time::Duration};

use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use tokio::{task::spawn_local, time::timeout};

use super::{attempt_context::AttemptContext, request_body::RequestBody, request_copy::RequestCopy};
use crate::{
    config::model::RetryReason,
    telemetry::access_log::RetriedTry,
    upstream::{Affinity, HostChoice, HostPool, IncomingBody, StreamNeeds, UpstreamConnection, UpstreamHost},
};

/// The attempts of a request, the ones still allowed, and how the next one is made.
pub(super) struct Retries<'a> {
    context: &'a AttemptContext<'a>,
    /// Attempts that `retry.max` still allows.
    left: usize,
    /// Whether a kept connection of the request was found closed.
    is_replaced: bool,
    tried: &'a mut Vec<RetriedTry>,
    /// Hosts that the next attempt avoids, the last one last.
    failed_on: Vec<Arc<UpstreamHost>>,
    /// The requirements for a connection that others share.
    pub(super) needs: StreamNeeds,
    /// Whether the next attempt opens a new connection rather than check one out of the pool.
    is_fresh: bool,
}

impl<'a> Retries<'a> {
    /// `request` was not sent yet. Attempts that are followed by another one are noted in `tried`.
    pub(super) fn new(
        context: &'a AttemptContext<'a>,
        request: &Request<RequestBody>,
        tried: &'a mut Vec<RetriedTry>,
    ) -> Self {
        Self {
            left: context.retry.max,
            is_replaced: false,
            tried,
            failed_on: Vec::new(),
            needs: context.needs(request),
            is_fresh: false,
            context,
        }
    }

    /// Checks a connection to `host` out of the pool, if there is one and the next attempt may use it.
    pub(super) fn checkout(
        &self,
        host: &Rc<HostPool<RequestBody>>,
    ) -> Option<UpstreamConnection<RequestBody>> {
        let AttemptContext { upstream, client, .. } = self.context;
        if self.is_fresh { None } else { upstream.checkout(host, client, self.needs) }
    }

    /// A connection has failed. `is_death`: the whole connection, perhaps because of this request.
    pub(super) fn connection_failed(&mut self, is_death: bool) {
        self.is_fresh = true;
        self.needs.is_alone |= is_death;
    }

    /// The choice of a host for the next attempt. `affinity` ties the request to one.
    pub(super) fn choice<'c>(&'c self, affinity: &'c Affinity) -> HostChoice<'c> {
        HostChoice { affinity, tried: &self.failed_on, within: self.context.timeouts.connect }
    }

    /// A copy of `request`, which is about to be sent, if it may be needed and may be used: the method is idempotent
    /// (RFC 9110, 9.2.2), the request is not a tunnel's handshake, and the whole body is at hand.
    pub(super) fn copy(&self, request: &Request<RequestBody>) -> Option<RequestCopy> {
        let is_safe = request.method().is_idempotent() && self.context.upgrade.is_none();
        // A request without a response is given back.
        let may_need = |reason: &RetryReason| !matches!(reason, RetryReason::Connect | RetryReason::Refused);
        let may_be_needed = self.left > 0 && self.context.retry.when.iter().any(may_need);
        if is_safe && may_be_needed { RequestCopy::new(request) } else { None }
    }

    /// Whether the request is sent over another connection to `host`, because its kept connection was found closed.
    /// That happens to healthy endpoints, too, and does not count as an attempt.
    pub(super) fn may_replace(&mut self, host: &HostPool<RequestBody>) -> bool {
        if self.is_replaced {
            return false;
        }
        self.is_replaced = true;
        self.note(RetryReason::Refused, host);
        // An endpoint that closes connections may be shutting down, so another one is preferred. A client that is tied
        // to this endpoint keeps it as long as it accepts connections.
        if !self.context.upstream.shared().config.ties_requests() {
            self.failed_on.push(Arc::clone(&host.host));
        }
        true
    }

    /// Whether the request is retried after an attempt at `host` that failed for this `reason`.
    pub(super) fn may_retry(&mut self, reason: RetryReason, host: &HostPool<RequestBody>) -> bool {
        let AttemptContext { retry, timer, upstream, upgrade, metrics, index, .. } = *self.context;
        // A host that has seen a tunnel's handshake may have acted on it.
        let is_safe = upgrade.is_none() || matches!(reason, RetryReason::Connect | RetryReason::Refused);
        let is_over = timer.is_response_late() || timer.is_call_over();
        if self.left == 0 || !retry.when.contains(&reason) || !is_safe || is_over {
            return false;
        }
        if !upstream.retry_budget().take(retry.budget, timer.now()) {
            metrics.retry_budget_exhausted(index);
            return false;
        }
        self.left -= 1;
        self.note(reason, host);
        self.failed_on.push(Arc::clone(&host.host));
        true
    }

    fn note(&mut self, reason: RetryReason, host: &UpstreamHost) {
        self.context.metrics.upstream_retry(self.context.index, reason);
        let upstream = host.endpoint.authority.as_str().to_owned();
        self.tried.push(RetriedTry { upstream, reason });
    }
}

/// Bytes of a response for no client that are read to keep its connection, and for how long.
const MAX_DISCARDED: usize = 64 << 10;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// Reads and drops a response for no client, so that its connection can be used again. A long one is not read: its
/// connection is closed.
pub(super) fn discard(response: Response<IncomingBody>, connection: UpstreamConnection<RequestBody>) {
    let body = response.into_body();
    if body.is_end_stream() {
        connection.release();
        return;
    }
    spawn_local(async move {
        let read = timeout(DISCARD_TIMEOUT, Limited::new(body, MAX_DISCARDED).collect()).await;
        match read {
            Ok(Ok(_)) => connection.release(),
            _ => connection.excuse_client(),
        }
    });
}
