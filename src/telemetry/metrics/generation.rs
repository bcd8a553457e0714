//! Counters over one configuration after another.
//!
//! Workers count by the indexes of the configuration that a request began with, so that each configuration has cells of
//! its own; whoever reads adds them up by name. Once nobody counts by a configuration any more, its cells go into the
//! totals, so that no number of reloads leaves more than their names behind.

use std::sync::Arc;

use indexmap::IndexMap;

use super::{
    PoolMetrics, WorkerMetrics,
    bans::{self, BanRow},
    worker::{PolicyRow, RouteRow, ThreadMetrics, UpstreamRow},
};
use crate::config::model::Config;

/// Names that are remembered of each kind though the configuration has them no longer. Of more, those that came first
/// are forgotten.
pub(super) const GONE: usize = 1_000;

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
    pub(super) fn of(config: &Config) -> Self {
        Self {
            routes: config.routes.iter().map(|route| route.name.clone()).collect(),
            policies: config.policies.iter().map(|policy| policy.name.clone()).collect(),
            upstreams: config.upstreams.iter().map(|upstream| upstream.name.clone()).collect(),
            bans: bans::names(config),
        }
    }
}

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

impl Totals {
    /// Zero of each name.
    fn of(names: &Names) -> Self {
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

    fn add_all(&mut self, other: &Self) {
        other.routes.iter().for_each(|(name, counted)| row(&mut self.routes, name).add(counted));
        other.policies.iter().for_each(|(name, counted)| row(&mut self.policies, name).add(counted));
        other.upstreams.iter().for_each(|(name, counted)| row(&mut self.upstreams, name).add(counted));
        other.bans.iter().for_each(|(name, counted)| row(&mut self.bans, name).add(counted));
    }

    fn add(&mut self, Names { routes, policies, upstreams, bans }: &Names, worker: &WorkerMetrics) {
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

    /// Forgets the oldest of those that are too many.
    fn shorten(&mut self, names: &Names) {
        shorten(&mut self.routes, names.routes.len() + 1);
        shorten(&mut self.policies, names.policies.len());
        shorten(&mut self.upstreams, names.upstreams.len());
        shorten(&mut self.bans, names.bans.len());
    }
}

fn row<'a, R: Default>(rows: &'a mut IndexMap<String, R>, name: &str) -> &'a mut R {
    if !rows.contains_key(name) {
        rows.insert(name.to_owned(), R::default());
    }
    &mut rows[name]
}

fn shorten<R>(rows: &mut IndexMap<String, R>, present: usize) {
    let excess = rows.len().saturating_sub(present + GONE);
    rows.drain(..excess);
}

/// One configuration's cells.
#[derive(Debug)]
struct Generation {
    names: Names,
    workers: Vec<Arc<WorkerMetrics>>,
}

impl Generation {
    fn new(names: Names, threads: &[Arc<ThreadMetrics>]) -> Self {
        let cells = |thread: &Arc<ThreadMetrics>| Arc::new(WorkerMetrics::new(&names, Arc::clone(thread)));
        Self { workers: threads.iter().map(cells).collect(), names }
    }

    fn add_to(&self, totals: &mut Totals) {
        self.workers.iter().for_each(|worker| totals.add(&self.names, worker));
    }

    /// Whether nobody counts by it any more; then all that was counted is seen.
    fn is_over(&mut self) -> bool {
        self.workers.iter_mut().all(|worker| Arc::get_mut(worker).is_some())
    }
}

/// Those that are counted by, and what was counted by those that are over.
#[derive(Debug)]
pub(super) struct Generations {
    current: Generation,
    /// Requests that began under them are under way.
    ending: Vec<Generation>,
    over: Totals,
}

impl Generations {
    pub(super) fn new(names: Names, threads: &[Arc<ThreadMetrics>]) -> Self {
        Self { current: Generation::new(names, threads), ending: Vec::new(), over: Totals::default() }
    }

    /// Goes on with these names. Where they are those that it has, so do the cells.
    pub(super) fn go_on(&mut self, names: Names, threads: &[Arc<ThreadMetrics>]) {
        if names != self.current.names {
            let next = Generation::new(names, threads);
            self.ending.push(std::mem::replace(&mut self.current, next));
        }
        self.fold();
    }

    /// The cells of one worker by the configuration that is in force.
    pub(super) fn worker(&self, index: usize) -> Option<&Arc<WorkerMetrics>> {
        self.current.workers.get(index)
    }

    /// All that was ever counted: the names that are in force first, in their order.
    pub(super) fn totals(&mut self) -> Totals {
        self.fold();
        let mut totals = Totals::of(&self.current.names);
        totals.add_all(&self.over);
        self.ending.iter().for_each(|generation| generation.add_to(&mut totals));
        self.current.add_to(&mut totals);
        totals
    }

    fn fold(&mut self) {
        let over = &mut self.over;
        self.ending.retain_mut(|generation| {
            let is_over = generation.is_over();
            if is_over {
                generation.add_to(over);
            }
            !is_over
        });
        over.shorten(&self.current.names);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;

    use super::*;
    use crate::telemetry::metrics::{Outcome, Source, Verdict};

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
    fn a_name_counts_on_wherever_it_stands_and_one_that_is_gone_stays() {
        let threads = [Arc::default(), Arc::default()];
        let mut generations = Generations::new(names(&["a", "b"], &["p"]), &threads);
        let first = Arc::clone(generations.worker(1).unwrap());
        serve(&first, 0);
        serve(&first, 1);
        first.decision(0, Verdict::Denied, Source::Store);
        generations.go_on(names(&["c", "b"], &["q", "p"]), &threads);
        let second = Arc::clone(generations.worker(1).unwrap());
        serve(&second, 1);
        second.decision(1, Verdict::Denied, Source::Store);
        second.upstream(0, Outcome::Ok);
        assert_eq!(requests(&generations.totals()), [("c", 0), ("b", 2), ("", 0), ("a", 1)]);

        serve(&first, 1);
        drop(first);
        assert_eq!(generations.ending.len(), 1);
        let totals = generations.totals();
        assert_eq!(requests(&totals), [("c", 0), ("b", 3), ("", 0), ("a", 1)], "it was under way");
        assert_eq!(
            totals.policies["p"].decisions[Verdict::Denied as usize][Source::Store as usize].value(),
            2
        );
        assert_eq!(totals.upstreams["api"].requests[0].value(), 1);
        assert!(generations.ending.is_empty(), "nobody counts by the first any more");
    }

    #[test]
    fn the_same_names_go_on_with_the_same_cells() {
        let threads = [Arc::default()];
        let mut generations = Generations::new(names(&["a"], &[]), &threads);
        let before = Arc::clone(generations.worker(0).unwrap());
        generations.go_on(names(&["a"], &[]), &threads);
        assert!(Arc::ptr_eq(&before, generations.worker(0).unwrap()));
    }

    #[test]
    fn reloads_without_end_leave_a_bounded_number_of_names() {
        let threads = [Arc::default()];
        let mut generations = Generations::new(names(&["0"], &[]), &threads);
        for n in 1..3 * GONE {
            serve(generations.worker(0).unwrap(), 0);
            generations.go_on(names(&[&n.to_string()], &[]), &threads);
        }
        let totals = generations.totals();
        assert!(generations.ending.is_empty() && totals.routes.len() <= GONE + 3);
        assert_eq!(
            totals.routes.get_index(2).map(|(name, _)| name.as_str()),
            Some("1998"),
            "the oldest went"
        );
    }
}
