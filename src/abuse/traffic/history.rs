//! The traffic of a client for as long as it counts.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::{People, Traffic};
use crate::memory_budget::heap;

/// The traffic of this period and the last, each as long as `abuse.retain`: older traffic says little about a
/// client's current behaviour.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficHistory {
    /// The number of the current period, the same on all instances.
    period: u32,
    current: Traffic,
    previous: Option<Box<Traffic>>,
}

impl TrafficHistory {
    /// Adds the traffic of a tick, whose last request was received at `time`, in microseconds since the Unix epoch.
    pub(in crate::abuse) fn add_tick(&mut self, traffic: &Traffic, time: i64, period: u32) {
        self.advance(period);
        self.current.append(traffic);
        self.current.trim();
        self.current.add_second(u32::try_from(time.div_euclid(1_000_000)).unwrap_or(0));
        self.current.add_time(time);
    }

    /// Begins a new period, if `period` is newer.
    pub(in crate::abuse) fn advance(&mut self, period: u32) {
        if period > self.period {
            let last = std::mem::take(&mut self.current);
            let is_counted = period - self.period == 1 && last.requests() > 0;
            self.previous = is_counted.then(|| Box::new(last));
            self.period = period;
        }
    }

    /// Adds other instances' counts of the same client.
    pub(in crate::abuse) fn merge(&mut self, other: &Self) {
        self.advance(other.period);
        match self.period - other.period {
            0 => {
                self.current.merge(&other.current);
                if let Some(previous) = &other.previous {
                    self.previous.get_or_insert_default().merge(previous);
                }
            }
            1 => self.previous.get_or_insert_default().merge(&other.current),
            _ => {}
        }
    }

    /// Subtracts the counts of one of the instances. Times and URLs are kept: merged again, they change nothing.
    pub(in crate::abuse) fn subtract(&mut self, part: &Self) {
        self.advance(part.period);
        match self.period - part.period {
            0 => {
                self.current.subtract(&part.current);
                if let (Some(previous), Some(part)) = (&mut self.previous, &part.previous) {
                    previous.subtract(part);
                }
            }
            1 => {
                if let Some(previous) = &mut self.previous {
                    previous.subtract(&part.current);
                }
            }
            _ => {}
        }
    }

    /// Drops samples of other instances.
    pub(in crate::abuse) fn trim(&mut self) {
        self.current.trim();
        if let Some(previous) = &mut self.previous {
            previous.trim();
        }
    }

    /// The traffic of both periods.
    pub(in crate::abuse) fn total(&self) -> Traffic {
        let mut total = self.current.clone();
        if let Some(previous) = &self.previous {
            total.append(previous);
        }
        total
    }

    /// Whether it continues `other`: an instance may have dropped a client, and started a new count.
    pub(in crate::abuse) fn includes(&self, other: &Self) -> bool {
        match self.period.cmp(&other.period) {
            Ordering::Greater => true,
            Ordering::Equal => self.current.requests() >= other.current.requests(),
            Ordering::Less => false,
        }
    }

    /// Drops the signs of people, which are shared apart.
    pub(in crate::abuse) fn without_people(mut self) -> Self {
        self.set_people(None);
        self
    }

    /// Replaces the signs of people.
    pub(in crate::abuse) fn set_people(&mut self, people: Option<People>) {
        self.current.set_people(people);
        if let Some(previous) = &mut self.previous {
            previous.set_people(None);
        }
    }

    /// Bytes on the heap.
    pub(in crate::abuse) fn bytes(&self) -> usize {
        let previous =
            self.previous.as_ref().map_or(0, |previous| heap::array::<Traffic>(1) + previous.bytes());
        self.current.bytes() + previous
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn denied(denied: u32) -> Traffic {
        Traffic { denied, ..Traffic::default() }
    }

    #[test]
    fn seconds_with_requests_are_counted_once() {
        let mut history = TrafficHistory::default();
        for time in [5 * SECOND, 5 * SECOND + 900_000, 6 * SECOND, 5 * SECOND + 950_000, 9 * SECOND] {
            history.add_tick(&denied(2), time, 1);
        }
        assert_eq!((history.total().seconds, history.total().denied), (3, 10));
    }

    #[test]
    fn two_periods_count() {
        let mut history = TrafficHistory::default();
        history.add_tick(&denied(1), SECOND, 1);
        history.add_tick(&denied(2), 2 * SECOND, 2);
        assert_eq!(history.total().denied, 3);
        history.advance(3);
        assert_eq!(history.total().denied, 2);
        history.advance(5);
        assert_eq!(history.total(), Traffic::default());
    }

    #[test]
    fn instances_agree_whichever_counts_itself() {
        let mut one = TrafficHistory::default();
        one.add_tick(&denied(1), SECOND, 1);
        one.add_tick(&denied(2), 2 * SECOND, 2);
        let mut other = TrafficHistory::default();
        other.add_tick(&denied(4), SECOND, 1);
        let (mut first, mut second) = (one.clone(), other.clone());
        first.merge(&other);
        second.merge(&one);
        assert_eq!((first.total(), first.total().denied), (second.total(), 7));
        assert!(one.includes(&other) && !other.includes(&one));
    }
}
