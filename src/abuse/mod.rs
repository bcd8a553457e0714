//! Records of limited clients: the users behind an address, when they were denied, and what they requested.
//!
//! Workers record denials in a table of their own ([`Recorder`]) and hand it over every tick through a
//! bounded queue; one thread ([`Collector`]) merges them into the [`ClientRegistry`], which the admin port
//! reads. Nothing here makes a request wait: what does not fit is dropped and counted.
//!
//! Where several instances share an [`Archive`], each writes its own records to it, one [`ClientSnapshot`] a
//! client ([`ClientRegistry::pending_snapshots`]), and an [`ArchiveReader`] fetches those of the others when the
//! admin port needs them.

mod address;
mod audit_log;
pub mod bans;
mod clients;
mod names;
mod outbox;
mod recording;
#[cfg(test)]
pub(crate) mod testing;

pub use address::{from_identifier, identifier, is_identifier_of, masked, parse, shown};
pub use audit_log::{AuditEntry, AuditLog, Author, MAX_AUDIT_ENTRIES};
pub use clients::{
    ADDRESSES, ADDRESSES_PER_USER, Archive, ArchiveReader, ChangesPage, ClientPosition, ClientQuery,
    ClientRegistry, ClientSnapshot, DenyingLimit, EvidenceUsage, LimitSnapshot, LimitedClient, PageScan,
    PeerView, PendingSnapshot, PendingUpdate, RequestRecord, RequestSnapshot, SHARED_CLIENTS, Sort,
    USER_ADDRESSES, UserAddress, UserAddresses, slices,
};
pub use names::UserNaming;
pub use outbox::Pending;
pub use recording::{Collector, Denial, Recorder};
