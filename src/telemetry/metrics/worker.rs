//! The metrics of one worker. Only its own thread may write to them; any thread may read.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use tollgate_derive::Label;

use super::{
    BanVerdict, Counter, CutOffMetrics, Gauge, QuestionMetrics, ServerErrorSource,
    bans::BanRow,
    connections::{ConnectionRefusal, Http2Abuse, IdleClosure},
    histogram::{Histogram, RequestTime},
    names::MetricNames,
    openings::OpeningMetrics,
    refusals::Refusal,
};
use crate::config::model::RetryReason;

/// The verdict of a policy on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
pub enum VerdictLabel {
    Allowed,
    Denied,
    /// A shadow policy would have denied it.
    ShadowDenied,
    /// The store was unavailable.
    Error,
}

/// Where a decision was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
pub enum SourceLabel {
    /// In the store.
    Store,
    /// In this instance, from its slice of the quota.
    #[label("lease")]
    Slice,
    /// In this worker, from a remembered denial.
    LocalDenial,
    /// Without the store, which was unavailable.
    Fallback,
}

/// The outcome of one attempt at an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
pub enum AttemptOutcome {
    /// A response with any status.
    Ok,
    /// Connecting failed.
    ConnectError,
    /// A limit of `timeouts` passed.
    Timeout,
    /// All connections are in use (`max_connections`).
    Overloaded,
    /// The connection was lost, or the response is not HTTP.
    Error,
    /// The client closed the connection first.
    Cancelled,
}

/// The state of a connection to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
pub enum PoolState {
    Active,
    Idle,
}

// Rows are aligned to cache lines: two workers' rows may be neighbours in memory, and a cache line that two cores write
// moves back and forth between them (false sharing).

#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct RouteRow {
    /// By status class, 1xx first.
    pub(super) requests: [Counter; 5],
    pub(super) denied: Counter,
    pub(super) server_errors: [Counter; ServerErrorSource::ALL.len()],
    pub(super) duration: Histogram<RequestTime>,
    /// Open tunnels.
    pub(super) tunnels: Gauge,
}

#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct PolicyRow {
    pub(super) decisions: [[Counter; SourceLabel::ALL.len()]; VerdictLabel::ALL.len()],
    /// Units of costs that responses tell.
    pub(super) units: [Counter; UnitsLabel::ALL.len()],
    /// Units that requests in progress have reserved.
    pub(super) open_units: Gauge,
    /// Responses that did not tell their cost.
    pub(super) costs_missing: Counter,
}

/// The uses of units of a cost that the response tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Label)]
pub(super) enum UnitsLabel {
    /// Taken before the response.
    Reserved,
    /// The costs of the responses.
    Charged,
    /// Reserved, but not charged.
    Refunded,
    /// Charged beyond the reservation.
    Excess,
}

#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct UpstreamRow {
    pub(super) requests: [Counter; AttemptOutcome::ALL.len()],
    pub(super) retries: [Counter; RetryReason::ALL.len()],
    /// Requests not retried because the retry budget was exhausted.
    pub(super) retry_budget_exhausted: Counter,
}

impl RouteRow {
    pub(super) fn add(&self, other: &Self) {
        add_each(&self.requests, &other.requests);
        self.denied.add(other.denied.value());
        add_each(&self.server_errors, &other.server_errors);
        self.duration.add(&other.duration);
        self.tunnels.add(other.tunnels.value());
    }
}

impl PolicyRow {
    pub(super) fn add(&self, other: &Self) {
        self.decisions.iter().zip(&other.decisions).for_each(|(sums, counted)| add_each(sums, counted));
        add_each(&self.units, &other.units);
        self.open_units.add(other.open_units.value());
        self.costs_missing.add(other.costs_missing.value());
    }
}

impl BanRow {
    pub(super) fn add(&self, other: &Self) {
        add_each(&self.0, &other.0);
    }
}

impl UpstreamRow {
    pub(super) fn add(&self, other: &Self) {
        add_each(&self.requests, &other.requests);
        add_each(&self.retries, &other.retries);
        self.retry_budget_exhausted.add(other.retry_budget_exhausted.value());
    }
}

