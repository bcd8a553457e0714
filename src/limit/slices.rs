//! Quota slices: an instance takes a part of a window's quota at once, and spends it alone.
//!
//! Whatever was taken and not spent when its window ends is lost, so that never more than the limit is admitted,
//! and at most a slice an instance less.

use std::{collections::HashMap, hash::BuildHasher, sync::Arc};

use compact_str::CompactString;
use parking_lot::Mutex;

use super::{Check, Epoch, Instances, PolicyId, algorithm::Verdict};

/// Limits of which an instance holds slices at most; of others every unit is asked for.
const MAX_SLICES: usize = 1 << 16;
/// A power of two, and more than the workers of most machines.
const SHARDS: usize = 32;

/// The slices that an instance holds, shared by its workers.
#[derive(Debug)]
pub struct Slices {
    instances: Arc<Instances>,
    /// Seeded at random: identifiers come from clients, who must not be able to choose collisions.
    hasher: foldhash::quality::RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    slices: HashMap<SlicedLimit, Slice, foldhash::quality::RandomState>,
    /// The epoch in which they were taken.
    epoch: Epoch,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SlicedLimit {
    policy: PolicyId,
    identifier: CompactString,
    /// An override has its policy's count, and another limit: what is still below the one may be above the other.
    limit: u64,
}

impl SlicedLimit {
    fn new(check: &Check<'_>) -> Self {
        let (policy, identifier) = (check.policy.id, check.identifier.clone());
        Self { policy, identifier, limit: check.policy.tiers[0].limit }
    }
}

/// What is held of one limit.
#[derive(Debug)]
struct Slice {
    /// Units left of it.
    units: u64,
    /// Units that others may still take.
    left_in_store: u64,
    /// When the window ends, in microseconds since the Unix epoch; not later than it does for the store.
    end: i64,
    /// Somebody asks for the next one.
    is_refilling: bool,
    /// No whole slice is left of the window.
    is_last: bool,
}

/// What to do about a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpendOutcome {
    /// It was taken of the slice; this is how the limit stands.
    FromSlice(Verdict, Epoch),
    /// The caller is to ask for a slice and say how that went, in [`Slices::refill`] or [`Slices::refill_failed`].
    Refill(Epoch),
    /// The store has to be asked for these units alone.
    AskStore,
}

