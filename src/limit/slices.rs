//! Quota slices: an instance takes a part of a window's quota at once, and spends it alone.
//!
//! Units that were not spent when their window ends are lost. So never more than the limit is admitted, and at most one
//! slice per instance fewer.

use std::{collections::HashMap, hash::BuildHasher, sync::Arc};

use compact_str::CompactString;
use parking_lot::Mutex;

use super::{Check, Epoch, Instances, PolicyId, algorithm::Verdict};

/// Most limits of which an instance has slices. Checks of other limits are decided by the store.
const MAX_SLICES: usize = 1 << 16;
/// A power of two, and more than the workers of most machines.
const SHARDS: usize = 32;

/// The slices of an instance, shared by its workers.
#[derive(Debug)]
pub struct Slices {
    instances: Arc<Instances>,
    /// Seeded at random: identifiers come from clients, who must not be able to choose collisions.
    hasher: foldhash::quality::RandomState,
    shards: [Mutex<SliceShard>; SHARDS],
}

#[derive(Debug, Default)]
struct SliceShard {
    slices: HashMap<SlicedLimit, QuotaSlice, foldhash::quality::RandomState>,
    /// The epoch in which they were taken.
    epoch: Epoch,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SlicedLimit {
    policy: PolicyId,
    identifier: CompactString,
    /// The limit of the first tier. An override shares its policy's count but has another limit, so a slice of one must
    /// not serve the other.
    limit: u64,
}

impl SlicedLimit {
    fn new(check: &Check<'_>) -> Self {
        let (policy, identifier) = (check.policy.id, check.identifier.clone());
        Self { policy, identifier, limit: check.policy.tiers[0].limit }
    }
}

/// The slice of one limit.
#[derive(Debug)]
struct QuotaSlice {
    /// Units left in the slice.
    units: u64,
    /// Units left in the store at its last decision. Others may have taken some since.
    left_in_store: u64,
    /// When the window ends, in microseconds since the Unix epoch. Never later than in the store.
    end: i64,
    /// Whether a request for the next slice is in flight.
    is_refilling: bool,
    /// Whether no other slice is requested in this window: none is left, or the result of the last request is unknown.
    is_last: bool,
}

/// How to decide a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpendOutcome {
    /// The units were taken from the slice. The verdict is the limit's status after it.
    FromSlice(Verdict, Epoch),
    /// The caller must request a slice from the store and report the result to [`Slices::refill`] or
    /// [`Slices::refill_failed`].
    Refill(Epoch),
    /// The caller must take the check's own units from the store.
    AskStore,
}

/// How to decide a check after the store has denied its units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterDenial {
    /// The units were taken from the slice. The verdict is the limit's status after it.
    FromSlice(Verdict, Epoch),
    /// A slice may arrive soon.
    Awaited,
    Denied,
}

