//! The archive through which instances share limited clients and bans.

use std::time::Duration;

use ipnet::IpNet;

use super::{super::bans::BannedKey, DeniedAddress, SharedClient};
use crate::limit::Unavailable;

/// Reads the records of the other instances, and publishes unblocks. An instance's own records are not returned to
/// it.
pub trait Archive {
    /// How long an operator's request may wait for the archive.
    fn patience(&self) -> Duration {
        Duration::from_millis(500)
    }

    /// A page of the clients that changed at `since` or later by the archive's own clock, in order of their changes.
    ///
    /// # Errors
    /// The archive is not available.
    fn changed(&self, since: i64) -> impl Future<Output = Result<ChangesPage, Unavailable>>;

    /// The other instances' records of these clients, in the same order.
    ///
    /// # Errors
    /// As [`Archive::changed`].
    fn read(&self, addresses: &[IpNet]) -> impl Future<Output = Result<Vec<PeerView>, Unavailable>>;

    /// The addresses at which a user was denied. `written`: the user's stored name. `now`: by the clock that stamps
    /// denials.
    ///
    /// # Errors
    /// As [`Archive::changed`].
    fn user(&self, written: &str, now: i64) -> impl Future<Output = Result<UserAddresses, Unavailable>>;

    /// Tells every instance that `by` has unblocked a client. Its records are kept.
    ///
    /// # Errors
    /// As [`Archive::changed`]; the client may have been unblocked nevertheless.
    fn unblock(&self, address: IpNet, by: &str) -> impl Future<Output = Result<(), Unavailable>>;

    /// The number of bans with exactly this key.
    ///
    /// # Errors
    /// As [`Archive::changed`].
    fn bans(&self, key: &BannedKey) -> impl Future<Output = Result<u64, Unavailable>>;
}

/// A page of changed clients. Times are microseconds by the archive's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangesPage {
    /// When the page was read.
    pub now: i64,
    /// Each with the time of its last change.
    pub clients: Vec<(IpNet, i64)>,
    /// The start of the next page, if there is one.
    pub next: Option<i64>,
}

/// A client as one instance reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerView {
    /// Without records if the archive does not have the client.
    pub client: SharedClient,
    /// The number of the instance that reads it.
    pub instance: u32,
    /// When it was read, in microseconds by the archive's clock.
    pub now: i64,
}

/// The addresses at which a user was denied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserAddresses {
    /// As published by this instance.
    pub own: Vec<DeniedAddress>,
    /// As published by each of the others.
    pub others: Vec<DeniedAddress>,
    /// Sums of others that include counts published by this instance, each with the copy of the user that has it.
    pub summed_up: Vec<(DeniedAddress, u32)>,
}

/// No archive: there are no other instances.
impl Archive for () {
    async fn changed(&self, since: i64) -> Result<ChangesPage, Unavailable> {
        Ok(ChangesPage { now: since, clients: Vec::new(), next: None })
    }

    async fn read(&self, addresses: &[IpNet]) -> Result<Vec<PeerView>, Unavailable> {
        Ok(vec![PeerView::default(); addresses.len()])
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
