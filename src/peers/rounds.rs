//! Rounds of periodic work.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Interval, interval},
};

/// One round per interval, and a last one when the process ends, so that nothing pending is lost.
pub(super) struct Rounds {
    interval: Interval,
    ends: watch::Receiver<bool>,
    is_over: bool,
}

impl Rounds {
    /// `ends` becomes true, or loses its sender, when the process ends.
    pub(super) fn new(every: Duration, ends: &watch::Receiver<bool>) -> Self {
        Self { interval: interval(every), ends: ends.clone(), is_over: false }
    }

    /// Whether this round is the last.
    pub(super) fn is_last(&self) -> bool {
        self.is_over
    }

    /// Waits for the next round. False after the last one.
    pub(super) async fn next(&mut self) -> bool {
        if self.is_over {
            return false;
        }
        tokio::select! {
            _ = self.interval.tick() => {}
            _ = self.ends.wait_for(|ends| *ends) => self.is_over = true,
        }
        true
    }
}
