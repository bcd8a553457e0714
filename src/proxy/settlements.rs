//! What a worker still has to give back when its last request has ended.

use std::{cell::Cell, time::Duration};

use tokio::sync::Notify;

/// What is left of a worker's time once its last request has ended.
const LAST_CALL: Duration = Duration::from_secs(1);

/// The tasks of a worker that have something to give back.
#[derive(Debug, Default)]
pub struct Settlements {
    open: Cell<usize>,
    ended: Notify,
}

impl Settlements {
    /// Ready once all is given back, or it is too late for it.
    pub async fn settled(&self) {
        let settled = async {
            while self.open.get() > 0 {
                self.ended.notified().await;
            }
        };
        if tokio::time::timeout(LAST_CALL, settled).await.is_err() {
            tracing::warn!(requests = self.open.get(), "leases are left to expire: the store can't be asked");
        }
    }

    /// Counts one more, until it is dropped.
    pub(super) fn open(&self) -> Open<'_> {
        self.open.set(self.open.get() + 1);
        Open(self)
    }
}

/// One of them, for as long as it is there.
pub(super) struct Open<'a>(&'a Settlements);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get().saturating_sub(1));
        self.0.ended.notify_one();
    }
}
