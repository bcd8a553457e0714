//! The settings: one file a section of `proxy.yaml`.
//!
//! A function here takes the value under its key, if there is one, and gives the resolved part of
//! the configuration, with the defaults for what is left out. What is wrong it reports, and goes on
//! with the default, so that one reading finds every error.

mod abuse;
mod bypassable_limits;
mod clients;
mod listeners;
mod policies;
mod root;
mod routes;
mod store;
mod telemetry;
mod unreachable_routes;
mod upstreams;
mod user;

use std::time::Duration;

pub(super) use root::read;

/// The shortest time that is measured.
const MIN_DURATION: Duration = Duration::from_millis(1);
