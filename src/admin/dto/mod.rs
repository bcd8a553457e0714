//! Bodies of requests and responses of the admin port; the command line reads them, too. Times are RFC 3339 in UTC,
//! durations as in proxy.yaml, keys as in the store (`ip:203.0.113.7`).

mod alerts;
mod audit;
mod bans;
mod clients;
mod configuration;
mod customers;
mod drains;
mod explanation;
mod history;
mod incidents;
mod keys;
mod limits;
mod peaks;
mod problem;
pub(super) mod schema;
mod status;

pub use alerts::*;
pub use audit::*;
pub use bans::*;
pub use clients::*;
pub use configuration::*;
pub use customers::*;
pub use drains::*;
pub use explanation::*;
pub use history::*;
pub use incidents::*;
pub use keys::*;
pub use limits::*;
pub use peaks::*;
pub use problem::*;
pub use status::*;
