//! Counters of what happens, one set a worker, summed when they are scraped.
//!
//! A worker bumps its own counters without a locked instruction; whoever scrapes adds them up. No label
//! takes a value that a client chose.

mod cell;
mod exposition;
mod histogram;
mod history;
mod registry;
mod store;
mod worker;

pub use cell::{Counter, Gauge};
pub use history::{History, Sample, Track};
pub use registry::{MemoryFacts, Metrics, StoreFacts};
pub use store::{StoreFailure, StoreMetrics};
pub use worker::{Outcome, PoolState, Source, Verdict, WorkerMetrics};
