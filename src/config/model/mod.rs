//! The resolved configuration: immutable, replaced as a whole. All its values are valid.
//!
//! Settings refer to each other by index (`RouteAction::Upstream`, `Route::policies`), so that no request needs to look
//! up a name.

mod abuse;
mod access;
mod algorithm;
mod balance;
mod client;
mod client_tls;
mod config;
mod cors;
mod denial_reply;
mod display;
mod endpoint;
mod format;
mod health;
mod keys_file;
mod listener;
mod message_changes;
mod path_matching;
mod path_regex;
mod placeholder_text;
mod policy;
mod rate;
mod redirect;
mod redis_store;
mod retry;
mod route;
mod route_action;
mod route_index;
mod serialize;
mod store;
mod telemetry;
mod upstream;
mod user;
mod values;

pub use abuse::*;
pub use access::*;
pub use algorithm::*;
pub use balance::*;
pub use client::*;
pub use client_tls::*;
pub use config::*;
pub use cors::*;
pub use denial_reply::*;
pub use endpoint::*;
pub use format::{format_concurrency, format_duration, format_size};
pub use health::*;
pub use keys_file::*;
pub use listener::*;
pub use message_changes::*;
pub use path_matching::*;
pub use path_regex::*;
pub use placeholder_text::*;
pub use policy::*;
pub use rate::*;
pub use redirect::*;
pub use redis_store::*;
pub use retry::*;
pub use route::*;
pub use route_action::*;
pub use route_index::*;
pub use store::*;
pub use telemetry::*;
pub use upstream::*;
pub use user::*;
