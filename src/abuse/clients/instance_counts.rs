//! What each of several instances has counted of the same client.

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

    fn includes(&self, before: &Self) -> bool {
        self.denied >= before.denied
    }
}

impl Count for TrafficHistory {
    fn plus(mut self, other: &Self) -> Self {
        self.merge(other);
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
    /// This instance has counted so much.
    pub fn report(&mut self, instance: u32, count: T) {
        let Self(counts) = self;
        let known = counts.iter().position(|&(of, _)| of == instance);
        let before = known.map(|index| counts.remove(index).1);
        let count = match before {
            Some(before) if !count.includes(&before) => before,
            _ => count,
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
    use super::*;

    #[test]
    fn instances_that_are_gone_are_summed_up() {
        let mut counts = DeniedCounts::default();
        (1..=40).for_each(|instance| counts.report(instance, 10));
        assert_eq!((counts.0.len(), counts.of_others(0xffff)), (INSTANCES, Some(400)));
        assert_eq!(counts.total(), Some(400));
        counts.report(40, 12);
        counts.report(40, 1);
        assert_eq!((counts.of(40), counts.of_others(40)), (Some(12), Some(390)), "it counts anew");
    }
}
