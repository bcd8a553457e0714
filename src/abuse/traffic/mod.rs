//! What limited clients request and how they are answered, in a few numbers each: what their hints are drawn from.

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
