//! The totals since the start, of all workers and all configurations.

use std::{iter::Sum, ops::Sub};

use indexmap::IndexMap;

use super::{
    Counter, PoolMetrics, ServerErrors, WorkerMetrics,
    bans::BanRow,
    generation::{MAX_RETIRED_NAMES, Names},
    histogram::{HistogramTotal, quantile},
    worker::{Outcome, PolicyRow, PoolState, RouteRow, UpstreamRow, VerdictLabel},
};

/// What was counted under all configurations: a row for each name.
#[derive(Debug, Default)]
pub struct Totals {
    /// Requests that matched none are counted under the empty name.
    pub(super) routes: IndexMap<String, RouteRow>,
    pub(super) policies: IndexMap<String, PolicyRow>,
    pub(super) upstreams: IndexMap<String, UpstreamRow>,
    pub(super) bans: IndexMap<String, BanRow>,
    /// Of the routes, those that are in force, and what matched none: they come first.
    pub(super) present: usize,
    /// The connections to upstreams, by their names.
    pub(super) pools: Vec<(String, PoolMetrics)>,
}

/// The requests of one route.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouteTotals {
    /// By status class, 1xx first.
    pub statuses: [u64; 5],
    /// Those that a policy or a ban held back.
    pub denied: u64,
    /// Responses with a 5xx status, by who gave them.
    pub server_errors: ServerErrors,
    /// Seconds that half, nine in ten, and ninety-nine in a hundred of them took at most, estimated; `None` without
    /// requests.
    pub latency: Option<[f64; 3]>,
    /// Tunnels that are open now.
    pub tunnels: u64,
}

/// How the requests of one route ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteOutcomes {
    /// Those that were answered, and that no policy and no ban held back.
    pub served: u64,
    /// Those among them that got a 5xx status.
    pub errors: ServerErrors,
}

/// What came since an earlier reading.
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

/// What one policy said, wherever that was decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyTotals {
    pub allowed: u64,
    pub denied: u64,
    pub shadow_denied: u64,
    pub errors: u64,
}

/// The attempts at one upstream, and the connections to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamTotals {
    /// By the name of how they ended.
    pub attempts: Vec<(&'static str, u64)>,
    /// Attempts that another followed.
    pub retries: u64,
    pub active: u64,
    pub idle: u64,
}

impl Totals {
    /// Of the route of this name; zeros where there is none.
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

    /// Of each route in force, by its name. What matched none is left out.
    pub fn route_outcomes(&self) -> impl Iterator<Item = (&str, RouteOutcomes)> {
        let present = self.routes.iter().take(self.present).filter(|(name, _)| !name.is_empty());
        present.map(|(name, row)| {
            let answered: u64 = row.requests.iter().map(Counter::value).sum();
            // They are read one after the other, while they go on.
            let served = answered.saturating_sub(row.denied.value());
            (name.as_str(), RouteOutcomes { served, errors: row.server_errors() })
        })
    }

    /// Of the policy of this name; zeros where there is none.
    pub fn policy(&self, name: &str) -> PolicyTotals {
        let Some(row) = self.policies.get(name) else { return PolicyTotals::default() };
        let sum = |verdict: VerdictLabel| row.decisions[verdict as usize].iter().map(Counter::value).sum();
        PolicyTotals {
            allowed: sum(VerdictLabel::Allowed),
            denied: sum(VerdictLabel::Denied),
            shadow_denied: sum(VerdictLabel::ShadowDenied),
            errors: sum(VerdictLabel::Error),
        }
    }

    /// Of the upstream of this name; zeros where there is none.
    pub fn upstream(&self, name: &str) -> UpstreamTotals {
        let Some(row) = self.upstreams.get(name) else { return UpstreamTotals::default() };
        let attempts =
            Outcome::ALL.iter().map(|&(outcome, name)| (name, row.requests[outcome as usize].value()));
        let open = |state: PoolState| {
            let pools = self.pools.iter().filter(|(of, _)| of == name);
            pools.map(|(_, pool)| pool.connections(state).value()).sum()
        };
        UpstreamTotals {
            attempts: attempts.collect(),
            retries: row.retries.iter().map(Counter::value).sum(),
            active: open(PoolState::Active),
            idle: open(PoolState::Idle),
        }
    }
}

impl RouteRow {
    pub(super) fn server_errors(&self) -> ServerErrors {
        ServerErrors::from_counts(self.server_errors.each_ref().map(Counter::value))
    }
}

impl Totals {
    /// Zeros for each name.
    pub(super) fn zeros(names: &Names) -> Self {
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
        Names { routes, policies, upstreams, bans }: &Names,
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

    /// Forgets the oldest retired names if there are too many.
    pub(super) fn forget_oldest(&mut self, names: &Names) {
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
            worker.upstream(0, Outcome::ConnectError);
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
