//! The settings: one file per section of `proxy.yaml`.
//!
//! A function here takes the value of its key, if there is one, and returns the resolved part of the configuration with
//! all defaults. It reports errors and continues with the default, so that one run finds every error.

mod access;
mod balance;
mod bans;
mod bypassable_limits;
mod clients;
mod cors;
mod cost;
mod doubtful_paths;
mod endpoints;
mod guessable_token;
mod health;
mod limits;
mod listeners;
mod message_changes;
mod other_spellings;
mod overrides;
mod path_spellings;
mod policies;
mod redirect;
mod resolver;
mod retry;
mod root;
mod route_action;
mod routes;
mod split;
mod spoofable_headers;
mod tls;
mod unreachable_routes;
mod unused_policies;
mod upstreams;
mod user;

use std::time::Duration;

pub(super) use listeners::{AdminSettings, ListenerSettings};
pub(super) use root::read;
pub(super) use user::{IdentitySources, UserSourceSettings};

/// The shortest duration of most settings.
const MIN_DURATION: Duration = Duration::from_millis(1);
