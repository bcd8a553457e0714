//! The totals since the start, of all workers and all configurations.

use std::{iter::Sum, ops::Sub};

use indexmap::IndexMap;

use super::{
    Counter, PoolMetrics, ServerErrorCounts, WorkerMetrics,
    bans::BanRow,
    histogram::{HistogramTotal, quantile},
    names::{MAX_RETIRED_NAMES, MetricNames},
    worker::{AttemptOutcome, PolicyRow, PoolState, RouteRow, UnitsLabel, UpstreamRow, VerdictLabel},
};

/// The counts under all configurations: a row for each name.
#[derive(Debug, Default)]
pub struct Totals {
    /// The empty name counts requests without a route.
    pub(super) routes: IndexMap<String, RouteRow>,
    pub(super) policies: IndexMap<String, PolicyRow>,
    pub(super) upstreams: IndexMap<String, UpstreamRow>,
    pub(super) bans: IndexMap<String, BanRow>,
    /// The number of routes in force, including the empty name; they come first in `routes`.
    pub(super) present: usize,
    /// The connections of each worker, by upstream name.
    pub(super) pools: Vec<(String, PoolMetrics)>,
}

/// The requests of one route.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouteTotals {
    /// By status class, 1xx first.
    pub statuses: [u64; 5],
    /// Requests that a policy or a ban denied.
    pub denied: u64,
    /// 5xx responses by source.
    pub server_errors: ServerErrorCounts,
    /// Estimated quantiles of the duration in seconds: 0.5, 0.9, 0.99. `None` without requests.
    pub latency: Option<[f64; 3]>,
    /// Open tunnels.
    pub tunnels: u64,
}

/// The outcomes of the requests of one route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteOutcomes {
    /// Completed requests that were not denied.
    pub served: u64,
    /// Served requests with a 5xx status.
    pub errors: ServerErrorCounts,
}

/// The increase since an earlier reading.
impl Sub for RouteOutcomes {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { served: self.served.saturating_sub(before.served), errors: self.errors - before.errors }
    }
}

impl Sum for RouteOutcomes {
    fn sum<I: Iterator<Item = Self>>(each: I) -> Self {
        each.fold(Self::default(), |sum, one| Self {
            served: sum.served + one.served,
            errors: [sum.errors, one.errors].into_iter().sum(),
        })
    }
}

/// The decisions of one policy, from all sources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyTotals {
    pub allowed: u64,
    pub denied: u64,
    pub shadow_denied: u64,
    pub errors: u64,
    /// Units of costs that responses tell: reservations of requests in progress, and charges for responses.
    pub reserved: u64,
    pub charged: u64,
}

/// Attempts at one upstream, and its connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamTotals {
    /// By the name of the outcome.
    pub attempts: Vec<(&'static str, u64)>,
    /// Attempts that were retried.
    pub retries: u64,
    pub active: u64,
    pub idle: u64,
}

impl Totals {
    /// The totals of a route; zeros for an unknown name.
    pub fn route(&self, name: &str) -> RouteTotals {
        let Some(row) = self.routes.get(name) else { return RouteTotals::default() };
        let durations = HistogramTotal::from_histograms(std::iter::once(&row.duration)).buckets;
        let at = |share| quantile(&durations, share);
        let latency = at(0.5).zip(at(0.9)).zip(at(0.99)).map(|((p50, p90), p99)| [p50, p90, p99]);
        RouteTotals {
            statuses: row.requests.each_ref().map(Counter::value),
            denied: row.denied.value(),
            server_errors: row.server_errors(),
            latency,
            tunnels: row.tunnels.value(),
        }
    }

    /// The outcomes of each route in force, by name. Requests without a route are left out.
    pub fn route_outcomes(&self) -> impl Iterator<Item = (&str, RouteOutcomes)> {
        let present = self.routes.iter().take(self.present).filter(|(name, _)| !name.is_empty());
        present.map(|(name, row)| {
            let completed: u64 = row.requests.iter().map(Counter::value).sum();
            // The counters are not read at one instant, so `denied` may already be higher.
            let served = completed.saturating_sub(row.denied.value());
            (name.as_str(), RouteOutcomes { served, errors: row.server_errors() })
        })
    }

    /// The totals of a policy; zeros for an unknown name.
    pub fn policy(&self, name: &str) -> PolicyTotals {
        let Some(row) = self.policies.get(name) else { return PolicyTotals::default() };
        let sum = |verdict: VerdictLabel| row.decisions[verdict as usize].iter().map(Counter::value).sum();
        PolicyTotals {
            allowed: sum(VerdictLabel::Allowed),
            denied: sum(VerdictLabel::Denied),
            shadow_denied: sum(VerdictLabel::ShadowDenied),
            errors: sum(VerdictLabel::Error),
            reserved: row.open_units.value(),
            charged: row.units[UnitsLabel::Charged as usize].value(),
        }
    }

