//! Brings what other instances hold of limited clients, when handlers ask for it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use tokio::{sync::mpsc, time};

use super::desk::Errand;
use crate::{
    abuse::{Archive, Mirror, Registry, Whereabouts, bans::Key},
    limit::{Clock, Unavailable},
};

/// How long an answer waits for the archive. What was read by then is told.
const TIMEOUT: Duration = Duration::from_millis(500);
/// What was read so lately is not read again. Nor is an archive that was away so lately asked again:
/// whoever waited behind the one who found out need not find out, too.
const FRESH: Duration = Duration::from_millis(200);

/// Runs errands, one at a time: what one brought serves those that waited behind it.
pub(super) struct Archivist<A> {
    archive: A,
    /// The same that stamps denials.
    clock: Arc<dyn Clock>,
    mirror: Mirror,
    refreshed: Option<Instant>,
    failed: Option<Instant>,
}

impl<A: Archive> Archivist<A> {
    pub(super) fn new(archive: A, registry: Arc<Registry>, clock: Arc<dyn Clock>) -> Self {
        let mirror = Mirror::new(registry, Arc::clone(&clock));
        Self { archive, clock, mirror, refreshed: None, failed: None }
    }

    /// Runs errands until every desk is gone.
    pub(super) async fn serve(mut self, mut errands: mpsc::Receiver<Errand>) {
        while let Some(errand) = errands.recv().await {
            // Whoever asked may have gone: then nobody wants the answer.
            let _gone = match errand {
                Errand::Refresh { answer } => answer.send(self.refresh().await),
                Errand::LookUp { address, answer } => answer.send(self.look_up(address).await),
                Errand::User { written, answer } => {
                    let _gone = answer.send(self.user(&written).await);
                    continue;
                }
                Errand::Forget { address, answer } => {
                    answer.send(bounded(self.archive.forget(address, self.clock.now())).await)
                }
                Errand::Bans { key, answer } => {
                    let _gone = answer.send(self.bans(&key).await);
                    continue;
                }
            };
        }
    }

    async fn refresh(&mut self) -> Result<(), Unavailable> {
        if lately(self.refreshed) || lately(self.failed) {
            return Ok(());
        }
        let result = bounded(self.mirror.refresh(&self.archive)).await;
        self.refreshed = Some(Instant::now());
        self.note(&result);
        result
    }

    async fn look_up(&mut self, address: IpNet) -> Result<(), Unavailable> {
        if lately(self.failed) {
            return Ok(());
        }
        let result = bounded(self.mirror.look_up(&self.archive, address)).await;
        self.note(&result);
        result
    }

    async fn user(&mut self, written: &str) -> Result<Whereabouts, Unavailable> {
        if lately(self.failed) {
            return Ok(Whereabouts::default());
        }
        let result = bounded(self.archive.user(written, self.clock.now())).await;
        self.note(&result);
        result
    }

    async fn bans(&mut self, key: &Key) -> Result<u64, Unavailable> {
        if lately(self.failed) {
            return Ok(0);
        }
        let result = bounded(self.archive.bans(key)).await;
        self.note(&result);
        result
    }

    fn note<T>(&mut self, result: &Result<T, Unavailable>) {
        if result.is_err() {
            self.failed = Some(Instant::now());
        }
    }
}

fn lately(at: Option<Instant>) -> bool {
    at.is_some_and(|at| at.elapsed() < FRESH)
}

async fn bounded<T>(errand: impl Future<Output = Result<T, Unavailable>>) -> Result<T, Unavailable> {
    let late = || Unavailable::Abandoned("the archive of limited clients did not answer in time");
    time::timeout(TIMEOUT, errand).await.unwrap_or_else(|_| Err(late()))
}
