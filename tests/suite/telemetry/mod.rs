//! Access log, metrics, traces and warnings.

mod access_log;
mod doctor;
mod metrics;
mod traces;
