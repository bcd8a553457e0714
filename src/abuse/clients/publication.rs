//! What of a client is still to be published in the archive, and when.
//!
//! This is no [`Outbox`](super::super::outbox::Outbox): clients are due by time, not in the order of their changes. A client
//! that changes again within [`PublishState::INTERVAL`] waits until that has passed, behind clients that change later but
//! were not published lately; and one acknowledgement may leave it due, since its users are sent a slice of time at a time.

use std::collections::HashSet;

use super::super::traffic::TrafficHistory;
use crate::memory_budget::heap;

/// Users who may wait to be told: those of a second, amply. Of more, who comes again is told then.
const USERS: usize = 4_096;

/// Belongs to what this instance knows of an address.
#[derive(Debug, Default)]
pub(super) struct PublishState {
    /// The change of the archive up to which the others were read.
    pub(super) read: Option<i64>,
    /// Changes so far: which of them were told can be said later.
    pub(super) changes: u64,
    /// When it was told last.
    told: Option<i64>,
    /// What of this instance's counts the archive has.
    pub(super) published: Option<Box<PublishedCounts>>,
    /// When it is to be told, where there is anything to tell.
    pub(super) due: Option<i64>,
    pub(super) users: NewUsers,
}

/// What an instance has counted of a client, as it was acknowledged last.
#[derive(Debug, Clone)]
pub(super) struct PublishedCounts {
    /// The copy of the client that has it. An archive that lost that copy begins another.
    pub(super) incarnation: u32,
    pub(super) denied: u64,
    pub(super) traffic: TrafficHistory,
}

/// Users who were not told yet, by the slice of time in which they were seen.
#[derive(Debug, Default)]
pub(super) struct NewUsers(Vec<(u32, Vec<u64>)>);

impl PublishState {
    /// Microseconds between two times that a client is told.
    pub(super) const INTERVAL: i64 = 1_000_000;

    /// There is something to tell: at once, or when the last time is long enough ago.
    pub(super) fn change(&mut self, now: i64) {
        self.changes += 1;
        let due = self.told.map_or(now, |told| now.max(told.saturating_add(Self::INTERVAL)));
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// There is something to tell that is not urgent.
    pub(super) fn change_later(&mut self, now: i64) {
        self.changes += 1;
        let due = self.told.map_or(now, |told| now.max(told.saturating_add(10 * Self::INTERVAL)));
        self.due.get_or_insert(due);
    }

    /// The account was told as it was after so many `changes`, with these `users` and counts.
    pub(super) fn ack(&mut self, changes: u64, users: &[u64], published: PublishedCounts, now: i64) {
        self.users.ack(users);
        self.published = Some(Box::new(published));
        self.told = Some(now);
        let is_all = self.changes == changes && self.users.is_empty();
        self.due = (!is_all).then(|| now.saturating_add(Self::INTERVAL));
    }

    /// Bytes on the heap, itself included.
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
            // An archive that was away for long is not told who was there at its beginning.
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

    fn ack(&mut self, told: &[u64]) {
        if let Some((_, users)) = self.0.first_mut().filter(|_| !told.is_empty()) {
            let told: HashSet<_> = told.iter().collect();
            users.retain(|hash| !told.contains(hash));
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
