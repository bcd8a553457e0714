//! The resolved configuration, as the rest of the crate knows it: immutable, replaced as a whole. All its values are valid.
//!
//! Settings refer to each other by index (`RouteAction::Upstream`, `Route::policies`), so that no request needs to look
//! up a name.

pub use super::abuse::settings::*;
pub use super::history::{
    alerts::{Alert, AlertWhen},
    settings::*,
};
pub use super::identity::access::*;
pub use super::identity::settings::*;
pub use super::keys::keys_file::*;
pub use super::keys::settings::*;
pub use super::listeners::clients::*;
pub use super::listeners::settings::*;
pub use super::policies::algorithm::*;
pub use super::policies::calendar::*;
pub use super::policies::cost::*;
pub use super::policies::denial_reply::*;
pub use super::policies::settings::*;
pub use super::request_values::settings::*;
pub use super::resolved::*;
pub use super::routes::action::*;
pub use super::routes::cors::*;
pub use super::routes::index::*;
pub use super::routes::message_changes::*;
pub use super::routes::policies::*;
pub use super::routes::redirect::*;
pub use super::routes::settings::*;
pub use super::store::settings::*;
pub use super::telemetry::settings::*;
pub use super::upstreams::balance::*;
pub use super::upstreams::client_tls::*;
pub use super::upstreams::endpoint::*;
pub use super::upstreams::health::*;
pub use super::upstreams::retry::*;
pub use super::upstreams::settings::*;
pub use super::value::http::*;
pub use super::value::key::*;
pub use super::value::network::*;
pub use super::value::origin::*;
pub use super::value::path_matching::*;
pub use super::value::path_regex::*;
pub use super::value::patterns::*;
pub use super::value::placeholders::*;
pub use super::value::rate::*;
pub use super::value::template::*;
pub use super::written::format::*;
