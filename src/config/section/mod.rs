//! The settings: one file per section of `proxy.yaml`.
//!
//! A function here takes the value of its key, if there is one, and returns the resolved part of the configuration with
//! all defaults. It reports errors and continues with the default, so that one run finds every error.

mod balance;
mod bans;
mod clients;
mod cost;
mod endpoints;
mod guessable_token;
mod health;
mod limits;
mod listeners;
mod overrides;
mod policies;
mod resolver;
mod retry;
mod root;
mod route_action;
mod routes;
mod tls;
mod upstreams;
mod user;

use std::time::Duration;

pub(super) use listeners::{AdminSettings, ListenerSettings};
pub(super) use root::read;
pub(super) use routes::RouteSettings;
pub(super) use user::{IdentitySources, UserSourceSettings};

/// The shortest duration of most settings.
const MIN_DURATION: Duration = Duration::from_millis(1);