impl Slices {
    /// Holds none. They are void once limits were taken back.
    pub fn new(instances: Arc<Instances>) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { instances, hasher: foldhash::quality::RandomState::default(), shards }
    }

    /// Takes the check's units of the slice that is held `now`, if it has as many.
    pub(super) fn spend(&self, check: &Check<'_>, now: i64) -> SpendOutcome {
        let limit = SlicedLimit::new(check);
        let mut shard = self.shard(&limit);
        let epoch = shard.epoch;
        let room = shard.slices.len() < MAX_SLICES / SHARDS;
        if shard.slices.get(&limit).is_none_or(|slice| slice.end <= now && !slice.is_refilling) {
            if !room {
                shard.slices.retain(|_, slice| slice.end > now);
            }
            if shard.slices.len() >= MAX_SLICES / SHARDS {
                return SpendOutcome::AskStore;
            }
            let unknown =
                Slice { units: 0, left_in_store: 0, end: i64::MAX, is_refilling: true, is_last: false };
            shard.slices.insert(limit, unknown);
            return SpendOutcome::Refill(epoch);
        }
        let Some(slice) = shard.slices.get_mut(&limit) else { return SpendOutcome::AskStore };
        // While the next is asked for, this one may come to its end.
        if slice.units >= check.cost && slice.end > now {
            slice.units -= check.cost;
            return SpendOutcome::FromSlice(slice.verdict(check, now), epoch);
        }
        if slice.is_refilling || slice.is_last {
            return SpendOutcome::AskStore;
        }
        slice.is_refilling = true;
        SpendOutcome::Refill(epoch)
    }

    /// How the limit would stand once the check's units were taken of the slice that is held `now`; `None` if it has not
    /// as many.
    pub(super) fn look(&self, check: &Check<'_>, now: i64) -> Option<Verdict> {
        let limit = SlicedLimit::new(check);
        let shard = self.shard(&limit);
        let slice = shard.slices.get(&limit).filter(|slice| slice.units >= check.cost && slice.end > now)?;
        let verdict = slice.verdict(check, now);
        Some(Verdict { remaining: verdict.remaining.saturating_sub(check.cost), ..verdict })
    }

    /// The store gave `units` for the check and its slice when it was `asked`, and said `verdict`. Takes the check's
    /// own, and says how the limit stands.
    pub(super) fn refill(
        &self,
        check: &Check<'_>,
        units: u64,
        verdict: Verdict,
        asked: i64,
        epoch: Epoch,
    ) -> Verdict {
        let limit = SlicedLimit::new(check);
        let mut shard = self.shard(&limit);
        let Some(slice) = shard.current(epoch, &limit) else { return verdict };
        let mut end = asked.saturating_add(verdict.reset);
        // What was left belongs to the same window, or is void.
        let is_same = slice.units > 0 && slice.ends_about(end, check);
        let left = if is_same { slice.units } else { 0 };
        if is_same {
            end = end.min(slice.end);
        }
        *slice = Slice {
            units: left.saturating_add(units.saturating_sub(check.cost)),
            left_in_store: verdict.remaining,
            end,
            is_refilling: false,
            is_last: false,
        };
        slice.verdict(check, asked)
    }

    /// The store gave no slice when it was `asked`. `verdict`: what it said, if it could be asked.
    pub(super) fn refill_failed(
        &self,
        check: &Check<'_>,
        verdict: Option<Verdict>,
        asked: i64,
        epoch: Epoch,
    ) {
        let limit = SlicedLimit::new(check);
        let mut shard = self.shard(&limit);
        match (verdict, shard.current(epoch, &limit)) {
            (_, None) => {}
            (Some(verdict), Some(slice)) => {
                let end = asked.saturating_add(verdict.reset.max(1));
                if !slice.ends_about(end, check) {
                    slice.units = 0;
                }
                (slice.is_refilling, slice.is_last, slice.end) = (false, true, end);
            }
            (None, Some(slice)) if slice.end != i64::MAX => slice.is_refilling = false,
            _ => {
                shard.slices.remove(&limit);
            }
        }
    }

    /// Puts back what a check has taken of a slice until `end`, since its request was denied by another one.
    pub(super) fn put_back(&self, check: &Check<'_>, end: i64, epoch: Epoch) {
        let limit = SlicedLimit::new(check);
        if let Some(slice) = self.shard(&limit).current(epoch, &limit)
            && slice.end == end
        {
            slice.units = slice.units.saturating_add(check.cost);
        }
    }

    fn shard(&self, limit: &SlicedLimit) -> parking_lot::MutexGuard<'_, Shard> {
        let index = self.hasher.hash_one(limit) as usize & (SHARDS - 1);
        let mut shard = self.shards[index].lock();
        let epoch = self.instances.epoch();
        if shard.epoch != epoch {
            shard.slices.clear();
            shard.epoch = epoch;
        }
        shard
    }
}

impl Shard {
    /// What is held of a limit, if it is still that epoch.
    fn current(&mut self, epoch: Epoch, limit: &SlicedLimit) -> Option<&mut Slice> {
        if self.epoch == epoch { self.slices.get_mut(limit) } else { None }
    }
}

impl Slice {
    /// Whether a window that ends at `end` is its own: asked at different times, the end is told a little differently.
    fn ends_about(&self, end: i64, check: &Check<'_>) -> bool {
        end.abs_diff(self.end) < check.policy.tiers[0].window.unsigned_abs() / 2
    }

    fn verdict(&self, check: &Check<'_>, now: i64) -> Verdict {
        Verdict {
            admitted: true,
            tier: 0,
            limit: check.policy.tiers[0].limit,
            remaining: self.units.saturating_add(self.left_in_store),
            reset: self.end.saturating_sub(now).max(0),
            retry_after: Some(0),
            delay: 0,
        }
    }
}
