//! Rates per second, from the difference between two snapshots, and their history of a minute.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use super::snapshot::{ADDRESSES, Snapshot};

/// Seconds kept.
const HISTORY: usize = 60;

/// Rates per second. Unknown rates are left out: there is no previous snapshot, or Tollgate was restarted in between.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) total: Option<TotalRates>,
    pub(super) routes: HashMap<String, RouteRates>,
    /// Denials by address.
    pub(super) denied: HashMap<String, f64>,
}

/// The sums over all routes and all policies.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct TotalRates {
    pub(super) requests: f64,
    pub(super) denied: f64,
    /// Requests that shadow policies would have denied.
    pub(super) shadow_denied: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RouteRates {
    pub(super) requests: f64,
    pub(super) denied: f64,
    /// Responses with a 5xx status.
    pub(super) failed: f64,
}

impl Rates {
    pub(super) fn between(before: &Snapshot, after: &Snapshot, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        if seconds <= 0.0 {
            return Self::default();
        }
        let per_second = |count: u64| count as f64 / seconds;
        let denied = denials_by_address(before, after)
            .map(|(address, count)| (address.to_owned(), per_second(count)))
            .collect();
        // All other counters restart with the process.
        if before.status.started != after.status.started {
            return Self { denied, ..Self::default() };
        }
        let routes = route_rates(before, after, per_second);
        let shadow_denied = {
            let sum = |of: &Snapshot| of.policies.iter().map(|policy| policy.shadow_denied).sum::<u64>();
            per_second(sum(after).saturating_sub(sum(before)))
        };
        let total = TotalRates {
            requests: routes.values().map(|route| route.requests).sum(),
            denied: routes.values().map(|route| route.denied).sum(),
            shadow_denied,
        };
        Self { total: Some(total), routes, denied }
    }
}

fn route_rates(
    before: &Snapshot,
    after: &Snapshot,
    per_second: impl Fn(u64) -> f64,
) -> HashMap<String, RouteRates> {
    let earlier: HashMap<_, _> = before.routes.iter().map(|route| (&route.name, route)).collect();
    let known = after.routes.iter().filter_map(|now| Some((now, *earlier.get(&now.name)?)));
    let rates = known.map(|(now, then)| {
        let difference = |now: u64, then: u64| per_second(now.saturating_sub(then));
        let rates = RouteRates {
            requests: difference(now.requests, then.requests),
            denied: difference(now.denied, then.denied),
            failed: difference(now.statuses[4], then.statuses[4]),
        };
        (now.name.clone(), rates)
    });
    rates.collect()
}

/// The denials of each address between two snapshots. For a new address they are known only if the previous snapshot
/// listed all addresses.
fn denials_by_address<'a>(before: &Snapshot, after: &'a Snapshot) -> impl Iterator<Item = (&'a str, u64)> {
    let earlier: HashMap<_, _> =
        before.blocked.iter().map(|of| (of.address.clone(), (of.first.clone(), of.denied))).collect();
    let listed_all = before.blocked.len() < ADDRESSES;
    after.blocked.iter().filter_map(move |now| {
        let denied = match earlier.get(&now.address) {
            // Unblocked and listed again.
            Some((first, _)) if *first != now.first => now.denied,
            Some((_, then)) => now.denied.saturating_sub(*then),
            None if listed_all => now.denied,
            None => return None,
        };
        Some((now.address.as_str(), denied))
    })
}

/// The rates of the last minute, newest first, in hundredths, so that less than one per second is visible. `None`:
/// unknown.
#[derive(Debug, Clone, Default)]
pub(super) struct RateHistory {
    requests: VecDeque<Option<u64>>,
    denied: VecDeque<Option<u64>>,
}

