//! What became of requests lately, route by route: a sample every ten seconds, for an hour.
//!
//! Samples are differences of the counters, taken by whoever keeps the history; the requests themselves know nothing
//! of it. Routes are known by name, so that they keep their past where the configuration is read again.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::{
    Counter, Metrics,
    histogram::{Histogram, RequestTime, Total, quantile},
};

/// One point of a [`Track`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// Requests answered.
    pub requests: u64,
    /// Those among them that a policy held back.
    pub denied: u64,
    /// How long they took, in seconds: estimated from the histogram. `None` without requests.
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

/// The past of one route, and its counters as they were last.
#[derive(Debug, Clone, Default)]
pub struct Track {
    samples: VecDeque<Sample>,
    last: Counted,
}

impl Track {
    /// Oldest first; at most [`History::LENGTH`].
    pub fn samples(&self) -> impl ExactSizeIterator<Item = &Sample> {
        self.samples.iter()
    }

    fn push(&mut self, counted: Counted) {
        if self.samples.len() >= History::LENGTH {
            self.samples.pop_front();
        }
        self.samples.push_back(sample(&self.last, &counted));
        self.last = counted;
    }
}

/// The counters of one route, all workers' together.
#[derive(Debug, Clone, Default, PartialEq)]
struct Counted {
    denied: u64,
    duration: Vec<(f64, u64)>,
}

impl Counted {
    fn add(&mut self, other: &Self) {
        self.denied += other.denied;
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
    tracks: BTreeMap<String, Track>,
    total: Track,
    /// In microseconds since the Unix epoch.
    taken: i64,
}

impl History {
    /// Between two samples.
    pub const EVERY: Duration = Duration::from_secs(10);
    /// Samples of a route: those of an hour.
    pub const LENGTH: usize = 360;

    /// Takes a sample of every route at `now`, in microseconds since the Unix epoch. Routes that are gone are forgotten.
    pub fn take(&mut self, metrics: &Metrics, now: i64) {
        self.taken = now;
        let mut before = std::mem::take(&mut self.tracks);
        let mut total = Counted::default();
        for (name, counted) in metrics.counted() {
            total.add(&counted);
            let mut track = before.remove(&name).unwrap_or_default();
            track.push(counted);
            self.tracks.insert(name, track);
        }
        self.total.push(total);
    }

    /// When the last sample was taken, in microseconds since the Unix epoch; 0 if none was.
    pub fn taken(&self) -> i64 {
        self.taken
    }

    /// Every route that there is, by its name, and its past.
    pub fn tracks(&self) -> impl Iterator<Item = (&str, &Track)> {
        self.tracks.iter().map(|(name, track)| (name.as_str(), track))
    }

    /// The past of all routes together.
    pub fn total(&self) -> &Track {
        &self.total
    }

    /// The past of a route by its name; the empty name is that of requests that matched none.
    pub fn track(&self, route: &str) -> Option<&Track> {
        self.tracks.get(route)
    }
}

impl Metrics {
    /// Requests that were answered since the start, and those among them that a policy held back.
    pub fn answered(&self) -> (u64, u64) {
        let rows = self.workers.iter().flat_map(|worker| &worker.routes);
        rows.fold((0, 0), |(requests, denied), row| {
            (requests + row.requests.iter().map(Counter::value).sum::<u64>(), denied + row.denied.value())
        })
    }

    /// The counters of every route by its name, and of requests that matched none.
    fn counted(&self) -> Vec<(String, Counted)> {
        let names = self.routes.iter().map(String::as_str).chain([""]).enumerate();
        let counted = names.map(|(index, name)| {
            let rows = self.workers.iter().map(|worker| &worker.routes[index]);
            let denied = rows.clone().map(|row| row.denied.value()).sum();
            let total = Total::of(rows.map(|row| -> &Histogram<RequestTime> { &row.duration }));
            (name.to_owned(), Counted { denied, duration: total.buckets })
        });
        counted.collect()
    }
}

/// What came between two looks at the counters.
fn sample(before: &Counted, now: &Counted) -> Sample {
    let old = |bucket: usize| before.duration.get(bucket).map_or(0, |&(_, count)| count);
    let duration: Vec<(f64, u64)> = now
        .duration
        .iter()
        .enumerate()
        .map(|(bucket, &(bound, count))| (bound, count.saturating_sub(old(bucket))))
        .collect();
    Sample {
        requests: duration.iter().map(|(_, count)| count).sum(),
        denied: now.denied.saturating_sub(before.denied),
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
        history.take(&metrics, 5);
        answer(0, 10);
        history.take(&metrics, 15);
        history.take(&metrics, 25);
        let samples: Vec<_> = history.track("all").unwrap().samples().copied().collect();
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
        assert_eq!((history.taken(), history.track("").unwrap().samples().len()), (25, 3));
        assert!(history.track("unknown").is_none());
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let metrics = Metrics::new(&config(), 1);
        let mut history = History::default();
        (0..400).for_each(|now| history.take(&metrics, now));
        assert_eq!(history.track("all").unwrap().samples().len(), History::LENGTH);
    }

    #[test]
    fn what_is_above_all_bounds_is_told_as_the_last_of_them() {
        assert_eq!(quantile(&[(1.0, 0), (30.0, 0), (f64::INFINITY, 3)], 0.99), Some(30.0));
        assert_eq!(quantile(&[(1.0, 0)], 0.5), None);
    }
}