fn add_each(sums: &[Counter], counted: &[Counter]) {
    sums.iter().zip(counted).for_each(|(sum, counted)| sum.add(counted.value()));
}

/// The counters of a worker that do not depend on the configuration.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct ThreadMetrics {
    connections: Gauge,
    leases: Gauge,
    refused: [Counter; ConnectionRefusal::ALL.len()],
    idle_closed: [Counter; IdleClosure::ALL.len()],
    http2_abuse: [Counter; Http2Abuse::ALL.len()],
    requests_refused: [Counter; Refusal::ALL.len()],
    openings: OpeningMetrics,
    cut_offs: CutOffMetrics,
    questions: QuestionMetrics,
    settlements_lost: Counter,
}

impl ThreadMetrics {
    /// Costs that responses told and the store did not get.
    pub fn settlements_lost(&self) -> &Counter {
        &self.settlements_lost
    }

    /// Open client connections.
    pub fn connections(&self) -> &Gauge {
        &self.connections
    }

    /// Leases of `concurrency` that requests hold.
    pub fn leases(&self) -> &Gauge {
        &self.leases
    }

    /// Client connections closed immediately for this reason.
    pub fn connections_refused(&self, reason: ConnectionRefusal) -> &Counter {
        &self.refused[reason as usize]
    }

    /// Idle client connections closed for this reason.
    pub fn idle_closed(&self, reason: IdleClosure) -> &Counter {
        &self.idle_closed[reason as usize]
    }

    /// HTTP/2 connections closed for abuse.
    pub fn http2_abuse(&self, abuse: Http2Abuse) -> &Counter {
        &self.http2_abuse[abuse as usize]
    }

    /// Requests refused for this reason.
    pub fn refused(&self, refusal: Refusal) -> &Counter {
        &self.requests_refused[refusal as usize]
    }

    /// Requests aborted because their clients were too slow.
    pub fn cut_offs(&self) -> &CutOffMetrics {
        &self.cut_offs
    }

    /// Answers to what other proxies ask.
    pub fn questions(&self) -> &QuestionMetrics {
        &self.questions
    }

    /// TLS handshakes and PROXY headers.
    pub fn openings(&self) -> &OpeningMetrics {
        &self.openings
    }
}

/// The connections of one worker to one upstream.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct PoolMetrics([Gauge; PoolState::ALL.len()]);

impl PoolMetrics {
    /// A copy of the current values.
    pub(super) fn copied(&self) -> Self {
        let copy = Self::default();
        copy.0.iter().zip(&self.0).for_each(|(copy, gauge)| copy.set(gauge.value()));
        copy
    }

    pub fn connections(&self, state: PoolState) -> &Gauge {
        &self.0[state as usize]
    }
}

/// The counters of one worker, by the indexes of one configuration.
#[derive(Debug)]
#[repr(align(64))]
pub struct WorkerMetrics {
    /// One for each route, and a last one for requests without a route.
    pub(super) routes: Box<[RouteRow]>,
    pub(super) policies: Box<[PolicyRow]>,
    pub(super) upstreams: Box<[UpstreamRow]>,
    /// One for each rule, and a last one for manual bans.
    pub(super) bans: Box<[BanRow]>,
    thread: Arc<ThreadMetrics>,
}

impl WorkerMetrics {
    pub(super) fn new(names: &MetricNames, thread: Arc<ThreadMetrics>) -> Self {
        Self {
            routes: rows(names.routes.len() + 1),
            policies: rows(names.policies.len()),
            upstreams: rows(names.upstreams.len()),
            bans: rows(names.bans.len()),
            thread,
        }
    }

    /// Counts a request completed with `status` after `elapsed`. `route`: index into `Config::routes`; `None` if no
    /// route matched.
    pub fn request(&self, route: Option<usize>, status: StatusCode, elapsed: Duration) {
        let index = route.unwrap_or(self.routes.len() - 1);
        if let Some(row) = self.routes.get(index) {
            let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
            row.requests[class].inc();
            row.duration.observe_time(elapsed);
        }
    }

