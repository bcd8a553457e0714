//! What all workers counted of one route, policy or upstream since the start.

use super::{
    Counter, Totals,
    histogram::{Total, quantile},
    worker::{Outcome, PoolState, Verdict},
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

impl Totals {
    /// Of the route of this name; zeros where there is none.
    pub fn route(&self, name: &str) -> RouteTotals {
        let Some(row) = self.routes.get(name) else { return RouteTotals::default() };
        let durations = Total::of(std::iter::once(&row.duration)).buckets;
        let at = |share| quantile(&durations, share);
        let latency = at(0.5).zip(at(0.9)).zip(at(0.99)).map(|((p50, p90), p99)| [p50, p90, p99]);
        RouteTotals {
            statuses: row.requests.each_ref().map(Counter::value),
            denied: row.denied.value(),
            latency,
        }
    }

    /// Of the policy of this name; zeros where there is none.
    pub fn policy(&self, name: &str) -> PolicyTotals {
        let Some(row) = self.policies.get(name) else { return PolicyTotals::default() };
        let said = |verdict: Verdict| row.decisions[verdict as usize].iter().map(Counter::value).sum();
        PolicyTotals {
            allowed: said(Verdict::Allowed),
            denied: said(Verdict::Denied),
            shadow_denied: said(Verdict::ShadowDenied),
            errors: said(Verdict::Error),
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
    use crate::telemetry::{
        metrics::{Metrics, Source},
        testing::config,
    };

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
        assert_eq!(metrics.totals().route("all").statuses, [0, 2, 0, 2, 0]);
        let [half, _, most] = metrics.totals().route("all").latency.unwrap();
        assert!(half > 0.001 && most <= 0.0025, "{half} {most}");
        assert_eq!(metrics.totals().policy("per-ip"), PolicyTotals { denied: 4, ..PolicyTotals::default() });
        let upstream = metrics.totals().upstream("api");
        assert!(upstream.attempts.contains(&("connect_error", 2)) && upstream.attempts.contains(&("ok", 0)));
        assert_eq!((metrics.totals().route("no"), metrics.totals().policy("no")), Default::default());
    }
}
