//! What each of several instances has counted of the same client.
//!
//! Counts of a bounded number of instances are told apart. Those of the others are added up, and an instance that counts on
//! takes its part out of that sum again: it remembers what it has published. A count is added twice only if an instance gets
//! no reply to its write, and its count becomes a part of the sum before the next.

use serde::{Deserialize, Serialize};

use super::super::traffic::TrafficHistory;

/// Instances whose counts are told apart; those of more are summed up.
const INSTANCES: usize = 16;
/// Stands for all instances that are no longer told apart.
const OTHERS: u32 = 0;

/// How many requests each instance has denied.
pub type DeniedCounts = InstanceCounts<u64>;
/// How many requests of a user each instance has denied at an address.
pub type UserDenialCounts = InstanceCounts<UserDenials>;
/// The traffic that each instance has seen.
pub type TrafficCounts = InstanceCounts<TrafficHistory>;

/// What each instance has counted, the instance that has reported last at the end. Instances have numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceCounts<T>(Vec<(u32, T)>);

/// The denied requests of a user at an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserDenials {
    pub denied: u64,
    /// How many of them had a verified user.
    pub verified: u64,
}

/// What an instance counts.
pub trait Count: Clone {
    /// The count of two instances.
    #[must_use]
    fn plus(self, other: &Self) -> Self;

    /// The count of two instances without that of `part`, one of them.
    #[must_use]
    fn minus(self, part: &Self) -> Self;

    /// Whether it is `before` counted on: an instance may have dropped a client since, and count it anew.
    fn includes(&self, before: &Self) -> bool;

    /// The same, as small as that of one instance.
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
    /// This instance has counted so much. `published`: how much of that it has reported before.
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
                // Behind all others, so that it is not the next to go.
                None => counts.insert(INSTANCES - 1, (OTHERS, gone)),
            }
        }
    }

    /// What the instance itself has counted, if it has reported anything.
    pub fn of(&self, instance: u32) -> Option<T> {
        self.0.iter().find(|&&(of, _)| of == instance).map(|(_, count)| count.clone())
    }

    /// Whether what this instance has reported is no longer told apart: [`Self::of_others`] includes it then.
    pub fn is_summed_up(&self, instance: u32) -> bool {
        let has = |instance| self.0.iter().any(|&(of, _)| of == instance);
        has(OTHERS) && !has(instance)
    }

    /// What the others have counted, if there is anything.
    pub fn of_others(&self, instance: u32) -> Option<T> {
        let others = self.0.iter().filter(|&&(of, _)| of != instance).take(INSTANCES);
        others.map(|(_, count)| count.clone()).reduce(|all, count| all.plus(&count))
    }

    /// What all have counted, if there is anything.
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

    /// An instance that counts requests of one client, and what it knows to be published.
    #[derive(Clone, Default)]
    struct Instance<T> {
        counted: T,
        published: Option<T>,
    }

    impl<T: Count> Instance<T> {
        /// Reports what it has counted. `is_acknowledged`: it gets the reply to that.
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
                    // It is restarted.
                    (*number, *instance) = (next_number, Instance::default());
                    next_number += 1;
                }
                let more = random.u64(1..20);
                (instance.counted, reported) = (instance.counted + more, reported + more);
                // A reply that is lost does no harm where it is reported again soon.
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
    fn what_an_instance_counts_anew_adds_up_with_what_it_had_published() {
        let mut counts = DeniedCounts::default();
        (1..=17).for_each(|instance| counts.report(instance, 10, None));
        assert!(counts.is_summed_up(1) && !counts.is_summed_up(17));
        // It has dropped the client meanwhile.
        counts.report(1, 3, None);
        assert_eq!((counts.total(), counts.of(1)), (Some(173), Some(3)));
        // Another is told apart no longer, takes its part back, and counts on.
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
