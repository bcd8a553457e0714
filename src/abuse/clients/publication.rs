//! The unpublished changes of a client, and when they are due.
//!
//! This is not an [`Outbox`](super::super::outbox::Outbox): clients are due by time, not in the order of their
//! changes. A client that changes again within [`PublishState::INTERVAL`] waits until that has passed, behind clients
//! that change later but were not published recently. And it may still be due after an acknowledgement, because its
//! users are sent one time slice at a time.

use std::collections::HashSet;

use super::super::traffic::TrafficHistory;
use crate::memory_budget::heap;

/// Users that may wait to be published: ample for a second. Of more, the ones that return are published then.
const USERS: usize = 4_096;

/// Kept with this instance's records of an address.
#[derive(Debug, Default)]
pub(super) struct PublishState {
    /// The change of the archive up to which the others were read.
    pub(super) read: Option<i64>,
    /// Number of changes so far, by which an acknowledgement tells the published ones.
    pub(super) changes: u64,
    /// When it was last published.
    last_published: Option<i64>,
    /// The part of this instance's counts that the archive has.
    pub(super) published: Option<Box<PublishedCounts>>,
    /// When it is due to be published, if there are changes.
    pub(super) due: Option<i64>,
    pub(super) users: NewUsers,
}

/// An instance's counts of a client, as of the last acknowledgement.
#[derive(Debug, Clone)]
pub(super) struct PublishedCounts {
    /// The copy of the client that has the counts. An archive that lost it begins another one.
    pub(super) incarnation: u32,
    pub(super) denied: u64,
    pub(super) traffic: TrafficHistory,
}

/// Users that are not published yet, by the time slice in which they were seen.
#[derive(Debug, Default)]
pub(super) struct NewUsers(Vec<(u32, Vec<u64>)>);

impl PublishState {
    /// Microseconds between two publications of a client.
    pub(super) const INTERVAL: i64 = 1_000_000;

    /// Notes a change to be published at once, or when the interval has passed.
    pub(super) fn change(&mut self, now: i64) {
        self.changes += 1;
        let due = self.last_published.map_or(now, |last| now.max(last.saturating_add(Self::INTERVAL)));
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// Notes a change that is not urgent.
    pub(super) fn change_later(&mut self, now: i64) {
        self.changes += 1;
        let due = self.last_published.map_or(now, |last| now.max(last.saturating_add(10 * Self::INTERVAL)));
        self.due.get_or_insert(due);
    }

    /// Acknowledges that the state after this number of `changes` was published, with these `users` and counts.
    pub(super) fn ack(&mut self, changes: u64, users: &[u64], published: PublishedCounts, now: i64) {
        self.users.ack(users);
        self.published = Some(Box::new(published));
        self.last_published = Some(now);
        let is_all = self.changes == changes && self.users.is_empty();
        self.due = (!is_all).then(|| now.saturating_add(Self::INTERVAL));
    }

    /// Bytes on the heap, including itself.
    pub(super) fn bytes(&self) -> usize {
        let users = self.users.0.iter().map(|(_, users)| heap::array::<u64>(users.capacity())).sum::<usize>();
        let published = self
            .published
            .as_ref()
            .map_or(0, |published| heap::array::<PublishedCounts>(1) + published.traffic.bytes());
        heap::array::<Self>(1) + heap::array::<(u32, Vec<u64>)>(self.users.0.capacity()) + users + published
    }
}

impl NewUsers {
    pub(super) fn add(&mut self, hash: u64, slice: u32) {
        let place = self.0.iter().position(|&(of, _)| of == slice).unwrap_or_else(|| {
            // If the archive was unavailable for long, it does not get the users of the first slices.
            if self.0.len() > 1 {
                self.0.remove(0);
            }
            self.0.push((slice, Vec::new()));
            self.0.len() - 1
        });
        let users = &mut self.0[place].1;
        if users.len() >= USERS {
            users.sort_unstable();
            users.dedup();
        }
        if users.len() < USERS {
            users.push(hash);
        }
    }

    /// The slice that waits longest, and its users.
    pub(super) fn next(&self) -> (u32, Vec<u64>) {
        let (slice, mut users) = self.0.first().cloned().unwrap_or_default();
        users.sort_unstable();
        users.dedup();
        (slice, users)
    }

    fn ack(&mut self, published: &[u64]) {
        if let Some((_, users)) = self.0.first_mut().filter(|_| !published.is_empty()) {
            let published: HashSet<_> = published.iter().collect();
            users.retain(|hash| !published.contains(hash));
        }
        self.0.retain(|(_, users)| !users.is_empty());
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> PublishedCounts {
        PublishedCounts { incarnation: 1, denied: 1, traffic: TrafficHistory::default() }
    }

    #[test]
    fn an_account_is_told_at_once_and_then_once_a_second() {
        const SECOND: i64 = PublishState::INTERVAL;
        let mut publication = PublishState::default();
        let ack = |publication: &mut PublishState, changes, now| {
            publication.ack(changes, &[], counts(), now);
        };
        publication.change(5);
        assert_eq!(publication.due, Some(5));
        publication.change(7);
        assert_eq!(publication.due, Some(5));
        ack(&mut publication, 2, 9);
        assert_eq!(publication.due, None);
        publication.change(10);
        assert_eq!(publication.due, Some(9 + SECOND));
        publication.change(11);
        ack(&mut publication, 3, SECOND * 2);
        assert_eq!(publication.due, Some(SECOND * 3), "what came meanwhile");
        ack(&mut publication, 4, SECOND * 3);
        publication.change(SECOND * 9);
        assert_eq!(publication.due, Some(SECOND * 9));
    }

    #[test]
    fn users_are_told_slice_after_slice_each_once() {
        let mut publication = PublishState::default();
        for (hash, slice) in [(7, 1), (8, 1), (7, 1), (9, 2)] {
            publication.users.add(hash, slice);
        }
        publication.change(1);
        assert_eq!(publication.users.next(), (1, vec![7, 8]));
        publication.users.add(6, 1);
        publication.ack(1, &[7, 8], counts(), 2);
        assert_eq!(publication.users.next(), (1, vec![6]), "who came meanwhile");
        publication.ack(1, &[6], counts(), 3);
        assert_eq!(publication.users.next(), (2, vec![9]));
        assert!(publication.due.is_some());
        publication.ack(1, &[9], counts(), 4);
        assert_eq!(publication.due, None);
    }

    #[test]
    fn of_an_archive_that_is_away_a_bounded_number_waits() {
        let mut users = NewUsers::default();
        (0..100).for_each(|slice| (0..10_000).for_each(|hash| users.add(hash, slice)));
        assert_eq!(
            users.0.iter().map(|(slice, users)| (*slice, users.len())).collect::<Vec<_>>(),
            [(98, USERS), (99, USERS)]
        );
    }
}
