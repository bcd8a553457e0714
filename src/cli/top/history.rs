//! The last minute, second by second.

use std::collections::VecDeque;

use super::rates::Total;

/// Seconds.
const KEPT: usize = 60;

/// Rates, the newest first, in hundredths: what happens less than once a second shows, too. `None`: not known.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    requests: VecDeque<Option<u64>>,
    denied: VecDeque<Option<u64>>,
}

impl History {
    pub(super) fn note(&mut self, total: Option<Total>) {
        let hundredths = |rate: f64| (rate * 100.0).round() as u64;
        push(&mut self.requests, total.map(|total| hundredths(total.requests)));
        push(&mut self.denied, total.map(|total| hundredths(total.denied)));
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = Option<u64>> {
        self.requests.iter().copied()
    }

    pub(super) fn denied(&self) -> impl Iterator<Item = Option<u64>> {
        self.denied.iter().copied()
    }
}

fn push(values: &mut VecDeque<Option<u64>>, value: Option<u64>) {
    values.push_front(value);
    values.truncate(KEPT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_kept_the_newest_first() {
        let mut history = History::default();
        for second in 0..100 {
            let total = Total { requests: f64::from(second), denied: 0.254, shadow_denied: 0.0 };
            history.note(Some(total));
        }
        history.note(None);
        let requests: Vec<_> = history.requests().collect();
        assert_eq!((requests.len(), requests[0], requests[1]), (60, None, Some(9_900)));
        assert_eq!(history.denied().nth(1), Some(Some(25)));
    }
}
