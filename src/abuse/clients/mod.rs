//! The registry of limited clients: what this instance knows of each, and what the others know.

mod active;
mod archive;
mod archive_reader;
mod distinct_users;
mod entry;
mod event_throttle;
mod history;
mod page;
pub(super) mod policies;
mod publication;
mod records;
mod registry;
mod snapshot;
mod sort_index;
mod table;
mod user_addresses;

pub use archive::{Archive, Changes, Others, Whereabouts};
pub use archive_reader::Mirror;
pub use distinct_users::slices;
pub use entry::{Client, Limited, Record};
pub use page::{Walk, Wanted};
pub use registry::{Registry, SHARED, Unpublished};
pub use snapshot::{LimitSnapshot, RecordSnapshot, Snapshot};
pub use sort_index::{Place, Sort};
pub use table::ADDRESSES;
pub use user_addresses::{ADDRESSES_A_USER, SIGHTINGS, Sighting, Untold};
