//! Records of limited clients: the users behind an address, when they were denied, and what they requested.
//!
//! Workers record denials in a table of their own ([`Recorder`]) and hand it over every tick through a bounded queue.
//! One thread ([`Collector`]) merges them into the [`ClientRegistry`], which the admin port reads. Nothing here makes
//! a request wait: denials without room are dropped and counted.
//!
//! If several instances share an [`Archive`], it has one [`SharedClient`] per client, into which each merges its
//! records ([`ClientRegistry::pending_clients`], [`ClientRegistry::merge_shared`]). An [`ArchiveReader`] fetches
//! the others' records when the admin port needs them.

mod address;
mod audit_log;
pub mod bans;
mod clients;
mod hint;
mod incidents;
mod logged_client;
mod names;
mod outbox;
mod recording;
#[cfg(test)]
pub(crate) mod testing;
mod traffic;

pub use address::{
    from_identifier, identifier, is_identifier_of, masked, names_more_than_an_address, parse, shown,
};
pub use audit_log::{AuditEntry, AuditLog, Author, MAX_AUDIT_ENTRIES};
pub use clients::{
    ADDRESSES, ADDRESSES_PER_USER, Archive, ArchiveReader, ChangesPage, ClientPosition, ClientQuery,
    ClientRegistry, DeniedAddress, DeniedCounts, DenyingLimit, EvidenceUsage, Expiry, LimitedClient,
    PageScan, PeerView, PendingClient, PendingUpdate, RecordedRoute, RequestRecord, SHARED_CLIENTS,
    SharedClient, SharedCounts, SharedEvidence, SharedUnblock, Sort, TrafficCounts, USER_ADDRESSES, Unblock,
    UserAddresses, UserDenialCounts, UserDenials, UserSample, incarnation,
};
pub use hint::Hint;
pub use incidents::{
    Cause, CauseCounts, ClientCounts, Credential, Finding, Incident, IncidentKind, Incidents, KeptIncident,
    Member, Minute, Mute, SlotCounts, WrittenIncident,
};
pub use logged_client::LoggedClient;
pub use names::{UserNaming, is_pseudonym, is_shortened, shorten_name};
pub use outbox::Pending;
pub use recording::{Collector, DenialReport, ObservedResponse, Recorder};
pub use traffic::{RequestLine, Signs, TrafficHistory, is_refusal};
