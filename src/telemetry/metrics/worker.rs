//! What one worker counts. Only its own thread may call these; anyone may read.

use std::time::Duration;

use http::StatusCode;

use super::{
    BanVerdict, Counter, Gauge,
    bans::BanRow,
    histogram::{Histogram, RequestTime},
};

/// What a policy said to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    Denied,
    /// It would have denied, but is a shadow policy.
    ShadowDenied,
    /// The store could not be asked.
    Error,
}

impl Verdict {
    pub(super) const ALL: [(Self, &'static str); 4] = [
        (Self::Allowed, "allowed"),
        (Self::Denied, "denied"),
        (Self::ShadowDenied, "shadow_denied"),
        (Self::Error, "error"),
    ];
}

/// Where a decision was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// In the store that holds the limits.
    Store,
    /// By the instance itself, of quota that it had taken beforehand.
    Lease,
    /// By the worker itself, which remembered a denial.
    LocalDenial,
    /// Without the store, which was away.
    Fallback,
}

impl Source {
    pub(super) const ALL: [(Self, &'static str); 4] = [
        (Self::Store, "store"),
        (Self::Lease, "lease"),
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
    pub(super) duration: Histogram<RequestTime>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct PolicyRow {
    pub(super) decisions: [[Counter; Source::ALL.len()]; Verdict::ALL.len()],
}

#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct UpstreamRow {
    pub(super) requests: [Counter; Outcome::ALL.len()],
    pub(super) retries: Counter,
    pub(super) connections: [Gauge; PoolState::ALL.len()],
}

/// The counters of one worker, by the indexes of the configuration.
#[derive(Debug)]
#[repr(align(64))]
pub struct WorkerMetrics {
    /// One a route, and a last one for requests that matched none.
    pub(super) routes: Box<[RouteRow]>,
    pub(super) policies: Box<[PolicyRow]>,
    pub(super) upstreams: Box<[UpstreamRow]>,
    /// One a rule, and a last one for bans by hand.
    pub(super) bans: Box<[BanRow]>,
    connections: Gauge,
    leases: Gauge,
    refused: Counter,
    bad_requests: Counter,
}

impl WorkerMetrics {
    pub(super) fn new(routes: usize, policies: usize, upstreams: usize, bans: usize) -> Self {
        Self {
            routes: rows(routes + 1),
            policies: rows(policies),
            upstreams: rows(upstreams),
            bans: rows(bans),
            connections: Gauge::default(),
            leases: Gauge::default(),
            refused: Counter::default(),
            bad_requests: Counter::default(),
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

    /// A request that was answered was one that a policy held back. `route` as for [`WorkerMetrics::request`].
    pub fn denied(&self, route: Option<usize>) {
        if let Some(row) = self.routes.get(route.unwrap_or(self.routes.len() - 1)) {
            row.denied.inc();
        }
    }

    /// `Config::policies[policy]` decided over a request.
    pub fn decision(&self, policy: usize, verdict: Verdict, source: Source) {
        if let Some(row) = self.policies.get(policy) {
            row.decisions[verdict as usize][source as usize].inc();
        }
    }

    /// A ban said this to a request: one of `Config::bans[ban]`, or, behind all of these, one by hand.
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
    pub fn upstream_retry(&self, upstream: usize) {
        if let Some(row) = self.upstreams.get(upstream) {
            row.retries.inc();
        }
    }

    /// This worker's connections to `Config::upstreams[upstream]`; `None` where there is no such upstream.
    pub fn upstream_connections(&self, upstream: usize, state: PoolState) -> Option<&Gauge> {
        self.upstreams.get(upstream).map(|row| &row.connections[state as usize])
    }

    /// The client connections that this worker has open.
    pub fn connections(&self) -> &Gauge {
        &self.connections
    }

    /// The leases of `concurrency` that this worker's requests hold.
    pub fn leases(&self) -> &Gauge {
        &self.leases
    }

    /// The client connections closed at once, because there were too many.
    pub fn connections_refused(&self) -> &Counter {
        &self.refused
    }

    /// The heads that are no request, or are too large: refused before a request could be made of them.
    pub fn bad_requests(&self) -> &Counter {
        &self.bad_requests
    }
}

fn rows<T: Default>(count: usize) -> Box<[T]> {
    std::iter::repeat_with(T::default).take(count).collect()
}
