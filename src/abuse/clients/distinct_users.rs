//! Estimates the number of distinct users behind an address, in time slices of which the oldest is dropped.

use std::hash::DefaultHasher;

use cardinality_estimator::CardinalityEstimator;

use crate::memory_budget::heap;

/// Slices per `abuse.retain`. A user counts for that long, and for up to one slice more.
const SLICES: u32 = 8;
/// Up to this number of users, a sketch is exact.
const EXACT: usize = 128;

/// The length of a slice of `retain`, both in microseconds.
pub(super) fn length(retain: i64) -> i64 {
    (retain / i64::from(SLICES)).max(1)
}

/// The number of the slice that `time` falls into. `length`: of a slice.
pub(super) fn slice(length: i64, time: i64) -> u32 {
    u32::try_from(time.div_euclid(length).max(0)).unwrap_or(u32::MAX)
}

/// The period of `retain` that a slice belongs to.
pub(super) fn period(slice: u32) -> u32 {
    slice / SLICES
}

/// The oldest slice whose users still count in the slice `now`.
pub(super) fn oldest_slice(now: u32) -> u32 {
    now.saturating_sub(SLICES)
}

/// Exact up to 128 users. Beyond, a HyperLogLog of 2¹⁴ registers, which takes 12 KiB and is usually wrong by less
/// than 1 %. Its input is hashed already: the crate's own hasher does not hash.
#[derive(Debug, Clone, Default)]
struct Sketch(CardinalityEstimator<u64, DefaultHasher, 14, 6>);

/// The users of an address, by the slices in which they were seen.
#[derive(Debug, Clone, Default)]
pub(super) struct DistinctUsers {
    current: TimeSlice,
    /// Most addresses are limited for less than a slice.
    older: Option<Box<Older>>,
    counted: RememberedCount,
}

#[derive(Debug, Clone, Default)]
struct TimeSlice {
    number: u32,
    sketch: Sketch,
}

#[derive(Debug, Clone)]
struct Older {
    slices: Vec<TimeSlice>,
    /// The union of the older slices and the current one.
    all: Sketch,
}

/// A number of users without their identities, and the slice it was counted in.
#[derive(Debug, Clone, Copy, Default)]
struct RememberedCount {
    number: u32,
    users: u32,
}

impl DistinctUsers {
    /// Adds a user seen in a slice. False if the user is known to be in it already.
    pub(super) fn add(&mut self, hash: u64, number: u32) -> bool {
        if self.current.number < number {
            self.advance(number);
        }
        if let Some(older) = &mut self.older {
            older.all.insert(hash);
            // From a late worker, or from the entries of a limit.
            if let Some(slice) = older.slices.iter_mut().find(|slice| slice.number == number) {
                return slice.sketch.insert(hash);
            }
        }
        self.current.sketch.insert(hash)
    }

    /// Remembers a count of another instance, or of this one before the identities were dropped.
    pub(super) fn remember_count(&mut self, users: u64, number: u32) {
        let users = u32::try_from(users).unwrap_or(u32::MAX);
        if users >= self.counted.users {
            self.counted = RememberedCount { number, users };
        }
    }

    /// The number of users, approximately.
    pub(super) fn len(&self) -> u64 {
        let all = self.older.as_ref().map_or(&self.current.sketch, |older| &older.all);
        u64::try_from(all.len()).unwrap_or(u64::MAX).max(self.counted.users.into())
    }

    /// Removes slices that are too old in the slice `now`.
    pub(super) fn expire(&mut self, now: u32) {
        let is_over = |number: u32| number < oldest_slice(now);
        if is_over(self.counted.number) {
            self.counted = RememberedCount::default();
        }
        if is_over(self.current.number) {
            (self.current, self.older) = (TimeSlice { number: now, sketch: Sketch::default() }, None);
        }
        if let Some(older) = &mut self.older
            && older.slices.iter().any(|slice| is_over(slice.number))
        {
            older.slices.retain(|slice| !is_over(slice.number));
            older.merge_slices(&self.current);
            if older.slices.is_empty() {
                self.older = None;
            }
        }
    }

    /// Keeps the number of users, and drops their identities.
    pub(super) fn reduce_to_count(&mut self) {
        let (users, number) = (self.len(), self.current.number);
        (self.current, self.older) = (TimeSlice { number, sketch: Sketch::default() }, None);
        self.remember_count(users, number);
    }

