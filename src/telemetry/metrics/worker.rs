//! The metrics of one worker. Only its own thread may write to them; any thread may read.

use std::{sync::Arc, time::Duration};

use http::StatusCode;

use super::{
    BanVerdict, Counter, CutOffMetrics, Gauge, ServerErrorSource,
    bans::BanRow,
    connections::{ConnectionRefusal, Http2Abuse, IdleClosure},
    generation::Names,
    histogram::{Histogram, RequestTime},
    openings::OpeningMetrics,
    refusals::Refusal,
};
use crate::config::model::RetryReason;

/// The verdict of a policy on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictLabel {
    Allowed,
    Denied,
    /// It would have denied, but is a shadow policy.
    ShadowDenied,
    /// The store was not available.
    Error,
}

impl VerdictLabel {
    pub(super) const ALL: [(Self, &'static str); 4] = [
        (Self::Allowed, "allowed"),
        (Self::Denied, "denied"),
        (Self::ShadowDenied, "shadow_denied"),
        (Self::Error, "error"),
    ];
}

/// Where a decision was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceLabel {
    /// In the store that holds the limits.
    Store,
    /// By the instance itself, from its slice of the quota.
    Slice,
    /// By the worker itself, from a denial it remembers.
    LocalDenial,
    /// Without the store, which was not available.
    Fallback,
}

impl SourceLabel {
    pub(super) const ALL: [(Self, &'static str); 4] = [
        (Self::Store, "store"),
        (Self::Slice, "lease"),
        (Self::LocalDenial, "local_denial"),
        (Self::Fallback, "fallback"),
    ];

    /// The word for it: `local_denial`
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// How one attempt at an upstream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It answered, whatever the status.
    Ok,
    /// No connection could be made.
    ConnectError,
    /// It took longer than `timeouts` allows.
    Timeout,
    /// Its connections are all in use (`max_connections`).
    Overloaded,
    /// The connection broke, or the answer is not HTTP.
    Error,
    /// The client went away first.
    Cancelled,
}

impl Outcome {
    pub(super) const ALL: [(Self, &'static str); 6] = [
        (Self::Ok, "ok"),
        (Self::ConnectError, "connect_error"),
        (Self::Timeout, "timeout"),
        (Self::Overloaded, "overloaded"),
        (Self::Error, "error"),
        (Self::Cancelled, "cancelled"),
    ];
}

/// What a connection to an upstream is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolState {
    Active,
    Idle,
}

impl PoolState {
    pub(super) const ALL: [(Self, &'static str); 2] = [(Self::Active, "active"), (Self::Idle, "idle")];
}

// Rows are aligned to cache lines: two workers' rows may be neighbours in memory, and a line that two
// cores write to goes back and forth between them.

#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct RouteRow {
    /// By status class, 1xx first.
    pub(super) requests: [Counter; 5],
    pub(super) denied: Counter,
    pub(super) server_errors: [Counter; ServerErrorSource::ALL.len()],
    pub(super) duration: Histogram<RequestTime>,
    /// Open now.
    pub(super) tunnels: Gauge,
}

#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct PolicyRow {
    pub(super) decisions: [[Counter; SourceLabel::ALL.len()]; VerdictLabel::ALL.len()],
}

#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct UpstreamRow {
    pub(super) requests: [Counter; Outcome::ALL.len()],
    pub(super) retries: [Counter; RetryReason::ALL.len()],
    /// Requests that were not tried again, because too many had been.
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

/// What of a worker no configuration names.
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
}

impl ThreadMetrics {
    /// The client connections that this worker has open.
    pub fn connections(&self) -> &Gauge {
        &self.connections
    }

    /// The leases of `concurrency` that this worker's requests hold.
    pub fn leases(&self) -> &Gauge {
        &self.leases
    }

    /// The client connections closed at once for this reason.
    pub fn connections_refused(&self, reason: ConnectionRefusal) -> &Counter {
        &self.refused[reason as usize]
    }

    /// The idle client connections closed for this reason.
    pub fn idle_closed(&self, reason: IdleClosure) -> &Counter {
        &self.idle_closed[reason as usize]
    }

    /// The HTTP/2 connections closed for what their clients did.
    pub fn http2_abuse(&self, abuse: Http2Abuse) -> &Counter {
        &self.http2_abuse[abuse as usize]
    }

    /// The requests that were refused for this reason.
    pub fn refused(&self, refusal: Refusal) -> &Counter {
        &self.requests_refused[refusal as usize]
    }

