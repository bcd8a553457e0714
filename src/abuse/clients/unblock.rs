//! Unblocks of a client. What was denied before holds the client no longer, and stays as evidence.

use serde::{Deserialize, Serialize};

/// An unblock by an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unblock {
    /// Microseconds since the Unix epoch.
    pub time: i64,
    /// `operator at 127.0.0.1`; empty where that is not known yet, since another instance has only said that it was.
    pub by: String,
}

impl Unblock {
    /// The same by a clock that is ahead by so many microseconds.
    #[must_use]
    pub fn shifted(&self, ahead: i64) -> Self {
        Self { time: self.time.saturating_add(ahead), by: self.by.clone() }
    }
}
