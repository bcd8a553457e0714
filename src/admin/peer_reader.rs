//! What other instances know of limited clients and of bans, read when a handler asks for it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use tokio::{sync::Mutex, time};

use super::archive_client::ArchiveClient;
use crate::{
    abuse::{Archive, ArchiveReader, ClientRegistry, UserAddresses, bans::BannedKey},
    limit::{Clock, Unavailable},
};

/// What was read this lately is not read again. Nor is an archive asked again that was away this lately: requests that
/// waited behind the one that found out need not wait as long.
const FRESH: Duration = Duration::from_millis(200);

/// Reads the archive that instances share, for one request at a time: what one has read serves those that waited.
pub(super) struct PeerReader {
    archive: ArchiveClient,
    /// The clock that stamps denials.
    clock: Arc<dyn Clock>,
    progress: Mutex<Progress>,
}

struct Progress {
    mirror: ArchiveReader,
    refreshed: Option<Instant>,
    failed: Option<Instant>,
}

impl PeerReader {
    /// To be called on the thread that asks the archive.
    pub(super) fn new(
        archive: impl Archive + 'static,
        registry: Arc<ClientRegistry>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let mirror = ArchiveReader::new(registry, Arc::clone(&clock));
        let progress = Mutex::new(Progress { mirror, refreshed: None, failed: None });
        Self { archive: ArchiveClient::new(archive), clock, progress }
    }

    /// Reads what has changed about limited clients, as far as it can be had.
    pub(super) async fn refresh(&self) {
        let mut progress = self.progress.lock().await;
        if is_recent(progress.refreshed) || is_recent(progress.failed) {
            return;
        }
        let result = self.in_time(progress.mirror.refresh(&self.archive)).await;
        progress.refreshed = Some(Instant::now());
        progress.or_default(result);
    }

    /// Reads one client, as far as it can be had.
    pub(super) async fn look_up(&self, address: IpNet) {
        let mut progress = self.progress.lock().await;
        if is_recent(progress.failed) {
            return;
        }
        let result = self.in_time(progress.mirror.look_up(&self.archive, address)).await;
        progress.or_default(result);
    }

    /// From which addresses other instances have denied a user, as far as it can be had. `written`: as records name it.
    pub(super) async fn user(&self, written: &str) -> UserAddresses {
        let mut progress = self.progress.lock().await;
        if is_recent(progress.failed) {
            return UserAddresses::default();
        }
        let result = self.in_time(self.archive.user(written, self.clock.now())).await;
        progress.or_default(result)
    }

    /// How many bans all instances know by exactly this key, as far as it can be had.
    pub(super) async fn count_bans(&self, key: &BannedKey) -> u64 {
        let mut progress = self.progress.lock().await;
        if is_recent(progress.failed) {
            return 0;
        }
        let result = self.in_time(self.archive.bans(key)).await;
        progress.or_default(result)
    }

    /// Has every other instance know that a client is unblocked. It is asked for even where the archive was away lately.
    pub(super) async fn unblock(&self, address: IpNet, by: &str) -> Result<(), Unavailable> {
        let _turn = self.progress.lock().await;
        self.in_time(self.archive.unblock(address, by)).await
    }
}

impl PeerReader {
    /// What was read by then is shown.
    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, Unavailable>>,
    ) -> Result<T, Unavailable> {
        let late = || Unavailable::Abandoned("reading the records of other instances timed out");
        time::timeout(self.archive.patience(), answer).await.unwrap_or_else(|_| Err(late()))
    }
}

impl Progress {
    /// Without the others, an operator is shown what this instance knows.
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
