//! A queue of items for other instances. Pure.

use std::collections::BTreeMap;

/// A bounded queue. An item leaves it when it is acknowledged or removed, or when it is the oldest of too many of its
/// class: no number of items pushes out one of another class.
///
/// Every push gets a new sequence number, and an acknowledgement names the numbers that were sent. So it never
/// removes items pushed meanwhile, whichever were dropped or removed in between.
#[derive(Debug)]
pub(super) struct Outbox<T, const CLASSES: usize = 1> {
    /// By class.
    items: [BTreeMap<i64, T>; CLASSES],
    next_sequence: i64,
    /// The number of items that are put before all others: below 0.
    first_sequence: i64,
    /// Per class.
    capacity: usize,
}

/// An item that waits to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending<T> {
    /// Its number in the outbox, for the acknowledgement.
    pub(super) sequence: i64,
    pub item: T,
}

impl<T> Outbox<T> {
    /// Adds an item after all others. Returns its sequence number, and the oldest item if it had to make room.
    pub(super) fn push(&mut self, item: T) -> (i64, Option<T>) {
        self.push_to(0, item)
    }
}

impl<T, const CLASSES: usize> Outbox<T, CLASSES> {
    /// An empty outbox for `capacity` items of each class.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            items: std::array::from_fn(|_| BTreeMap::new()),
            next_sequence: 0,
            first_sequence: 0,
            capacity,
        }
    }

    /// Adds an item of this class after all others. Returns its sequence number, and the oldest item of the class if
    /// it had to make room.
    pub(super) fn push_to(&mut self, class: usize, item: T) -> (i64, Option<T>) {
        let items = &mut self.items[class];
        let is_full = items.len() >= self.capacity;
        let dropped = if is_full { items.pop_first() } else { None };
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        items.insert(sequence, item);
        (sequence, dropped.map(|(_, item)| item))
    }

    /// Adds an item of this class before all others, unless there is no room.
    pub(super) fn prepend_to(&mut self, class: usize, item: T) {
        let items = &mut self.items[class];
        if items.len() < self.capacity {
            self.first_sequence -= 1;
            items.insert(self.first_sequence, item);
        }
    }

    /// Up to `max` items, oldest first. They are kept until they are acknowledged.
    pub(super) fn pending(&self, max: usize) -> Vec<Pending<T>>
    where
        T: Clone,
    {
        let oldest = self.oldest_first().take(max);
        oldest.map(|(sequence, item)| Pending { sequence, item: item.clone() }).collect()
    }

    /// All items of all classes, with their sequence numbers.
    fn oldest_first(&self) -> impl Iterator<Item = (i64, &T)> {
        let mut classes = self.items.each_ref().map(|items| items.iter().peekable());
        std::iter::from_fn(move || {
            let next = classes.iter_mut().filter_map(|items| Some((*items.peek()?.0, items)));
            let (_, items) = next.min_by_key(|(sequence, _)| *sequence)?;
            items.next().map(|(&sequence, item)| (sequence, item))
        })
    }

    /// Removes the sent items. Items that were removed already are ignored.
    pub(super) fn ack(&mut self, sent: &[Pending<T>]) {
        for Pending { sequence, .. } in sent {
            self.remove(*sequence);
        }
    }

    /// Removes one item of any class.
    pub(super) fn remove(&mut self, sequence: i64) -> Option<T> {
        self.items.iter_mut().find_map(|items| items.remove(&sequence))
    }

    /// The number of the next item.
    pub(super) fn next_sequence(&self) -> i64 {
        self.next_sequence
    }

    /// Whether an item of this class with a number below `sequence` waits.
    pub(super) fn waits_before(&self, class: usize, sequence: i64) -> bool {
        self.items[class].first_key_value().is_some_and(|(&first, _)| first < sequence)
    }

    /// Removes all items. Sequence numbers continue, so an earlier acknowledgement removes nothing that is pushed
    /// afterwards.
    pub(super) fn clear(&mut self) {
        self.items.iter_mut().for_each(BTreeMap::clear);
    }

    /// All items, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.oldest_first().map(|(_, item)| item)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.items.iter().map(BTreeMap::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use proptest::prelude::*;

    use super::*;

    fn items(sent: &[Pending<u32>]) -> Vec<u32> {
        sent.iter().map(|sent| sent.item).collect()
    }

    fn outbox(capacity: usize, items: std::ops::Range<u32>) -> Outbox<u32> {
        let mut outbox = Outbox::new(capacity);
        for item in items {
            outbox.push(item);
        }
        outbox
    }

    #[test]
    fn items_stay_until_they_are_acknowledged() {
        let mut outbox = outbox(9, 0..4);
        let sent = outbox.pending(2);
        assert_eq!((items(&sent), items(&outbox.pending(9))), (vec![0, 1], vec![0, 1, 2, 3]));
        outbox.push(4);
        outbox.ack(&sent);
        outbox.ack(&sent);
        assert_eq!(items(&outbox.pending(9)), [2, 3, 4]);
    }

    #[test]
    fn a_full_outbox_drops_its_oldest_item() {
        let mut outbox = outbox(3, 0..3);
        let sent = outbox.pending(2);
        assert_eq!(outbox.push(3), (3, Some(0)));
        outbox.ack(&sent);
        assert_eq!(items(&outbox.pending(9)), [2, 3]);
        assert_eq!(outbox.push(4), (4, None));
    }

    #[test]
    fn an_item_that_is_prepended_goes_first_where_there_is_room() {
        let mut outbox = outbox(4, 0..2);
        let sent = outbox.pending(1);
        [7, 8, 9].into_iter().for_each(|item| outbox.prepend_to(0, item));
        assert_eq!(items(&outbox.pending(9)), [8, 7, 0, 1]);
        outbox.ack(&sent);
        outbox.prepend_to(0, 6);
        assert_eq!(items(&outbox.pending(9)), [6, 8, 7, 1]);
        assert_eq!(outbox.push(2), (2, Some(6)));
    }

    #[test]
    fn a_removed_item_is_not_sent_and_numbers_are_never_used_again() {
        let mut outbox = outbox(9, 0..3);
        let sent = outbox.pending(9);
        assert_eq!((outbox.remove(1), outbox.remove(1)), (Some(1), None));
        assert_eq!(items(&outbox.pending(9)), [0, 2]);
        outbox.clear();
        outbox.push(0);
        outbox.ack(&sent);
        assert_eq!(items(&outbox.pending(9)), [0]);
    }

    #[test]
    fn items_of_one_class_push_out_none_of_another() {
        let mut outbox = Outbox::<_, 2>::new(2);
        for (class, item) in [(0, 0), (1, 1), (1, 2), (0, 3)] {
            assert_eq!(outbox.push_to(class, item).1, None);
        }
        assert_eq!(items(&outbox.pending(9)), [0, 1, 2, 3]);
        assert_eq!(outbox.push_to(1, 4), (4, Some(1)));
        assert_eq!(items(&outbox.pending(3)), [0, 2, 3]);
        outbox.ack(&outbox.pending(2));
        assert_eq!((items(&outbox.pending(9)), outbox.len()), (vec![3, 4], 2));
        outbox.clear();
        assert_eq!(outbox.iter().next(), None);
    }

    #[derive(Debug, Clone)]
    enum Operation {
        Push,
        /// Reads this number of items, and remembers them as in flight.
        Send(usize),
        /// The oldest batch in flight has arrived.
        Ack,
        /// The oldest batch in flight is lost.
        Lose,
        /// Removes the item at this index.
        Remove(usize),
        /// Clears all items, and pushes them again.
        ResendAll,
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            4 => Just(Operation::Push),
            3 => (0..6_usize).prop_map(Operation::Send),
            2 => Just(Operation::Ack),
            1 => Just(Operation::Lose),
            1 => (0..8_usize).prop_map(Operation::Remove),
            1 => Just(Operation::ResendAll),
        ]
    }

    proptest! {
        /// Compares with a plain list: no acknowledged item is sent again unless it is pushed again, none is lost
        /// unless it is dropped by the bound or removed by a caller, and the order is the order of pushes.
        #[test]
        fn items_leave_only_by_an_acknowledgement_a_removal_or_the_bound(
            capacity in 1..8_usize,
            operations in prop::collection::vec(operation(), 0..200),
        ) {
            let mut outbox = Outbox::new(capacity);
            // Number of the push, and item, oldest first.
            let mut waiting: VecDeque<(i64, u32)> = VecDeque::new();
            let mut in_flight: VecDeque<Vec<Pending<u32>>> = VecDeque::new();
            let mut acked = HashSet::new();
            let (mut pushes, mut next_item) = (0_i64, 0_u32);
            for operation in operations {
                let mut push = |outbox: &mut Outbox<u32>, waiting: &mut VecDeque<(i64, u32)>, item| {
                    let expected = if waiting.len() == capacity { waiting.pop_front() } else { None };
                    waiting.push_back((pushes, item));
                    let (sequence, dropped) = outbox.push(item);
                    assert_eq!((sequence, dropped), (pushes, expected.map(|(_, item)| item)));
                    pushes += 1;
                };
                match operation {
                    Operation::Push => {
                        push(&mut outbox, &mut waiting, next_item);
                        next_item += 1;
                    }
                    Operation::Send(max) => {
                        let sent = outbox.pending(max);
                        let expected: Vec<_> = waiting.iter().take(max).copied().collect();
                        let found: Vec<_> = sent.iter().map(|sent| (sent.sequence, sent.item)).collect();
                        prop_assert!(found.iter().all(|(sequence, _)| !acked.contains(sequence)));
                        prop_assert_eq!(found, expected);
                        in_flight.push_back(sent);
                    }
                    Operation::Ack => {
                        let Some(sent) = in_flight.pop_front() else { continue };
                        outbox.ack(&sent);
                        acked.extend(sent.iter().map(|sent| sent.sequence));
                        waiting.retain(|(sequence, _)| !acked.contains(sequence));
                    }
                    Operation::Lose => drop(in_flight.pop_front()),
                    Operation::Remove(place) => {
                        if let Some((sequence, item)) = waiting.remove(place) {
                            prop_assert_eq!(outbox.remove(sequence), Some(item));
                        }
                    }
                    Operation::ResendAll => {
                        outbox.clear();
                        for (_, item) in std::mem::take(&mut waiting) {
                            push(&mut outbox, &mut waiting, item);
                        }
                    }
                }
                prop_assert!(outbox.len() <= capacity);
                prop_assert!(outbox.iter().eq(waiting.iter().map(|(_, item)| item)));
            }
        }
    }
}
