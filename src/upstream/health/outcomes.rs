//! Outcomes of connections and requests to a host, and their effect on its health.

use std::{error::Error, sync::Arc, time::Instant};

use http::Response;

use super::outliers::RequestFailure;
use crate::{
    changes,
    config::model::Protocol,
    upstream::{ConnectError, HostChange, SharedUpstream, UpstreamHost},
};

impl SharedUpstream {
    /// A connection to `host` was opened.
    pub(in crate::upstream) fn connected(&self, host: &UpstreamHost) {
        if let Some(change) = host.state.connected() {
            self.report_change(host, &change);
        }
    }

    /// No connection to `host` could be opened.
    pub(in crate::upstream) fn not_connected(&self, host: &UpstreamHost, error: &ConnectError) {
        if matches!(error, ConnectError::Exhausted(_)) {
            return;
        }
        let now = Instant::now();
        host.state.count_request();
        host.state.count_error();
        self.unreachable(host, self.describe_connect_error(host, error), now);
        if matches!(error, ConnectError::Timeout | ConnectError::HandshakeTimeout) {
            self.failed(host, RequestFailure::ConnectTimeout, now);
        }
    }

    /// `host` can't be reached.
    pub(in crate::upstream) fn unreachable(&self, host: &UpstreamHost, error: String, now: Instant) {
        // Its name is resolved again anyway.
        if host.is_unresolved() {
            return;
        }
        if let Some(change) = host.state.mark_unreachable(error, now) {
            self.report_change(host, &change);
        }
        self.resolve_if_all_fail(host);
    }

    /// If no address of the host's name works, the name may have new ones.
    pub(super) fn resolve_if_all_fail(&self, host: &UpstreamHost) {
        let Some(name) = &host.name else { return };
        let is_its =
            |other: &Arc<UpstreamHost>| other.name.as_ref().is_some_and(|its| Arc::ptr_eq(its, name));
        if self.hosts().iter().filter(|other| is_its(other)).all(|host| !host.state.is_healthy()) {
            name.want();
        }
    }

    /// `host` sent this response to a request that began at `began`. While the client still `owes_body`, it does not
    /// count as a failure of the host.
    #[inline]
    pub fn responded<B>(
        &self,
        host: &UpstreamHost,
        response: &Response<B>,
        owes_body: bool,
        began: Instant,
        now: Instant,
    ) {
        let may_be_grpc = self.config.protocol != Protocol::H1;
        let failure = RequestFailure::of_response(response.status(), response.headers(), may_be_grpc)
            .filter(|_| !owes_body);
        if failure.is_some() || !host.state.is_untroubled() {
            self.responded_in_trouble(host, failure, began, now);
        }
    }

    #[cold]
    fn responded_in_trouble(
        &self,
        host: &UpstreamHost,
        failure: Option<RequestFailure<'_>>,
        began: Instant,
        now: Instant,
    ) {
        if let Some(change) = host.state.responded(now) {
            self.report_change(host, &change);
        }
        match failure {
            Some(failure) => {
                host.state.count_error();
                self.failed(host, failure, now);
            }
            None => {
                if let Some(change) = host.state.succeeded(began, now) {
                    self.report_change(host, &change);
                }
            }
        }
    }

    /// `host` did not respond in time.
    pub fn response_timed_out(&self, host: &UpstreamHost, now: Instant) {
        host.state.count_error();
        self.failed(host, RequestFailure::ResponseTimeout, now);
    }

    /// The connection to `host` broke before the response to a request that began at `began`.
    pub fn broke_off(
        &self,
        host: &UpstreamHost,
        error: &(dyn Error + 'static),
        began: Instant,
        now: Instant,
    ) {
        host.state.count_error();
        if host.state.counts_broken(began, now) {
            self.failed(host, RequestFailure::Broken(&self.describe(host, error)), now);
        }
    }

    /// A kept connection to `host` was closed under a request that could not be sent again. The host may be healthy,
    /// but there was no response.
    pub fn left_unanswered(&self, host: &UpstreamHost) {
        host.state.count_error();
    }

    #[cold]
    fn failed(&self, host: &UpstreamHost, failure: RequestFailure<'_>, now: Instant) {
        if let Some(change) = self.outliers.failed(|| self.hosts_snapshot().hosts, host, failure, now) {
            self.report_change(host, &change);
            self.resolve_if_all_fail(host);
            // The ejection has an end.
            changes::announce();
        }
    }

    /// Ends ejections whose time is over. Returns when the next one ends.
    pub(super) fn settle_ejections(&self, now: Instant) -> Option<Instant> {
        let (hosts, in_use) = (self.hosts(), self.hosts_snapshot().hosts);
        self.outliers.settle(&hosts, &in_use, now, |host, change| self.report_change(host, &change));
        hosts.iter().filter_map(|host| host.state.ejected_until()).min()
    }

    /// Its hosts are no longer probed, or with other settings.
    pub(super) fn checks_changed(&self) {
        for host in &*self.hosts() {
            if let Some(change) = host.state.checks_changed(self.config.health.is_some()) {
                self.report_change(host, &change);
            }
        }
    }

    /// Logs the change.
    pub(super) fn report_change(&self, host: &UpstreamHost, change: &HostChange) {
        let (upstream, url, reason) = (&self.config.name, host.url(), &change.reason);
        let address = host.address.filter(|address| host.endpoint.host() != address.ip().to_string());
        let address = address.map(|address| format!(" ({address})")).unwrap_or_default();
        if change.is_healthy {
            tracing::info!(%upstream, "endpoint {url}{address} {reason}");
        } else {
            tracing::warn!(%upstream, "endpoint {url}{address} {reason}");
        }
    }
}
