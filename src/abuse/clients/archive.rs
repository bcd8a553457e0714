//! The archive through which instances share limited clients and bans.

use std::time::Duration;

use ipnet::IpNet;

use super::{super::bans::BannedKey, ClientSnapshot, DeniedAddress};
use crate::limit::Unavailable;

/// Reads what the other instances have written, and writes down who was unblocked. An instance's own records are not
/// returned to it.
pub trait Archive {
    /// How long an operator's request may wait for it.
    fn patience(&self) -> Duration {
        Duration::from_millis(500)
    }

    /// Clients that changed at `since` or later by the archive's own clock, in order of their changes; a
    /// page of them.
    ///
    /// # Errors
    /// The archive can't be asked.
    fn changed(&self, since: i64) -> impl Future<Output = Result<ChangesPage, Unavailable>>;

    /// What the others hold of these clients, in the same order.
    ///
    /// # Errors
    /// As [`Archive::changed`].
    fn read(&self, addresses: &[IpNet]) -> impl Future<Output = Result<Vec<PeerView>, Unavailable>>;

    /// The addresses that a user was denied at. `written`: the user's name as recorded. `now`: by the clock that stamps
    /// denials.
    ///
    /// # Errors
    /// As [`Archive::changed`].
    fn user(&self, written: &str, now: i64) -> impl Future<Output = Result<UserAddresses, Unavailable>>;

    /// Has every instance know that `by` has unblocked a client. What is known of it stays.
    ///
    /// # Errors
    /// As [`Archive::changed`]; the client may have been unblocked all the same.
    fn unblock(&self, address: IpNet, by: &str) -> impl Future<Output = Result<(), Unavailable>>;

    /// How many bans there are by exactly this key.
    ///
    /// # Errors
    /// As [`Archive::changed`].
    fn bans(&self, key: &BannedKey) -> impl Future<Output = Result<u64, Unavailable>>;
}

/// A page of what changed. Times are microseconds by the archive's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangesPage {
    /// When it was asked.
    pub now: i64,
    /// Each with the time of its last change.
    pub clients: Vec<(IpNet, i64)>,
    /// Since when to ask for the next page, where there is one.
    pub next: Option<i64>,
}

/// What all other instances hold of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerView {
    pub unblocked: Option<PeerUnblock>,
    /// What they know together. Its records may be this instance's as well.
    pub snapshot: Option<ClientSnapshot>,
    /// How many users all instances together saw behind it, this one among them; 0 where there is no other.
    pub users: u64,
    /// The copy of the client in which the counts of the others include what this instance had published. `None`: they do not.
    pub own_summed_up: Option<u32>,
}

/// When and by whom a client was unblocked last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerUnblock {
    /// How many microseconds ago. Not a time, since each clock has its own.
    pub ago: i64,
    pub by: String,
    /// Whether an instance has denied the client again since.
    pub denied_since: bool,
}

/// The addresses that a user was denied at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserAddresses {
    /// As this instance has published.
    pub own: Vec<DeniedAddress>,
    /// As each of the others has.
    pub others: Vec<DeniedAddress>,
    /// The sums of others that include what this instance had published, each with the copy of the user that has it.
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