    /// Bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        let older = self.older.as_ref().map_or(0, |older| {
            let slices = older.slices.iter().map(|slice| slice.sketch.bytes()).sum::<usize>();
            let slices = slices + heap::array::<TimeSlice>(older.slices.capacity());
            heap::array::<Older>(1) + older.all.bytes() + slices
        });
        self.current.sketch.bytes() + older
    }

    fn advance(&mut self, number: u32) {
        self.expire(number);
        let before = std::mem::replace(&mut self.current, TimeSlice { number, sketch: Sketch::default() });
        if before.sketch.len() == 0 {
            return;
        }
        match &mut self.older {
            Some(older) => older.slices.push(before),
            None => self.older = Some(Box::new(Older { all: before.sketch.clone(), slices: vec![before] })),
        }
    }
}

impl Older {
    fn merge_slices(&mut self, current: &TimeSlice) {
        self.all = current.sketch.clone();
        self.slices.iter().for_each(|slice| self.all.0.merge(&slice.sketch.0));
    }
}

impl Sketch {
    /// False if the hash was there already, as far as the sketch can tell.
    fn insert(&mut self, hash: u64) -> bool {
        let before = self.len();
        self.0.insert_hash(hash);
        before >= EXACT || self.len() > before
    }

    fn len(&self) -> usize {
        self.0.estimate()
    }

    /// Bytes on the heap: up to two users are stored in place of the pointer.
    fn bytes(&self) -> usize {
        heap::block(self.0.size_of().saturating_sub(size_of::<usize>()))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use config::model::Users::Plain;

    use super::{super::super::testing::names, *};
    use crate::config;

    fn hash(user: usize) -> u64 {
        names(Plain).identify(&format!("user-{user}")).unwrap().hash
    }

    fn add(users: &mut DistinctUsers, names: Range<usize>, slice: u32) {
        for name in names {
            users.add(hash(name), slice);
        }
    }

    fn users(names: Range<usize>, slice: u32) -> DistinctUsers {
        let mut users = DistinctUsers::default();
        add(&mut users, names, slice);
        users
    }

    #[test]
    fn few_users_are_counted_exactly() {
        let mut users = users(0..120, 5);
        assert_eq!(users.len(), 120);
        assert!(!users.add(hash(7), 5) && users.add(hash(120), 5));
        assert_eq!(users.len(), 121);
    }

    /// For two hundred sets each: the largest error, in thousandths.
    #[test]
    fn many_users_are_counted_nearly_exactly() {
        for (size, most) in [(129, 40), (500, 30), (1_000, 25), (5_000, 20), (20_000, 30)] {
            let mut random = fastrand::Rng::with_seed(size);
            let mut worst = 0;
            for _ in 0..200 {
                let mut users = DistinctUsers::default();
                for _ in 0..size {
                    users.add(random.u64(..), 1);
                }
                worst = worst.max(users.len().abs_diff(size) * 1_000 / size);
            }
            println!("{size} users: {worst} ‰ at most");
            assert!(worst <= most, "{size} users: {worst} ‰");
        }
    }

    #[test]
    fn a_user_seen_again_counts_once_until_the_last_sighting_expires() {
        let mut users = users(0..2_000, 10);
        add(&mut users, 1_000..3_000, 11);
        assert!(users.len().abs_diff(3_000) < 60, "{}", users.len());
        assert!(users.older.is_some());
        users.expire(18);
        assert!(users.len().abs_diff(3_000) < 60, "{}", users.len());
        users.expire(19);
        assert!(users.len().abs_diff(2_000) < 40, "{}", users.len());
        assert!(users.older.is_none());
        users.expire(20);
        assert_eq!(users.len(), 0);
    }

    #[test]
    fn a_late_user_is_counted_in_its_own_slice() {
        let mut users = users(0..10, 1);
        users.add(hash(10), 2);
        users.add(hash(11), 1);
        assert_eq!(users.len(), 12);
        users.expire(10);
        assert_eq!(users.len(), 1, "who was seen in the second slice");
    }

    #[test]
    fn a_remembered_count_holds_where_it_is_higher() {
        let mut users = users(0..10, 5);
        users.remember_count(7, 5);
        assert_eq!(users.len(), 10);
        users.remember_count(50, 5);
        users.remember_count(20, 6);
        assert_eq!(users.len(), 50);
        users.expire(14);
        assert_eq!(users.len(), 0);
    }

    #[test]
    fn memory_is_bounded_and_reported() {
        assert_eq!(users(0..2, 1).bytes(), 0);
        let mut many = users(0..100_000, 1);
        assert!((12_000..15_000).contains(&many.bytes()), "{}", many.bytes());
        (2..100).for_each(|slice| add(&mut many, 0..200, slice));
        assert!(many.bytes() < 12 * 15_000, "{}", many.bytes());
        let before = many.len();
        many.reduce_to_count();
        assert_eq!((many.len(), many.bytes()), (before, 0));
    }
}
