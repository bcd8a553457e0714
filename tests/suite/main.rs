//! What can be seen of Tollgate from outside. One binary: it is linked once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may panic: that is how they fail"
)]

mod abuse;
mod access_log;
mod activation;
mod admin;
mod attack;
mod bans;
mod broken_answers;
mod broken_uploads;
mod browser;
mod cli;
mod client_limits;
mod commands;
mod config_golden;
mod config_model;
mod config_robust;
mod conformance;
mod dashboards;
mod demo;
mod deploy;
mod doctor;
mod environment;
mod exactness;
mod explain;
mod forwarding;
mod framing;
mod fuzz;
mod harness;
mod hostile_operators;
mod hygiene;
mod identifiers;
mod in_force;
mod ladders;
mod layering;
mod limits;
mod limits_of_keys;
mod memory_store;
mod metrics;
mod openapi;
mod outage;
mod parking;
mod paths;
mod pictures;
mod policies;
mod programs;
mod proxying;
mod redis_audit;
mod redis_rights;
mod redis_tls;
mod refused_uploads;
mod reload;
mod shared_limits;
mod shared_records;
mod slices;
mod token_limits;
mod tokens;
mod top;
mod traces;
