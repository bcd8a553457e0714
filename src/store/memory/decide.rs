//! The two-phase decision: read all limits of a request, then write all of them or none.

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::{
    MemoryStore,
    shard::{Name, Shard},
};
use crate::limit::{
    Check, Decision,
    algorithm::{State, Verdict},
};

/// A check on its way through the two phases.
struct Reading<'a> {
    check: &'a Check<'a>,
    name: Name<'a>,
    /// Which of the locked shards has the limit.
    lock: usize,
    /// Units of all checks of the request that name this limit.
    cost: u64,
    /// Whether an earlier check of the request names this limit, and writes it.
    repeats: bool,
    /// Where the limit stands in its shard, if it has state.
    found: Option<usize>,
    verdict: Verdict,
}

impl MemoryStore {
    /// [`Store::decide`](crate::limit::Store::decide), which never has to wait here.
    ///
    /// Checks of one request that name the same limit are one: each is held against the sum of their
    /// costs, and the sum is taken once.
    pub fn decide_now(&self, checks: &[Check<'_>]) -> Decision {
        let now = self.clock.now();
        let names: SmallVec<[Name<'_>; 2]> =
            checks.iter().map(|check| self.name(check.policy.id, &check.identifier)).collect();
        let order = self.shards_of(&names);
        let mut locks: SmallVec<[MutexGuard<'_, Shard>; 2]> =
            order.iter().map(|&shard| self.shards[shard].lock()).collect();

        let mut readings: SmallVec<[Reading<'_>; 2]> = SmallVec::with_capacity(checks.len());
        for (i, check) in checks.iter().enumerate() {
            let shard = self.shard_of(&names[i]);
            let lock = order.iter().position(|&locked| locked == shard).unwrap_or_default();
            let found = locks[lock].find(&names[i]);
            let (cost, repeats) = combined(&names, checks, i);
            let verdict = read(&locks[lock], found, check, now, cost);
            readings.push(Reading { check, name: names[i], lock, cost, repeats, found, verdict });
        }

        let admitted = readings.iter().all(|reading| reading.verdict.admitted);
        for reading in &mut readings {
            let Reading { check, name, lock, cost, found, verdict, .. } = reading;
            let shard = &mut locks[*lock];
            if admitted {
                if *cost > 0 && !reading.repeats {
                    shard.write(name, *found, check, now, *cost, verdict);
                }
            } else if verdict.admitted {
                *verdict = read(shard, *found, check, now, 0);
            }
        }
        if !admitted {
            protect_denials(&mut locks, &readings, now);
        }
        Decision { admitted, verdicts: readings.into_iter().map(|reading| reading.verdict).collect() }
    }

    /// The shards of these limits, each once, in the order in which they are locked.
    fn shards_of(&self, names: &[Name<'_>]) -> SmallVec<[usize; 4]> {
        let mut shards: SmallVec<[usize; 4]> = names.iter().map(|name| self.shard_of(name)).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }
}

/// The units of all checks that name the limit of check `i`, and whether one of them comes before it.
fn combined(names: &[Name<'_>], checks: &[Check<'_>], i: usize) -> (u64, bool) {
    let mut cost = checks[i].cost;
    let mut repeats = false;
    for (j, name) in names.iter().enumerate() {
        if j != i && name.is_same(&names[i]) {
            cost = cost.saturating_add(checks[j].cost);
            repeats |= j < i;
        }
    }
    (cost, repeats)
}

fn read(shard: &Shard, found: Option<usize>, check: &Check<'_>, now: i64, cost: u64) -> Verdict {
    let tiers = &check.policy.tiers;
    match found {
        Some(index) => shard.state(index).read(tiers, now, cost),
        None => State::new(check.policy.kind).read(tiers, now, cost),
    }
}

/// Sees to it that limits which were found at their limit outlast the others in a full store. After an
/// admission `write` has seen to it; this is for limits that were lowered since.
fn protect_denials(locks: &mut [MutexGuard<'_, Shard>], readings: &[Reading<'_>], now: i64) {
    for reading in readings {
        let shard = &mut locks[reading.lock];
        if !reading.verdict.admitted
            && reading.verdict.remaining == 0
            && let Some(index) = shard.find(&reading.name)
        {
            shard.mark(index, now, &reading.verdict);
        }
    }
}