    /// Requests whose clients were too slow.
    pub fn cut_offs(&self) -> &CutOffMetrics {
        &self.cut_offs
    }

    /// TLS handshakes and PROXY headers.
    pub fn openings(&self) -> &OpeningMetrics {
        &self.openings
    }
}

/// The connections of one worker to one upstream, for as long as it has any to do with it.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct PoolMetrics([Gauge; PoolState::ALL.len()]);

impl PoolMetrics {
    /// As it stands now.
    pub(super) fn copied(&self) -> Self {
        let copy = Self::default();
        copy.0.iter().zip(&self.0).for_each(|(copy, gauge)| copy.set(gauge.value()));
        copy
    }

    /// Those that do this.
    pub fn connections(&self, state: PoolState) -> &Gauge {
        &self.0[state as usize]
    }
}

/// The counters of one worker, by the indexes of one configuration.
#[derive(Debug)]
#[repr(align(64))]
pub struct WorkerMetrics {
    /// One a route, and a last one for requests that matched none.
    pub(super) routes: Box<[RouteRow]>,
    pub(super) policies: Box<[PolicyRow]>,
    pub(super) upstreams: Box<[UpstreamRow]>,
    /// One a rule, and a last one for bans by hand.
    pub(super) bans: Box<[BanRow]>,
    thread: Arc<ThreadMetrics>,
}

impl WorkerMetrics {
    pub(super) fn new(names: &Names, thread: Arc<ThreadMetrics>) -> Self {
        Self {
            routes: rows(names.routes.len() + 1),
            policies: rows(names.policies.len()),
            upstreams: rows(names.upstreams.len()),
            bans: rows(names.bans.len()),
            thread,
        }
    }

    /// A request was answered with `status` after `elapsed`. `route`: index into `Config::routes`, `None`
    /// where none matched.
    pub fn request(&self, route: Option<usize>, status: StatusCode, elapsed: Duration) {
        let index = route.unwrap_or(self.routes.len() - 1);
        if let Some(row) = self.routes.get(index) {
            let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
            row.requests[class].inc();
            row.duration.observe_time(elapsed);
        }
    }

    /// A request that was answered was one that a policy or a ban held back. `route` as for [`WorkerMetrics::request`].
    pub fn denied(&self, route: Option<usize>) {
        if let Some(row) = self.routes.get(route.unwrap_or(self.routes.len() - 1)) {
            row.denied.inc();
        }
    }

    /// A request has become a tunnel, for as long as until [`WorkerMetrics::tunnel_closed`]. `route` as for
    /// [`WorkerMetrics::request`].
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

    /// A request that was answered got a 5xx status, and was not denied. `route` as for [`WorkerMetrics::request`].
    pub fn server_error(&self, route: Option<usize>, source: ServerErrorSource) {
        if let Some(row) = self.routes.get(route.unwrap_or(self.routes.len() - 1)) {
            row.server_errors[source as usize].inc();
        }
    }

    /// `Config::policies[policy]` decided over a request.
    pub fn decision(&self, policy: usize, verdict: VerdictLabel, source: SourceLabel) {
        if let Some(row) = self.policies.get(policy) {
            row.decisions[verdict as usize][source as usize].inc();
        }
    }

    /// The verdict of a ban on a request: one of `Config::bans[ban]`, or, behind all of these, one by hand.
    pub fn ban_denial(&self, ban: usize, verdict: BanVerdict) {
        if let Some(BanRow(counters)) = self.bans.get(ban) {
            counters[verdict as usize].inc();
        }
    }

    /// One attempt at `Config::upstreams[upstream]` ended.
    pub fn upstream(&self, upstream: usize, outcome: Outcome) {
        if let Some(row) = self.upstreams.get(upstream) {
            row.requests[outcome as usize].inc();
        }
    }

    /// A request to `Config::upstreams[upstream]` is tried again.
    pub fn upstream_retry(&self, upstream: usize, reason: RetryReason) {
        if let Some(row) = self.upstreams.get(upstream) {
            row.retries[reason as usize].inc();
        }
    }

    /// A request to `Config::upstreams[upstream]` is not tried again, because too many were.
    pub fn retry_budget_exhausted(&self, upstream: usize) {
        if let Some(row) = self.upstreams.get(upstream) {
            row.retry_budget_exhausted.inc();
        }
    }

    /// What is counted of the worker whatever its configuration.
    pub fn thread(&self) -> &Arc<ThreadMetrics> {
        &self.thread
    }
}

fn rows<T: Default>(count: usize) -> Box<[T]> {
    std::iter::repeat_with(T::default).take(count).collect()
}
