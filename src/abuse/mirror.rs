//! Brings what other instances hold of limited clients into the registry, when somebody asks for it.

use std::sync::Arc;

use ipnet::IpNet;

use super::{Archive, Changes, Registry};
use crate::limit::Unavailable;

/// Clients read at a time.
const CHUNK: usize = 32;
/// Microseconds of changes that are looked at again: an archive that took the place of another may be
/// behind it.
const OVERLAP: i64 = 5_000_000;

/// How far a registry has followed an archive.
#[derive(Debug)]
pub struct Mirror {
    registry: Arc<Registry>,
    /// By the archive's clock.
    since: i64,
}

impl Mirror {
    /// One that has read nothing yet.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry, since: 0 }
    }

    /// Reads what has changed since the last time. Dropped before its end, it has done a part, and the next
    /// one goes on from there. `now`: microseconds since the Unix epoch.
    ///
    /// # Errors
    /// The archive can't be asked. What was read until then stays.
    pub async fn refresh(&mut self, archive: &impl Archive, now: i64) -> Result<(), Unavailable> {
        loop {
            let Changes { now: asked, clients, next } = archive.changed(self.since).await?;
            let asked = asked.max(0);
            if asked < self.since {
                // Another clock than before: nothing is known of what changed by it.
                self.since = 0;
                continue;
            }
            let lacking: Vec<_> = clients
                .into_iter()
                .filter(|&(address, change)| self.registry.lacks(address, change))
                .collect();
            for chunk in lacking.chunks(CHUNK) {
                self.read(archive, chunk, now).await?;
            }
            match next.filter(|&next| self.since < next && next <= asked) {
                Some(next) => self.since = next,
                None => {
                    self.since = asked.saturating_sub(OVERLAP);
                    return Ok(());
                }
            }
        }
    }

    /// Reads one client, whether it has changed or not.
    ///
    /// # Errors
    /// As [`Mirror::refresh`].
    pub async fn look_up(&self, archive: &impl Archive, address: IpNet, now: i64) -> Result<(), Unavailable> {
        for found in archive.read(&[address]).await? {
            self.registry.replace_others(address, found, None, now);
        }
        Ok(())
    }

    async fn read(
        &self,
        archive: &impl Archive,
        clients: &[(IpNet, i64)],
        now: i64,
    ) -> Result<(), Unavailable> {
        let addresses: Vec<_> = clients.iter().map(|&(address, _)| address).collect();
        let found = archive.read(&addresses).await?;
        for (&(address, change), found) in clients.iter().zip(found) {
            self.registry.replace_others(address, found, Some(change), now);
        }
        Ok(())
    }
}
