//! Access log, metrics, traces and diagnostics.

mod access_log;
mod diagnostics;
mod metrics;
mod traces;
