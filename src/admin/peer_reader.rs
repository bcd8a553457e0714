//! Reads limited clients and bans of other instances, when a handler needs them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use ipnet::IpNet;
use tokio::{sync::Mutex, time};

use super::archive_client::ArchiveClient;
use crate::{
    abuse::{Archive, ArchiveReader, ClientRegistry, UserAddresses, bans::BannedKey},
    limit::{Clock, Unavailable},
};

/// The archive is not read again so soon after a read, and not tried again so soon after a failure: requests that
/// waited behind the failed one must not each wait for the timeout, too.
const FRESH: Duration = Duration::from_millis(200);
/// Users that are read at once.
const USERS_AT_ONCE: usize = 32;

/// Reads the archive that instances share, for one request at a time. Requests that waited use the result of the one
/// before.
pub(super) struct PeerReader {
    archive: ArchiveClient,
    /// The clock of the records' times.
    clock: Arc<dyn Clock>,
    progress: Mutex<ReadProgress>,
}

struct ReadProgress {
    mirror: ArchiveReader,
    refreshed: Option<Instant>,
    failed: Option<Instant>,
}

impl PeerReader {
    /// Call it on the thread that uses the archive.
    pub(super) fn new(
        archive: impl Archive + 'static,
        registry: Arc<ClientRegistry>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let mirror = ArchiveReader::new(registry, Arc::clone(&clock));
        let progress = Mutex::new(ReadProgress { mirror, refreshed: None, failed: None });
        Self { archive: ArchiveClient::new(archive), clock, progress }
    }

    /// Reads the changes of limited clients; none if the archive is unavailable.
    pub(super) async fn refresh(&self) {
        let mut progress = self.progress.lock().await;
        if is_recent(progress.refreshed) || is_recent(progress.failed) {
            return;
        }
        let result = self.in_time(progress.mirror.refresh(&self.archive)).await;
        progress.refreshed = Some(Instant::now());
        progress.or_default(result);
    }

    /// Reads one client; nothing if the archive is unavailable.
    pub(super) async fn look_up(&self, address: IpNet) {
        let mut progress = self.progress.lock().await;
        if is_recent(progress.failed) {
            return;
        }
        let result = self.in_time(progress.mirror.look_up(&self.archive, address)).await;
        progress.or_default(result);
    }

    /// The addresses from which other instances denied a user; none if the archive is unavailable. `written`: the user
    /// as records name it.
    pub(super) async fn user(&self, written: &str) -> UserAddresses {
        self.users(&[written]).await.pop().unwrap_or_default()
    }

    /// As [`PeerReader::user`] of each of these users, in the same order; empty if the archive is unavailable.
    pub(super) async fn users(&self, written: &[&str]) -> Vec<UserAddresses> {
        let mut progress = self.progress.lock().await;
        if is_recent(progress.failed) {
            return Vec::new();
        }
        let now = self.clock.now();
        let read: Vec<_> = written.iter().map(|written| self.archive.user(written, now)).collect();
        let read = stream::iter(read).buffered(USERS_AT_ONCE).try_collect();
        let result = self.in_time(read).await;
        progress.or_default(result)
    }

    /// Number of bans of exactly this key on all instances; 0 if the archive is unavailable.
    pub(super) async fn count_bans(&self, key: &BannedKey) -> u64 {
        let mut progress = self.progress.lock().await;
        if is_recent(progress.failed) {
            return 0;
        }
        let result = self.in_time(self.archive.bans(key)).await;
        progress.or_default(result)
    }

    /// Publishes to all other instances that a client is unblocked. Tried even if the archive was unavailable just now.
    ///
    /// # Errors
    /// The archive is unavailable.
    pub(super) async fn unblock(&self, address: IpNet, by: &str) -> Result<(), Unavailable> {
        let _turn = self.progress.lock().await;
        self.in_time(self.archive.unblock(address, by)).await
    }
}

impl PeerReader {
    /// Gives up after the archive's timeout. Records that were read until then are kept.
    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, Unavailable>>,
    ) -> Result<T, Unavailable> {
        let late = || Unavailable::Abandoned("reading the records of other instances timed out");
        time::timeout(self.archive.patience(), answer).await.unwrap_or_else(|_| Err(late()))
    }
}

impl ReadProgress {
    /// A failure becomes an empty result: the operator sees the records of this instance alone.
    fn or_default<T: Default>(&mut self, result: Result<T, Unavailable>) -> T {
        result.unwrap_or_else(|error| {
            tracing::debug!(%error, "can't read what other instances have recorded");
            self.failed = Some(Instant::now());
            T::default()
        })
    }
}

fn is_recent(at: Option<Instant>) -> bool {
    at.is_some_and(|at| at.elapsed() < FRESH)
}
