//! The registry of limited clients: this instance's records, and the ones of the other instances.

mod active;
mod archive;
mod archive_reader;
mod distinct_users;
mod entry;
mod event_throttle;
mod history;
mod instance_counts;
mod page;
mod peer_sync;
pub(super) mod policies;
mod publication;
mod records;
mod registry;
mod shared_client;
mod sort_index;
mod table;
mod unblock;
mod user_addresses;
mod user_sample;

pub use archive::{Archive, ChangesPage, PeerView, UserAddresses};
pub use archive_reader::ArchiveReader;
pub use entry::{DenyingLimit, LimitedClient, RequestRecord};
pub use instance_counts::{DeniedCounts, TrafficCounts, UserDenialCounts, UserDenials};
pub use page::{ClientQuery, PageScan};
pub use peer_sync::{PendingClient, SHARED_CLIENTS};
pub use policies::RecordedRoute;
pub use registry::{ClientRegistry, EvidenceUsage};
pub use shared_client::{Expiry, SharedClient, SharedCounts, SharedEvidence, SharedUnblock, incarnation};
pub use sort_index::{ClientPosition, Sort};
pub use table::ADDRESSES;
pub use unblock::Unblock;
pub use user_addresses::{ADDRESSES_PER_USER, DeniedAddress, PendingUpdate, USER_ADDRESSES};
pub use user_sample::UserSample;
