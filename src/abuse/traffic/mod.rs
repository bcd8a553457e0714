//! The requests of limited clients and the responses to them, in a few numbers per client, from which hints are
//! drawn.

mod counts;
mod history;
mod paths;
mod people;
mod request_line;
mod sketch;
mod suspects;
mod watched;

pub use counts::{Traffic, is_refusal};
pub use history::TrafficHistory;
pub(super) use people::Who;
pub use people::{People, Signs};
pub use request_line::RequestLine;
pub(super) use request_line::{path_hash, value_hash};
pub(super) use suspects::Suspects;
pub(super) use watched::WatchedAddresses;
