//! The memory of the process for request bodies that are read before a decision.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

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
    /// By client, the bodies that wait, in their order. None is empty.
    queues: HashMap<IpAddr, VecDeque<u64>, RandomState>,
    /// The number of the next body that waits.
    next: u64,
}

/// The place of a body in the queue of its client, until dropped.
struct Turn<'m> {
    memory: &'m BodyMemory,
    client: IpAddr,
    number: u64,
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
        let (by_client, queues) = (HashMap::default(), HashMap::default());
        let used = UsedMemory { limit, bytes: 0, by_client, queues, next: 0 };
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
    fn try_reserve(&self, &Turn { client, number, .. }: &Turn<'_>, bytes: usize) -> bool {
        let used = &mut *self.used.lock();
        if used.queues.get(&client).and_then(VecDeque::front) != Some(&number) {
            return false;
        }
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

impl<'m> Turn<'m> {
    fn new(memory: &'m BodyMemory, client: IpAddr) -> Self {
        let used = &mut *memory.used.lock();
        let number = used.next;
        used.next += 1;
        used.queues.entry(client).or_default().push_back(number);
        Self { memory, client, number }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let used = &mut *self.memory.used.lock();
        if let Some(queue) = used.queues.get_mut(&self.client) {
            queue.retain(|number| *number != self.number);
            if queue.is_empty() {
                used.queues.remove(&self.client);
                return;
            }
        }
        // It is the next one's turn.
        self.memory.freed.notify_waiters();
    }
}

impl ReservedMemory {
    /// Reserves `bytes` in all, more than before. Waits for its turn.
    pub(super) async fn grow(&mut self, bytes: usize) -> Result<(), NoMemory> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let turn = Turn::new(&self.memory, self.client);
        let wait = async {
            loop {
                // Before the try: memory that is freed just then must not be missed.
                let freed = self.memory.freed.notified();
                if self.memory.try_reserve(&turn, more) {
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn bodies_of_a_client_get_memory_in_their_order() {
        let memory = Arc::new(BodyMemory::new(100));
        let [one, other] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let first = memory.reserve(one, 40).await.unwrap();
        let mut large = Box::pin(memory.reserve(one, 30));
        assert!((&mut large).now_or_never().is_none(), "a client gets half at most");
        let mut small = Box::pin(memory.reserve(one, 1));
        assert!((&mut small).now_or_never().is_none(), "there is room, and it is not its turn");
        let others = memory.reserve(other, 20).await.unwrap();
        drop(first);
        assert!((&mut small).now_or_never().is_none());
        let large = (&mut large).now_or_never().unwrap().unwrap();
        let small = (&mut small).now_or_never().unwrap().unwrap();
        // One that leaves the queue does not hold up the next.
        let mut leaves = Box::pin(memory.reserve(other, 90));
        let mut next = Box::pin(memory.reserve(other, 1));
        assert!((&mut leaves).now_or_never().is_none() && (&mut next).now_or_never().is_none());
        drop(leaves);
        drop((&mut next).now_or_never().unwrap().unwrap());
        drop((large, small, others));
        let used = memory.used.lock();
        assert!(used.bytes == 0 && used.by_client.is_empty() && used.queues.is_empty());
    }
}