    /// Counts that a completed request was denied by a policy or a ban. `route` as for [`WorkerMetrics::request`].
    pub fn denied(&self, route: Option<usize>) {
        if let Some(row) = self.routes.get(route.unwrap_or(self.routes.len() - 1)) {
            row.denied.inc();
        }
    }

    /// A request became a tunnel, until [`WorkerMetrics::tunnel_closed`]. `route` as for [`WorkerMetrics::request`].
    pub fn tunnel_opened(&self, route: Option<usize>) {
        if let Some(row) = self.routes.get(route.unwrap_or(self.routes.len() - 1)) {
            row.tunnels.inc();
        }
    }

    /// See [`WorkerMetrics::tunnel_opened`].
    pub fn tunnel_closed(&self, route: Option<usize>) {
        if let Some(row) = self.routes.get(route.unwrap_or(self.routes.len() - 1)) {
            row.tunnels.dec();
        }
    }

    /// Counts that a completed request got a 5xx status and was not denied. `route` as for [`WorkerMetrics::request`].
    pub fn server_error(&self, route: Option<usize>, source: ServerErrorSource) {
        if let Some(row) = self.routes.get(route.unwrap_or(self.routes.len() - 1)) {
            row.server_errors[source as usize].inc();
        }
    }

    /// Counts a decision of `Config::policies[policy]`.
    pub fn decision(&self, policy: usize, verdict: VerdictLabel, source: SourceLabel) {
        if let Some(row) = self.policies.get(policy) {
            row.decisions[verdict as usize][source as usize].inc();
        }
    }

    /// Counts units of `Config::policies[policy]` that a request has reserved.
    pub fn reserve_cost(&self, policy: usize, units: u64) {
        if let Some(row) = self.policies.get(policy) {
            row.units[UnitsLabel::Reserved as usize].add(units);
            row.open_units.add(units);
        }
    }

    /// Counts the cost of a response under `Config::policies[policy]`, after `reserved` units. `is_missing`: the
    /// response did not tell it.
    pub fn settle_cost(&self, policy: usize, reserved: u64, charged: u64, is_missing: bool) {
        let Some(row) = self.policies.get(policy) else { return };
        row.open_units.sub(reserved);
        row.units[UnitsLabel::Charged as usize].add(charged);
        row.units[UnitsLabel::Refunded as usize].add(reserved.saturating_sub(charged));
        row.units[UnitsLabel::Excess as usize].add(charged.saturating_sub(reserved));
        row.costs_missing.add(u64::from(is_missing));
    }

    /// Counts a request denied by a ban of `Config::bans[ban]`; the index after the last rule is manual bans.
    pub fn ban_denial(&self, ban: usize, verdict: BanVerdict) {
        if let Some(BanRow(counters)) = self.bans.get(ban) {
            counters[verdict as usize].inc();
        }
    }

    /// Counts an attempt at `Config::upstreams[upstream]`.
    pub fn upstream(&self, upstream: usize, outcome: AttemptOutcome) {
        if let Some(row) = self.upstreams.get(upstream) {
            row.requests[outcome as usize].inc();
        }
    }

    /// Counts a retry at `Config::upstreams[upstream]`.
    pub fn upstream_retry(&self, upstream: usize, reason: RetryReason) {
        if let Some(row) = self.upstreams.get(upstream) {
            row.retries[reason as usize].inc();
        }
    }

    /// Counts a request to `Config::upstreams[upstream]` not retried because the retry budget was exhausted.
    pub fn retry_budget_exhausted(&self, upstream: usize) {
        if let Some(row) = self.upstreams.get(upstream) {
            row.retry_budget_exhausted.inc();
        }
    }

    /// The counters that do not depend on the configuration.
    pub fn thread(&self) -> &Arc<ThreadMetrics> {
        &self.thread
    }
}

fn rows<T: Default>(count: usize) -> Box<[T]> {
    std::iter::repeat_with(T::default).take(count).collect()
}
