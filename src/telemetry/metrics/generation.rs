//! One generation of counters for each configuration.
//!
//! Workers count by the indexes of the configuration with which a request began, so each configuration has its own
//! counters, and a reader adds them up by name. When no worker uses a configuration any more, its counters are added to
//! the totals and freed.

use std::sync::Arc;

use super::{ThreadMetrics, Totals, WorkerMetrics, names::MetricNames};

/// The counters of one configuration.
#[derive(Debug)]
struct CounterGeneration {
    names: MetricNames,
    workers: Vec<Arc<WorkerMetrics>>,
}

impl CounterGeneration {
    fn new(names: MetricNames, threads: &[Arc<ThreadMetrics>]) -> Self {
        let counters = |thread: &Arc<ThreadMetrics>| Arc::new(WorkerMetrics::new(&names, Arc::clone(thread)));
        Self { workers: threads.iter().map(counters).collect(), names }
    }

    fn add_to(&self, totals: &mut Totals) {
        self.workers.iter().for_each(|worker| totals.add_worker(&self.names, worker));
    }

    /// Whether no worker uses it any more. Then all its counts are visible to this thread.
    fn is_retired(&mut self) -> bool {
        self.workers.iter_mut().all(|worker| Arc::get_mut(worker).is_some())
    }
}

/// The generations in use, and the totals of retired ones.
#[derive(Debug)]
pub(super) struct Generations {
    current: CounterGeneration,
    /// Replaced generations whose requests are still running.
    ending: Vec<CounterGeneration>,
    retired: Totals,
}

impl Generations {
    pub(super) fn new(names: MetricNames, threads: &[Arc<ThreadMetrics>]) -> Self {
        Self {
            current: CounterGeneration::new(names, threads),
            ending: Vec::new(),
            retired: Totals::default(),
        }
    }

    /// Begins a generation with these names, unless they are the current ones.
    pub(super) fn reconfigure(&mut self, names: MetricNames, threads: &[Arc<ThreadMetrics>]) {
        if names != self.current.names {
            let next = CounterGeneration::new(names, threads);
            self.ending.push(std::mem::replace(&mut self.current, next));
        }
        self.retire();
    }

    /// The counters of one worker for the configuration in force.
    pub(super) fn worker(&self, index: usize) -> Option<&Arc<WorkerMetrics>> {
        self.current.workers.get(index)
    }

    /// The counts since the start; the names in force come first, in their order.
    pub(super) fn totals(&mut self) -> Totals {
        self.retire();
        let mut totals = Totals::zeros(&self.current.names);
        totals.add_all(&self.retired);
        self.ending.iter().for_each(|generation| generation.add_to(&mut totals));
        self.current.add_to(&mut totals);
        totals
    }

    fn retire(&mut self) {
        let retired = &mut self.retired;
        self.ending.retain_mut(|generation| {
            let is_retired = generation.is_retired();
            if is_retired {
                generation.add_to(retired);
            }
            !is_retired
        });
        retired.forget_oldest(&self.current.names);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;

    use super::*;
    use crate::telemetry::metrics::{AttemptOutcome, SourceLabel, VerdictLabel, names::MAX_RETIRED_NAMES};

    fn names(routes: &[&str], policies: &[&str]) -> MetricNames {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        MetricNames {
            routes: owned(routes),
            policies: owned(policies),
            upstreams: owned(&["api"]),
            bans: Vec::new(),
        }
    }

    fn requests(totals: &Totals) -> Vec<(&str, u64)> {
        totals.routes.iter().map(|(name, row)| (name.as_str(), row.requests[1].value())).collect()
    }

    fn serve(worker: &WorkerMetrics, route: usize) {
        worker.request(Some(route), StatusCode::OK, Duration::from_millis(1));
    }

    #[test]
    fn a_name_keeps_counting_at_another_index_and_a_retired_one_stays() {
        let threads = [Arc::default(), Arc::default()];
        let mut generations = Generations::new(names(&["a", "b"], &["p"]), &threads);
        let first = Arc::clone(generations.worker(1).unwrap());
        serve(&first, 0);
        serve(&first, 1);
        first.decision(0, VerdictLabel::Denied, SourceLabel::Store);
        generations.reconfigure(names(&["c", "b"], &["q", "p"]), &threads);
        let second = Arc::clone(generations.worker(1).unwrap());
        serve(&second, 1);
        second.decision(1, VerdictLabel::Denied, SourceLabel::Store);
        second.upstream(0, AttemptOutcome::Ok);
        assert_eq!(requests(&generations.totals()), [("c", 0), ("b", 2), ("", 0), ("a", 1)]);

        serve(&first, 1);
        drop(first);
        assert_eq!(generations.ending.len(), 1);
        let totals = generations.totals();
        assert_eq!(requests(&totals), [("c", 0), ("b", 3), ("", 0), ("a", 1)], "it was under way");
        assert_eq!(
            totals.policies["p"].decisions[VerdictLabel::Denied as usize][SourceLabel::Store as usize]
                .value(),
            2
        );
        assert_eq!(totals.upstreams["api"].requests[0].value(), 1);
        assert!(generations.ending.is_empty(), "no worker uses the first any more");
    }

    #[test]
    fn the_same_names_keep_their_counters() {
        let threads = [Arc::default()];
        let mut generations = Generations::new(names(&["a"], &[]), &threads);
        let before = Arc::clone(generations.worker(0).unwrap());
        generations.reconfigure(names(&["a"], &[]), &threads);
        assert!(Arc::ptr_eq(&before, generations.worker(0).unwrap()));
    }

    #[test]
    fn reloads_without_end_leave_a_bounded_number_of_names() {
        let threads = [Arc::default()];
        let mut generations = Generations::new(names(&["0"], &[]), &threads);
        for n in 1..3 * MAX_RETIRED_NAMES {
            serve(generations.worker(0).unwrap(), 0);
            generations.reconfigure(names(&[&n.to_string()], &[]), &threads);
        }
        let totals = generations.totals();
        assert!(generations.ending.is_empty() && totals.routes.len() <= MAX_RETIRED_NAMES + 3);
        assert_eq!(
            totals.routes.get_index(2).map(|(name, _)| name.as_str()),
            Some("1998"),
            "the oldest went"
        );
    }
}
