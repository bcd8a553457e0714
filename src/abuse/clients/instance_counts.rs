//! The counts of several instances for the same client.
//!
//! Counts are kept per instance for a bounded number of instances, and summed up for the others. An instance whose
//! count is in the sum takes it out when it reports again, because it remembers its published count. A count is added
//! twice only if an instance gets no reply to its write, and its count is summed up before its next report.

use serde::{Deserialize, Serialize};

use super::super::traffic::TrafficHistory;

/// Instances whose counts are kept apart; the counts of further ones are summed up.
const INSTANCES: usize = 16;
/// The number for all instances that are summed up.
const OTHERS: u32 = 0;

/// The number of requests that each instance has denied.
pub type DeniedCounts = InstanceCounts<u64>;
/// The number of a user's requests that each instance has denied at an address.
pub type UserDenialCounts = InstanceCounts<UserDenials>;
/// The traffic that each instance has seen.
pub type TrafficCounts = InstanceCounts<TrafficHistory>;

/// The count of each instance, by the instance's number. The one that reported last is at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceCounts<T>(Vec<(u32, T)>);

/// The denied requests of a user at an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserDenials {
    pub denied: u64,
    /// How many of them had a verified user.
    pub verified: u64,
}

/// A count of an instance.
pub trait Count: Clone {
    /// The sum of two counts.
    #[must_use]
    fn plus(self, other: &Self) -> Self;

    /// The sum without `part`, one of its counts.
    #[must_use]
    fn minus(self, part: &Self) -> Self;

    /// Whether the count continues `before`: an instance may have dropped a client since, and started a new count.
    fn includes(&self, before: &Self) -> bool;

    /// The count reduced to the size of one instance's.
    #[must_use]
    fn trimmed(self) -> Self {
        self
    }
}

impl Count for u64 {
    fn plus(self, other: &Self) -> Self {
        self.saturating_add(*other)
    }

    fn minus(self, part: &Self) -> Self {
        self.saturating_sub(*part)
    }

    fn includes(&self, before: &Self) -> bool {
        self >= before
    }
}

impl Count for UserDenials {
    fn plus(self, other: &Self) -> Self {
        Self {
            denied: self.denied.saturating_add(other.denied),
            verified: self.verified.saturating_add(other.verified),
        }
    }

    fn minus(self, part: &Self) -> Self {
        Self {
            denied: self.denied.saturating_sub(part.denied),
            verified: self.verified.saturating_sub(part.verified),
        }
    }

    fn includes(&self, before: &Self) -> bool {
        self.denied >= before.denied
    }
}

impl Count for TrafficHistory {
    fn plus(mut self, other: &Self) -> Self {
        self.merge(other);
        self
    }

    fn minus(mut self, part: &Self) -> Self {
        self.subtract(part);
        self
    }

    fn includes(&self, before: &Self) -> bool {
        TrafficHistory::includes(self, before)
    }

    fn trimmed(mut self) -> Self {
        self.trim();
        self
    }
}

impl<T: Count> InstanceCounts<T> {
    /// Sets this instance's count. `published`: the part of it that was reported before.
    pub fn report(&mut self, instance: u32, count: T, published: Option<&T>) {
        let Self(counts) = self;
        let known = counts.iter().position(|&(of, _)| of == instance);
        let count = match known.map(|index| counts.remove(index).1) {
            Some(before) if !count.includes(&before) => before,
            Some(_) => count,
            None => {
                let others = counts.iter_mut().find(|(of, _)| *of == OTHERS);
                if let (Some((_, others)), Some(published)) = (others, published) {
                    *others = others.clone().minus(published);
                }
                count
            }
        };
        counts.push((instance, count));
        while counts.len() > INSTANCES {
            let (_, gone) = counts.remove(0);
            match counts.iter_mut().find(|(of, _)| *of == OTHERS) {
                Some((_, others)) => *others = others.clone().plus(&gone).trimmed(),
                // Near the end, so that it is not the next to be removed.
                None => counts.insert(INSTANCES - 1, (OTHERS, gone)),
            }
        }
    }

    /// The instance's own count, if it has reported one.
    pub fn of(&self, instance: u32) -> Option<T> {
        self.0.iter().find(|&&(of, _)| of == instance).map(|(_, count)| count.clone())
    }

    /// Whether this instance's report was summed up: then [`Self::of_others`] includes it.
    pub fn is_summed_up(&self, instance: u32) -> bool {
        let has = |instance| self.0.iter().any(|&(of, _)| of == instance);
        has(OTHERS) && !has(instance)
    }

    /// The sum of the others, if there are any.
    pub fn of_others(&self, instance: u32) -> Option<T> {
        let others = self.0.iter().filter(|&&(of, _)| of != instance).take(INSTANCES);
        others.map(|(_, count)| count.clone()).reduce(|all, count| all.plus(&count))
    }

