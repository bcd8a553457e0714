//! How often somebody may be wrong about the token where it is typed in.
//!
//! For the whole process: an address more is nothing to whoever guesses. Programs that bear the token themselves are not
//! asked to wait: they must not be shut out by whoever types.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Wrong tokens a [`PERIOD`]; after those, none is looked at until it is over.
const FAILURES: u32 = 10;
const PERIOD: Duration = Duration::from_secs(1);

/// The wrong ones of late.
#[derive(Debug, Default)]
pub(super) struct Guesses(Mutex<Option<(Instant, u32)>>);

impl Guesses {
    /// Whether another may be looked at.
    pub(super) fn may_guess(&self, now: Instant) -> bool {
        self.0.lock().is_none_or(|(began, failures)| is_over(began, now) || failures < FAILURES)
    }

    /// Another was wrong.
    pub(super) fn wrong(&self, now: Instant) {
        let mut period = self.0.lock();
        *period = match *period {
            Some((began, failures)) if !is_over(began, now) => Some((began, failures.saturating_add(1))),
            _ => Some((now, 1)),
        };
    }
}

fn is_over(began: Instant, now: Instant) -> bool {
    now.saturating_duration_since(began) >= PERIOD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_ten_wrong_ones_the_next_waits_for_the_second_to_end() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for _ in 0..FAILURES {
            assert!(guesses.may_guess(now));
            guesses.wrong(now);
        }
        assert!(!guesses.may_guess(now + PERIOD / 2));
        assert!(guesses.may_guess(now + PERIOD));
        guesses.wrong(now + PERIOD);
        assert!(guesses.may_guess(now + PERIOD), "they are counted anew");
    }
}
