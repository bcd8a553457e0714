//! What is usual for a route: responses in each ten minutes of the last day.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use foldhash::fast::FixedState;

use super::find::Usual;

/// Minutes of a slot.
const MINUTES: i64 = 10;
/// Slots of a day.
const DAY: i64 = 144;
/// Slots around the same time of the day before, of which the mean is usual; and slots before this time.
const AROUND: i64 = 3;
const BEFORE: i64 = 6;
/// Routes of a slot that are counted.
const ROUTES: usize = 512;

/// The responses of a route in ten minutes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotCounts {
    pub refused: u64,
    pub succeeded: u64,
}

/// The counts of a day, of all instances.
#[derive(Debug, Default)]
pub(super) struct UsualCounts {
    slots: BTreeMap<i64, HashMap<Arc<str>, SlotCounts, FixedState>>,
}

/// The slot of a minute.
pub(super) fn slot(minute: i64) -> i64 {
    minute.div_euclid(MINUTES)
}

impl UsualCounts {
    /// Adds counts of a minute.
    pub(super) fn add(&mut self, minute: i64, route: &Arc<str>, counts: SlotCounts) {
        let slot = self.slots.entry(slot(minute)).or_default();
        if slot.len() < ROUTES || slot.contains_key(route) {
            let sum = slot.entry(Arc::clone(route)).or_default();
            sum.refused += counts.refused;
            sum.succeeded += counts.succeeded;
        }
        let oldest = slot_before_a_day(minute);
        self.slots = self.slots.split_off(&oldest);
    }

    /// Notes that this minute was counted, even if nothing was.
    pub(super) fn note(&mut self, minute: i64) {
        self.slots.entry(slot(minute)).or_default();
    }

    /// The counts of a slot, as they are here.
    pub(super) fn of_slot(&self, slot: i64) -> Vec<(Arc<str>, SlotCounts)> {
        let of = self.slots.get(&slot).into_iter().flatten();
        of.map(|(route, counts)| (Arc::clone(route), *counts)).collect()
    }

    /// Replaces a slot by the counts of all instances.
    pub(super) fn replace(&mut self, slot: i64, counts: Vec<(Arc<str>, SlotCounts)>) {
        self.slots.insert(slot, counts.into_iter().take(ROUTES).collect());
    }

    /// What is usual for a route in this minute.
    pub(super) fn usual(&self, minute: i64, route: &str) -> Usual {
        let now = slot(minute);
        let mean = |slots: &mut dyn Iterator<Item = i64>, of: fn(&SlotCounts) -> u64| {
            let found: Vec<u64> =
                slots.filter_map(|at| Some(self.slots.get(&at)?.get(route).map_or(0, of))).collect();
            #[expect(clippy::cast_precision_loss, reason = "a mean")]
            (!found.is_empty()).then(|| found.iter().sum::<u64>() as f64 / found.len() as f64)
        };
        Usual {
            refused: mean(&mut (now - DAY - AROUND..=now - DAY + AROUND), |counts| counts.refused),
            // Of the last slot, a part is in the minutes that are looked at.
            succeeded: mean(&mut (now - 1 - BEFORE..now - 1), |counts| counts.succeeded),
        }
    }

    /// The slots that [`UsualCounts::usual`] needs in this minute.
    pub(super) fn needed(minute: i64) -> impl Iterator<Item = i64> {
        let now = slot(minute);
        (now - DAY - AROUND..=now - DAY + AROUND).chain(now - 1 - BEFORE..now - 1)
    }
}

fn slot_before_a_day(minute: i64) -> i64 {
    slot(minute) - DAY - AROUND - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_day_and_the_hour_before_are_usual() {
        let (mut usual, route): (_, Arc<str>) = (UsualCounts::default(), "/login".into());
        let today = 29_000_000;
        assert_eq!(usual.usual(today, &route), Usual::default());
        for minute in today - 1_500..today {
            usual.add(minute, &route, SlotCounts { refused: 2, succeeded: 5 });
        }
        assert_eq!(usual.usual(today, &route), Usual { refused: Some(20.0), succeeded: Some(50.0) });
        assert_eq!(usual.usual(today, "/other"), Usual { refused: Some(0.0), succeeded: Some(0.0) });
        assert!(usual.slots.len() as i64 <= DAY + AROUND + 2);
        assert_eq!(usual.usual(today + 1_400, &route), Usual { refused: Some(20.0), succeeded: None });
    }
}
