//! The last minute, sample by sample.

use std::collections::VecDeque;

use super::{pace::SAMPLES, tally::Tally};

/// What was counted in the last minute.
#[derive(Debug, Default)]
pub(super) struct Window(VecDeque<Tally>);

impl Window {
    /// Takes the newest sample, and forgets what is older than a minute.
    pub(super) fn push(&mut self, sample: Tally) {
        self.0.push_back(sample);
        while self.0.len() > SAMPLES as usize {
            self.0.pop_front();
        }
    }

    /// All of it.
    pub(super) fn total(&self) -> Tally {
        let mut total = Tally::default();
        for sample in &self.0 {
            total.add(sample);
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_a_minute_is_forgotten() {
        let mut window = Window::default();
        for _ in 0..SAMPLES {
            window.push(Tally { requests: 2, ..Tally::default() });
        }
        assert_eq!(window.total().requests, 120);
        window.push(Tally::default());
        assert_eq!(window.total().requests, 118);
    }
}
