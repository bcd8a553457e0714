//! The latest requests of each route, and how many of them got a 5xx response.
//!
//! The windows consist of seconds with requests; seconds without are skipped. A route that failed last and gets no more
//! requests still counts as failing, and a route with rare requests is judged by several of them.

use std::collections::{HashMap, VecDeque};

use super::active_warnings::SAMPLES;
use crate::telemetry::metrics::RouteOutcomes;

/// Seconds with requests in the short window.
const SHORT: usize = 10;
/// Seconds with requests in the long window.
const LONG: usize = 60;
/// Rounds after which requests are dropped in any case: five minutes.
const MAX_AGE: u64 = 5 * SAMPLES as u64;

/// The outcomes of the latest requests of a route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LatestOutcomes {
    pub(super) route: String,
    pub(super) short: RouteOutcomes,
    pub(super) long: RouteOutcomes,
}

/// The windows of all routes.
#[derive(Debug, Default)]
pub(super) struct RouteWindows {
    routes: HashMap<String, RouteWindow>,
    round: u64,
}

#[derive(Debug, Default)]
struct RouteWindow {
    /// The totals at the last round.
    counted: RouteOutcomes,
    /// The increase in each round that had requests; the newest is last.
    samples: VecDeque<(u64, RouteOutcomes)>,
}

impl RouteWindow {
    fn sum(&self, newest: usize) -> RouteOutcomes {
        self.samples.iter().rev().take(newest).map(|&(_, outcomes)| outcomes).sum()
    }
}

impl RouteWindows {
    /// Takes the totals of each route since the start; returns the routes with recent errors.
    pub(super) fn update<'a>(
        &mut self,
        counted: impl Iterator<Item = (&'a str, RouteOutcomes)>,
    ) -> Vec<LatestOutcomes> {
        self.round += 1;
        let (round, mut before) = (self.round, std::mem::take(&mut self.routes));
        let mut failing = Vec::new();
        for (name, counted) in counted {
            let mut window = before.remove(name).unwrap_or_default();
            let new = counted - window.counted;
            window.counted = counted;
            if new.served > 0 {
                window.samples.push_back((round, new));
            }
            while window.samples.len() > LONG
                || window.samples.front().is_some_and(|&(then, _)| then + MAX_AGE < round)
            {
                window.samples.pop_front();
            }
            let long = window.sum(LONG);
            if long.errors.total() > 0 {
                failing.push(LatestOutcomes { route: name.to_owned(), short: window.sum(SHORT), long });
            }
            self.routes.insert(name.to_owned(), window);
        }
        failing
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;

    use super::*;
    use crate::telemetry::{
        metrics::{Metrics, ServerErrorSource, WorkerMetrics},
        testing::config,
    };

    fn answer(worker: &WorkerMetrics, status: StatusCode, count: usize) {
        for _ in 0..count {
            worker.request(Some(0), status, Duration::from_millis(1));
            if status.is_server_error() {
                worker.server_error(Some(0), ServerErrorSource::Origin);
            }
        }
    }

    #[test]
    fn seconds_without_requests_leave_the_windows_as_they_are_for_five_minutes() {
        let metrics = Metrics::new(&config(), 1);
        let (worker, mut windows) = (metrics.worker(0), RouteWindows::default());
        let mut update = || {
            let latest = windows.update(metrics.totals().route_outcomes());
            latest.first().map(|it| (it.short.served, it.short.errors.total(), it.long.served))
        };
        answer(&worker, StatusCode::OK, 7);
        assert_eq!(update(), None, "there was no error");
        answer(&worker, StatusCode::BAD_GATEWAY, 3);
        assert_eq!(update(), Some((10, 3, 10)));
        for _ in 0..MAX_AGE - 1 {
            assert_eq!(update(), Some((10, 3, 10)));
        }
        assert_eq!(update(), Some((3, 3, 3)), "the first second is too old");
        assert_eq!(update(), None);
    }

    #[test]
    fn the_short_window_ends_after_ten_seconds_with_requests() {
        let metrics = Metrics::new(&config(), 1);
        let (worker, mut windows) = (metrics.worker(0), RouteWindows::default());
        answer(&worker, StatusCode::BAD_GATEWAY, 5);
        for second in 0..LONG {
            answer(&worker, StatusCode::OK, 1);
            let latest = windows.update(metrics.totals().route_outcomes());
            assert_eq!(latest[0].short.errors.total(), if second < SHORT { 5 } else { 0 }, "{second}");
            assert_eq!(latest[0].long.errors.total(), 5);
        }
        answer(&worker, StatusCode::OK, 1);
        assert_eq!(windows.update(metrics.totals().route_outcomes()), []);
    }

    #[test]
    fn denials_are_not_among_the_requests() {
        let metrics = Metrics::new(&config(), 1);
        let (worker, mut windows) = (metrics.worker(0), RouteWindows::default());
        answer(&worker, StatusCode::TOO_MANY_REQUESTS, 100);
        (0..100).for_each(|_| worker.denied(Some(0)));
        answer(&worker, StatusCode::SERVICE_UNAVAILABLE, 3);
        let latest = windows.update(metrics.totals().route_outcomes());
        assert_eq!((latest[0].short.served, latest[0].short.errors.total()), (3, 3));
    }
}
