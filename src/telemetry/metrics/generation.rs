//! One generation of counters for each configuration.
//!
//! Workers count by the indexes of the configuration that a request began with, so each configuration has its own
//! counters; a reader adds them up by name. Once no worker uses a configuration any more, its counters are added to the
//! totals, so that reloads leave no more than names behind.

use std::sync::Arc;

use super::{Totals, WorkerMetrics, bans, worker::ThreadMetrics};
use crate::config::model::Config;

/// Names of each kind that are kept though the configuration has them no longer. If there are more, the oldest are
/// forgotten.
pub(super) const MAX_RETIRED_NAMES: usize = 1_000;

/// The names of a configuration, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) routes: Vec<String>,
    pub(super) policies: Vec<String>,
    pub(super) upstreams: Vec<String>,
    /// With the name of bans by hand.
    pub(super) bans: Vec<String>,
}

impl Names {
    pub(super) fn from_config(config: &Config) -> Self {
        Self {
            routes: config.routes.iter().map(|route| route.name.clone()).collect(),
            policies: config.policies.iter().map(|policy| policy.name.clone()).collect(),
            upstreams: config.upstreams.iter().map(|upstream| upstream.name.clone()).collect(),
            bans: bans::names(config),
        }
    }
}

/// The counters of one configuration.
#[derive(Debug)]
struct Generation {
    names: Names,
    workers: Vec<Arc<WorkerMetrics>>,
}

impl Generation {
    fn new(names: Names, threads: &[Arc<ThreadMetrics>]) -> Self {
        let counters = |thread: &Arc<ThreadMetrics>| Arc::new(WorkerMetrics::new(&names, Arc::clone(thread)));
        Self { workers: threads.iter().map(counters).collect(), names }
    }

    fn add_to(&self, totals: &mut Totals) {
        self.workers.iter().for_each(|worker| totals.add_worker(&self.names, worker));
    }

    /// Whether no worker uses it any more. Then all that was counted is visible.
    fn is_retired(&mut self) -> bool {
        self.workers.iter_mut().all(|worker| Arc::get_mut(worker).is_some())
    }
}

/// The generations in use, and the totals of those that are retired.
#[derive(Debug)]
pub(super) struct Generations {
    current: Generation,
    /// Replaced generations whose requests are still running.
    ending: Vec<Generation>,
    retired: Totals,
}

impl Generations {
    pub(super) fn new(names: Names, threads: &[Arc<ThreadMetrics>]) -> Self {
        Self { current: Generation::new(names, threads), ending: Vec::new(), retired: Totals::default() }
    }

    /// Begins a generation with these names. If they are the current ones, the counters stay.
    pub(super) fn reconfigure(&mut self, names: Names, threads: &[Arc<ThreadMetrics>]) {
        if names != self.current.names {
            let next = Generation::new(names, threads);
            self.ending.push(std::mem::replace(&mut self.current, next));
        }
        self.retire();
    }

    /// The counters of one worker for the configuration in force.
    pub(super) fn worker(&self, index: usize) -> Option<&Arc<WorkerMetrics>> {
        self.current.workers.get(index)
    }

    /// All that was ever counted, the names in force first, in their order.
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
    use crate::telemetry::metrics::{Outcome, SourceLabel, VerdictLabel};

    fn names(routes: &[&str], policies: &[&str]) -> Names {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Names {
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
        second.upstream(0, Outcome::Ok);
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
