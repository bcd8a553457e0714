//! What is recorded of limited clients: who was behind an address, when, and what was asked for.
//!
//! Workers note denials in a table of their own ([`Recorder`]) and hand it over every tick through a
//! bounded queue; one thread ([`Collector`]) merges them into the [`Registry`], which the admin port
//! reads. Nothing here makes a request wait: what does not fit is dropped and counted.

mod address;
mod client;
mod collector;
mod denial;
mod evidence;
mod recorder;
mod registry;
#[cfg(test)]
pub(crate) mod testing;

pub use address::{identifier, is_of, masked, of_identifier, parse, shown};
pub use client::{Client, Limited, Record, USERS};
pub use collector::Collector;
pub use denial::Denial;
pub use recorder::Recorder;
pub use registry::Registry;
