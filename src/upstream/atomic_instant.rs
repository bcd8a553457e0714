//! A point in time that threads share without a lock.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// A point in time that workers share, or none: in microseconds since the first use of any `AtomicInstant`.
#[derive(Debug, Default)]
pub(super) struct AtomicInstant(AtomicU64);

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Never 0, which means none. In range for half a million years.
fn micros(at: Instant) -> u64 {
    at.saturating_duration_since(*EPOCH).as_micros().max(1) as u64
}

impl AtomicInstant {
    pub(super) fn set(&self, at: Instant) {
        self.0.store(micros(at), Ordering::Relaxed);
    }

    /// Sets it unless it is later than `now`. If several threads do so at the same time, one succeeds.
    pub(super) fn set_if_over(&self, now: Instant, at: Instant) -> bool {
        let (known, now, at) = (self.0.load(Ordering::Relaxed), micros(now), micros(at));
        known <= now && self.0.compare_exchange(known, at, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(super) fn clear(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// `None`: no point in time is set.
    pub(super) fn get(&self) -> Option<Instant> {
        let micros = self.0.load(Ordering::Relaxed);
        if micros == 0 { None } else { EPOCH.checked_add(Duration::from_micros(micros)) }
    }

    /// Whether it is later than `now`.
    pub(super) fn is_after(&self, now: Instant) -> bool {
        self.get().is_some_and(|at| now < at)
    }
}
