//! How many instances share the limits, by reports that may be wrong.

use std::time::Duration;

use tokio::time::Instant;

/// How long the server must have reported fewer instances, without a gap, before that is believed.
///
/// The server may lose the list of instances: restarted, flushed, or out of memory. Every live instance reports
/// again within about a second. An instance that believed the first short list would count too much alone if the server
/// went away right after.
const BELIEVED_AFTER: Duration = Duration::from_secs(10);

/// Longest time between reports without a gap: heartbeats are sent about once a second.
const MOST_BETWEEN: Duration = Duration::from_millis(2_500);

/// The number of live instances. Higher counts are believed at once, lower ones only after a while.
#[derive(Debug, Default)]
pub(super) struct InstanceCount {
    believed: u32,
    fewer: Option<Fewer>,
}

/// Reports of fewer instances than believed.
#[derive(Debug)]
struct Fewer {
    since: Instant,
    /// The time of the last report.
    last: Instant,
    /// The highest count among them.
    most: u32,
}

impl InstanceCount {
    /// Takes the reported count, and returns the believed one. `evicts`: the server has evicted keys lately, perhaps
    /// the list of instances.
    pub(super) fn report(&mut self, reported: u32, evicts: bool, now: Instant) -> u32 {
        if reported >= self.believed {
            (self.believed, self.fewer) = (reported, None);
            return reported;
        }
        if evicts {
            self.fewer = None;
            return self.believed;
        }
        // No instance could report while the server was away.
        let fewer = self.fewer.take().filter(|fewer| now.duration_since(fewer.last) < MOST_BETWEEN);
        let mut fewer = fewer.unwrap_or(Fewer { since: now, last: now, most: reported });
        (fewer.last, fewer.most) = (now, fewer.most.max(reported));
        match now.duration_since(fewer.since) >= BELIEVED_AFTER {
            true => self.believed = fewer.most,
            false => self.fewer = Some(fewer),
        }
        self.believed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The believed count after each report, `every` milliseconds apart.
    fn believed(count: &mut InstanceCount, now: &mut Instant, every: u64, reports: &[u32]) -> Vec<u32> {
        let mut report = |&reported: &u32| {
            *now += Duration::from_millis(every);
            count.report(reported, false, *now)
        };
        reports.iter().map(&mut report).collect()
    }

    #[test]
    fn more_are_believed_at_once_and_fewer_after_a_while() {
        let (mut count, mut now) = (InstanceCount::default(), Instant::now());
        assert_eq!(believed(&mut count, &mut now, 1_000, &[1, 3, 3]), [1, 3, 3]);
        assert_eq!(believed(&mut count, &mut now, 1_000, &[2; 12])[9..], [3, 2, 2]);
        assert_eq!(believed(&mut count, &mut now, 1_000, &[1, 3, 1, 1, 1, 1, 1]), [2, 3, 3, 3, 3, 3, 3]);
    }

    #[test]
    fn of_different_lower_numbers_the_most_is_believed() {
        let (mut count, mut now) = (InstanceCount::default(), Instant::now());
        let reports = [9, 1, 2, 4, 3, 3, 3, 3];
        assert_eq!(believed(&mut count, &mut now, 2_000, &reports), [9, 9, 9, 9, 9, 9, 4, 4]);
    }

    #[test]
    fn a_server_that_evicts_is_not_believed() {
        let (mut count, now) = (InstanceCount::default(), Instant::now());
        count.report(3, false, now);
        let reported = (0..60).map(|second| count.report(1, true, now + Duration::from_secs(second)));
        assert!(reported.into_iter().all(|believed| believed == 3));
    }

    #[test]
    fn a_list_that_was_lost_in_an_outage_lowers_nothing() {
        let (mut count, mut now) = (InstanceCount::default(), Instant::now());
        assert_eq!(believed(&mut count, &mut now, 1_000, &[3, 1, 1]), [3, 3, 3]);
        assert_eq!(believed(&mut count, &mut now, 60_000, &[1]), [3]);
        assert_eq!(believed(&mut count, &mut now, 2_000, &[1, 1, 1, 1]), [3; 4]);
        assert_eq!(believed(&mut count, &mut now, 2_000, &[1]), [1]);
    }
}