impl Slices {
    /// No slices. An invalidation by `instances` voids all.
    pub fn new(instances: Arc<Instances>) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { instances, hasher: foldhash::quality::RandomState::default(), shards }
    }

    /// The current epoch, for [`Slices::note_verdict`].
    pub(super) fn epoch(&self) -> Epoch {
        self.instances.epoch()
    }

    /// Takes the check's units from the current slice, if it has enough.
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
                QuotaSlice { units: 0, left_in_store: 0, end: i64::MAX, is_refilling: true, is_last: false };
            shard.slices.insert(limit, unknown);
            return SpendOutcome::Refill(epoch);
        }
        let Some(slice) = shard.slices.get_mut(&limit) else { return SpendOutcome::AskStore };
        if let Some(verdict) = slice.take(check, now) {
            return SpendOutcome::FromSlice(verdict, epoch);
        }
        if slice.is_refilling || slice.is_last {
            return SpendOutcome::AskStore;
        }
        slice.is_refilling = true;
        SpendOutcome::Refill(epoch)
    }

    /// Takes the check's units from a slice that arrived while the store denied them: it may have the last ones.
    pub(super) fn spend_after_denial(&self, check: &Check<'_>, now: i64) -> AfterDenial {
        let limit = SlicedLimit::new(check);
        let mut shard = self.shard(&limit);
        let epoch = shard.epoch;
        match shard.slices.get_mut(&limit) {
            None => AfterDenial::Denied,
            Some(slice) => match slice.take(check, now) {
                Some(verdict) => AfterDenial::FromSlice(verdict, epoch),
                None if slice.is_refilling => AfterDenial::Awaited,
                None => AfterDenial::Denied,
            },
        }
    }

    /// The verdict if the check's units were taken from the current slice. `None` if it does not have enough.
    pub(super) fn look(&self, check: &Check<'_>, now: i64) -> Option<Verdict> {
        let limit = SlicedLimit::new(check);
        let shard = self.shard(&limit);
        let slice = shard.slices.get(&limit).filter(|slice| slice.units >= check.cost && slice.end > now)?;
        let verdict = slice.verdict(check, now);
        Some(Verdict { remaining: verdict.remaining.saturating_sub(check.cost), ..verdict })
    }

    /// Adds `units` that the store granted, with `verdict`, to a request made at the time `asked`. Takes the check's
    /// own units and keeps the rest. Returns the limit's verdict.
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
        // The rest of the old slice counts only if it is of the same window.
        let is_same = slice.units > 0 && slice.ends_about(end, check);
        let left = if is_same { slice.units } else { 0 };
        if is_same {
            end = end.min(slice.end);
        }
        *slice = QuotaSlice {
            units: left.saturating_add(units.saturating_sub(check.cost)),
            left_in_store: verdict.remaining,
            end,
            is_refilling: false,
            is_last: false,
        };
        slice.verdict(check, asked)
    }

    /// Records the store's `verdict` on a check's own units, decided at about the time `asked`. Returns the verdict
    /// with the units left in the slice added.
    pub(super) fn note_verdict(
        &self,
        check: &Check<'_>,
        verdict: Verdict,
        asked: i64,
        epoch: Epoch,
    ) -> Verdict {
        let limit = SlicedLimit::new(check);
        let mut shard = self.shard(&limit);
        let end = asked.saturating_add(verdict.reset);
        match shard.current(epoch, &limit) {
            Some(slice) if slice.ends_about(end, check) => {
                slice.left_in_store = verdict.remaining;
                // The store counts the units of the slice as taken.
                Verdict { remaining: verdict.remaining.saturating_add(slice.units), ..verdict }
            }
            // Units of another window do not count in this one.
            _ => verdict,
        }
    }

    /// Records that the store granted no slice to a request made at the time `asked`. `verdict`: its decision, if there
    /// is one.
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

    /// Records that the result of a request for a slice, made at the time `asked`, is unknown. No other slice is
    /// requested until the window ends: each could be lost in the same way.
    pub(super) fn refill_unknown(&self, check: &Check<'_>, asked: i64, epoch: Epoch) {
        let limit = SlicedLimit::new(check);
        let mut shard = self.shard(&limit);
        let Some(slice) = shard.current(epoch, &limit) else { return };
        let window = check.policy.tiers[0].window;
        let end = asked - asked.rem_euclid(window) + window;
        if !slice.ends_about(end, check) {
            (slice.units, slice.end) = (0, end);
        }
        (slice.is_refilling, slice.is_last) = (false, true);
    }

    /// Returns the units that a check took from a slice that ended at `end`, since another check denied the request. By
    /// `now` that slice may have been refilled: then it has another end, but is of the same window, which ends no
    /// earlier than either.
    pub(super) fn put_back(&self, check: &Check<'_>, end: i64, now: i64, epoch: Epoch) {
        let limit = SlicedLimit::new(check);
        if let Some(slice) = self.shard(&limit).current(epoch, &limit)
            && now < slice.end.min(end)
        {
            slice.units = slice.units.saturating_add(check.cost);
            slice.end = slice.end.min(end);
        }
    }

    /// Returns the units that a check took of a limit at the time `at`, from the slice or the store. Returns false if
    /// the slice of that window is gone.
    pub(super) fn give_back(&self, check: &Check<'_>, at: i64, now: i64) -> bool {
        let limit = SlicedLimit::new(check);
        let mut shard = self.shard(&limit);
        let begins = |slice: &QuotaSlice| slice.end.saturating_sub(check.policy.tiers[0].window);
        let slice = shard.slices.get_mut(&limit);
        let Some(slice) =
            slice.filter(|slice| slice.end != i64::MAX && slice.end > now && begins(slice) <= at)
        else {
            return false;
        };
        slice.units = slice.units.saturating_add(check.cost);
        true
    }

    fn shard(&self, limit: &SlicedLimit) -> parking_lot::MutexGuard<'_, SliceShard> {
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

impl SliceShard {
    /// The slice of a limit, if `epoch` has not passed.
    fn current(&mut self, epoch: Epoch, limit: &SlicedLimit) -> Option<&mut QuotaSlice> {
        if self.epoch == epoch { self.slices.get_mut(limit) } else { None }
    }
}

impl QuotaSlice {
    /// Whether `end` is the end of this slice's window. The store reports a slightly different end each time.
    fn ends_about(&self, end: i64, check: &Check<'_>) -> bool {
        end.abs_diff(self.end) < check.policy.tiers[0].window.unsigned_abs() / 2
    }

    /// Takes the check's units, if the slice has enough. It may have ended while the next one is requested.
    fn take(&mut self, check: &Check<'_>, now: i64) -> Option<Verdict> {
        if self.units < check.cost || self.end <= now {
            return None;
        }
        self.units -= check.cost;
        Some(self.verdict(check, now))
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
            renews: false,
        }
    }
}