    /// The totals of an upstream; zeros for an unknown name.
    pub fn upstream(&self, name: &str) -> UpstreamTotals {
        let Some(row) = self.upstreams.get(name) else { return UpstreamTotals::default() };
        let attempts =
            AttemptOutcome::ALL.map(|outcome| (outcome.name(), row.requests[outcome as usize].value()));
        let open = |state: PoolState| {
            let pools = self.pools.iter().filter(|(of, _)| of == name);
            pools.map(|(_, pool)| pool.connections(state).value()).sum()
        };
        UpstreamTotals {
            attempts: attempts.into(),
            retries: row.retries.iter().map(Counter::value).sum(),
            active: open(PoolState::Active),
            idle: open(PoolState::Idle),
        }
    }
}

impl RouteRow {
    pub(super) fn server_errors(&self) -> ServerErrorCounts {
        ServerErrorCounts::from_counts(self.server_errors.each_ref().map(Counter::value))
    }
}

impl Totals {
    /// A row of zeros for each name.
    pub(super) fn zeros(names: &MetricNames) -> Self {
        let mut totals = Self::default();
        for name in names.routes.iter().map(String::as_str).chain([""]) {
            row(&mut totals.routes, name);
        }
        for name in &names.policies {
            row(&mut totals.policies, name);
        }
        for name in &names.upstreams {
            row(&mut totals.upstreams, name);
        }
        for name in &names.bans {
            row(&mut totals.bans, name);
        }
        totals.present = totals.routes.len();
        totals
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        other.routes.iter().for_each(|(name, counted)| row(&mut self.routes, name).add(counted));
        other.policies.iter().for_each(|(name, counted)| row(&mut self.policies, name).add(counted));
        other.upstreams.iter().for_each(|(name, counted)| row(&mut self.upstreams, name).add(counted));
        other.bans.iter().for_each(|(name, counted)| row(&mut self.bans, name).add(counted));
    }

    pub(super) fn add_worker(
        &mut self,
        MetricNames { routes, policies, upstreams, bans }: &MetricNames,
        worker: &WorkerMetrics,
    ) {
        for (name, counted) in routes.iter().map(String::as_str).chain([""]).zip(&worker.routes) {
            row(&mut self.routes, name).add(counted);
        }
        for (name, counted) in policies.iter().zip(&worker.policies) {
            row(&mut self.policies, name).add(counted);
        }
        for (name, counted) in upstreams.iter().zip(&worker.upstreams) {
            row(&mut self.upstreams, name).add(counted);
        }
        for (name, counted) in bans.iter().zip(&worker.bans) {
            row(&mut self.bans, name).add(counted);
        }
    }

    /// Drops the oldest retired names if there are too many.
    pub(super) fn forget_oldest(&mut self, names: &MetricNames) {
        forget_oldest(&mut self.routes, names.routes.len() + 1);
        forget_oldest(&mut self.policies, names.policies.len());
        forget_oldest(&mut self.upstreams, names.upstreams.len());
        forget_oldest(&mut self.bans, names.bans.len());
    }
}

fn row<'a, R: Default>(rows: &'a mut IndexMap<String, R>, name: &str) -> &'a mut R {
    if !rows.contains_key(name) {
        rows.insert(name.to_owned(), R::default());
    }
    &mut rows[name]
}

fn forget_oldest<R>(rows: &mut IndexMap<String, R>, present: usize) {
    let excess = rows.len().saturating_sub(present + MAX_RETIRED_NAMES);
    rows.drain(..excess);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;

    use super::*;
    use crate::telemetry::{
        metrics::{Metrics, SourceLabel},
        testing::config,
    };

    #[test]
    fn all_workers_count_together() {
        let metrics = Metrics::new(&config(), 2);
        for worker in [0, 1] {
            let worker = metrics.worker(worker);
            worker.request(Some(0), StatusCode::OK, Duration::from_millis(2));
            worker.request(Some(0), StatusCode::TOO_MANY_REQUESTS, Duration::from_millis(2));
            worker.decision(0, VerdictLabel::Denied, SourceLabel::LocalDenial);
            worker.decision(0, VerdictLabel::Denied, SourceLabel::Store);
            worker.upstream(0, AttemptOutcome::ConnectError);
        }
        assert_eq!(metrics.totals().route("all").statuses, [0, 2, 0, 2, 0]);
        let [half, _, most] = metrics.totals().route("all").latency.unwrap();
        assert!(half > 0.001 && most <= 0.0025, "{half} {most}");
        assert_eq!(metrics.totals().policy("per-ip"), PolicyTotals { denied: 4, ..PolicyTotals::default() });
        let upstream = metrics.totals().upstream("api");
        assert!(upstream.attempts.contains(&("connect_error", 2)) && upstream.attempts.contains(&("ok", 0)));
        assert_eq!((metrics.totals().route("no"), metrics.totals().policy("no")), Default::default());
    }
}
