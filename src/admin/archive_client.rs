//! The archive of limited clients that instances share, as handlers use it.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use ipnet::IpNet;
use send_wrapper::SendWrapper;

use crate::{
    abuse::{Archive, ChangesPage, PeerView, UserAddresses, bans::BannedKey},
    limit::Unavailable,
};

type ObjectResult<'a, T> = LocalBoxFuture<'a, Result<T, Unavailable>>;

/// Any archive, used on the thread of the admin port. See [`StoreClient`](super::store_client::StoreClient).
pub(super) struct ArchiveClient(SendWrapper<Box<dyn ObjectArchive>>);

impl ArchiveClient {
    /// Call it on the thread that uses the archive.
    pub(super) fn new(archive: impl Archive + 'static) -> Self {
        Self(SendWrapper::new(Box::new(archive)))
    }
}

impl Archive for ArchiveClient {
    fn patience(&self) -> Duration {
        self.0.patience()
    }

    async fn changed(&self, since: i64) -> Result<ChangesPage, Unavailable> {
        SendWrapper::new(self.0.changed(since)).await
    }

    async fn read(&self, addresses: &[IpNet]) -> Result<Vec<PeerView>, Unavailable> {
        SendWrapper::new(self.0.read(addresses)).await
    }

    async fn user(&self, written: &str, now: i64) -> Result<UserAddresses, Unavailable> {
        SendWrapper::new(self.0.user(written, now)).await
    }

    async fn unblock(&self, address: IpNet, by: &str) -> Result<(), Unavailable> {
        SendWrapper::new(self.0.unblock(address, by)).await
    }

    async fn bans(&self, key: &BannedKey) -> Result<u64, Unavailable> {
        SendWrapper::new(self.0.bans(key)).await
    }
}

/// [`Archive`] as an object, so that handlers are the same for every archive.
trait ObjectArchive {
    fn patience(&self) -> Duration;
    fn changed(&self, since: i64) -> ObjectResult<'_, ChangesPage>;
    fn read<'a>(&'a self, addresses: &'a [IpNet]) -> ObjectResult<'a, Vec<PeerView>>;
    fn user<'a>(&'a self, written: &'a str, now: i64) -> ObjectResult<'a, UserAddresses>;
    fn unblock<'a>(&'a self, address: IpNet, by: &'a str) -> ObjectResult<'a, ()>;
    fn bans<'a>(&'a self, key: &'a BannedKey) -> ObjectResult<'a, u64>;
}

impl<A: Archive> ObjectArchive for A {
    fn patience(&self) -> Duration {
        Archive::patience(self)
    }

    fn changed(&self, since: i64) -> ObjectResult<'_, ChangesPage> {
        Box::pin(Archive::changed(self, since))
    }

    fn read<'a>(&'a self, addresses: &'a [IpNet]) -> ObjectResult<'a, Vec<PeerView>> {
        Box::pin(Archive::read(self, addresses))
    }

    fn user<'a>(&'a self, written: &'a str, now: i64) -> ObjectResult<'a, UserAddresses> {
        Box::pin(Archive::user(self, written, now))
    }

    fn unblock<'a>(&'a self, address: IpNet, by: &'a str) -> ObjectResult<'a, ()> {
        Box::pin(Archive::unblock(self, address, by))
    }

    fn bans<'a>(&'a self, key: &'a BannedKey) -> ObjectResult<'a, u64> {
        Box::pin(Archive::bans(self, key))
    }
}