impl RateHistory {
    pub(super) fn push(&mut self, total: Option<TotalRates>) {
        let hundredths = |rate: f64| (rate * 100.0).round() as u64;
        push_front(&mut self.requests, total.map(|total| hundredths(total.requests)));
        push_front(&mut self.denied, total.map(|total| hundredths(total.denied)));
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = Option<u64>> {
        self.requests.iter().copied()
    }

    pub(super) fn denied(&self) -> impl Iterator<Item = Option<u64>> {
        self.denied.iter().copied()
    }
}

fn push_front(values: &mut VecDeque<Option<u64>>, value: Option<u64>) {
    values.push_front(value);
    values.truncate(HISTORY);
}

#[cfg(test)]
mod tests {
    use super::{super::testing::snapshot, *};

    const TWO_SECONDS: Duration = Duration::from_secs(2);

    #[test]
    fn differences_are_rates_per_second() {
        let before = snapshot();
        let mut after = before.clone();
        after.routes[0].requests += 30;
        after.routes[0].denied += 9;
        after.routes[0].statuses[4] += 1;
        after.routes[1].requests += 4;
        after.policies[0].shadow_denied += 6;
        after.blocked[0].denied += 5;
        let rates = Rates::between(&before, &after, TWO_SECONDS);
        assert_eq!(rates.total, Some(TotalRates { requests: 17.0, denied: 4.5, shadow_denied: 3.0 }));
        let first = RouteRates { requests: 15.0, denied: 4.5, failed: 0.5 };
        assert_eq!(rates.routes[&after.routes[0].name], first);
        assert_eq!(rates.denied[&after.blocked[0].address], 2.5);
        assert_eq!(rates.denied[&after.blocked[1].address], 0.0);
    }

    #[test]
    fn after_a_restart_rates_are_unknown() {
        let mut before = snapshot();
        let mut after = before.clone();
        after.status.started = "2026-07-03T12:30:00.000Z".to_owned();
        (before.routes[0].requests, after.routes[0].requests) = (1_000, 3);
        after.blocked[0].denied += 2;
        let rates = Rates::between(&before, &after, TWO_SECONDS);
        assert_eq!((rates.total, rates.routes.len()), (None, 0));
        assert_eq!(rates.denied[&after.blocked[0].address], 1.0, "that is shared by all instances");
        assert_eq!(Rates::between(&before, &after, Duration::ZERO), Rates::default());
    }

    #[test]
    fn counters_that_fall_are_no_negative_rates() {
        let (before, mut after) = (snapshot(), snapshot());
        after.routes[0].requests = 0;
        after.blocked[0].denied = 0;
        let rates = Rates::between(&before, &after, TWO_SECONDS);
        assert_eq!(rates.routes[&after.routes[0].name].requests, 0.0);
        assert_eq!(rates.denied[&after.blocked[0].address], 0.0);
    }

    #[test]
    fn a_new_address_counts_from_its_first_denial_if_all_were_listed_before() {
        let (mut before, after) = (snapshot(), snapshot());
        let new = before.blocked.remove(0);
        before.routes.remove(0);
        let rates = Rates::between(&before, &after, TWO_SECONDS);
        assert_eq!(rates.denied[&new.address], new.denied as f64 / 2.0);
        assert!(!rates.routes.contains_key(&after.routes[0].name));
        let other = before.blocked[0].clone();
        before.blocked = vec![other; ADDRESSES];
        assert!(!Rates::between(&before, &after, TWO_SECONDS).denied.contains_key(&new.address));

        let (before, mut after) = (snapshot(), snapshot());
        after.blocked[0].first = "2026-07-03T12:30:00.000Z".to_owned();
        after.blocked[0].denied = 4;
        let again = Rates::between(&before, &after, TWO_SECONDS);
        assert_eq!(again.denied[&after.blocked[0].address], 2.0);
    }

    #[test]
    fn a_minute_is_kept_the_newest_first() {
        let mut history = RateHistory::default();
        for second in 0..100 {
            let total = TotalRates { requests: f64::from(second), denied: 0.254, shadow_denied: 0.0 };
            history.push(Some(total));
        }
        history.push(None);
        let requests: Vec<_> = history.requests().collect();
        assert_eq!((requests.len(), requests[0], requests[1]), (60, None, Some(9_900)));
        assert_eq!(history.denied().nth(1), Some(Some(25)));
    }
}
