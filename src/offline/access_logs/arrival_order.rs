//! Lines that were read ahead, in the order of their times.

use std::{
    cmp::Ordering,
    collections::{BinaryHeap, VecDeque},
};

use super::field::LogLine;

/// Lines in the order of their times, and among equal times in the order in which they were added.
#[derive(Default)]
pub(super) struct ArrivalOrder {
    /// Each of these came in order: most logs have no others.
    in_order: VecDeque<Queued>,
    /// Those that came after a later one.
    others: BinaryHeap<Queued>,
    added: u64,
}

struct Queued {
    number: u64,
    line: LogLine,
}

/// The position of a line. Those of whole seconds come before others of the same time.
type Position = (i64, bool, u64);

impl Queued {
    fn position(&self) -> Position {
        (self.line.request.time, !self.line.is_whole_second, self.number)
    }
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.position() == other.position()
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The first one is the greatest, since a heap gives the greatest.
impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        other.position().cmp(&self.position())
    }
}

impl ArrivalOrder {
    pub(super) fn len(&self) -> usize {
        self.in_order.len() + self.others.len()
    }

    pub(super) fn add(&mut self, line: LogLine) {
        let queued = Queued { number: self.added, line };
        self.added += 1;
        match self.in_order.back() {
            Some(last) if queued.position() < last.position() => self.others.push(queued),
            _ => self.in_order.push_back(queued),
        }
    }

    /// The first line.
    pub(super) fn peek(&self) -> Option<&LogLine> {
        let next = if self.is_other_first() { self.others.peek() } else { self.in_order.front() };
        next.map(|queued| &queued.line)
    }

    pub(super) fn pop(&mut self) -> Option<LogLine> {
        let next = if self.is_other_first() { self.others.pop() } else { self.in_order.pop_front() };
        next.map(|queued| queued.line)
    }

    /// The number of lines of the whole second at `time` that come first, if they all came in order and before any other
    /// line of that second: they can be spread in place. `None`: they can't.
    pub(super) fn whole_second(&self, time: i64) -> Option<usize> {
        let is_within = |line: &LogLine| line.request.time < time + 1_000_000;
        if self.others.peek().is_some_and(|other| is_within(&other.line)) {
            return None;
        }
        let is_of_second = |line: &LogLine| line.is_whole_second && line.request.time == time;
        let count = self.in_order.partition_point(|queued| is_of_second(&queued.line));
        let next = self.in_order.get(count);
        (!next.is_some_and(|next| is_within(&next.line))).then_some(count)
    }

    /// Spreads the first lines over their second.
    pub(super) fn spread(&mut self, count: usize) {
        for (nth, queued) in self.in_order.iter_mut().take(count).enumerate() {
            queued.line.request.time += spread(nth, count);
            queued.line.is_whole_second = false;
        }
    }

    fn is_other_first(&self) -> bool {
        match (self.in_order.front(), self.others.peek()) {
            (Some(front), Some(other)) => other.position() < front.position(),
            (front, _) => front.is_none(),
        }
    }
}

/// The time of the nth of the requests of a second, in microseconds from its begin.
pub(super) fn spread(nth: usize, count: usize) -> i64 {
    (nth * 1_000_000 / count) as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::offline::access_logs::line_format::tests::read_as;

    fn line(time: i64, is_whole_second: bool, name: usize) -> LogLine {
        let mut line =
            read_as("$msec $remote_addr \"$request\"", &format!("1 ::1 \"GET /{name} HTTP/1.1\"")).unwrap();
        line.request.time = time;
        LogLine { is_whole_second, ..line }
    }

    proptest! {
        /// In the order of a stable sort, however late lines come.
        #[test]
        fn lines_come_in_the_order_of_their_times(times in prop::collection::vec((0..20_i64, any::<bool>()), 0..60)) {
            let mut order = ArrivalOrder::default();
            for (name, (time, is_whole_second)) in times.iter().enumerate() {
                order.add(line(*time, *is_whole_second, name));
            }
            let mut expected: Vec<_> = times.into_iter().enumerate().collect();
            expected.sort_by_key(|(_, (time, is_whole_second))| (*time, !is_whole_second));
            let expected: Vec<_> = expected.into_iter().map(|(name, _)| format!("/{name}")).collect();
            let mut found = Vec::new();
            while let Some(path) = order.peek().map(|line| line.request.request.uri.path().to_owned()) {
                let popped = order.pop().unwrap();
                prop_assert_eq!(popped.request.request.uri.path(), &path);
                found.push(path);
            }
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_second_is_spread_in_place_if_all_of_it_came_in_order() {
        let second = 5_000_000;
        let mut order = ArrivalOrder::default();
        for (time, is_whole) in [(second, true), (second, true), (second + 1_000_000, false)] {
            order.add(line(time, is_whole, 0));
        }
        assert_eq!(order.whole_second(second), Some(2));
        order.spread(2);
        let times: Vec<_> = std::iter::from_fn(|| order.pop()).map(|line| line.request.time).collect();
        assert_eq!(times, [second, second + 500_000, second + 1_000_000]);

        order.add(line(second, true, 0));
        order.add(line(second + 1, false, 0));
        assert_eq!(order.whole_second(second), None, "an exact time lies within it");
        let mut order = ArrivalOrder::default();
        order.add(line(second, true, 0));
        order.add(line(second + 2_000_000, true, 0));
        order.add(line(second, true, 0));
        assert_eq!(order.whole_second(second), None, "one came later");
    }
}
