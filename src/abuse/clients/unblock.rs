//! Unblocks of a client. They end the limits of earlier denials, which are kept as evidence.

use serde::{Deserialize, Serialize};

/// An unblock by an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unblock {
    /// Microseconds since the Unix epoch.
    pub time: i64,
    /// `operator at 127.0.0.1`; empty while it is not known, because another instance has only sent the time.
    pub by: String,
}

impl Unblock {
    /// The same unblock by a clock that is ahead by this number of microseconds.
    #[must_use]
    pub fn shifted(&self, ahead: i64) -> Self {
        Self { time: self.time.saturating_add(ahead), by: self.by.clone() }
    }
}
