//! Something that happens once, and that others wait for.

use std::{
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use super::PATIENCE;

/// Closed until somebody opens it. Clones are the same latch.
#[derive(Debug, Clone, Default)]
pub struct Latch(Arc<(Mutex<bool>, Condvar)>);

impl Latch {
    /// A closed one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets everyone pass, now and later.
    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Waits until it is open.
    #[track_caller]
    pub fn wait(&self) {
        assert!(self.opens_within(PATIENCE), "the latch was never opened");
    }

    /// Waits until it is open, for `limit` at most. Says whether it is.
    pub fn opens_within(&self, limit: Duration) -> bool {
        let open = self.0.0.lock().unwrap();
        *self.0.1.wait_timeout_while(open, limit, |open| !*open).unwrap().0
    }
}
