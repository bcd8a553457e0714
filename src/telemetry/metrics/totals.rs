//! What all workers counted of one route, policy or upstream since the start.

use super::{
    Metrics, WorkerMetrics,
    histogram::{Total, quantile},
    worker::{Outcome, PoolState, Source, Verdict},
};

/// The requests of one route.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouteTotals {
    /// By status class, 1xx first.
    pub statuses: [u64; 5],
    /// Those that a policy or a ban held back.
    pub denied: u64,
    /// Seconds that half, nine in ten, and ninety-nine in a hundred of them took at most, estimated; `None` without
    /// requests.
    pub latency: Option<[f64; 3]>,
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
    pub active: u64,
    pub idle: u64,
}

impl Metrics {
    /// Of the route with this index; zeros where there is none.
    pub fn route(&self, index: usize) -> RouteTotals {
        let rows = self.workers.iter().filter_map(|worker| worker.routes.get(index));
        let statuses =
            std::array::from_fn(|class| rows.clone().map(|row| row.requests[class].value()).sum::<u64>());
        let denied = rows.clone().map(|row| row.denied.value()).sum();
        let durations = Total::of(rows.map(|row| &row.duration)).buckets;
        let at = |share| quantile(&durations, share);
        let latency = at(0.5).zip(at(0.9)).zip(at(0.99)).map(|((p50, p90), p99)| [p50, p90, p99]);
        RouteTotals { statuses, denied, latency }
    }

    /// Of the policy with this index; zeros where there is none.
    pub fn policy(&self, index: usize) -> PolicyTotals {
        let said = |verdict: Verdict| {
            let of = |worker: &WorkerMetrics| {
                let row = worker.policies.get(index)?;
                let counts =
                    Source::ALL.iter().map(|&(source, _)| &row.decisions[verdict as usize][source as usize]);
                Some(counts.map(super::Counter::value).sum::<u64>())
            };
            self.workers.iter().filter_map(|worker| of(worker)).sum()
        };
        PolicyTotals {
            allowed: said(Verdict::Allowed),
            denied: said(Verdict::Denied),
            shadow_denied: said(Verdict::ShadowDenied),
            errors: said(Verdict::Error),
        }
    }

    /// Of the upstream with this index; zeros where there is none.
    pub fn upstream(&self, index: usize) -> UpstreamTotals {
        let rows = || self.workers.iter().filter_map(|worker| worker.upstreams.get(index));
        let attempts = Outcome::ALL.iter().map(|&(outcome, name)| {
            (name, rows().map(|row| row.requests[outcome as usize].value()).sum::<u64>())
        });
        let open = |state: PoolState| rows().map(|row| row.connections[state as usize].value()).sum();
        UpstreamTotals {
            attempts: attempts.collect(),
            active: open(PoolState::Active),
            idle: open(PoolState::Idle),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;

    use super::*;
    use crate::telemetry::testing::config;

    #[test]
    fn all_workers_count_together() {
        let metrics = Metrics::new(&config(), 2);
        for worker in [0, 1] {
            let worker = metrics.worker(worker);
            worker.request(Some(0), StatusCode::OK, Duration::from_millis(2));
            worker.request(Some(0), StatusCode::TOO_MANY_REQUESTS, Duration::from_millis(2));
            worker.decision(0, Verdict::Denied, Source::LocalDenial);
            worker.decision(0, Verdict::Denied, Source::Store);
            worker.upstream(0, Outcome::ConnectError);
        }
        assert_eq!(metrics.route(0).statuses, [0, 2, 0, 2, 0]);
        let [half, _, most] = metrics.route(0).latency.unwrap();
        assert!(half > 0.001 && most <= 0.0025, "{half} {most}");
        assert_eq!(metrics.policy(0), PolicyTotals { denied: 4, ..PolicyTotals::default() });
        let upstream = metrics.upstream(0);
        assert!(upstream.attempts.contains(&("connect_error", 2)) && upstream.attempts.contains(&("ok", 0)));
        assert_eq!((metrics.route(99), metrics.policy(99)), Default::default());
    }
}
