//! Access log, metrics, traces and diagnostics.

mod access_log;
mod certificates;
mod diagnostics;
mod metrics;
mod outages;
mod traces;
