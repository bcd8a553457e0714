//! Reads the other instances' records of limited clients into the registry, when the admin port needs them.

use std::sync::Arc;

use ipnet::IpNet;

use super::{Archive, ChangesPage, ClientRegistry};
use crate::limit::{Clock, Unavailable};

/// Clients read at a time.
const CHUNK: usize = 128;
/// Microseconds of changes that are read again: a new archive may be behind the one it replaced.
const OVERLAP: i64 = 5_000_000;

/// Follows the changes of an archive.
pub struct ArchiveReader {
    registry: Arc<ClientRegistry>,
    /// The clock that stamps denials.
    clock: Arc<dyn Clock>,
    /// By the archive's clock.
    since: i64,
}

impl ArchiveReader {
    /// A reader that has read nothing yet.
    pub fn new(registry: Arc<ClientRegistry>, clock: Arc<dyn Clock>) -> Self {
        Self { registry, clock, since: 0 }
    }

    /// Reads the changes since the last call. Cancel safe: the next call continues where this one stopped.
    ///
    /// # Errors
    /// The archive is not available. Changes read until then are kept.
    pub async fn refresh(&mut self, archive: &impl Archive) -> Result<(), Unavailable> {
        loop {
            let ChangesPage { now: asked, clients, next } = archive.changed(self.since).await?;
            let asked = asked.max(0);
            if asked < self.since {
                // The clock differs from the previous one, so all changes are read again.
                self.since = 0;
                continue;
            }
            let lacking: Vec<_> = clients
                .into_iter()
                .filter(|&(address, change)| self.registry.is_outdated(address, change))
                .map(|(address, change)| (address, Some(change)))
                .collect();
            for chunk in lacking.chunks(CHUNK) {
                self.read(archive, chunk).await?;
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

    /// Reads one client, even if it has not changed.
    ///
    /// # Errors
    /// As [`ArchiveReader::refresh`].
    pub async fn look_up(&self, archive: &impl Archive, address: IpNet) -> Result<(), Unavailable> {
        self.read(archive, &[(address, None)]).await
    }

    /// Reads clients, each with the change at which it is read, if known.
    async fn read(
        &self,
        archive: &impl Archive,
        clients: &[(IpNet, Option<i64>)],
    ) -> Result<(), Unavailable> {
        let addresses: Vec<_> = clients.iter().map(|&(address, _)| address).collect();
        // By a time after a slow reply, an unblock would seem later than it was, and hide a denial that followed it.
        let now = self.clock.now();
        let found = archive.read(&addresses).await?;
        for (&(address, change), found) in clients.iter().zip(found) {
            self.registry.replace_peer_view(address, found, change, now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::RefCell,
        pin::pin,
        task::{Context, Poll, Waker},
        time::Duration,
    };

    use super::{
        super::{
            super::{address, bans::BannedKey, testing::policy},
            PeerView, SharedClient, UserAddresses,
        },
        *,
    };
    use crate::{
        limit::ManualClock,
        telemetry::{metrics::Metrics, testing},
    };

    /// Clients by the times of their changes; two a page.
    #[derive(Default)]
    struct Shelf {
        now: i64,
        changed: Vec<(IpNet, i64)>,
        away_after: usize,
        read: RefCell<Vec<IpNet>>,
    }

    impl Archive for Shelf {
        async fn changed(&self, since: i64) -> Result<ChangesPage, Unavailable> {
            let clients: Vec<_> =
                self.changed.iter().copied().filter(|&(_, change)| change >= since).take(2).collect();
            let next = clients.last().filter(|_| clients.len() == 2).map(|&(_, change)| change);
            Ok(ChangesPage { now: self.now, clients, next })
        }

        async fn read(&self, addresses: &[IpNet]) -> Result<Vec<PeerView>, Unavailable> {
            if self.read.borrow().len() >= self.away_after {
                return Err(Unavailable::Connection("away".into()));
            }
            self.read.borrow_mut().extend(addresses);
            let mut client = SharedClient::default();
            (client.counts.first, client.counts.last) = (1, 1);
            client.counts.denied.report(2, 1, None);
            Ok(vec![PeerView { client, instance: 1, now: self.now }; addresses.len()])
        }

        async fn user(&self, _: &str, _: i64) -> Result<UserAddresses, Unavailable> {
            Ok(UserAddresses::default())
        }

        async fn unblock(&self, _: IpNet, _: &str) -> Result<(), Unavailable> {
            Ok(())
        }

        async fn bans(&self, _: &BannedKey) -> Result<u64, Unavailable> {
            Ok(0)
        }
    }

    fn ready<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("nothing here waits"),
        }
    }

    fn client(n: u8) -> IpNet {
        address::parse(&format!("203.0.113.{n}")).unwrap()
    }

    fn mirror() -> ArchiveReader {
        let metrics = Metrics::new(&testing::config(), 1);
        let registry = Arc::new(ClientRegistry::new(&[policy()], Duration::from_secs(60), metrics));
        ArchiveReader::new(registry, Arc::new(ManualClock::new(1)))
    }

    #[test]
    fn changes_are_read_page_by_page_and_none_twice() {
        let mut mirror = mirror();
        let changed = (1..=5).map(|n| (client(n), i64::from(n) * 10)).collect();
        let mut shelf = Shelf { now: 60, changed, away_after: 3, ..Shelf::default() };
        assert!(ready(mirror.refresh(&shelf)).is_err());
        shelf.away_after = usize::MAX;
        assert_eq!(ready(mirror.refresh(&shelf)).ok(), Some(()));
        assert_eq!(shelf.read.take(), (1..=5).map(client).collect::<Vec<_>>());
        assert_eq!(mirror.registry.clients(1, |_| true).len(), 5);
        shelf.changed[1].1 = 55;
        shelf.changed.sort_by_key(|&(_, change)| change);
        assert!(ready(mirror.refresh(&shelf)).is_ok());
        assert_eq!(shelf.read.take(), [client(2)]);
    }

    #[test]
    fn a_clock_that_was_set_back_hides_nothing() {
        let mut mirror = mirror();
        let mut shelf = Shelf { now: OVERLAP * 9, away_after: usize::MAX, ..Shelf::default() };
        assert!(ready(mirror.refresh(&shelf)).is_ok());
        shelf.now = OVERLAP;
        shelf.changed = vec![(client(1), 5), (client(2), i64::MAX)];
        assert!(ready(mirror.refresh(&shelf)).is_ok());
        assert_eq!(shelf.read.take(), [client(1), client(2)]);
        shelf.now = OVERLAP * 2;
        shelf.changed.insert(1, (client(3), OVERLAP + 1));
        assert!(ready(mirror.refresh(&shelf)).is_ok());
        assert_eq!(shelf.read.take(), [client(3)], "a time in the far future blocks no other");
    }
}
