//! The memory of the process for request bodies that are read before a decision.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::timeout};

/// How long a body waits for memory.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Shared by all workers. A body counts until it is freed: until the upstream has taken it, and no retry needs it.
#[derive(Debug)]
pub struct BodyMemory {
    used: Mutex<UsedMemory>,
    freed: Notify,
}

#[derive(Debug)]
struct UsedMemory {
    limit: usize,
    bytes: usize,
    /// By client, as limits identify it. None is 0.
    by_client: HashMap<IpAddr, usize, RandomState>,
}

/// The memory for one body, until dropped.
#[derive(Debug)]
pub(super) struct ReservedMemory {
    memory: Arc<BodyMemory>,
    client: IpAddr,
    bytes: usize,
}

/// There was no memory for a body in time.
#[derive(Debug)]
pub(super) struct NoMemory;

impl BodyMemory {
    /// `limit`: for all bodies, in bytes.
    pub fn new(limit: usize) -> Self {
        let used = UsedMemory { limit, bytes: 0, by_client: HashMap::default() };
        Self { used: Mutex::new(used), freed: Notify::new() }
    }

    /// Sets the limit for bodies that come from now on.
    pub fn set_limit(&self, limit: usize) {
        self.used.lock().limit = limit;
        self.freed.notify_waiters();
    }

    /// Reserves memory for a body of this `client`, as limits identify it. Waits for its turn.
    ///
    /// # Errors
    /// There was none in time.
    pub(super) async fn reserve(
        self: &Arc<Self>,
        client: IpAddr,
        bytes: usize,
    ) -> Result<ReservedMemory, NoMemory> {
        let mut reserved = ReservedMemory { memory: Arc::clone(self), client, bytes: 0 };
        reserved.grow(bytes).await?;
        Ok(reserved)
    }

    /// A client gets no more than it leaves for others (dynamic thresholds, Choudhury and Hahne 1998): alone at most half,
    /// and never all.
    fn try_reserve(&self, client: IpAddr, bytes: usize) -> bool {
        let used = &mut *self.used.lock();
        let all = used.bytes.saturating_add(bytes);
        let own = used.by_client.get(&client).copied().unwrap_or_default().saturating_add(bytes);
        let fits = own <= used.limit.saturating_sub(all);
        if fits {
            used.bytes = all;
            used.by_client.insert(client, own);
        }
        fits
    }

    fn free(&self, client: IpAddr, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let used = &mut *self.used.lock();
        used.bytes = used.bytes.saturating_sub(bytes);
        if let Some(own) = used.by_client.get_mut(&client) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                used.by_client.remove(&client);
            }
        }
        self.freed.notify_waiters();
    }
}

impl ReservedMemory {
    /// Reserves `bytes` in all, more than before. Waits for its turn.
    pub(super) async fn grow(&mut self, bytes: usize) -> Result<(), NoMemory> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let wait = async {
            loop {
                // Before the try: memory that is freed just then must not be missed.
                let freed = self.memory.freed.notified();
                if self.memory.try_reserve(self.client, more) {
                    return;
                }
                freed.await;
            }
        };
        timeout(LONGEST_WAIT, wait).await.map_err(|_late| NoMemory)?;
        self.bytes += more;
        Ok(())
    }

    /// Keeps `body` in this memory, until its last clone is dropped.
    pub(super) fn hold(mut self, body: Bytes) -> Bytes {
        let excess = self.bytes.saturating_sub(body.len());
        self.memory.free(self.client, excess);
        self.bytes -= excess;
        Bytes::from_owner(HeldBody { body, _memory: self })
    }
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        self.memory.free(self.client, self.bytes);
    }
}

/// A body and its memory.
struct HeldBody {
    body: Bytes,
    _memory: ReservedMemory,
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}
