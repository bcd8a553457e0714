//! What is recorded of limited clients: who was behind an address, when, and what was asked for.
//!
//! Workers note denials in a table of their own ([`Recorder`]) and hand it over every tick through a
//! bounded queue; one thread ([`Collector`]) merges them into the [`Registry`], which the admin port
//! reads. Nothing here makes a request wait: what does not fit is dropped and counted.
//!
//! Where several instances share an [`Archive`], each writes down there what it holds itself, a
//! [`Snapshot`] a client ([`Registry::unpublished`]), and a [`Mirror`] brings what the others hold when
//! somebody asks.

mod address;
mod audit_log;
pub mod bans;
mod clients;
mod names;
mod recording;
#[cfg(test)]
pub(crate) mod testing;

pub use address::{identifier, is_of, masked, of_identifier, parse, shown};
pub use audit_log::{AuditEntry, AuditLog, ENTRIES};
pub use clients::{
    ADDRESSES, ADDRESSES_A_USER, Archive, Changes, Client, LimitSnapshot, Limited, Mirror, Others, Place,
    Record, RecordSnapshot, Registry, SHARED, SIGHTINGS, Sighting, Snapshot, Sort, Unpublished, Untold, Walk,
    Wanted, Whereabouts, slices,
};
pub use names::Names;
pub use recording::{Collector, Denial, Recorder};
