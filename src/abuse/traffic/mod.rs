//! The requests of limited clients and the responses to them, in a few numbers per client, from which hints are
//! drawn.

mod counts;
mod history;
mod paths;
mod request_line;
mod suspects;
mod urls;
mod watched;

pub use counts::Traffic;
pub use history::TrafficHistory;
pub use request_line::RequestLine;
pub(super) use request_line::path_hash;
pub(super) use suspects::Suspects;
pub(super) use watched::WatchedAddresses;
