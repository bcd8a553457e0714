//! The upstream of a request, as all attempts of the request need it.

use std::{rc::Rc, time::Instant};

use http::Request;

use super::{
    connection_state::{HandOff, PhaseTimer},
    reply::Reply,
    request_body::RequestBody,
    tunnel::Upgrade,
};
use crate::{
    config::model::{Protocol, Retry, Timeouts},
    telemetry::{
        Throttle,
        metrics::{AttemptOutcome, WorkerMetrics},
    },
    upstream::{HostChoice, HostPool, StreamNeeds, UpstreamClient, UpstreamPool},
};

/// The upstream of one request, the settings for its attempts, and the places where they are counted and reported.
pub(super) struct AttemptContext<'a> {
    pub(super) upstream: &'a Rc<UpstreamPool<RequestBody>>,
    pub(super) client: &'a Rc<UpstreamClient>,
    /// The upstream's index.
    pub(super) index: usize,
    pub(super) timeouts: Timeouts,
    pub(super) retry: &'a Retry,
    pub(super) timer: &'a PhaseTimer,
    pub(super) hand_off: &'a HandOff,
    pub(super) metrics: &'a WorkerMetrics,
    pub(super) warnings: &'a Throttle,
    /// The protocol that the request asks for instead of HTTP.
    pub(super) upgrade: Option<&'a Upgrade>,
}

impl AttemptContext<'_> {
    /// The requirements of `request` for a connection that others share.
    pub(super) fn needs(&self, request: &Request<RequestBody>) -> StreamNeeds {
        if self.upstream.shared().config.protocol == Protocol::H1 {
            return StreamNeeds::default();
        }
        let needs = StreamNeeds::of(request);
        StreamNeeds { is_alone: needs.is_alone || self.client.is_isolated(self.timer.now()), ..needs }
    }

    /// Picks a host for the next attempt, which begins `now`.
    ///
    /// # Errors
    /// No endpoint accepts requests. The client gets the reply.
    pub(super) fn pick(
        &self,
        choice: &HostChoice<'_>,
        now: Instant,
    ) -> Result<Rc<HostPool<RequestBody>>, Box<Reply>> {
        self.upstream.pick(choice, now).ok_or_else(|| self.no_endpoint())
    }

    /// The reply if no endpoint accepts requests.
    #[cold]
    pub(super) fn no_endpoint(&self) -> Box<Reply> {
        self.warn(format_args!(
            "all endpoints of upstream {} are drained: each request to it gets 503 until one is undrained",
            self.upstream.shared().config.name
        ));
        Box::new(Reply::no_endpoint())
    }

    /// Counts an attempt.
    pub(super) fn count(&self, outcome: AttemptOutcome) {
        self.metrics.upstream(self.index, outcome);
    }

    /// Logs a warning about the upstream, unless there were many just now.
    pub(super) fn warn(&self, what: std::fmt::Arguments<'_>) {
        if let Some(held_back) = self.warnings.pass(self.timer.now()) {
            tracing::warn!(upstream = %self.upstream.shared().config.name, held_back, "{what}");
        }
    }
}
