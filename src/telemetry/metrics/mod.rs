//! Counters of what happens, one set a worker, summed when they are scraped.
//!
//! A worker bumps its own counters without a locked instruction; whoever scrapes adds them up. No label
//! takes a value that a client chose.

mod bans;
mod cell;
mod exposition;
mod format;
mod generation;
mod histogram;
mod history;
mod registry;
mod store;
mod totals;
mod worker;

pub use bans::{BanFacts, BanVerdict};
pub use cell::{Counter, Gauge};
pub use format::Format;
pub use generation::Totals;
pub use history::{History, Sample, Track};
pub use registry::{EndpointFacts, InstanceFacts, MemoryFacts, Metrics, StoreFacts};
pub use store::{StoreFailure, StoreMetrics};
pub use totals::{PolicyTotals, RouteTotals, UpstreamTotals};
pub use worker::{Outcome, PoolMetrics, PoolState, Source, ThreadMetrics, Verdict, WorkerMetrics};
