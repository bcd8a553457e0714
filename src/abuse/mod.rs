//! What is recorded of limited clients: who was behind an address, when, and what was asked for.
//!
//! Workers note denials in a table of their own ([`Recorder`]) and hand it over every tick through a
//! bounded queue; one thread ([`Collector`]) merges them into the [`Registry`], which the admin port
//! reads. Nothing here makes a request wait: what does not fit is dropped and counted.
//!
//! Where several instances share an [`Archive`], each writes down there what it holds itself, a
//! [`Snapshot`] a client ([`Registry::unpublished`]), and a [`Mirror`] brings what the others hold when
//! somebody asks.

mod account;
mod address;
mod archive;
mod audit;
pub mod bans;
mod client;
mod clients;
mod collector;
mod denial;
mod ends;
mod evidence;
mod herald;
mod mirror;
mod names;
mod noted;
mod order;
mod policies;
mod publication;
mod recorder;
mod registry;
mod sightings;
mod snapshot;
#[cfg(test)]
pub(crate) mod testing;
mod users;
mod walk;

pub use address::{identifier, is_of, masked, of_identifier, parse, shown};
pub use archive::{Archive, Changes, Others, Whereabouts};
pub use audit::{AuditEntry, AuditLog, ENTRIES};
pub use client::{Client, Limited, Record};
pub use clients::ADDRESSES;
pub use collector::Collector;
pub use denial::Denial;
pub use mirror::Mirror;
pub use names::Names;
pub use order::{Place, Sort};
pub use recorder::Recorder;
pub use registry::{Registry, SHARED, Unpublished};
pub use sightings::{ADDRESSES_A_USER, SIGHTINGS, Sighting, Untold};
pub use snapshot::{LimitSnapshot, RecordSnapshot, Snapshot};
pub use users::slices;
pub use walk::{Walk, Wanted};
