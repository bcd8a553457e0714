//! The settings: one file per section of `proxy.yaml`.
//!
//! A function here takes the value of its key, if there is one, and returns the resolved part of the configuration with
//! all defaults. It reports errors and continues with the default, so that one run finds every error.

mod balance;
mod bans;
mod clients;
mod cost;
mod guessable_token;
mod limits;
mod listeners;
mod overrides;
mod plans;
mod policies;
mod root;
mod route_action;
mod route_policies;
mod routes;
mod tls;
mod upstreams;
mod user;

pub(super) use listeners::{AdminSettings, ListenerSettings};
pub(super) use root::read;
pub(super) use routes::RouteSettings;
pub(super) use upstreams::UpstreamSettings;
pub(super) use user::{IdentitySources, UserSourceSettings};