    /// The sum of all, if there are any.
    pub fn total(&self) -> Option<T> {
        let all = self.0.iter().take(INSTANCES);
        all.map(|(_, count)| count.clone()).reduce(|all, count| all.plus(&count))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(super) fn reported(&self) -> &[(u32, T)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::{testing::SECOND, traffic::Traffic},
        *,
    };

    #[test]
    fn instances_that_are_gone_are_summed_up() {
        let mut counts = DeniedCounts::default();
        (1..=40).for_each(|instance| counts.report(instance, 10, None));
        assert_eq!((counts.0.len(), counts.of_others(0xffff)), (INSTANCES, Some(400)));
        assert_eq!(counts.total(), Some(400));
        counts.report(40, 12, Some(&10));
        counts.report(40, 1, None);
        assert_eq!((counts.of(40), counts.of_others(40)), (Some(12), Some(390)), "it counts anew");
    }

    /// An instance that counts requests of one client, and its published count.
    #[derive(Clone, Default)]
    struct Instance<T> {
        counted: T,
        published: Option<T>,
    }

    impl<T: Count> Instance<T> {
        /// Reports its count. `is_acknowledged`: whether it gets the reply.
        fn report(&mut self, counts: &mut InstanceCounts<T>, number: u32, is_acknowledged: bool) {
            counts.report(number, self.counted.clone(), self.published.as_ref());
            if is_acknowledged {
                self.published = Some(self.counted.clone());
            }
        }
    }

    #[test]
    fn the_total_stays_exact_while_many_instances_report() {
        for live in [15, 16, 17, 20, 40] {
            let mut random = fastrand::Rng::with_seed(live);
            let mut instances = vec![(0, Instance::<u64>::default()); usize::try_from(live).unwrap()];
            let (mut counts, mut reported, mut next_number) = (DeniedCounts::default(), 0, 1);
            for round in 0..3_000 {
                let (number, instance) = &mut instances[random.usize(..usize::try_from(live).unwrap())];
                if *number == 0 || random.u8(..) == 0 {
                    // Restarted.
                    (*number, *instance) = (next_number, Instance::default());
                    next_number += 1;
                }
                let more = random.u64(1..20);
                (instance.counted, reported) = (instance.counted + more, reported + more);
                // A lost reply does no harm if the count is reported again soon.
                if random.u8(..8) == 0 {
                    instance.report(&mut counts, *number, false);
                }
                instance.report(&mut counts, *number, true);
                assert_eq!(counts.total(), Some(reported), "round {round} of {live} instances");
                let others = reported - instance.counted;
                assert_eq!(
                    counts.of_others(*number).unwrap_or(0),
                    others,
                    "round {round} of {live} instances"
                );
                assert!(counts.0.len() <= INSTANCES);
            }
        }
    }

    #[test]
    fn new_counts_of_an_instance_add_up_with_its_published_ones() {
        let mut counts = DeniedCounts::default();
        (1..=17).for_each(|instance| counts.report(instance, 10, None));
        assert!(counts.is_summed_up(1) && !counts.is_summed_up(17));
        // The instance has dropped the client meanwhile.
        counts.report(1, 3, None);
        assert_eq!((counts.total(), counts.of(1)), (Some(173), Some(3)));
        // Another one was summed up, takes its part out again, and continues.
        assert!(counts.is_summed_up(3) && !counts.is_summed_up(1));
        counts.report(3, 11, Some(&10));
        assert_eq!((counts.total(), counts.of(3), counts.of_others(3)), (Some(174), Some(11), Some(163)));
    }

    #[test]
    fn users_and_traffic_of_many_instances_stay_exact() {
        let mut users = vec![Instance::<UserDenials>::default(); 20];
        let mut traffic = vec![Instance::<TrafficHistory>::default(); 20];
        let (mut user_counts, mut traffic_counts) = (UserDenialCounts::default(), TrafficCounts::default());
        let mut tick = Traffic::default();
        tick.denied = 3;
        for round in 1..=50_u32 {
            // A period has ten rounds, and two periods count.
            let (period, time) = (round.div_ceil(10), i64::from(round) * SECOND);
            for (number, (users, traffic)) in (1..).zip(users.iter_mut().zip(&mut traffic)) {
                users.counted = users.counted.plus(&UserDenials { denied: 2, verified: 1 });
                users.report(&mut user_counts, number, true);
                traffic.counted.add_tick(&tick, time, period);
                traffic.report(&mut traffic_counts, number, true);
            }
            let denied = u64::from(round) * 20;
            let expected = UserDenials { denied: denied * 2, verified: denied };
            assert_eq!(user_counts.total(), Some(expected));
            let counted = if round <= 20 { round } else { 10 + (round - 1) % 10 + 1 };
            let total = traffic_counts.total().unwrap().total();
            assert_eq!((total.denied, total.seconds), (counted * 20 * 3, counted), "round {round}");
        }
    }
}
