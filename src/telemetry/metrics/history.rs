//! The history of each route: a sample every ten seconds, for an hour.
//!
//! A sample is the difference of two readings of the counters, so it costs requests nothing. Routes are identified by
//! name and keep their history over reloads.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::{
    Counter, Metrics, ServerErrorCounts,
    histogram::{HistogramTotal, quantile},
    worker::RouteRow,
};

/// One point of a [`RouteHistory`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HistoryPoint {
    /// Completed requests.
    pub requests: u64,
    /// Requests that a policy or a ban denied.
    pub denied: u64,
    /// Requests with a 5xx status that were not denied.
    pub errors: ServerErrorCounts,
    /// Quantiles of the duration in seconds, estimated from the histogram. `None` without requests.
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

/// The history of one route, and its counters at the last sample.
#[derive(Debug, Clone, Default)]
pub struct RouteHistory {
    samples: VecDeque<HistoryPoint>,
    last: RouteCounters,
}

impl RouteHistory {
    /// Oldest first; at most [`History::LENGTH`].
    pub fn samples(&self) -> impl ExactSizeIterator<Item = &HistoryPoint> {
        self.samples.iter()
    }

    fn push(&mut self, counted: RouteCounters) {
        if self.samples.len() >= History::LENGTH {
            self.samples.pop_front();
        }
        self.samples.push_back(difference(&self.last, &counted));
        self.last = counted;
    }
}

/// The counters of one route, summed over all workers.
#[derive(Debug, Clone, Default, PartialEq)]
struct RouteCounters {
    denied: u64,
    errors: ServerErrorCounts,
    duration: Vec<(f64, u64)>,
}

impl RouteCounters {
    fn add(&mut self, other: &Self) {
        self.denied += other.denied;
        self.errors = [self.errors, other.errors].into_iter().sum();
        for (bucket, &(bound, count)) in other.duration.iter().enumerate() {
            match self.duration.get_mut(bucket) {
                Some((_, sum)) => *sum += count,
                None => self.duration.push((bound, count)),
            }
        }
    }
}

/// The last hour.
#[derive(Debug, Default)]
pub struct History {
    routes: BTreeMap<String, RouteHistory>,
    total: RouteHistory,
    /// In microseconds since the Unix epoch.
    last_recorded: i64,
}

impl History {
    /// Time between two samples.
    pub const EVERY: Duration = Duration::from_secs(10);
    /// Samples kept of each route: an hour's.
    pub const LENGTH: usize = 360;

    /// Takes a sample of each route at `now`, in microseconds since the Unix epoch. Removed routes are dropped.
    pub fn record(&mut self, metrics: &Metrics, now: i64) {
        self.last_recorded = now;
        let mut before = std::mem::take(&mut self.routes);
        let mut total = RouteCounters::default();
        for (name, counted) in metrics.counted() {
            total.add(&counted);
            let mut route = before.remove(&name).unwrap_or_default();
            route.push(counted);
            self.routes.insert(name, route);
        }
        self.total.push(total);
    }

    /// Time of the last sample, in microseconds since the Unix epoch; 0 without samples.
    pub fn last_recorded(&self) -> i64 {
        self.last_recorded
    }

    /// The history of all routes together.
    pub fn total(&self) -> &RouteHistory {
        &self.total
    }

    /// The history of a route by its name; requests without a route have the empty name.
    pub fn route(&self, route: &str) -> Option<&RouteHistory> {
        self.routes.get(route)
    }
}

impl Metrics {
    /// Completed requests since the start, and how many of them were denied.
    pub fn completed(&self) -> (u64, u64) {
        let totals = self.totals();
        totals.routes.values().fold((0, 0), |(requests, denied), row| {
            (requests + row.requests.iter().map(Counter::value).sum::<u64>(), denied + row.denied.value())
        })
    }

    /// For each route in force: responses to requests that were not denied, and those of them with 2xx or 3xx.
    pub fn route_responses(&self) -> Vec<(String, [u64; 2])> {
        let mut totals = self.totals();
        totals.routes.truncate(totals.present);
        let of = |(name, row): (String, RouteRow)| {
            let statuses = row.requests.each_ref().map(Counter::value);
            let responses = statuses.iter().sum::<u64>().saturating_sub(row.denied.value());
            (!name.is_empty()).then_some((name, [responses, statuses[1] + statuses[2]]))
        };
        totals.routes.into_iter().filter_map(of).collect()
    }

    /// The counters of each route in force by name, and of requests without a route (empty name).
    fn counted(&self) -> Vec<(String, RouteCounters)> {
        let mut totals = self.totals();
        // Removed routes come last.
        totals.routes.truncate(totals.present);
        let counted = totals.routes.into_iter().map(|(name, row)| {
            let total = HistogramTotal::from_histograms(std::iter::once(&row.duration));
            let errors = row.server_errors();
            (name, RouteCounters { denied: row.denied.value(), errors, duration: total.buckets })
        });
        counted.collect()
    }
}

/// The difference of two readings of the counters.
fn difference(before: &RouteCounters, now: &RouteCounters) -> HistoryPoint {
    let old = |bucket: usize| before.duration.get(bucket).map_or(0, |&(_, count)| count);
    let duration: Vec<(f64, u64)> = now
        .duration
        .iter()
        .enumerate()
        .map(|(bucket, &(bound, count))| (bound, count.saturating_sub(old(bucket))))
        .collect();
    HistoryPoint {
        requests: duration.iter().map(|(_, count)| count).sum(),
        denied: now.denied.saturating_sub(before.denied),
        errors: now.errors - before.errors,
        p50: quantile(&duration, 0.5),
        p99: quantile(&duration, 0.99),
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::telemetry::testing::config;

    #[test]
    fn a_sample_tells_what_came_since_the_one_before() {
        let metrics = Metrics::new(&config(), 2);
        let mut history = History::default();
        let answer = |worker: usize, millis| {
            metrics.worker(worker).request(Some(0), StatusCode::OK, Duration::from_millis(millis));
        };
        (0..99).for_each(|_| answer(0, 1));
        answer(1, 200);
        metrics.worker(1).denied(Some(0));
        history.record(&metrics, 5);
        answer(0, 10);
        history.record(&metrics, 15);
        history.record(&metrics, 25);
        let samples: Vec<_> = history.route("all").unwrap().samples().copied().collect();
        assert_eq!(
            samples.iter().map(|s| (s.requests, s.denied)).collect::<Vec<_>>(),
            [(100, 1), (1, 0), (0, 0)]
        );
        assert!(
            samples[0].p50.is_some_and(|p50| p50 < 0.001) && samples[0].p99.is_some_and(|p99| p99 <= 0.001)
        );
        assert!(samples[1].p99.is_some_and(|p99| (0.005..=0.01).contains(&p99)));
        assert_eq!(samples[2].p99, None);
        assert_eq!(history.total().samples().copied().collect::<Vec<_>>(), samples);
        assert_eq!((history.last_recorded(), history.route("").unwrap().samples().len()), (25, 3));
        assert!(history.route("unknown").is_none());
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let metrics = Metrics::new(&config(), 1);
        let mut history = History::default();
        (0..400).for_each(|now| history.record(&metrics, now));
        assert_eq!(history.route("all").unwrap().samples().len(), History::LENGTH);
    }

    #[test]
    fn a_quantile_above_all_bounds_is_the_last_of_them() {
        assert_eq!(quantile(&[(1.0, 0), (30.0, 0), (f64::INFINITY, 3)], 0.99), Some(30.0));
        assert_eq!(quantile(&[(1.0, 0)], 0.5), None);
    }
}
