//! How long the doctor looks before it says something.

use std::{env, time::Duration};

/// Samples a minute.
pub(super) const SAMPLES: u32 = 60;
/// Minutes that something has to be well before it is said to be.
const CONVALESCENCE: u32 = 5;

/// How long what is called a minute is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    minute: Duration,
}

impl Pace {
    /// A minute, unless `TOLLGATE_DOCTOR_MINUTE_MS` says otherwise, which is there for tests.
    pub fn from_environment() -> Self {
        let told = env::var("TOLLGATE_DOCTOR_MINUTE_MS").ok().and_then(|text| text.parse().ok());
        Self::of(Duration::from_millis(told.unwrap_or(60_000)))
    }

    /// With this for a minute.
    pub(super) fn of(minute: Duration) -> Self {
        Self { minute: minute.max(Duration::from_millis(60)) }
    }

    /// What a warning is about.
    pub(super) fn minute(self) -> Duration {
        self.minute
    }

    /// Between two samples.
    pub(super) fn beat(self) -> Duration {
        self.minute / SAMPLES
    }

    /// How long what was wrong must be right before it is said no longer.
    pub(super) fn convalescence(self) -> Duration {
        self.minute * CONVALESCENCE
    }
}
